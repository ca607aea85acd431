"""Which layouts the default placement has: by the times that a pack states, or by estimates.

A rule sees one site, and whether integers pay depends on what is around it. Where the pack states
times, ``placer.rules.defaults_by_gains`` decides. Where a roofline or a fit estimates layers, the
rules' own layouts stand but where other ones are faster beyond the error of the estimate, or are
rid of conversions for which no product was computed in integers. If float is estimated to be
faster than what comes of that, it is the other way round: float stands but where integers are
faster beyond the error. So the default placement is never estimated to be slower than float, unless
sites are forced.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum

from placer.graph import Node
from placer.plan.dtypes import is_quantized
from placer.prediction.kernels.predictor import KernelPredictor
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.steps import Step
from placer.prediction.select import AnyPredictor, make_predictor
from placer.prediction.times.devices import Device, make_estimator
from placer.prediction.times.estimator import Estimator, NoTimes
from placer.prediction.times.work import WEIGHTED
from placer.quantization import EMPTY
from placer.quantization.placement import Change
from placer.rules.defaults_by_gains import defaults_by_gains
from placer.rules.gains import Gains
from placer.rules.incremental_placement import IncrementalPlacer
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.schema import Rule
from placer.rules.sites import Site, place
from placer.rules.target import ANY_TARGET, Target

_SWEEPS = 4  # Few networks take more than three.
_LEAST_US = 0.1  # Less is no gain.
# Where every kernel is predicted anew for each change: of that many nodes in a sweep, which takes
# some seconds. The largest changes are looked at first.
_PREDICTED_NODES = 20_000
Layouts = dict[int, int]  # By the number of a site that of its layout.


def with_defaults(
    matches: Matches,
    sites: Sequence[Site],
    rules: Sequence[Rule],
    gains: Gains | None,
    predictor: AnyPredictor,
    estimator: Estimator,
    target: Target = ANY_TARGET,
) -> tuple[Site, ...]:
    """``sites`` with the defaults that make the pack's default placement.

    ``rules`` and ``gains`` are the pack's on ``target``, ``predictor`` and ``estimator`` of the
    graph of ``matches``.
    """
    if gains is not None or isinstance(estimator, NoTimes):
        return defaults_by_gains(matches, sites, rules, gains, target)
    return _by_estimates(matches, sites, predictor, estimator)


def with_defaults_on_device(
    matches: Matches,
    sites: Sequence[Site],
    pack: Pack,
    target: Target,
    base: str,
    device: Device | None,
) -> tuple[Site, ...]:
    """``with_defaults`` of what ``pack`` says is built for ``target`` and estimated on ``device``.

    ``base``: see ``make_predictor``.
    """
    behaviour = pack.manifest.behaviour
    if behaviour.gains is not None or device is None:
        return defaults_by_gains(
            matches, sites, pack.rules, behaviour.gains_on(pack.target(target)), target
        )
    predictor = make_predictor(matches.graph, pack, target, base, matches)
    estimator = make_estimator(matches.graph, device, behaviour)
    return _by_estimates(matches, sites, predictor, estimator)


def _by_estimates(
    matches: Matches, sites: Sequence[Site], predictor: AnyPredictor, estimator: Estimator
) -> tuple[Site, ...]:
    """``sites``, with less quantized by default where that is estimated to be faster.

    Sites of equal structure keep one default.
    """
    defaults = {n: [*site.layouts].index(site.default) for n, site in enumerate(sites)}
    moves = list(_moves(sites, defaults))
    if isinstance(predictor, KernelPredictor):
        moves = moves[::-1][: _PREDICTED_NODES // max(1, len(matches.graph.nodes))]
    descent = _Descent(sites, predictor, estimator)
    descent.begin(defaults)
    descent.go_on(moves)
    float_us = estimator.total_us(predictor.predict(EMPTY))
    if descent.total_us > float_us:
        least = {n: _least(site, defaults[n]) for n, site in enumerate(sites)}
        descent.begin(least)
        descent.go_on(moves)
        if descent.total_us > float_us:  # The whole may take longer than its layers one by one.
            descent.begin(least)
    return tuple(
        replace(site, default=[*site.layouts][descent.layouts[n]]) for n, site in enumerate(sites)
    )


def are_left_float(sites: Sequence[Site]) -> bool:
    """Whether nothing is quantized by default, though by the rules' own layouts something is."""
    own = ((site, site.match.rule.default_layout) for site in sites)
    quantize = (
        name in s.layouts and name not in s.barred and s.layouts[name].quantize for s, name in own
    )
    return any(quantize) and not place(sites, {}).edges


