"""The operations that OpenVINO's CPU plugin executes, read from its runtime model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from placer.engines.openvino.tags import Tags
from placer.graph.operators import RECURRENT
from placer.plan import Port

_BITS = {f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint"))
         for bits in (4, 8, 16, 32, 64)}  # fmt: skip
_TYPES: Mapping[str, str] = {
    "f32": "float",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "double",
    "boolean": "bool",
    **_BITS,
}
INTEGERS = ("uint8", "int8")
RECURRENT_KINDS = ("RNNSeq", "RNNCell")
_ACTIVATION = re.compile(r"\b(HSwish|HSigmoid|Swish|Gelu|Mish|SoftPlus|MVN)_\d+")
_UNNAMED = re.compile(r"\b([A-Z][A-Za-z]+)_\d+")
# What OpenVINO calls operations that only move elements, and what it makes of the operators that it
# computes before these (MoveEltwiseUpThroughDataMov).
MOVING = ("Transpose", "Reshape", "Gather", "DepthToSpace", "Broadcast", "Tile")
REDUCING = frozenset(
    "GlobalAveragePool GlobalMaxPool ReduceMean ReduceMax ReduceMin ReduceSum".split()
)
MOVED: Mapping[str, tuple[str, ...]] = {
    **{op: (op,) for op in ("Abs", "Elu", "Erf", "Exp", "Floor", "Gelu", "Mish", "Relu")},
    **{op: (op,) for op in ("Sigmoid", "Sqrt", "Tanh", "Add")},
    **{"Mul": ("Multiply",), "Div": ("Multiply", "Divide"), "Neg": ("Multiply",)},
    **{"Sub": ("Add", "Subtract"), "Pow": ("Power",), "Clip": ("Clamp",), "Ceil": ("Ceiling",)},
    **{"HardSwish": ("HSwish",), "Softplus": ("SoftPlus",)},
}


@dataclass(frozen=True)
class Operation:
    """What is read of an executed operation.

    ``nodes``: numbers of the nodes that it names. ``invented``: it has an activation in it that is
    called after no node. ``unnamed``: OpenVINO's kinds of what it has in it and calls after no
    node. ``sources``: the operations that it reads. ``reshapes``: what it writes
    has another shape, or order of axes, than what it reads.
    """

    name: str
    kind: str
    kernel: str
    nodes: tuple[int, ...]
    invented: bool
    unnamed: tuple[str, ...]
    sources: frozenset[str]
    reshapes: bool
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def read_operations(runtime: Any, tags: Tags) -> list[Operation]:
    """The operations of a runtime model in order, without constants and what is made of these."""
    return _with_recurrent_nodes(list(_operations(runtime, tags)), tags)


def _operations(runtime: Any, tags: Tags) -> Iterator[Operation]:
    # By OpenVINO's own names, as operations made of one node may share the other name.
    written: dict[str, tuple[Port, ...]] = {}
    named_as: dict[str, str] = {}
    for op in runtime.get_ordered_ops():
        info = op.get_rt_info()
        kind, name = _text(info, "layerType"), str(op.get_friendly_name())
        read = [port.get_source_output() for port in op.inputs()]
        origins = [(str(port.get_node().get_name()), port.get_index()) for port in read]
        inputs = tuple(written[origin][index] for origin, index in origins if origin in written)
        if kind in ("Output", "Const") or (kind != "Input" and not inputs):
            continue
        named = _text(info, "originalLayersNames")
        nodes = tags.find(named)
        if kind in MOVING and all(tags.nodes[n].op_type in MOVED for n in nodes):
            nodes = ()  # Called after what was behind it until OpenVINO computed that before.
        ports = _ports(op, info, inputs, [tags.nodes[n].output for n in nodes])
        written[str(op.get_name())], named_as[str(op.get_name())] = ports, name
        if kind != "Input":
            kernel, invented = _text(info, "primitiveType"), bool(_ACTIVATION.search(named))
            unnamed = tuple(_UNNAMED.findall(named))
            sources = frozenset(named_as[origin] for origin, _ in origins if origin in written)
            yield Operation(
                name, kind, kernel, nodes, invented, unnamed, sources, _reshapes(op), inputs, ports
            )


def _with_recurrent_nodes(operations: list[Operation], tags: Tags) -> list[Operation]:
    """``operations`` with a recurrent node's number in each operation that it became, and no other.

    OpenVINO gives most of these names of its own: the two of a node in both directions, and others
    with what turns their axes. They are in the graph's order, one for each direction; where their
    number is another, nothing is known of them. What turns the axes round them only is called after
    the node, which is no work of its own.
    """
    named = Counter(n for op in operations if op.kind in RECURRENT_KINDS for n in op.nodes)
    numbers = [
        number
        for number, node in enumerate(tags.nodes)
        if node.op_type in RECURRENT and number not in tags.settled
        for _ in range(_directions(node) - named[number])
    ]
    recurrent = [op for op in operations if op.kind in RECURRENT_KINDS and not op.nodes]
    if len(recurrent) != len(numbers):
        return operations
    found = {op.name: (number,) for op, number in zip(recurrent, numbers, strict=True)}
    known = set(numbers)
    return [
        replace(op, nodes=found.get(op.name) or tuple(n for n in op.nodes if n not in known))
        for op in operations
    ]


def _directions(node: onnx.NodeProto) -> int:
    return 2 if any(a.s == b"bidirectional" for a in node.attribute) else 1


def _reshapes(op: Any) -> bool:
    kind, name = _text(op.get_rt_info(), "layerType"), str(op.get_friendly_name())
    if kind == "Transpose" or (kind == "Reorder" and name.endswith("_fake")):
        return True  # Of a square, too. MergeTransposeAndReorder calls a Transpose a Reorder.
    shape = op.inputs()[0].get_partial_shape()
    return any(output.get_partial_shape() != shape for output in op.outputs())


def _text(info: Any, key: str) -> str:
    return str(info[key].astype(str)) if key in info else ""


def _ports(
    op: Any, info: Any, inputs: Sequence[Port], outputs: Sequence[Sequence[str]]
) -> tuple[Port, ...]:
    """What an operation writes: the tensors of the last node in it, ``outputs`` being those of all.

    A layer without a node moves a tensor, and is called after it and the layout.
    """
    count = len(op.outputs())
    dtypes = _text(info, "outputPrecisions").split(",")
    layouts = _text(info, "outputLayouts").split(",")
    ports = []
    for i in range(count):
        dtype = _TYPES.get(dtypes[min(i, len(dtypes) - 1)], "unknown")
        layout = layouts[min(i, len(layouts) - 1)]
        last = outputs[-1] if outputs else ()
        tensor = last[i] if i < len(last) else ""
        if not tensor and inputs:
            tensor = f"{inputs[0].tensor} as {dtype} {layout}"
        ports.append(Port(dtype, layout, tensor or str(op.get_friendly_name())))
    return tuple(ports)
