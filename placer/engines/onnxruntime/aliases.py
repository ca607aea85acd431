"""Tensors of a model and of ONNX Runtime's optimized graph that hold the same data.

And the nodes that the optimizer took out because they change nothing or follow from constants.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

import onnx

from placer.graph.neutral import NEUTRAL, handed_on, is_endless, is_single
from placer.graph.operators import PAIR_OPS

# What makes a MatMul of another rank than 2 with a bias a Gemm.
_GEMM_RESHAPE = re.compile(r"^gemm_(in|out)put_reshape(_token_\d+)?$")
# Around a pair that the optimizer put behind a tensor, or before it: qdq_propagation.cc.
_MOVED_PAIR = re.compile(r"(_pre_q|_q_to_dq|_post_dq)(_token_\d+)?$")

# How what the optimizer converted between float16 and float begins: insert_cast_transformer.cc,
# fuse_initializers_transformer.cc.
CONVERTED = re.compile(r"^(InsertedPrecisionFreeCast_|FusedBack_)+")


class Aliases:
    """One name for all tensors that hold the same data: a union-find structure."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def __call__(self, tensor: str) -> str:
        """The name that stands for ``tensor``."""
        root = tensor
        while root in self._parent:
            root = self._parent[root]
        while tensor != root:
            self._parent[tensor], tensor = root, self._parent[tensor]
        return root

    def join(self, one: str, other: str) -> None:
        """Let both names, and what they stand for, be one."""
        one, other = self(one), self(other)
        if one != other:
            self._parent[other] = one


def aliases_of(
    model: onnx.GraphProto, fused: onnx.GraphProto, no_ops: Iterable[onnx.NodeProto]
) -> Aliases:
    """Tensors around a Q/DQ pair are one, and those around the ``no_ops`` nodes.

    Not around a pair before which the optimizer removed nodes: it then reads another of the model's
    tensors than in the model. A Relu is gone that the quantization behind it implies.
    """
    alias = Aliases()
    constants = {tensor.name for tensor in model.initializer}
    for node in no_ops:
        for data in [tensor for tensor in node.input if tensor not in constants][:1]:
            alias.join(data, node.output[0])
    for node in model.node:
        if node.op_type in PAIR_OPS:
            alias.join(node.input[0], node.output[0])
    _join_pairs_of(fused, model, alias)
    _join_moved_pairs(fused, model, alias)
    return alias


def _join_pairs_of(fused: onnx.GraphProto, model: onnx.GraphProto, alias: Aliases) -> None:
    """The tensors around pairs of ``fused``, as far as these stand where they stood."""
    known = {node.name for node in model.node}
    read = {node.name: node.input[0] for node in model.node if node.op_type in PAIR_OPS}
    computed = {t for n in model.node if n.op_type not in PAIR_OPS for t in n.output}
    dequantized = {n.output[0] for n in fused.node if n.op_type == "DequantizeLinear"}
    for node in fused.node:
        if is_invented(node, known):
            alias.join(node.input[0], node.output[0])
        if node.op_type not in PAIR_OPS:
            continue
        source = node.input[0]
        before = read.get(node.name) if node.op_type == "QuantizeLinear" else None
        if before is not None and source in dequantized and alias(source) != alias(before):
            alias.join(before, node.output[0])  # What is gone was between two pairs: in no layer.
        elif before is None or source not in computed or alias(source) == alias(before):
            alias.join(source, node.output[0])


def _join_moved_pairs(fused: onnx.GraphProto, model: onnx.GraphProto, alias: Aliases) -> None:
    """Tensors that the optimizer named after one of the model's: it moved a pair, or converted."""
    tensors = {tensor for node in model.node for tensor in (*node.input, *node.output)}
    for tensor in {t for node in fused.node for t in (*node.input, *node.output)} - tensors:
        base = CONVERTED.sub("", _MOVED_PAIR.sub("", tensor))
        if base != tensor and base in tensors:
            alias.join(base, tensor)


def is_invented(node: onnx.NodeProto, known: Container[str]) -> bool:
    """Whether the optimizer put the node around a Gemm or inserted a Cast.

    A file that it wrote has such ones, too.
    """
    added = _GEMM_RESHAPE.search(node.name) or CONVERTED.search(node.name)
    return added is not None and node.name not in known


def without_effect(
    model: onnx.GraphProto, fused: onnx.GraphProto, types: Mapping[str, str]
) -> dict[str, onnx.NodeProto]:
    """By name the nodes that hand on what they read and that the optimizer took out."""
    constants = {tensor.name: tensor for tensor in model.initializer}
    left = {node.name for node in fused.node}
    return {
        node.name: node
        for node in model.node
        if node.name not in left and _is_no_op(node, constants, types)
    }


def _is_no_op(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], types: Mapping[str, str]
) -> bool:
    if node.op_type == "Cast":
        dtype = types.get(node.input[0])
        return dtype is not None and dtype == types.get(node.output[0])
    if node.op_type in NEUTRAL:
        data = handed_on(node.op_type, node.input, constants)
        rest = [tensor for tensor in node.input if tensor != data]
        return data is not None and all(is_single(constants[tensor]) for tensor in rest)
    return node.op_type == "Expand" or is_endless(node.op_type, node.input, constants)


def folded(model: onnx.GraphProto, fused: onnx.GraphProto) -> set[str]:
    """Names of the nodes that constant folding took out, as the root that scales attention.

    They follow from constants and from shapes alone; what reads them is no part of them.
    """
    left = {node.name for node in fused.node}
    known = {tensor.name for tensor in model.initializer}
    names = set()
    for node in model.node:
        is_shape = node.op_type in ("Shape", "Size")
        if (
            node.op_type in PAIR_OPS
            or node.name in left
            or not (is_shape or all(tensor in known for tensor in node.input if tensor))
        ):
            continue
        known.update(node.output)
        names.add(node.name)
    return names
