"""The search that learns from every build: predicted latency under predicted gates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NoReturn, TypeGuard

import numpy as np

from placer.common.statistics import Ratio
from placer.results.parts import LatencyPart
from placer.search.exact import solve
from placer.search.landscape import Cancelled, Landscape, Objective, State, apply
from placer.search.latency_model import LatencyModel, Observation
from placer.search.near_best import near_best
from placer.search.noise_limits import PROBES, PROBES_PER_TRIAL, Probes, allowed_noise
from placer.search.noise_model import NoiseModel, NoiseObservation
from placer.search.pareto import FLOAT_MODEL, noise_targets
from placer.search.pool_search import FINALISTS, LARGE, Pool, PoolSearch, best_states
from placer.search.records import Measurement, Skip, TrialRecord
from placer.search.samplers import Proposal, TpeProposer
from placer.search.space import BASE, Choices, Space

# Random restarts of the search for the best prediction, and how many changes each begins with.
RESTARTS, KICK = 4, 4
# What counts as a gain, in parts of the float model's latency, and after how many trials without
# one the search may end.
RESOLUTION, PATIENCE = 1e-3, 16
# A placement whose noise on a few samples is this much above what gates allow is not tried; for one
# proposal so many are skipped.
TOLERANCE, SKIPS = 1.1, 8
# What a layout costs that only failed trials had, shared by the suspects of a trial.
FAILED = 0.5
# Before a search for a front ends, it looks at the limits of noise of so many cycles.
CYCLES = 4
# Where latencies are off the model, so many changes of the best in a row may bring nothing.
NEAR, NEAR_TRIALS = "near the best", 24
# What is the best under the gates, if predictions are right and changes act in pairs at most.
OPTIMUM = "model optimum"
# What random numbers are drawn for.
DRAW, START, NOISE = 1, 2, 3

Probe = Callable[[Choices], float]


def seed_proposals(space: Space) -> Iterator[Proposal]:
    """Where every search begins: nothing but what is forced, the pack's default, everything."""
    yield Proposal("none" if space.least == space.floats else "forced", space.least)
    yield Proposal("default", space.defaults)
    yield Proposal("everything", space.everything)


