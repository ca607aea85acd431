"""Load an ONNX file as a normalised float model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from placer.errors import InputError
from placer.graph import Graph, index_graph, tensor_type
from placer.graph.edit import (
    all_tensors,
    every_node,
    fix_input_shapes,
    standard_opset,
    without_initializers,
)
from placer.graph.external_data import (
    check_tensors,
    data_folder,
    fingerprint,
    read_tensor,
    tensor_bytes,
    values_digest,
)
from placer.graph.flat import nest
from placer.graph.operators import PAIR_OPS
from placer.graph.scopes import Scopes
from placer.model.check_operators import check_float_model, name_plugins
from placer.model.custom_types import bind_dimensions, declared_types, infer_flat_values
from placer.model.entered_bodies import enter_bodies
from placer.model.fixed_inputs import fix_in_place
from placer.model.input_shapes import given_shapes, input_shapes_of
from placer.model.minimum_opset import lacks_half, raise_for_half
from placer.model.normalize import infer_values, inline_functions, normalize, tidy, tidy_quantized
from placer.model.open_tensors import open_tensors
from placer.model.passes.early_norms import set_apart
from placer.model.quantized import Imported, is_quantized, restore_pairs, take_apart
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE
from placer.model.validate import check_sizes, parse_model, read_model

_FLOAT_WEIGHTS = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.DOUBLE,
)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A normalised float model.

    ``proto``: keeps dynamic dimensions; external initializers stay references to ``base_dir``.
    ``graph``: index of ``proto`` with types inferred for ``input_shapes``; where bodies were
    entered, of its flat form (``placer.graph.flat``).
    ``fingerprint``: SHA-256 of the file and its external data.
    ``notes``: what normalising changed, a sentence each.
    ``imported``: what a model that was quantized already said besides; None if it was float.
    """

    path: Path
    proto: ModelProto
    graph: Graph
    fingerprint: str
    base_dir: Path
    input_shapes: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]
    imported: Imported | None = None

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}, {self.graph!r})"

    @property
    def weight_bytes(self) -> int:
        """Size of all initializers."""
        return sum(tensor_bytes(tensor) for tensor in self.graph.initializers.values())

    def weights_digest(self) -> str:
        """64 hex digits, equal for files of the same float weights, as of a quantized model and the
        float model recovered from it; reads the weights.
        """
        tensors = self.graph.initializers.values()
        weights = [tensor for tensor in tensors if tensor.data_type in _FLOAT_WEIGHTS]
        return values_digest(weights, self.base_dir)

    def as_written(self) -> Model:
        """The model of which placer writes candidates: no BatchNormalization is left to fold."""
        return replace(self, graph=replace(self.graph, normalized=frozenset()))

    def source_quantization(self) -> Imported:
        """``imported`` of a model that was quantized; InputError if it was float."""
        if self.imported is None:
            raise float_already(self.path)
        return self.imported

    def flat(self) -> ModelProto:
        """The model that ``graph`` indexes: ``proto`` or a flat copy of it, which is never run."""
        if not self.graph.scopes:
            return self.proto
        proto = without_initializers(self.proto, ())
        del proto.graph.node[:], proto.graph.initializer[:]
        proto.graph.node.extend(node.proto for node in self.graph.nodes)
        proto.graph.initializer.extend(self.graph.initializers.values())
        return proto

    def array(self, initializer: str) -> np.ndarray:
        """Values of one initializer; reads no other one."""
        return read_tensor(self.graph.initializers[initializer], self.base_dir)


