"""Optuna's storage of studies with hundreds of decisions."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from threading import local
from typing import Any

from optuna.distributions import CategoricalDistribution, distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import StudyModel, TrialModel, TrialParamModel
from optuna.trial import FrozenTrial
from sqlalchemy import insert
from sqlalchemy.exc import PendingRollbackError

# A decision of a trial as it is written: columns of its row, but for the trial.
Decision = Mapping[str, object]


class StudyStorage(RDBStorage):
    """Writes the decisions of a trial without asking about each, and several things at once.

    For each of them Optuna asks the database for the trial and whether an earlier one chose from
    something else, which takes ten times as long as to write it. A study of placer is refused
    with other settings before a trial is written, so all its trials choose from the same.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sessions = _Sessions(self.scoped_session)
        self.scoped_session = self._sessions  # type: ignore[assignment]

    @contextmanager
    def transaction(self, study_id: int | None = None) -> Iterator[None]:
        """Everything that this thread does with the storage in the block, as one transaction.

        ``study_id``: a study of which nobody else creates a trial meanwhile. An exception, also
        one that is raised and caught within the block by an operation of the storage, leaves
        nothing of it. Blocks do not nest. Raises what SQLAlchemy raises if it cannot be written.
        """
        with self._sessions.joined() as session:
            if study_id is not None:
                StudyModel.find_or_raise_by_id(study_id, session, for_update=True)
            yield

    def trials_after(self, study_id: int, trial_id: int) -> list[FrozenTrial]:
        """The trials of a study with a higher id, in no order."""
        return self._get_trials(
            study_id, states=None, included_trial_ids=set(), trial_id_greater_than=trial_id
        )

    def get_trial_number_from_id(self, trial_id: int) -> int:
        """See ``RDBStorage``, which reads the whole trial for its number."""
        session = self.scoped_session()
        try:
            found = session.query(TrialModel.number).filter_by(trial_id=trial_id).one_or_none()
        finally:
            session.close()
        if found is None:
            raise KeyError(f"no trial has the id {trial_id}")
        return int(found[0])

    def add_decisions(self, trial_id: int, decisions: Iterable[Decision]) -> None:
        """Write the decisions of a trial that has none, within a ``transaction``."""
        rows = [{"trial_id": trial_id, **decision} for decision in decisions]
        if rows:
            self.scoped_session().execute(insert(TrialParamModel), rows)

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Any
    ) -> Any:
        """Have all decisions of a trial written at once, with the transaction that creates it."""
        if template_trial is None:
            return super()._get_prepared_new_trial(study_id, None, session)
        rest = copy.copy(template_trial)
        rest.params, rest.distributions = {}, {}
        trial = super()._get_prepared_new_trial(study_id, rest, session)
        rows = [
            {
                "trial_id": trial.trial_id,
                "param_name": name,
                "param_value": distribution.to_internal_repr(template_trial.params[name]),
                "distribution_json": _as_json(distribution),
            }
            for name, distribution in template_trial.distributions.items()
        ]
        if rows:
            session.execute(insert(TrialParamModel), rows)
        return trial


# Trials of one study choose from the same distributions.
_as_json = lru_cache(maxsize=1 << 14)(distribution_to_json)


def decisions_by_choice(name: str, distribution: CategoricalDistribution) -> dict[str, Decision]:
    """The decision ``name`` as it is written, by what is chosen."""
    text = distribution_to_json(distribution)
    return {
        str(choice): {"param_name": name, "param_value": float(i), "distribution_json": text}
        for i, choice in enumerate(distribution.choices)
    }


class _Joined:
    """A session whose parts neither commit nor close it; once rolled back it takes no more."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._is_undone = False
        self._failure: BaseException | None = None

    def commit(self) -> None:
        """Have what was done so far sent to the database."""
        self._current().flush()

    def rollback(self) -> None:
        """Undo all of it."""
        self._is_undone, self._failure = True, sys.exc_info()[1]
        self._session.rollback()

    def close(self) -> None:
        """Leave the session to the parts to come."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    def _current(self) -> Any:
        if self._is_undone:
            raise PendingRollbackError("a part of the transaction failed") from self._failure
        return self._session


class _Sessions:
    """The sessions of Optuna's storage, one for each thread; see ``StudyStorage.transaction``."""

    def __init__(self, sessions: Any) -> None:
        self._sessions = sessions
        self._own = local()

    def __call__(self) -> Any:
        joined = getattr(self._own, "joined", None)
        return self._sessions() if joined is None else joined

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """One session for all that this thread asks for; committed at the end of the block."""
        session = self._sessions()
        self._own.joined = joined = _Joined(session)
        try:
            yield joined
            joined.commit()
            session.commit()
        except BaseException:
            session.rollback()
            raise
        finally:
            self._own.joined = None
            session.close()
