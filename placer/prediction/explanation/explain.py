"""Explain a placement: which rules matched, what was decided, the plan, what stays and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from placer.graph import Edge, Graph, Node
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.plan.dtypes import is_quantized
from placer.prediction.defaults_by_estimates import are_left_float, with_defaults
from placer.prediction.explanation.default_gains import Decision, decide, default_gains
from placer.prediction.explanation.remedies import (
    MAX_REMEDIES,
    Remedies,
    Remedy,
    with_edges,
)
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.half_casts import half_of
from placer.prediction.layers.prediction import Prediction
from placer.prediction.select import AnyPredictor
from placer.prediction.times.estimator import Estimator
from placer.quantization import EMPTY, Format, Placement
from placer.rules.gains import Gains
from placer.rules.matcher import Matches, Overlap
from placer.rules.schema import Rule
from placer.rules.sites import find_sites_with_overlaps, place
from placer.rules.target import Target


@dataclass(frozen=True)
class StandaloneConversion:
    """A quantize, dequantize, requantize or reformat layer, what it costs and why it is there.

    ``remedy`` is None if no change that was tried removes it and makes the engine faster;
    ``goes_with_others`` says that the remedies of others remove it, or the pack's default at other
    sites: ``default_of`` is the rule and layout of that. ``missing``: where the remedy takes pairs
    out, the change that gives the operands beside them pairs instead.
    """

    name: str
    kind: str
    tensor: str
    us: float
    because: str
    remedy: Remedy | None
    goes_with_others: bool = False
    missing: Remedy | None = None
    default_of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Explanation:
    """What ``placer explain`` shows; times are estimates in microseconds.

    ``gains``: by kind of decision, what the pack's default saves at all sites of that kind.
    ``float_by_default``: whether the pack's default quantizes nothing, as float is estimated to be
    faster.
    ``improved``: the placement after all remedies that still help, one after the other.
    ``latency_error``, ``ratio_error``: relative errors that 80% of estimated times and of their
    ratios stay within.
    ``pairs``: of a file that has pairs, the names of the Q and DQ nodes at each edge.
    """

    decisions: tuple[Decision, ...]
    gains: Mapping[tuple[str, str, str, bool], Remedy]
    overlaps: tuple[Overlap, ...]
    plan: Plan
    conversions: tuple[StandaloneConversion, ...]
    total_us: float
    float_us: float
    default_us: float
    float_by_default: bool
    improved: Placement
    improved_us: float
    latency_error: float
    ratio_error: float
    pairs: Mapping[Edge, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _layer_of(self) -> Mapping[str, int]:
        """Where the layer of each node is in the plan."""
        return {node: index for index, one in enumerate(self.plan.layers) for node in one.nodes}

    def split_by(self, decision: Decision) -> tuple[Edge, ...]:
        """Pairs inside the layout of ``decision`` that part what it fuses into several layers.

        Other pairs inside it stand within one layer, which only rounds to their scales.
        """
        layers, nodes = self._layer_of, decision.site.match.nodes.values()
        writers = {tensor: node.name for node in nodes for tensor in node.outputs}

        def is_within(edge: Edge) -> bool:
            writer = layers.get(writers.get(edge.tensor, ""))
            return writer is not None and writer == layers.get(edge.node)

        return tuple(edge for edge in decision.inside if not is_within(edge))

    @property
    def interval_us(self) -> tuple[float, float]:
        """The 80% interval of ``total_us``."""
        factor = 1 + self.latency_error
        return self.total_us / factor, self.total_us * factor

    @property
    def speedup(self) -> float:
        """Estimated time of the float model over that of the placement."""
        return self.float_us / self.total_us if self.total_us else 1.0  # A model that does nothing.

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """The 80% interval of ``speedup``."""
        factor = 1 + self.ratio_error
        return self.speedup / factor, self.speedup * factor

    @property
    def is_tie(self) -> bool:
        """Whether the estimate cannot tell the placement's time from the float model's."""
        low, high = self.speedup_interval
        return self.total_us != self.float_us and low < 1 < high

    @property
    def default_is_faster(self) -> bool:
        """Whether the default's estimate is below that with all remedies by more than errs."""
        return self.improved_us > self.default_us * (1 + self.ratio_error)

    @property
    def float_is_faster(self) -> bool:
        """Whether the float model's estimate is below that with all remedies by more than errs."""
        return self.improved_us > self.float_us * (1 + self.ratio_error)


