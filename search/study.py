"""The study: an Optuna study in SQLite whose trials are placements."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from placer.errors import InputError
from placer.placement import Placement
from placer.search.proposals import bisect, neighbour, noisiest_first
from placer.search.space import Choices, Space

StopReason = Literal["budget", "timeout", "exhausted"]

STUDY_NAME = "placer"
# Sampling that keeps returning known placements has nothing left to find.
MAX_DUPLICATES_IN_A_ROW = 30


@dataclass(frozen=True)
class Outcome:
    """What evaluating one placement gave.

    ``ratio``: latency relative to the float model, None if the engine refused the candidate.
    ``constraints``: by gate, at most 0 where it is met (Optuna's convention).
    ``details``: JSON values kept with the trial.
    ``error``: why the trial failed, in one sentence.
    """

    ratio: float | None
    constraints: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class Evaluate(Protocol):
    """Builds, gates and measures one placement; must not raise for what an engine refuses."""

    def __call__(self, placement: Placement) -> Outcome:
        """Return the outcome of ``placement``."""


class MeasureNoise(Protocol):
    """Returns, per group, the noise power that quantizing it alone adds to the outputs."""

    def __call__(self) -> Mapping[str, float]:
        """Return noise relative to the signal (10 ** (-SQNR / 10)) by group name."""


@dataclass(frozen=True)
class TrialRecord:
    """A finished trial of a study."""

    number: int
    kind: str
    choices: Choices
    placement_id: str
    ratio: float | None
    constraints: Mapping[str, float]
    details: Mapping[str, Any]
    error: str | None
    seconds: float

    @property
    def feasible(self) -> bool:
        """Whether it was measured and meets all gates."""
        return self.ratio is not None and self.violation <= 0

    @property
    def violation(self) -> float:
        """By how much gates are missed in all, 0 if they are met."""
        return sum(max(0.0, value) for value in self.constraints.values())


class Study:
    """Trials over a space, kept in a SQLite file so that a killed run resumes."""

    def __init__(self, path: Path, space: Space, settings: Mapping[str, Any], seed: int) -> None:
        """Open or create the study at ``path``.

        Raises InputError if the file holds a study made with other ``settings``.
        """
        self.space = space
        self._seed = seed
        self._study = _open(path)
        _check_settings(self._study, path, settings)
        self._study.set_user_attr("settings", _plain(settings))
        self._end_interrupted()
        self._distributions: dict[str, BaseDistribution] = {
            group.name: CategoricalDistribution(group.layouts) for group in space.groups
        }

    def records(self) -> list[TrialRecord]:
        """Finished trials in order, duplicates and interrupted ones left out."""
        trials = self._study.get_trials(deepcopy=False)
        return [_record(trial) for trial in trials if "placement" in trial.user_attrs]

    def run(
        self,
        evaluate: Evaluate,
        measure_noise: MeasureNoise,
        *,
        budget: int | None,
        deadline: float | None,
        on_trial: Callable[[TrialRecord], None],
    ) -> StopReason:
        """Evaluate placements until ``budget`` trials are in the study or ``deadline`` passes.

        ``deadline`` is a ``time.monotonic`` time. Returns why it stopped: ``budget``,
        ``timeout`` or ``exhausted``. Placements already in the study are not evaluated again.
        """
        duplicates = 0
        while True:
            records = self.records()
            if budget is not None and len(records) >= budget:
                return "budget"
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            if duplicates > MAX_DUPLICATES_IN_A_ROW:
                return "exhausted"
            known = {record.placement_id: record for record in records}
            kind, choices = self._propose(records, measure_noise)
            trial, choices = self._ask(choices)
            placement = self.space.placement(choices)
            twin = known.get(placement.id)
            if twin is not None:
                duplicates += 1
                self._tell_duplicate(trial, twin)
                continue
            duplicates = 0
            on_trial(self._evaluate(trial, kind, placement, evaluate))

    def _evaluate(
        self,
        trial: optuna.Trial,
        kind: str,
        placement: Placement,
        evaluate: Evaluate,
    ) -> TrialRecord:
        start = time.monotonic()
        try:
            outcome = evaluate(placement)
        except BaseException:
            self._study.tell(trial, state=TrialState.FAIL)  # Interrupted: not a result.
            raise
        seconds = time.monotonic() - start
        details = {**outcome.details, "kind": kind, "error": outcome.error, "seconds": seconds}
        details["ratio"] = outcome.ratio
        for key, value in details.items():
            trial.set_user_attr(key, value)
        for key, value in outcome.constraints.items():
            trial.set_constraint(key, value)
        # Written last: a trial without it was interrupted and does not count.
        trial.set_user_attr("placement", placement.id)
        if outcome.ratio is None:
            frozen = self._study.tell(trial, state=TrialState.FAIL)
        else:
            frozen = self._study.tell(trial, outcome.ratio)
        return _record(frozen)

    def _propose(
        self, records: list[TrialRecord], measure_noise: MeasureNoise
    ) -> tuple[str, Choices | None]:
        """Name the kind of the next trial and its choices; None leaves them to the sampler."""
        done = {record.kind for record in records}
        tried = {record.placement_id for record in records}
        for name, choices in self.space.seeds().items():
            if name not in done and self.space.placement(choices).id not in tried:
                return name, choices
        found = self._less_noise(records, measure_noise)
        if found is not None:
            return found
        best = _best(records)
        count = len(self._study.get_trials(deepcopy=False))
        if best is not None and count % 4 != 0:
            return "neighbour", neighbour(self.space, best.choices, (self._seed, count))
        return "tpe", None

    def _less_noise(
        self, records: list[TrialRecord], measure_noise: MeasureNoise
    ) -> tuple[str, Choices] | None:
        """If the default misses a gate, leave its noisiest groups float: how many is bisected."""
        by_kind = {record.kind: record for record in records}
        default = by_kind.get("default")
        if default is None or default.ratio is None or default.feasible:
            return None
        order = noisiest_first(self.space, self._noise(measure_noise))
        tried = {record.placement_id: record.feasible for record in records}
        outcomes: dict[int, bool] = {}
        while (count := bisect(outcomes, len(order))) is not None:
            choices = self.space.without(order[:count])
            placement = self.space.placement(choices)
            if placement.id not in tried:
                return f"default without the {count} noisiest", choices
            outcomes[count] = tried[placement.id]
        return None

    def _noise(self, measure_noise: MeasureNoise) -> Mapping[str, float]:
        kept = self._study.user_attrs.get("noise")
        if kept is None:
            kept = dict(measure_noise())
            self._study.set_user_attr("noise", kept)
        noise: Mapping[str, float] = kept
        return noise

    def _ask(self, choices: Choices | None) -> tuple[optuna.Trial, dict[str, str]]:
        count = len(self._study.get_trials(deepcopy=False))
        if choices is not None:
            self._study.enqueue_trial(dict(choices))
        # A sampler made anew for each trial makes a resumed study go on as it would have.
        self._study.sampler = TPESampler(
            seed=self._seed * 1_000_003 + count, n_startup_trials=0, multivariate=True
        )
        trial = self._study.ask(self._distributions)
        return trial, dict(trial.params)

    def _tell_duplicate(self, trial: optuna.Trial, twin: TrialRecord) -> None:
        trial.set_user_attr("duplicate_of", twin.number)
        for key, value in twin.constraints.items():
            trial.set_constraint(key, value)
        if twin.ratio is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, twin.ratio)

    def _end_interrupted(self) -> None:
        """End the trials that a killed process left; one that was measured keeps its result."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished():
                continue
            if trial.state == TrialState.WAITING:
                self._study.ask()  # A waiting trial must run before it can be ended.
            ratio = trial.user_attrs.get("ratio")
            if "placement" in trial.user_attrs and ratio is not None:
                self._study.tell(trial.number, ratio)
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)


