"""Outputs whose rows the data choose, such as the boxes that a detector's NonMaxSuppression keeps.

The smallest change of a score adds, drops or swaps rows of such an output, so two of them cannot be
compared by position. What the rows are chosen from can be: it has the same shape for all inputs.

Likewise speech synthesis rounds how many frames a sound lasts, and so decides how long the output
is. What is rounded can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placer.graph.dependence import data_tensors
from placer.graph.edit import every_node
from placer.graph.index import Graph, Node
from placer.graph.operators import OF_SHAPES, RECURRENT, STANDARD_DOMAINS
from placer.graph.weights import WEIGHTED_OPS

# Their outputs have the rows, the order or the number of rows that values decide (ONNX opset 24).
_CHOOSING = frozenset({"NonMaxSuppression", "NonZero", "TopK", "Unique", "Compress"})
# What moves values and changes none: the tensor before says the same.
MOVING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

# Inputs that decide how many values a node writes (ONNX opset 24).
_SIZES: Mapping[str, Collection[int]] = {
    "Range": (0, 1, 2),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Loop": (0,),
    "OneHot": (1,),
    "Pad": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Tile": (1,),
}
_LAYERS = WEIGHTED_OPS.union(RECURRENT)
_ROUNDING = frozenset({"Ceil", "Floor", "Round"})
# Of chosen indices they make values, at the positions that they are for.
_TO_VALUES = frozenset({"OneHot", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


@dataclass(frozen=True)
class ChosenRows:
    """``outputs`` of a model that ``operators`` choose, and the float tensors they choose from.

    ``reference_choices``: the nodes that choose what layers with weights work on, as the second
    stage of a two-stage detector does. What they choose from says nothing of these layers, so they
    have to choose as in the float model (``placer.graph.float_choices``). Then ``comparable`` are
    those of ``outputs`` behind such layers of which no other node chooses the rows. ``sources`` are
    empty where the rows can be compared by nothing.
    """

    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    reference_choices: tuple[str, ...] = ()
    comparable: tuple[str, ...] = ()

    @property
    def decide_lengths(self) -> bool:
        """Whether ``operators`` round floats to lengths, and choose no rows."""
        return _ROUNDING.union({"Cast"}).issuperset(self.operators)


def chosen_rows(graph: Graph) -> ChosenRows | None:
    """What ``graph`` chooses by value on the way to its outputs, None if nothing.

    Lengths, if it chooses no rows there: indices that put values back where they were choose none.
    """
    data = data_tensors(graph)
    lengths = {node.name: node.op for node in _deciding_lengths(graph, data)}
    found = (_chosen_by(graph, data, nodes) for nodes in (_choosing(graph, data), lengths))
    return next(filter(None, found), None)


def _chosen_by(
    graph: Graph, data: frozenset[str], choosing: Mapping[str, str]
) -> ChosenRows | None:
    """``choosing``: operators by the nodes that may choose."""
    nodes = [graph.by_name[name] for name in choosing]
    outputs = _chosen_outputs(graph, nodes, data)
    if not outputs:
        return None
    leading = _leading(graph, outputs)
    operators = tuple(dict.fromkeys(op for name, op in choosing.items() if name in leading))
    behind = (n for n in _made_behind(graph, nodes, leading) if n.name not in choosing)
    layers = [node for node in behind if _has_layer(node, data)]
    followed, last = _by_layers_behind(graph, nodes, layers)
    in_bodies = layers_in_bodies(graph) & leading
    if in_bodies or not all(_can_follow_reference(graph, node) for node in followed):
        return ChosenRows(outputs, operators, ())
    behind_layers, placed = _behind(graph, layers), _chosen_outputs(graph, last, data)
    return ChosenRows(
        outputs,
        operators,
        _sources(graph, followed, last, leading),
        tuple(node.name for node in followed),
        tuple(name for name in outputs if name in behind_layers and name not in placed),
    )


def _by_layers_behind(
    graph: Graph, choosing: Sequence[Node], layers: Sequence[Node]
) -> tuple[list[Node], list[Node]]:
    """Of ``choosing``, the nodes that ``layers`` depend on, and the others."""
    before = _leading(graph, (name for node in layers for name in node.inputs))
    followed = [node for node in choosing if node.name in before]
    return followed, [node for node in choosing if node.name not in before]


def _made_behind(graph: Graph, nodes: Sequence[Node], leading: Collection[str]) -> list[Node]:
    """The nodes called ``leading`` that write what depends on outputs of ``nodes``."""
    behind = _behind(graph, nodes)
    return [
        node for node in graph.nodes if node.name in leading and not behind.isdisjoint(node.outputs)
    ]


def _sources(
    graph: Graph, followed: Sequence[Node], last: Sequence[Node], leading: Collection[str]
) -> tuple[str, ...]:
    """The float tensors that the nodes ``followed`` and ``last`` choose from, in graph order."""
    chosen_last, reading = _behind(graph, last), {*followed, *_made_behind(graph, last, leading)}
    read = (
        edge.tensor for node in graph.nodes if node in reading for edge in graph.reads[node.name]
    )
    sources = floats_before(graph, (name for name in read if name not in chosen_last))
    return tuple(dict.fromkeys(sources))


def layers_in_bodies(graph: Graph) -> frozenset[str]:
    """Layers with weights that stand in the bodies of a flat graph."""
    return frozenset(name for name in graph.scopes if graph.by_name[name].op in WEIGHTED_OPS)


def _choosing(graph: Graph, data: frozenset[str]) -> dict[str, str]:
    """Nodes outside of bodies that choose by value, and by which operator.

    So does an If that returns indices and in which one chooses: libraries have NonMaxSuppression
    there for the case that there is no box. What other bodies choose stays within them.
    """
    operator_of: dict[str, str] = {}
    for node in graph.nodes:
        scope = graph.scopes.get(node.name)
        inner = [one for one in every_node([node.proto]) if _is_choosing(one.domain, one.op_type)]
        if inner and not data.isdisjoint(edge.tensor for edge in graph.reads[node.name]):
            operator_of.setdefault(scope[0].owner if scope else node.name, inner[0].op_type)
    return {
        node.name: operator_of[node.name]
        for node in graph.nodes
        if node.name in operator_of and (node.op in _CHOOSING or _returns_indices(graph, node))
    }


def _deciding_lengths(graph: Graph, data: frozenset[str]) -> Iterator[Node]:
    """The first nodes, outside of bodies, that round floats to what decides a length.

    What is rounded before the last layer with weights, as quantization is, decides none. Nor does
    what no layer leads to, as a length or a zoom that is an input: it is the same in all models.
    """
    sizes = (size for node in graph.nodes for size in _sizes(graph, node, data))
    layers = [node for node in graph.nodes if _learns(graph, node, data)]
    leading = _leading(graph, sizes, ends={node.name for node in layers})
    learned = _behind(graph, layers)
    rounded = set[str]()
    for node in graph.nodes:
        if node.name not in leading or node.name in graph.scopes:
            continue
        reads = {edge.tensor for edge in graph.reads[node.name]}
        if not rounded.isdisjoint(reads):
            rounded.update(node.outputs)
        elif _rounds(graph, node) and not learned.isdisjoint(reads):
            rounded.update(node.outputs)
            yield node


def _sizes(graph: Graph, node: Node, among: Collection[str]) -> list[str]:
    """What decides how many values ``node`` writes, as far as it is ``among`` these."""
    places = _SIZES.get(node.op, ())
    edges = graph.reads[node.name]
    return [edge.tensor for edge in edges if edge.input_index in places and edge.tensor in among]


def _rounds(graph: Graph, node: Node) -> bool:
    if node.op in _ROUNDING:
        return True
    written = graph.type_of(node.outputs[0])
    to_integer = written.dtype is not None and not written.is_float
    return node.op == "Cast" and to_integer and graph.type_of(node.inputs[0]).is_float


def _returns_indices(graph: Graph, node: Node) -> bool:
    types = [graph.type_of(name) for name in node.outputs if name]
    return node.op == "If" and not any(known.is_float or known.dtype is None for known in types)


def _is_choosing(domain: str, op: str) -> bool:
    return domain in STANDARD_DOMAINS and op in _CHOOSING


def _can_follow_reference(graph: Graph, node: Node) -> bool:
    """Whether what ``node`` chooses is told by indices, or by another input, and not by values."""
    of_values = node.op == "Unique" and graph.type_of(node.inputs[0]).is_float
    return not of_values


def _chosen_outputs(
    graph: Graph, choosing: Sequence[Node], data: frozenset[str]
) -> tuple[str, ...]:
    behind, placed = _behind(graph, choosing), _placed(graph, choosing, data)
    return tuple(name for name in graph.outputs if name in behind and name in placed)


def _has_layer(node: Node, data: frozenset[str]) -> bool:
    return node.op in WEIGHTED_OPS and not data.isdisjoint(node.inputs)


def _learns(graph: Graph, node: Node, data: frozenset[str]) -> bool:
    """Whether ``node`` is a layer, or has one in a body, that works on data."""
    inner = {one.op_type for one in every_node([node.proto])}
    reads = {edge.tensor for edge in graph.reads[node.name]}
    return not inner.isdisjoint(_LAYERS) and not data.isdisjoint(reads)


def _behind(graph: Graph, choosing: Sequence[Node]) -> frozenset[str]:
    """Tensors that hold values, not just shapes, of what ``choosing`` chose."""
    names = {node.name for node in choosing}
    reached: set[str] = set()
    for node in graph.nodes:
        reads = {edge.tensor for edge in graph.reads[node.name]}
        if node.name in names or (node.op not in OF_SHAPES and not reached.isdisjoint(reads)):
            reached.update(name for name in node.outputs if name)
    return frozenset(reached)


def _placed(graph: Graph, choosing: Sequence[Node], data: frozenset[str]) -> frozenset[str]:
    """Tensors in which the position of a value is chosen, not only what the value is.

    A router that sends tokens to experts chooses what is computed of a token, and the token stays
    where it is: another choice is an error of the output. Chosen indices say where what they gather
    goes; scattered by them it is where it was. The values that TopK finds are sorted, so a small
    change of its input changes them little.
    """
    found = _Places(graph, frozenset(node.name for node in choosing), data)
    for node in graph.nodes:
        if node.op not in OF_SHAPES:
            found.add(node)
    return frozenset(found.indices | found.placed)


@dataclass(frozen=True)
class _Places:
    """Tensors of ``graph`` by what of them is chosen by the nodes called ``choosing``.

    ``lengths``: sizes; ``indices``: where what is looked up by them goes; ``placed``: positions.
    """

    graph: Graph
    choosing: frozenset[str]
    data: frozenset[str]
    lengths: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Add what ``node`` writes, all before it having been added."""
        chooses = node.name in self.choosing
        reads = {edge.tensor for edge in self.graph.reads[node.name]}
        looked_up = set(node.inputs[1:2])
        written = {name for name in node.outputs if name}
        if node.op.startswith("Scatter") and looked_up & (self.indices | self.placed):
            self.placed.update(written if node.inputs[0] in self.placed else ())
        elif reads & self.placed or _sizes(self.graph, node, self.lengths):
            self.placed.update(written)
        elif reads & self.lengths or (chooses and _rounds(self.graph, node)):
            self.lengths.update(written)
        elif chooses:
            self.indices.update(node.outputs[1:] if node.op == "TopK" else written)
        elif node.op.startswith("Gather") and looked_up & self.indices:
            self.placed.update(written if node.inputs[0] in self.data else ())
        elif reads & self.indices and node.op not in _TO_VALUES:
            self.indices.update(written)


