"""The parts of all layers of a plan, with what is moved between their memory layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.graph import Graph
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.memory_layouts import BLOCKED, LAST, ROW_MAJOR, LaidOut, Move, lay_out
from placer.prediction.layers.prediction import Prediction
from placer.prediction.times.layer_parts import (
    BLOCKED_KIND,
    ROW_MAJOR_KIND,
    CostKey,
    Part,
    is_float_product,
    layer_parts,
    quantized_product,
)
from placer.prediction.times.work import type_bytes

# Integer kernels of their own where channels are not last, and float ones where they are in blocks.
_BY_LAYOUT = frozenset({"AveragePool", "GlobalAveragePool", "MaxPool", "Resize"})


def plan_parts(prediction: Prediction, graph: Graph, moves: bool) -> list[tuple[Part, ...]]:
    """The parts of each layer of ``prediction``, in order.

    ``moves``: whether the engine moves tensors between memory layouts as ONNX Runtime does; a
    layer has parts for those that are moved for it, too.
    """
    layers = prediction.layers
    if not moves:
        return _behind_products(layers, [layer_parts(layer, graph) for layer in layers])
    laid = lay_out(layers, graph, prediction.options)
    both = zip(layers, laid, strict=True)
    return _behind_products(layers, [_parts(layer, own, graph) for layer, own in both])


def _behind_products(
    layers: Sequence[PredictedLayer], plan: Sequence[tuple[Part, ...]]
) -> list[tuple[Part, ...]]:
    """``plan`` in which quantizing what a float product by weights wrote is a kind of its own.

    OpenVINO's products take the rounding, and a reorder converts its result one element at a time:
    490 to 650 us for each megabyte, where it takes 70 to 90 of what other layers wrote (2026.4.1,
    an Intel Xeon with AMX; docs/measured/fit.md).
    """
    written = {
        port.tensor
        for layer, parts in zip(layers, plan, strict=True)
        for port in layer.layer.outputs
        if parts and is_float_product(parts[0].key)
    }
    return [
        (quantized_product(parts[0]), *parts[1:])
        if layer.layer.kind == "quantize" and parts and layer.layer.inputs[0].tensor in written
        else parts
        for layer, parts in zip(layers, plan, strict=True)
    ]


def _parts(predicted: PredictedLayer, laid: LaidOut, graph: Graph) -> tuple[Part, ...]:
    moved = tuple(_moved(move, graph) for move in laid.moves)
    parts = () if laid.gone else layer_parts(predicted, graph, laid.layout == LAST)
    if not parts or not predicted.nodes:
        return (*parts, *moved)
    main = parts[0]
    if "conv" in main.key.name and laid.layout == ROW_MAJOR and not is_quantized(main.key.dtype):
        main = main._replace(key=CostKey(f"{ROW_MAJOR_KIND}{main.key.name}", main.key.dtype))
        return (main, *parts[1:], *moved)
    if predicted.nodes[0].op not in _BY_LAYOUT:
        return (*parts, *moved)
    if laid.layout == ROW_MAJOR and is_quantized(main.key.dtype):
        main = main._replace(key=CostKey(f"{ROW_MAJOR_KIND}{main.key.name}", main.key.dtype))
    elif laid.layout == BLOCKED:
        main = main._replace(key=CostKey(f"{BLOCKED_KIND}{main.key.name}", main.key.dtype))
    return (main, *parts[1:], *moved)


def _moved(move: Move, graph: Graph) -> Part:
    shape = graph.type_of(move.tensor).shape or (1,)
    elements = math.prod(shape)
    name = "Reorder" if move.to == BLOCKED else "Transpose"
    if name == "Transpose" and math.prod(shape[2:]) == 1:
        name = "Reshape"  # Of one pixel nothing is moved.
    size = elements * type_bytes(move.dtype) / 1e6
    return Part(CostKey(f"moved by {name}", move.dtype), 1.0, elements / 1e6, size, size)
