"""What a search knows besides its trials, and the models that it learns from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from placer.search.landscape.landscape import Landscape, State
from placer.search.models.latency_model import LatencyModel, Observation
from placer.search.models.noise_model import NoiseModel, NoiseObservation
from placer.search.models.observe import observe
from placer.search.records import Measurement, TrialRecord
from placer.search.space import BASE, Choices


@dataclass(frozen=True, eq=False)
class Knowledge:
    """See the constructor of ``SurrogateProposer``."""

    landscape: Landscape
    seed: int
    probe: Callable[[Choices], float]
    remembered: Mapping[str, float]
    per_site: bool
    noise_limit: float | None
    levels: int
    _noises: dict[State, float] = field(default_factory=dict)
    # By number of the trial what its measurement told.
    _observed: dict[int, tuple[Measurement, Observation]] = field(default_factory=dict)

    def own(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those of ``trials`` in this base precision."""
        bases = self.landscape.space.bases
        return [t for t in trials if not bases or t.choices.get(BASE, bases[0]) in bases]

    def latency(self, trials: Sequence[TrialRecord]) -> LatencyModel:
        """What ``trials``, those in this base precision, tell of latency."""
        float_trial = self.floats(trials) if self.landscape.space.bases else None
        latency = None if float_trial is None else float_trial.measurement
        return LatencyModel(
            self.landscape,
            [seen for trial in trials if (seen := self._observation(trial)) is not None],
            self.remembered,
            float_latency=1.0 if latency is None else latency.ratio.median,
        )

    def _observation(self, trial: TrialRecord) -> Observation | None:
        """What ``trial`` tells of latency; None if it was not measured."""
        if trial.measurement is None:
            return None
        measurement, seen = self._observed.get(trial.number, (None, None))
        # A trial that runs is as it is expected, and then as it was measured.
        if seen is None or measurement is not trial.measurement:
            seen = observe(self.landscape, trial.choices, trial.measurement)
            self._observed[trial.number] = trial.measurement, seen
        return seen

    def floats(self, trials: Sequence[TrialRecord]) -> TrialRecord | None:
        """The trial of the float model in this base precision, if there is one."""
        space = self.landscape.space
        wanted = space.placement(space.floats).id
        return next((trial for trial in trials if trial.placement_id == wanted), None)

    def noise(self, state: State) -> float:
        """The noise power of ``state``, measured once."""
        if state not in self._noises:
            self._noises[state] = self.probe(self.landscape.choices(state))
        return self._noises[state]

    def guessing(self, trials: Sequence[TrialRecord]) -> Knowledge:
        """The same without measurements: what was not measured is as noisy as the rest lets expect.

        Leaves what is known of noise as it is.
        """

        @cache
        def model() -> NoiseModel:
            noises = {
                self.landscape.state(trial.choices): trial.noise
                for trial in self.own(trials)
                if trial.noise is not None
            }
            noises.update(self._noises)
            known = [NoiseObservation(state, noise) for state, noise in noises.items()]
            return NoiseModel(self.landscape, known)

        def guess(choices: Choices) -> float:
            return model().predict(self.landscape.state(choices))

        return replace(self, probe=guess, _noises=dict(self._noises))
