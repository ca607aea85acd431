"""Casts between float types around Q/DQ pairs, as models in FP16 have them whose scales are FP32.

TensorRT-RTX 1.7.1 takes a product behind such a Cast in INT8, and the Cast before Q with the
quantizing kernel, so neither is a layer of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from placer.graph.edit import readers_by_tensor
from placer.model.normalize import infer_values

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def around_pairs(proto: ModelProto, pairs: Mapping[str, NodeProto]) -> dict[str, NodeProto]:
    """Casts behind a DQ, and those before a Q that they undo, by what they write.

    ``pairs``: the Q/DQ nodes by what they write.
    """
    outputs = {value.name for value in proto.graph.output}
    casts = [n for n in proto.graph.node if _to_float(n) and n.output[0] not in outputs]
    behind = {
        cast.output[0]: cast
        for cast in casts
        if cast.input[0] in pairs and pairs[cast.input[0]].op_type == "DequantizeLinear"
    }
    if not behind:
        return {}
    readers = readers_by_tensor(proto.graph.node)
    before = [cast for cast in casts if _is_undone(cast, readers, pairs, behind)]
    if before:
        types = infer_values(proto, {}, Path("the model"))
        read = {cast.input[0] for cast in before}
        floats = {t for t in read if t in types and _is_float(types[t].type.tensor_type.elem_type)}
        behind |= {cast.output[0]: cast for cast in before if cast.input[0] in floats}
    return behind


def _to_float(node: NodeProto) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and _is_float(a.i) for a in node.attribute)


def _is_float(dtype: int) -> bool:
    return dtype in _FLOATS


def _is_undone(
    cast: NodeProto,
    readers: Mapping[str, Iterable[NodeProto]],
    pairs: Mapping[str, NodeProto],
    behind: Mapping[str, NodeProto],
) -> bool:
    """Whether only pairs read what ``cast`` writes, and only Casts what these write."""
    waiting, seen = [cast.output[0]], set[str]()
    while waiting:
        tensor = waiting.pop()
        for node in readers[tensor]:
            if node.output[0] in behind:
                seen.add(node.output[0])
            elif node.output[0] in pairs:
                waiting.append(node.output[0])
            else:
                return False
    return bool(seen)
