"""The plan: the dispatches that IREE formed, with the ONNX nodes their code comes from.

Read from the IR at the end of IREE's phase ``flow``, printed with locations, which are node names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import onnx

from placer.plan import Kind, Layer, Plan, Port

_DISPATCH = re.compile(
    r"flow\.dispatch @(?P<executable>[^:(\[ ]+)::@(?P<entry>[^(\[ ]+)[^:]*? : "
    r"\((?P<reads>.*?)\) -> (?P<writes>.*)$"
)
_EXECUTABLE = re.compile(r"flow\.executable private @(?P<name>\S+)")
_OPERATOR = re.compile(r"_dispatch_\d+_(?P<op>[a-z_]*[a-z])")
_ELEMENT = re.compile(r"tensor<(?:[\d?]+x)*(?P<type>[a-z]+\d*\w*)")
_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Operations that compute, and ends of their regions. All others (buffers, loads, arguments,
# constants) are shared by dispatches, so their locations may name the node of another.
_WORK = re.compile(
    r"^\s*(?:%\S+ = (?:arith|math|linalg|iree_linalg_ext)\.(?!constant|fill)|linalg\.yield|\} -> )"
)
_TYPES: Mapping[str, str] = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}
_QDQ = ("QuantizeLinear", "DequantizeLinear")


def read_plan(flow: str, model: onnx.ModelProto, source: str) -> Plan:
    """Return the dispatches of ``flow`` in order, with the nodes of ``model`` that they cover.

    MLIR's integers have no sign, so a tensor of uint8 is called int8. Where several dispatches
    share one executable, its code names the nodes of the first only, so such dispatches are
    described by their own location alone.
    """
    nodes = {n.name for n in model.graph.node if n.op_type not in _QDQ}
    lines = flow.splitlines()
    bodies = _locations_of_executables(lines)
    found = [(line, match) for line in lines if (match := _DISPATCH.search(line))]
    uses = Counter(match["executable"] for _, match in found)
    layers = []
    for line, match in found:
        names = bodies.get(match["executable"], set()) if uses[match["executable"]] == 1 else set()
        # Fused locations also name the node that a conversion reads from.
        if not names or "loc(fused" not in line:
            names = names | set(_names(line))
        layers.append(_layer(match, tuple(sorted(names & nodes))))
    return Plan(tuple(layers), source)


def _locations_of_executables(lines: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in lines:
        if match := _EXECUTABLE.search(line):
            names = found.setdefault(match["name"], set())
        elif line.lstrip().startswith("util."):
            names = set()  # Outside of executables: global values, initializers, functions.
        elif _WORK.search(line) and "loc(fused" not in line:
            names.update(_names(line))
    return found


def _names(line: str) -> list[str]:
    _, _, location = line.rpartition("loc(")
    return [re.sub(r"\\(.)", r"\1", name) for name in _LOCATION.findall(location)]


def _layer(match: re.Match[str], nodes: tuple[str, ...]) -> Layer:
    reads = _element_types(match["reads"])
    # A result that is written into an operand is printed as that operand, the last of them.
    writes = _element_types(match["writes"].partition(" loc(")[0]) or reads[-1:]
    operator = _OPERATOR.search(match["entry"])
    op = operator["op"] if operator else "dispatch"
    return Layer(
        name=match["entry"],
        op=op,
        nodes=nodes,
        inputs=tuple(Port(dtype) for dtype in reads),
        outputs=tuple(Port(dtype) for dtype in writes),
        kind=_kind(op, nodes, reads, writes),
    )


def _kind(op: str, nodes: tuple[str, ...], reads: list[str], writes: list[str]) -> Kind:
    if op == "slow_memcpy":
        return "reformat"
    if nodes:
        return "compute"
    if reads[:1] == writes[:1]:
        return "requantize" if writes[:1] == ["int8"] else "reformat"
    return "quantize" if "int8" in writes else "dequantize"


def _element_types(types: str) -> list[str]:
    return [_TYPES.get(t, t) for t in _ELEMENT.findall(types)]
