"""Which nodes of a model each layer that ONNX Runtime runs covers.

ONNX Runtime tells nothing of it: its optimizers rename nodes, invent tensors, move Q/DQ pairs and
merge nodes. Four things remain that tell: names of nodes with a known suffix, constants that one
node alone reads, tensors that keep their names, and, in the blocked layout, what is missing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import numpy_helper

from placer.graph.external_data import is_external
from placer.plan import Kind, Layer, Plan, Port
from placer.plan.readers.onnx_graph import original_name, tensor_types

PAIR_OPS = ("QuantizeLinear", "DequantizeLinear")
_KINDS: Mapping[str, Kind] = {"QuantizeLinear": "quantize", "DequantizeLinear": "dequantize"}
# What ONNX Runtime adds to move data; of the model's own nodes these are compute layers.
_MOVES = frozenset(
    ("ReorderInput", "ReorderOutput", "Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze")
)
# What makes a MatMul of another rank than 2 with a bias a Gemm.
_GEMM_RESHAPE = re.compile(r"^gemm_(in|out)put_reshape(_token_\d+)?$")
_TRANSPOSE = "Transpose"
_INLINED = "_inlfunc_"  # How tensors inside an operator that is defined by others begin.
_SUMMING = frozenset(("Conv", "FusedConv"))  # What adds its fourth input to its result.
_SUM_INPUT = 3
# A Conv of the blocked layout; such one applies a hard swish, which is a product with HardSigmoid.
_BLOCKED = re.compile(r"_nchwc(_token_\d+)?$")
_GATES = frozenset(("HardSigmoid", "Mul"))


def layers_plan(
    model: onnx.ModelProto,
    fused: onnx.ModelProto,
    final: onnx.ModelProto,
    times: Mapping[str, float],
    source: str,
) -> Plan:
    """The plan of ``final``, the graph that runs; ``fused`` is the same before layout changes.

    Each node of ``model`` but for Q/DQ nodes is in exactly one layer or among ``Plan.removed``.
    ``times``: microseconds by the name of the node in ``final``.
    """
    types = tensor_types(final) | tensor_types(fused) | tensor_types(model)
    final = _named_as_before(fused.graph, final)
    merged = _merge_missing(_fused_layers(model.graph, fused.graph, types), final.graph)
    known: dict[str, Layer] = {}
    for entry in merged.values():
        known |= dict.fromkeys((entry.layer.name, *_blocked_names(entry)), entry.layer)
    result = []
    for node in final.graph.node:
        found = known.get(_fused_name(node, known))
        layer = found or _added_layer(node, types)
        result.append(replace(layer, time_us=times.get(node.name)))
    result = list(_whole_functions(result))
    covered = {name for layer in result for name in layer.nodes}
    computed = [node.name for node in model.graph.node if node.op_type not in PAIR_OPS]
    removed = tuple(name for name in computed if name not in covered)
    return Plan(tuple(result), source, removed=removed)


def _named_as_before(fused: onnx.GraphProto, final: onnx.ModelProto) -> onnx.ModelProto:
    """``final`` with the names that ``fused`` tells nodes without one by.

    In the blocked layout their tensors have other names; the nodes keep their order.
    """
    before, after = _nameless(fused), _nameless(final.graph)
    result = onnx.ModelProto()
    result.CopyFrom(final)
    for op, indices in after.items():
        known = [_name(fused.node[i]) for i in before.get(op, ())]
        if len(known) == len(indices):
            for index, name in zip(indices, known, strict=True):
                result.graph.node[index].name = name
    return result


def _nameless(graph: onnx.GraphProto) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.node):
        if not node.name:
            found[node.op_type].append(index)
    return found


def _whole_functions(layers: Iterable[Layer]) -> Iterator[Layer]:
    """One layer for an operator that ONNX defines by others, e.g. HardSwish; times are added up."""
    parts: dict[str, Layer] = {}
    for layer in layers:
        inner = [port.tensor for port in layer.outputs if port.tensor.startswith(_INLINED)]
        if inner and not layer.nodes:
            parts[inner[0]] = layer
            continue
        found = [parts.pop(port.tensor) for port in layer.inputs if port.tensor in parts]
        if not found:
            yield layer
            continue
        own = tuple(port for port in layer.inputs if not port.tensor.startswith(_INLINED))
        inputs = dict.fromkeys((*(port for part in found for port in part.inputs), *own))
        known = [x.time_us for x in (*found, layer) if x.time_us is not None]
        yield replace(layer, inputs=tuple(inputs), time_us=sum(known) if known else None)


def _fused_name(node: onnx.NodeProto, known: Mapping[str, object]) -> str:
    """What the node is called in the fused graph; its own name if it is not there."""
    name = _name(node)
    short = re.sub(r"_token_\d+$", "", name)
    return name if name in known else short


def _name(node: onnx.NodeProto) -> str:
    """A node's name; operators that ONNX defines by others leave nodes without one."""
    return str(node.name) or f"{node.op_type} to {node.output[0]}"


# --- the graph before layout changes --------------------------------------------------------