def _moves(sites: Sequence[Site], defaults: Layouts) -> Iterator[Layouts]:
    """Sites of equal structure to a layout that quantizes less, or back; rows of them all the way.

    Only sites whose default may quantize less are moved.
    """
    alike: dict[str, list[int]] = {}
    for index, site in enumerate(sites):
        if _less(site):
            alike.setdefault(site.signature, []).append(index)
    for members in alike.values():
        for layout in (*_less(sites[members[0]]), defaults[members[0]]):
            yield dict.fromkeys(members, layout)
    count, rows = 2, [*alike.values()]
    while count < 2 * len(rows):
        for start in range(0, len(rows), count // 2):
            row = [site for members in rows[start : start + count] for site in members]
            yield {site: _least(sites[site], defaults[site]) for site in row}
            yield {site: defaults[site] for site in row}
        count *= 2


def _least(site: Site, default: int) -> int:
    """The layout that quantizes the least, by number: ``default`` where none quantizes less."""
    return next(iter(_less(site)), default)


def _less(site: Site) -> list[int]:
    """The layouts that quantize a part of what the default does, by number, the least first."""
    layouts, default = [*site.layouts.values()], site.layouts[site.default]
    return sorted(
        (
            number
            for number, (name, layout) in enumerate(site.layouts.items())
            if layout.quantize < default.quantize
            and name not in site.barred
            and layout.format in (None, default.format)
        ),
        key=lambda number: len(layouts[number].quantize),
    )


@dataclass(frozen=True)
class _Built:
    """Some layers: how long they take, which are conversions, which nodes sum integers."""

    us: float
    conversions: int
    products: frozenset[str]


class _Descent:
    """Goes from the default layouts to others whose layers are estimated to be faster."""

    def __init__(
        self, sites: Sequence[Site], predictor: AnyPredictor, estimator: Estimator
    ) -> None:
        self._placer = IncrementalPlacer(sites)
        self._predictor = predictor
        self._estimator = estimator
        self.layouts: Layouts = {}
        self._prediction = predictor.predict(EMPTY)

    def begin(self, layouts: Layouts) -> None:
        """Go on from ``layouts``."""
        self.layouts = layouts
        placement = self._placer.place(tuple(layouts[n] for n in range(len(layouts))))
        self._prediction = self._predictor.predict(placement, self._prediction)

    @property
    def total_us(self) -> float:
        """What the layers of ``layouts`` take."""
        return self._estimator.total_us(self._prediction)

    def go_on(self, moves: Sequence[Layouts]) -> None:
        """Make the moves that are worth it until none is."""
        for _ in range(_SWEEPS):
            before = self.layouts
            for move in moves:
                self._try(move)
            if self.layouts == before:
                return

    def _try(self, move: Layouts) -> None:
        differing = [site for site, layout in move.items() if self.layouts[site] != layout]
        after = ChainMap({site: move[site] for site in differing}, self.layouts)
        change = self._placer.change_at(differing, self.layouts, after)
        if not (change.gone or change.come):
            return
        old, new = self._built(change)
        if not _is_worth_it(old, new, self._estimator.layer_error):
            return
        placement = self._prediction.placement.changed(change)
        self._prediction = self._predictor.predict(placement, self._prediction)
        self.layouts = dict(after)

    def _built(self, change: Change) -> tuple[_Built, _Built]:
        """The layers that ``change`` takes away and those that come instead."""
        changed, steps = self._predictor.vary(self._prediction, change), self._prediction.steps
        old = [steps[position] for position in changed if position in steps]
        return self._sum(old), self._sum([step for step in changed.values() if step is not None])

    def _sum(self, steps: Sequence[Step]) -> _Built:
        layers = [layer for step in steps for layer in step.layers]
        return _Built(
            fsum(us for step in steps for us in self._estimator.step_us(step)),
            sum(layer.is_conversion for layer in layers),
            frozenset(node.name for layer in layers for node in _integer_products(layer)),
        )


def _is_worth_it(old: _Built, new: _Built, error: float) -> bool:
    """Whether ``new`` layers are faster beyond doubt, or rid of conversions that gain nothing."""
    if new.us > old.us - _LEAST_US:
        return False
    gains_nothing = new.conversions < old.conversions and new.products == old.products
    return gains_nothing or new.us * (1 + error) < old.us


def _integer_products(predicted: PredictedLayer) -> Iterator[Node]:
    """The nodes of a layer that sums products of integers."""
    if any(map(is_quantized, predicted.layer.input_types)):
        yield from (node for node in predicted.nodes if node.op in WEIGHTED)
