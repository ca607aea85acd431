"""The search that learns from every build: predicted latency under predicted gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeGuard

import numpy as np

from placer.search.landscape import Landscape, Move, Moves, Objective, State, apply
from placer.search.latency_model import LatencyModel, Observation
from placer.search.noise_model import NoiseModel, NoiseObservation, learn_limit
from placer.search.pareto import FLOAT_MODEL, noise_targets
from placer.search.records import Measurement, Skip, TrialRecord
from placer.search.samplers import Proposal, TpeProposer
from placer.search.space import Choices, Space

# Random restarts of the search for the best prediction, and how many changes each begins with.
RESTARTS, KICK = 4, 4
# Prices of noise to search with: parts of the float model's latency for all noise that gates allow.
PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# Blocks of sites of less noise than this part of what gates allow are not looked into.
WORTH_PROBING = 0.1
# What counts as a gain, in parts of the float model's latency, and after how many trials without
# one the search may end.
RESOLUTION, PATIENCE = 1e-3, 16
# Of the placements found, so many are predicted anew one by one until one was not tried.
FINALISTS = 64
# A placement whose noise on a few samples is this much above what gates allow is not tried; for one
# proposal so many are skipped.
TOLERANCE, SKIPS = 1.1, 8
# Predicted noise up to this part of the limit is worth a look.
BORDER = 1.2
# Of all changes, so many of each kind are looked at in pairs.
EXCHANGES = 100
# With more changes than this to choose from, most parts of the model are too far from each other to
# need many starting points: descents begin at the best placement and one other, where gates bind in
# turn, and go on from price to price.
LARGE = 600
MAX_EXCHANGES = 40
# What a layout costs that only failed trials had, shared by the suspects of a trial.
FAILED = 0.5
# Before a search for a front ends, it looks at the limits of noise of so many cycles.
CYCLES = 4
# What random numbers are drawn for.
DRAW, START, NOISE = 1, 2, 3

Probe = Callable[[Choices], float]
Pool = dict[State, float]


def seed_proposals(space: Space) -> Iterator[Proposal]:
    """Where every search begins: nothing quantized, the pack's default, everything."""
    yield Proposal("none", space.floats)
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
    ) -> None:
        """``probe``: measures the noise power of a placement, or remembers it.
        ``remembered``: costs by signature id, as parts of the float model's latency.
        ``per_site``: whether groups may be split. ``noise_limit``: what the gates allow, where
        they say it in terms of noise; else it is learned. ``levels``: how many stricter limits of
        noise to look at besides; see ``placer.search.pareto.noise_targets``.
        """
        self.landscape = landscape
        self.seed = seed
        self._probe = probe
        self._noises: dict[State, float] = {}
        self.remembered = remembered or {}
        self.per_site = per_site
        self.noise_limit = noise_limit
        self.levels = levels
        self._seeds = (*warm_starts, *seed_proposals(landscape.space))

    def noise(self, state: State) -> float:
        """The noise power of ``state``, measured once."""
        if state not in self._noises:
            self._noises[state] = self._probe(self.landscape.choices(state))
        return self._noises[state]

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        space = self.landscape.space
        tried = {trial.placement_id for trial in trials}
        for seed in self._seeds:
            if space.placement(seed.choices).id not in tried:
                return seed
        if not any(trial.ratio is not None for trial in trials):
            return TpeProposer(space, self.seed).propose(trials)
        return self._first_to_offer(trials)

    def _first_to_offer(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """What the target whose turn it is proposes; one that expects a gain goes before it."""
        count = 1 + len(noise_targets(trials, self.levels, 0))
        cycle, first = divmod(len(trials), count)
        targets = (math.inf, *noise_targets(trials, self.levels, cycle))
        rounds = []
        for target in (*targets[first:], *targets[:first]):
            rounds.append(_Round(self, trials, target, explores=cycle % 2 == 1))
            proposal = rounds[-1].propose(only_gains=True)
            if proposal is not None:
                return proposal
        for own in rounds:
            proposal = own.propose(only_gains=False)
            if proposal is not None:
                return proposal
        return self._between(trials, cycle)

    def _between(self, trials: Sequence[TrialRecord], cycle: int) -> Proposal | None:
        """A gain at the limits of later cycles, before the search ends."""
        for later in range(cycle + 1, cycle + CYCLES):
            for target in noise_targets(trials, self.levels, later):
                own = _Round(self, trials, target, explores=False)
                proposal = own.propose(only_gains=True)
                if proposal is not None:
                    return proposal
        return None


class _Round:
    """One proposal of ``SurrogateProposer``, made from its trials.

    ``target``: noise power within which it looks, besides what gates allow; infinite for the gates
    alone. ``explores``: whether costs and noise are drawn instead of expected.
    """

    def __init__(
        self,
        owner: SurrogateProposer,
        trials: Sequence[TrialRecord],
        target: float,
        *,
        explores: bool,
    ) -> None:
        self._owner = owner
        self._land = owner.landscape
        self._trials = trials
        self._target = target
        self._states = [self._land.state(trial.choices) for trial in trials]
        self._forms = {self._land.form(state) for state in self._states}
        self._limit = min(self._learn_limit(), target)
        self._explores = explores
        self._is_large = len(self._land.all_moves) > LARGE
        self._pools: dict[bool, Pool] = {}
        self._skipped = [skip for trial in trials for skip in trial.skipped]
        self._forms |= {self._form(skip.choices) for skip in self._skipped if self._is_out(skip)}
        self._noise = self._learn_noise()
        self._observations = [
            observe(self._land, trial.choices, trial.measurement)
            for trial in trials
            if trial.measurement is not None
        ]
        self._best = min(self._feasible(trials), default=math.inf)
        self._passed_over: list[Skip] = []

    def propose(self, *, only_gains: bool) -> Proposal | None:
        """``only_gains``: None unless a gain is predicted, however few trials there are."""
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
                return Proposal(kind, self._land.choices(state), tuple(self._passed_over))
            self._passed_over.append(skip)
            self._skipped.append(skip)
            self._forms.add(self._land.form(state))
            self._noise = self._learn_noise()
            if not self._is_large:
                self._pools.clear()

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
        held = (trial for trial in trials if trial.feasible and self._excess(trial) <= 0)
        return [trial.ratio for trial in held if trial.ratio is not None]

    def _excess(self, trial: TrialRecord) -> float:
        """By how many times a trial's noise is above the target; 0 if it is within."""
        if math.isinf(self._target):
            return 0.0
        return math.inf if trial.noise is None else max(0.0, trial.noise / self._target - 1)

    def _seed(self, purpose: int) -> list[int]:
        """Every purpose draws from a seed of its own, however often others draw."""
        return [self._owner.seed, len(self._trials), purpose]

    def _form(self, choices: Choices) -> str:
        return self._land.form(self._land.state(choices))

    def _look(self, *, per_site: bool) -> tuple[State, float] | None:
        """The best untried state and its optimistic latency; None if all found were tried."""
        if per_site in self._pools:
            found = self._best_of(self._pools[per_site])
            if found is not None:
                return found
        draw = self._seed(DRAW) if self._explores else None
        objective = self._with_failures(self._latency.objective(draw))
        moves = self._land.all_moves if per_site else self._land.group_moves
        self._pools[per_site] = self._search(objective, moves)
        return self._best_of(self._pools[per_site])

    def _best_of(self, pool: Pool) -> tuple[State, float] | None:
        held = {state: value for state, value in pool.items() if self._holds(state)}
        for state in _first(held, FINALISTS):
            if self._land.form(state) not in self._forms:
                mean, deviation = self._latency.predict(state)
                return state, mean - 2 * deviation
        return None

    @cached_property
    def _latency(self) -> LatencyModel:
        return LatencyModel(self._land, self._observations, self._owner.remembered)

    def _search(self, objective: Objective, moves: Moves) -> Pool:
        """States that may hold the gates, with their objective: local optima and around them."""
        pool: Pool = {}
        noise = self._noise
        for start, prices in self._descents(priced=noise is not None):
            state = start
            for price in prices:
                priced = objective if noise is None else self._priced(objective, price, noise)
                state = self._land.descend(state, priced, moves)
                self._add(pool, state, objective)
        for state in _first(pool, 2):
            if noise is None:
                better = self._land.descend(state, objective, moves, pairs=True)
            else:
                better = self._exchange(state, objective, moves, noise)
            self._add(pool, better, objective)
        for state in _first(pool, 2):
            value, added = pool[state], 0
            gains, _ = self._land.gains(state, objective, moves)
            alters = self._land.alters(state, moves)
            for index in np.argsort(gains, kind="stable").tolist():
                near = apply(state, [moves.moves[index]])
                if alters[index] and self._holds(near):
                    pool.setdefault(near, value + float(gains[index]))
                    added += 1
                if added == FINALISTS:
                    break
        return pool

    def _descents(self, *, priced: bool) -> Iterator[tuple[State, tuple[float, ...]]]:
        """Where to begin, and the prices of noise at which to go on from there in turn."""
        starts = self._starts()
        if self._is_large:
            other = starts[len(self._trials) % (len(starts) - 1) + 1]
            if priced:
                yield (starts[0], other)[len(self._trials) // 2 % 2], PRICES[::-2]
            else:
                yield from ((start, PRICES[:1]) for start in (starts[0], other))
            return
        for price in PRICES if priced else PRICES[:1]:
            for start in starts if price in (0.0, PRICES[3]) else starts[:2]:
                yield start, (price,)

    def _add(self, pool: Pool, state: State, objective: Objective) -> None:
        if self._holds(state):
            pool[state] = self._land.value(state, objective)

    def _starts(self) -> list[State]:
        space = self._land.space
        ranked = sorted(
            (trial.violation, self._excess(trial), trial.ratio, state)
            for state, trial in zip(self._states, self._trials, strict=True)
            if trial.ratio is not None
        )
        best = [state for *_, state in ranked[:2]]
        fixed = (space.defaults, space.floats, space.everything, space.weighted_only)
        starts = [*best, *(self._land.state(choices) for choices in fixed)]
        rng = np.random.default_rng(self._seed(START))
        for _ in range(RESTARTS):
            picks = rng.integers(len(self._land.group_moves), size=KICK)
            starts.append(apply(best[0], [self._land.group_moves.moves[int(i)] for i in picks]))
        return list(dict.fromkeys(starts))

    def _exchange(
        self, state: State, objective: Objective, moves: Moves, noise: NoiseModel
    ) -> State:
        """Improve within the noise limit by one change, or by two that trade noise for latency."""
        for _ in range(MAX_EXCHANGES):
            room = self._limit - noise.predict(state)
            chosen = _best_exchange(self._promising(state, objective, moves, noise), room)
            after = apply(state, chosen)
            if not chosen or self._land.value(after, objective) >= self._land.value(
                state, objective
            ):
                return state
            state = after
        return state

    def _promising(
        self, state: State, objective: Objective, moves: Moves, noise: NoiseModel
    ) -> list[tuple[float, float, Move]]:
        """The changes that gain most latency or free most noise, the best first."""
        gains, changes = self._land.gains(state, objective, moves)
        noises = moves.change(noise.extras, state)
        found = np.flatnonzero(changes)
        best = {
            int(i)
            for key in (gains, noises)
            for i in found[np.argsort(key[found], kind="stable")[:EXCHANGES]]
        }
        return sorted((float(gains[i]), float(noises[i]), moves.moves[i]) for i in best)

    def _priced(self, objective: Objective, price: float, noise: NoiseModel) -> Objective:
        return Objective(objective.costs, objective.extras + price / self._limit * noise.extras)

    def _holds(self, state: State) -> bool:
        # What may only just miss is looked at where the search explores: noise adds up roughly.
        limit = self._limit * (BORDER if self._explores else 1.0)
        return self._noise is None or self._noise.predict(state) <= limit

    def _is_useful(self, found: tuple[State, float] | None) -> TypeGuard[tuple[State, float]]:
        """Whether anything was found, for a target anything that may be faster than float."""
        if found is None or math.isinf(self._target):
            return found is not None
        return found[1] < FLOAT_MODEL.latency

    def _is_gain(self, found: tuple[State, float] | None) -> bool:
        return found is not None and found[1] < self._best - RESOLUTION

    def _has_stalled(self) -> bool:
        """Whether the last trials brought nothing."""
        before = min(self._feasible(self._trials[:-PATIENCE]), default=math.inf)
        return len(self._trials) > PATIENCE and before <= self._best + RESOLUTION

    def _learn_limit(self) -> float:
        """The noise power that gates allow, infinite while none was missed."""
        outcomes = [
            (trial.noise, trial.violation <= 0) for trial in self._trials if trial.noise is not None
        ]
        if self._owner.noise_limit is None:
            return learn_limit(outcomes)
        missed = any(noise > self._owner.noise_limit for noise, _ in outcomes)
        return self._owner.noise_limit if missed else math.inf

    def _learn_noise(self) -> NoiseModel | None:
        """The noise of sites, None while no gate was missed."""
        if math.isinf(self._limit):
            return None
        probes = _Probes(self._owner, self._limit)
        observations = [
            NoiseObservation(state, trial.noise)
            for state, trial in zip(self._states, self._trials, strict=True)
            if trial.noise is not None
        ]
        observations += [
            NoiseObservation(self._land.state(skip.choices), skip.noise) for skip in self._skipped
        ]
        rng = np.random.default_rng(self._seed(NOISE)) if self._explores else None
        return NoiseModel(self._land, [*observations, *probes.observations()], rng)

    def _with_failures(self, objective: Objective) -> Objective:
        """Add a cost to layouts that only failed trials have."""
        worked: set[tuple[int, int]] = set()
        for state, trial in zip(self._states, self._trials, strict=True):
            if trial.error is None:
                worked.update(enumerate(state))
        extras = objective.extras.copy()
        for state, trial in zip(self._states, self._trials, strict=True):
            suspects = set(enumerate(state)) - worked if trial.error is not None else set()
            for site, layout in suspects:
                extras[site, layout] += FAILED / len(suspects)
        return Objective(objective.costs, extras)


class _Probes:
    """Measures the noise of blocks of sites, halving those that matter."""

    def __init__(self, owner: SurrogateProposer, limit: float) -> None:
        self._owner = owner
        self._land = owner.landscape
        self._limit = limit
        self._floats = self._land.state(self._land.space.floats)
        self._defaults = self._land.state(self._land.space.defaults)

    def observations(self) -> list[NoiseObservation]:
        """Measure all blocks down to those not worth looking into."""
        sites = tuple(
            i for i, (a, b) in enumerate(zip(self._floats, self._defaults, strict=True)) if a != b
        )
        waiting = [(math.inf, self._blocks(sites))]
        found: list[NoiseObservation] = []
        while waiting:
            noise, parts = waiting.pop()
            if noise < WORTH_PROBING * self._limit:
                continue
            for part in parts:
                state = apply(self._floats, [tuple((s, self._defaults[s]) for s in part)])
                own = self._owner.noise(state)
                found.append(NoiseObservation(state, own))
                waiting.append((own, self._blocks(part)))
            waiting.sort()
        return found

    def _blocks(self, sites: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Halves of a block, between groups if it has several."""
        group = {site: i for i, members in enumerate(self._land.members) for site in members}
        groups = sorted({group[site] for site in sites})
        if len(groups) > 1:
            first = set(groups[: len(groups) // 2])
            parts = (
                [site for site in sites if group[site] in first],
                [site for site in sites if group[site] not in first],
            )
        elif len(sites) > 1 and self._owner.per_site:
            parts = (list(sites[: len(sites) // 2]), list(sites[len(sites) // 2 :]))
        else:
            return []
        return [tuple(part) for part in parts]


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


def _first(pool: Pool, count: int) -> list[State]:
    """The states of the least objective."""
    return sorted(pool, key=lambda state: (pool[state], state))[:count]


def _best_exchange(found: Sequence[tuple[float, float, Move]], room: float) -> list[Move]:
    """The change, or the two of unlike sites, that gain most within ``room`` for more noise."""
    best: tuple[float, list[Move]] = (-1e-9, [])
    for i, (gain, noise, move) in enumerate(found):
        if gain < best[0] and noise <= room:
            best = (gain, [move])
        for other_gain, other_noise, other in found[i + 1 :]:
            if gain + other_gain >= best[0]:
                break  # Sorted by gain: no later one does better.
            if noise + other_noise <= room and not {s for s, _ in move} & {s for s, _ in other}:
                best = (gain + other_gain, [move, other])
    return best[1]