@dataclass(frozen=True)
class _Fused:
    """A layer; ``blocked``: the tensor that the blocked layout calls its node after."""

    layer: Layer
    blocked: str


def _blocked_names(entry: _Fused) -> tuple[str, str]:
    """What the blocked layout calls a layer's node; a BatchNormalization becomes a Conv."""
    return f"{entry.blocked}_nchwc", f"{entry.blocked}_bn_nchwc"


def _fused_layers(
    model: onnx.GraphProto, fused: onnx.GraphProto, types: Mapping[str, str]
) -> list[_Fused]:
    covered = _Coverage(model, fused).nodes()
    constants = {tensor.name for tensor in fused.initializer}
    own = {node.name for node in model.node}
    layers = []
    for node, nodes in zip(fused.node, covered, strict=True):
        kind = _KINDS.get(node.op_type, "compute")
        if kind == "compute" and not nodes and node.op_type in _MOVES and node.name not in own:
            kind = "reformat"
        layer = Layer(
            name=_name(node),
            op=node.op_type,
            nodes=nodes,
            inputs=tuple(_port(t, types) for t in node.input if t and t not in constants),
            outputs=tuple(_port(t, types) for t in node.output if t),
            kind=kind,
        )
        layers.append(_Fused(layer, node.output[0]))
    return layers


