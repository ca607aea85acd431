"""What one proposal is not to make again, and the placements that hold the gates so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from placer.search.landscape.landscape import Landscape, Objective, State
from placer.search.proposals.progress import Progress
from placer.search.records import Skip, TrialRecord

# So many trials that missed the gates narrowly are looked at.
NEAR_MISSES = 3


class Tried:
    """The trials of a search, and what was passed over.

    ``trials``: those in the landscape's base precision. ``states``: of each its state.
    """

    def __init__(
        self,
        landscape: Landscape,
        trials: Sequence[TrialRecord],
        skipped: Iterable[Skip],
        progress: Progress,
    ) -> None:
        self.trials = trials
        self.states = [landscape.state(trial.choices) for trial in trials]
        self._land = landscape
        self._progress = progress
        self._all = {*self.states, *(landscape.state(skip.choices) for skip in skipped)}
        self._forms = {landscape.form(state) for state in self._all}

    def has(self, state: State) -> bool:
        """Whether ``state`` itself was tried; others may be one to the engine, see ``is_new``."""
        return state in self._all

    def is_new(self, state: State) -> bool:
        """Whether the engine would build something else than of all that was tried."""
        return self._land.form(state) not in self._forms

    def pass_over(self, skip: Skip) -> None:
        """Do not try what was skipped."""
        state = self._land.state(skip.choices)
        self._all.add(state)
        self._forms.add(self._land.form(state))

    def held(self) -> list[tuple[float, State]]:
        """Latencies and states of the trials that hold the gates within the target."""
        return [
            (trial.ratio, state)
            for state, trial in zip(self.states, self.trials, strict=True)
            if trial.ratio is not None and self._progress.feasible([trial])
        ]

    def best_held(self) -> State:
        """The state of the fastest trial that holds; nothing quantized if there is none."""
        held = self.held()
        return min(held)[1] if held else self._land.state(self._land.space.least)

    def near_misses(self, objective: Objective) -> list[State]:
        """The tried ones that are the least above what gates allow, and predicted to be faster."""
        value = self._land.value(self.best_held(), objective)
        missed = sorted(
            (trial.noise, state)
            for trial, state in zip(self.trials, self.states, strict=True)
            if trial.noise is not None and trial.violation > 0
        )
        faster = (s for _, s in missed if self._land.value(s, objective) < value)
        return list(islice(faster, NEAR_MISSES))
