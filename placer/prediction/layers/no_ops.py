"""No-ops and duplicates among a graph's nodes, which some engines eliminate.

Networks that were never trained add biases of 0 and multiply by gains of 1, and exporters write
Slices of all. A pair before such a node is one before each of its readers: the values are the same,
and so are range and scale. So are those of nodes that compute the same, of which one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.graph.equal_nodes import Call, equal_calls
from placer.graph.index import with_nodes
from placer.graph.neutral import NEUTRAL, handed_on, is_endless, is_single
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.transposes import order_of
from placer.quantization import Placement, Ranges
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.connected import connected


@dataclass(frozen=True)
class WithoutNoOps:
    """``graph`` without its no-ops, and where pairs around these are now.

    ``moved``: by edge of the graph as it was, the edges that a pair on it is on now, where these
    are others. ``twins``: by name of a node those of the equal ones that were taken out. ``added``:
    names of nodes that the engine inserts. ``cast``: of those around which it inserts Casts to
    float.
    """

    graph: Graph
    moved: Mapping[Edge, tuple[Edge, ...]]
    twins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    cast: frozenset[str] = frozenset()

    def change(self, before: Placement, after: Placement) -> Change:
        """What turns one placement into another on the edges that are left."""
        change = before.change_to(after)
        if not self.touches(change):
            return change
        return self.placed(before).change_to(self.placed(after))

    def touches(self, change: Change) -> bool:
        """Whether pairs that ``change`` alters are on other edges now; else it stays what it is."""
        groups = (*change.gone, *change.come) if self.moved else ()
        return any(not self.moved.keys().isdisjoint(group.edges) for group in groups)

    def placed(self, placement: Placement) -> Placement:
        """``placement`` on the edges that are left."""
        # No edge that stays where it is ends where others move, so other groups need no look.
        touched = [g for g in placement.groups if not self.moved.keys().isdisjoint(g.edges)]
        if not touched:
            return placement
        moved = set[ScaleGroup]()
        for chosen in {group.format for group in touched}:
            here = [(self._moved(g.edges), g.variant) for g in touched if g.format == chosen]
            moved.update(ScaleGroup(edges, chosen, first) for edges, first in _joined(here))
        groups = placement.groups.difference(touched).union(moved)
        return Placement(groups, self._moved(placement.per_tensor), placement.base)

    def _moved(self, edges: Iterable[Edge]) -> frozenset[Edge]:
        return frozenset(x for edge in edges for x in self.moved.get(edge, (edge,)))


# Whether an engine takes out a node of a graph that hands on the tensor it is asked with.
TakesOut = Callable[[Graph, Node, str], bool]


def without_no_ops(
    graph: Graph,
    takes_out: TakesOut = lambda *_: True,
    equal: Mapping[str, str] | None = None,
    *,
    folded: Container[str] = (),
    undone: Mapping[str, str] | None = None,
    base: str | None = None,
) -> WithoutNoOps:
    """Take out the nodes that add 0, multiply by 1 or copy all of what they read.

    Those stay that write a graph output or what a subgraph reads, or whose shapes are not known.
    Nodes are numbered anew; their names stay. ``takes_out``: whether the engine does so.
    ``equal``: by node one that computes the same and stays for it. ``folded``: names of nodes that
    become part of what reads them. ``undone``: see ``undone_transposes``. ``base``: ONNX's name of
    the type of the engine's floats where it converts inputs of other float types to that: a Cast of
    such an input to ``base`` goes, as it is the conversion that there is anyway.
    """
    origins: dict[str, str] = {}
    no_ops, merged = set[str](), dict[str, str]()

    def origin(node: Node) -> str | None:
        """What ``node`` hands on, if it is to be taken out."""
        if undone and node.name in undone:
            return undone[node.name]
        data = _handed_on(graph, node)
        if data is None and base is not None and _converts_input(graph, node, base):
            data = node.inputs[0]
        if node.name in folded:
            return data or node.inputs[0]
        goes = data is not None and takes_out(graph, node, data) and _may_go(graph, node)
        return data if goes else None

    for node in graph.nodes:
        if (data := origin(node)) is not None:
            no_ops.add(node.name)
            origins[node.outputs[0]] = origins.get(data, data)
        elif equal and equal.get(node.name) in graph.by_name and _may_go(graph, node):
            merged[node.name] = equal[node.name]
            kept = graph.by_name[equal[node.name]]
            origins.update(
                (t, origins.get(k, k)) for t, k in zip(node.outputs, kept.outputs, strict=True)
            )
    if not no_ops and not merged:
        return WithoutNoOps(graph, {})
    rest = _without(graph, no_ops | merged.keys(), origins)
    twins: dict[str, tuple[str, ...]] = {}
    for name, kept_name in merged.items():
        twins[kept_name] = (*twins.get(kept_name, ()), name)
    return WithoutNoOps(rest, dict(_moves(graph, origins, no_ops, merged)), twins)


def _without(graph: Graph, gone: Container[str], origins: Mapping[str, str]) -> Graph:
    """``graph`` without the nodes called ``gone``; others read the origins of what those write."""
    nodes = [
        replace(node, inputs=tuple(origins.get(t, t) for t in node.inputs))
        for node in graph.nodes
        if node.name not in gone
    ]
    return with_nodes(graph, nodes)


def undone_transposes(graph: Graph) -> Mapping[str, str]:
    """By Transpose that undoes the one before it, the tensor that both make of it.

    And by one that nothing else reads what that reads. Only pairs are between them: TensorRT-RTX's
    builder 1.7.1 does not move a Transpose past an operator (eight small graphs); of TensorRT no
    list of a network with such Transposes is known. Where pairs around them have different scales,
    that builder takes the Transposes out too and rounds twice; ``placed`` leaves one of the pairs.
    """
    undone: dict[str, str] = {}
    for node in graph.nodes:
        before = graph.producer.get(node.inputs[0]) if order_of(graph, node) else None
        if before is None or before.name in undone:
            continue  # Of three in a row one stays.
        if _undoes(graph, node, before) and _may_go(graph, node):
            undone[node.name] = before.inputs[0]
    for node in graph.nodes:
        edges = graph.edges_of(node.outputs[0]) if order_of(graph, node) else ()
        if edges and all(edge.node in undone for edge in edges):
            undone.setdefault(node.name, node.inputs[0])
    return undone


def _undoes(graph: Graph, node: Node, before: Node) -> bool:
    order, first = order_of(graph, node), order_of(graph, before)
    return len(order) == len(first) and all(first[axis] == i for i, axis in enumerate(order))


def equal_nodes(graph: Graph, apart: Container[str] = ()) -> Mapping[str, str]:
    """By node that computes what one before it does, that one; past no-ops.

    ``apart``: nodes that the engine does not make one of, by name or operator.
    """

    def is_known(node: Node) -> bool:
        """Of operators that ONNX does not have, two calls may give different results."""
        is_apart = node.op in apart or node.name in apart
        return not is_apart and node.op == node.qualified_op

    calls = [
        Call(
            node.op if is_known(node) else f"{node.qualified_op} {node.name}",
            node.inputs,
            node.outputs,
            node.proto.attribute,
            _handed_on(graph, node),
            graph.scopes.get(node.name, ()),
        )
        for node in graph.nodes
    ]
    names = [node.name for node in graph.nodes]
    equal_of = equal_calls(calls, graph.initializers)
    return {names[place]: names[other] for place, other in equal_of.items()}


def ranges_before(graph: Graph, ranges: Ranges, equal: Mapping[str, str] | None = None) -> Ranges:
    """``ranges``, and those of tensors without one that hold the values of others.

    What no-ops read has that of what they write, and what a node writes that of what an
    ``equal`` one does, as a pair behind such a node has moved.
    """
    known = dict(ranges)
    for node in reversed(graph.nodes):
        data = _handed_on(graph, node)
        if data is not None and node.outputs[0] in known:
            known.setdefault(data, known[node.outputs[0]])
        if equal and node.name in equal:
            kept = graph.by_name[equal[node.name]]
            for tensor, same in zip(node.outputs, kept.outputs, strict=True):
                if tensor in known:
                    known.setdefault(same, known[tensor])
    return known


def _moves(
    graph: Graph, origins: Mapping[str, str], no_ops: set[str], merged: Mapping[str, str]
) -> Iterator[tuple[Edge, tuple[Edge, ...]]]:
    gone = (*no_ops, *merged)
    read = {tensor for name in gone for tensor in graph.by_name[name].inputs}
    for tensor in {*origins, *origins.values(), *read}:
        for edge in graph.edges_of(tensor):
            if tensor in origins or edge.node in no_ops or edge.node in merged:
                yield edge, tuple(_ends(graph, edge, origins, no_ops, merged))


def _ends(
    graph: Graph,
    edge: Edge,
    origins: Mapping[str, str],
    no_ops: set[str],
    merged: Mapping[str, str],
) -> Iterator[Edge]:
    """The edges behind the no-ops that ``edge`` leads into, and at the equal one's input."""
    if edge.node not in no_ops:
        tensor = origins.get(edge.tensor, edge.tensor)
        if edge.node in merged:
            inputs = [origins.get(t, t) for t in graph.by_name[merged[edge.node]].inputs]
            index = inputs.index(tensor) if tensor in inputs else edge.input_index
            edge = Edge(inputs[index], merged[edge.node], index)
        yield edge._replace(tensor=origins.get(edge.tensor, edge.tensor))
        return
    for later in graph.edges_of(graph.by_name[edge.node].outputs[0]):
        yield from _ends(graph, later, origins, no_ops, merged)