def refuse_other_study(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise InputError if ``path`` exists and is not a study made with ``settings``."""
    if path.exists():
        _check_settings(_open(path), path, settings)


def _open(path: Path) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=f"sqlite:///{path}", study_name=STUDY_NAME, load_if_exists=True
        )
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} cannot be opened as a study database ({reason}); "
            "remove it or choose another --output"
        ) from error


def _check_settings(study: optuna.Study, path: Path, settings: Mapping[str, Any]) -> None:
    wanted = _plain(settings)
    kept = study.user_attrs.get("settings", wanted)
    for key in sorted(wanted.keys() | kept.keys()):
        if kept.get(key) != wanted.get(key):
            raise InputError(
                f"{path.parent} holds a study with another {key} "
                f"({kept.get(key)}, now {wanted.get(key)}); "
                "choose another --output or remove it"
            )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` as they come back from the database."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _best(records: list[TrialRecord]) -> TrialRecord | None:
    """The fastest feasible trial, else the measured one that misses the gates by least."""
    measured = [record for record in records if record.ratio is not None]
    if not measured:
        return None
    return min(measured, key=lambda r: (r.violation, r.ratio))


def _record(trial: FrozenTrial) -> TrialRecord:
    details = dict(trial.user_attrs)
    ratio = details.pop("ratio")
    return TrialRecord(
        number=trial.number,
        kind=details.pop("kind"),
        choices=dict(trial.params),
        placement_id=details.pop("placement"),
        error=details.pop("error"),
        seconds=details.pop("seconds"),
        ratio=ratio,
        constraints=dict(trial.constraints or {}),
        details=details,
    )


def by_latency(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Records that were measured and meet the gates, fastest first."""
    return sorted((r for r in records if r.feasible), key=lambda r: r.ratio or 0.0)
