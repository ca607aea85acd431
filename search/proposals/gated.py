"""The noise that the gates allow one proposal, and the placements known to exceed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from placer.search.landscape.landscape import State
from placer.search.models.agreement import COMPARED, Agreement
from placer.search.models.noise_limits import PROBES, PROBES_PER_TRIAL, Probes, allowed_noise
from placer.search.models.noise_model import ADDITIVE, LEAST, NoiseModel, NoiseObservation
from placer.search.out_of_time import OutOfTime
from placer.search.proposals.knowledge import Knowledge
from placer.search.records import Skip, TrialRecord
from placer.search.space import Choices

# So many placements that are too noisy on a few samples are skipped for one proposal.
SKIPS = 8
# Before the search ends, layouts count as so many standard deviations quieter than expected.
HOPE = 1.0


class Gated:
    """The limit of noise of one proposal and the noise of sites.

    ``limit``: of noise power, infinite while no gate was missed. ``noise``: None then.
    ``passed_over``: what this proposal skips.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        trials: Sequence[TrialRecord],
        target: float,
        seed: Sequence[int] | None,
        *,
        expected: int = 0,
        hopes: bool = False,
    ) -> None:
        """``target``: noise power besides what gates allow. ``seed``: to draw noise with.

        ``expected``: so many trials, the last, have not ended; no noise is measured for them.
        ``hopes``: whether each layout is as quiet as it may well be.
        """
        self._knowledge = knowledge
        self._count = len(trials) - expected
        self._seed = seed
        self._hope = HOPE if hopes else 0.0
        self._own = knowledge.own(trials)
        self.limit = min(allowed_noise(trials, knowledge.noise_limit), target)
        # What the base precision adds to noise, about, whatever is quantized.
        self._base_noise = self._noise_of_base()
        self.limit -= self._base_noise
        self._few = Agreement.of(self._compared(knowledge.own(trials[: self._count])))
        self._skipped = [skip for trial in self._own for skip in trial.skipped]
        self._passed_over = [self._on_few(self._state(s.choices), s.noise) for s in self._skipped]
        self.passed_over: list[Skip] = []
        self.noise = self._learn()

    def ruled_out(self) -> list[Skip]:
        """What was skipped once, perhaps for a stricter target, and is to be skipped again."""
        levels, limit = self._knowledge.levels, self._few.tolerance * self.limit
        factor = self._few.factor
        return [skip for skip in self._skipped if not levels or factor * skip.noise > limit]

    def hopeless(self, state: State) -> Skip | None:
        """Measure the noise of what is to be tried, where gates bind; None if it may hold them.

        None also once so many were passed over that the next is tried as it is, and where no time
        is left to measure: its trial tells its noise.
        """
        if self.noise is None or self.has_skipped_enough:
            return None
        with suppress(OutOfTime):
            return self.too_noisy(state)
        return None

    def too_noisy(self, state: State) -> Skip | None:
        """Measure the noise of ``state``; None if it may hold the gates.

        Raises OutOfTime if no time is left to measure it.
        """
        noise = self._knowledge.noise(state)
        is_noisy = self._few.factor * noise > self._few.tolerance * self.limit
        return Skip(self._knowledge.landscape.choices(state), noise) if is_noisy else None

    @property
    def has_skipped_enough(self) -> bool:
        """Whether the next is tried as it is, or what is left of it that holds."""
        return len(self.passed_over) >= SKIPS

    def chance(self, state: State, before: State) -> float:
        """How likely the gates hold ``state``, of which ``before`` was tried."""
        if self.noise is None:
            return 1.0
        mean = self.noise.predict(state)
        changed = self.noise.variance_of(state, before)
        deviation = math.hypot(max(ADDITIVE, self._few.deviation) * mean, math.sqrt(changed))
        if deviation == 0:
            return float(mean <= self.limit)
        return 0.5 * (1 + math.erf((self.limit - mean) / (math.sqrt(2) * deviation)))

    def doubtful(self) -> list[tuple[float, State]]:
        """How likely the gates hold what was passed over by its noise on the few samples."""
        deviation, chances = math.sqrt(2) * max(ADDITIVE, self._few.deviation), []
        for skip in self._skipped:
            if 0 < self.limit < math.inf and skip.noise > LEAST:
                z = math.log(self.limit / (self._few.factor * skip.noise)) / deviation
                chances.append((0.5 * (1 + math.erf(z)), self._state(skip.choices)))
        return chances

    def holds(self, state: State) -> bool:
        """Whether the measured noise of ``state`` is within the limit; False if no time is left."""
        try:
            return self._few.factor * self._knowledge.noise(state) <= self.limit
        except OutOfTime:
            return False

    def pass_over(self, skip: Skip) -> None:
        """Learn from what was measured instead of trying it."""
        self.passed_over.append(skip)
        self._skipped.append(skip)
        self._passed_over.append(self._on_few(self._state(skip.choices), skip.noise))
        self.noise = self._learn()

    def _noise_of_base(self) -> float:
        """Noise of the float model in this base precision, if it is one of several."""
        is_one = self._knowledge.landscape.space.bases
        float_trial = self._knowledge.floats(self._own) if is_one else None
        noise = 0.0 if float_trial is None or float_trial.noise is None else float_trial.noise
        return noise if noise < self.limit else 0.0

    def _compared(self, ended: Sequence[TrialRecord]) -> list[tuple[float, float]]:
        """Noise on the few samples and in the trial, of trials in this base precision.

        Those whose noise is the nearest to what gates allow, where these bind.
        """
        if not 0 < self.limit < math.inf:
            return []
        measured = [(t.noise - self._base_noise, t) for t in ended if t.noise is not None]
        noisy = [(noise, trial) for noise, trial in measured if noise > LEAST]
        noisy.sort(key=lambda entry: abs(math.log(entry[0] / self.limit)))
        pairs = []
        with suppress(OutOfTime):
            for noise, trial in noisy[:COMPARED]:
                pairs.append((self._knowledge.noise(self._state(trial.choices)), noise))
        return pairs

    def _on_few(self, state: State, noise: float) -> NoiseObservation:
        """What noise on the few samples tells of that in a trial."""
        return NoiseObservation(state, self._few.factor * noise, max(ADDITIVE, self._few.deviation))

    def _learn(self) -> NoiseModel | None:
        """The noise of sites, None while no gate was missed."""
        if math.isinf(self.limit):
            return None
        rng = None if self._seed is None else np.random.default_rng(self._seed)
        observed = [*self._judged, *self._passed_over, *self._probed]
        return NoiseModel(self._knowledge.landscape, observed, rng, hope=self._hope)

    @cached_property
    def _judged(self) -> list[NoiseObservation]:
        """What the trials tell of noise."""
        return [
            NoiseObservation(self._state(trial.choices), max(0.0, trial.noise - self._base_noise))
            for trial in self._own
            if trial.noise is not None
        ]

    @cached_property
    def _probed(self) -> list[NoiseObservation]:
        """What is measured of the noise of blocks of sites."""
        probes = Probes(
            self._knowledge.landscape,
            self._knowledge.noise,
            self.limit,
            per_site=self._knowledge.per_site,
            budget=PROBES + PROBES_PER_TRIAL * self._count,
        ).observations()
        return [self._on_few(probe.state, probe.noise) for probe in probes]

    def _state(self, choices: Choices) -> State:
        return self._knowledge.landscape.state(choices)