# Operators of which engines take constant weights in integers only.
_CONVS = frozenset({"Conv", "ConvTranspose"})


class Explainer:
    """Explains placements of one model for one target."""

    def __init__(
        self,
        matches: Matches,
        rules: Sequence[Rule],
        target: Target,
        predictor: AnyPredictor,
        estimator: Estimator,
        formats: Sequence[Format] = (),
        gains: Gains | None = None,
    ) -> None:
        self._graph = matches.graph
        self._predictor = predictor
        self._estimator = estimator
        sites, self._overlaps = find_sites_with_overlaps(matches, rules, target, formats)
        self.sites = with_defaults(matches, sites, rules, gains, predictor, estimator, target)
        self._passed = _passed_backward(rules)

    def explain(self, placement: Placement, idle: Set[Edge] = frozenset()) -> Explanation:
        """Explain ``placement``, which must be of the explainer's graph.

        ``idle``: edges beside it that have pairs in the file, with scales that no kernel takes.
        """
        prediction = self._predictor.predict(placement)
        remedies = Remedies(self._graph, self.sites, self._predictor, self._estimator, prediction)
        remedy_of = remedies.find()
        missing = dict(_missing_pairs(prediction, remedies, remedy_of, self._graph))
        default = place(self.sites, {})
        moved = _moved(prediction, self._graph)
        decisions = tuple(decide(self.sites, placement, default, moved))
        gains = default_gains(remedies, decisions, default)
        removed_by = dict[str, tuple[str, str]]()
        for kind in sorted(gains, key=lambda kind: -gains[kind].saves_us):
            alike = [decision for decision in decisions if decision.kind == kind]
            for gain in default_gains(remedies, alike, default).values():  # Once others are back.
                before = _conversion_names(remedies.prediction)
                remedies.apply(gain)
                gone = before - _conversion_names(remedies.prediction)
                removed_by |= dict.fromkeys(gone - removed_by.keys(), (kind[0], kind[2]))
        _apply_best(remedies)
        improved = remedies.prediction
        left = {predicted.layer.name for predicted in improved.layers}
        plan = self._estimator.estimate(prediction)
        return Explanation(
            decisions=decisions,
            gains=gains,
            overlaps=self._overlaps,
            plan=plan,
            conversions=tuple(
                replace(one, default_of=removed_by.get(one.name)) if one.goes_with_others else one
                for one in self._conversions(prediction, plan, remedy_of, missing, left, idle)
            ),
            total_us=self._estimator.total_us(prediction),
            float_us=self._estimator.total_us(self._predictor.predict(EMPTY, prediction)),
            default_us=self._estimator.total_us(self._predictor.predict(default, prediction)),
            float_by_default=are_left_float(self.sites),
            improved=improved.placement,
            improved_us=self._estimator.total_us(improved),
            latency_error=self._estimator.latency_error,
            ratio_error=self._estimator.ratio_error,
        )

    def _conversions(
        self,
        prediction: Prediction,
        plan: Plan,
        remedies: Mapping[tuple[str, int], Remedy],
        missing: Mapping[tuple[str, int], Remedy],
        left: Set[str],
        idle: Set[Edge],
    ) -> Iterator[StandaloneConversion]:
        """Those of ``prediction``, the costliest first; ``left``: layers that no remedy removes."""
        layers = self._estimator.layers(prediction)
        timed = [
            (predicted, layer.time_us or 0.0)
            for predicted, layer in zip(layers, plan.layers, strict=True)
            if predicted.is_conversion
        ]
        timed.sort(key=lambda item: -item[1])
        for predicted, us in timed:
            name = predicted.layer.name
            remedy = remedies.get((name, predicted.ordinal))
            yield StandaloneConversion(
                name=name,
                kind=predicted.layer.kind,
                tensor=predicted.layer.inputs[0].tensor,
                us=us,
                because=reason(predicted, prediction, self._graph, idle, self._passed),
                remedy=remedy,
                goes_with_others=remedy is None and name not in left,
                missing=missing.get((name, predicted.ordinal)),
            )


