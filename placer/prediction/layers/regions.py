"""Which of the overlapping layer candidates are built, and which merge, region by region."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.claims import FLOAT, Claim, find_claims
from placer.prediction.layers.clamps import Exceeds, edges_behind_clamps, is_held_back
from placer.prediction.layers.dequantized import edges_behind
from placer.prediction.layers.followers import followers
from placer.prediction.layers.fused_chains import find_fused_chains, merges
from placer.prediction.layers.integer_readers import IntegerReaders, find_integer_readers
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.merging import find_groups, rule_of, start_of, writers_of
from placer.prediction.layers.motion import NormalForm, Passage, Scale
from placer.prediction.layers.moved_scales import beside, ends_of_scales, may_leave_scales
from placer.prediction.layers.operands import Operand, find_operands
from placer.prediction.layers.passages import find_shared
from placer.prediction.layers.residuals import behind_sums, in_a_row
from placer.prediction.layers.siblings import groups_of, joined, joins, taken_apart
from placer.rules.connected import connected
from placer.rules.fusion_schema import Fusion
from placer.rules.matcher import Matches
from placer.rules.schema import Rule
from placer.rules.target import Target

LONG = 6  # Nodes of a layer of fewer are near each other.


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes whose claims overlap: which of them are met is decided apart from all others.

    ``claimed``: candidates in the order in which they take their nodes. ``alone``: the candidates
    of nodes that nothing took, and of graph outputs. ``integer_readers``: of the edges on which
    others read what it writes, where it matters. ``operands``: among these edges and those that it
    reads. ``merged``: candidates that are known to be made of several, by these; a step is
    remembered by its candidate.
    """

    claimed: tuple[LayerCandidate, ...]
    alone: tuple[LayerCandidate, ...]
    integer_readers: IntegerReaders = field(default_factory=dict)
    operands: Mapping[Edge, Operand] = field(default_factory=dict)
    merged: dict[tuple[tuple[LayerCandidate, ...], frozenset[Edge]], LayerCandidate] = field(
        default_factory=dict
    )

    @property
    def outside(self) -> frozenset[Edge]:
        """What else it depends on than the pairs on edges into and out of its nodes."""
        looked_at = list[Edge]()
        for candidate in self.claimed:
            if candidate.claim is not None:
                looked_at += _looked_at(candidate.claim, candidate.graph)
        for readers in self.integer_readers.values():
            looked_at += [edge for one in readers for edge in (*one.paired, *one.bare)]
        looked_at += [edge for operand in self.operands.values() for edge in operand.edges]
        for candidate in self.alone:
            for node in candidate.nodes:
                looked_at += edges_behind_clamps(node, candidate.graph)
        return frozenset(looked_at)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """What it depends on: the pairs on edges into and out of its nodes, and outside."""
        edges_read = [edge for candidate in self.alone for edge in candidate.reads]
        for candidate in self.alone:
            for node in candidate.nodes:
                edges_read += candidate.graph.edges_into(node)
            edges_read += candidate.readers
        return tuple(dict.fromkeys([*edges_read, *sorted(self.outside)]))

    @cached_property
    def asks_for_pairs(self) -> bool:
        """Whether it matters if any activation of the model carries a pair."""
        claims = [c.claim for c in self.claimed if c.claim is not None]
        return any(claim.with_pairs is not None for claim in claims) or any(
            map(may_leave_scales, self.claimed)
        )

    @property
    def spans(self) -> tuple[frozenset[str], ...]:
        """Nodes, by name, of which however many may become one layer."""
        reaches = [*_neighbours(self.claimed), *map(_reach, self.claimed)]
        parts = [part for part in reaches if len(part) > 1]
        # Not of claimed layers alone: a scale may be a node of which no rule says anything.
        nodes = self.claimed[0].graph.nodes if parts else ()
        return tuple(
            frozenset(nodes[index].name for i in part for index in parts[i])
            for part in connected(parts)
        )

    @property
    def long_layers(self) -> Iterator[frozenset[str]]:
        """The nodes, by name, of each layer that rules make of many."""
        for candidate in self.claimed:
            if len(candidate.nodes) >= LONG:
                yield frozenset(node.name for node in candidate.nodes)

    def candidates(
        self,
        form: NormalForm,
        has_zero_point: Callable[[Scale], bool],
        exceeds: Exceeds | None = None,
        refuses: Callable[[LayerCandidate, NormalForm], bool] | None = None,
        has_pairs: bool = True,
    ) -> dict[int, LayerCandidate]:
        """What the engine builds, by position; see ``BuildTarget`` and ``Decisions.of``."""
        kept = frozenset() if exceeds is None else self._before_kept_clamps(form, exceeds)
        if refuses is not None:
            kept |= {candidate for candidate in self.claimed if refuses(candidate, form)}
        chosen = self._chosen(form, kept)
        apart = taken_apart(chosen, form) | behind_sums(chosen, form)
        if apart:
            chosen = self._chosen(form, apart.union(kept))
        for group in groups_of(self.claimed, chosen, form):
            _join(chosen, group, self._whole(group))
        for chain in find_fused_chains(chosen, form, has_zero_point, has_pairs):
            whole = self._whole(chain.group, chain.movers, chain.position, chain.copied)
            _join(chosen, chain.group, whole)
            left = {node.index for part in chain.group for node in part.nodes}.intersection(
                mover.index for mover in chain.movers
            )
            chosen.update((lone.position, lone) for lone in self.alone if lone.position in left)
        for group in find_groups(chosen, form, self.operands):
            _join(chosen, group, self._whole(group, position=start_of(group)))
        return chosen

    def _before_kept_clamps(self, form: NormalForm, exceeds: Exceeds) -> frozenset[LayerCandidate]:
        """Those that rest on a Q's doing what a Relu or Clip does, where it does not."""
        return frozenset(
            candidate
            for candidate in self.claimed
            if candidate.claim is not None and _implies(candidate.claim)
            if any(
                bounds is None or exceeds(scale, bounds)
                for scale, bounds in candidate.clamped_scales(form)
            )
            or _is_held_back(candidate, candidate.claim, form, exceeds)
        )

    def _chosen(
        self, form: NormalForm, apart: Container[LayerCandidate] = ()
    ) -> dict[int, LayerCandidate]:
        """The layers that take their nodes first, by position, but those ``apart``."""
        taken: set[int] = set()
        chosen: dict[int, LayerCandidate] = {}
        for candidate in self.claimed:
            indices = [node.index for node in candidate.nodes]
            if taken.isdisjoint(indices) and candidate not in apart and candidate.is_met(form):
                taken.update(indices)
                chosen[candidate.position] = candidate
        for candidate in self.alone:
            if candidate.position not in taken:
                chosen[candidate.position] = candidate
        return chosen

    def _whole(
        self,
        group: Sequence[LayerCandidate],
        movers: Sequence[Node] = (),
        position: int | None = None,
        copied: frozenset[Edge] = frozenset(),
    ) -> LayerCandidate:
        """The layer that the candidates of ``group`` are together; ``movers`` run after it.

        ``position``: where it runs; by default where its last part would. ``copied``: of its claim.
        """
        key = (tuple(group), copied)
        if key not in self.merged:
            self.merged[key] = _merged(group, movers, position, copied)
        return self.merged[key]


