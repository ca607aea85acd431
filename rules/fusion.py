"""Predict an engine's layers: which nodes fuse, what they read and write, which pairs remain.

``placer.rules.claims`` says which nodes become one layer; here the layers get their types and the
conversions that they need. What a layer needs depends on the pairs near it and on what is there of
the tensors it reads. So a placement is predicted from another one's prediction by looking only at
what changed, and at what follows from that.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.placement import EMPTY, Placement
from placer.plan import Kind, Layer, Plan, Port
from placer.rules.claims import FLOAT, Block, Claim, Part, find_parts
from placer.rules.motion import (
    Link,
    NormalForm,
    Scale,
    Scales,
    find_links,
    find_passages,
    move_pairs,
    scale_of,
)
from placer.rules.schema import Rule
from placer.rules.target import Target

UNKNOWN = "unknown"  # Type of a tensor that inference found none for.
NO_OP = "NoOp"
KEPT_STEPS = 1 << 15


@dataclass(frozen=True, eq=False)
class PredictedLayer:
    """A layer of the predicted plan and where it comes from.

    ``claim`` is None for a node that no rule covers and for conversions. ``edges``: for a
    conversion, the edges that it serves; else all data edges that the layer reads. ``ordinal``:
    for a conversion, how many of its kind and tensor come before it.
    """

    layer: Layer
    nodes: tuple[Node, ...]
    claim: Claim | None
    edges: tuple[Edge, ...]
    ordinal: int = 0


class Conversion(NamedTuple):
    """A conversion of ``tensor``: type written, and the scales that what it reads or writes has."""

    tensor: str
    dtype: str
    scales: Scales
    kind: Kind
    ordinal: int


class Stock(NamedTuple):
    """What there is of a float tensor.

    ``ready``: types by the scales that the tensor went through; what was written comes first.
    """

    ready: tuple[tuple[Scales, str], ...]
    conversions: tuple[Conversion, ...] = ()


@dataclass(frozen=True, eq=False)
class Step:
    """What a block adds to the plan.

    ``layers``: those of the ``conversions`` that nothing before the block needed, which have the
    first edge that they serve, then the block's own. ``served``: further edges of conversions,
    also of earlier ones. ``stocks``: what there is afterwards, of ``Block.stocked``.
    """

    block: Block
    layers: tuple[PredictedLayer, ...]
    conversions: tuple[Conversion, ...]
    served: tuple[tuple[Conversion, Edge], ...]
    stocks: Mapping[str, Stock]


Story = tuple[tuple[int, Stock], ...]  # What there is of a tensor behind each position.


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted layers in execution order and the motion-normal form they follow from.

    ``given``: scales before motion. ``steps``: by position; the same object in two predictions adds
    the same layers. ``stories``: by float tensor, in order of positions. ``changed``: positions
    whose step is another one than in the prediction that it was made from.
    """

    placement: Placement
    given: Mapping[Edge, Scale]
    form: NormalForm
    steps: Mapping[int, Step]
    stories: Mapping[str, Story]
    changed: tuple[int, ...] = ()

    @cached_property
    def layers(self) -> tuple[PredictedLayer, ...]:
        """The layers in execution order."""
        found: list[PredictedLayer] = []
        made: dict[Conversion, int] = {}
        for _, step in sorted(self.steps.items(), key=itemgetter(0)):
            made.update({c: i for i, c in enumerate(step.conversions, start=len(found))})
            found += step.layers
            for conversion, edge in step.served:
                known = found[made[conversion]]
                found[made[conversion]] = replace(known, edges=(*known.edges, edge))
        return tuple(found)

    @property
    def plan(self) -> Plan:
        """The layers without times."""
        layers = tuple(predicted.layer for predicted in self.layers)
        return Plan(layers, "predicted from rules", estimated=True)


_BLANK = Prediction(EMPTY, {}, NormalForm({}, {}), {}, {})


