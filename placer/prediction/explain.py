"""Explain a placement: which rules matched, what was decided, the plan, what stays and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.graph import Edge, Graph
from placer.plan import Layer, Plan
from placer.plan.dtypes import is_quantized
from placer.prediction.predictor import Prediction
from placer.prediction.roofline import Roofline
from placer.prediction.select import AnyPredictor
from placer.prediction.steps import PredictedLayer
from placer.quantization import EMPTY, Placement
from placer.rules.matcher import Overlap
from placer.rules.schema import Rule
from placer.rules.sites import ResolvedLayout, Site, find_sites_with_overlaps
from placer.rules.target import Target

# Each remedy costs some predictions; conversions beyond these are listed without one.
MAX_REMEDIES = 24
MIN_GAIN_US = 0.1  # Less is nothing to act on.
OTHER = "other"


@dataclass(frozen=True)
class Remedy:
    """A change of the placement that removes a conversion: edges to quantize and to leave float.

    ``saves_us``: estimated gain of the whole engine in microseconds.
    """

    add: tuple[Edge, ...]
    remove: tuple[Edge, ...]
    saves_us: float
    placement: Placement


@dataclass(frozen=True)
class StandaloneConversion:
    """A quantize, dequantize, requantize or reformat layer, what it costs and why it is there.

    ``remedy`` is None if no change that was tried removes it and makes the engine faster;
    ``goes_with_others`` says that the remedies of others remove it.
    """

    name: str
    kind: str
    tensor: str
    us: float
    because: str
    remedy: Remedy | None
    goes_with_others: bool = False


@dataclass(frozen=True)
class Decision:
    """A site and the layout that the placement has there, ``other`` if it is none of the rule's."""

    site: Site
    layout: str


@dataclass(frozen=True)
class Explanation:
    """What ``placer explain`` shows; times are estimates in microseconds.

    ``improved``: the placement after all remedies that still help, one after the other.
    ``latency_error``, ``ratio_error``: relative errors that 80% of estimated times and of their
    ratios stay within.
    """

    decisions: tuple[Decision, ...]
    overlaps: tuple[Overlap, ...]
    plan: Plan
    conversions: tuple[StandaloneConversion, ...]
    total_us: float
    float_us: float
    improved: Placement
    improved_us: float
    latency_error: float
    ratio_error: float

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