def _moved(prediction: Prediction, graph: Graph) -> frozenset[Edge]:
    """Edges that the engine moves pairs to, and operands of products computed on integers."""
    products = (
        graph.by_name[name]
        for predicted in prediction.layers
        if any(map(is_quantized, predicted.layer.input_types))
        for name in predicted.layer.nodes
        if name in graph.by_name and graph.by_name[name].op in WEIGHTED_OPS
    )
    operands = (edge for node in products for edge in graph.edges_into(node)[:2])
    return frozenset(prediction.form.scales) | frozenset(operands)


def _conversion_names(prediction: Prediction) -> set[str]:
    return {found.layer.name for found in prediction.layers if found.is_conversion}


def _apply_best(remedies: Remedies) -> None:
    """Apply the remedy of a conversion that saves most until none helps."""
    for _ in range(MAX_REMEDIES):
        remedy_of = remedies.find()
        if not remedy_of:
            break
        remedies.apply(max(remedy_of.values(), key=lambda remedy: remedy.saves_us))


def _passed_backward(rules: Sequence[Rule]) -> frozenset[str]:
    """Operators in patterns of rules by which Q moves before what they match."""
    moving = (r for r in rules if r.motion is not None and r.motion.only != "forward")
    return frozenset(op for rule in moving for node in rule.pattern.values() for op in node.op)


def reason(
    predicted: PredictedLayer,
    prediction: Prediction,
    graph: Graph,
    idle: Set[Edge],
    passed: Set[str],
) -> str:
    """One sentence on why a conversion stays a layer of its own.

    ``idle``: see ``explain``. ``passed``: operators that Q moves past where scales agree.
    """
    tensor = predicted.layer.inputs[0].tensor
    served = _names(predicted.edges)
    if not any(predicted is other for other in prediction.layers):
        return (
            f"the engine moves the pair on '{tensor}' to {served}, where floats are read, and so "
            "quantizes once more"
        )
    if predicted.layer.kind == "dequantize":
        without = _without_pair(predicted.edges, prediction, graph, idle)
        return f"'{tensor}' is read in float by {served}{without}"
    if predicted.layer.kind == "requantize":
        return f"'{tensor}' is read in another scale by {served}"
    if predicted.layer.kind == "reformat":
        source, target = predicted.layer.input_types[0], predicted.layer.output_types[0]
        if source == target:
            return _reason_of_copy(tensor, predicted.edges, graph)
        return f"'{tensor}' is {source} but read as {target} by {served}"
    return _reason_of_float(tensor, prediction, graph, passed)


def _reason_of_copy(tensor: str, edges: Sequence[Edge], graph: Graph) -> str:
    """Why ``tensor`` is copied in its type for ``edges``: into what a Concat joins, or laid out."""
    readers = [graph.by_name.get(edge.node) for edge in edges]
    if not all(node is not None and node.op == "Concat" for node in readers):
        return f"'{tensor}' is read in another memory layout by {_names(edges)}"
    others = [edge for edge in graph.edges_of(tensor) if edge not in edges]
    also = f", as it is also read by {_names(others)}" if others else ""
    return f"'{tensor}' is copied into the joined tensor of {_names(edges)}{also}"


def _reason_of_float(tensor: str, prediction: Prediction, graph: Graph, passed: Set[str]) -> str:
    """Why ``tensor`` is written in float, though integers are read."""
    if tensor in graph.inputs:
        return "the graph input is float: a standing cost of quantizing the first layer"
    if tensor not in graph.producer:
        if half := half_of(tensor, graph):
            return f"'{half}' is float16, and the engine casts it to float before it quantizes"
        return f"'{tensor}' is given to the body in float"
    readers = graph.edges_of(tensor)
    floats = [edge for edge in readers if edge not in prediction.form.scales]
    if floats:
        return f"'{tensor}' is read in float by {_names(floats)}, so its producer writes float"
    scales = {prediction.form.scales[edge] for edge in readers}
    if len({scale.format for scale in scales}) > 1:
        return f"the readers of '{tensor}' have different formats, so its producer writes float"
    if len(scales) > 1:
        return f"the readers of '{tensor}' have different scales, so its producer writes float"
    producer = graph.producer[tensor]
    is_passed_split = producer.op == "Split" and "Split" in passed
    if is_passed_split and _have_unequal_scales(producer, prediction, graph):
        return f"outputs of '{producer.name}' (Split) have different scales, so it copies floats"
    return f"'{producer.name}' ({producer.op}) computes in float"


