"""Scans of a flat graph as Loops, which may return what differs in size from trip to trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from placer.graph.edit import replace_nodes
from placer.graph.flat import body_of, entered_bodies, states
from placer.graph.names import UnusedNames, tensor_names
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
        self._scopes = dict(scopes)
        self._names = UnusedNames(tensor_names(graph))
        self._nodes = UnusedNames({node.name for node in graph.node})
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
        return self._scopes

    def _loop(self, scan: NodeProto) -> Iterator[NodeProto]:
        """``scan`` as a Loop, with the nodes before and behind it."""
        scope = self._scopes.get(scan.name, ())
        body, kept = body_of(scan, "body"), states(scan).stop
        starts, wholes = list(scan.input[:kept]), list(scan.input[kept:])
        axes = _each(scan, "scan_input_axes", len(wholes))
        yield self._made(scope, "Shape", [wholes[0]], shape := self._names.unused("shape"))
        trips = self._names.unused("trips")
        yield self._made(scope, "Gather", [shape, self._number([axes[0]])], trips)
        trip = self._names.unused("trip")
        self._slice(scan, (*scope, Body(scan.name, "body")), trip)
        returned = list(self._returned(scan, kept, scope))
        _rewrite_body(body, kept, trip, self._names.unused("on"), self._true())
        loop = helper.make_node("Loop", [trips, "", *starts], scan.output, scan.name, body=body)
        yield loop
        yield from returned

    def _slice(self, scan: NodeProto, inner: Scope, trip: str) -> None:
        """Let nodes write what each trip is given of the scanned inputs."""
        kept = states(scan).stop
        wholes, values = scan.input[kept:], body_of(scan, "body").input[kept:]
        axes = _each(scan, "scan_input_axes", len(wholes))
        backwards = _each(scan, "scan_input_directions", len(wholes))
        for whole, value, axis, reverse in zip(wholes, values, axes, backwards, strict=True):
            index = trip
            if reverse:
                index = self._names.unused("from_the_end")
                self._slices.append(self._made(inner, "Sub", [self._number(-1), trip], index))
            node = self._made(inner, "Gather", [whole, index], value.name)
            node.attribute.append(helper.make_attribute("axis", axis))
            self._slices.append(node)

    def _returned(self, scan: NodeProto, kept: int, scope: Scope) -> Iterator[NodeProto]:
        """Nodes that give stacked outputs their order and axis; the Loop writes other tensors."""
        stacked = range(kept, len(scan.output))
        axes = _each(scan, "scan_output_axes", len(body_of(scan, "body").output) - kept)
        backwards = _each(scan, "scan_output_directions", len(axes))
        for position, axis, reverse in zip(stacked, axes, backwards, strict=False):
            name = scan.output[position]
            ops = [*(["Slice"] if reverse else []), *(["SplitToSequence"] if axis else [])]
            if not name or not ops:
                continue
            source = scan.output[position] = self._names.unused(name)
            if reverse:
                last, end = self._number([-1]), self._number([np.iinfo(np.int64).min])
                target = self._names.unused(name) if axis else name
                inputs = [source, last, end, self._number([0]), last]
                yield self._made(scope, "Slice", inputs, target)
                source = target
            if axis:
                parts = self._names.unused(name)
                split = self._made(scope, "SplitToSequence", [source], parts)
                split.attribute.append(helper.make_attribute("keepdims", 0))
                joined = self._made(scope, "ConcatFromSequence", [parts], name)
                joined.attribute.append(helper.make_attribute("axis", axis))
                joined.attribute.append(helper.make_attribute("new_axis", 1))
                yield from (split, joined)

    def _made(self, scope: Scope, op: str, inputs: Sequence[str], output: str) -> NodeProto:
        name = self._nodes.unused(output)
        if scope:
            self._scopes[name] = scope
        return helper.make_node(op, inputs, [output], name)

    def _number(self, value: int | list[int]) -> str:
        return self._constant(np.array(value, np.int64))

    def _true(self) -> str:
        return self._constant(np.array(True))

    def _constant(self, values: np.ndarray) -> str:
        name = self._names.unused("constant")
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        return name


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


def _each(scan: NodeProto, attribute: str, count: int) -> list[int]:
    """What ``attribute`` says of each of ``count`` tensors: 0 if it is not there."""
    given = next((list(a.ints) for a in scan.attribute if a.name == attribute), [])
    return given or [0] * count
