"""Predict an engine's layers: which nodes fuse, what they read and write, which pairs remain.

``placer.prediction.layers.claims`` says which nodes become one layer; here the layers get their
types and the conversions that they need. What a layer needs depends on the pairs near it and on
what is there of the tensors it reads. So a placement is predicted from another one's prediction by
looking only at what changed, and at what follows from that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

from placer.graph import Edge, Graph
from placer.prediction.layers.built_graph import built_graph
from placer.prediction.layers.clamp_motion import clamp_passages
from placer.prediction.layers.conversions import BuildTarget
from placer.prediction.layers.fixed_properties import FixedProperties
from placer.prediction.layers.known_scales import NOTHING_KNOWN, KnownScales
from placer.prediction.layers.layout_options import layout_options
from placer.prediction.layers.linked_motion import LinkedMotion
from placer.prediction.layers.memory_layouts import DEFAULT
from placer.prediction.layers.motion import NormalForm, Scale
from placer.prediction.layers.paired import Decided, Decisions
from placer.prediction.layers.passages import (
    find_links,
    find_passages,
    find_signed,
    find_symmetric,
    find_unsigned,
    linked_nodes,
)
from placer.prediction.layers.prediction import BLANK, Prediction
from placer.prediction.layers.prediction_draft import PredictionDraft, StepsDraft
from placer.prediction.layers.region_index import RegionIndex
from placer.prediction.layers.regions import Region, find_regions
from placer.prediction.layers.steps import Step, make_step
from placer.quantization import Placement
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.behaviour import DEFAULT_BEHAVIOUR, Behaviour
from placer.rules.matcher import Matches
from placer.rules.schema import Rule
from placer.rules.target import Target

KEPT_STEPS = 1 << 17


class Predictor:
    """Predicts plans of one model for one target; made once, used for every placement.

    What the given shapes settle is constant in an engine and no layer here.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``. Graph
    inputs and outputs keep the model's types. ``matches``: of the graph, where they are known.
    ``behaviour``: of the engine, beside ``rules``. ``equal``: by node one that computes the same,
    of which one is run; only where not all no-ops are kept. ``stored``, ``stores_biases``: see
    ``BuildTarget``. ``scales``: what is known of them; where they have zero points, a pair that
    stands before a node and behind it, too, is a layer there. ``asks_for_pairs``: whether what is
    built depends on whether any activation carries a pair, wherever that is.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Sequence[Rule],
        target: Target,
        base: str,
        integer: str,
        matches: Matches | None = None,
        behaviour: Behaviour = DEFAULT_BEHAVIOUR,
        equal: Mapping[str, str] | None = None,
        stored: Mapping[str, str] | None = None,
        stores_biases: bool = False,
        scales: KnownScales = NOTHING_KNOWN,
    ) -> None:
        target = replace(target, base=base, integer=integer)
        self._given = graph.by_name
        self._left = built_graph(graph, behaviour, base, equal)
        graph = self._left.graph
        processor = target.processor
        if matches is None or matches.graph is not graph or matches.processor != processor:
            matches = Matches(graph, processor)
        rules = [rule for rule in rules if target.meets(rule.when)]
        passages = find_passages(matches, rules)
        if scales.outlasts is not None:
            passages = (*passages, *clamp_passages(graph))
        links = find_links(passages, graph, find_signed(matches, rules))
        self._target = BuildTarget(
            graph,
            target,
            base,
            integer,
            behaviour,
            unsigned=find_unsigned(matches, rules, passages),
            scales=scales,
            stored=stored or {},
            stores_biases=stores_biases,
            twins=self._left.twins,
            added=self._left.added,
            symmetric=find_symmetric(matches, rules),
        )
        self._layouts = layout_options(behaviour, target)
        by_edge = {edge: link for link in links for edge in link.edges}
        self._motion = LinkedMotion(by_edge, scales.has_zero_point, scales.outlasts)
        read = passages if self._target.rounds_alone else None
        self._regions = find_regions(matches, rules, target, read, stored or (), self._left.cast)
        self._index = RegionIndex(graph, self._regions)
        self.asks_for_pairs = any(region.asks_for_pairs for region in self._regions)
        self._decisions = Decisions(self._target, by_edge)
        # Not of a method: a predictor that refers to itself is freed late.
        self._step = lru_cache(maxsize=KEPT_STEPS)(partial(make_step, self._target))

    @cached_property
    def spans(self) -> tuple[frozenset[str], ...]:
        """Nodes, by name, of which however many may become one layer."""
        return self._of_given(span for region in self._regions for span in region.spans)

    @cached_property
    def linked(self) -> tuple[frozenset[str], ...]:
        """By name, nodes of one long layer, and nodes that a pair is next to wherever it moves."""
        layers = [layer for region in self._regions for layer in region.long_layers]
        links = dict.fromkeys(self._motion.links.values())
        return self._of_given(dict.fromkeys([*layers, *linked_nodes(links, self._target.graph)]))

    def _of_given(self, node_sets: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
        """``node_sets`` without Casts that the engine inserts, which the given graph lacks."""
        return tuple(names.intersection(self._given) for names in node_sets)

    @cached_property
    def fixed_properties(self) -> FixedProperties:
        """What nodes and tensors are that differ in nothing that a look at the graph shows.

        Nodes may be gone, or part of layers that rules find by what is further away; integers have
        types that follow from ranges.
        """
        roles: dict[str, list[tuple[object, ...]]] = {n.name: [] for n in self._target.graph.nodes}
        for region in self._regions:
            for candidate in region.claimed:
                rule = "" if candidate.claim is None else candidate.claim.match.rule.id
                for place, node in enumerate(candidate.nodes):
                    roles[node.name].append((rule, place, len(candidate.nodes)))
        return FixedProperties(
            {name: tuple(role) for name, role in roles.items()}, self._target.properties_of
        )

    def predict(self, placement: Placement, near: Prediction | None = None) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph.

        ``near``: a prediction of this predictor. It changes nothing but the time taken, which is
        that for what ``placement`` changes of it.
        """
        draft = PredictionDraft(near or BLANK)
        edges = self._move(draft, self._left.change(draft.near.placement, placement))
        draft.form = NormalForm(draft.scales.merged(), draft.second.merged())
        has_pairs = self.has_pairs(placement)
        if near is None or has_pairs != self.has_pairs(near.placement):
            regions: Iterable[Region] = self._regions
        else:
            regions = self._index.concerned(edges)
        decided = [self._decisions.of(region, draft.form, has_pairs) for region in regions]
        draft.built.rebuild(decided, self._step)
        return Prediction(
            placement,
            draft.given.merged(),
            draft.form,
            draft.built.steps.merged(),
            draft.built.histories,
            tuple(sorted(draft.built.changed)),
            None if self._layouts is None else self._target.graph,
            self._layouts or DEFAULT,
        )

    def vary(self, near: Prediction, change: Change) -> Mapping[int, Step | None]:
        """The steps, by position, that ``near`` has otherwise once its placement is changed.

        None: nothing is built there any more. Takes time for what changes only, however large the
        model is; ``near``: a prediction of this predictor.
        """
        draft = PredictionDraft(near)
        has_pairs = self.has_pairs_after(near.placement, change)
        if self._left.touches(change):
            change = self._left.change(near.placement, near.placement.changed(change))
        regions: Iterable[Region] = self._index.concerned(self._move(draft, change))
        if has_pairs != self.has_pairs(near.placement):
            regions = self._regions
        decisions = [self._decisions.of(region, draft.form, has_pairs) for region in regions]
        return self.rebuilt(near, decisions)

    @property
    def with_pairs(self) -> Predictor:
        """One that predicts every placement as if some activation carried a pair.

        This one where that decides nothing.
        """
        if not self.asks_for_pairs:
            return self
        other = copy.copy(self)
        other.asks_for_pairs = False
        return other

    def has_pairs(self, placement: Placement) -> bool:
        """Whether any activation carries a pair; True where that decides nothing."""
        return not self.asks_for_pairs or self._on_activations(placement.groups)

    def has_pairs_after(self, placement: Placement, change: Change) -> bool:
        """``has_pairs`` of ``placement`` once ``change`` is made."""
        if not self.asks_for_pairs or self._on_activations(change.come):
            return True
        left = placement.groups - change.gone if change.gone else placement.groups
        return self._on_activations(left)

    def paired(self, placement: Placement) -> frozenset[str]:
        """The activations that carry a pair."""
        tensors = {edge.tensor for group in placement.groups for edge in group.edges}
        return frozenset(tensors - self._target.graph.initializers.keys())

    def _on_activations(self, groups: Iterable[ScaleGroup]) -> bool:
        constants = self._target.graph.initializers
        return any(edge.tensor not in constants for group in groups for edge in group.edges)

    @property
    def regions(self) -> Sequence[Region]:
        """What is decided apart: see ``decided``."""
        return self._regions

    def deciding(self, region: Region) -> frozenset[str]:
        """The tensors on whose edges pairs decide what is built in ``region``.

        All tensors of one of ``merged`` count if one of them does.
        """
        return frozenset(edge.tensor for edge in self._motion.linked(region.edges))

    @property
    def merged(self) -> Sequence[frozenset[str]]:
        """Tensors that no-ops make one of: a pair on an edge of one is on edges of others."""
        moved = self._left.moved.items()
        return [frozenset({e.tensor, *(end.tensor for end in ends)}) for e, ends in moved]

    def decided(self, region: Region, groups: frozenset[ScaleGroup]) -> Decided:
        """What is built in ``region``; ``groups``: all of a placement on the tensors ``deciding``
        it. Equal ones are one object. Activations carry pairs: see ``with_pairs``.
        """
        placement = self._left.placed(Placement(groups))
        given = self._scales(placement.groups)
        moved = self._motion.moved(region.edges, given)
        form = NormalForm(given | dict(moved.scales), moved.second)
        return self._decisions.of(region, form)

    def rebuilt(self, near: Prediction, decisions: Iterable[Decided]) -> Mapping[int, Step | None]:
        """See ``vary``; ``decisions``: what is decided otherwise than in ``near``."""
        draft = StepsDraft(near)
        draft.rebuild(decisions, self._step)
        return draft.changed

    def _move(self, draft: PredictionDraft, change: Change) -> set[Edge]:
        """Change scales and form; returns the edges that the form has other scales at."""
        near, given = draft.near, draft.given
        come = self._scales(change.come)
        edges = {edge for group in change.gone for edge in group.edges} | come.keys()
        edges = {edge for edge in edges if come.get(edge) != near.given.get(edge)}
        for edge in edges:
            given.put(edge, come.get(edge))
        moved = self._motion.moved(edges, given)
        at_hand = {edge: given[edge] for edge in edges if edge in given} | dict(moved.scales)
        linked = self._motion.linked(edges)
        for edge in linked:
            draft.scales.put(edge, at_hand.get(edge))
            draft.second.put(edge, moved.second.get(edge))
        return {edge for edge in linked if draft.form.chain(edge) != near.form.chain(edge)}

    def _scales(self, groups: Iterable[ScaleGroup]) -> dict[Edge, Scale]:
        """Those of the groups of a placement, by edge."""
        return {
            edge: scale
            for group in groups
            for scale in [self._target.scale_of(group)]
            for edge in group.edges
        }
