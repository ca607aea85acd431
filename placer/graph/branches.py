"""The branches of If nodes as part of one flat graph, and back into their bodies.

In the flat graph the nodes of a branch are ordinary nodes under names of their own. They stand
before their If, whose bodies keep nothing but their outputs: tensors of the flat graph, which count
as read by the If as what any subgraph reads from outside does. Rules, calibration, placements and
insertion work on the flat graph; no engine gets it, since it would compute both branches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import takewhile

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from placer.graph.edit import every_node, rename_tensors, replace_nodes, subgraphs
from placer.graph.index import captured_tensors
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.scopes import Branch, Scope, Scopes

_PAIR = ("QuantizeLinear", "DequantizeLinear")
_BODIES = ("then_branch", "else_branch")


def flatten(graph: GraphProto, *, name_all: bool = True) -> dict[str, Scope]:
    """Make ``graph`` flat and return the scopes of what was in branches.

    Every node gets a name that is unique with those in branches, every tensor in a branch one that
    no other has; names that are so already stay. Initializers of branches become those of the
    graph. ``name_all`` False leaves nodes without a name as they are; their scopes are not told.
    Bodies of Loop and Scan, and of an If whose bodies do not fit its outputs, stay.
    """
    if not any(_can_enter(node) for node in graph.node):
        return {}
    flattening = _Flattening(graph, name_all)
    nodes = list(flattening.nodes(graph, ()))
    replace_nodes(graph, nodes)
    graph.initializer.extend(flattening.initializers)
    return flattening.scopes


def nest(graph: GraphProto, scopes: Scopes, *, emptied: bool = False) -> None:
    """Put the nodes of the flat ``graph`` back into the branches that ``scopes`` name.

    A graph without ``scopes`` was never flat and stays, unless ``emptied``: then nothing is left in
    its branches, which return what is outside of them.

    Of pairs that were added a DequantizeLinear goes, once each, to where it is read, for engines
    fuse it with its reader; a QuantizeLinear stays beside what it quantizes, and goes to its
    readers if that is an input of the graph. An initializer goes into the innermost body that holds
    all its readers: ONNX Runtime 1.32 gives no Conv the blocked layout whose weights are those of
    an outer graph.
    """
    if scopes or emptied:
        _Nesting(graph, scopes).run()


def _can_enter(node: NodeProto) -> bool:
    if node.op_type != "If" or node.domain:
        return False
    bodies = {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}
    return bodies.keys() == {"then_branch", "else_branch"} and all(
        len(body.output) == len(node.output)
        and not body.input
        and not body.sparse_initializer
        and all(value.name for value in body.output)
        for body in bodies.values()
    )


def body_of(node: NodeProto, attribute: str) -> GraphProto:
    """The body of the If ``node`` that ``attribute`` holds."""
    return next(a.g for a in node.attribute if a.name == attribute)


def _copies(tensors: Iterable[TensorProto]) -> list[TensorProto]:
    """Copies that outlive the list that the tensors are in."""
    return [TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]


class _Flattening:
    def __init__(self, graph: GraphProto, name_all: bool) -> None:
        self._name_all = name_all
        self.scopes: dict[str, Scope] = {}
        self.initializers: list[TensorProto] = []
        names = {value.name for value in (*graph.input, *graph.output)}
        names.update(tensor.name for tensor in graph.initializer)
        names.update(tensor.values.name for tensor in graph.sparse_initializer)
        names.update(tensor for node in graph.node for tensor in node.output)
        for node in every_node(graph.node):
            for body in () if _can_enter(node) else subgraphs(node):
                names |= tensor_names(body)
        self._tensors = UnusedNames(names)
        self._nodes = UnusedNames({node.name for node in graph.node})

    def nodes(self, graph: GraphProto, scope: Scope) -> Iterator[NodeProto]:
        """Nodes of ``graph``, which is at ``scope``, each If behind those of its branches."""
        for node in graph.node:
            if (node.name and scope) or (self._name_all and not node.name):
                node.name = self._nodes.unused(node.name or node.op_type)
            if scope and node.name:
                self.scopes[node.name] = scope
            if _can_enter(node):
                for attribute in _BODIES:
                    body = body_of(node, attribute)
                    self._rename(body)
                    yield from self.nodes(body, (*scope, Branch(node.name, attribute)))
                    self.initializers += _copies(body.initializer)
                    del body.node[:], body.initializer[:], body.value_info[:]
            yield NodeProto.FromString(node.SerializeToString())

    def _rename(self, body: GraphProto) -> None:
        """Give the tensors of ``body`` names of their own."""
        made = [t.name for t in body.initializer]
        made += [tensor for node in body.node for tensor in node.output if tensor]
        new = {name: self._tensors.unused(name) for name in made}
        for tensor in body.initializer:
            tensor.name = new[tensor.name]
        for node in body.node:
            rename_tensors(node, lambda tensor: new.get(tensor, tensor))
        for value in body.output:
            value.name = new.get(value.name, value.name)


class _Nesting:
    """One call of ``nest``."""

    def __init__(self, graph: GraphProto, scopes: Scopes) -> None:
        self._graph = graph
        self._scopes = scopes
        self._names = UnusedNames({node.name for node in graph.node})
        self._tensors = UnusedNames(tensor_names(graph))
        self._producer = {t: node for node in graph.node for t in node.output if t}
        # By tensor and scope the nodes that read it; what a body returns is read there by no node.
        self._readers: dict[str, dict[Scope, list[NodeProto]]] = defaultdict(dict)
        for value in graph.output:
            self._readers[value.name][()] = []

    def run(self) -> None:
        """Rewrite the graph."""
        placed = [p for node in reversed(self._graph.node) for p in self._placed(node)]
        bodies: dict[Scope, list[NodeProto]] = defaultdict(list)
        constants: dict[Scope, list[TensorProto]] = defaultdict(list)
        for tensor in self._graph.initializer:
            constants[_innermost(self._readers.get(tensor.name) or [()])].append(tensor)
        for scope, node in reversed(placed):
            if _can_enter(node):
                for attribute in _BODIES:
                    inner = (*scope, Branch(node.name, attribute))
                    self._fill(body_of(node, attribute), bodies[inner], constants[inner])
            bodies[scope].append(node)
        kept = _copies(constants[()])
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(bodies[()])
        self._graph.initializer.extend(kept)

    def _placed(self, node: NodeProto) -> list[tuple[Scope, NodeProto]]:
        """Copies of ``node`` and where they go; all that reads its outputs was placed before."""
        found = []
        for number, scope in enumerate(self._scopes_of(node)):
            copy = NodeProto.FromString(node.SerializeToString())
            if number:  # Of a DequantizeLinear alone.
                self._rename_copy(copy, scope)
            found.append((scope, copy))
            for tensor in copy.input:
                self._readers[tensor].setdefault(scope, []).append(copy)
            for inner, tensor in _captured(copy, scope):
                self._readers[tensor].setdefault(inner, [])
        return found

    def _scopes_of(self, node: NodeProto) -> list[Scope]:
        if node.name in self._scopes or node.op_type not in _PAIR:
            return [self._scopes.get(node.name, ())]
        readers = list(self._readers[node.output[0]]) or [()]
        if node.op_type == "DequantizeLinear":
            return readers
        source = self._producer.get(node.input[0])
        return [_innermost(readers) if source is None else self._scopes.get(source.name, ())]

    def _rename_copy(self, copy: NodeProto, scope: Scope) -> None:
        """Give a copy names of its own and let its readers at ``scope`` read it."""
        tensor = copy.output[0]
        copy.name = self._names.unused(copy.name)
        copy.output[0] = self._tensors.unused(tensor)
        for reader in self._readers[tensor][scope]:
            rename_tensors(reader, lambda t: copy.output[0] if t == tensor else t)

    def _fill(self, body: GraphProto, nodes: list[NodeProto], constants: list[TensorProto]) -> None:
        body.node.extend(nodes)
        body.initializer.extend(constants)
        made = {tensor for node in nodes for tensor in node.output}
        for value in body.output:
            # A body returns what it computes itself, each tensor once.
            if value.name not in made:
                source, value.name = value.name, self._tensors.unused(f"{value.name}/returned")
                name = self._names.unused(value.name)
                body.node.append(helper.make_node("Identity", [source], [value.name], name))
            made.discard(value.name)


def _captured(node: NodeProto, scope: Scope) -> Iterator[tuple[Scope, str]]:
    """What subgraphs of ``node``, which is at ``scope``, read from outside, and where they do."""
    if not _can_enter(node):
        yield from ((scope, tensor) for tensor in captured_tensors(node))
        return
    for attribute in _BODIES:
        for value in body_of(node, attribute).output:
            yield (*scope, Branch(node.name, attribute)), value.name


def _innermost(scopes: Iterable[Scope]) -> Scope:
    """The innermost scope that holds all of ``scopes``."""
    first, *others = scopes
    depth = len(first)
    for scope in others:
        same = (a == b for a, b in zip(first, scope, strict=False))
        depth = min(depth, sum(1 for _ in takewhile(bool, same)))
    return first[:depth]