class Explainer:
    """Explains placements of one model for one target."""

    def __init__(
        self,
        graph: Graph,
        rules: Sequence[Rule],
        target: Target,
        predictor: AnyPredictor,
        roofline: Roofline,
    ) -> None:
        self._graph = graph
        self._predictor = predictor
        self._roofline = roofline
        self.sites, self._overlaps = find_sites_with_overlaps(graph, rules, target)
        self._sites_of: dict[str, list[Site]] = {}
        for site in self.sites:
            for node in site.match.nodes.values():
                self._sites_of.setdefault(node.name, []).append(site)
        self._times: dict[str, float] = {}
        self._near: Prediction | None = None
        self._layer_times: dict[PredictedLayer, float] = {}

    def explain(self, placement: Placement) -> Explanation:
        """Explain ``placement``, which must be of the explainer's graph."""
        prediction = self._predict(placement)
        conversions = tuple(self._conversions(placement, prediction))
        improved = self._improve(placement, conversions)
        left = {layer.layer.name for layer in self._predict(improved).layers}
        conversions = tuple(
            replace(c, goes_with_others=c.remedy is None and c.name not in left)
            for c in conversions
        )
        return Explanation(
            decisions=tuple(Decision(s, chosen_layout(s, placement)) for s in self.sites),
            overlaps=self._overlaps,
            plan=self._roofline.estimate(prediction),
            conversions=conversions,
            total_us=self._us(placement),
            float_us=self._us(EMPTY),
            improved=improved,
            improved_us=self._us(improved),
            latency_error=self._roofline.classes.latency_error,
            ratio_error=self._roofline.classes.ratio_error,
        )

    def _us(self, placement: Placement) -> float:
        if placement.id not in self._times:
            self._times[placement.id] = sum(self._layers_us(self._predict(placement)))
        return self._times[placement.id]

    def _predict(self, placement: Placement) -> Prediction:
        """The prediction of ``placement``, made from the last one: remedies change little."""
        if self._near is None or self._near.placement != placement:
            self._near = self._predictor.predict(placement, self._near)
        return self._near

    def _layers_us(self, prediction: Prediction) -> list[float]:
        """Estimated times of the layers; of those that the last prediction had, its times."""
        known = self._layer_times
        self._layer_times = {
            layer: known[layer] if layer in known else self._roofline.layer_us(layer)
            for layer in prediction.layers
        }
        return list(self._layer_times.values())

    def _conversions(
        self, placement: Placement, prediction: Prediction
    ) -> Iterator[StandaloneConversion]:
        times = self._layers_us(prediction)
        found = [
            (predicted, us)
            for predicted, us in zip(prediction.layers, times, strict=True)
            if predicted.layer.kind != "compute" and not predicted.nodes
        ]
        found.sort(key=lambda item: -item[1])
        for number, (predicted, us) in enumerate(found):
            remedy = self._remedy(placement, predicted) if number < MAX_REMEDIES else None
            yield StandaloneConversion(
                name=predicted.layer.name,
                kind=predicted.layer.kind,
                tensor=predicted.layer.inputs[0].tensor,
                us=us,
                because=reason(predicted, prediction, self._graph),
                remedy=remedy,
            )

    def _remedy(self, placement: Placement, predicted: PredictedLayer) -> Remedy | None:
        """The change around the tensor that removes the conversion and saves most."""
        name, before = predicted.layer.name, self._us(placement)
        best: Remedy | None = None
        for changed in self._changes(placement, predicted):
            saves = before - self._us(changed)
            if saves < MIN_GAIN_US or (best is not None and saves <= best.saves_us):
                continue
            if all(x.layer.name != name for x in self._predict(changed).layers):
                add = tuple(sorted(changed.edges - placement.edges))
                remove = tuple(sorted(placement.edges - changed.edges))
                best = Remedy(add, remove, saves, changed)
        return best

    def _changes(self, placement: Placement, predicted: PredictedLayer) -> Iterator[Placement]:
        """Placements that treat the tensor alike everywhere, or switch a layout next to it."""
        tensor = predicted.layer.inputs[0].tensor
        edges = [e for e in self._graph.edges_of(tensor) if self._graph.type_of(tensor).is_float]
        yield with_edges(placement, edges, (tensor,))
        yield without_edges(placement, edges)
        near = {edge.node for edge in edges}
        if tensor in self._graph.producer:
            near.add(self._graph.producer[tensor].name)
        sites = {site.name: site for node in near for site in self._sites_of.get(node, ())}
        for site in sorted(sites.values(), key=lambda site: site.match.anchor.index):
            for layout in site.layouts.values():
                yield with_layout(placement, site, layout)

    def _improve(
        self, placement: Placement, conversions: Sequence[StandaloneConversion]
    ) -> Placement:
        """Apply the remedy that saves most until none helps; ``conversions``: of ``placement``."""
        for _ in range(MAX_REMEDIES):
            found = [c.remedy for c in conversions if c.remedy]
            if not found:
                break
            placement = max(found, key=lambda remedy: remedy.saves_us).placement
            conversions = tuple(self._conversions(placement, self._predict(placement)))
        return placement


@dataclass(frozen=True)
class SiteOutcome:
    """The layers of a site as predicted and as the engine built them.

    ``agrees``: the same nodes fused, written in the same class of type (quantized or float).
    """

    decision: Decision
    predicted: tuple[Layer, ...]
    actual: tuple[Layer, ...]
    agrees: bool


def compare_sites(
    decisions: Sequence[Decision], predicted: Plan, actual: Plan
) -> tuple[SiteOutcome, ...]:
    """Hold the predicted layers of every site against an engine's.

    Only nodes that compute layers of both plans name count; sites without any are left out.
    """
    mine, theirs = _by_node(predicted), _by_node(actual)
    found = []
    for decision in decisions:
        names = [n.name for n in decision.site.match.nodes.values()]
        known = [name for name in names if name in mine and name in theirs]
        if known:
            left = tuple(dict.fromkeys(mine[name] for name in known))
            right = tuple(dict.fromkeys(theirs[name] for name in known))
            agrees = _shape_of(left, set(known)) == _shape_of(right, set(known))
            found.append(SiteOutcome(decision, left, right, agrees))
    return tuple(found)


def _by_node(plan: Plan) -> dict[str, Layer]:
    return {node: layer for layer in plan.of_kind("compute") for node in layer.nodes}


def _shape_of(layers: Sequence[Layer], known: set[str]) -> set[tuple[frozenset[str], bool]]:
    return {
        (frozenset(layer.nodes) & known, any(map(is_quantized, layer.output_types)))
        for layer in layers
    }


def chosen_layout(site: Site, placement: Placement) -> str:
    """The layout that ``placement`` has at ``site``, the default first; ``other`` if none."""
    considered = {edge for layout in site.layouts.values() for edge in layout.quantize}
    present = considered & placement.edges
    names = sorted(site.layouts, key=lambda name: name != site.default)
    for name in names:
        layout = site.layouts[name]
        if layout.quantize == present and _shares(layout, placement):
            return name
    return OTHER


