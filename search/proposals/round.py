"""One proposal: the candidates that are looked at, and the one that is worth a trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeGuard

from placer.search.landscape.landscape import State
from placer.search.pareto import FLOAT_MODEL
from placer.search.proposals.around_best import AroundBest
from placer.search.proposals.gated import Gated
from placer.search.proposals.halves import halves
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.near_best import expected_gain
from placer.search.proposals.outlook import CHECK, NOISE, Outlook, seed_for
from placer.search.proposals.pools import NO_PLAN, Plan, Pools
from placer.search.proposals.progress import RESOLUTION, Progress
from placer.search.proposals.repair import pruned, repaired
from placer.search.proposals.tried import Tried
from placer.search.records import Skip, TrialRecord
from placer.search.samplers import Proposal

# By costs that are drawn from what is possible, or to check predictions.
EXPLORE = "explore"
# A change of the best placement, where latencies are off the model.
NEAR = "near the best"
# What is the best under the gates, if predictions are right and changes act in pairs at most.
OPTIMUM = "model optimum"
# What is left of a placement that misses the gates, without what makes it miss them.
REPAIRED = "repaired"
# After so many trials in vain changes of the best leave every other trial to what layers predict.
NEAR_PATIENCE = 4
# Of what is predicted to miss the gates, noise is measured so often for one proposal.
RISKED_SKIPS = 2


class Round:
    """One proposal of ``SurrogateProposer``, made from its trials.

    ``target``: noise power within which it looks, besides what gates allow; infinite for the gates
    alone. ``turn``: number of the proposal, the seed of its random numbers. ``explores``: whether
    costs and noise are drawn instead of expected. ``plan``: where to look instead of searching.
    ``expected``: how many of the trials, the last, are as expected and have not ended. ``hopes``:
    see ``Gated``.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        trials: Sequence[TrialRecord],
        target: float,
        turn: int,
        *,
        explores: bool,
        plan: Plan = NO_PLAN,
        expected: int = 0,
        hopes: bool = False,
    ) -> None:
        self._knowledge = knowledge
        self._land = knowledge.landscape
        self._land.guesses.begin()
        self._target = target
        self._explores = explores
        own = knowledge.own(trials)
        draw = seed_for(knowledge, turn, NOISE) if explores else None
        self._gated = Gated(knowledge, trials, target, draw, expected=expected, hopes=hopes)
        self._progress = Progress(trials, own, target)
        self._tried = Tried(self._land, own, self._gated.ruled_out(), self._progress)
        self._outlook = Outlook(knowledge, self._tried, self._progress, turn, explores=explores)
        # Whether the search ends is not decided by what was planned.
        planned = {} if self._progress.has_stalled() else plan
        self._pools = Pools(self._gated, self._outlook, planned)
        per_site = knowledge.per_site
        self._around = AroundBest(self._tried, self._outlook, self._gated, per_site=per_site)

    def propose(self, *, only_gains: bool) -> Proposal | None:
        """``only_gains``: None unless a gain is predicted, however few trials there are."""
        risked = self._risked()
        if risked is not None:
            return risked
        # With a front, a gain that is predicted at another limit comes first.
        goes_near = self._outlook.is_misfit and not (only_gains and self._knowledge.levels)
        # What one way of looking has nothing left of, the other may: only then has it ended.
        if goes_near and not self._is_far_better():
            return self._near_best() or self._predicted(only_gains=only_gains)
        proposal = self._predicted(only_gains=only_gains)
        return self._near_best() if proposal is None and goes_near else proposal

    def plan(self) -> Plan:
        """What it looks at before it measures any noise."""
        if not self._outlook.is_misfit:
            self._candidate()
        elif not self._is_far_better():
            self._around.promising()
        return self._pools.found

    def look_at_sites(self) -> None:
        """Predict what it looks at once groups promise no gain any more: their sites."""
        goes_near = self._explores and self._outlook.is_misfit  # Then it looks there first.
        if self._splits and not goes_near:
            self._look(per_site=True)

    def hoped(self) -> Proposal | None:
        """The change of the best of which most gain is expected, be it predicted to hold or not."""
        if not self._has_best:
            return None
        state = self._around.hoped(self._pass_over)
        return None if state is None else self._proposal(NEAR, state)

    def unsure(self) -> Proposal | None:
        """The change of the best of which most gain is expected, though none is predicted."""
        if not self._has_best:
            return None
        return self._first_held(self._around.unsure)

    def check(self) -> Proposal | None:
        """What predictions are checked by before the search ends: a half of what the best has.

        Where all trials are near the best, its latency does not tell what is wrong about others.
        """
        if not self._has_best:
            return None
        least = self._land.state(self._land.space.least)
        seed = seed_for(self._knowledge, 0, CHECK)
        for state in halves(self._land, self._tried.best_held(), least, self._tried.states, seed):
            if not self._tried.is_new(state):
                continue
            skip = self._gated.hopeless(state)
            if skip is None:
                return self._proposal(EXPLORE, state)
            self._pass_over(skip)
        return None

    def doubtful(self) -> Proposal | None:
        """What was passed over of which most gain is expected: its trial tells its noise.

        Few samples may say of a placement that it misses a gate that it holds.
        """
        if not self._has_best:
            return None
        latency, best = self._outlook.latency, self._progress.best
        tried = {self._land.form(state) for state in self._tried.states}
        expected = [(0.0, self._land.state(self._land.space.least))]
        for chance, state in self._gated.doubtful():
            if self._land.form(state) not in tried:
                mean, deviation = latency.predict(state)
                expected.append((chance * expected_gain(best - mean, deviation), state))
        gain, state = max(expected)
        return None if gain < RESOLUTION else self._proposal(EXPLORE, state)

    @property
    def _has_best(self) -> bool:
        """Whether the best trial that holds the gates is one in this base precision."""
        return bool(self._tried.held()) and self._progress.holds_best

    def _is_far_better(self) -> bool:
        """Whether it is the turn of what layers predict to be best, and that is predicted to be a
        gain with what latencies are off them, too. After changes in vain, whether it may be one:
        where builds of a model differ, the best trial was also a lucky one, and nothing is
        expected to be faster.
        """
        candidate = None if self._explores else self._candidate()
        if candidate is None:
            return False
        if self._progress.has_stalled(NEAR_PATIENCE):
            return self._is_gain(candidate)
        return self._progress.is_gain(self._outlook.latency.predict(candidate[0])[0])

    def _risked(self) -> Proposal | None:
        """What may miss the gates, if so much gain is expected of it that it is tried first."""
        if self._explores or self._gated.noise is None or not self._has_best:
            return None
        candidate = self._candidate()
        latency = math.inf if candidate is None else self._outlook.latency.predict(candidate[0])[0]
        gain = max(0.0, self._progress.best - latency)
        return self._first_held(partial(self._around.risked, gain), RISKED_SKIPS)

    def _near_best(self) -> Proposal | None:
        """A change of the best; None once all were tried or miss a gate."""
        return self._first_held(self._around.promising)

    def _first_held(
        self, look: Callable[[], State | None], looks: int | None = None
    ) -> Proposal | None:
        """The first of what ``look`` finds that may hold the gates; the rest is passed over.

        None after ``looks``, or where ``look`` finds nothing more.
        """
        for _ in itertools.count() if looks is None else range(looks):
            state = look()
            if state is None:
                return None
            skip = self._gated.hopeless(state)
            if skip is None:
                return self._proposal(NEAR, state)
            self._pass_over(skip)
        return None

    def _predicted(self, *, only_gains: bool) -> Proposal | None:
        """The best by the predictions; None if nothing was found that is worth a trial."""
        while True:
            candidate = self._candidate()
            must_gain = only_gains or self._progress.has_stalled()
            if not self._is_useful(candidate) or (must_gain and not self._is_gain(candidate)):
                return None
            state = candidate[0]
            skip = self._gated.hopeless(state)
            if skip is None:
                kind = EXPLORE if self._explores else "surrogate"
                kind = OPTIMUM if state == self._pools.optimum else kind
                return self._repaired(state) or self._proposal(kind, state)
            self._pass_over(skip)

    def _candidate(self) -> tuple[State, float] | None:
        """The best untried state, of whole groups unless only sites promise a gain; its optimistic
        latency.
        """
        candidate = self._look(per_site=False)
        if self._splits and not self._is_gain(candidate):
            return self._look(per_site=True) or candidate
        return candidate

    @property
    def _splits(self) -> bool:
        """Whether it may look at sites one by one."""
        # Of thousands of sites one more or less teaches next to nothing.
        return self._knowledge.per_site and not (self._explores and self._land.is_vast)

    def _look(self, *, per_site: bool) -> tuple[State, float] | None:
        best = self._pools.best(self._tried.is_new, per_site=per_site)
        return None if best is None else (best, self._outlook.optimistic(best))

    def _repaired(self, state: State) -> Proposal | None:
        """What of ``state`` holds the gates, where none of what was looked at before did."""
        noise, objective = self._gated.noise, self._outlook.objective
        if noise is None or not self._gated.has_skipped_enough:
            return None
        before, is_new = self._tried.best_held(), self._tried.is_new
        repair = repaired(self._land, before, state, noise.extras, objective, self._gated.holds)
        useful = pruned(self._land, before, repair, objective)
        if is_new(useful) and self._progress.is_gain(self._outlook.optimistic(useful)):
            return self._proposal(REPAIRED, useful)
        is_first = before == self._land.state(self._land.space.least)
        return self._proposal(REPAIRED, repair) if is_first and is_new(repair) else None

    def _proposal(self, kind: str, state: State) -> Proposal:
        return Proposal(kind, self._land.choices(state), tuple(self._gated.passed_over))

    def _pass_over(self, skip: Skip) -> None:
        self._tried.pass_over(skip)
        self._gated.pass_over(skip)

    def _is_useful(self, candidate: tuple[State, float] | None) -> TypeGuard[tuple[State, float]]:
        """Whether anything was found, for a target anything that may be faster than float."""
        if candidate is None or math.isinf(self._target):
            return candidate is not None
        return candidate[1] < FLOAT_MODEL.latency

    def _is_gain(self, candidate: tuple[State, float] | None) -> bool:
        return candidate is not None and self._progress.is_gain(candidate[1])
