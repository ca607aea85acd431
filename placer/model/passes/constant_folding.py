"""Fold nodes whose inputs are constant, and Shape nodes whose answer the model fixes.

Not onnx_graphsurgeon's ``fold_constants``: version 0.6.1 gives wrong values for ``Shape`` with
``start``, rounds float constants between two Casts to integers, and evaluates tensors of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx import numpy_helper as nph

from placer.common.ort_session import create_session, run_once
from placer.errors import RunError
from placer.graph.edit import reads, replace_nodes, subgraphs
from placer.graph.external_data import is_external, tensor_bytes

# A folded tensor may be larger than what it is computed from up to this size.
_MAX_GROWN_BYTES = 1 << 20
# What initializers within the model may take together, as no message holds 2 GiB.
_MAX_INLINE_BYTES = 3 << 29
# Types that ONNX Runtime hands over as NumPy arrays.
_FOLDABLE_TYPES = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.BOOL,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)
_RANDOM_OPS = ("Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike")

Values = Mapping[str, ValueInfoProto]


def fold_constants(
    proto: ModelProto,
    values: Values,
    keep: Collection[str] = (),
    base_dir: Path | None = None,
) -> int:
    """Replace nodes that depend on constants alone by initializers; return how many.

    ``values``: inferred types; only dimensions that they fix count as known. ``base_dir``: the
    folder of external tensors, which None leaves unread. What is folded of these is in the model
    from then on, as far as there is room: exporters leave Transposes and Casts before large
    weights. Nodes that make graph outputs, random values or large tensors stay, as do those of
    the operators ``keep``.
    """
    graph = proto.graph
    constants = {t.name: t for t in graph.initializer if base_dir is not None or not is_external(t)}
    pending, results = _found(proto, constants, values, keep)
    folder = base_dir or Path()
    results.update(_evaluate(pending, {**constants, **results}, values, proto, folder))
    kept = [node for node in graph.node if not _is_replaced(node, results)]
    read = {tensor for node in kept for tensor in reads(node)}
    count = len(graph.node) - len(kept)
    if count:
        replace_nodes(graph, kept)
    graph.initializer.extend(results[name] for name in results if name in read)
    return count


def _found(
    proto: ModelProto, constants: Mapping[str, TensorProto], values: Values, keep: Collection[str]
) -> tuple[list[NodeProto], dict[str, TensorProto]]:
    """Nodes to be evaluated, in their order, and the results of nodes that only tell shapes.

    ``keep``: as in ``fold_constants``.
    """
    pending, shapes = list[NodeProto](), dict[str, TensorProto]()
    outputs = {value.name for value in proto.graph.output}
    expected = {name: tensor_bytes(t) for name, t in constants.items()}
    room = _MAX_INLINE_BYTES - sum(
        size for name, size in expected.items() if not is_external(constants[name])
    )
    for node in proto.graph.node:
        if node.domain or node.op_type in keep or outputs.intersection(node.output):
            continue
        shape = _known_shape(node, values)
        if shape is not None:
            name = node.output[0]
            shapes[name] = nph.from_array(shape, name)
            expected[name] = shape.nbytes
        elif _is_foldable(node, expected):
            sizes = _output_bytes(node, values)
            limit = max(_MAX_GROWN_BYTES, *(expected[t] for t in node.input if t))
            made = 0 if sizes is None else sum(sizes.values())
            if sizes is not None and made <= min(limit, max(room, _MAX_GROWN_BYTES)):
                pending.append(node)
                expected.update(sizes)
                room -= made
    return pending, shapes


def may_fold(proto: ModelProto) -> bool:
    """Whether ``fold_constants`` may find anything to replace, told without inferred types."""
    shapes = any(node.op_type in ("Shape", "Size") for node in proto.graph.node)
    return shapes or _reads_constants_alone(proto)


def fold_repeatedly(proto: ModelProto, infer: Callable[[], Values], base_dir: Path) -> int:
    """``fold_constants`` until nothing changes: sizes may follow from what was folded, as Range's.

    ``infer``: the types of what ``proto`` has become. ``base_dir``: of external tensors.
    """
    count = 0
    while folded := fold_constants(proto, infer(), base_dir=base_dir):
        count += folded
        if not _reads_constants_alone(proto):
            break
    return count


def _reads_constants_alone(proto: ModelProto) -> bool:
    constants = {t.name for t in proto.graph.initializer}
    return any(all(name in constants for name in node.input if name) for node in proto.graph.node)


def _known_shape(node: NodeProto, values: Values) -> np.ndarray | None:
    """What a Shape or Size node returns, if the dimensions it reads are known."""
    if node.op_type not in ("Shape", "Size") or node.input[0] not in values:
        return None
    tensor = values[node.input[0]].type.tensor_type
    if not tensor.HasField("shape"):
        return None
    attributes = {a.name: a.i for a in node.attribute}
    dims = tensor.shape.dim[attributes.get("start", 0) : attributes.get("end")]
    sizes = [d.dim_value for d in dims]
    if any(size < 1 for size in sizes):  # Some exporters write unknown dimensions as 0 or -1.
        return None
    return np.array(math.prod(sizes) if node.op_type == "Size" else sizes, np.int64)


def _is_foldable(node: NodeProto, constants: Mapping[str, int]) -> bool:
    names = [tensor for tensor in node.input if tensor]
    if not names or any(tensor not in constants for tensor in names):
        return False
    return node.op_type not in _RANDOM_OPS and not any(subgraphs(node))


def _output_bytes(node: NodeProto, values: Values) -> dict[str, int] | None:
    """Size of each output; None if one is unknown or no array."""
    sizes = {}
    for name in node.output:
        if not name:
            continue
        tensor = values[name].type.tensor_type if name in values else None
        if tensor is None or tensor.elem_type not in _FOLDABLE_TYPES:
            return None
        dims = tensor.shape.dim
        if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in dims):
            return None
        itemsize = helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
        sizes[name] = math.prod(d.dim_value for d in dims) * int(itemsize)
    return sizes


def _evaluate(
    nodes: list[NodeProto],
    constants: Mapping[str, TensorProto],
    values: Values,
    proto: ModelProto,
    base_dir: Path,
) -> dict[str, TensorProto]:
    """Outputs of ``nodes``; where ONNX Runtime refuses them together, of those it runs alone."""
    if not nodes:
        return {}
    try:
        return _run(nodes, constants, values, proto, base_dir)
    except RunError:
        if len(nodes) == 1:
            return {}
    evaluated: dict[str, TensorProto] = {}
    for node in nodes:
        known = {**constants, **evaluated}
        if all(tensor in known for tensor in node.input if tensor):
            evaluated.update(_evaluate([node], known, values, proto, base_dir))
    return evaluated


def _run(
    nodes: list[NodeProto],
    constants: Mapping[str, TensorProto],
    values: Values,
    proto: ModelProto,
    base_dir: Path,
) -> dict[str, TensorProto]:
    names = [name for node in nodes for name in node.output if name]
    read = {tensor: None for node in nodes for tensor in node.input if tensor in constants}
    graph = helper.make_graph(
        nodes, "constants", [], [values[n] for n in names], [constants[n] for n in read]
    )
    model = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = create_session(model.SerializeToString(), base_dir, threads=1, level=level)
    arrays = run_once(session, names, {})
    return {n: nph.from_array(np.asarray(a), n) for n, a in zip(names, arrays, strict=True)}


def _is_replaced(node: NodeProto, results: Mapping[str, TensorProto]) -> bool:
    names = [name for name in node.output if name]
    return bool(names) and all(name in results for name in names)
