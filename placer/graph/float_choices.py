"""What a network chooses by value in the middle, chosen by a float copy of what leads to it.

A two-stage detector looks again at the boxes that its first stage keeps. A candidate keeps others,
or in another order, so no row behind can be compared with the float network's. Behind the float
network's choices all rows can be. So what leads to these choices is there twice: once as it is,
which tells how much it is off, and once in float, under names of its own, which chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.external_data_helper import load_external_data_for_tensor

from placer.graph.edit import (
    every_node,
    reads,
    remove_dead_nodes,
    rename_tensors,
    replace_nodes,
    subgraphs,
)
from placer.graph.external_data import is_external
from placer.graph.scopes import Body, Scopes

# Before the names of copied nodes, and of what they write; no exporter begins a name like that.
COPY = "copy in float: "
# Of these the copy gives what another input decides, not the output, which holds values.
_DECIDING_INPUT = {"Compress": 1}


def add_copy(graph: GraphProto, choosing: Collection[str], scopes: Scopes) -> Scopes:
    """Let a copy of what leads to the nodes ``choosing`` of a flat ``graph`` choose for them.

    Returns the scopes of the new graph. Constants are shared.
    """
    copied = _leading_to(graph, choosing)
    written = {name for node in copied for name in (*node.output, *_body_inputs(node)) if name}
    copies = [_copy(node, lambda t: COPY + t if t in written else t) for node in copied]
    replace_nodes(graph, [*copies, *graph.node])
    _rewire(graph, choosing)
    names = {node.name for node in copied}
    of_copies = {COPY + name: _moved(scopes[name]) for name in names & scopes.keys()}
    return {**scopes, **of_copies}


def graft(target: ModelProto, twin: ModelProto, choosing: Collection[str], base_dir: Path) -> None:
    """Let the copy that ``twin`` has choose in ``target``, a candidate of the same float model.

    The copy brings the constants that ``target`` lacks or has in another type or with other values;
    those of ``twin`` that are external are in ``base_dir``.
    """
    copies = [node for node in twin.graph.node if node.name.startswith(COPY)]
    read = {tensor for node in copies for tensor in reads(node)}
    brought = _brought(target.graph, twin.graph, read)
    types = _types_of_inputs(target.graph)
    inputs = {
        name: dtype
        for name, dtype in _types_of_inputs(twin.graph).items()
        if name in read and types[name] != dtype
    }
    renamed = {*inputs, *(tensor.name for tensor in brought)}
    casts = [
        helper.make_node("Cast", [name], [COPY + name], f"{COPY}{name}/Cast", to=dtype)
        for name, dtype in inputs.items()
    ]
    new = [_renamed(node, lambda t: COPY + t if t in renamed else t) for node in copies]
    replace_nodes(target.graph, [*casts, *new, *target.graph.node])
    for tensor in brought:
        _add_constant(target.graph, tensor, base_dir)
    _rewire(target.graph, choosing)


def _brought(target: GraphProto, twin: GraphProto, read: Collection[str]) -> list[TensorProto]:
    """The constants of ``twin`` called as one in ``read`` that ``target`` does not have as such."""
    present = {tensor.name: tensor for tensor in target.initializer}
    return [
        tensor
        for tensor in twin.initializer
        if tensor.name in read and not _is_same(tensor, present.get(tensor.name))
    ]


def _types_of_inputs(graph: GraphProto) -> dict[str, int]:
    return {value.name: value.type.tensor_type.elem_type for value in graph.input}


def _add_constant(graph: GraphProto, tensor: TensorProto, base_dir: Path) -> None:
    """Add a copy of ``tensor`` under the copy's name, with its values in it."""
    added = graph.initializer.add()
    added.CopyFrom(tensor)
    added.name = COPY + tensor.name
    if is_external(added):
        load_external_data_for_tensor(added, str(base_dir))
        added.ClearField("external_data")
        added.data_location = TensorProto.DEFAULT


def _is_same(tensor: TensorProto, other: TensorProto | None) -> bool:
    if other is not None and is_external(tensor) and is_external(other):
        return tensor.data_type == other.data_type and tensor.dims == other.dims
    return tensor == other


