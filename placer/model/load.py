"""Load an ONNX file as a normalised float model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.defs
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from placer.common.custom_ops import custom_op_libraries
from placer.errors import InputError
from placer.graph import Graph, index_graph, tensor_type
from placer.graph.edit import (
    all_tensors,
    every_node,
    fix_input_shapes,
    standard_opset,
    without_initializers,
    without_large_tensors,
)
from placer.graph.external_data import (
    check_tensors,
    data_folder,
    fingerprint,
    is_external,
    read_tensor,
    tensor_bytes,
)
from placer.graph.flat import nest
from placer.model.custom_types import bind_dimensions, declared_types, infer_flat_values
from placer.model.early_norms import set_apart
from placer.model.entered_bodies import enter_bodies
from placer.model.fixed_inputs import fix_in_place
from placer.model.importing import Imported, import_model, is_quantized
from placer.model.input_shapes import input_shapes_of
from placer.model.normalize import (
    infer_values,
    inline_functions,
    normalize,
    tidy,
    tidy_quantized,
)
from placer.model.open_tensors import open_tensors
from placer.model.validate import check_sizes, parse_model, read_model

_STANDARD = ("", "ai.onnx")
_KNOWN_DOMAINS = ("ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_PLUGINS = "TRT"  # As TensorRT's exporters call the domain of its plugins.
_QUANTIZED = re.compile(r"(Quantize|Dequantize|DynamicQuantize)Linear|QLinear\w+|\w+Integer|QGemm")


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

    def as_written(self) -> Model:
        """The model of which placer writes candidates: no BatchNormalization is left to fold."""
        return replace(self, graph=replace(self.graph, normalized=frozenset()))

    def source_quantization(self) -> Imported:
        """``imported`` of a model that was quantized; InputError if it was float."""
        if self.imported is None:
            raise InputError(f"{self.path} is not quantized; give it to placer optimize as it is")
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

    A model that is quantized already is taken apart first (``placer.model.importing``);
    ``kept_pairs``: what those QuantizeLinear nodes write that are part of its function. Raises
    InputError, naming the file, node, tensor or input, for anything that is not a valid ONNX model
    with known input shapes, or is quantized in a way that cannot be taken apart.
    """
    path = Path(path)
    proto, tensors, base_dir = _read(path)
    fixed = _fixed_inputs(proto)
    imported, declared = None, declared_types(proto) if plugins else []
    try:
        check_tensors(tensors, base_dir, path)
        if is_quantized(proto):
            if fix:
                raise InputError(
                    f"{path} is quantized; recover the float model by placer import before `fix`"
                )
            imported = import_model(proto, base_dir, path, kept_pairs)
            proto = imported.proto
            check_tensors(all_tensors(proto.graph), base_dir, path)
        if plugins:
            _name_plugins(proto)
        _check(proto, path, plugins)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: a name is not UTF-8; export it again") from error
    digest = fingerprint(path, tensors, base_dir)
    if fix:
        fix_in_place(proto, fix, shapes or {}, path)
        digest = _with_fixed(digest, fix)
    normal = normalize(proto, base_dir, path)
    proto, notes = normal.proto, (*fixed, *normal.notes)
    scopes = enter_bodies(proto, base_dir, path) if bodies else {}
    input_shapes = input_shapes_of(proto, dict(shapes or {}), path)
    bind_dimensions(declared, proto.graph, input_shapes)
    values = infer_flat_values(proto, base_dir, input_shapes, path, scopes, declared)
    types = {name: tensor_type(value) for name, value in values.items()}
    check_sizes(types, path)
    infer = partial(infer_values, proto, {}, path)
    graph = index_graph(proto.graph, types, scopes, open_tensors(proto, types, infer))
    graph = replace(graph, normalized=normal.normalized)
    imported = None if imported is None else imported.restricted(graph)
    if scopes:
        proto = without_initializers(proto, ())  # The graph keeps the nodes of the flat one.
        nest(proto.graph, scopes)
    return Model(path, proto, graph, digest, base_dir, input_shapes, notes, imported)


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
    inline_functions(proto, path)
    tidy_quantized(proto)
    for node in proto.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = ""
    return proto


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
    return _has_any(path, ("QuantizeLinear", "DequantizeLinear"))


