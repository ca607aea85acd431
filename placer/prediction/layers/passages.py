"""The nodes of a graph past which rules let Q and DQ move, and which of them are linked."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge, Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.prediction.layers.motion import NormalForm, Passage, Scale
from placer.prediction.layers.operands import FOLLOWING
from placer.rules.connected import connected
from placer.rules.match import Match
from placer.rules.matcher import Matches
from placer.rules.schema import Motion, Rule

_Place = tuple[Edge, bool]  # Of a pair: its edge, and whether it is the last one there.


@dataclass(frozen=True, eq=False)
class Link:
    """Passages that share tensors: pairs move within a link and never to another one.

    ``edges``: all of these tensors. ``signed``: those on which integers must be signed.
    """

    passages: tuple[Passage, ...]
    edges: frozenset[Edge]
    signed: frozenset[Edge] = frozenset()

    @cached_property
    def _leading_to(self) -> Mapping[Edge, Sequence[Edge]]:
        """By edge behind a passage those before it."""
        before: dict[Edge, list[Edge]] = {}
        for passage in self.passages:
            for edge in passage.after:
                before.setdefault(edge, []).extend(passage.before)
        return before

    @cached_property
    def _behind(self) -> Mapping[str, Sequence[Edge]]:
        """By tensor the edges behind the passages that read it."""
        behind: dict[str, list[Edge]] = {}
        for passage in self.passages:
            for tensor in dict.fromkeys(edge.tensor for edge in passage.before):
                behind.setdefault(tensor, []).extend(passage.after)
        return behind

    @cached_property
    def _beside(self) -> Mapping[str, Sequence[Edge]]:
        """By tensor its edges."""
        beside: dict[str, list[Edge]] = {}
        for edge in self.edges:
            beside.setdefault(edge.tensor, []).append(edge)
        return beside

    def with_apart(self, form: NormalForm, given: Container[Edge]) -> NormalForm:
        """``form`` with the scales told apart of what Q that moved quantizes by itself.

        ``given``: the edges that had a pair before motion.
        """
        scales = dict(form.scales)
        for passage in self.passages:
            for edge in passage.apart:
                moved = scales.get(edge)
                if moved is not None and edge not in given:
                    scales[edge] = moved._replace(apart=True)
        return NormalForm(scales, form.second)

    def with_signs(self, form: NormalForm, given: Container[Edge]) -> NormalForm:
        """``form`` with the scales told apart in which signed integers are needed.

        Those of the last pairs before ``signed``, wherever they stand, and wherever what these
        write is read. Pairs of one scale that stand apart quantize apart. ``given``: the edges
        that had a pair before motion.
        """
        places = self._leading_to_signed(form, given)
        waiting = list(places)
        while waiting:
            for other in self._also_read(waiting.pop(), form, given):
                if other not in places:
                    places.add(other)
                    waiting.append(other)
        if not places:
            return form
        arriving = {edge for edge, is_last in places if not is_last or edge not in form.second}
        second = {edge for edge, is_last in places if is_last}
        return NormalForm(_signed(form.scales, arriving), _signed(form.second, second))

    def _leading_to_signed(self, form: NormalForm, given: Container[Edge]) -> set[_Place]:
        waiting, places = list(self.signed), set[_Place]()
        while waiting:
            edge = waiting.pop()
            scale = form.last(edge)
            if scale is None or (edge, True) in places:
                continue
            places.add((edge, True))
            for before in self._leading_to.get(edge, ()):
                last_scale = form.last(before)
                if last_scale is None or not last_scale.tensors <= scale.tensors:
                    continue
                # Q of a given pair is what writes the integers, unless it moved on.
                if edge not in given or (last_scale == scale and before not in given):
                    waiting.append(before)
        return places

    def _also_read(
        self, place: _Place, form: NormalForm, given: Container[Edge]
    ) -> Iterator[_Place]:
        """Where the integers of ``place`` are read, too: beside it, and behind what passes them."""
        edge, is_last = place
        scale = form.last(edge) if is_last else form.scales[edge]
        for other in self._beside[edge.tensor]:
            if is_last and edge in given and other in given and form.last(other) == scale:
                yield other, True
        if not is_last and edge in form.second:
            return  # What passes the node is in the second scale.
        for other in self._behind.get(edge.tensor, ()):
            if form.scales.get(other) == scale and (other not in given or other in form.second):
                yield other, other not in form.second


def find_passages(matches: Matches, rules: Iterable[Rule]) -> tuple[Passage, ...]:
    """The nodes of a graph that rules let Q and DQ pass, in node order."""
    by_place = [
        (match.anchor.index, _passage(match, motion, matches.graph))
        for rule in rules
        if (motion := rule.motion) is not None
        for match in matches.of(rule)
    ]
    return tuple(passage for _, passage in sorted(by_place, key=lambda item: item[0]))


def _passage(match: Match, motion: Motion, graph: Graph) -> Passage:
    inside = {node.name for node in match.nodes.values()}
    read, written = match.tensors[motion.before], match.tensors[motion.after]
    between = {t for node in match.nodes.values() for t in node.outputs} - {*read, *written}
    entering = [
        edge
        for edge in _edges_of(read, graph)
        if edge.node in inside and edge.tensor not in graph.initializers
    ]
    backward = motion.only != "forward" and not (motion.exclusive and _is_shared(read, graph))
    forward = motion.only != "backward" and not (motion.exclusive and _leaves(written, graph))
    return Passage(
        before=tuple(entering),
        after=_edges_of(written, graph),
        inside=_edges_of(sorted(between), graph),
        backward=backward,
        forward=forward,
        per_channel=motion.per_channel,
        forward_first=motion.forward_first and forward,
        apart=tuple(_apart(entering, graph)) if motion.apart in match.nodes else (),
        whole=motion.exclusive,
        turns=all(node.op == "Transpose" for node in match.nodes.values()),
    )


def _edges_of(tensors: Iterable[str], graph: Graph) -> tuple[Edge, ...]:
    return tuple(edge for tensor in tensors for edge in graph.edges_of(tensor))


def _is_shared(tensors: Iterable[str], graph: Graph) -> bool:
    """Whether something else reads one of ``tensors``, unless that is a graph input."""
    return any(len(graph.edges_of(t)) != 1 and t not in graph.inputs for t in tensors)


def _leaves(tensors: Iterable[str], graph: Graph) -> bool:
    """Whether one of ``tensors`` is a graph output that nodes read as well."""
    return any(t in graph.outputs and len(graph.edges_of(t)) > 1 for t in tensors)


def _apart(edges: Sequence[Edge], graph: Graph) -> Sequence[Edge]:
    """Those of ``edges`` that products write, if there are several.

    What else is quantized there is in compiled kernels, which have constants of their own.
    """
    of_products = [edge for edge in edges if _is_of_product(edge.tensor, graph)]
    return of_products if len(of_products) > 1 else ()


def _is_of_product(tensor: str, graph: Graph) -> bool:
    """Whether a product writes it, or what is element-wise and alone behind one."""
    node = graph.producer.get(tensor)
    while node is not None and node.op in FOLLOWING and len(graph.edges_of(node.outputs[0])) == 1:
        read = [t for t in node.inputs if t and t not in graph.initializers]
        node = graph.producer.get(read[0]) if len(read) == 1 else None
    return node is not None and node.op in WEIGHTED_OPS


def _signed(pairs: Mapping[Edge, Scale], edges: Set[Edge]) -> Mapping[Edge, Scale]:
    return {e: s._replace(signed=True) if e in edges else s for e, s in pairs.items()}


def find_links(
    passages: Sequence[Passage], graph: Graph, signed: Set[Edge] = frozenset()
) -> tuple[Link, ...]:
    """Split ``passages`` into links, in which their order is kept.

    ``signed``: edges on which integers must be signed; each is in a link.
    """
    places = [{e.tensor for e in (*p.before, *p.after)} for p in passages]
    alone = sorted({edge.tensor for edge in signed})
    links = []
    for part in connected([*places, *([tensor] for tensor in alone)]):
        linked = tuple(passages[i] for i in part if i < len(passages))
        tensors = {t for i in part if i < len(passages) for t in places[i]}
        tensors |= {alone[i - len(passages)] for i in part if i >= len(passages)}
        edges = frozenset(edge for tensor in tensors for edge in graph.edges_of(tensor))
        links.append(Link(linked, edges, edges & signed))
    return tuple(links)


def linked_nodes(links: Iterable[Link], graph: Graph) -> tuple[frozenset[str], ...]:
    """Of each link the names of the nodes that write or read its tensors."""
    node_sets = []
    for link in links:
        writers = (graph.producer.get(edge.tensor) for edge in link.edges)
        readers = {edge.node for edge in link.edges if not edge.is_graph_output}
        node_sets.append(frozenset(readers | {node.name for node in writers if node is not None}))
    return tuple(node_sets)


def find_signed(matches: Matches, rules: Iterable[Rule]) -> frozenset[Edge]:
    """The edges of ``Rule.signed``."""
    return frozenset(_wanted([(rule, rule.signed) for rule in rules], matches))


def find_symmetric(matches: Matches, rules: Iterable[Rule]) -> frozenset[Edge]:
    """The edges of ``Rule.symmetric``."""
    return frozenset(_wanted([(rule, rule.symmetric) for rule in rules], matches))


def find_shared(matches: Matches, rules: Iterable[Rule]) -> Mapping[Edge, tuple[Edge, ...]]:
    """The edges of ``Rule.shared``, each with those of which one must carry the same pair."""
    edges = frozenset(_wanted([(rule, rule.shared) for rule in rules], matches))
    return {
        edge: tuple(e for e in matches.graph.edges_of(edge.tensor) if e not in edges)
        for edge in edges
    }


def find_unsigned(
    matches: Matches, rules: Iterable[Rule], passages: Sequence[Passage]
) -> frozenset[str]:
    """The same of ``Rule.unsigned``, whose pairs are uint8, as far as Q moves backward."""
    moving = [passage for passage in passages if passage.backward]
    return _leading_to([(rule, rule.unsigned) for rule in rules], matches, moving)


def _leading_to(
    wanted: Iterable[tuple[Rule, Sequence[str]]],
    matches: Matches,
    passages: Sequence[Passage],
) -> frozenset[str]:
    """The tensors of the edges that are wanted of each rule's matches, and what leads there."""
    needed = set(_wanted(wanted, matches))
    for passage in reversed(passages):
        if not needed.isdisjoint(passage.after):
            needed.update(passage.before)
    return frozenset(edge.tensor for edge in needed)


def _wanted(wanted: Iterable[tuple[Rule, Sequence[str]]], matches: Matches) -> Iterator[Edge]:
    """The edges that each rule refers to, at all of its matches."""
    for rule, references in wanted:
        if references:
            for match in matches.of(rule):
                for reference in references:
                    yield from match.edges(reference, matches.graph)
