"""Read the layers that TensorRT-RTX's builder logs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from placer.plan.dtypes import dtype_name, is_float, is_quantized, port_of_onnx_type
from placer.plan.plan import Kind, Layer, Port
from placer.plan.readers.tensorrt_inspector import NO_OPS, conversion_kind
from placer.plan.readers.tensorrt_names import COPY, PAIR, STORED_OTHERWISE, metadata_nodes


def logged_layers(text: str) -> Iterator[Layer]:
    """The layers that a builder's log lists, also as trtexec prints it."""
    # trtexec puts the time, the severity and the logger before a line, each in brackets.
    lines = [re.sub(r"^(\[[^\]]*\] ?)+(?=Name: )", "", line) for line in text.split("\n")]
    yield from typed_layers(parse_layers(lines))


def typed_layers(layers: Iterable[Layer]) -> Iterator[Layer]:
    """``layers`` of ``parse_layers`` with ONNX's names of types, and with their kinds."""
    for layer in layers:
        inputs, outputs = (
            tuple(map(port_of_onnx_type, layer.inputs)),
            tuple(map(port_of_onnx_type, layer.outputs)),
        )
        kind = _logged_kind(layer, inputs, outputs)
        yield replace(layer, inputs=inputs, outputs=outputs, kind=kind)


def _logged_kind(layer: Layer, inputs: Sequence[Port], outputs: Sequence[Port]) -> Kind:
    """The kind by types and, of generated kernels, by name: Q/DQ nodes are not told."""
    if layer.op.casefold() in NO_OPS:
        return "no-op"
    if COPY.match(layer.name):
        return "reformat"
    named = None if layer.nodes else _kind_by_name(layer.name, inputs)
    return named or _kind_by_types(layer, inputs, outputs)


def _kind_by_name(name: str, inputs: Sequence[Port]) -> Kind | None:
    """The kind that the name of a layer of no node tells, None if it tells none."""
    if STORED_OTHERWISE.match(name) or _PLACES.match(name):
        return "reformat"
    if not inputs and _CONSTANT.match(name):
        return "dequantize"
    if _ROUNDS.match(name):
        return "requantize" if any(is_quantized(port.dtype) for port in inputs) else "quantize"
    return None


def _kind_by_types(layer: Layer, inputs: Sequence[Port], outputs: Sequence[Port]) -> Kind:
    """The kind of conversion that only casts do, or kernels that only scale; else "compute"."""
    casts = [node for node in layer.nodes if _CAST.search(node)]
    if len(casts) < len(layer.nodes) or not inputs or not outputs:
        return "compute"
    if not all(is_float(port.dtype) or is_quantized(port.dtype) for port in (*inputs, *outputs)):
        return "compute"
    integers = [port for port in outputs if is_quantized(port.dtype)]
    kind = conversion_kind((), inputs, integers or outputs)
    scales = not layer.nodes and _SCALED.match(layer.name)
    return kind if casts or scales or kind in ("quantize", "dequantize") else "compute"


# A Cast is told by its name alone, as Q and DQ are.
_CAST = re.compile(r"(^|[/._])Cast(_\d+)?$")
# Kernels that the compiler generates are called after what they do, e.g. __myl_CastMulConc_myl0_3.
_CONSTANT = re.compile(r"__myl_CastMul(Conc)*(Cast)?_myl\d+_\d+$")  # Of a quantized weight.
# Of no node: the places of maxima that leave the graph.
_PLACES = re.compile(r"__myl_Cast(Resh)?Cast_myl\d+_\d+$")
# Of no node: quantizes, and dequantizes at once what is read in float.
_ROUNDS = re.compile(r"__myl_(Mul|Cast|Max|Min)*Roun(Mul|Cast|Max|Min|Roun)*_myl\d+_\d+$")
# Of no node: the sum of an INT8 product, scaled and stored otherwise.
_SCALED = re.compile(r"__myl_((Mul|Cast|Move|Resh|Tran)+)_myl\d+_\d+$")


_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<op>[^,]*), (?P<rest>Inputs: .*)$")
_PORT = re.compile(
    r"\{ Name: (?P<name>[^,]*), [^{}]*?Datatype: (?P<dtype>\w+)(, Format: (?P<format>[^}]*))? ?\}"
)


def parse_layers(lines: Iterable[str]) -> Iterator[Layer]:
    """Layers from a build log at VERBOSE with DETAILED profiling verbosity.

    ``nodes`` are the ONNX nodes a layer came from, Q/DQ nodes left out.
    """
    for line in lines:
        match = _LAYER.match(line)
        if match is None:
            continue
        inputs, _, rest = match["rest"].partition("Outputs: [")
        inputs = inputs.partition("Constants: [")[0]
        outputs, _, metadata = rest.partition("TacticName:")
        nodes = metadata_nodes(metadata)
        yield Layer(
            name=match["name"],
            op=match["op"],
            nodes=tuple(sorted({n for n in nodes if not PAIR.search(n)})),
            inputs=_ports(inputs),
            outputs=_ports(outputs),
        )


def _ports(section: str) -> tuple[Port, ...]:
    return tuple(
        Port(match["dtype"].lower(), (match["format"] or "").strip(), match["name"])
        for match in _PORT.finditer(section)
    )


@dataclass(frozen=True)
class TensorSize:
    """A tensor of the log: ONNX's name of its type, and how many elements it has."""

    dtype: str
    elements: int


@dataclass(frozen=True)
class LayerSizes:
    """What a layer of the log reads, which constants it holds, and what it writes."""

    inputs: tuple[TensorSize, ...]
    constants: tuple[TensorSize, ...]
    outputs: tuple[TensorSize, ...]


def layer_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines of a build log that describe layers; ``parse_layers`` and ``parse_sizes`` read."""
    return tuple(line for line in lines if _LAYER.match(line))


def parse_sizes(lines: Iterable[str]) -> Iterator[LayerSizes]:
    """The sizes of each layer that ``parse_layers`` finds in the same lines, in the same order."""
    for line in lines:
        match = _LAYER.match(line)
        if match is None:
            continue
        read, _, rest = match["rest"].partition("Outputs: [")
        inputs, _, constants = read.partition("Constants: [")
        outputs = rest.partition("TacticName:")[0]
        yield LayerSizes(*(tuple(_sizes(section)) for section in (inputs, constants, outputs)))


_SIZE = re.compile(r"Dimensions: \[(?P<dims>[^\]]*)\][^{}]*?Datatype: (?P<dtype>\w+)")


def _sizes(section: str) -> Iterator[TensorSize]:
    for match in _SIZE.finditer(section):
        dims = [int(size) for size in match["dims"].split(",") if size.strip()]
        yield TensorSize(dtype_name(match["dtype"]) or match["dtype"].lower(), math.prod(dims))