def _have_unequal_scales(split: Node, prediction: Prediction, graph: Graph) -> bool:
    """Whether all that reads what ``split`` writes reads integers, of several scales."""
    edges = [edge for tensor in split.outputs for edge in graph.edges_of(tensor)]
    scales = {prediction.form.scales.get(edge) for edge in edges}
    return None not in scales and len(scales) > 1


def _without_pair(
    edges: Sequence[Edge], prediction: Prediction, graph: Graph, idle: Set[Edge]
) -> str:
    """The operands that keep products in float, if these read ``edges`` through pairs."""
    operands = _operands(edges, prediction, graph)
    bare = [edge for edge in operands if edge not in prediction.form.scales]
    parts = []
    if without := sorted({f"'{edge.tensor}'" for edge in bare if edge not in idle}):
        parts.append(f"{' and '.join(without)} has no pair")
    weights = [e.tensor for e in operands if e.input_index and graph.by_name[e.node].op in _CONVS]
    if computed := [f"'{t}'" for t in dict.fromkeys(weights) if t not in graph.initializers]:
        parts.append(f"{' and '.join(computed)} is not constant")
    for edge in sorted(edge for edge in bare if edge in idle):
        where = " along another axis than its output channels"
        is_weight = edge.tensor in graph.initializers
        parts.append(f"'{edge.tensor}' has several scales{where if is_weight else ''}")
    return f", whose operand {' and '.join(parts)}" if parts else ""


def _operands(edges: Sequence[Edge], prediction: Prediction, graph: Graph) -> list[Edge]:
    """Both operands of the products that read ``edges`` through pairs."""
    paired = dict.fromkeys(edge.node for edge in edges if edge in prediction.form.scales)
    products = [graph.by_name[n] for n in paired if n and graph.by_name[n].op in WEIGHTED_OPS]
    return [edge for node in products for edge in graph.edges_into(node)[:2]]


def _missing_pairs(
    prediction: Prediction,
    remedies: Remedies,
    remedy_of: Mapping[tuple[str, int], Remedy],
    graph: Graph,
) -> Iterator[tuple[tuple[str, int], Remedy]]:
    """Where a remedy takes pairs out of products that lack another, the change that adds it."""
    for predicted in prediction.layers:
        key = predicted.layer.name, predicted.ordinal
        remedy = remedy_of.get(key)
        if predicted.layer.kind != "dequantize" or remedy is None or remedy.change.added:
            continue
        operands = _operands(predicted.edges, prediction, graph)
        if any(edge not in prediction.form.scales for edge in operands):
            around = remedies.around({edge.tensor for edge in operands})
            change = around.change_to(with_edges(around, operands))
            yield key, Remedy(prediction.placement, change, remedies.saving(change))


def _names(edges: Sequence[Edge]) -> str:
    names = dict.fromkeys(
        "the graph output" if edge.is_graph_output else f"'{edge.node}'" for edge in edges
    )
    return " and ".join(names)


@dataclass(frozen=True)
class DecisionCost:
    """A decision and the estimated time, in microseconds, of the layers that run its nodes."""

    decision: Decision
    us: float


def decision_costs(explanation: Explanation) -> tuple[DecisionCost, ...]:
    """What each decision costs.

    A layer counts for the first of its nodes whose site has a choice, else for the first of a site.
    """
    sites = [decision.site for decision in explanation.decisions]
    site_of = {
        node.name: index for index, site in enumerate(sites) for node in site.match.nodes.values()
    }
    us = [0.0] * len(sites)
    for layer in explanation.plan.of_kind("compute"):
        found = [site_of[node] for node in layer.nodes if node in site_of]
        chosen = (index for index in found if len(sites[index].layouts) > 1)
        if found:
            us[next(chosen, found[0])] += layer.time_us or 0.0
    return tuple(map(DecisionCost, explanation.decisions, us))
