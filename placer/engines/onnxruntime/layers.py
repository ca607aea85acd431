"""Which nodes of a model each layer that ONNX Runtime runs covers.

ONNX Runtime tells nothing of it: its optimizers rename nodes, invent tensors, move Q/DQ pairs and
merge nodes. Four things remain that tell: names of nodes with a known suffix, constants that one
node alone reads, tensors that keep their names, and, in the blocked layout, what is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import onnx

from placer.engines.onnxruntime.aliases import CONVERTED
from placer.engines.onnxruntime.coverage import Coverage
from placer.engines.onnxruntime.transposes import merged_transposes
from placer.graph.edit import subgraphs
from placer.graph.flat import RETURNED
from placer.graph.index import captured_tensors
from placer.graph.operators import PAIR_OPS
from placer.plan import Kind, Layer, Plan, Port
from placer.plan.readers.onnx_graph import tensor_types

_KINDS: Mapping[str, Kind] = {"QuantizeLinear": "quantize", "DequantizeLinear": "dequantize"}
# What ONNX Runtime adds to move data; of the model's own nodes these are compute layers.
_MOVES = frozenset(
    ("ReorderInput", "ReorderOutput", "Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze")
)
# How tensors inside an operator that is defined by others begin.
_INLINED = re.compile(CONVERTED.pattern.replace(")+", ")*") + "_inlfunc_")
_SUMMING = frozenset(("Conv", "FusedConv"))  # What adds its fourth input to its result.
_SUM_INPUT = 3
# A Conv of the blocked layout; such one applies a hard swish, which is a product with HardSigmoid.
_BLOCKED = re.compile(r"_nchwc(_token_\d+)?$")
# A tensor that layout optimization made.
_INVENTED = re.compile(r"_token_\d+(_out\d+)?$|^reorder$|^[A-Z][A-Za-z]+_out\d+$")
_NUMBERED = re.compile(r"(.+)_\d+")  # The profiler's name for a node without one.
# What a Conv of the blocked layout takes over besides sums; a BatchNormalization is one there.
_TAKEN_OVER = frozenset(("HardSigmoid", "Mul", "Relu", "Sigmoid", "Tanh"))


def layers_plan(
    model: onnx.ModelProto,
    fused: onnx.ModelProto,
    final: onnx.ModelProto,
    times: Mapping[str, float],
    source: str,
) -> Plan:
    """The plan of ``final``, the graph that runs; ``fused`` is the same before layout changes.

    Each node of ``model`` but for Q/DQ nodes is in exactly one layer or among ``Plan.removed``.
    ``times``: microseconds by the profiler's name of the node in ``final``, in the order they ran.
    """
    known_times = _times(final.graph, times)
    types = tensor_types(final) | tensor_types(fused) | tensor_types(model)
    final = _renumbered(_named_as_before(fused.graph, final))
    merged = _merge_missing(_fused_layers(model.graph, fused.graph, types), final.graph)
    known: dict[str, Layer] = {}
    for entry in merged.values():
        known |= dict.fromkeys((entry.layer.name, *_blocked_names(entry)), entry.layer)
    transposes = merged_transposes(fused.graph, final.graph, lambda node: _fused_name(node, known))
    result = []
    before: dict[str, str] = {}  # Names in ``fused`` of what its nodes write in ``final``.
    for node, time_us in zip(final.graph.node, known_times, strict=True):
        known_layer = known.get(_fused_name(node, known))
        layer = known_layer or _added_layer(node, types, before)
        if node.name in transposes:
            merged_layer = known[transposes[node.name]]
            layer = replace(
                layer, name=merged_layer.name, nodes=merged_layer.nodes, kind=merged_layer.kind
            )
        if known_layer is not None and len(known_layer.outputs) == len(node.output) == 1:
            before[node.output[0]] = known_layer.outputs[0].tensor
        result.append(replace(layer, time_us=time_us))
    result = list(_whole_functions(result))
    covered = {name for layer in result for name in layer.nodes}
    computed = [node.name for node in model.graph.node if node.op_type not in PAIR_OPS]
    removed = tuple(name for name in computed if name not in covered)
    return Plan(tuple(result), source, removed=removed)


def _times(graph: onnx.GraphProto, times: Mapping[str, float]) -> list[float | None]:
    """The time of each node, None if it is not known.

    The profiler calls a node without a name by its operator and a number that the graph does not
    tell, as ``Mul_5``; both have them in the order in which they run.
    """
    names = {node.name for node in graph.node}
    numbered: dict[str, list[float]] = defaultdict(list)
    for name, time_us in times.items():
        match = _NUMBERED.fullmatch(name)
        if match and name not in names:
            numbered[match[1]].append(time_us)
    nameless = {
        index: time_us
        for op, indices in _nameless(graph).items()
        if len(indices) == len(numbered[op])
        for index, time_us in zip(indices, numbered[op], strict=True)
    }
    return [nameless.get(i, times.get(node.name)) for i, node in enumerate(graph.node)]


def _named_as_before(fused: onnx.GraphProto, final: onnx.ModelProto) -> onnx.ModelProto:
    """``final`` with the names that ``fused`` tells nodes without one by.

    In other layouts their tensors have other names; the nodes keep their order. Where a Conv took
    some of them over, what the others read still tells them.
    """
    before, after = _nameless(fused), _nameless(final.graph)
    result = onnx.ModelProto()
    result.CopyFrom(final)
    for op, indices in after.items():
        known = [_name(fused.node[i]) for i in before.get(op, ())]
        if len(known) == len(indices):
            for index, name in zip(indices, known, strict=True):
                result.graph.node[index].name = name
            continue
        read = _by_input(fused.node, before.get(op, ()))
        for source, index in _by_input(final.graph.node, indices).items():
            if source in read:
                result.graph.node[index].name = _name(fused.node[read[source]])
    return result


def _by_input(nodes: Sequence[onnx.NodeProto], indices: Iterable[int]) -> dict[str, int]:
    """Of the nodes at ``indices`` those that alone read a tensor first, by it and who writes it.

    What writes it in the blocked layout is called after it.
    """
    writers = {tensor: node.name for node in nodes for tensor in node.output}
    indices_of: dict[str, list[int]] = defaultdict(list)
    for index in indices:
        source = nodes[index].input[0]
        for known in {source, _BLOCKED.sub("", writers.get(source) or source)}:
            indices_of[known].append(index)
    return {source: places[0] for source, places in indices_of.items() if len(places) == 1}


def _nameless(graph: onnx.GraphProto) -> dict[str, list[int]]:
    indices_of: dict[str, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.node):
        if not node.name:
            indices_of[node.op_type].append(index)
    return indices_of


def _whole_functions(layers: Iterable[Layer]) -> Iterator[Layer]:
    """One layer for an operator that ONNX defines by others, e.g. HardSwish; times are added up.

    A tool that inlined it before it quantized may have put pairs inside, which are layers.
    """
    parts: dict[str, Layer] = {}
    for layer in layers:
        inner = [port.tensor for port in layer.outputs if _INLINED.match(port.tensor)]
        if inner and not layer.nodes and layer.kind == "compute":
            parts[inner[0]] = layer
            continue
        parts_read = [parts.pop(port.tensor) for port in layer.inputs if port.tensor in parts]
        if not parts_read:
            yield layer
            continue
        ports = tuple(port for port in layer.inputs if not _INLINED.match(port.tensor))
        inputs = dict.fromkeys((*(port for part in parts_read for port in part.inputs), *ports))
        known = [x.time_us for x in (*parts_read, layer) if x.time_us is not None]
        yield replace(layer, inputs=tuple(inputs), time_us=sum(known) if known else None)


def _fused_name(node: onnx.NodeProto, known: Mapping[str, object]) -> str:
    """What the node is called in the fused graph; its own name if it is not there.

    A new node is called after its operator, as many are: that is the name of none before it.
    """
    name = _name(node)
    short = re.sub(r"_token_\d+$", "", name)
    return name if name in known or short == node.op_type else short


def _name(node: onnx.NodeProto) -> str:
    """A node's name; operators that ONNX defines by others leave nodes without one."""
    return str(node.name) or f"{node.op_type} to {node.output[0]}"