def load_model(
    path: Path | str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    kept_pairs: Collection[str] = (),
    fix: Mapping[str, float] | None = None,
    bodies: bool = False,
    plugins: bool = False,
) -> Model:
    """Load, check and normalise the model at ``path``; ``shapes`` fixes dynamic inputs.

    ``fix``: values of inputs that become constants, see ``placer.model.fixed_inputs``; then the
    model that is written has ``shapes`` as well.

    ``bodies``: whether ``Model.graph`` holds the nodes in bodies of If, Loop and Scan too, for an
    engine that takes pairs there.

    ``plugins``: whether operators that nobody knows pass, for a model that is never run: an engine
    may have plugins for them. What they write has the type that the file declares, if any; no rule
    quantizes a tensor without one.

    A model that is quantized already is taken apart first (``placer.model.quantized``);
    ``kept_pairs``: what those QuantizeLinear nodes write that are part of its function. Raises
    InputError, naming the file, node, tensor or input, for anything that is not a valid ONNX model
    with known input shapes, or is quantized in a way that cannot be taken apart.
    """
    path = Path(path)
    proto, tensors, base_dir = _read(path)
    fixed = _fixed_inputs(proto)
    declared = declared_types(proto) if plugins else []
    try:
        check_tensors(tensors, base_dir, path)
        imported = _taken_apart(proto, base_dir, path, kept_pairs)
        proto = proto if imported is None else imported.proto
        if plugins:
            name_plugins(proto)
        tidy(proto)
        set_apart(proto)
        check_float_model(proto, path, plugins)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: a name is not UTF-8; export it again") from error
    digest = fingerprint(path, tensors, base_dir)
    shapes = given_shapes(proto, shapes or {}, path)
    if fix:
        fix_in_place(proto, fix, shapes, path)
        shapes = {name: shape for name, shape in shapes.items() if name not in fix}
        digest = _with_fixed(digest, fix)
    normal = normalize(proto, base_dir, path)
    proto, notes = normal.proto, (*fixed, *normal.notes)
    scopes = enter_bodies(proto, base_dir, path) if bodies else {}
    input_shapes = input_shapes_of(proto, shapes, path)
    bind_dimensions(declared, proto.graph, input_shapes)
    values = infer_flat_values(proto, base_dir, input_shapes, path, scopes, declared)
    graph = replace(_indexed(proto, values, scopes, path), normalized=normal.normalized)
    imported = None if imported is None else imported.restricted(graph, normal.folded)
    if scopes:
        proto = without_initializers(proto, ())  # The graph keeps the nodes of the flat one.
        nest(proto.graph, scopes)
    return Model(path, proto, graph, digest, base_dir, input_shapes, notes, imported)


def float_already(path: Path) -> InputError:
    """What is raised where the file at ``path`` is to be quantized and is float."""
    return InputError(f"{path} is not quantized; give it to placer optimize as it is")


def model_fingerprint(path: Path, fix: Mapping[str, float] | None = None) -> str:
    """``fingerprint`` of the model that ``load_model`` makes of the file, without making it.

    Raises InputError if the file is no ONNX model or its external data are not there.
    """
    _, tensors, base_dir = _read(path)
    check_tensors(tensors, base_dir, path)
    digest = fingerprint(path, tensors, base_dir)
    return _with_fixed(digest, fix) if fix else digest


def check_file(path: Path) -> None:
    """Raise InputError if ``load_model`` would refuse the file at its first look.

    What is no ONNX model, is damaged or lacks its external data is found without the engines and
    libraries that a run imports.
    """
    _, tensors, base_dir = _read(path)
    check_tensors(tensors, base_dir, path)


def _read(path: Path) -> tuple[ModelProto, list[TensorProto], Path]:
    """The model in the file, its tensors, and the folder of those that are external."""
    proto = read_model(path)
    tensors = list(all_tensors(proto.graph))
    return proto, tensors, data_folder(tensors, path)


def _taken_apart(
    proto: ModelProto,
    base_dir: Path,
    path: Path,
    kept_pairs: Collection[str],
) -> Imported | None:
    """The float model and what else a quantized one says; None if it is float."""
    opset = standard_opset(proto)
    proto, restored = _with_pairs(proto, base_dir, path)
    if not is_quantized(proto):
        return None
    imported = take_apart(proto, base_dir, path, kept_pairs)
    if restored:
        tensors = f"{len(restored)} tensor{'s' if len(restored) > 1 else ''}"
        shown = ", ".join(restored[:3]) + (", ..." if len(restored) > 3 else "")
        note = (
            f"{tensors} quantized by arithmetic (Round, Clip, Mul), which engines compute in "
            f"float: taken for Q/DQ pairs: {shown}"
        )
        notes = [note]
        if opset < (raised := standard_opset(proto)):
            notes.append(f"opset {opset} raised to {raised}, which has pairs of half precision")
        imported = replace(imported, notes=(*notes, *imported.notes), restored_count=len(restored))
    check_tensors(all_tensors(imported.proto.graph), base_dir, path)
    return imported


def _with_pairs(
    proto: ModelProto, base_dir: Path, path: Path
) -> tuple[ModelProto, tuple[str, ...]]:
    """``proto`` with pairs in the place of arithmetic, and the tensors that they quantize.

    Local functions, which may round too, are inlined and the opset is raised to one that has pairs
    of half precision, where pairs are found only.
    """
    called = [node for function in proto.functions for node in function.node]
    if all(node.op_type != "Round" for node in (*proto.graph.node, *called)):
        return proto, ()
    prepared = proto
    if proto.functions or lacks_half(proto):
        prepared = ModelProto()
        prepared.CopyFrom(proto)
        inline_functions(prepared, path)
        raise_for_half(prepared, path)
    restored = restore_pairs(prepared, base_dir)
    return (prepared, restored) if restored else (proto, ())


