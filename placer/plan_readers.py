"""Actual plans from the files that engines leave: the format is recognised by content.

TensorRT's inspector names a layer after the ONNX nodes, weights and helpers that it fused, and
since version 10 gives the ONNX nodes in a field of their own. Field names of TensorRT 11:
https://docs.nvidia.com/deeplearning/tensorrt/11.0.0/api/migration/tensorrt-10x-to-11x-IEngineInspector.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.shape_inference
from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, TensorProto, helper

from placer.edit import without_large_tensors
from placer.errors import InputError
from placer.plan import Kind, Layer, Plan, Port
from placer.plan_file import parse_plan
from placer.trt.log import parse_layers

_KNOWN = "a TensorRT layer info JSON, a TensorRT-RTX build log, an ONNX file or a placer plan"


def read_plan(path: Path, profile: Path | None = None) -> Plan:
    """Read the plan in ``path``; ``profile`` adds the times of trtexec's ``--exportProfile``.

    ``path`` is the JSON of TensorRT's engine inspector (``trtexec --exportLayerInfo``, versions
    8 to 11), such a profile (names and times only), a verbose build log of TensorRT-RTX, an ONNX
    file such as ONNX Runtime's optimized model, or placer's own plan. Raises InputError if it is
    none of these, lacks the layers' details, or if ``profile`` is of another engine.
    """
    plan = _parse(_bytes(path), path)
    if profile is None:
        return plan
    document = _json(_text(_bytes(profile)) or "", profile)
    if not isinstance(document, list):
        raise InputError(f"{profile} is no profile; give the JSON of trtexec --exportProfile")
    return _with_times(plan, _profile_times(document, profile), path, profile)


def dtype_name(word: str) -> str:
    """ONNX name of an element type as TensorRT writes it, e.g. ``FP16`` or ``Half``.

    Empty if it is not known.
    """
    return _DTYPES.get(word.casefold(), "")


_DTYPES = {
    "float": "float",
    "fp32": "float",
    "float32": "float",
    "tf32": "float",
    "half": "float16",
    "fp16": "float16",
    "float16": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8": "float8e4m3fn",
    "float8": "float8e4m3fn",
    "float8e4m3fn": "float8e4m3fn",
    "fp4": "float4e2m1",
    "float4": "float4e2m1",
    "float4e2m1": "float4e2m1",
    "e8m0": "float8e8m0",
    "int4": "int4",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}


def is_quantized(dtype: str) -> bool:
    """Whether an ONNX type name is one that QuantizeLinear writes."""
    return dtype in ("int8", "uint8", "int4", "uint4", "int16", "uint16") or dtype.startswith(
        ("float8", "float4")
    )


# --- files ----------------------------------------------------------------------------------


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder; give {_KNOWN}") from error
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; give {_KNOWN}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the file") from error


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _parse(data: bytes, path: Path) -> Plan:
    text = _text(data)
    if text is not None:
        logged = tuple(_logged_layers(text))
        if logged:
            return Plan(logged, "TensorRT-RTX build log")
        if text.lstrip()[:1] in ("{", "["):
            return _json_plan(_json(text, path), path)
    plan = _onnx_plan(data)
    if plan is None:
        raise InputError(f"{path} is no plan; give {_KNOWN}")
    return plan


def _json(text: str, path: Path) -> Any:
    try:
        # Metadata holds control characters, which TensorRT does not always escape.
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path} is not valid JSON ({error.msg}, line {error.lineno}); export it again"
        ) from error


def _json_plan(document: Any, path: Path) -> Plan:
    if isinstance(document, list):
        times = _profile_times(document, path)
        return Plan(tuple(Layer(n, "", (), time_us=t) for n, t in times), "trtexec profile")
    if "format" in document:
        return parse_plan(document, str(path))
    if isinstance(document.get("Layers"), list):
        return Plan(tuple(_inspector_layers(document["Layers"], path)), _inspector(document))
    raise InputError(f"{path} has no field 'Layers'; give {_KNOWN}")


def inspector_plan(document: Mapping[str, Any], source: str) -> Plan:
    """The plan in the JSON of an engine inspector at hand; ``source`` names the engine.

    Raises InputError if the engine was built without detailed profiling verbosity.
    """
    return Plan(tuple(_inspector_layers(document["Layers"], Path(source))), source)


def _inspector(document: Mapping[str, Any]) -> str:
    version = {"Bindings": " 8 to 10", "I/O Tensors": " 11"}
    found = [text for field, text in version.items() if field in document]
    return f"TensorRT{found[0] if found else ''} inspector"


# --- TensorRT's inspector -------------------------------------------------------------------

# Synchronisation between streams, and constants, run nothing.
_NO_OPS = frozenset({"noop", "constant", "signal", "wait"})
_PAIR = re.compile(r"(Quantize|Dequantize)Linear(_\d+)?(_(de)?quantize_scale_node)?$")


def _inspector_layers(entries: Sequence[Any], path: Path) -> Iterator[Layer]:
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            raise InputError(
                f"{path} holds layer names only; build the engine again with "
                "profilingVerbosity=detailed"
            )
        if not isinstance(entry, dict) or not isinstance(entry.get("Name"), str):
            raise InputError(f"{path}: Layers[{index}] has no 'Name'; export the layer info again")
        yield _inspector_layer(entry, f"{path}: layer '{entry['Name']}'")


def _inspector_layer(entry: Mapping[str, Any], where: str) -> Layer:
    name, op = entry["Name"], str(entry.get("LayerType", ""))
    inputs = tuple(_inspector_ports(entry, "Inputs", where))
    outputs = tuple(_inspector_ports(entry, "Outputs", where))
    names = metadata_nodes(str(entry.get("Metadata", ""))) or name_parts(name)
    nodes = tuple(dict.fromkeys(n for n in names if _is_compute_node(n)))
    pairs = [n for n in names if _PAIR.search(n)]
    if name.startswith("Reformatting CopyNode"):
        nodes, pairs = (), []
    kind = _kind(op, str(entry.get("Origin", "")), nodes, pairs, inputs, outputs)
    return Layer(name, op, nodes, inputs, outputs, kind, _activation(entry))


def _activation(entry: Mapping[str, Any]) -> str:
    activation = str(entry.get("Activation") or entry.get("ConvActivation") or "")
    return "" if activation == "NONE" else activation


def _inspector_ports(entry: Mapping[str, Any], field: str, where: str) -> Iterator[Port]:
    ports = entry.get(field, [])
    if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
        raise InputError(f"{where}: '{field}' is no list of tensors; export the layer info again")
    for port in ports:
        # Documents and versions differ in the case of Datatype.
        fields = {str(key).casefold(): str(value) for key, value in port.items()}
        phrase = fields.get("format/datatype", fields.get("format", ""))
        dtype, layout = split_format(phrase)
        dtype = dtype_name(fields.get("datatype", "")) or dtype
        yield Port(dtype, layout, fields.get("name", ""))


def split_format(phrase: str) -> tuple[str, str]:
    """Split TensorRT's ``Format/Datatype`` into the type's ONNX name and the memory format.

    ``Channel major FP16 format where channel % 8 == 0`` is ``float16`` in the format
    ``Channel major format where channel % 8 == 0``. The type is empty where none is named.
    """
    for match in re.finditer(r"\w+", phrase):
        if dtype_name(match[0]):
            rest = f"{phrase[: match.start()]} {phrase[match.end() :]}"
            return dtype_name(match[0]), " ".join(rest.split()).rstrip(".")
    return "", phrase


def _kind(
    op: str,
    origin: str,
    nodes: Sequence[str],
    pairs: Sequence[str],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> Kind:
    if op.casefold() in _NO_OPS:
        return "no-op"
    if not nodes and (pairs or origin == "QDQ"):
        return _conversion(pairs, inputs, outputs)
    return "reformat" if op.casefold() == "reformat" else "compute"


def _conversion(pairs: Sequence[str], inputs: Sequence[Port], outputs: Sequence[Port]) -> Kind:
    """What a layer of Q/DQ nodes does, by its types; by the last node where they do not tell."""
    if inputs and outputs and inputs[0].dtype and outputs[0].dtype:
        by_types: dict[tuple[bool, bool], Kind] = {
            (False, True): "quantize",
            (True, False): "dequantize",
            (True, True): "requantize",
            (False, False): "reformat",
        }
        return by_types[is_quantized(inputs[0].dtype), is_quantized(outputs[0].dtype)]
    if not pairs:
        return "reformat"
    return "dequantize" if "Dequantize" in pairs[-1] else "quantize"


# --- names of ONNX nodes --------------------------------------------------------------------

_MARK = "[ONNX Layer: "
_CONSTANT = re.compile(r"^onnx::|(^|[._/:])(weight|bias)(_quantized)?$")
_GENERATED = re.compile(
    r"^\(Unnamed Layer\* |^(copied_)?(un)?squeeze_(node_)?after_|^(reshape|shuffle|transpose)_"
    r"(after|before|between)_|^__my[el]|^ONNXTRT_|^Reformatting CopyNode| copy$"
)
_FOREIGN = re.compile(r"\{ForeignNode\[(?P<first>.*?)(\.\.\.(?P<last>.*))?\]\}")


def metadata_nodes(metadata: str) -> tuple[str, ...]:
    r"""Names in ``[ONNX Layer: x]`` entries, which ``\x1e`` and ``\x1f`` may separate.

    Names may hold brackets of their own, as long as these are balanced.
    """
    return tuple(_bracketed(part) for part in metadata.split(_MARK)[1:])


def _bracketed(part: str) -> str:
    depth = 0
    for position, character in enumerate(part):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth < 0:
            return part[:position]
    return part.rstrip("\x1e\x1f ]")


def name_parts(name: str) -> tuple[str, ...]:
    """The names that TensorRT joined to a layer's name, in order.

    ``a + PWN(PWN(b), c)`` names a, b and c; ``{ForeignNode[a...b]}`` names the first and the last
    node of a subgraph, whose other nodes cannot be told.
    """
    foreign = _FOREIGN.fullmatch(name)
    if foreign is not None:
        return tuple(part for end in (foreign["first"], foreign["last"]) for part in _ends(end))
    parts = _split_at_top(name, (" + ", " || "))
    if len(parts) > 1:
        return tuple(inner for part in parts for inner in name_parts(part))
    if name.startswith("PWN(") and name.endswith(")"):
        operands = _split_at_top(name[4:-1], (", ",))
        return tuple(inner for part in operands for inner in name_parts(part))
    return (name,)


def _ends(end: str | None) -> tuple[str, ...]:
    return name_parts(end) if end else ()


def _split_at_top(text: str, separators: tuple[str, ...]) -> list[str]:
    """Split ``text`` at separators outside brackets."""
    parts, start, depth, position = [], 0, 0, 0
    while position < len(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[position], 0)
        found = next((s for s in separators if text.startswith(s, position)), "")
        if found and depth <= 0:
            parts.append(text[start:position])
            start = position + len(found)
        position += len(found) or 1
    return [*parts, text[start:]]


def _is_compute_node(name: str) -> bool:
    """Whether a name is not known to be a Q/DQ node, a constant or TensorRT's own."""
    return not (_PAIR.search(name) or _CONSTANT.search(name) or _GENERATED.search(name))