# --- the graph before layout changes --------------------------------------------------------


@dataclass(frozen=True)
class _Fused:
    """A layer; ``blocked``: the tensor that the blocked layout calls its node after."""

    layer: Layer
    blocked: str


def _blocked_names(entry: _Fused) -> tuple[str, ...]:
    """What the blocked layout calls a layer's node.

    A BatchNormalization becomes a Conv, and so does a product with a number for each channel.
    """
    return tuple(f"{entry.blocked}{kind}_nchwc" for kind in ("", "_bn", "_mul"))


def _fused_layers(
    model: onnx.GraphProto, fused: onnx.GraphProto, types: Mapping[str, str]
) -> list[_Fused]:
    covered = Coverage(model, fused, types).nodes()
    constants = {tensor.name for tensor in fused.initializer}
    original_names = {node.name for node in model.node}
    read = _read_tensors(fused)
    layers = []
    for node, covered_nodes in zip(fused.node, covered, strict=True):
        nodes = () if _returns(node) else covered_nodes
        kind = _KINDS.get(node.op_type, "compute")
        is_added = not nodes and (node.name not in original_names or _returns(node))
        if kind == "compute" and node.op_type in _MOVES and is_added:
            kind = "reformat"
        layer = Layer(
            name=_name(node),
            op=node.op_type,
            nodes=nodes,
            inputs=tuple(_port(t, types) for t in node.input if t and t not in constants),
            outputs=tuple(_port(t, types) for t in _read(node, read) if t),
            kind=kind,
        )
        layers.append(_Fused(layer, node.output[0]))
    return layers