def _leading(graph: Graph, outputs: Iterable[str], ends: Collection[str] = ()) -> frozenset[str]:
    """Names of the nodes that ``outputs`` depend on, up to those called ``ends``."""
    pending, reached = list(outputs), set[str]()
    while pending:
        node = graph.producer.get(pending.pop())
        if node is not None and node.name not in reached and node.name not in ends:
            reached.add(node.name)
            pending.extend(edge.tensor for edge in graph.reads[node.name])
    return frozenset(reached)


def floats_before(
    graph: Graph, tensors: Iterable[str], through: frozenset[str] = MOVING
) -> list[str]:
    """The last float tensors computed from the inputs on the way to ``tensors``, not in a body.

    ``through``: operators before which the values are as good as behind them.
    """
    data = data_tensors(graph)
    pending, seen, floats = list(tensors)[::-1], set[str](), list[str]()
    while pending:
        tensor = pending.pop()
        node = graph.producer.get(tensor)
        if tensor in seen or tensor not in data or node is None:
            continue
        seen.add(tensor)
        is_told = graph.type_of(tensor).is_float and node.name not in graph.scopes
        if is_told and node.op not in through:
            floats.append(tensor)
        else:  # A comparison, an index of the largest value, or the same values elsewhere.
            pending.extend(edge.tensor for edge in reversed(graph.reads[node.name]))
    return floats
