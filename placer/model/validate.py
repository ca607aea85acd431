"""ONNX files read and checked, once, before anything works on them.

What passes is a binary ONNX model of the structure that protobuf alone does not promise, within
the limits of ``placer.common.limits``. The rest of placer trusts it.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import onnx
import onnx.defs
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)
from onnx.helper import make_opsetid

from placer.common.files import read_bytes
from placer.common.limits import Limits, how_to_lift, in_bytes
from placer.common.shapes import MAX_DIMENSION
from placer.errors import InputError
from placer.graph.edit import every_node, subgraphs
from placer.graph.external_data import fills_its_shape, is_external, tensor_bytes
from placer.graph.index import TensorType
from placer.graph.node_names import node_title
from placer.graph.operators import STANDARD_DOMAINS
from placer.model.inlined_nodes import count_nodes
from placer.model.loops import endless_trips
from placer.model.operator_schemas import schema_problems
from placer.model.other_opsets import of_other_opset

ONNX_MODEL = "the path of an ONNX file"
_TENSOR_TYPES = frozenset(onnx.helper.get_all_tensor_dtypes())
_MAX_OPSET = 1000
_MOST_BYTES = 16  # Of one value: complex128.
_ZIP = b"PK\3\4"
_HEAD = 64  # Bytes that tell a format, after blanks and empty lines.
# AIMET writes what it found for a model as JSON, beside a model that has nothing of it.
_JSON, _AIMET = b"{", b"activation_encodings"
_JSON_OF_AIMET = "JSON of AIMET; export the model in binary form with its encodings (to_onnx_qdq)"
# How files of other formats begin, from which byte on, and what to say of them.
_OTHER_FORMATS = (
    (4, b"ORTM", "in ONNX Runtime's own format; give the .onnx file that it was made from"),
    (4, b"TFL3", "a TensorFlow Lite model; convert it: python -m tf2onnx.convert --tflite"),
    (0, _ZIP, "a zip archive, as PyTorch and Keras save models; export the model to ONNX"),
    (0, b"\x89HDF", "an HDF5 file, as Keras saves models; export the model to ONNX"),
    (0, b"\x80", "a Python pickle, as PyTorch saves models; export it with torch.onnx.export"),
    (0, b"ftrt", "a TensorRT engine; give the ONNX model that it was built from"),
    (0, b"<!DOCTYPE html", "a web page, as a failed download leaves; download the model again"),
    (0, b"<html", "a web page, as a failed download leaves; download the model again"),
    (0, _JSON, "JSON; give the .onnx file"),
    (0, b"<?xml", "XML, as OpenVINO's models are; give the ONNX model that it was made from"),
)


def read_model(path: Path) -> ModelProto:
    """Read and check the binary ONNX file at ``path``; external data is not read.

    The file's suffix says nothing: ONNX's text formats are refused, for their parsers fail on deep
    nesting. Raises InputError, naming file, node or tensor, for anything else than a model whose
    structure, names, types and sizes can be worked with.
    """
    limits = Limits.from_environment()
    proto = parse_model(path)
    _FileCheck(path, limits).check(proto)
    _import_domains(proto)
    return proto


def _import_domains(proto: ModelProto) -> None:
    """Import the domains of all nodes; tools leave out their own, as AIMET does.

    Local functions import theirs, and the model does, too, into which they are inlined.
    """
    for function in proto.functions:
        _import_those_of(function, every_node(function.node))
    inside = (node for function in proto.functions for node in every_node(function.node))
    _import_those_of(proto, chain(every_node(proto.graph.node), inside))


def _import_those_of(proto: ModelProto | FunctionProto, nodes: Iterable[NodeProto]) -> None:
    imported = {entry.domain for entry in proto.opset_import} | {*STANDARD_DOMAINS}
    used = {node.domain for node in nodes}
    proto.opset_import.extend(make_opsetid(domain, 1) for domain in sorted(used - imported))


def parse_model(path: Path) -> ModelProto:
    """The binary ONNX file at ``path`` as it is; only ``read_model`` checks what is in it.

    Raises InputError for what is no ONNX file.
    """
    _refuse_packed(path)  # Such archives may be larger than a model.
    data = read_bytes(path, ONNX_MODEL, "model_bytes")
    try:
        proto = ModelProto.FromString(data)
    except DecodeError as error:
        _refuse_other_formats(path, data)
        raise InputError(
            f"{path} is not an ONNX file, or was cut short; export it again in binary form"
        ) from error
    if not proto.opset_import or not proto.graph.node:
        _refuse_other_formats(path, data)
        lacks = "node, so there is nothing to quantize" if proto.opset_import else "operator set"
        raise InputError(f"{path} is not an ONNX model: it has no {lacks}")
    return proto


def _refuse_other_formats(path: Path, data: bytes) -> None:
    """Raise InputError if ``data`` begin as files of another format that holds models."""
    if not data:
        raise InputError(f"{path} is not an ONNX file: it is empty; export the model again")
    head = data[:_HEAD].lstrip()
    for start, mark, what in _OTHER_FORMATS:
        if (data if start else head).startswith(mark, start):
            is_of_aimet = mark == _JSON and _AIMET in data
            known = _JSON_OF_AIMET if is_of_aimet else what
            raise InputError(f"{path} is not an ONNX file: it is {known}")


def _refuse_packed(path: Path) -> None:
    """Raise InputError for a zip archive with an ONNX file, which tf2onnx makes of large models."""
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            if file.read(len(_ZIP)) != _ZIP:
                return
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError):
        return
    packed = next((name for name in names if name.endswith(".onnx")), None)
    if packed is not None:
        raise InputError(
            f"{path} is not an ONNX file: it is a zip archive of one and its weights, as tf2onnx "
            f"writes large models; unpack it and give '{packed}'"
        )


def check_sizes(types: Mapping[str, TensorType], path: Path) -> None:
    """Raise InputError for a tensor of ``types`` whose inferred shape is beyond the limits."""
    limit = Limits.from_environment().tensor_bytes
    for name, (dtype, dims) in types.items():
        if dims is None or dtype not in _TENSOR_TYPES:
            continue
        if min(dims, default=0) >= 0 and math.prod(dims) * _MOST_BYTES <= limit:
            continue
        size = tensor_bytes(TensorProto(data_type=dtype, dims=dims))
        if size > limit or min(dims, default=0) < 0:  # Inference overflows silently.
            raise InputError(
                f"{path}: tensor '{name}' of shape {'x'.join(map(str, dims))} takes "
                f"{in_bytes(size)}, more than {in_bytes(limit)}; "
                f"{how_to_lift('tensor_bytes', size)}"
            )


@dataclass(frozen=True)
class _FileCheck:
    """The checks of one file."""

    path: Path
    limits: Limits

    def check(self, proto: ModelProto) -> None:
        """Raise InputError for the first thing that is wrong."""
        self._check_domains(proto)
        self._check_functions(proto)
        graph = proto.graph
        if not graph.output:
            raise self._wrong("it has no output, so nothing can be compared")
        self._check_graph(graph, frozenset())
        for value in graph.input:
            if value.type.WhichOneof("value") is None:
                raise self._wrong(f"input '{value.name}' has no type")
        for value in (*graph.input, *graph.output):
            self._check_value(value)
        if (problem := next(schema_problems(proto), None)) is not None:
            if (other := of_other_opset(proto)) is not None:
                raise InputError(f"{self.path} is not a valid ONNX model: {other}")
            raise self._wrong(f"{node_title(problem[0])}{problem[1]}")

    def _wrong(self, what: str, fix: str = "export it again") -> InputError:
        return InputError(f"{self.path} is not a valid ONNX model: {what}; {fix}")

    def _check_domains(self, proto: ModelProto) -> None:
        if proto.ir_version < 1:
            raise self._wrong(f"its IR version is {proto.ir_version}")
        for entry in (*proto.opset_import, *(e for f in proto.functions for e in f.opset_import)):
            self._check_name(entry.domain)
            if not (entry.domain not in STANDARD_DOMAINS) <= entry.version <= _MAX_OPSET:
                raise self._wrong(f"it imports version {entry.version} of '{entry.domain}'")
            newest = onnx.defs.onnx_opset_version()
            if entry.domain in STANDARD_DOMAINS and entry.version > newest:
                raise InputError(
                    f"{self.path} is of opset {entry.version}, and the installed onnx package "
                    f"knows none beyond {newest}; export it with an opset up to that"
                )
        for function in proto.functions:
            for name in (function.domain, function.name, *function.input, *function.output):
                self._check_name(name)

    def _check_functions(self, proto: ModelProto) -> None:
        """Refuse functions that call themselves, and more nodes than the limit once inlined."""
        count = count_nodes(proto, self.path, self.limits)
        if count > self.limits.nodes:
            shown = f"{count:,}" if count < 10**12 else "more than 10^12"
            raise self._wrong(
                f"it has {shown} nodes with functions inlined, more than {self.limits.nodes:,}",
                how_to_lift("nodes", min(count, 10**12)),
            )

    def _check_graph(self, graph: GraphProto, outer: frozenset[str]) -> None:
        """Check names, types and that each tensor has one origin; subgraphs see ``outer``."""
        inputs = [value.name for value in graph.input]
        weights = [tensor.name for tensor in graph.initializer]
        weights += [tensor.values.name for tensor in graph.sparse_initializer]
        self._check_once(inputs, "graph inputs")
        self._check_once(weights, "initializers")
        made = [tensor for node in graph.node for tensor in node.output if tensor]
        known = {*inputs, *weights, *made}
        self._check_once([*made, *{*inputs, *weights}], "node outputs, inputs and initializers")
        returned = [value.name for value in graph.output]
        for name in dict.fromkeys([*inputs, *weights, *made, *returned, *_names(graph)]):
            self._check_name(name)
        for tensor in graph.initializer:
            self._check_tensor(tensor)
        self._check_once(returned, "graph outputs")
        self._check_nodes(graph, frozenset(known), outer)
        for name in returned:
            if name not in known and name not in outer:
                raise self._wrong(f"nothing computes the output '{name}'")
        self._check_order(graph)

    def _check_nodes(self, graph: GraphProto, known: frozenset[str], outer: frozenset[str]) -> None:
        """Check each node, and that what it reads is among the tensors ``known`` or ``outer``."""
        sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
        visible: frozenset[str] = frozenset()
        for node in graph.node:
            self._check_node(node)
            self._check_sizes_of_constants(node, sizes)
            trips = endless_trips(node, graph)
            if trips > self.limits.loop_trips:
                raise self._wrong(
                    f"{node_title(node)} runs {trips:,} times, "
                    f"more than {self.limits.loop_trips:,}",
                    how_to_lift("loop_trips", trips),
                )
            for name in node.input:
                if name and name not in known and name not in outer:
                    raise self._wrong(f"{node_title(node)} reads '{name}', which nothing computes")
            for inner in subgraphs(node):
                visible = visible or outer | known
                self._check_graph(inner, visible)

    def _check_order(self, graph: GraphProto) -> None:
        """Refuse nodes that wait for each other; any order that can be sorted will do."""
        makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
        waits = {
            i: {makers[name] for name in node.input if name in makers}
            for i, node in enumerate(graph.node)
        }
        if all(source < i for i, sources in waits.items() for source in sources):
            return
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            node = graph.node[error.args[1][0]]
            raise self._wrong(f"{node_title(node)} waits for its own output") from error

    def _check_once(self, names: Sequence[str], what: str) -> None:
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise self._wrong(f"'{twice}' occurs twice among its {what}")

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str):
            raise self._wrong("it is damaged: a name is not UTF-8")
        if len(name) > self.limits.name_length:
            raise self._wrong(
                f"the name '{name[:40]}...' has {len(name):,} characters, more than "
                f"{self.limits.name_length:,}",
                how_to_lift("name_length", len(name)),
            )
        if not name.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name):
            raise self._wrong(f"the name '{name}' holds control characters", "rename it")

    def _check_node(self, node: NodeProto) -> None:
        if not any(node.output):
            raise self._wrong(f"{node_title(node)} has no output")
        names = [attribute.name for attribute in node.attribute]
        if len(set(names)) < len(names):
            raise self._wrong(f"{node_title(node)} has an attribute twice")
        for attribute in node.attribute:
            if attribute.type in (AttributeProto.TENSOR, AttributeProto.TENSORS):
                for tensor in (attribute.t, *attribute.tensors):
                    self._check_tensor(tensor, what=f"attribute '{attribute.name}'")

    def _check_sizes_of_constants(self, node: NodeProto, sizes: Mapping[str, int]) -> None:
        """Refuse constant zero points that are not as many as scales, and conditions not one."""
        if node.op_type not in ("If", "QuantizeLinear", "DequantizeLinear"):
            return
        given = [sizes.get(name) for name in node.input]
        if node.op_type == "If" and given and given[0] not in (None, 1):
            raise self._wrong(f"the condition of {node_title(node)} has {given[0]} values")
        if node.op_type == "If" or len(given) < 3:
            return
        scales, points = given[1:3]
        if None not in (scales, points) and scales != points:
            raise self._wrong(f"{node_title(node)} has {points} zero points for {scales} scales")

    def _check_tensor(self, tensor: TensorProto, what: str = "initializer") -> None:
        self._check_name(tensor.name)
        name = f"{what} '{tensor.name}'" if tensor.name else what
        if tensor.data_type not in _TENSOR_TYPES:
            raise self._wrong(f"{name} has the unknown type {tensor.data_type}")
        if len(tensor.dims) > self.limits.rank:
            raise self._wrong(
                f"{name} has {len(tensor.dims)} dimensions, more than {self.limits.rank}",
                how_to_lift("rank", len(tensor.dims)),
            )
        if any(size < 0 for size in tensor.dims) or (
            math.prod(max(size, 1) for size in tensor.dims) > 2**62
        ):
            raise self._wrong(f"{name} has an impossible shape {list(tensor.dims)[:8]}")
        if not is_external(tensor) and not fills_its_shape(tensor):
            raise self._wrong(f"tensor '{tensor.name}' is damaged or cut short")

    def _check_value(self, value: ValueInfoProto) -> None:
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            return
        if tensor.elem_type and tensor.elem_type not in _TENSOR_TYPES:
            raise self._wrong(f"'{value.name}' has the unknown type {tensor.elem_type}")
        for dim in tensor.shape.dim:
            if not isinstance(dim.dim_param, str):
                raise self._wrong(f"the name of a dimension of '{value.name}' is not UTF-8")
            if dim.dim_value > MAX_DIMENSION:
                raise self._wrong(f"'{value.name}' has a dimension of {dim.dim_value:,}")


def _names(graph: GraphProto) -> Iterator[str]:
    """The names of nodes and attributes, of operators and domains, and of what nodes read."""
    for node in graph.node:
        yield node.name
        yield node.op_type
        yield node.domain
        yield from node.input
        for attribute in node.attribute:
            yield attribute.name