class _Coverage:
    """Assigns the nodes of a model to the nodes of its optimized graph, each to one.

    A Q/DQ pair changes no data, so the tensors around it count as one here. A node of the
    optimized graph then covers what it is named after, the only reader of a constant that it
    reads, and what lies between its inputs and its outputs and is not another's. Linear in the
    size of both graphs.
    """

    def __init__(self, model: onnx.GraphProto, fused: onnx.GraphProto) -> None:
        self._fused = fused.node
        self._alias = _aliases(model, fused)
        without_effect = _products_with_one(model) - {n.name for n in fused.node}
        self._compute = {
            n.name: n
            for n in model.node
            if n.op_type not in PAIR_OPS and n.name not in without_effect
        }
        self._producers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self._compute.values():
            for tensor in node.output:
                self._producers[self._alias(tensor)].append(node)
        self._constants = {tensor.name for tensor in (*model.initializer, *fused.initializer)}
        self._makers = {
            self._alias(tensor): index
            for index, node in enumerate(self._fused)
            if node.op_type not in PAIR_OPS
            for tensor in node.output
        }

    def nodes(self) -> list[tuple[str, ...]]:
        """For each node of the optimized graph, the names of the nodes that it covers."""
        owner = self._by_constant() | self._by_name()
        borders = self._borders()
        for index, node in enumerate(self._fused):
            if node.op_type not in PAIR_OPS and not _GEMM_RESHAPE.search(node.name):
                self._walk(index, node, borders[index], owner)
        owner |= self._moved_transposes(owner)
        found: dict[int, list[str]] = defaultdict(list)
        for name, index in owner.items():
            found[index].append(name)
        return [tuple(sorted(found[index])) for index in range(len(self._fused))]

    def _moved_transposes(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The optimizer moves a Transpose behind what follows it, under a name of its own."""
        taken = set(owner.values())
        new = [i for i, n in enumerate(self._fused) if n.op_type == _TRANSPOSE and i not in taken]
        gone = [n.name for n in self._compute.values() if n.op_type == _TRANSPOSE]
        gone = [name for name in gone if name not in owner]
        return dict(zip(gone, new, strict=True)) if len(gone) == len(new) else {}

    def _by_name(self) -> dict[str, int]:
        owner: dict[str, int] = {}
        for index, node in enumerate(self._fused):
            if node.op_type in PAIR_OPS or _GEMM_RESHAPE.search(node.name):
                continue
            name = node.name if node.name in self._compute else original_name(node.name)
            if name in self._compute:
                owner.setdefault(name, index)
        return owner

    def _by_constant(self) -> dict[str, int]:
        """Nodes that alone read a constant that one node of the optimized graph reads."""
        readers = self._readers(self._compute.values())
        fused = [node for node in self._fused if node.op_type not in PAIR_OPS]
        index_of = {id(node): index for index, node in enumerate(self._fused)}
        owner = {}
        for tensor, found in self._readers(fused).items():
            own = readers.get(tensor, [])
            if len(found) == len(own) == 1:
                owner[own[0].name] = index_of[id(found[0])]
        return owner

    def _readers(self, nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
        constants = {self._alias(tensor) for tensor in self._constants}
        found: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in nodes:
            for tensor in {self._alias(t) for t in node.input if t}:
                if tensor in constants:
                    found[tensor].append(node)
        return found

    def _borders(self) -> list[set[str]]:
        """Tensors at which each node's walk ends: those that it reads and, where the optimizer
        invented one of these, those that the node reads which writes it.
        """
        borders: list[set[str]] = []
        for index, node in enumerate(self._fused):
            border = {self._alias(tensor) for tensor in node.input if tensor}
            for tensor in list(border):
                maker = self._makers.get(tensor)
                if tensor not in self._producers and maker is not None and maker < index:
                    border |= borders[maker]
            borders.append(border)
        return borders

    def _walk(
        self, index: int, start: onnx.NodeProto, border: set[str], owner: dict[str, int]
    ) -> None:
        waiting = [self._alias(tensor) for tensor in start.output if tensor]
        seen = set(border)
        while waiting:
            tensor = waiting.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            for node in self._producers.get(tensor, ()):
                if owner.setdefault(node.name, index) == index:
                    waiting += [self._alias(t) for t in node.input if t]


class _Aliases:
    """One name for all tensors that hold the same data; see ``_aliases``."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def __call__(self, tensor: str) -> str:
        root = tensor
        while root in self._parent:
            root = self._parent[root]
        while tensor != root:
            self._parent[tensor], tensor = root, self._parent[tensor]
        return root

    def join(self, one: str, other: str) -> None:
        one, other = self(one), self(other)
        if one != other:
            self._parent[other] = one


def _products_with_one(model: onnx.GraphProto) -> set[str]:
    """Names of nodes that multiply with the constant 1, which the optimizer takes out."""
    ones = {
        tensor.name
        for tensor in model.initializer
        if math.prod(tensor.dims) == 1
        and not is_external(tensor)
        and numpy_helper.to_array(tensor).item() == 1
    }
    return {n.name for n in model.node if n.op_type == "Mul" and not ones.isdisjoint(n.input)}


def _aliases(model: onnx.GraphProto, fused: onnx.GraphProto) -> _Aliases:
    """Tensors around a Q/DQ pair are one, but where the optimizer removed the nodes before it.

    It then reads another of the model's tensors than in the model: a Relu is gone that the
    quantization behind it implies.
    """
    alias = _Aliases()
    read: dict[str, str] = {}
    for node in model.node:
        if node.op_type in PAIR_OPS:
            alias.join(node.input[0], node.output[0])
            read[node.name] = node.input[0]
    computed = {t for n in model.node if n.op_type not in PAIR_OPS for t in n.output}
    for node in fused.node:
        if _GEMM_RESHAPE.search(node.name):
            alias.join(node.input[0], node.output[0])
        if node.op_type not in PAIR_OPS:
            continue
        source, before = node.input[0], None
        if node.op_type == "QuantizeLinear":
            before = read.get(node.name)
        if before is None or source not in computed or alias(source) == alias(before):
            alias.join(source, node.output[0])
    return alias


# --- the graph that runs --------------------------------------------------------------------


def _merge_missing(layers: Sequence[_Fused], final: onnx.GraphProto) -> dict[str, _Fused]:
    """Layers by name, those that ``final`` lacks merged into the Conv that took them over.

    In the blocked layout a Conv adds another tensor and applies an activation, also HardSigmoid and
    the product with it, which no name says.
    """
    found = {layer.layer.name: layer for layer in layers}
    known = {name: name for name in found}
    known |= {blocked: name for name, x in found.items() for blocked in _blocked_names(x)}
    order = {known.get(_fused_name(node, known), ""): i for i, node in enumerate(final.node)}
    sums = {
        known.get(_fused_name(node, known), "")
        for node in final.node
        if node.op_type in _SUMMING and len(node.input) > _SUM_INPUT
    }
    blocked = {
        known.get(_fused_name(node, known), "")
        for node in final.node
        if node.op_type == "Conv" and _BLOCKED.search(node.name)
    }
    writer = {port.tensor: x.layer.name for x in layers for port in x.layer.outputs}
    host: dict[str, str] = {}
    for missing in layers:
        name = missing.layer.name
        if name in order or missing.layer.kind != "compute":
            continue
        makers = (writer.get(port.tensor, "") for port in missing.layer.inputs)
        near = {host.get(maker, maker) for maker in makers}
        hosts = near & (blocked if missing.layer.op in _GATES else sums)
        if hosts:
            host[name] = max(hosts, key=order.__getitem__)
            found[host[name]] = _merged(found[host[name]], missing)
    return found


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


def _added_layer(node: onnx.NodeProto, types: Mapping[str, str]) -> Layer:
    """A layer that layout optimization added, called after the model's tensor that it moves.

    Its own name and its other tensor's are numbered at random.
    """
    source, target = node.input[0], node.output[0]
    invented = re.compile(r"_token_\d+$|^reorder$")
    name = node.name if invented.search(source) else f"{node.op_type} of {source}"
    if not invented.search(target):
        name = f"{node.op_type} to {target}"
    dtype = types.get(target) or types.get(source) or "unknown"
    return Layer(
        name=name,
        op=node.op_type,
        nodes=(),
        inputs=(Port(dtype, tensor="" if invented.search(source) else source),),
        outputs=(Port(dtype, tensor="" if invented.search(target) else target),),
        kind=_KINDS.get(node.op_type) or ("reformat" if node.op_type in _MOVES else "compute"),
    )


def _port(tensor: str, types: Mapping[str, str]) -> Port:
    return Port(types.get(tensor) or "unknown", tensor=tensor)