class Predictor:
    """Predicts plans of one model for one target; made once, used for every placement.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``. Graph
    inputs and outputs keep the model's types.
    """

    def __init__(
        self, graph: Graph, rules: Sequence[Rule], target: Target, base: str, integer: str
    ) -> None:
        self._engine = _Engine(graph, target, base, integer)
        rules = [rule for rule in rules if target.meets(rule.when)]
        links = find_links(find_passages(graph, rules))
        self._links: Mapping[Edge, Link] = {edge: link for link in links for edge in link.edges}
        self._parts = find_parts(graph, rules, target)
        self._step = lru_cache(maxsize=KEPT_STEPS)(self._make_step)

    def predict(self, placement: Placement, near: Prediction | None = None) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph.

        ``near``: a prediction of this predictor. It changes nothing but the time taken, which is
        that for what ``placement`` changes of it.
        """
        given, form, changed = self._move(placement, near or _BLANK)
        new = Prediction(placement, given, form, {}, {})
        if near is None:
            return self._continue(_BLANK, new, self._parts)
        parts = {part for edge in changed for part in self._parts_at.get(edge, ())}
        return self._continue(near, new, parts)

    @cached_property
    def _parts_at(self) -> Mapping[Edge, tuple[Part, ...]]:
        """The parts in which it matters what pair an edge carries."""
        found: dict[Edge, tuple[Part, ...]] = {}
        for part in self._parts:
            for edge in part.edges:
                found[edge] = (*found.get(edge, ()), part)
        return found

    def _move(
        self, placement: Placement, near: Prediction
    ) -> tuple[dict[Edge, Scale], NormalForm, set[Edge]]:
        """Scales before motion, the form, and the edges that the form has other scales at."""
        gone = {edge for group in near.placement.groups - placement.groups for edge in group}
        groups = placement.groups - near.placement.groups
        come = {edge: scale for group in groups for scale in [scale_of(group)] for edge in group}
        given = _replaced(near.given, gone, come)
        edges = {e for e in gone | come.keys() if given.get(e) != near.given.get(e)}
        moved = {edge: given[edge] for edge in edges if edge in given}
        second: dict[Edge, Scale] = {}
        for link in {self._links[edge] for edge in edges if edge in self._links}:
            form = move_pairs({e: given[e] for e in link.edges if e in given}, link.passages)
            edges |= link.edges
            moved.update(form.scales)
            second.update(form.second)
        form = NormalForm(
            _replaced(near.form.scales, edges, moved), _replaced(near.form.second, edges, second)
        )
        return given, form, {edge for edge in edges if form.chain(edge) != near.form.chain(edge)}

    def _continue(self, near: Prediction, new: Prediction, parts: Iterable[Part]) -> Prediction:
        """``new`` with its steps, which outside ``parts`` differ from ``near``'s only by what
        there is of the tensors that they read.
        """
        steps, stories = dict(near.steps), dict(near.stories)
        due: dict[int, Block | None] = {}
        for part in parts:
            due.update(dict.fromkeys(block.position for block in part.alone))
            due.update(part.blocks(new.form))
        waiting = sorted(due)
        seen: set[int] = set()
        while waiting:
            position = heapq.heappop(waiting)
            seen.add(position)
            old = steps.pop(position, None)
            block = due.get(position, None if old is None else old.block)
            step = None if block is None else self._take(block, new.form, stories)
            if step is not None:
                steps[position] = step
            if step is not old:
                for later in _retell(near.stories, stories, position, old, step):
                    heapq.heappush(waiting, later)
        changed = tuple(i for i in sorted(seen) if steps.get(i) is not near.steps.get(i))
        return replace(new, steps=steps, stories=stories, changed=changed)

    def _take(self, block: Block, form: NormalForm, stories: Mapping[str, Story]) -> Step:
        stocks = tuple(_behind(stories.get(t, ()), block.position - 1) for t in block.stocked)
        return self._step(
            block, tuple(map(form.chain, block.reads)), block.output_scale(form), stocks
        )

    def _make_step(
        self,
        block: Block,
        chains: tuple[Scales, ...],
        scale: Scale | None,
        stocks: tuple[Stock | None, ...],
    ) -> Step:
        draft = _Draft(
            block,
            self._engine,
            dict(zip(block.reads, chains, strict=True)),
            {
                tensor: stock or Stock((((), _type_name(self._engine.graph, tensor)),))
                for tensor, stock in zip(block.stocked, stocks, strict=True)
            },
        )
        if block.nodes:
            draft.add_layer(scale)
        else:
            draft.write_output()
        return draft.step()


def _replaced(
    old: Mapping[Edge, Scale], edges: Iterable[Edge], new: Mapping[Edge, Scale]
) -> dict[Edge, Scale]:
    """``old`` with ``new`` instead of what it has of ``edges``."""
    found = dict(old)
    for edge in edges:
        found.pop(edge, None)
    found.update(new)
    return found


def _behind(story: Story, position: int) -> Stock | None:
    """What there is behind ``position``, None where nothing before has dealt with the tensor."""
    index = bisect_right(story, position, key=itemgetter(0))
    return story[index - 1][1] if index else None


def _retell(
    before: Mapping[str, Story],
    stories: dict[str, Story],
    position: int,
    old: Step | None,
    new: Step | None,
) -> Iterator[int]:
    """Put ``new`` instead of ``old`` into ``stories``.

    Yields the next position of each tensor of which there is something else now than ``before``.
    """
    stocks = {} if new is None else new.stocks
    for tensor in stocks.keys() | ({} if old is None else old.stocks).keys():
        story = stories.get(tensor, ())
        start = bisect_left(story, position, key=itemgetter(0))
        rest = story[start:]
        if rest and rest[0][0] == position:
            rest = rest[1:]
        own = ((position, stocks[tensor]),) if tensor in stocks else ()
        stories[tensor] = (*story[:start], *own, *rest)
        now = _behind(stories[tensor], position)
        if rest and now != _behind(before.get(tensor, ()), position):
            yield rest[0][0]


@dataclass(frozen=True)
class _Engine:
    """What layers are predicted for."""

    graph: Graph
    target: Target
    base: str
    integer: str


@dataclass
class _Draft:
    """The step of one block as it grows.

    ``chains``: by edge that the block reads. ``stocks``: of all float tensors of the block.
    """

    block: Block
    engine: _Engine
    chains: Mapping[Edge, Scales]
    stocks: dict[str, Stock]
    layers: list[PredictedLayer] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    served: list[tuple[Conversion, Edge]] = field(default_factory=list)

    def step(self) -> Step:
        """What was added."""
        return Step(
            self.block,
            tuple(self.layers),
            tuple(self.conversions),
            tuple(self.served),
            self.stocks,
        )

    def add_layer(self, scale: Scale | None) -> None:
        """Add the layer, which writes integers of ``scale``, and the conversions before it."""
        nodes, claim = self.block.nodes, self.block.claim
        reads = {edge: self._read(edge, claim) for edge in self.block.reads}
        if _takes_any(claim):
            reads = self._alike(reads)
        outputs = []
        for tensor in self.block.writes:
            port = Port(self._output_type(tensor, claim, reads, scale), tensor=tensor)
            if tensor in self.stocks:
                ready = (() if scale is None else (scale,), port.dtype)
                self.stocks[tensor] = self.stocks[tensor]._replace(ready=(ready,))
            outputs.append(port)
        op = _operator(nodes, claim)
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=tuple(node.name for node in nodes),
            inputs=tuple(reads.values()),
            outputs=tuple(outputs),
            kind="no-op" if op == NO_OP else "compute",
        )
        self.layers.append(PredictedLayer(layer, nodes, claim, self.block.reads))

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.block.reads
        port = self._float(edge)
        declared = _type_name(self.engine.graph, edge.tensor)
        if port.dtype != declared:
            self._reformat(edge, port, declared)

    def _port(self, tensor: str) -> Port:
        """What was written of ``tensor``; a graph input is there in its declared type."""
        stock = self.stocks.get(tensor)
        return Port(
            _type_name(self.engine.graph, tensor) if stock is None else stock.ready[0][1],
            tensor=tensor,
        )

    def _read(self, edge: Edge, claim: Claim | None) -> Port:
        if edge.tensor not in self.stocks:
            return self._port(edge.tensor)
        if claim is not None and edge in claim.demanded and claim.fusion.inputs != FLOAT:
            return self._integers(edge)
        is_like = claim is not None and claim.like == edge
        port = self._float(edge, is_like)
        if port.dtype == self.engine.base or _takes_any(claim):
            return port
        if is_like and self._is_dequantized(edge):
            return port
        return self._reformat(edge, port, self.engine.base)

    def _alike(self, reads: dict[Edge, Port]) -> dict[Edge, Port]:
        """One float type for a layer that takes any."""
        floats = {port.dtype for port in reads.values() if port.dtype in _FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self._reformat(edge, port, self.engine.base)
            if port.dtype in floats - {self.engine.base}
            else port
            for edge, port in reads.items()
        }

    def _integers(self, edge: Edge) -> Port:
        """The tensor in the scale that ``edge`` has, through the conversions it takes."""
        integer = self.engine.integer
        chain = self.chains[edge]
        for length in range(1, len(chain) + 1):
            ready = dict(self.stocks[edge.tensor].ready)
            scales = chain[:length]
            if scales in ready:
                self._serve(edge, integer, scales)
                continue
            source = ready[scales[:-1]] if length > 1 else next(iter(ready.values()))
            kind: Kind = "quantize" if source != integer else "requantize"
            self._convert(edge, kind, Port(source, tensor=edge.tensor), integer, scales)
            stock = self.stocks[edge.tensor]
            self.stocks[edge.tensor] = stock._replace(ready=(*stock.ready, (scales, integer)))
        return Port(dict(self.stocks[edge.tensor].ready)[chain], tensor=edge.tensor)

    def _is_dequantized(self, edge: Edge) -> bool:
        return bool(self.chains[edge]) or () not in dict(self.stocks[edge.tensor].ready)

    def _float(self, edge: Edge, is_like: bool = False) -> Port:
        """The tensor in float: as written, or through the DQ of the pair on ``edge``."""
        port = self._port(edge.tensor)
        chain = self.chains[edge]
        if not chain and port.dtype != self.engine.integer:
            return port
        source = self._integers(edge) if chain else port
        scales = chain or self.stocks[edge.tensor].ready[0][0]
        # Under weak typing DQ writes the type of its scale, FP32, where a residual is added;
        # elsewhere the type that its reader computes in.
        dtype = FLOAT if is_like and self.engine.target.typing == "weak" else self.engine.base
        if edge.is_graph_output:
            dtype = _type_name(self.engine.graph, edge.tensor)
        known = self._serve(edge, dtype, scales)
        return known or self._convert(edge, "dequantize", source, dtype, scales)

    def _reformat(self, edge: Edge, source: Port, dtype: str) -> Port:
        return self._serve(edge, dtype, ()) or self._convert(edge, "reformat", source, dtype, ())

    def _convert(self, edge: Edge, kind: Kind, source: Port, dtype: str, scales: Scales) -> Port:
        port = Port(dtype, tensor=edge.tensor)
        stock = self.stocks[edge.tensor]
        ordinal = sum(known.kind == kind for known in stock.conversions)
        conversion = Conversion(edge.tensor, dtype, scales, kind, ordinal)
        self.stocks[edge.tensor] = stock._replace(conversions=(*stock.conversions, conversion))
        layer = Layer(f"{kind} {edge.tensor}", "Reformat", (), (source,), (port,), kind)
        self.conversions.append(conversion)
        self.layers.append(PredictedLayer(layer, (), None, (edge,), ordinal))
        return port

    def _serve(self, edge: Edge, dtype: str, scales: Scales) -> Port | None:
        """What an earlier conversion wrote for other edges, noting that it serves ``edge`` too."""
        for known in self.stocks[edge.tensor].conversions:
            if (known.dtype, known.scales) == (dtype, scales):
                self.served.append((known, edge))
                return Port(dtype, tensor=edge.tensor)
        return None

    def _output_type(
        self,
        tensor: str,
        claim: Claim | None,
        reads: Mapping[Edge, Port],
        scale: Scale | None,
    ) -> str:
        if tensor not in self.stocks:
            return _type_name(self.engine.graph, tensor)
        if scale is not None:
            return self.engine.integer
        floats = [port.dtype for port in reads.values() if port.dtype in _FLOATS]
        if claim is None or claim.fusion.outputs == "same":
            return floats[0] if floats else self.engine.base
        if claim.like is not None and claim.like in reads:
            like = reads[claim.like].dtype
            return like if like in _FLOATS else self.engine.base
        if claim.fusion.float_type is not None:
            return claim.fusion.float_type
        readers = self.engine.graph.edges_of(tensor)
        if self.engine.target.typing == "weak" and claim.demanded and _all_leave(readers):
            # Kernels that read INT8 write FP32 as well.
            return _type_name(self.engine.graph, tensor)
        return self.engine.base


_FLOATS = frozenset({"float", "float16", "bfloat16", "double"})


def _takes_any(claim: Claim | None) -> bool:
    """Whether the layer computes in the float type that it gets."""
    return claim is None or claim.fusion.outputs == "same"


def _all_leave(edges: Iterable[Edge]) -> bool:
    return all(edge.is_graph_output for edge in edges)


def _type_name(graph: Graph, tensor: str) -> str:
    dtype = graph.type_of(tensor).dtype
    return UNKNOWN if dtype is None else str(TensorProto.DataType.Name(dtype)).lower()


def _operator(nodes: Sequence[Node], claim: Claim | None) -> str:
    if claim is None:
        return nodes[0].op
    names = claim.fusion.op
    if len(names) == 1:
        return names[0]
    # One name per operator that the pattern's first fused node may have.
    first = claim.fusion.nodes[0]
    alternatives = claim.match.rule.pattern[first].op
    return dict(zip(alternatives, names, strict=False)).get(claim.match.nodes[first].op, names[0])
