"""What a study keeps with each of its trials, as JSON: written and read here only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial
from pydantic import TypeAdapter, ValidationError

from placer.errors import InputError
from placer.search.records import Outcome, Skip, TrialRecord
from placer.search.space import BASE, PER_SITE, Space, site_key

# Names of attributes; the first three are fields of ``_Kept``.
KIND, CLAIM, OUTCOME = "kind", "placement", "outcome"
WITHDRAWN, DEATHS = "withdrawn", "deaths"
# Of the study: how many numbers of proposals were given away.
PROPOSALS = "proposals"
FIX = "choose another `output` or `study`, or remove it"


@dataclass(frozen=True)
class _Kept:
    """The attributes of a trial; ``outcome`` is None while it waits or runs."""

    kind: str
    placement: str
    skipped: tuple[Skip, ...] = ()
    outcome: Outcome | None = None


_KEPT, _OUTCOMES = TypeAdapter(_Kept), TypeAdapter(Outcome)


def claim_json(kind: str, placement_id: str, skipped: Sequence[Skip]) -> dict[str, Any]:
    """The attributes of a trial that waits for a worker."""
    kept: dict[str, Any] = _KEPT.dump_python(_Kept(kind, placement_id, tuple(skipped)), mode="json")
    del kept[OUTCOME]
    return kept


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The attribute ``OUTCOME`` of a trial that has ended."""
    kept: dict[str, Any] = _OUTCOMES.dump_python(outcome, mode="json")
    return kept


def as_kept(running: TrialRecord, outcome: Outcome) -> TrialRecord:
    """The trial ``running`` with ``outcome``, as it is read from a study."""
    kept = _OUTCOMES.validate_python(outcome_json(outcome))
    parts = {part.name: getattr(kept, part.name) for part in fields(Outcome)}
    return replace(running, running=False, **parts)


class TrialReader:
    """Reads the trials of one study; those with an outcome once only, as they never change."""

    def __init__(self, space: Space, place: str) -> None:
        """``place``: what messages call where the study is."""
        self._place = place
        self._distributions = distributions(space)
        self._decisions = set(space.decisions)
        self._ended: dict[int, TrialRecord] = {}

    def record(self, trial: FrozenTrial) -> TrialRecord:
        """What is kept of ``trial``; InputError, which names it, if that is damaged."""
        if not isinstance(trial.number, int):  # SQLite keeps any type in any column.
            raise self.damaged(str(trial.number), "its number")
        if trial.number in self._ended:
            return self._ended[trial.number]
        try:
            kept = _KEPT.validate_python(trial.user_attrs)
        except ValidationError as error:
            field = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise self.damaged(trial.number, f"'{field}'") from error
        self._check_choices(trial)
        outcome = kept.outcome or Outcome()
        if outcome.measurement is not None and not math.isfinite(outcome.measurement.ratio.median):
            raise self.damaged(trial.number, "'outcome.measurement.ratio'")
        record = TrialRecord(
            number=trial.number,
            kind=kept.kind,
            choices=dict(trial.params),
            placement_id=kept.placement,
            measurement=outcome.measurement,
            judgement=outcome.judgement,
            error=outcome.error,
            ruled_out=outcome.ruled_out,
            seconds=outcome.seconds,
            running=kept.outcome is None,
            skipped=kept.skipped,
        )
        if not record.running:
            self._ended[trial.number] = record
        return record

    def damaged(self, number: int | str, what: str) -> InputError:
        """What to raise if ``what`` of a trial cannot be read."""
        return InputError(
            f"{self._place} holds a study of which trial {number} is damaged: {what} cannot be "
            f"read; {FIX}"
        )

    def _check_choices(self, trial: FrozenTrial) -> None:
        missing = self._decisions - trial.params.keys()
        wrong = {
            name
            for name, layout in trial.params.items()
            if name not in self._distributions or layout not in self._distributions[name].choices
        }
        for name in sorted(missing | wrong, key=str):
            raise self.damaged(trial.number, f"the layout of '{name}'")


def distributions(space: Space) -> dict[str, CategoricalDistribution]:
    """What Optuna knows of a study's decisions: categorical parameters.

    One per group, and one for each site of groups that may be split (conditional on ``PER_SITE``);
    one for the base precision where that is decided.
    """
    by_name: dict[str, CategoricalDistribution] = {}
    if space.bases:
        by_name[BASE] = CategoricalDistribution(space.bases)
    for group in space.groups:
        if len(group.sites) == 1:
            by_name[group.name] = CategoricalDistribution(group.layouts)
            continue
        by_name[group.name] = CategoricalDistribution((*group.layouts, PER_SITE))
        per_site = CategoricalDistribution(group.layouts)
        by_name.update(dict.fromkeys((site_key(site) for site in group.sites), per_site))
    return by_name
