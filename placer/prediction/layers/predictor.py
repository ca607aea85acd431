"""Predict an engine's layers: which nodes fuse, what they read and write, which pairs remain.

``placer.prediction.layers.claims`` says which nodes become one layer; here the layers get their
types and the conversions that they need. What a layer needs depends on the pairs near it and on
what is there of the tensors it reads. So a placement is predicted from another one's prediction by
looking only at what changed, and at what follows from that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

from placer.graph import Edge, Graph
from placer.graph.depth_first import depth_first_from_outputs
from placer.prediction.layers.clamps import clamp_passages
from placer.prediction.layers.conversions import (
    BuildTarget,
    TensorDraft,
    TensorFormats,
    type_name,
)
from placer.prediction.layers.fixed_properties import FixedProperties
from placer.prediction.layers.joined import with_joined_concats
from placer.prediction.layers.kept_axes import with_kept_axes
from placer.prediction.layers.motion import (
    Exceeds,
    NormalForm,
    Scale,
    move_pairs,
    repeated,
)
from placer.prediction.layers.no_ops import (
    TakesOut,
    WithoutNoOps,
    eliminated_by_onnxruntime,
    without_no_ops,
)
from placer.prediction.layers.paired import Decided, Decisions
from placer.prediction.layers.paired_candidate import PairedCandidate
from placer.prediction.layers.passages import (
    Link,
    find_links,
    find_passages,
    find_signed,
    find_symmetric,
    find_unsigned,
    linked_nodes,
)
from placer.prediction.layers.prediction import BLANK, Prediction
from placer.prediction.layers.prediction_draft import PredictionDraft, StepsDraft
from placer.prediction.layers.regions import Region, find_regions
from placer.prediction.layers.shape_constants import with_shapes_folded
from placer.prediction.layers.steps import Step, StepDraft
from placer.prediction.layers.views import PASSES_VIEWS
from placer.quantization import Placement
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.behaviour import DEFAULT_BEHAVIOUR, Behaviour
from placer.rules.matcher import Matches
from placer.rules.schema import Rule
from placer.rules.target import Target

KEPT_STEPS = 1 << 17
_TAKES_OUT: Mapping[str, TakesOut] = {  # By ``Behaviour.no_ops``.
    "casts": lambda _graph, node, _data: node.op == "Cast",
    "partly": eliminated_by_onnxruntime,
    "removed": lambda *_: True,
}


class Predictor:
    """Predicts plans of one model for one target; made once, used for every placement.

    What the given shapes settle is constant in an engine and no layer here.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``. Graph
    inputs and outputs keep the model's types. ``matches``: of the graph, where they are known.
    ``behaviour``: of the engine, beside ``rules``. ``integers``, ``stored``, ``stores_biases``: see
    ``BuildTarget``. ``equal``: by node one that computes the same, of which one is run; only where
    not all no-ops are kept. ``requantizes``: whether a pair that stands before a node and
    behind it, too, is a layer there; None: it never is. ``exceeds``, ``alike``: see
    ``BuildTarget``. ``outlasts``: whether a clamp stays before Q of a scale.
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
        integers: Callable[[Scale], str] | None = None,
        equal: Mapping[str, str] | None = None,
        requantizes: Callable[[Scale], bool] | None = None,
        stored: Mapping[str, str] | None = None,
        exceeds: Exceeds | None = None,
        stores_biases: bool = False,
        alike: Callable[[Scale], Scale] | None = None,
        outlasts: Exceeds | None = None,
    ) -> None:
        target = replace(target, base=base, integer=integer)
        graph = with_shapes_folded(graph, behaviour.shapes == "fixed")
        self._left = WithoutNoOps(graph, {})
        if behaviour.no_ops != "kept":
            self._left = without_no_ops(
                graph,
                _TAKES_OUT[behaviour.no_ops],
                equal,
                base=base if behaviour.no_ops == "casts" else None,
            )
        if behaviour.concats == "joined":
            self._left = with_joined_concats(self._left)
        if behaviour.reductions == "joined":
            self._left = with_kept_axes(self._left)
        if behaviour.order == "depth-first":
            self._left = replace(self._left, graph=depth_first_from_outputs(self._left.graph))
        graph = self._left.graph
        if matches is None or matches.graph is not graph:
            matches = Matches(graph)
        rules = [rule for rule in rules if target.meets(rule.when)]
        passages = find_passages(matches, rules)
        if outlasts is not None:
            passages = (*passages, *clamp_passages(graph))
        links = find_links(passages, graph, find_signed(matches, rules))
        self._target = BuildTarget(
            graph,
            target,
            base,
            integer,
            behaviour,
            find_unsigned(matches, rules, passages),
            integers,
            stored or {},
            requantizes,
            stores_biases,
            self._left.twins,
            exceeds,
            alike,
            find_symmetric(matches, rules),
        )
        self._scale_of = self._target.scale_of
        self._requantizes, self._outlasts = requantizes, outlasts
        self._follows_layouts = behaviour.memory_layouts != "ignored"
        self._blocks = behaviour.memory_layouts == "followed"
        self._views = target.meets(PASSES_VIEWS)
        self._links: Mapping[Edge, Link] = {edge: link for link in links for edge in link.edges}
        read = passages if self._target.rounds_alone else None
        self._regions = find_regions(matches, rules, target, read, stored or ())
        self._decisions = Decisions(self._target, self._links)
        # Not of a method: a predictor that refers to itself is freed late.
        self._step = lru_cache(maxsize=KEPT_STEPS)(partial(_make_step, self._target))

    @cached_property
    def spans(self) -> tuple[frozenset[str], ...]:
        """Nodes, by name, of which however many may become one layer."""
        return tuple(span for region in self._regions for span in region.spans)

    @cached_property
    def linked(self) -> tuple[frozenset[str], ...]:
        """By name, nodes of one long layer, and nodes that a pair is next to wherever it moves."""
        layers = [layer for region in self._regions for layer in region.long_layers]
        links = dict.fromkeys(self._links.values())
        return tuple(dict.fromkeys([*layers, *linked_nodes(links, self._target.graph)]))

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
        regions = self._concerned(edges) if near else self._regions
        self._rebuild(draft.built, [self._decisions.of(region, draft.form) for region in regions])
        return Prediction(
            placement,
            draft.given.merged(),
            draft.form,
            draft.built.steps.merged(),
            draft.built.histories,
            tuple(sorted(draft.built.changed)),
            self._target.graph if self._follows_layouts else None,
            self._views,
            self._blocks,
        )

    def vary(self, near: Prediction, change: Change) -> Mapping[int, Step | None]:
        """The steps, by position, that ``near`` has otherwise once its placement is changed.

        None: nothing is built there any more. Takes time for what changes only, however large the
        model is; ``near``: a prediction of this predictor.
        """
        draft = PredictionDraft(near)
        if self._left.touches(change):
            change = self._left.change(near.placement, near.placement.changed(change))
        regions = self._concerned(self._move(draft, change))
        return self.rebuilt(near, [self._decisions.of(region, draft.form) for region in regions])

    @property
    def regions(self) -> Sequence[Region]:
        """What is decided apart: see ``decided``."""
        return self._regions

    def deciding(self, region: Region) -> frozenset[str]:
        """The tensors on whose edges pairs decide what is built in ``region``.

        All tensors of one of ``merged`` count if one of them does.
        """
        edges = set(region.edges)
        for edge in region.edges:
            edges |= self._links[edge].edges if edge in self._links else frozenset()
        return frozenset(edge.tensor for edge in edges)

    @property
    def merged(self) -> Sequence[frozenset[str]]:
        """Tensors that no-ops make one of: a pair on an edge of one is on edges of others."""
        moved = self._left.moved.items()
        return [frozenset({e.tensor, *(end.tensor for end in ends)}) for e, ends in moved]

    def decided(self, region: Region, groups: frozenset[ScaleGroup]) -> Decided:
        """What is built in ``region``; ``groups``: all of a placement on the tensors ``deciding``
        it. Equal ones are one object.
        """
        placement = self._left.placed(Placement(groups))
        given = {
            edge: scale
            for group in placement.groups
            for scale in [self._scale_of(group)]
            for edge in group.edges
        }
        scales, second = dict(given), dict[Edge, Scale]()
        for link in {self._links[edge] for edge in region.edges if edge in self._links}:
            form = self._moved(link, given)
            scales.update(form.scales)
            second.update(form.second)
        return self._decisions.of(region, NormalForm(scales, second))

    def rebuilt(self, near: Prediction, decisions: Iterable[Decided]) -> Mapping[int, Step | None]:
        """See ``vary``; ``decisions``: what is decided otherwise than in ``near``."""
        draft = StepsDraft(near)
        self._rebuild(draft, decisions)
        return draft.changed

    def _concerned(self, edges: Iterable[Edge]) -> set[Region]:
        """The regions in which it matters what pairs ``edges`` carry."""
        return {region for edge in edges for region in self._regions_at(edge)}

    def _regions_at(self, edge: Edge) -> Iterator[Region]:
        """The regions in which it matters what pair ``edge`` carries."""
        graph = self._target.graph
        reader = edge.input_index if edge.is_graph_output else edge.node
        producer = graph.producer.get(edge.tensor)
        for place in (reader, None if producer is None else producer.name):
            if place in self._region_of:
                yield self._region_of[place]
        yield from self._looking_at.get(edge, ())

    @cached_property
    def _region_of(self) -> Mapping[str | int | None, Region]:
        """The region of each node, by name, and of each graph output, by position."""
        first = len(self._target.graph.nodes)
        return {
            candidate.nodes[0].name if candidate.nodes else candidate.position - first: region
            for region in self._regions
            for candidate in region.alone
        }

    @cached_property
    def _looking_at(self) -> Mapping[Edge, Sequence[Region]]:
        """The regions with a claim that depends on the pair of an edge, wherever that is."""
        regions_of: dict[Edge, list[Region]] = {}
        for region in self._regions:
            for edge in region.outside:
                regions_of.setdefault(edge, []).append(region)
        return regions_of

    def _move(self, draft: PredictionDraft, change: Change) -> set[Edge]:
        """Change scales and form; returns the edges that the form has other scales at."""
        near, given = draft.near, draft.given
        come = {
            edge: scale
            for group in change.come
            for scale in [self._scale_of(group)]
            for edge in group.edges
        }
        edges = {edge for group in change.gone for edge in group.edges} | come.keys()
        edges = {edge for edge in edges if come.get(edge) != near.given.get(edge)}
        for edge in edges:
            given.put(edge, come.get(edge))
        moved = {edge: given[edge] for edge in edges if edge in given}
        second: dict[Edge, Scale] = {}
        for link in {self._links[edge] for edge in edges if edge in self._links}:
            form = self._moved(link, given)
            edges |= link.edges
            moved.update(form.scales)
            second.update(form.second)
        for edge in edges:
            draft.scales.put(edge, moved.get(edge))
            draft.second.put(edge, second.get(edge))
        return {edge for edge in edges if draft.form.chain(edge) != near.form.chain(edge)}

    def _moved(self, link: Link, given: Mapping[Edge, Scale]) -> NormalForm:
        """Where the ``given`` pairs on the edges of ``link`` move."""
        of_link = {e: given[e] for e in link.edges if e in given}
        form = move_pairs(of_link, link.passages, self._outlasts)
        if self._requantizes is not None:
            again = (e for e in repeated(of_link, link.passages) if self._requantizes(of_link[e]))
            twice = {edge: of_link[edge] for edge in again} | dict(form.second)
            form = NormalForm(form.scales, twice)
        return link.with_apart(link.with_signs(form, of_link), of_link)

    def _rebuild(self, draft: StepsDraft, decisions: Iterable[Decided]) -> None:
        """Give ``draft`` its steps, which outside the regions that ``decisions`` are of differ from
        those it was made from only by what there is of the tensors that they read.
        """
        due: dict[int, PairedCandidate | None] = {}
        before = draft.near.steps
        for decided in decisions:
            for position, paired in decided.items():
                old = before.get(position)
                # The same candidate with the same pairs is looked at only if what it reads differs.
                if paired is not (None if old is None else old.paired):
                    due[position] = paired
        waiting = sorted(due)
        while waiting:
            position = heapq.heappop(waiting)
            while waiting and waiting[0] == position:
                heapq.heappop(waiting)
            old = draft.steps.get(position)
            paired = due.get(position, None if old is None else old.paired)
            step = None
            if paired is not None:
                step = self._step(paired, draft.formats(paired.candidate))
            if step is not old:
                for later in draft.put(position, old, step):
                    heapq.heappush(waiting, later)


def _make_step(
    target: BuildTarget, paired: PairedCandidate, formats: tuple[TensorFormats | None, ...]
) -> Step:
    candidate = paired.candidate
    tensors = TensorDraft(
        target,
        dict(zip(candidate.reads, paired.chains, strict=True)),
        {
            tensor: available or TensorFormats((((), type_name(target.graph, tensor)),))
            for tensor, available in zip(candidate.format_tensors, formats, strict=True)
        },
    )
    draft = StepDraft(paired, target, tensors)
    if candidate.nodes:
        draft.add_layer(paired.written)
    else:
        draft.write_output()
    return draft.step()
