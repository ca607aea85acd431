"""Products between pairs that ONNX Runtime computes in float, for what their pairs say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from onnx import NodeProto, numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.external_data import is_external
from placer.graph.weights import BIAS_INDEX, added_bias, is_row
from placer.qdq.extract import ExtractedModel

# By how much the scale of a Conv's bias may be off (session of ONNX Runtime 1.32).
_RELATIVE, _ABSOLUTE = 1e-2, 1e-6
_MOVING = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_MATRIX = 2  # Dimensions.
_ZERO_POINT = 2  # Index among the inputs of Q and DQ.


Reason = Literal["zero point", "scale", "dimensions", "factors", "output"]


@dataclass(frozen=True)
class UnfusedProduct:
    """A product that reads all operands through pairs and is no integer one.

    ``edge``: the operand that no kernel reads. ``reason``: what is lacking or not as kernels want
    it: ``zero point`` of the input's or weight's pair, ``scale`` of the bias, its ``dimensions``,
    the ``factors`` alpha and beta of a Gemm, or a pair behind it (``output``).
    """

    node: str
    edge: Edge
    reason: Reason


def unfused_products(model: ExtractedModel, graph: Graph) -> Iterator[UnfusedProduct]:
    """Products of ``model`` that ONNX Runtime 1.32 leaves in float; ``graph``: the float graph.

    A Gemm becomes QGemm if the pairs of input and weight have zero points, zeros or not, and a
    MatMul only where no bias makes a Gemm of it. With a bias, its alpha and beta must be 1 (issue
    28130); a float bias must have one dimension (issue 24815), and a pair must be behind the Gemm.
    A Conv takes a bias of int32 whose zero point is 0 and whose scale is that of the input times
    that of the weight.
    """
    for node in graph.nodes:
        read = graph.edges_into(node)
        if node.op == "Conv" and len(read) > BIAS_INDEX:
            paired = (behind_moves(read[0], model.pairs, graph), *read[1:])
            if set(paired) <= model.pairs.keys() and not _fits(model, *paired):
                yield UnfusedProduct(node.name, read[BIAS_INDEX], "scale")
        elif _is_gemm(node, model, graph):
            pairs = [model.pairs.get(edge) for edge in read[:BIAS_INDEX]]
            known = [pair for pair in pairs if pair is not None]
            if len(known) < len(pairs):
                continue
            if not all(map(_zero_point, known)):
                yield UnfusedProduct(node.name, read[0], "zero point")
            elif node.op == "Gemm" and len(read) > BIAS_INDEX:
                yield from _with_bias(node, read, model, graph)
            elif (bias := added_bias(graph, node)) and is_row(graph, bias.tensor):
                yield UnfusedProduct(node.name, read[0], "dimensions")


def _with_bias(
    node: Node, read: Sequence[Edge], model: ExtractedModel, graph: Graph
) -> Iterator[UnfusedProduct]:
    """A Gemm that reads ``read``, a bias among them, if that is what keeps it in float."""
    bias = read[BIAS_INDEX]
    if any(node.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        yield UnfusedProduct(node.name, read[0], "factors")
    elif bias in model.pairs:
        return
    elif len(graph.type_of(bias.tensor).shape or ()) != 1:
        yield UnfusedProduct(node.name, read[0], "dimensions")
    elif not _is_paired(node.outputs[0], model, graph):
        yield UnfusedProduct(node.name, read[0], "output")


def _is_paired(tensor: str, model: ExtractedModel, graph: Graph) -> bool:
    """Whether a pair is on ``tensor`` or on what a Relu or Clip makes of it."""
    readers = graph.edges_of(tensor)
    if not model.pairs.keys().isdisjoint(readers):
        return True
    nodes = [graph.by_name[edge.node] for edge in readers if edge.node]
    return any(
        not model.pairs.keys().isdisjoint(graph.edges_of(node.outputs[0]))
        for node in nodes
        if node.op in ("Relu", "Clip")
    )


def _is_gemm(node: Node, model: ExtractedModel, graph: Graph) -> bool:
    """Whether ``node`` is a Gemm, or a MatMul that ONNX Runtime makes one of (MatMulAddFusion)."""
    if node.op != "MatMul":
        return node.op == "Gemm"
    bias, data = added_bias(graph, node), node.inputs[0]
    is_matrix = len(graph.type_of(data).shape or ()) == _MATRIX
    if bias is None or (data in graph.open_tensors and not is_matrix):
        return False
    return model.pairs.keys().isdisjoint((bias, *graph.edges_of(node.outputs[0])))


def behind_moves(edge: Edge, paired: Collection[Edge], graph: Graph) -> Edge:
    """The one of ``paired`` whose DQ moves to ``edge``, past what moves elements alone.

    Another edge on that way where there is none.
    """
    while edge not in paired:
        producer = graph.producer.get(edge.tensor)
        if producer is None or producer.op not in _MOVING:
            return edge
        edge = graph.edges_into(producer)[0]
    return edge


def _zero_point(pair: NodeProto) -> str:
    return "".join(pair.input[_ZERO_POINT : _ZERO_POINT + 1])


def _fits(model: ExtractedModel, data: Edge, weight: Edge, bias: Edge) -> bool:
    """Whether the bias has the scale of products, or it is not known."""
    scales = [_value(model, model.pairs[edge].input[1]) for edge in (data, weight, bias)]
    if any(scale is None for scale in scales):
        return True
    zero = _value(model, _zero_point(model.pairs[bias]))
    if zero is not None and zero.any():
        return False
    of_data, of_weight, of_bias = (np.ravel(s).astype(np.float32) for s in scales if s is not None)
    of_products = of_data * of_weight
    if of_bias.size not in (1, of_products.size):
        return True
    return bool(np.allclose(of_bias, of_products, rtol=_RELATIVE, atol=_ABSOLUTE))


def _value(model: ExtractedModel, name: str) -> np.ndarray | None:
    tensor = model.constants.get(name)
    return None if tensor is None or is_external(tensor) else numpy_helper.to_array(tensor)
