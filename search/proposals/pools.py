"""What one proposal looks at: the ends of descents and what is around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from placer.search.landscape.landscape import Landscape, Moves, State
from placer.search.models.noise_model import NoiseModel
from placer.search.proposals.exact import solve
from placer.search.proposals.gated import Gated
from placer.search.proposals.outlook import Outlook
from placer.search.proposals.pool_search import (
    FINALISTS,
    LARGE,
    IsNew,
    Pool,
    PoolSearch,
    best_states,
)

# Of what is best around planned states, so many are planned, too.
PLANNED = 8
# Where to look, by whether groups may be split.
Plan = Mapping[bool, Sequence[State]]
NO_PLAN: Plan = MappingProxyType({})


@dataclass(eq=False)
class Pools:
    """The states that were found for one proposal, of whole groups and with split ones.

    ``planned``: where to look first instead of searching. ``found``: what descents ended at, and
    the best around it, by whether groups may be split. ``optimum``: what is proven to be best under
    the gates by the predictions; None if nothing is.
    """

    gated: Gated
    outlook: Outlook
    planned: Plan
    found: dict[bool, list[State]] = field(default_factory=dict)
    optimum: State | None = None
    _pools: dict[bool, Pool] = field(default_factory=dict)

    @property
    def _land(self) -> Landscape:
        return self.outlook.landscape

    @property
    def _search_now(self) -> PoolSearch:
        return pool_search(self.outlook, self.gated)

    def _moves(self, *, per_site: bool) -> Moves:
        return self._land.all_moves if per_site else self._land.group_moves

    def best(self, is_new: IsNew, *, per_site: bool) -> State | None:
        """The best that ``is_new``; None if nothing that was found is."""
        pool = self._pools.get(per_site, {})
        best = self._best_of(pool, is_new)
        if best is None and not pool and per_site in self.planned:
            self._pools[per_site] = pool
            self._follow(self.planned[per_site], pool, is_new, per_site=per_site)
            best = self._best_of(pool, is_new)
        if best is None:
            self._pools[per_site] = pool
            self._search(pool, is_new, per_site=per_site)
            best = self._best_of(pool, is_new)
        return best

    def _search(self, pool: Pool, is_new: IsNew, *, per_site: bool) -> None:
        """Add what descents find to ``pool``."""
        moves, outlook = self._moves(per_site=per_site), self.outlook
        optima = self._search_now.optima(outlook.objective, moves, outlook.starts)
        self._complete(pool, optima, is_new, per_site=per_site)

    def _follow(
        self, optima: Sequence[State], pool: Pool, is_new: IsNew, *, per_site: bool
    ) -> None:
        """Add to ``pool`` what is best now of ``optima`` that were planned, and near them."""
        values = self._search_now.values(optima, self.outlook.objective)
        if values:
            self._complete(pool, values, is_new, per_site=per_site)

    def _complete(self, pool: Pool, optima: Pool, is_new: IsNew, *, per_site: bool) -> None:
        """Add ``optima`` to ``pool``, what is around them, and the optimum of the predictions."""
        moves = self._moves(per_site=per_site)
        ends, outlook = list(optima), self.outlook
        # Where latencies are off the sum of layers, what is best by it may not be proposed.
        first = None if outlook.is_misfit and not outlook.explores else is_new
        self._search_now.look_around(optima, outlook.objective, moves, first)
        self.found[per_site] = list(dict.fromkeys((*ends, *best_states(optima, PLANNED))))
        pool.update(optima)
        # Of predictions that are known to be off the optimum is not worth its time.
        is_sum = not (outlook.explores or outlook.is_misfit)
        if is_sum and not per_site and self.gated.noise is not None:
            self._add_optimum(pool, self.gated.noise)

    def _add_optimum(self, pool: Pool, noise: NoiseModel) -> None:
        """Add what is best under the gates by the predictions, which descents may miss."""
        land, objective = self._land, self.outlook.objective
        if len(land.group_moves) > LARGE:
            return
        whole = [s for s in best_states(self._held(pool), FINALISTS) if land.is_whole(s)]
        start = whole[0] if whole else land.state(land.space.least)
        optimum = solve(land, objective, noise, self.gated.limit, start)
        if optimum is None:
            return
        pool[optimum.state] = land.value(optimum.state, objective)
        if optimum.proven:
            self.optimum = optimum.state

    def _best_of(self, pool: Pool, is_new: IsNew) -> State | None:
        outlook, finalists = self.outlook, best_states(self._held(pool), FINALISTS)
        if not outlook.explores and outlook.is_misfit:
            # Descents know nothing of what latencies are off the sum of layers.
            error = outlook.latency.error
            finalists.sort(key=lambda state: (pool[state] + error(state), state))
        return next(filter(is_new, finalists), None)

    def _held(self, pool: Pool) -> Pool:
        """Those of ``pool`` that are predicted to hold the gates."""
        search = self._search_now
        return {state: value for state, value in pool.items() if search.holds(state)}


def pool_search(outlook: Outlook, gated: Gated) -> PoolSearch:
    """Descents under what ``gated`` allows by now."""
    explores, turn = outlook.explores, outlook.turn
    return PoolSearch(outlook.landscape, gated.noise, gated.limit, explores=explores, turn=turn)
