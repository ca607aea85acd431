"""What is built in the regions of a model, by the layouts of the few sites that decide it.

A change of a site touches a few regions, each of which depends on a few sites only. So what it does
is looked up region by region, and seldom has to be worked out: far fewer combinations of layouts
are met around a region than around all that a change may do something to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from operator import itemgetter

from placer.prediction.layers.paired import Decided
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.predictor import Predictor
from placer.prediction.layers.regions import Region
from placer.prediction.layers.steps import Step
from placer.rules.connected import connected
from placer.rules.incremental_placement import IncrementalPlacer
from placer.search.landscape.moves import Move, State


@dataclass(frozen=True, eq=False)
class _Known:
    """A region and what was ``found`` to be built there, by the layouts of ``sites``.

    ``tensors``: those on whose edges pairs decide it. ``fixed``: layouts of other sites that do.
    """

    number: int
    region: Region
    sites: tuple[int, ...]
    tensors: frozenset[str]
    fixed: Mapping[int, int]
    found: dict[object, Decided] = field(default_factory=dict)

    @cached_property
    def key(self) -> Callable[[Sequence[int]], object]:
        """Of layouts of all sites those of ``sites``."""
        return itemgetter(*self.sites)


class BuiltRegions:
    """What changes of sites do to what is built in the regions around them."""

    def __init__(
        self, predictor: Predictor, placer: IncrementalPlacer, fixed: Sequence[int]
    ) -> None:
        """``fixed``: layouts of the sites of ``placer`` that are not decided, the last ones."""
        self._predictor, self._placer = predictor, placer
        own_fixed = dict(enumerate(fixed, placer.count - len(fixed)))
        self._at: dict[int, list[_Known]] = {}
        sets = [*placer.parts, *predictor.merged]
        joined = [frozenset[str]().union(*(sets[i] for i in part)) for part in connected(sets)]
        part_of = {tensor: part for part in joined for tensor in part}
        for number, region in enumerate(predictor.regions):
            deciding = predictor.deciding(region)
            tensors = deciding.union(*(part_of[tensor] for tensor in deciding if tensor in part_of))
            every = placer.deciding(tensors)
            sites = tuple(site for site in every if site not in own_fixed)
            others = {site: own_fixed[site] for site in every if site in own_fixed}
            known = _Known(number, region, sites, tensors, others)
            for site in sites:
                self._at.setdefault(site, []).append(known)
        # Not of a method: what refers to itself is freed late.
        self.around = lru_cache(maxsize=None)(partial(_around, self._at))

    def touched(self, sites: Iterable[int]) -> frozenset[int]:
        """Numbers of the regions in which changes of ``sites`` may alter what is built."""
        return frozenset(known.number for known in _around(self._at, sites))

    def from_state(self, state: State, near: Prediction) -> RegionsOfState:
        """What changes of ``state``, which is predicted to be ``near``, do."""
        return RegionsOfState(self, state, near)

    def built(self, known: _Known, state: Sequence[int]) -> Decided:
        """What is built in a region in ``state``."""
        key = known.key(state)
        decided = known.found.get(key)
        if decided is None:
            layouts = {**known.fixed, **{site: state[site] for site in known.sites}}
            groups = self._placer.groups_of(known.tensors, layouts)
            decided = known.found[key] = self._predictor.decided(known.region, groups)
        return decided

    def steps(self, near: Prediction, decisions: Iterable[Decided]) -> Mapping[int, Step | None]:
        """See ``Predictor.rebuilt``."""
        return self._predictor.rebuilt(near, decisions)


class RegionsOfState:
    """The changes of one state."""

    def __init__(self, regions: BuiltRegions, state: State, near: Prediction) -> None:
        self._regions, self._state, self._near = regions, state, near
        self._changed = list(state)  # Like ``state`` but while a move is looked at.

    def steps(self, move: Move) -> Mapping[int, Step | None]:
        """The steps, by position, that are others once ``move`` is made."""
        for site, layout in move:
            self._changed[site] = layout
        regions = self._regions
        # What is built there now is not looked up: ``near`` tells it.
        after = [
            regions.built(known, self._changed)
            for known in regions.around(tuple([site for site, _ in move]))
        ]
        for site, _ in move:
            self._changed[site] = self._state[site]
        return regions.steps(self._near, after)


def _around(at: Mapping[int, Sequence[_Known]], sites: Iterable[int]) -> tuple[_Known, ...]:
    """The regions in which changes of ``sites`` may alter what is built; ``at``: by site."""
    return tuple(dict.fromkeys(known for site in sites for known in at.get(site, ())))
