"""A plan from OpenVINO's runtime model: what the CPU plugin executes after all its fusions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from placer.engines.openvino.tags import QUANTIZING, Tags
from placer.plan import Kind, Layer, Plan, Port

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
_INTEGERS = ("uint8", "int8")
_QUANTITIES = (*_INTEGERS, "float", "float16", "bfloat16", "double")
_REMOVED = "Removed"
_RECURRENT = ("LSTM", "GRU", "RNN")
_RECURRENT_KINDS = ("RNNSeq", "RNNCell")
_OF_MAPS = frozenset({"Conv", "ConvTranspose", "Add"})
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_ACTIVATION = re.compile(r"\b(HSwish|HSigmoid|Swish|Gelu|Mish|SoftPlus|MVN)_\d+")
_UNNAMED = re.compile(r"\b([A-Z][A-Za-z]+)_\d+")
_COMPOSITES = frozenset({"Gelu", "HSwish", "HSigmoid", "Swish", "Mish", "SoftPlus"})
# MoveEltwiseUpThroughDataMov: past what only moves elements, and what it calls the operators then.
_MOVERS = frozenset({*_VIEWS, "Transpose", "DepthToSpace", "Expand", "Gather"})
_MOVING = ("Transpose", "Reshape", "Gather", "DepthToSpace", "Broadcast", "Tile")
_MOVED: Mapping[str, tuple[str, ...]] = {
    **{op: (op,) for op in ("Abs", "Elu", "Erf", "Exp", "Floor", "Gelu", "Mish", "Relu")},
    **{op: (op,) for op in ("Sigmoid", "Sqrt", "Tanh", "Add")},
    **{"Mul": ("Multiply",), "Div": ("Multiply", "Divide"), "Neg": ("Multiply",)},
    **{"Sub": ("Add", "Subtract"), "Pow": ("Power",), "Clip": ("Clamp",), "Ceil": ("Ceiling",)},
    **{"HardSwish": ("HSwish",), "Softplus": ("SoftPlus",)},
}


@dataclass(frozen=True)
class _Operation:
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


def read_plan(runtime: Any, tags: Tags, times: Mapping[str, float], source: str) -> Plan:
    """The executed layers in order; constants and what is made of constants alone are left out.

    Each node is in one layer. OpenVINO forgets the names of some that it fuses (a Relu that the
    quantization behind it implies, the Sigmoid of a Swish): they belong to the layer that holds
    what reads them. Nodes of which nothing is left are a no-op layer of their own. ``times``:
    microseconds by the name of the operation.
    """
    operations = _with_recurrent_nodes(list(_operations(runtime, tags)), tags)
    homes = _homes(operations, tags)
    layers = []
    for op in operations:
        own = [n for n in sorted(homes) if homes[n] == op.name and not _is_pair(tags, n)]
        own = own or [n for n in op.nodes if op.kind in _RECURRENT_KINDS]
        names = [tags.nodes[number].name for number in own]
        layers.append(_layer(op, names, _kind(op, bool(names)), times.get(op.name)))
    for number, node in enumerate(tags.nodes):
        if number not in homes and not _is_pair(tags, number):
            layers.append(Layer(node.name, _REMOVED, (node.name,), kind="no-op"))
    return Plan(tuple(layers), source)


def _is_pair(tags: Tags, number: int) -> bool:
    return tags.nodes[number].op_type in QUANTIZING


def _operations(runtime: Any, tags: Tags) -> Iterator[_Operation]:
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
        if kind in _MOVING and all(tags.nodes[n].op_type in _MOVED for n in nodes):
            nodes = ()  # Called after what was behind it until OpenVINO computed that before.
        ports = _ports(op, info, inputs, [tags.nodes[n].output for n in nodes])
        written[str(op.get_name())], named_as[str(op.get_name())] = ports, name
        if kind != "Input":
            kernel, invented = _text(info, "primitiveType"), bool(_ACTIVATION.search(named))
            unnamed = tuple(_UNNAMED.findall(named))
            sources = frozenset(named_as[origin] for origin, _ in origins if origin in written)
            yield _Operation(
                name, kind, kernel, nodes, invented, unnamed, sources, _reshapes(op), inputs, ports
            )


def _with_recurrent_nodes(operations: list[_Operation], tags: Tags) -> list[_Operation]:
    """``operations`` with a recurrent node's number in each operation that it became, and no other.

    OpenVINO gives these names of its own. They are in the graph's order, one for each direction;
    where their number is another, nothing is known of them. What turns the axes round them only is
    called after the node, which is no work of its own.
    """
    numbers = [
        number
        for number, node in enumerate(tags.nodes)
        if node.op_type in _RECURRENT and number not in tags.settled
        for _ in range(2 if any(a.s == b"bidirectional" for a in node.attribute) else 1)
    ]
    found = [op for op in operations if op.kind in _RECURRENT_KINDS]
    if len(found) != len(numbers) or any(op.nodes for op in found):
        return operations
    nodes = dict(zip((op.name for op in found), numbers, strict=True))
    known = set(numbers)
    others = {op.name: tuple(n for n in op.nodes if n not in known) for op in operations}
    return [
        replace(op, nodes=(nodes[op.name],) if op in found else others[op.name])
        for op in operations
    ]


def _reshapes(op: Any) -> bool:
    if _text(op.get_rt_info(), "layerType") == "Transpose":
        return True  # Of a square, too.
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


def _homes(operations: Sequence[_Operation], tags: Tags) -> dict[int, str]:
    """The operation that each node is in; nodes that nothing is left of are not there."""
    homes: dict[int, str] = {}
    for op in operations:
        for number in op.nodes:
            homes.setdefault(number, op.name)
    settled = tags.settled
    lost = [
        number
        for number, node in enumerate(tags.nodes)
        if number not in homes
        and number not in settled
        and number not in tags.idle
        and node.op_type not in _VIEWS
    ]
    for number in lost:
        if tags.twins.get(number) in homes:
            homes[number] = homes[tags.twins[number]]
    unnamed = {op.name: Counter(op.unnamed) for op in operations if op.unnamed}
    moved = _find_homes_before(lost, homes, operations, unnamed, tags)
    _find_homes_between(lost, homes, operations, tags, moved)
    moved |= _find_homes_before(lost, homes, operations, unnamed, tags)
    # OpenVINO gives an activation that it puts together from several nodes a name of its own.
    inventive = {op.name for op in operations if op.invented}
    for number in lost:
        found = {homes[n] for n in tags.producers(number) - moved if n in homes}
        if number not in homes and len(found) == 1 and found <= inventive:
            homes[number] = found.pop()
    for number in reversed(lost):
        found = {homes.get(n, "") for n in tags.readers(number) - moved} - {""}
        if number not in homes and len(found) == 1 and not _is_layout(tags, number):
            homes[number] = found.pop()
    return homes


def _is_layout(tags: Tags, number: int) -> bool:
    """Whether a lost node is a Transpose to the layout that its readers, all maps, read anyway."""
    found, waiting = set[str](), tags.readers(number)
    while waiting:
        pairs = {n for n in waiting if _is_pair(tags, n)}
        found |= {tags.nodes[n].op_type for n in waiting - pairs}
        waiting = {after for n in pairs for after in tags.readers(n)}
    return tags.nodes[number].op_type == "Transpose" and bool(found) and found <= _OF_MAPS


def _find_homes_between(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[_Operation],
    tags: Tags,
    moved: Set[int],
) -> None:
    """Give lost nodes the operation that stands where they stood, if it names none.

    Slices become a Split, a Transpose part of a Reorder, a Reduce of other axes another Reduce.
    ``moved``: nodes that are computed elsewhere, and so are not beside these.
    """
    beside = {number: name for number, name in homes.items() if number not in moved}
    nameless = {op.name: op for op in operations if not op.nodes and op.reshapes}
    passing = {op.name: op.sources for op in operations if not op.nodes and not op.reshapes}
    sources = {op.name: _sources_behind(op.sources, passing) for op in operations}
    readers: dict[str, set[str]] = {name: set() for name in nameless}
    for op in operations:
        for source in sources[op.name] & nameless.keys():
            readers[source].add(op.name)
    for number in (n for n in lost if n not in homes and not _is_pair(tags, n)):
        # Operations that stand for graph inputs are called after these.
        before = _nearest_homes(number, tags.producers, beside) | set(tags.nodes[number].input)
        behind = _nearest_homes(number, tags.readers, beside)
        for name, op in nameless.items():
            ends = op.kind in _MOVING and not behind and not readers[name]
            if before & sources[name] and (ends or behind & readers[name]):
                homes[number] = beside[number] = name


def _find_homes_before(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[_Operation],
    unnamed: Mapping[str, Counter[str]],
    tags: Tags,
) -> set[int]:
    """Give lost nodes that OpenVINO computes before what only moved elements for them their home.

    The operation has no name from the graph: it is one of its own, or part of what wrote the
    elements. Returns the nodes. ``unnamed``: what is in the operations without a name from the
    graph, by these; what a node is found to be is taken away.
    """
    passing = {op.name: op.sources for op in operations if not op.unnamed and not op.nodes}
    sources = {op.name: _sources_behind(op.sources, passing) for op in operations if op.unnamed}
    moved = set[int]()
    for number in (n for n in lost if n not in homes):
        if not tags.scalars.issuperset(tags.constants.intersection(tags.nodes[number].input)):
            continue
        before = _before_movers(number, moved, homes, tags)
        kinds = _MOVED.get(tags.nodes[number].op_type, ())
        near = [n for n in unnamed if n in before or before & sources[n]]
        own = next(((n, kind) for n in near for kind in kinds if unnamed[n][kind]), None)
        whole = next((name for name in near if _COMPOSITES & unnamed[name].keys()), None)
        if own is not None:
            homes[number], kind = own
            unnamed[homes[number]][kind] -= 1
            moved.add(number)
        elif kinds and whole is not None:
            homes[number] = whole
            moved.add(number)
    return moved


def _before_movers(
    number: int, moved: Set[int], homes: Mapping[int, str], tags: Tags
) -> frozenset[str]:
    """The operations of the movers that lead to a node, and what these get their elements from.

    Operations that stand for graph inputs are called after these. Nothing where there is no mover,
    or several nodes write the elements.
    """
    passed, origins = set[int](), set[str]()
    waiting = {number}
    while waiting:
        found = waiting.pop()
        data = {t for t in tags.nodes[found].input if t and t not in tags.constants}
        producers = tags.producers(found) - tags.settled
        written = {t for n in producers for t in tags.nodes[n].output}
        origins |= data - written - {t for n in tags.settled for t in tags.nodes[n].output}
        for producer in producers - passed:
            if tags.nodes[producer].op_type in _MOVERS or producer in moved:
                passed.add(producer)
                waiting.add(producer)
            else:
                origins.add(homes.get(producer, ""))
    names = {homes[n] for n in passed if n in homes}
    return frozenset(names | origins if passed and len(origins) == 1 else ())


def _sources_behind(names: Set[str], passing: Mapping[str, Set[str]]) -> set[str]:
    """``names``, and what these read where they do nothing but convert it."""
    found, waiting = set[str](), set(names)
    while waiting:
        found |= waiting
        waiting = {before for name in waiting for before in passing.get(name, ())}
    return found


def _nearest_homes(
    number: int, step: Callable[[int], set[int]], homes: Mapping[int, str]
) -> set[str]:
    """The operations of the nearest nodes that have one, going by ``step`` from node to node."""
    found: set[str] = set()
    waiting = step(number)
    while waiting:
        found |= {homes[n] for n in waiting if n in homes}
        waiting = {after for n in waiting if n not in homes for after in step(n)}
    return found


def _layer(op: _Operation, nodes: Sequence[str], kind: Kind, time_us: float | None) -> Layer:
    return Layer(
        name="+".join(nodes) or f"{kind} {op.outputs[0].tensor}",
        op=op.kind,
        nodes=tuple(nodes),
        inputs=op.inputs,
        outputs=op.outputs,
        kind=kind,
        kernel=op.kernel,
        time_us=time_us,
    )


def _kind(op: _Operation, computes: bool) -> Kind:
    if op.kernel.startswith("unknown") and (
        op.kind == "Reshape" or (op.kind == "Split" and not op.nodes)
    ):
        return "no-op"  # It gives the memory another shape, or hands out parts of it.
    if computes:
        return "compute"
    if op.inputs[0].dtype not in _QUANTITIES:
        return "reformat"
    before, after = (port.dtype in _INTEGERS for port in (op.inputs[0], op.outputs[0]))
    if before and after:
        return "requantize" if op.nodes else "reformat"
    if before == after:
        return "reformat"
    return "quantize" if after else "dequantize"
