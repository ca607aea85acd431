"""Read what TensorRT's engine inspector tells of an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placer.errors import InputError
from placer.plan.dtypes import dtype_name, is_quantized
from placer.plan.plan import Kind, Layer, Plan, Port
from placer.plan.readers.tensorrt_names import (
    COPY,
    PAIR,
    STORED_OTHERWISE,
    is_compute_node,
    metadata_nodes,
    name_parts,
    split_format,
)


def inspector_plan(document: Mapping[str, Any], source: str) -> Plan:
    """The plan in the JSON of an engine inspector at hand; ``source`` names the engine.

    Raises InputError if a layer has no name.
    """
    return Plan(tuple(inspector_layers(document["Layers"], Path(source))), source)


def inspector_name(document: Mapping[str, Any]) -> str:
    """What wrote ``document``: TensorRT's inspector, with the versions that have its fields."""
    version = {"Bindings": " 8 to 10", "I/O Tensors": " 11"}
    versions = [text for field, text in version.items() if field in document]
    return f"TensorRT{versions[0] if versions else ''} inspector"


# Synchronisation between streams, constants and shapes computed on the host run nothing.
NO_OPS = frozenset({"noop", "constant", "signal", "wait", "shape_call"})
_REFORMATS = ("reformat", "myelinreformat")


def inspector_layers(entries: Sequence[Any], path: Path) -> Iterator[Layer]:
    """The layers of the first optimization profile, of which the others' are copies.

    An entry is a dict, or a name where the engine was built without detailed profiling verbosity.
    Raises InputError for one without a name.
    """
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            if not _OTHER_PROFILE.search(entry):
                yield named_layer(entry)
            continue
        if not isinstance(entry, Mapping) or not isinstance(entry.get("Name"), str):
            raise InputError(f"{path}: Layers[{index}] has no 'Name'; export the layer info again")
        layer = _inspector_layer(entry, f"{path}: layer '{entry['Name']}'")
        if any(_OTHER_PROFILE.search(name) for name in _names(layer)):
            return
        yield layer


_OTHER_PROFILE = re.compile(r" \[profile [1-9]\d*\]")


def _names(layer: Layer) -> Iterator[str]:
    yield layer.name
    for port in (*layer.inputs, *layer.outputs):
        yield port.tensor


def named_layer(name: str, time_us: float | None = None) -> Layer:
    """A layer of which nothing is known but the name and, from a profile, the time.

    What takes no time at all is a no-op: a profiler rounds no kernel to zero.
    """
    names = name_parts(name)
    nodes, pairs = _nodes_and_pairs(name, names, "")
    is_generated = name.startswith("__myl") and not _is_copy(name)
    kind: Kind = "compute" if nodes or is_generated else conversion_kind(pairs, (), ())
    return Layer(name, "", nodes, kind="no-op" if time_us == 0 else kind, time_us=time_us)


def _nodes_and_pairs(
    name: str, names: Sequence[str], origin: str
) -> tuple[tuple[str, ...], Sequence[str]]:
    """The model's nodes among ``names``, and the Q/DQ nodes."""
    pairs = [n for n in names if PAIR.search(n)]
    if origin in ("QDQ", "REFORMAT", "CONCAT") or name.startswith("Reformatting CopyNode"):
        return (), pairs if origin == "QDQ" else []
    return tuple(dict.fromkeys(n for n in names if is_compute_node(n))), pairs


def _inspector_layer(entry: Mapping[str, Any], where: str) -> Layer:
    name, op = entry["Name"], str(entry.get("LayerType", ""))
    inputs = tuple(_inspector_ports(entry, "Inputs", where))
    outputs = tuple(_inspector_ports(entry, "Outputs", where))
    origin = str(entry.get("Origin", ""))
    names = metadata_nodes(str(entry.get("Metadata", ""))) or name_parts(name)
    nodes, pairs = _nodes_and_pairs(name, names, origin)
    kind = _kind(op, origin, nodes, pairs, inputs, outputs)
    if kind == "compute" and not nodes and _is_copy(name):
        kind = "reformat"
    return Layer(name, op, nodes, inputs, outputs, kind, _activation(entry))


def _is_copy(name: str) -> bool:
    """Whether a generated kernel only casts, moves or stores otherwise."""
    return bool(COPY.match(name) or STORED_OTHERWISE.match(name))


def _activation(entry: Mapping[str, Any]) -> str:
    activation = str(entry.get("Activation") or entry.get("ConvActivation") or "")
    return "" if activation == "NONE" else activation


def _inspector_ports(entry: Mapping[str, Any], field: str, where: str) -> Iterator[Port]:
    ports = entry.get(field, [])
    if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
        raise InputError(f"{where}: '{field}' does not list tensors; export the layer info again")
    for port in ports:
        # Documents and versions differ in the case of Datatype.
        fields = {str(key).casefold(): str(value) for key, value in port.items()}
        phrase = fields.get("format/datatype", fields.get("format", ""))
        dtype, layout = split_format(phrase)
        dtype = dtype_name(fields.get("datatype", "")) or dtype
        yield Port(dtype, layout, fields.get("name", ""))


def _kind(
    op: str,
    origin: str,
    nodes: Sequence[str],
    pairs: Sequence[str],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> Kind:
    if op.casefold() in NO_OPS:
        return "no-op"
    if not nodes and (pairs or origin == "QDQ"):
        return conversion_kind(pairs, inputs, outputs)
    # A copy that a Slice of the model became computes that node.
    if op.casefold() not in _REFORMATS or nodes:
        return "compute"
    # Where scales are implicit no Q or DQ is named; formats alone change between integers.
    kind = conversion_kind((), inputs, outputs)
    return "reformat" if kind == "requantize" else kind


def conversion_kind(pairs: Sequence[str], inputs: Sequence[Port], outputs: Sequence[Port]) -> Kind:
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
    return "dequantize" if "Dequant" in pairs[-1] else "quantize"