def _implies(claim: Claim) -> bool:
    """Whether the claimed layer rests on pairs: it reads integers, or is none where Q saturates."""
    return _reads_integers(claim) or claim.fusion.is_no_op


def _reads_integers(claim: Claim) -> bool:
    return bool(claim.demanded) and claim.fusion.inputs != FLOAT


def _join(
    chosen: dict[int, LayerCandidate], parts: Iterable[LayerCandidate], whole: LayerCandidate
) -> None:
    """Let ``whole`` take the place of its parts."""
    for part in parts:
        del chosen[part.position]
    chosen[whole.position] = whole


def _is_held_back(
    candidate: LayerCandidate, claim: Claim, form: NormalForm, exceeds: Exceeds
) -> bool:
    """Whether a Relu or Clip behind keeps what reads integers in float."""
    if not _reads_integers(claim):
        return False
    reading = {edge.node for edge in claim.demanded}
    inside = {node.name for node in candidate.nodes}
    for node in candidate.nodes:
        readers = (e.node for t in node.outputs for e in candidate.graph.edges_of(t))
        if node.name in reading and inside.isdisjoint(readers):
            return is_held_back(node, candidate.graph, form, exceeds)
    return False


def _looked_at(claim: Claim, graph: Graph) -> Iterator[Edge]:
    """Edges whose pairs decide on ``claim`` besides those that it demands."""
    yield from (*claim.absorbed, *claim.bare)
    for edges in (*(others for _, others in claim.beside), *claim.sums):
        yield from edges
    for edge in claim.undequantized:
        yield from edges_behind(edge, graph)


def find_regions(
    matches: Matches,
    rules: Sequence[Rule],
    target: Target,
    passages: Sequence[Passage] | None,
    stored: Iterable[str],
    floats: frozenset[str],
) -> tuple[Region, ...]:
    """All regions of a graph; ``rules`` must be those that hold for ``target``.

    ``passages``: of the graph, where it matters which edges are read as integers. ``stored``: graph
    inputs and outputs that are integers outside. ``floats``: names of nodes that no integer kernel
    runs.
    """
    graph = matches.graph
    shared = find_shared(matches, rules)
    claims = [
        _with_beside(claim, shared)
        for rule in rules
        for claim in find_claims(matches, rule, target)
        if not claim.demanded or floats.isdisjoint(node.name for node in claim.nodes)
    ]
    operands = {} if passages is None else find_operands(graph, graph.nodes)
    integer_readers = (
        {} if passages is None else find_integer_readers(claims, passages, graph, stored)
    )
    claimed = [
        LayerCandidate(claim.nodes[-1].index, claim.nodes, claim, graph)
        for claim in sorted(claims, key=lambda claim: claim.rank)
    ]
    candidates = [*claimed, *_unclaimed(graph)]
    places = [[n.index for n in b.nodes] or [b.position] for b in candidates]
    connections = [*places, *_neighbours(claimed), *filter(None, map(_reach, claimed))]
    return tuple(
        _region([candidates[i] for i in part if i < len(candidates)], integer_readers, operands)
        for part in connected(connections)
    )


