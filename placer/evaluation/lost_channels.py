"""Weights of which one scale for all channels leaves little in some."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.common.listed import in_quotes
from placer.graph import Graph, Node, index_graph
from placer.graph.external_data import read_tensor
from placer.graph.weights import WEIGHTED_OPS, channel_axis, is_depthwise
from placer.model import Model

# A channel of at most so many steps keeps less than 2 bits and a sign. Where another one does not
# take _WIDE either, the weights have few levels on purpose, as ternary ones.
_STEPS, _WIDE = 3, 16
_SHARE = 1 / 8  # Of channels, below which nothing is said: filters may be dead.
# Operators whose weights are integers without a DequantizeLinear, with the inputs that are the
# weight and its zero point: ONNX's definitions.
_INTEGER_OPS = {"ConvInteger": (1, 3), "MatMulInteger": (1, 3), "QLinearConv": (3, 5)}


def lost_channels(candidate: Model) -> str:
    """A sentence on weights of 8 bits with one scale whose channels differ too much for it.

    As of the depthwise Convs of MobileNets. Empty if there are none.
    """
    graph = index_graph(candidate.proto.graph, {})
    found = []
    for node, values, axis in _weights(candidate, graph):
        steps = np.abs(values).max(tuple(i for i in range(values.ndim) if i != axis))
        few = int(((steps > 0) & (steps <= _STEPS)).sum())
        if few > 1 and few >= _SHARE * steps.size and steps.max() >= _WIDE:
            name = node.proto.name or node.outputs[0]
            found.append((few / steps.size, f"{few} of {steps.size}", name))
    if not found:
        return ""
    found.sort(reverse=True)
    worst, names = found[0][1], [name for *_, name in found]
    of_all = "" if len(found) == 1 else ", the first"
    return (
        f"one scale for all channels of the weights of {in_quotes(names)} leaves at most {_STEPS} "
        f"steps to {worst} channels{of_all}: quantize these weights per channel"
    )


def _weights(model: Model, graph: Graph) -> Iterator[tuple[Node, np.ndarray, int]]:
    """Products that read constants of 8 bits with one scale, their steps, and their channels."""
    for node in graph.nodes:
        tensors = _integers_of(model, graph, node)
        if tensors is None:
            continue
        values, zeros = (_values(model, graph, tensor) for tensor in tensors)
        if values is None or values.dtype not in (np.int8, np.uint8) or values.ndim < 2:
            continue
        if zeros is not None and zeros.size != 1:
            continue
        axis = _axis(node, values)
        if axis is not None:
            yield node, values.astype(np.int32) - (0 if zeros is None else int(zeros.item())), axis


def _integers_of(model: Model, graph: Graph, node: Node) -> tuple[str, str] | None:
    """A product's weight of integers and its zero point, "" for none; None of several scales."""
    if node.op in _INTEGER_OPS:
        weight, zero = _INTEGER_OPS[node.op]
        inputs = dict(enumerate(node.inputs))
        return inputs.get(weight, ""), inputs.get(zero, "")
    if node.op not in WEIGHTED_OPS or len(node.inputs) < 2:
        return None
    pair = graph.producer.get(node.inputs[1])
    if pair is None or pair.op != "DequantizeLinear":
        return None
    scale = _values(model, graph, pair.inputs[1])
    if scale is None or scale.size != 1:
        return None
    return pair.inputs[0], next(iter(pair.inputs[2:3]), "")


def _axis(node: Node, values: np.ndarray) -> int | None:
    """Along which the output channels lie."""
    op = {"ConvInteger": "Conv", "QLinearConv": "Conv", "MatMulInteger": "MatMul"}.get(node.op)
    if is_depthwise(values.shape, int(node.attributes.get("group", 1))):
        return 0
    turned = bool(node.attributes.get("transB", 0))
    return channel_axis(op or node.op, values.ndim, transposed=turned)


def _values(model: Model, graph: Graph, name: str) -> np.ndarray | None:
    tensor = graph.initializers.get(name)
    if tensor is None:
        return None
    return read_tensor(tensor, model.base_dir)
