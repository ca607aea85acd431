"""Compare a predicted plan with an actual one: fusions, conversions, types.

Plans are compared by the ONNX nodes that their compute layers cover. An engine may leave a node
out of every name (TensorRT 8 names no Relu behind a Conv, but sets the layer's activation), so
layers are the same if they cover the same of the nodes that both plans name. Everything else
counts: a compute layer that the other plan knows no node of has no partner, a type that is not
told is not the same as any, and a conversion has a partner only in the same place.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from placer.plan.diff_result import (
    CONVERSIONS,
    ConversionDiff,
    Pair,
    PlanDiff,
    Regrouping,
    Score,
)
from placer.plan.dtypes import is_float, is_quantized
from placer.plan.plan import Kind, Layer, Plan
from placer.plan.readers.tensorrt_names import name_parts

Nodes = frozenset[str]
_Keyed = Sequence[tuple[Layer, Nodes]]  # Layers with the known nodes that they cover.
_UNTOLD = frozenset({"", "unknown", "undefined"})


def diff_plans(predicted: Plan, actual: Plan) -> PlanDiff:
    """Compare ``predicted`` with ``actual``.

    Compute layers are the same if they cover the same of the nodes that compute layers of both
    plans name; no-op layers run nothing and do not count. Precision, recall and F1 are those of
    the predicted layers as a retrieval of the actual ones, as multisets.
    """
    actual = with_predicted_names(actual, predicted)
    known = _named(predicted) & _named(actual)
    left, right = _Side(predicted, known), _Side(actual, known)
    pairs = tuple(_pairs(left.compute, right.compute))
    same = {id(layer) for pair in pairs for layer in (pair.predicted, pair.actual)}
    counts = len(predicted.of_kind("compute")), len(actual.of_kind("compute"))
    return PlanDiff(
        predicted_source=predicted.source,
        actual_source=actual.source,
        matched=tuple(pair for pair in pairs if pair.same_class),
        other_types=tuple(pair for pair in pairs if not pair.same_types),
        splits=tuple(_regrouped(left.compute, right.compute, same)),
        fusions=tuple(_regrouped(right.compute, left.compute, same)),
        conversions=tuple(_conversions(kind, left, right) for kind in CONVERSIONS),
        exact=Score(sum(pair.same_types for pair in pairs), *counts),
        by_class=Score(sum(pair.same_class for pair in pairs), *counts),
        by_nodes=Score(len(pairs), *counts),
        only_predicted=left.only,
        only_actual=right.only,
        names_only=not any(layer.inputs or layer.outputs for layer in actual.layers),
    )


def _named(plan: Plan) -> Nodes:
    return frozenset(node for layer in plan.of_kind("compute") for node in layer.nodes)


# TensorRT numbers the layers of one Split through the network: Split, Split_6, Split_7.
_NUMBERED = re.compile(r"(?P<node>.+)_\d+")
_CUTS = frozenset({"Slice", "Split", "NoOp"})


def with_predicted_names(actual: Plan, predicted: Plan) -> Plan:
    """``actual`` with nodes named as in ``predicted``; others are kept.

    Layers of single outputs of a Split are named after the Split, and generated kernels after the
    node whose name they have with its dots written as underscores ("/layers_3/attn/MatMul"). So
    ``diff_plans`` compares it: what it pairs are layers of the plan that this gives.
    """
    all_nodes = {node for layer in predicted.layers for node in layer.nodes}
    cuts = {node for layer in predicted.layers if layer.op in _CUTS for node in layer.nodes}
    spelled = defaultdict[str, list[str]](list)
    for node in all_nodes:
        spelled[node.replace(".", "_")].append(node)

    def name(node: str) -> str:
        if node in all_nodes:
            return node
        match = _NUMBERED.fullmatch(node)
        if match is not None and match["node"] in cuts:
            return match["node"]
        alike = spelled.get(node, [])
        return alike[0] if len(alike) == 1 else node

    def named(layer: Layer) -> Layer:
        nodes = tuple(map(name, layer.nodes))
        return layer if nodes == layer.nodes else replace(layer, nodes=nodes)

    return replace(actual, layers=tuple(map(named, actual.layers)))


class _Side:
    """One plan: its comparable layers, and where its conversions sit."""

    def __init__(self, plan: Plan, known: Nodes) -> None:
        self.plan = plan
        self._known = known
        keyed = [(layer, known.intersection(layer.nodes)) for layer in plan.of_kind("compute")]
        self.compute = [(layer, nodes) for layer, nodes in keyed if nodes]
        self.only = tuple(layer.name for layer, nodes in keyed if not nodes)
        self._producers: dict[str, list[Layer]] = defaultdict(list)
        self._consumers: dict[str, list[Layer]] = defaultdict(list)
        self._position = {id(layer): index for index, layer in enumerate(plan.layers)}
        for layer in plan.layers:
            read = set(_tensors(layer)[0])
            for port in layer.outputs:
                # Predicted kernels that pad a tensor write it under the name that it had.
                if layer.kind != "compute" or port.tensor not in read:
                    self._producers[port.tensor].append(layer)
            for port in layer.inputs:
                self._consumers[port.tensor].append(layer)

    def place(self, conversion: Layer) -> frozenset[str]:
        """Where a conversion sits: behind which known nodes or, for a graph input, before which.

        What is written later, as into a tensor that is joined in place, is not before it. Empty if
        the plan does not name the tensors that would tell.
        """
        behind = self._nearest(conversion, self._producers, lambda layer: _tensors(layer)[0])
        if behind:
            return frozenset(f"behind {node}" for node in behind)
        before = self._nearest(conversion, self._consumers, lambda layer: _tensors(layer)[1])
        return frozenset(f"before {node}" for node in before)

    def place_of_input(self, conversion: Layer) -> frozenset[str]:
        """The place together with the graph inputs; empty if either is."""
        inputs = self.graph_inputs(conversion)
        return frozenset(f"{place} of {i}" for place in self.place(conversion) for i in inputs)

    def next_to(self, conversion: Layer) -> frozenset[str]:
        """Which nodes read what it writes in that type, and which write what it reads."""
        written = {(port.tensor, port.dtype) for port in conversion.outputs}
        neighbours = set[str]()
        for tensor in _tensors(conversion)[1]:
            for layer in self._consumers[tensor]:
                if any((port.tensor, port.dtype) in written for port in layer.inputs):
                    neighbours.update(f"before {node}" for node in layer.nodes)
        for tensor in _tensors(conversion)[0]:
            neighbours.update(
                f"behind {n}" for layer in self._producers[tensor] for n in layer.nodes
            )
        return frozenset(neighbours)

    def graph_inputs(self, conversion: Layer) -> frozenset[str]:
        """Tensors that a conversion reads, behind layers that do nothing, and that no layer made.

        What a predicted conversion writes has the name of what it reads.
        """
        waiting, read = [port.tensor for port in conversion.inputs], set[str]()
        while waiting:
            tensor = waiting.pop()
            if tensor and tensor not in read:
                read.add(tensor)
                idle = (x for x in self._producers.get(tensor, ()) if x.kind == "no-op")
                waiting += [port.tensor for layer in idle for port in layer.inputs]
        return frozenset(tensor for tensor in read if not self._is_made(tensor))

    def _is_made(self, tensor: str) -> bool:
        writers = self._producers.get(tensor, ())
        return any(tensor not in _tensors(layer)[0] for layer in writers)

    def _nearest(
        self,
        start: Layer,
        links: Mapping[str, Sequence[Layer]],
        tensors: Callable[[Layer], Sequence[str]],
    ) -> Nodes:
        waiting, seen, nodes = list(tensors(start)), set[str](), set[str]()
        first = self._position.get(id(start), len(self._position))
        while waiting:
            tensor = waiting.pop()
            if not tensor or tensor in seen:
                continue
            seen.add(tensor)
            for layer in links.get(tensor, ()):
                if links is self._producers and self._position[id(layer)] > first:
                    continue
                if layer.kind == "compute":
                    nodes |= self._known.intersection(layer.nodes)
                else:
                    waiting += tensors(layer)
        return frozenset(nodes)


def _tensors(layer: Layer) -> tuple[list[str], list[str]]:
    return [port.tensor for port in layer.inputs], [port.tensor for port in layer.outputs]


# --- compute layers -------------------------------------------------------------------------


def _pairs(predicted: _Keyed, actual: _Keyed) -> Iterator[Pair]:
    """Pair layers of equal nodes, those whose types agree best first."""
    waiting: dict[Nodes, list[Layer]] = defaultdict(list)
    for layer, nodes in actual:
        waiting[nodes].append(layer)
    paired: dict[int, Pair] = {}
    for agree in (_same_types, _same_class, _any_types):
        for index, (layer, nodes) in enumerate(predicted):
            if index in paired:
                continue
            partner = next((a for a in waiting[nodes] if agree(layer, a)), None)
            if partner is not None:
                waiting[nodes].remove(partner)
                same = _same_types(layer, partner), _same_class(layer, partner)
                paired[index] = Pair(layer, partner, tuple(sorted(nodes)), *same)
    return (paired[index] for index in sorted(paired))


def _same_types(one: Layer, other: Layer) -> bool:
    return _agree(set(one.output_types), set(other.output_types))


def _same_class(one: Layer, other: Layer) -> bool:
    return _agree(set(map(type_class, one.output_types)), set(map(type_class, other.output_types)))


def _any_types(_one: Layer, _other: Layer) -> bool:
    return True


def _agree(one: set[str], other: set[str]) -> bool:
    return one == other and bool(one) and not one & _UNTOLD


def type_class(dtype: str) -> str:
    """``quantized``, ``float``, or the ONNX type name itself where it is neither."""
    if is_quantized(dtype):
        return "quantized"
    return "float" if is_float(dtype) else dtype


def _regrouped(wholes: _Keyed, parts: _Keyed, same: Set[int]) -> Iterator[Regrouping]:
    """Layers of ``wholes`` whose nodes lie in two or more layers of ``parts``.

    Several layers may compute one node, in both plans alike: a layer and its parts that all have a
    partner, by ``id`` those in ``same``, are not regrouped.
    """
    holders: dict[str, list[int]] = defaultdict(list)
    for index, (_, nodes) in enumerate(parts):
        for node in nodes:
            holders[node].append(index)
    for layer, nodes in wholes:
        held = sorted({index for node in nodes for index in holders[node]})
        found = tuple(parts[index][0] for index in held)
        if len(found) > 1 and not all(id(one) in same for one in (layer, *found)):
            yield Regrouping(layer, found)


# --- conversions ----------------------------------------------------------------------------


def _conversions(kind: Kind, predicted: _Side, actual: _Side) -> ConversionDiff:
    """Pair conversions of one kind: by name, copied tensor, place, else by input.

    Where several conversions of graph inputs have the same place, the same input goes first.
    """
    ones, others = predicted.plan.of_kind(kind), actual.plan.of_kind(kind)
    shared: list[tuple[Layer, Layer]] = []
    missing, extra = list(ones), list(others)
    keys = (_name, _copied, _Side.place_of_input, _Side.place, _Side.graph_inputs, _named_place)
    for key in keys:
        pairs, missing, extra = _paired(
            missing, extra, partial(key, predicted), partial(key, actual)
        )
        shared += pairs
    return ConversionDiff(kind, len(ones), len(others), tuple(missing), tuple(extra), tuple(shared))


def _name(_side: _Side, layer: Layer) -> frozenset[str]:
    return frozenset({layer.name})


_COPIED = re.compile(r"(reformat (?P<one>.+))|((?P<other>.+) copy)")


def _copied(_side: _Side, layer: Layer) -> frozenset[str]:
    """The tensor that a layer's name says it copies: ``x copy``, as placer's ``reformat x``."""
    match = _COPIED.fullmatch(layer.name)
    return frozenset() if match is None else frozenset({match["one"] or match["other"]})


_COPY_NODE = re.compile(
    r"Reformatting CopyNode for (?P<side>In|Out)put Tensor \d+ to (?P<layer>.+)"
)


_COPY_OUTPUT = "_copy_output"  # TensorRT's name of a copy of what a node writes, behind the node's.


def _named_place(side: _Side, layer: Layer) -> frozenset[str]:
    """Where a conversion sits by the layer in its name, for engines that tell names only."""
    if layer.name.endswith(_COPY_OUTPUT):
        return frozenset({f"behind {layer.name.removesuffix(_COPY_OUTPUT)}"})
    match = _COPY_NODE.fullmatch(layer.name)
    if match is not None:
        word = "before" if match["side"] == "In" else "behind"
        return frozenset(f"{word} {node}" for node in name_parts(match["layer"]))
    return side.next_to(layer)


def _paired(
    ones: Sequence[Layer],
    others: Sequence[Layer],
    keys_of_one: Callable[[Layer], frozenset[str]],
    keys_of_other: Callable[[Layer], frozenset[str]],
) -> tuple[list[tuple[Layer, Layer]], list[Layer], list[Layer]]:
    """Pair layers that share a key, in order; the pairs, and those of either plan that are left."""
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for index, layer in enumerate(others):
        for key in keys_of_other(layer):
            waiting[key].append(index)
    taken: set[int] = set()
    pairs, left = [], []
    for layer in ones:
        queues = [waiting[key] for key in keys_of_one(layer) if key in waiting]
        for queue in queues:
            while queue and queue[0] in taken:
                queue.popleft()
        first = min((queue[0] for queue in queues if queue), default=None)
        if first is None:
            left.append(layer)
        else:
            taken.add(first)
            pairs.append((layer, others[first]))
    return pairs, left, [layer for index, layer in enumerate(others) if index not in taken]