def _unclaimed(graph: Graph) -> Iterator[LayerCandidate]:
    """Each node by itself, and the float outputs of the graph."""
    for node in graph.nodes:
        yield LayerCandidate(node.index, (node,), None, graph)
    for index, tensor in enumerate(graph.outputs):
        if graph.type_of(tensor).is_float:
            yield LayerCandidate(len(graph.nodes) + index, (), None, graph)


def _region(
    members: Sequence[LayerCandidate],
    integer_readers: IntegerReaders,
    operands: Mapping[Edge, Operand],
) -> Region:
    """The region of ``members``, with what is known of the edges of those without a claim."""
    alone = tuple(candidate for candidate in members if candidate.claim is None)
    readers = dict.fromkeys(edge for candidate in alone for edge in candidate.readers)
    reads = dict.fromkeys(edge for candidate in alone for edge in candidate.reads)
    return Region(
        tuple(candidate for candidate in members if candidate.claim is not None),
        alone,
        {edge: integer_readers[edge] for edge in readers if edge in integer_readers},
        {edge: operands[edge] for edge in (*readers, *reads) if edge in operands},
    )


def _with_beside(claim: Claim, shared: Mapping[Edge, tuple[Edge, ...]]) -> Claim:
    beside = tuple((edge, shared[edge]) for edge in claim.demanded if edge in shared)
    return replace(claim, beside=beside) if beside else claim


def _reach(candidate: LayerCandidate) -> tuple[int, ...]:
    """The indices of the nodes that the layer takes along and past, with that of its own last."""
    positions = tuple([node.index for part in followers(candidate) for node in part.with_movers])
    return (candidate.position, *positions) if positions else ()


def _neighbours(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[int, int]]:
    """The nodes that read each other and may be part of one merged layer, by their indices."""
    yield from in_a_row(claimed)
    yield from beside(claimed)
    copied = ends_of_scales(claimed)
    parts = {c.position: c for c in claimed if merges(c)}
    for positions in joined(claimed):
        yield from pairwise(positions)
    for candidate in parts.values():
        writers = writers_of(candidate)
        for writer in writers:
            if writer not in parts or rule_of(parts[writer]) != rule_of(candidate):
                continue
            # What merges with nothing and runs between them keeps them apart in any group.
            graph = candidate.graph
            others = [graph.by_name[e.node] for e in parts[writer].readers if not e.is_graph_output]
            is_near = all(o.index > max(writers) or o.index in parts for o in others)
            if is_near or writer in copied:
                yield writer, candidate.position


def _merged(
    group: Sequence[LayerCandidate],
    movers: Sequence[Node],
    position: int | None,
    copied: frozenset[Edge],
) -> LayerCandidate:
    # What joins reads one tensor, and readers of its first part may come before the last.
    last = group[0 if joins(group[0]) else -1].position
    nodes = tuple([n for part in group for n in part.nodes if n not in movers])
    claim = group[0].claim
    claims = [part.claim for part in group if part.claim is not None]
    demanded = tuple([edge for one in claims for edge in one.demanded])
    names = {name for one in claims for name in one.movers} | {node.name for node in movers}
    later = sorted(map(group[0].graph.by_name.__getitem__, names), key=attrgetter("index"))
    return LayerCandidate(
        position=last if position is None else position,
        nodes=nodes,
        claim=None
        if claim is None
        else replace(
            claim,
            fusion=_fusion_of(group, claim.fusion, later),
            nodes=nodes,
            demanded=demanded,
            movers=frozenset(node.name for node in later),
            copied=copied.union(*(one.copied for one in claims)),
        ),
        graph=group[0].graph,
    )


def _fusion_of(group: Sequence[LayerCandidate], fusion: Fusion, movers: Sequence[Node]) -> Fusion:
    """That of a layer of several; what joins writes each tensor as its readers need it.

    Q moves before a Transpose only, so that with other movers it stays behind them.
    """
    if joins(group[0]) and fusion.outputs == "readers":
        return fusion.model_copy(update={"outputs": "each"})
    if movers and movers[-1].op != "Transpose":
        return fusion.model_copy(update={"outputs": FLOAT})
    return fusion