def quantizes_at_run_time(path: Path) -> bool:
    """Whether the ONNX file at ``path`` has DynamicQuantizeLinear nodes. Raises InputError as
    ``is_quantized_file`` does.
    """
    return _has_any(path, ("DynamicQuantizeLinear",))


def _has_any(path: Path, ops: Collection[str]) -> bool:
    proto = parse_model(path)
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    return any(node.op_type in ops for node in every_node(nodes))


def _name_plugins(proto: ModelProto) -> None:
    """Move operators that ONNX does not have to a domain of their own, as the checker demands."""
    nodes = [n for n in every_node(proto.graph.node) if n.domain in _STANDARD]
    nodes = [node for node in nodes if not onnx.defs.has(node.op_type)]
    for node in nodes:
        node.domain = _PLUGINS
    if nodes and all(entry.domain != _PLUGINS for entry in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(_PLUGINS, 1))


def _check(proto: ModelProto, path: Path, plugins: bool) -> None:
    """Tidy ``proto`` and raise InputError unless it is a valid float model."""
    tidy(proto)
    set_apart(proto)
    _check_nodes(proto, path, plugins)
    stub = without_large_tensors(proto)
    for tensor in all_tensors(stub.graph):
        if is_external(tensor):  # In a subgraph; the checker looks for it in the current folder.
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    # The checker demands a rank of each, which exporters do not know behind a Reshape to a shape
    # that is an input; the data and ONNX Runtime tell it.
    for value in (*stub.graph.input, *stub.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(stub)
    except onnx.checker.ValidationError as error:
        raise InputError(f"{path} is not a valid ONNX model: {_first_line(error)}") from error


def _check_nodes(proto: ModelProto, path: Path, plugins: bool) -> None:
    functions = {(function.domain, function.name) for function in proto.functions}
    opset = standard_opset(proto)
    bodies = [(proto.graph.node, opset)]
    for function in proto.functions:
        opset_of_body = max(
            (e.version for e in function.opset_import if e.domain == ""), default=opset
        )
        bodies.append((function.node, opset_of_body))
    for nodes, version in bodies:
        known = set(functions)
        for node in every_node(nodes):
            if (node.domain, node.op_type) not in known:
                _check_node(node, version, path, plugins)
                known.add((node.domain, node.op_type))


def _check_node(node: NodeProto, opset: int, path: Path, plugins: bool) -> None:
    name = node.name or f"(unnamed, output '{next(iter(node.output), '')}')"
    op = str(node.op_type)  # Damaged files have bytes here.
    if _QUANTIZED.fullmatch(op):
        raise InputError(
            f"{path}: node '{name}' ({op}) is quantized in a way that placer cannot take apart; "
            "give the float model"
        )
    if node.domain in _STANDARD:
        if not onnx.defs.has(op):
            raise InputError(
                f"{path}: node '{name}' uses operator {op}, which ONNX does not have; if it is an "
                "engine's plugin, take the part before it (placer extract), and put the placement "
                "on this file by placer apply without `data`"
            )
        if not onnx.defs.has(op, max_inclusive_version=opset):
            raise InputError(
                f"{path}: node '{name}' uses operator {op}, which opset {opset} does "
                "not define; export it with another opset"
            )
    elif node.domain not in _KNOWN_DOMAINS and not (plugins or custom_op_libraries()):
        raise InputError(
            f"{path}: node '{name}' uses operator {op} of the unknown domain '{node.domain}'; "
            "give the library that has it to `custom_ops`, take the part before it (placer "
            "extract), or export it with standard operators"
        )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
