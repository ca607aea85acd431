"""Layers that ONNX Runtime runs once because they compute the same from the same floats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Graph
from placer.plan import Layer
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.motion import NormalForm

# Constants of more elements are the same only where they are one (constant_sharing.h).
MOST_SHARED = 8


def with_equal_merged(
    layers: Sequence[PredictedLayer], equal: Mapping[str, str], graph: Graph, form: NormalForm
) -> Iterator[PredictedLayer]:
    """``layers`` without those that compute what one before them does, which gets their nodes.

    ``equal``: by node one before it that computes the same. EliminateCommonSubexpression runs
    before pairs become part of layers and leaves every Q and DQ, so only layers merge that read and
    write floats without pairs in front of them; a Q behind each stays. What leaves the graph stays.
    """
    first: dict[object, int] = {}
    kept: list[PredictedLayer] = []
    renamed: dict[str, str] = {}
    for given in layers:
        predicted = replace(given, layer=_reading(given.layer, renamed))
        key = _key(predicted, equal, graph, form)
        place = first.setdefault(key, len(kept)) if key is not None else len(kept)
        if place == len(kept):
            kept.append(predicted)
            continue
        other = kept[place].layer
        names = (*other.nodes, *predicted.layer.nodes)
        kept[place] = replace(kept[place], layer=replace(other, nodes=names))
        pairs = zip(predicted.layer.outputs, other.outputs, strict=True)
        renamed.update((port.tensor, same.tensor) for port, same in pairs)
    yield from kept


def _reading(layer: Layer, renamed: Mapping[str, str]) -> Layer:
    """``layer`` that reads what is left of what it read."""
    if renamed.keys().isdisjoint(port.tensor for port in layer.inputs):
        return layer
    inputs = (replace(port, tensor=renamed.get(port.tensor, port.tensor)) for port in layer.inputs)
    return replace(layer, inputs=tuple(inputs))


def _key(
    predicted: PredictedLayer, equal: Mapping[str, str], graph: Graph, form: NormalForm
) -> object:
    """What layers that are one have in common; None: it is one with no other."""
    layer, nodes = predicted.layer, predicted.nodes
    if not nodes or layer.kind != "compute" or predicted.copies > 1:
        return None
    if any(edge in form.scales for edge in predicted.edges):
        return None
    if any(is_quantized(port.dtype) for port in (*layer.inputs, *layer.outputs)):
        return None
    if any(port.tensor in graph.outputs for port in layer.outputs):
        return None
    computed = tuple(equal.get(node.name, node.name) for node in nodes)
    return computed, tuple(port.tensor for port in layer.inputs)
