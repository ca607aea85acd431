"""The bodies of If, Loop and Scan nodes as part of one flat graph, and back.

In the flat graph the nodes of a body are ordinary nodes under names of their own. They stand before
the node that has the body, which keeps nothing but its inputs and outputs: tensors of the flat
graph. Its outputs count as read by that node, as what any subgraph reads from outside does; its
inputs, which Loop and Scan have, no node writes. Rules, calibration, placements and insertion work
on the flat graph; no engine gets it, since it would compute both branches, and a body once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import takewhile

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from placer.graph.edit import every_node, rename_tensors, replace_nodes, subgraphs
from placer.graph.index import captured_tensors
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.operators import PAIR_OPS
from placer.graph.scan_form import ScanForm
from placer.graph.scopes import Body, Scope, Scopes

_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
# What the name of an Identity ends in that returns what a body does not compute itself.
RETURNED = "/returned"


def flatten(graph: GraphProto, *, name_all: bool = True) -> dict[str, Scope]:
    """Make ``graph`` flat and return the scopes of what was in bodies.

    Every node gets a name that is unique with those in bodies, every tensor in a body one that no
    other has; names that are so already stay. Initializers of bodies become those of the graph.
    ``name_all`` False leaves nodes without a name as they are; their scopes are not told.
    Bodies that do not fit the inputs and outputs of their node stay.
    """
    if not any(entered_bodies(node) for node in graph.node):
        return {}
    flattening = _Flattening(graph, name_all)
    nodes = list(flattening.nodes(graph, ()))
    replace_nodes(graph, nodes)
    graph.initializer.extend(flattening.initializers)
    return flattening.scopes


def nest(graph: GraphProto, scopes: Scopes, *, emptied: bool = False) -> None:
    """Put the nodes of the flat ``graph`` back into the bodies that ``scopes`` name.

    A graph without ``scopes`` was never flat and stays, unless ``emptied``: then nothing is left in
    its bodies, which return what is outside of them.

    Of pairs that were added a DequantizeLinear goes, once each, to where it is read, for engines
    fuse it with its reader; a QuantizeLinear stays beside what it quantizes, and goes to its
    readers if that is an input of the graph or of a body, but not to where it would be repeated. An
    initializer goes into the innermost body that holds all its readers: ONNX Runtime 1.32 gives no
    Conv the blocked layout whose weights are those of an outer graph.
    """
    if scopes or emptied:
        _Nesting(graph, scopes).run()


def entered_bodies(node: NodeProto) -> dict[str, GraphProto]:
    """The bodies of ``node`` that are part of a flat graph by attribute; none if it has none."""
    attributes = () if node.domain else _BODIES.get(node.op_type, ())
    bodies = {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}
    if bodies.keys() != set(attributes) or not all(_fits(node, g) for g in bodies.values()):
        return {}
    return {attribute: bodies[attribute] for attribute in attributes}


def body_inputs(nodes: Iterable[NodeProto], scopes: Scopes) -> dict[str, Scope]:
    """The inputs of bodies of a flat graph with ``nodes``, and the scope of each."""
    return {
        value.name: (*scopes.get(node.name, ()), Body(node.name, attribute))
        for node in nodes
        for attribute, body in entered_bodies(node).items()
        for value in body.input
    }


def states(node: NodeProto) -> slice:
    """Which inputs of a Loop or Scan are the initial values of its state variables."""
    return slice(2, None) if node.op_type == "Loop" else slice(0, ScanForm.of(node).states)


def _fits(node: NodeProto, body: GraphProto) -> bool:
    """Whether ``body`` has the inputs and outputs that ``node`` needs; ONNX does not check."""
    if node.op_type == "If":
        inputs, least, most = 0, len(node.output), len(node.output)
    elif node.op_type == "Loop":  # It gives the body a trip and a condition, and gets the latter.
        inputs = max(2, len(node.input))
        least, most = max(inputs - 2, len(node.output)) + 1, len(body.output)
    else:
        inputs, kept = len(node.input), ScanForm.of(node).states
        least, most = max(kept, len(node.output)), len(body.output)
        if not 0 <= kept < inputs:
            return False
    names = [value.name for value in body.input]
    return (
        len(names) == inputs
        and least <= len(body.output) <= most
        and all(names)
        and all(value.name for value in body.output)
        and not body.sparse_initializer
        and {t.name for t in body.initializer}.isdisjoint(names)
    )


def body_of(node: NodeProto, attribute: str) -> GraphProto:
    """The body of ``node`` that ``attribute`` holds."""
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
            for body in () if entered_bodies(node) else subgraphs(node):
                names |= tensor_names(body)
        self._tensors = UnusedNames(names)
        self._nodes = UnusedNames({node.name for node in graph.node})

    def nodes(self, graph: GraphProto, scope: Scope) -> Iterator[NodeProto]:
        """Nodes of ``graph``, which is at ``scope``, each behind those of its bodies."""
        for node in graph.node:
            if (node.name and scope) or (self._name_all and not node.name):
                node.name = self._nodes.unused(node.name or node.op_type)
            if scope and node.name:
                self.scopes[node.name] = scope
            for attribute, body in entered_bodies(node).items():
                self._rename(body)
                yield from self.nodes(body, (*scope, Body(node.name, attribute)))
                self.initializers += _copies(body.initializer)
                del body.node[:], body.initializer[:], body.value_info[:]
            yield NodeProto.FromString(node.SerializeToString())

    def _rename(self, body: GraphProto) -> None:
        """Give the tensors of ``body`` names of their own."""
        made = [value.name for value in body.input] + [t.name for t in body.initializer]
        made += [tensor for node in body.node for tensor in node.output if tensor]
        new = {name: self._tensors.unused(name) for name in made}
        for tensor in body.initializer:
            tensor.name = new[tensor.name]
        for node in body.node:
            rename_tensors(node, lambda tensor: new.get(tensor, tensor))
        for value in (*body.input, *body.output):
            value.name = new.get(value.name, value.name)


class _Nesting:
    """One call of ``nest``."""

    def __init__(self, graph: GraphProto, scopes: Scopes) -> None:
        self._graph = graph
        self._scopes = scopes
        self._names = UnusedNames({node.name for node in graph.node})
        self._tensors = UnusedNames(tensor_names(graph))
        self._inputs = body_inputs(graph.node, scopes)
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
            for attribute, body in entered_bodies(node).items():
                inner = (*scope, Body(node.name, attribute))
                self._fill(body, bodies[inner], constants[inner])
            bodies[scope].append(node)
        kept = _copies(constants[()])
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(bodies[()])
        self._graph.initializer.extend(kept)

    def _placed(self, node: NodeProto) -> list[tuple[Scope, NodeProto]]:
        """Copies of ``node`` and where they go; all that reads its outputs was placed before."""
        placed = []
        for number, scope in enumerate(self._scopes_of(node)):
            copy = NodeProto.FromString(node.SerializeToString())
            if number:  # Of a DequantizeLinear alone.
                self._rename_copy(copy, scope)
            placed.append((scope, copy))
            for tensor in copy.input:
                self._readers[tensor].setdefault(scope, []).append(copy)
            for inner, tensor in _captured(copy, scope):
                self._readers[tensor].setdefault(inner, [])
        return placed

    def _scopes_of(self, node: NodeProto) -> list[Scope]:
        if node.name in self._scopes or node.op_type not in PAIR_OPS:
            return [self._scopes.get(node.name, ())]
        readers = list(self._readers[node.output[0]]) or [()]
        if node.op_type == "DequantizeLinear":
            return readers
        source = self._producer.get(node.input[0])
        if source is not None:
            return [self._scopes.get(source.name, ())]
        return [_once(_innermost(readers), self._inputs.get(node.input[0], ()))]

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
                source, value.name = value.name, self._tensors.unused(value.name + RETURNED)
                name = self._names.unused(value.name)
                body.node.append(helper.make_node("Identity", [source], [value.name], name))
            made.discard(value.name)


def _captured(node: NodeProto, scope: Scope) -> Iterator[tuple[Scope, str]]:
    """What subgraphs of ``node``, which is at ``scope``, read from outside, and where they do."""
    bodies = entered_bodies(node)
    if not bodies:
        yield from ((scope, tensor) for tensor in captured_tensors(node))
    for attribute, body in bodies.items():
        for value in body.output:
            yield (*scope, Body(node.name, attribute)), value.name


def _innermost(scopes: Iterable[Scope]) -> Scope:
    """The innermost scope that holds all of ``scopes``."""
    first, *others = scopes
    depth = len(first)
    for scope in others:
        same = (a == b for a, b in zip(first, scope, strict=False))
        depth = min(depth, sum(1 for _ in takewhile(bool, same)))
    return first[:depth]


def _once(scope: Scope, known: Scope) -> Scope:
    """``scope`` without what repeats in it a tensor that is known at the scope ``known``."""
    inner = takewhile(lambda body: not body.repeats, scope[len(known) :])
    return (*known, *inner)