class SurrogateProposer:
    """Proposes the placement with the least predicted latency among those predicted to hold.

    Predictions come from the layers that the rules predict, whose costs every trial teaches
    (``LatencyModel``), and from the noise of sites, which is measured once gates are missed
    (``NoiseModel``). Every other proposal draws the costs from what is still possible instead of
    expecting the mean (Thompson 1933), which tries what is uncertain and promising. Whole groups
    are changed first, single sites once groups have no more to give.

    For a front of latency and accuracy, proposals look in turn for the fastest placement that holds
    the gates and for the fastest ones within stricter limits of noise (the epsilon-constraint
    method of Haimes, Lasdon and Wismer 1971), which follow from the trials.
    """

    def __init__(
        self,
        landscape: Landscape,
        seed: int,
        probe: Probe,
        *,
        warm_starts: Sequence[Proposal] = (),
        remembered: Mapping[str, float] | None = None,
        per_site: bool = True,
        noise_limit: float | None = None,
        levels: int = 0,
        reserve: Callable[[int], int] | None = None,
    ) -> None:
        """``landscape``: with the base precision decided, if it is a decision; of trials in another
        one it learns what may be gained, and nothing about layers and noise. ``probe``: measures
        the noise power of a placement, or remembers it, without what the base precision adds to it.
        ``remembered``: costs by signature id, as parts of the float model's latency.
        ``per_site``: whether groups may be split. ``noise_limit``: what the gates allow, where
        they say it in terms of noise; else it is learned. ``levels``: how many stricter limits of
        noise to look at besides; see ``placer.search.pareto.noise_targets``. ``reserve``: gives a
        proposal a number, at least the one that it is given, that no other worker's has; without
        it that is the number of trials.
        """
        self.landscape = landscape
        self.seed = seed
        self._probe = probe
        self._noises: dict[State, float] = {}
        self.remembered = remembered or {}
        self.per_site = per_site
        self.noise_limit = noise_limit
        self.levels = levels
        self._reserve = reserve
        self._seeds = (*warm_starts, *seed_proposals(landscape.space))

    def informed(
        self, layers: Mapping[str, float], reserve: Callable[[int], int] | None = None
    ) -> SurrogateProposer:
        """The same proposer where ``layers``, costs by signature id, are remembered too.

        ``reserve``: see the constructor; its proposals get numbers by it.
        """
        found = copy.copy(self)
        found._reserve = reserve
        found.remembered = {**self.remembered, **layers}
        return found

    def own(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those of ``trials`` in this base precision."""
        bases = self.landscape.space.bases
        return [t for t in trials if not bases or t.choices.get(BASE, bases[0]) in bases]

    def expected(self, trials: Sequence[TrialRecord], choices: Choices) -> tuple[float, float]:
        """Predicted latency of ``choices`` and its standard deviation, of the float model's."""
        return self.latency(self.own(trials)).predict(self.landscape.state(choices))

    def latency(self, own: Sequence[TrialRecord]) -> LatencyModel:
        """What ``own``, trials in this base precision, tell of latency."""
        found = self.floats(own) if self.landscape.space.bases else None
        latency = None if found is None else found.measurement
        return LatencyModel(
            self.landscape,
            observations(self.landscape, own),
            self.remembered,
            float_latency=1.0 if latency is None else latency.ratio.median,
        )

    def floats(self, own: Sequence[TrialRecord]) -> TrialRecord | None:
        """The trial of the float model in this base precision, if there is one."""
        space = self.landscape.space
        wanted = space.placement(space.floats).id
        return next((trial for trial in own if trial.placement_id == wanted), None)

    def noise(self, state: State) -> float:
        """The noise power of ``state``, measured once."""
        if state not in self._noises:
            self._noises[state] = self._probe(self.landscape.choices(state))
        return self._noises[state]

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        for seed in self.untried_seeds(trials):
            return seed
        known = self._with_pending(trials)
        own = self.own(known)
        if not any(trial.ratio is not None for trial in own):
            return TpeProposer(self.landscape.space, self.seed).propose(own)
        turn = len(trials) if self._reserve is None else self._reserve(len(trials))
        return self._first_to_offer(known, turn)

    def _with_pending(self, trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
        """``trials``, of which those that others are running have the latency that is predicted.

        Ginsbourger, Le Riche and Carraro 2010, Kriging is well-suited to parallelize optimization.
        """
        if not any(trial.running for trial in self.own(trials)):
            return trials
        latency = self.latency(self.own(trials))

        def believed(trial: TrialRecord) -> TrialRecord:
            if not trial.running or not self.own([trial]):
                return trial
            expected, _ = latency.predict(self.landscape.state(trial.choices))
            return replace(trial, measurement=_exactly(expected))

        return [believed(trial) for trial in trials]

    def untried_seeds(self, trials: Sequence[TrialRecord]) -> Iterator[Proposal]:
        """What it begins with, as far as that was not tried."""
        tried = {trial.placement_id for trial in trials}
        placement = self.landscape.space.placement
        return (seed for seed in self._seeds if placement(seed.choices).id not in tried)

    def rehearse(self, trials: Sequence[TrialRecord], running: Proposal) -> None:
        """Predict what the next proposal will look at if ``running`` turns out as predicted.

        What it finds is dropped: the next proposal is the same without a rehearsal, and sooner made
        with one. Ends early once ``landscape.cancel`` is set, and where noise had to be measured.
        """
        rehearsing = copy.copy(self)
        rehearsing._probe, rehearsing._reserve = _unknown, None
        with suppress(Cancelled):
            # The first proposals are given; that after them takes longest.
            known = self._as_expected(trials, [running])
            seeds = list(self.untried_seeds(known))
            rehearsing.propose(self._as_expected(known, seeds))

    def _as_expected(
        self, trials: Sequence[TrialRecord], running: Sequence[Proposal]
    ) -> list[TrialRecord]:
        """``trials``, and those of ``running`` as if their latency was what is predicted."""
        latency = self.latency(self.own(trials))
        found = list(trials)
        for proposal in running:
            expected, _ = latency.predict(self.landscape.state(proposal.choices))
            found.append(_measured_as(expected, len(found), proposal, self.landscape.space))
        return found

    def _first_to_offer(self, trials: Sequence[TrialRecord], turn: int) -> Proposal | None:
        """What the target whose turn it is proposes; one that expects a gain goes before it."""
        count = 1 + len(noise_targets(trials, self.levels, 0))
        cycle, first = divmod(turn, count)
        targets = (math.inf, *noise_targets(trials, self.levels, cycle))
        rounds = []
        for target in (*targets[first:], *targets[:first]):
            rounds.append(_Round(self, trials, target, turn, explores=cycle % 2 == 1))
            proposal = rounds[-1].propose(only_gains=True)
            if proposal is not None:
                return proposal
        for own in rounds:
            proposal = own.propose(only_gains=False)
            if proposal is not None:
                return proposal
        return self._between(trials, cycle, turn)

    def _between(self, trials: Sequence[TrialRecord], cycle: int, turn: int) -> Proposal | None:
        """A gain at the limits of later cycles, before the search ends."""
        for later in range(cycle + 1, cycle + CYCLES):
            for target in noise_targets(trials, self.levels, later):
                own = _Round(self, trials, target, turn, explores=False)
                proposal = own.propose(only_gains=True)
                if proposal is not None:
                    return proposal
        return None


class _Round:
    """One proposal of ``SurrogateProposer``, made from its trials.

    ``target``: noise power within which it looks, besides what gates allow; infinite for the gates
    alone. ``turn``: number of the proposal, which its random numbers hang on. ``explores``: whether
    costs and noise are drawn instead of expected.
    """

    def __init__(
        self,
        owner: SurrogateProposer,
        trials: Sequence[TrialRecord],
        target: float,
        turn: int,
        *,
        explores: bool,
    ) -> None:
        self._owner = owner
        self._turn = turn
        self._land = owner.landscape
        self._trials = trials
        self._own = owner.own(trials)
        self._target = target
        self._states = [self._land.state(trial.choices) for trial in self._own]
        self._forms = {self._land.form(state) for state in self._states}
        self._limit = min(allowed_noise(trials, owner.noise_limit), target)
        # What the base precision adds to noise, about, whatever is quantized.
        self._base_noise = self._noise_of_base()
        self._limit -= self._base_noise
        self._explores = explores
        self._pools: dict[bool, Pool] = {}
        # Those that were found before the noise of what they led to was known.
        self._outdated: set[bool] = set()
        self._skipped = [skip for trial in self._own for skip in trial.skipped]
        self._forms |= {self._form(skip.choices) for skip in self._skipped if self._is_out(skip)}
        self._noise = self._learn_noise()
        self._best = min(self._feasible(trials), default=math.inf)
        self._holds_best = min(self._feasible(self._own), default=math.inf) <= self._best
        self._passed_over: list[Skip] = []
        self._optimum: State | None = None

    def propose(self, *, only_gains: bool) -> Proposal | None:
        """``only_gains``: None unless a gain is predicted, however few trials there are."""
        # With a front, a gain that is predicted at another limit comes first.
        goes_near = self._is_misfit() and not (only_gains and self._owner.levels)
        # What one way of looking has nothing left of, the other may: only then has it ended.
        if goes_near and (self._explores or self._has_stalled()):
            return self._near_best() or self._predicted(only_gains=only_gains)
        proposal = self._predicted(only_gains=only_gains)
        return self._near_best() if proposal is None and goes_near else proposal

    def _is_misfit(self) -> bool:
        """Whether latencies are off what layers explain by more than their measurement."""
        has_best = self._holds_best and self._best < math.inf
        return has_best and self._latency.misfit.level > 0

    def _near_best(self) -> Proposal | None:
        """A change of one or two groups of the best; None once many in a row brought nothing."""
        if sum(trial.kind == NEAR for trial in self._since_gain()) >= NEAR_TRIALS:
            return None
        while True:
            state = self._change_of_best()
            if state is None:
                return None
            skip = self._hopeless(state) if len(self._passed_over) < SKIPS else None
            if skip is None:
                return Proposal(NEAR, self._land.choices(state), tuple(self._passed_over))
            self._pass_over(skip)

    def _change_of_best(self) -> State | None:
        """Of groups, or where they have none left and may be split, of sites."""
        best = min(
            (trial.ratio, state)
            for state, trial in zip(self._states, self._own, strict=True)
            if trial.ratio is not None and self._feasible([trial])
        )
        allowed = self._is_allowed
        found = near_best(self._land, self._latency, best, self._land.group_moves, allowed)
        if found is None and self._owner.per_site:
            found = near_best(self._land, self._latency, best, self._land.all_moves, allowed)
        return found

    def _is_allowed(self, state: State) -> bool:
        return self._land.form(state) not in self._forms and self._pool_search.holds(state)

    def _since_gain(self) -> Sequence[TrialRecord]:
        """The trials after the last gain."""
        best, last = math.inf, 0
        for number, trial in enumerate(self._trials):
            ratio = min(self._feasible([trial]), default=math.inf)
            if ratio < best - RESOLUTION:
                best, last = ratio, number
        return self._trials[last + 1 :]

    def _predicted(self, *, only_gains: bool) -> Proposal | None:
        while True:
            found = self._look(per_site=False)
            if self._owner.per_site and not self._is_gain(found):
                found = self._look(per_site=True) or found
            must_gain = only_gains or self._has_stalled()
            if not self._is_useful(found) or (must_gain and not self._is_gain(found)):
                return None
            state = found[0]
            skip = self._hopeless(state) if len(self._passed_over) < SKIPS else None
            if skip is None:
                kind = "explore" if self._explores else "surrogate"
                kind = OPTIMUM if state == self._optimum else kind
                return Proposal(kind, self._land.choices(state), tuple(self._passed_over))
            self._pass_over(skip)

    def _pass_over(self, skip: Skip) -> None:
        self._passed_over.append(skip)
        self._skipped.append(skip)
        self._forms.add(self._form(skip.choices))
        self._noise = self._learn_noise()
        if len(self._land.all_moves) <= LARGE:
            self._outdated = set(self._pools)

    def _hopeless(self, state: State) -> Skip | None:
        """Measure the noise of what is to be tried, where gates bind; None if it may hold them."""
        if self._noise is None:
            return None
        noise = self._owner.noise(state)
        return Skip(self._land.choices(state), noise) if noise > TOLERANCE * self._limit else None

    def _is_out(self, skip: Skip) -> bool:
        """Whether what was skipped once, perhaps for a stricter target, is to be skipped again."""
        return not self._owner.levels or skip.noise > TOLERANCE * self._limit

    def _feasible(self, trials: Sequence[TrialRecord]) -> list[float]:
        """Latencies of the trials that hold the gates within the target."""
        ended = (trial for trial in trials if not trial.running)
        held = (trial for trial in ended if trial.feasible and self._excess(trial) <= 0)
        return [trial.ratio for trial in held if trial.ratio is not None]

    def _excess(self, trial: TrialRecord) -> float:
        """By how many times a trial's noise is above the target; 0 if it is within."""
        if math.isinf(self._target):
            return 0.0
        return math.inf if trial.noise is None else max(0.0, trial.noise / self._target - 1)

    def _seed(self, purpose: int) -> list[int]:
        """Every purpose draws from a seed of its own, however often others draw."""
        return [self._owner.seed, self._turn, purpose]

    def _form(self, choices: Choices) -> str:
        return self._land.form(self._land.state(choices))

    def _look(self, *, per_site: bool) -> tuple[State, float] | None:
        """The best untried state and its optimistic latency; None if all found were tried."""
        pool = self._pools.get(per_site, {})
        if per_site in self._outdated:
            # Latencies are as they were: only ways on from what turned out too noisy are new.
            self._outdated.remove(per_site)
            self._search(pool, [self._land.state(self._passed_over[-1].choices)], per_site=per_site)
        found = self._best_of(pool)
        if found is None:
            self._pools[per_site] = pool
            self._search(pool, self._starts(), per_site=per_site)
            found = self._best_of(pool)
        return found

    def _search(self, pool: Pool, starts: Sequence[State], *, per_site: bool) -> None:
        """Add what is found from ``starts`` to ``pool``."""
        moves = self._land.all_moves if per_site else self._land.group_moves
        pool.update(self._pool_search.search(self._objective, moves, starts))
        if not (per_site or self._explores or self._noise is None):
            self._add_optimum(pool, self._objective, self._noise)

    @cached_property
    def _objective(self) -> Objective:
        draw = self._seed(DRAW) if self._explores else None
        return self._with_failures(self._latency.objective(draw))

    def _add_optimum(self, pool: Pool, objective: Objective, noise: NoiseModel) -> None:
        """Add what is best under the gates by the predictions, which descents may miss."""
        if len(self._land.group_moves) > LARGE:
            return
        held = {state: value for state, value in pool.items() if self._pool_search.holds(state)}
        whole = [state for state in best_states(held, FINALISTS) if self._land.is_whole(state)]
        start = whole[0] if whole else self._land.state(self._land.space.least)
        found = solve(self._land, objective, noise, self._limit, start)
        if found is None:
            return
        pool[found.state] = self._land.value(found.state, objective)
        if found.proven:
            self._optimum = found.state

    def _best_of(self, pool: Pool) -> tuple[State, float] | None:
        search = self._pool_search
        held = {state: value for state, value in pool.items() if search.holds(state)}
        for state in best_states(held, FINALISTS):
            if self._land.form(state) not in self._forms:
                mean, deviation = self._latency.predict(state)
                return state, mean - 2 * deviation
        return None

    @property
    def _pool_search(self) -> PoolSearch:
        return PoolSearch(
            self._land,
            self._noise,
            self._limit,
            explores=self._explores,
            turn=self._turn,
        )

    @cached_property
    def _latency(self) -> LatencyModel:
        return self._owner.latency(self._own)

    def _starts(self) -> list[State]:
        space = self._land.space
        ranked = sorted(
            (trial.violation, self._excess(trial), trial.ratio, state)
            for state, trial in zip(self._states, self._own, strict=True)
            if trial.ratio is not None
        )
        best = [state for *_, state in ranked[:2]]
        fixed = (space.defaults, space.least, space.everything, space.weighted_only)
        starts = [*best, *(self._land.state(choices) for choices in fixed)]
        rng = np.random.default_rng(self._seed(START))
        for _ in range(RESTARTS):
            picks = rng.integers(len(self._land.group_moves), size=KICK)
            starts.append(apply(best[0], [self._land.group_moves.moves[int(i)] for i in picks]))
        return list(dict.fromkeys(starts))

    def _is_useful(self, found: tuple[State, float] | None) -> TypeGuard[tuple[State, float]]:
        """Whether anything was found, for a target anything that may be faster than float."""
        if found is None or math.isinf(self._target):
            return found is not None
        return found[1] < FLOAT_MODEL.latency

    def _is_gain(self, found: tuple[State, float] | None) -> bool:
        return found is not None and found[1] < self._best - RESOLUTION

    def _has_stalled(self) -> bool:
        """Whether the last trials brought nothing."""
        ended = [trial for trial in self._trials if not trial.running]
        before = min(self._feasible(ended[:-PATIENCE]), default=math.inf)
        return len(ended) > PATIENCE and before <= self._best + RESOLUTION

    def _noise_of_base(self) -> float:
        """Noise of the float model in this base precision, if it is one of several."""
        own = self._owner.floats(self._own) if self._land.space.bases else None
        noise = 0.0 if own is None or own.noise is None else own.noise
        return noise if noise < self._limit else 0.0

    def _learn_noise(self) -> NoiseModel | None:
        """The noise of sites, None while no gate was missed."""
        if math.isinf(self._limit):
            return None
        owner = self._owner
        probes = Probes(
            self._land,
            owner.noise,
            self._limit,
            per_site=owner.per_site,
            budget=PROBES + PROBES_PER_TRIAL * len(self._trials),
        )
        measured = [
            NoiseObservation(state, max(0.0, trial.noise - self._base_noise))
            for state, trial in zip(self._states, self._own, strict=True)
            if trial.noise is not None
        ]
        skipped = [
            NoiseObservation(self._land.state(skip.choices), skip.noise) for skip in self._skipped
        ]
        rng = np.random.default_rng(self._seed(NOISE)) if self._explores else None
        return NoiseModel(self._land, [*measured, *skipped, *probes.observations()], rng)

    def _with_failures(self, objective: Objective) -> Objective:
        """Add a cost to layouts that only failed trials have."""
        worked: set[tuple[int, int]] = set()
        for state, trial in zip(self._states, self._own, strict=True):
            if trial.error is None:
                worked.update(enumerate(state))
        extras = objective.extras.copy()
        for state, trial in zip(self._states, self._own, strict=True):
            suspects = set(enumerate(state)) - worked if trial.error is not None else set()
            for site, layout in suspects:
                extras[site, layout] += FAILED / len(suspects)
        return Objective(objective.costs, extras)


def _unknown(choices: Choices) -> NoReturn:
    """What is told of noise that was not measured."""
    del choices
    raise Cancelled


def _measured_as(ratio: float, number: int, proposal: Proposal, space: Space) -> TrialRecord:
    """A trial of ``proposal`` whose latency is ``ratio`` of the float model's."""
    return TrialRecord(
        number=number,
        kind=proposal.kind,
        choices=proposal.choices,
        placement_id=space.placement(proposal.choices).id,
        measurement=_exactly(ratio),
        skipped=proposal.skipped,
    )


def _exactly(ratio: float) -> Measurement:
    """That a latency is ``ratio`` of the float model's, without error."""
    part = LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1)
    return Measurement(Ratio(ratio, ratio, ratio, 1), part)


def observations(landscape: Landscape, trials: Sequence[TrialRecord]) -> list[Observation]:
    """What all trials that were measured tell of latency."""
    return [
        observe(landscape, trial.choices, trial.measurement)
        for trial in trials
        if trial.measurement is not None
    ]


def observe(landscape: Landscape, choices: Choices, measurement: Measurement) -> Observation:
    """What measuring the placement of ``choices`` tells of latency."""
    state, ratio, times = landscape.state(choices), measurement.ratio, measurement.layers
    counts = landscape.counts(state)
    signatures = landscape.layers.signatures
    own = {n: times[signatures[n].id] for n in counts if signatures[n].id in times}
    total = sum(time * counts[n] for n, time in own.items())
    # Profiling slows layers down, so only what part a layer takes is believed.
    shares = {n: time / total * ratio.median for n, time in own.items()} if total else {}
    return Observation(state, ratio.median, (ratio.high - ratio.low) / 4, shares)