def _leading_to(graph: GraphProto, names: Collection[str]) -> list[NodeProto]:
    """Nodes called ``names`` and all before them; the nodes of ``graph`` are sorted."""
    needed, nodes = set[str](), list[NodeProto]()
    for node in reversed(graph.node):
        if node.name in names or not needed.isdisjoint(node.output):
            nodes.append(node)
            needed.update(tensor for tensor in reads(node) if tensor)
    return nodes[::-1]


def _copy(node: NodeProto, resolve: Callable[[str], str]) -> NodeProto:
    copy = _renamed(node, resolve)
    for one in every_node([copy]):
        one.name = COPY + one.name
    for body in subgraphs(copy):
        for value in body.input:
            value.name = resolve(value.name)
    return copy


def _body_inputs(node: NodeProto) -> list[str]:
    return [value.name for body in subgraphs(node) for value in body.input]


def _renamed(node: NodeProto, resolve: Callable[[str], str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    rename_tensors(copy, resolve)
    return copy


def _moved(scope: Iterable[Body]) -> tuple[Body, ...]:
    return tuple(Body(COPY + body.owner, body.attribute) for body in scope)


def _rewire(graph: GraphProto, choosing: Collection[str]) -> None:
    """Let what reads choices of the nodes ``choosing`` read those of their copies."""
    chosen: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        if node.name not in choosing:
            continue
        deciding = _DECIDING_INPUT.get(node.op_type)
        if deciding is not None:
            copy = next(one for one in graph.node if one.name == COPY + node.name)
            node.input[deciding] = copy.input[deciding]
        elif node.op_type == "TopK":
            values, indices = node.output
            chosen[indices] = COPY + indices
            if values:
                axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
                chosen[values] = f"{COPY}{values}/here"
                nodes.append(
                    helper.make_node(
                        "GatherElements",
                        [node.input[0], COPY + indices],
                        [chosen[values]],
                        f"{node.name}/here",
                        axis=axis,
                    )
                )
        else:
            chosen.update({name: COPY + name for name in node.output if name})
    for node in nodes:
        if not node.name.startswith(COPY):
            _read(node, chosen)
    replace_nodes(graph, nodes)


def _read(node: NodeProto, chosen: dict[str, str]) -> None:
    """Let ``node``, and its bodies, read what ``chosen`` says."""
    for index, name in enumerate(node.input):
        node.input[index] = chosen.get(name, name)
    for body in subgraphs(node):
        for inner in body.node:
            _read(inner, chosen)
        for value in body.output:
            value.name = chosen.get(value.name, value.name)


def copy_alone(twin: ModelProto) -> ModelProto:
    """The copy in ``twin`` as a model of its own; its outputs are what the rest reads of it."""
    alone = ModelProto()
    alone.CopyFrom(twin)
    names = handed_over(twin)
    copies = [node for node in twin.graph.node if node.name.startswith(COPY)]
    replace_nodes(alone.graph, copies)
    del alone.graph.output[:]
    alone.graph.output.extend(ValueInfoProto(name=name) for name in names)
    return alone


def without_copy(candidate: ModelProto, types: Mapping[str, ValueInfoProto]) -> ModelProto:
    """``candidate`` with inputs, of ``types``, in the place of the copy in it."""
    rest = ModelProto()
    rest.CopyFrom(candidate)
    names = handed_over(candidate)
    replace_nodes(rest.graph, [n for n in candidate.graph.node if not n.name.startswith(COPY)])
    rest.graph.input.extend(types[name] for name in names)
    remove_dead_nodes(rest.graph)
    return rest


def handed_over(twin: ModelProto) -> list[str]:
    """What nodes outside of the copy read of it."""
    copies = [node for node in twin.graph.node if node.name.startswith(COPY)]
    made = {name for node in copies for name in node.output if name}
    others = (node for node in twin.graph.node if not node.name.startswith(COPY))
    return list(dict.fromkeys(t for node in others for t in reads(node) if t in made))