# --- TensorRT-RTX's build log ---------------------------------------------------------------


def _logged_layers(text: str) -> Iterator[Layer]:
    # trtexec puts the time, the severity and the logger before a line, each in brackets.
    lines = [re.sub(r"^(\[[^\]]*\] ?)+(?=Name: )", "", line) for line in text.splitlines()]
    for layer in parse_layers(lines):
        inputs, outputs = (
            tuple(map(_onnx_type, layer.inputs)),
            tuple(map(_onnx_type, layer.outputs)),
        )
        kind = _logged_kind(layer, inputs, outputs)
        yield replace(layer, inputs=inputs, outputs=outputs, kind=kind)


def _onnx_type(port: Port) -> Port:
    return replace(port, dtype=dtype_name(port.dtype) or port.dtype)


def _logged_kind(layer: Layer, inputs: Sequence[Port], outputs: Sequence[Port]) -> Kind:
    """The kind by types alone: the log's layers do not tell their Q/DQ nodes."""
    if layer.op.casefold() in _NO_OPS:
        return "no-op"
    if layer.nodes or not inputs or not outputs:
        return "compute"
    kind = _conversion((), inputs, outputs)
    return kind if kind in ("quantize", "dequantize") else "compute"


# --- trtexec's profile ----------------------------------------------------------------------


