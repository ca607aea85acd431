"""Types that ONNX's inference does not know: computed shapes, what custom operators write."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.defs
import onnxruntime as ort
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from placer.common.custom_ops import custom_op_libraries
from placer.common.ort_session import create_session, run_once
from placer.errors import InputError, RunError
from placer.graph.edit import fix_input_shapes, without_large_tensors
from placer.graph.flat import entered_bodies
from placer.graph.index import tensor_type
from placer.graph.operators import MICROSOFT, STANDARD_DOMAINS
from placer.graph.scopes import Scopes
from placer.model.body_types import BodyTypes, copy_type
from placer.model.normalize import infer_values
from placer.model.passes.constant_folding import fold_constants

log = logging.getLogger(__name__)

# Of scikit-learn's models; ONNX's inference knows types of what these operators write, no shapes.
CLASSICAL = "ai.onnx.ml"
# By how ONNX Runtime writes types.
_ELEMENTS = {
    f"tensor({name})": getattr(TensorProto, element)
    for name, element in {
        "float": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "double": "DOUBLE",
        "uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "int32": "INT32",
        "int64": "INT64", "bool": "BOOL",
    }.items()
}  # fmt: skip


def infer_all_values(
    proto: ModelProto,
    base_dir: Path,
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
    declared: Sequence[ValueInfoProto] = (),
) -> dict[str, ValueInfoProto]:
    """``infer_values``, also where shapes are computed from ``shapes`` by nodes of the model, and
    behind custom operators where the library that has them is given.

    ``declared``: see ``declared_types``. Raises InputError if shapes contradict each other.
    """
    seen = list(declared)
    values = infer_values(proto, shapes, path, seen)
    seen += types_of_onnxruntime(proto, shapes, values)
    domains = {node.domain for node in proto.graph.node if node.domain}
    domains &= domains if custom_op_libraries() else {CLASSICAL}
    if domains:
        told = [*seen, *(value for name, value in values.items() if name not in shapes)]
        known = {value.name for value in told if tensor_type(value).shape is not None}
        observed = _observed_types(proto, base_dir, shapes, known, domains)
        names = {value.name for value in observed}
        seen = [*(value for value in seen if value.name not in names), *observed]
    if len(seen) > len(declared):
        values = infer_values(proto, shapes, path, seen)
    if not _is_incomplete(proto, values):
        return values
    return _values_by_folding(proto, shapes, path, seen, values)


def _values_by_folding(
    proto: ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
    seen: Sequence[ValueInfoProto],
    values: Mapping[str, ValueInfoProto],
) -> dict[str, ValueInfoProto]:
    """``values``, and those that follow once nodes that compute shapes are folded.

    ONNX's inference propagates values through few operators: not through Max and Div, by which
    exporters compute padding. What it leaves open is folded on a copy, where Shape nodes answer
    for ``shapes``; the model itself is for all shapes.
    """
    values = dict(values)
    copy = without_large_tensors(proto)
    fix_input_shapes(copy, shapes)
    while fold_constants(copy, values):
        known = {name for name, value in values.items() if tensor_type(value).shape is not None}
        told = types_of_onnxruntime(copy, shapes, known)
        names = {value.name for value in told}
        seen = [*(value for value in seen if value.name not in names), *told]
        values = {**values, **infer_values(copy, shapes, path, seen)}
    return values


def types_of_onnxruntime(
    proto: ModelProto, shapes: Mapping[str, tuple[int, ...]], known: Container[str]
) -> list[ValueInfoProto]:
    """Types and shapes, of tensors not ``known``, behind operators of ONNX Runtime's own domain.

    QLinearAdd, MatMulNBits and their like, which ONNX's inference does not know. None where ONNX
    Runtime refuses the model without its weights: what is behind them is then not known.
    """
    wanted = [
        tensor
        for node in proto.graph.node
        if node.domain == MICROSOFT
        for tensor in node.output
        if tensor and tensor not in known
    ]
    if not wanted:
        return []
    stub = without_large_tensors(proto)
    fix_input_shapes(stub, shapes)
    del stub.graph.output[:]
    stub.graph.output.extend(ValueInfoProto(name=tensor) for tensor in wanted)
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = create_session(stub.SerializeToString(), Path(), threads=1, level=level)
    except RunError as error:
        log.info("types behind ONNX Runtime's operators are not known: %s", error)
        return []
    # No dimensions are those of a number, or not known: ONNX Runtime does not tell which.
    return [
        helper.make_tensor_value_info(output.name, _ELEMENTS[output.type], output.shape or None)
        for output in session.own.get_outputs()
        if output.type in _ELEMENTS
    ]


def infer_flat_values(
    proto: ModelProto,
    base_dir: Path,
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
    scopes: Scopes,
    declared: Sequence[ValueInfoProto],
) -> dict[str, ValueInfoProto]:
    """``infer_all_values`` of a flat graph, with the inputs of its bodies.

    If, Loop and Scan have the types of what their bodies return, which hold nothing that inference
    could go through. ``proto`` keeps the types that it declares: they are for all shapes.
    """
    if not scopes:
        return infer_all_values(proto, base_dir, shapes, path, declared)
    copy = without_large_tensors(proto)
    inputs = BodyTypes(copy.graph)
    while True:  # From the innermost body outwards, and with Loops until their types stay.
        try:
            values = infer_all_values(copy, base_dir, shapes, path, declared)
        except InputError:
            if not inputs.forget():
                raise
            continue
        changed = inputs.update(values)
        for node in copy.graph.node:
            for returned in (v for g in entered_bodies(node).values() for v in g.output):
                if returned.name in values:
                    changed |= copy_type(values[returned.name], returned)
        if not changed and not inputs.give_up(values):
            return values


def declared_types(proto: ModelProto) -> list[ValueInfoProto]:
    """A copy of what ``proto`` declares of tensors that nodes of other domains than ONNX's write.

    Inference knows nothing of them; what a file declares of others may be older than its nodes.
    """
    foreign = [
        node
        for node in proto.graph.node
        if node.domain not in STANDARD_DOMAINS or not onnx.defs.has(node.op_type)
    ]
    written = {tensor for node in foreign for tensor in node.output}
    stub = ModelProto()
    stub.graph.value_info.extend(v for v in proto.graph.value_info if v.name in written)
    return list(stub.graph.value_info)


def bind_dimensions(
    declared: Iterable[ValueInfoProto], graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Give dimensions of ``declared`` the sizes that those of inputs of the same name have."""
    sizes = {
        dim.dim_param: size
        for value in graph.input
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=False)
        if dim.dim_param
    }
    for value in declared:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def _is_incomplete(proto: ModelProto, values: Mapping[str, ValueInfoProto]) -> bool:
    return any(
        tensor and tensor_type(values.get(tensor, ValueInfoProto())).shape is None
        for node in proto.graph.node
        for tensor in node.output
    )