def _indexed(
    proto: ModelProto, values: Mapping[str, ValueInfoProto], scopes: Scopes, path: Path
) -> Graph:
    """The graph of ``proto``; ``values``: its tensors as they were inferred."""
    types = {name: tensor_type(value) for name, value in values.items()}
    check_sizes(types, path)
    infer = partial(infer_values, proto, {}, path)
    return index_graph(proto.graph, types, scopes, open_tensors(proto, types, infer))


def _with_fixed(digest: str, fix: Mapping[str, float]) -> str:
    """``digest`` of a file, of the model that it is once ``fix`` holds: another network."""
    text = "".join((digest, *(f" {name}={float(fix[name])!r}" for name in sorted(fix))))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _fixed_inputs(proto: ModelProto) -> tuple[str, ...]:
    """A note on inputs that have a default value; before IR version 4 every weight is an input."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name in weights]
    if not names or proto.ir_version < 4:
        return ()
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (f"fixed {len(names)} inputs to their default values: {shown}",)


def load_quantized(path: Path) -> ModelProto:
    """Read a model with Q/DQ pairs to look at its structure; external data is not read.

    Local functions are inlined. Pairs of ONNX Runtime's domain, which it has for 16 and 4 bits
    before operator set 21, are those of the standard. Raises InputError if the file is no ONNX
    model.
    """
    proto = read_model(path)
    inline_pairs(proto, path)
    return proto


def inline_pairs(proto: ModelProto, path: Path) -> None:
    """Make of ``proto``, read from ``path``, what ``load_quantized`` returns, in place."""
    inline_functions(proto, path)
    tidy_quantized(proto)
    for node in proto.graph.node:
        if node.op_type in PAIR_OPS:
            node.domain = ""


def load_unquantized(path: Path) -> tuple[ModelProto, Path] | None:
    """The float model that ``load_model`` makes of a file, and the folder of its external data.

    None if the file is float itself. Needs no shapes. Raises InputError as ``load_model``.
    """
    proto, tensors, base_dir = _read(path)
    check_tensors(tensors, base_dir, path)
    imported = _taken_apart(proto, base_dir, path, ())
    proto = proto if imported is None else imported.proto
    tidy(proto)
    set_apart(proto)
    check_float_model(proto, path, plugins=False)
    normal = normalize(proto, base_dir, path)
    return None if imported is None else (normal.proto, base_dir)


def load_as_is(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    """Read any ONNX model to run it, unchanged; ``shapes`` fixes dynamic inputs.

    Raises InputError if the file is no ONNX model or an input's shape is not known.
    """
    proto, tensors, base_dir = _read(path)
    check_tensors(tensors, base_dir, path)
    input_shapes = input_shapes_of(proto, dict(shapes or {}), path)
    fix_input_shapes(fixed := ModelProto(graph=GraphProto(input=proto.graph.input)), input_shapes)
    check_sizes({value.name: tensor_type(value) for value in fixed.graph.input}, path)
    types = {value.name: tensor_type(value) for value in proto.graph.input}
    digest = fingerprint(path, tensors, base_dir)
    graph = index_graph(proto.graph, types)
    return Model(path, proto, graph, digest, base_dir, input_shapes, ())


def is_quantized_file(path: Path) -> bool:
    """Whether the ONNX file at ``path`` has QuantizeLinear or DequantizeLinear nodes.

    What else is in the file is checked where the model is loaded. Raises InputError for what is no
    ONNX file.
    """
    return _has_any(path, PAIR_OPS)


def quantizes_at_run_time(path: Path) -> bool:
    """Whether the ONNX file at ``path`` has DynamicQuantizeLinear nodes. Raises InputError as
    ``is_quantized_file`` does.
    """
    return _has_any(path, ("DynamicQuantizeLinear",))


def has_tensorrt_pairs(path: Path) -> bool:
    """Whether the ONNX file at ``path`` has TensorRT's own operators for Q or DQ, as older exports
    of NVIDIA's Model Optimizer. Raises InputError as ``is_quantized_file`` does.
    """
    return _has_any(path, {op for op in QUANTIZE | DEQUANTIZE if op.startswith("TRT_")})


def _has_any(path: Path, ops: Collection[str]) -> bool:
    proto = parse_model(path)
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    return any(node.op_type in ops for node in every_node(nodes))