def _profile_times(entries: Sequence[Any], path: Path) -> list[tuple[str, float]]:
    """Layer names and microseconds per inference, in order of execution."""
    count = 1
    times = []
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and "name" not in entry and isinstance(entry.get("count"), int):
            count = max(entry["count"], 1)
            continue
        milliseconds = _milliseconds(entry, count) if isinstance(entry, dict) else None
        if milliseconds is None:
            raise InputError(
                f"{path}: entry {index} has no name and time; give trtexec's --exportProfile JSON"
            )
        times.append((str(entry["name"]), milliseconds * 1e3))
    return times


def _milliseconds(entry: Mapping[str, Any], count: int) -> float | None:
    if "name" not in entry:
        return None
    for field, runs in (("medianMs", 1), ("averageMs", 1), ("timeMs", count)):
        value = entry.get(field)
        if isinstance(value, int | float):
            return float(value) / runs
    return None


def _with_times(plan: Plan, times: Sequence[tuple[str, float]], path: Path, profile: Path) -> Plan:
    """Add times by name; layers of one name take theirs in order."""
    waiting: dict[str, list[float]] = {}
    for name, time in reversed(times):
        waiting.setdefault(name, []).append(time)
    if waiting and not any(layer.name in waiting for layer in plan.layers):
        raise InputError(f"{profile} times no layer of {path}; profile the same engine")
    layers = []
    for layer in plan.layers:
        known = waiting.get(layer.name)
        layers.append(replace(layer, time_us=known.pop()) if known else layer)
    return replace(plan, layers=tuple(layers))