def _observed_types(
    proto: ModelProto,
    base_dir: Path,
    shapes: Mapping[str, tuple[int, ...]],
    known: Container[str],
    domains: Container[str],
) -> list[ValueInfoProto]:
    """Types and shapes of what nodes of ``domains`` write, of tensors that are not ``known``.

    They are those of one run, on ONNX Runtime, on normally distributed floats and zeros for all
    other inputs, of the ``shapes``. None where that run fails: the rest of the graph can be worked
    with nevertheless.
    """
    wanted = [
        tensor
        for node in proto.graph.node
        if node.domain in domains
        for tensor in node.output
        if tensor and tensor not in known
    ]
    if not wanted:
        return []
    present = {value.name for value in proto.graph.output}
    extra = ModelProto()
    extra.graph.output.extend(ValueInfoProto(name=t) for t in wanted if t not in present)
    # Concatenated messages merge, and repeated fields append (protobuf.dev, "Encoding").
    serialized = b"".join((proto.SerializeToString(), extra.SerializeToString()))
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = create_session(serialized, base_dir, threads=1, level=level)
        values = run_once(session, wanted, _inputs(proto, shapes))
    except RunError as error:
        tell = log.warning if custom_op_libraries() else log.info
        tell("types behind custom operators are not known: %s", error)
        return []
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in zip(wanted, values, strict=True)
        if isinstance(v, np.ndarray) and not v.dtype.hasobject
    ]


def _inputs(proto: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    given = {}
    for value in proto.graph.input:
        if value.name in shapes:
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shape = shapes[value.name]
            values = rng.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
            if dtype.kind == "O":
                values = np.full(shape, "")
            given[value.name] = np.asarray(values).astype(dtype)
    return given