def _joined(groups: Sequence[tuple[frozenset[Edge], int]]) -> Iterator[tuple[frozenset[Edge], int]]:
    """``groups`` with their variants, of which those that share an edge are the first of them."""
    kept = [(edges, variant) for edges, variant in groups if edges]
    for part in connected([edges for edges, _ in kept]):
        edges = frozenset[Edge]().union(*(kept[i][0] for i in part))
        yield edges, min(kept[i][1] for i in part)


def _may_go(graph: Graph, node: Node) -> bool:
    readers = [edge for tensor in node.outputs for edge in graph.edges_of(tensor)]
    return all(
        not edge.is_graph_output and edge.input_index < len(graph.by_name[edge.node].inputs)
        for edge in readers
    )


def eliminated_by_onnxruntime(graph: Graph, node: Node, data: str) -> bool:
    """Whether ONNX Runtime's optimizer takes out a node that hands ``data`` on.

    Sources: cast_elimination.cc, expand_elimination.cc, slice_elimination.cc, noop_elimination.cc.
    """
    if node.op == "Cast":
        return True
    if data in graph.inputs:
        return False
    return (
        node.op == "Expand"
        or is_endless(node.op, node.inputs, graph.initializers)
        or _has_one_constant(graph, node, data)
    )


def dissolved_for_kernels(graph: Graph, node: Node, data: str) -> bool:
    """Whether TensorRT-RTX takes out a node that hands ``data`` on.

    Casts, and products with a single 1, but not with a 1 for each channel and no sums with 0
    (TensorRT-RTX 1.7.1, small graphs of Convs).
    """
    return node.op == "Cast" or (node.op in ("Mul", "Div") and _has_one_constant(graph, node, data))


def _has_one_constant(graph: Graph, node: Node, data: str) -> bool:
    if node.op not in NEUTRAL:  # The shape that a Reshape reads may be no constant.
        return False
    return all(is_single(graph.initializers[t]) for t in node.inputs if t != data)


def _converts_input(graph: Graph, node: Node, base: str) -> bool:
    """Whether ``node`` is a Cast of a graph input of another float type to ``base``."""
    if node.op != "Cast" or node.inputs[0] not in graph.inputs:
        return False
    given, wanted = graph.type_of(node.inputs[0]), TensorProto.DataType.Value(base.upper())
    is_other = given.is_float and given.dtype != wanted
    return is_other and graph.type_of(node.outputs[0]).dtype == wanted


def _handed_on(graph: Graph, node: Node) -> str | None:
    """The tensor that ``node`` hands on as it is, None if it does something."""
    if node.domain not in STANDARD_DOMAINS:
        return None
    data = handed_on(node.op, node.inputs, graph.initializers)
    if data is None or data in graph.initializers:
        return None
    written = graph.type_of(node.outputs[0])
    is_same = written.shape is not None and written == graph.type_of(data)
    return data if is_same and written.is_float else None