# --- ONNX files -----------------------------------------------------------------------------

_ORT_DOMAIN = "com.microsoft"
# Where an operator of ONNX Runtime takes the zero point of its output, if not the last input:
# https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
_ZERO_POINT = {"QLinearConv": 7, "QLinearConcat": 1, "QGemm": 8, "QuantizeLinear": 2}
_FLOAT_OUTPUT = frozenset({"MatMulIntegerToFloat", "QAttention"})


def _onnx_plan(data: bytes) -> Plan | None:
    """The plan of a serialized ONNX model, None if ``data`` is none."""
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError:
        return None
    if not proto.graph.node or not proto.opset_import:
        return None
    types = _onnx_types(proto)
    constants = {tensor.name for tensor in proto.graph.initializer}
    layers = tuple(_onnx_layer(n, i, types, constants) for i, n in enumerate(proto.graph.node))
    of_ort = any(opset.domain == _ORT_DOMAIN for opset in proto.opset_import)
    return Plan(layers, "ONNX Runtime's optimized graph" if of_ort else "ONNX graph")


def _onnx_layer(
    node: NodeProto, index: int, types: Mapping[str, str], constants: set[str]
) -> Layer:
    activation = next(
        (a.s.decode("utf-8", "replace") for a in node.attribute if a.name == "activation"), ""
    )
    kind = _onnx_kind(node)
    named = bool(node.name) and kind == "compute"
    return Layer(
        name=node.name or f"{node.op_type}_{index}",
        op=node.op_type,
        nodes=(_original_name(node.name),) if named else (),
        inputs=tuple(Port(types.get(t, ""), "", t) for t in node.input if t and t not in constants),
        outputs=tuple(Port(types.get(t, ""), "", t) for t in node.output if t),
        kind=kind,
        activation=activation,
    )


def _onnx_kind(node: NodeProto) -> Kind:
    if node.op_type == "QuantizeLinear":
        return "quantize"
    if node.op_type == "DequantizeLinear":
        return "dequantize"
    if node.domain == "com.microsoft.nchwc" and node.op_type.startswith("Reorder"):
        return "reformat"
    return "compute"


def _original_name(name: str) -> str:
    """A node's name without what ONNX Runtime's optimizers put around it.

    Blocked convolutions are called after their output tensor, which exporters in turn call after
    its node.
    """
    name = re.sub(r"^fused |_token_\d+$|/duplicated$|/\w+Fusion/$", "", name)
    return re.sub(r"(_output_\d+)?_nchwc$", "", name)


def _onnx_types(proto: ModelProto) -> dict[str, str]:
    """Types of tensors; ONNX's inference knows no operator of ONNX Runtime, so give it theirs."""
    stub = without_large_tensors(proto)
    graph = stub.graph
    types = _inferred(stub)
    given = {value.name for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        dtype = _output_type(node, types)
        for tensor in filter(None, node.output):
            dtype = types.get(tensor, dtype)
            types.setdefault(tensor, dtype)
            if node.domain.startswith(_ORT_DOMAIN) and dtype and tensor not in given:
                graph.value_info.append(helper.make_tensor_value_info(tensor, dtype, None))
    types |= _inferred(stub)
    return {name: TensorProto.DataType.Name(t).lower() for name, t in types.items() if t}


def _inferred(stub: ModelProto) -> dict[str, int]:
    try:
        graph = onnx.shape_inference.infer_shapes(stub).graph
    except onnx.shape_inference.InferenceError:  # Types are a help here, not a condition.
        graph = stub.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    return types


def _output_type(node: NodeProto, types: Mapping[str, int]) -> int:
    """Type of the first output by the operator's definition, else that of the first input."""
    if node.op_type in _FLOAT_OUTPUT:
        return TensorProto.FLOAT
    inputs = [types.get(t, 0) for t in node.input]
    if node.op_type == "DequantizeLinear" and len(inputs) > 1:
        return inputs[1]
    if node.op_type == "QGemm" and len(inputs) < 9:
        return TensorProto.FLOAT
    if node.op_type.startswith("QLinear") or node.op_type in _ZERO_POINT:
        index = _ZERO_POINT.get(node.op_type, len(inputs) - 1)
        return inputs[index] if index < len(inputs) else TensorProto.UINT8
    return inputs[0] if inputs else 0