def _returns(node: onnx.NodeProto) -> bool:
    """Whether it hands on what a body of a Loop or Scan is given and returns: of no node."""
    return node.op_type == "Identity" and RETURNED in node.name


def _read_tensors(graph: onnx.GraphProto) -> set[str]:
    """What nodes, bodies and the graph's caller read."""
    read = {tensor for node in graph.node for tensor in node.input}
    read.update(value.name for value in graph.output)
    for node in graph.node:
        read.update(value.name for body in subgraphs(node) for value in body.output)
        read.update(captured_tensors(node))
    return read


def _read(node: onnx.NodeProto, read: Set[str]) -> Sequence[str]:
    """What ``node`` writes that is read, as that of a Loop often is not; all if nothing is."""
    return [tensor for tensor in node.output if tensor in read] or node.output


def _merge_missing(layers: Sequence[_Fused], final: onnx.GraphProto) -> dict[str, _Fused]:
    """Layers by name, those that ``final`` lacks merged into the Conv that took them over.

    In the blocked layout a Conv adds another tensor and applies an activation, also HardSigmoid and
    the product with it, which no name says.
    """
    merged = {layer.layer.name: layer for layer in layers}
    known = {name: name for name in merged}
    known |= {blocked: name for name, x in merged.items() for blocked in _blocked_names(x)}
    built = [(known.get(_fused_name(node, known), ""), node) for node in final.node]
    order = {name: index for index, (name, _) in enumerate(built)}
    sums = {name for name, node in built if _sums(node)}
    blocked = {name for name, node in built if _is_blocked(node)}
    writer = {port.tensor: x.layer.name for x in layers for port in x.layer.outputs}
    host: dict[str, str] = {}
    for missing in layers:
        name = missing.layer.name
        if name in order or missing.layer.kind != "compute" or missing.layer.op == "Transpose":
            continue  # A Transpose that is gone is part of a reorder, which is none of the model's.
        makers = (writer.get(port.tensor, "") for port in missing.layer.inputs)
        near = {host.get(maker, maker) for maker in makers}
        hosts = near & (sums | blocked if missing.layer.op in _TAKEN_OVER else sums)
        if hosts:
            host[name] = max(hosts, key=order.__getitem__)
            merged[host[name]] = _merged(merged[host[name]], missing)
    return merged


def _sums(node: onnx.NodeProto) -> bool:
    """Whether it is a product that also adds another tensor."""
    return node.op_type in _SUMMING and len(node.input) > _SUM_INPUT


def _is_blocked(node: onnx.NodeProto) -> bool:
    return node.op_type == "Conv" and _BLOCKED.search(node.name) is not None


def _merged(into: _Fused, missing: _Fused) -> _Fused:
    """``into`` with what ``missing`` computes of its output."""
    written = {port.tensor for port in into.layer.outputs}
    others = tuple(port for port in missing.layer.inputs if port.tensor not in written)
    layer = replace(
        into.layer,
        nodes=tuple(sorted((*into.layer.nodes, *missing.layer.nodes))),
        inputs=(*into.layer.inputs, *others),
        outputs=missing.layer.outputs,
    )
    return replace(into, layer=layer)


def _renumbered(final: onnx.ModelProto) -> onnx.ModelProto:
    """``final``, with tensors that were numbered at random numbered as they are written."""
    known: dict[str, str] = {}
    result = onnx.ModelProto()
    result.CopyFrom(final)
    for node in result.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if _INVENTED.search(name):
                    names[index] = known.setdefault(name, f"moved_token_{len(known)}")
    return result


def _added_layer(
    node: onnx.NodeProto, types: Mapping[str, str], before: Mapping[str, str]
) -> Layer:
    """A layer that layout optimization added, called after the model's tensor that it moves.

    Its own name is numbered at random. ``before``: other names of tensors that it reads.
    """
    source, target = node.input[0], node.output[0]
    name = node.name if _INVENTED.search(source) else f"{node.op_type} of {source}"
    if not _INVENTED.search(target):
        name = f"{node.op_type} to {target}"
    read = types.get(source) or types.get(target) or "unknown"
    written = types.get(target) or types.get(source) or "unknown"
    if node.op_type in PAIR_OPS:
        integer = types.get(node.input[-1], "unknown")  # The type of the zero point.
        is_quantize = node.op_type == "QuantizeLinear"
        read, written = ("float", integer) if is_quantize else (integer, "float")
    return Layer(
        name=name,
        op=node.op_type,
        nodes=(),
        inputs=(Port(read, tensor=before.get(source, source)),),
        outputs=(Port(written, tensor=target),),
        kind=_KINDS.get(node.op_type) or ("reformat" if node.op_type in _MOVES else "compute"),
    )


def _port(tensor: str, types: Mapping[str, str]) -> Port:
    return Port(types.get(tensor) or "unknown", tensor=tensor)
