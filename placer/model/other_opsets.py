"""Nodes that are written as another opset than the model's defines them, and what to do."""

from __future__ import annotations

import onnx.defs
from onnx import ModelProto, NodeProto

from placer.graph.edit import every_node, standard_opset
from placer.graph.node_names import node_title
from placer.graph.operators import STANDARD_DOMAINS

_UNDEFINED = "which is not defined"


def of_other_opset(proto: ModelProto) -> str | None:
    """The first node that is not as the model's opset defines it, and what to do; None without."""
    opset = standard_opset(proto)
    for node in every_node(proto.graph.node):
        if node.domain in STANDARD_DOMAINS and onnx.defs.has(node.op_type, opset):
            why = _misfit(node, onnx.defs.get_schema(node.op_type, opset))
            opsets = [v for v, one in _schemas(node.op_type) if not _misfit(node, one)]
            if why and opsets:
                return f"{node_title(node)} {why} in opset {opset}; {_advice(opsets, opset, why)}"
    return None


def opsets_with(op: str) -> str:
    """The opsets that have the standard operator ``op``, in words."""
    return _range([version for version, _ in _schemas(op)])


def _misfit(node: NodeProto, schema: onnx.defs.OpSchema) -> str:
    """What of ``node`` is not as in ``schema``; empty if nothing is."""
    if schema.deprecated:
        return f"uses operator {node.op_type}, which is deprecated"
    unknown = [a.name for a in node.attribute if a.name not in schema.attributes]
    if unknown:
        is_input = any(given.name == unknown[0] for given in schema.inputs)
        return f"has attribute {unknown[0]}, {'which is an input' if is_input else _UNDEFINED}"
    least, most, count = schema.min_input, schema.max_input, len(node.input)
    if least <= count <= most:
        return ""
    takes = f"{least}" if least == most else f"{least} to {most}"
    return f"has {count} input{'s' * (count != 1)} where {takes} are defined"


def _advice(opsets: list[int], opset: int, why: str) -> str:
    """How a node of ``opsets`` is brought to ``opset``, which does not define it so."""
    remove = "remove it, or " if _UNDEFINED in why else ""
    if opsets[0] > opset:
        return f"{remove}export the model with opset {_range(opsets)}"
    return (
        f"{remove}if the model was made for opset {_range(opsets)}, declare that opset in the file "
        "and convert it with onnx.version_converter"
    )


def _schemas(op: str) -> list[tuple[int, onnx.defs.OpSchema]]:
    """What each opset that has the operator says of it."""
    opsets = range(1, onnx.defs.onnx_opset_version() + 1)
    return [(v, onnx.defs.get_schema(op, v)) for v in opsets if onnx.defs.has(op, v)]


def _range(opsets: list[int]) -> str:
    """``opsets``, which follow each other, in words."""
    if opsets[-1] == onnx.defs.onnx_opset_version():
        return f"{opsets[0]} or later"
    if opsets[0] == 1 or opsets[0] == opsets[-1]:
        return f"{opsets[-1]} or earlier" if opsets[0] == 1 else f"{opsets[0]}"
    return f"{opsets[0]} to {opsets[-1]}"
