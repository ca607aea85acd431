"""Conversions that stay layers of their own, and the changes of a placement that remove them.

A change is judged by the layers that it changes, not by all: the time that a remedy takes to find
does not depend on the size of the model.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple

from placer.graph import Edge, Graph
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.steps import Step
from placer.prediction.select import AnyPredictor
from placer.prediction.times.estimator import Estimator
from placer.quantization import Format, Placement
from placer.quantization.placement import Change, ScaleGroup
from placer.rules.sites import ResolvedLayout, Site

# Each remedy costs some predictions; conversions beyond these are listed without one.
MAX_REMEDIES = 24
# Each of these costs predictions of all that reads the tensor, so that the time for a tensor with
# many readers would grow with the square of their number.
MOST_SITES = 32
MIN_GAIN_US = 0.1  # Less is nothing to act on.


@dataclass(frozen=True)
class Remedy:
    """A change of the placement ``before`` that removes a conversion.

    ``saves_us``: estimated gain of the whole engine in microseconds.
    """

    before: Placement
    change: Change
    saves_us: float

    @cached_property
    def placement(self) -> Placement:
        """The placement with the remedy."""
        return self.before.changed(self.change)


class Costly(NamedTuple):
    """A conversion; the costliest sorts first, then the one that runs first."""

    minus_us: float
    position: int
    order: int
    layer: PredictedLayer


class Remedies:
    """Finds the remedies of a placement's conversions, and applies them one after the other."""

    def __init__(
        self,
        graph: Graph,
        sites: Iterable[Site],
        predictor: AnyPredictor,
        estimator: Estimator,
        prediction: Prediction,
    ) -> None:
        self._graph = graph
        self._predictor = predictor
        self._estimator = estimator
        self._sites_of: dict[str, list[Site]] = {}
        for site in sites:
            for node in site.match.nodes.values():
                self._sites_of.setdefault(node.name, []).append(site)
        self._prediction = prediction
        self._found: tuple[Prediction, dict[tuple[str, int], Remedy]] | None = None
        self._groups_of: dict[str, set[ScaleGroup]] = {}
        self._names: Counter[str] = Counter()
        self._costly: dict[int, list[Costly]] = {}
        self._regroup(Change(frozenset(), prediction.placement.groups))
        self._relist({}, prediction.steps)

    @property
    def prediction(self) -> Prediction:
        """The prediction of the placement with the remedies that were applied."""
        return self._prediction

    def find(self) -> dict[tuple[str, int], Remedy]:
        """The remedies of the costliest conversions, by name and ordinal, where there are any."""
        if self._found is not None and self._found[0] is self._prediction:
            return self._found[1]
        conversions = (conversion for costly in self._costly.values() for conversion in costly)
        remedy_of = {}
        for conversion in heapq.nsmallest(MAX_REMEDIES, conversions):
            remedy = self._remedy(conversion.layer)
            if remedy is not None:
                remedy_of[conversion.layer.layer.name, conversion.layer.ordinal] = remedy
        self._found = self._prediction, remedy_of
        return remedy_of

    def apply(self, remedy: Remedy) -> None:
        """Go on with the remedy's placement."""
        before = self._prediction
        after = self._predictor.predict(remedy.placement, before)
        self._prediction = after
        self._regroup(remedy.change)
        old = {i: before.steps[i] for i in after.changed if i in before.steps}
        new = {i: after.steps[i] for i in after.changed if i in after.steps}
        self._relist(old, new)

    def _regroup(self, change: Change) -> None:
        for group in change.gone:
            for tensor in {edge.tensor for edge in group.edges}:
                self._groups_of[tensor].remove(group)
        for group in change.come:
            for tensor in {edge.tensor for edge in group.edges}:
                self._groups_of.setdefault(tensor, set()).add(group)

    def _relist(self, old: Mapping[int, Step], new: Mapping[int, Step]) -> None:
        for position, step in old.items():
            self._names.subtract(_names(step))
            self._costly.pop(position, None)
        for position, step in new.items():
            self._names.update(_names(step))
            times = self._estimator.step_us(step)
            costly = [
                Costly(-us, position, order, layer)
                for order, (layer, us) in enumerate(zip(step.layers, times, strict=True))
                if layer.is_conversion
            ]
            if costly:
                self._costly[position] = costly

    def _remedy(self, conversion: PredictedLayer) -> Remedy | None:
        """The change around the tensor that removes the conversion and saves most."""
        name = conversion.layer.name
        best: Remedy | None = None
        for change in self._changes(conversion.layer.inputs[0].tensor, conversion.layer.kind):
            changed = self._predictor.vary(self._prediction, change)
            new = [step for step in changed.values() if step is not None]
            steps = self._prediction.steps
            old = [steps[position] for position in changed if position in steps]
            saves = self._us(old, new)
            if saves < MIN_GAIN_US or (best is not None and saves <= best.saves_us):
                continue
            gone = sum(_names(step).count(name) for step in old)
            come = sum(_names(step).count(name) for step in new)
            if self._names[name] - gone + come == 0:
                best = Remedy(self._prediction.placement, change, saves)
        return best

    def saving(self, change: Change) -> float:
        """Estimated microseconds that ``change`` of the present placement saves."""
        changed = self._predictor.vary(self._prediction, change)
        steps = self._prediction.steps
        return self._us(
            (steps[position] for position in changed if position in steps),
            (step for step in changed.values() if step is not None),
        )

    def _us(self, old: Iterable[Step], new: Iterable[Step]) -> float:
        """Time of ``old`` less that of ``new``, without rounding: equal gains compare equal."""
        times = [us for step in old for us in self._estimator.step_us(step)]
        return fsum((*times, *(-us for step in new for us in self._estimator.step_us(step))))

    def _changes(self, tensor: str, kind: str) -> Iterator[Change]:
        """Changes that treat the tensor alike everywhere, spare it a second scale, or switch a
        layout next to it; ``kind``: of the conversion.
        """
        edges = [e for e in self._graph.edges_of(tensor) if self._graph.type_of(tensor).is_float]
        around = self.around((tensor,))
        yield around.change_to(with_edges(around, edges, (tensor,)))
        yield around.change_to(without_edges(around, edges))
        for tied in self._requantized(edges) if kind == "requantize" else ():
            around = self.around(tied)
            yield around.change_to(with_edges(around, (), tied))
        near = {edge.node for edge in edges}
        if tensor in self._graph.producer:
            near.add(self._graph.producer[tensor].name)
        named = {site.name: site for node in near for site in self._sites_of.get(node, ())}
        sites = self._tried(list(named.values()), edges)
        for site in sorted(sites, key=lambda site: site.match.anchor.index):
            around = self.around({t for lay in site.layouts.values() for t in lay.tensors})
            for layout in site.layouts.values():
                yield around.change_to(with_layout(around, site, layout))

    def _tried(self, sites: Sequence[Site], edges: Iterable[Edge]) -> Sequence[Site]:
        """``MOST_SITES`` of ``sites``, which deal with the tensor of ``edges``.

        First come those that few others are like: switching one of many that read the tensor alike
        leaves the conversion for the others.
        """
        if len(sites) <= MOST_SITES:
            return sites
        scale_of = {edge.node: self._prediction.form.scales.get(edge) for edge in edges}
        alike: dict[Hashable, list[Site]] = {}
        for site in sites:
            scales = [scale_of.get(node.name) for node in site.match.nodes.values()]
            alike.setdefault((site.match.rule.id, *scales), []).append(site)
        rare_first = sorted(alike.values(), key=len)
        return [site for group in rare_first for site in group][:MOST_SITES]

    def _requantized(self, edges: Iterable[Edge]) -> list[tuple[str, ...]]:
        """The tensors of the scales between which a requantize layer before ``edges`` converts.

        These are the two of an edge, or that of what the node before moves and that of its reader,
        as where a Concat joins slices of what a norm wrote (a shifted window). In one scale
        nothing is left to convert.
        """
        form, found = self._prediction.form, dict[tuple[str, ...], None]()
        for edge in edges:
            producer = self._graph.producer.get(edge.tensor)
            given = () if producer is None else self._graph.edges_into(producer)
            before = form.scales.get(edge), *(form.last(other) for other in given)
            after = form.last(edge)
            for scale in before:
                if scale is None or after is None or scale == after:
                    continue
                if scale.format == after.format and not (scale.variant or after.variant):
                    found[tuple(sorted(scale.tensors | after.tensors))] = None
        return list(found)

    def around(self, tensors: Iterable[str]) -> Placement:
        """What the placement says of ``tensors`` and of those that share a scale with them."""
        return Placement(frozenset(g for t in tensors for g in self._groups_of.get(t, ())))


