"""Scans of a flat graph as Loops, which may return what differs in size from trip to trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from placer.graph.additions import Additions
from placer.graph.edit import replace_nodes
from placer.graph.flat import body_of, entered_bodies
from placer.graph.scan_form import ScanForm
from placer.graph.scopes import Body, Scope, Scopes


def scans_to_loops(graph: GraphProto, scopes: Scopes) -> Scopes:
    """Make each Scan of the flat ``graph`` that was entered a Loop; returns the scopes of all.

    A Scan of ONNX Runtime stacks values of one shape and has no state that is a sequence, so what
    an If or Loop in its body returns in some trips only, or in other sizes, cannot leave it.
    Inputs are sliced, and outputs stacked, as operator Scan of ONNX opset 16 says.
    """
    return _Rewriting(graph, scopes).run()


class _Rewriting:
    """One call of ``scans_to_loops``."""

    def __init__(self, graph: GraphProto, scopes: Scopes) -> None:
        self._graph = graph
        self._added = Additions(graph, scopes)
        self._slices: list[NodeProto] = []  # To stand before all that reads them in their bodies.

    def run(self) -> Scopes:
        """See ``scans_to_loops``."""
        nodes: list[NodeProto] = []
        for node in self._graph.node:
            if node.op_type == "Scan" and entered_bodies(node):
                nodes += self._loop(node)
            else:
                nodes.append(node)
        replace_nodes(self._graph, [*self._slices, *nodes])
        return self._added.scopes

    def _loop(self, scan: NodeProto) -> Iterator[NodeProto]:
        """``scan`` as a Loop, with the nodes before and behind it."""
        scope = self._added.scopes.get(scan.name, ())
        body, form = body_of(scan, "body"), ScanForm.of(scan)
        kept = form.states
        starts, wholes = list(scan.input[:kept]), list(scan.input[kept:])
        yield self._added.node(scope, "Shape", [wholes[0]], shape := self._added.tensor("shape"))
        trips = self._added.tensor("trips")
        yield self._added.node(
            scope, "Gather", [shape, self._number([form.axis("input", 0)])], trips
        )
        trip = self._added.tensor("trip")
        self._slice(scan, (*scope, Body(scan.name, "body")), trip)
        returned = list(self._returned(scan, kept, scope))
        _rewrite_body(
            body, kept, trip, self._added.tensor("on"), self._added.constant(np.array(True))
        )
        loop = helper.make_node("Loop", [trips, "", *starts], scan.output, scan.name, body=body)
        yield loop
        yield from returned

    def _slice(self, scan: NodeProto, inner: Scope, trip: str) -> None:
        """Let nodes write what each trip is given of the scanned inputs."""
        form = ScanForm.of(scan)
        wholes, values = scan.input[form.states :], body_of(scan, "body").input[form.states :]
        for position, (whole, value) in enumerate(zip(wholes, values, strict=True)):
            index = trip
            if form.is_reversed("input", position):
                index = self._added.tensor("from_the_end")
                self._slices.append(self._added.node(inner, "Sub", [self._number(-1), trip], index))
            axis = {"axis": form.axis("input", position)}
            self._slices.append(self._added.node(inner, "Gather", [whole, index], value.name, axis))

    def _returned(self, scan: NodeProto, kept: int, scope: Scope) -> Iterator[NodeProto]:
        """Nodes that give stacked outputs their order and axis; the Loop writes other tensors."""
        form = ScanForm.of(scan)
        for position in range(kept, len(scan.output)):
            name, axis = scan.output[position], form.axis("output", position - kept)
            reverse = form.is_reversed("output", position - kept)
            ops = [*(["Slice"] if reverse else []), *(["SplitToSequence"] if axis else [])]
            if not name or not ops:
                continue
            source = scan.output[position] = self._added.tensor(name)
            if reverse:
                last, end = self._number([-1]), self._number([np.iinfo(np.int64).min])
                target = self._added.tensor(name) if axis else name
                inputs = [source, last, end, self._number([0]), last]
                yield self._added.node(scope, "Slice", inputs, target)
                source = target
            if axis:
                parts = self._added.tensor(name)
                apart, stacked = {"keepdims": 0}, {"axis": axis, "new_axis": 1}
                yield self._added.node(scope, "SplitToSequence", [source], parts, apart)
                yield self._added.node(scope, "ConcatFromSequence", [parts], name, stacked)

    def _number(self, value: int | list[int]) -> str:
        return self._added.constant(np.array(value, np.int64))


def _rewrite_body(body: GraphProto, kept: int, trip: str, on: str, true: str) -> None:
    """Give ``body`` the inputs and outputs of a Loop's, of which the first ``kept`` are states."""
    scalars = (trip, TensorProto.INT64), (on, TensorProto.BOOL)
    given = [helper.make_tensor_value_info(name, kind, ()) for name, kind in scalars]
    given += _copies(body.input[:kept])
    made = [helper.make_tensor_value_info(true, TensorProto.BOOL, ()), *_copies(body.output)]
    del body.input[:], body.output[:]
    body.input.extend(given)
    body.output.extend(made)


def _copies(values: Sequence[ValueInfoProto]) -> list[ValueInfoProto]:
    """Copies that outlive the list that the values are in."""
    return [ValueInfoProto.FromString(value.SerializeToString()) for value in values]