def _shares(layout: ResolvedLayout, placement: Placement) -> bool:
    """Whether the placement has one scale for each set of tensors that the layout ties."""
    return all(
        len({placement.group_of.get(e) for e in layout.quantize if e.tensor in tensors}) <= 1
        for tensors in layout.shared
    )


def with_edges(
    placement: Placement, edges: Sequence[Edge], shared: Sequence[str] = ()
) -> Placement:
    """``placement`` with ``edges`` quantized too; ``shared`` tensors get one scale."""
    tied = [tuple(edge.tensor for edge in group) for group in placement.groups]
    return Placement.of([*placement.edges, *edges], [*tied, tuple(shared)])


def without_edges(placement: Placement, edges: Sequence[Edge]) -> Placement:
    """``placement`` with ``edges`` left in float."""
    groups = (group - set(edges) for group in placement.groups)
    return Placement(frozenset(group for group in groups if group))


def with_layout(placement: Placement, site: Site, layout: ResolvedLayout) -> Placement:
    """``placement`` with ``site`` switched to ``layout``."""
    considered = {edge for other in site.layouts.values() for edge in other.quantize}
    dropped = (considered - layout.quantize) | layout.keep_float
    base = without_edges(placement, tuple(dropped))
    tied = [tuple(edge.tensor for edge in group) for group in base.groups]
    return Placement.of([*base.edges, *layout.quantize], [*tied, *layout.shared])


def reason(predicted: PredictedLayer, prediction: Prediction, graph: Graph) -> str:
    """One sentence on why a conversion stays a layer of its own."""
    tensor = predicted.layer.inputs[0].tensor
    served = _names(predicted.edges)
    if predicted.layer.kind == "dequantize":
        return f"'{tensor}' is read in float by {served}"
    if predicted.layer.kind == "requantize":
        return f"'{tensor}' is read in another scale by {served}"
    if predicted.layer.kind == "reformat":
        source, target = predicted.layer.input_types[0], predicted.layer.output_types[0]
        return f"'{tensor}' is {source} and read as {target} by {served}"
    if tensor not in graph.producer:
        return "the graph input is float: a standing cost of quantizing the first layer"
    readers = graph.edges_of(tensor)
    floats = [edge for edge in readers if edge not in prediction.form.scales]
    if floats:
        return f"'{tensor}' is read in float by {_names(floats)}, so its producer writes float"
    if len({prediction.form.scales[edge] for edge in readers}) > 1:
        return f"the readers of '{tensor}' have unequal scales, so its producer writes float"
    return f"'{graph.producer[tensor].name}' ({graph.producer[tensor].op}) computes in float"


def _names(edges: Sequence[Edge]) -> str:
    names = dict.fromkeys(
        "the graph output" if edge.is_graph_output else f"'{edge.node}'" for edge in edges
    )
    return " and ".join(names)


def explanation_json(explanation: Explanation) -> Mapping[str, object]:
    """The explanation as plain data; edges are written as in placement.yaml."""
    return {
        "estimate": True,
        "total_us": explanation.total_us,
        "interval_us": list(explanation.interval_us),
        "float_us": explanation.float_us,
        "speedup": explanation.speedup,
        "speedup_interval": list(explanation.speedup_interval),
        "decisions": [_decision(decision) for decision in explanation.decisions],
        "overlaps": [
            {
                "rule": overlap.lost.rule.id,
                "anchor": overlap.lost.anchor.name,
                "lost_to": overlap.won.rule.id,
                "because": overlap.because,
            }
            for overlap in explanation.overlaps
        ],
        "conversions": [_conversion(conversion) for conversion in explanation.conversions],
        "improved": {
            "total_us": explanation.improved_us,
            "placement": explanation.improved.id,
            "groups": [[_edge(e) for e in group] for group in explanation.improved.sorted()],
        },
    }


def _decision(decision: Decision) -> dict[str, object]:
    rule = decision.site.match.rule
    return {
        "rule": rule.id,
        "nodes": {name: node.name for name, node in decision.site.match.nodes.items()},
        "layout": decision.layout,
        "default": decision.site.default,
        "layouts": list(decision.site.layouts),
        "why": rule.why,
        "source": rule.source,
    }


def _conversion(conversion: StandaloneConversion) -> dict[str, object]:
    remedy = conversion.remedy
    return {
        "layer": conversion.name,
        "kind": conversion.kind,
        "tensor": conversion.tensor,
        "us": conversion.us,
        "because": conversion.because,
        "goes_with_others": conversion.goes_with_others,
        "remedy": remedy
        and {
            "quantize": [_edge(edge) for edge in remedy.add],
            "leave_float": [_edge(edge) for edge in remedy.remove],
            "saves_us": remedy.saves_us,
            "placement": remedy.placement.id,
        },
    }


def _edge(edge: Edge) -> dict[str, object]:
    return {"tensor": edge.tensor, "node": edge.node, "input": edge.input_index}