def _names(step: Step) -> list[str]:
    return [predicted.layer.name for predicted in step.layers]


def with_edges(
    placement: Placement, edges: Sequence[Edge], shared: Sequence[str] = ()
) -> Placement:
    """``placement`` with ``edges`` quantized too; ``shared`` tensors get one scale."""
    tied = [tuple(edge.tensor for edge in group.edges) for group in placement.groups]
    formats = dict(placement.formats)
    known = {formats.get(edge) for edge in edges if edge in placement.edges}
    if len(known) == 1:
        formats |= _in_format(edges, known.pop())
    return Placement.of([*placement.edges, *edges], [*tied, tuple(shared)], formats)


def without_edges(placement: Placement, edges: Sequence[Edge]) -> Placement:
    """``placement`` with ``edges`` left in float."""
    return placement.without(set(edges))


def with_layout(placement: Placement, site: Site, layout: ResolvedLayout) -> Placement:
    """``placement`` with ``site`` switched to ``layout``."""
    considered = {edge for other in site.layouts.values() for edge in other.quantize}
    dropped = (considered - layout.quantize) | layout.keep_float
    base = without_edges(placement, tuple(dropped))
    tied = [tuple(edge.tensor for edge in group.edges) for group in base.groups]
    formats = {e: chosen for e, chosen in base.formats.items() if e not in layout.quantize}
    required = {base.formats.get(edge) for edge in layout.requires}
    chosen = required.pop() if len(required) == 1 else layout.format
    formats |= _in_format(layout.quantize, chosen)
    return Placement.of([*base.edges, *layout.quantize], [*tied, *layout.shared], formats)


def _in_format(edges: Iterable[Edge], chosen: Format | None) -> dict[Edge, Format]:
    return {} if chosen is None else dict.fromkeys(edges, chosen)
