"""Optuna's storage of studies with hundreds of decisions."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialParamModel


class StudyStorage(RDBStorage):
    """Writes the decisions of a trial without asking about each.

    For each of them Optuna asks the database for the trial and whether an earlier one chose from
    something else, which takes ten times as long as to write it. A study of placer is refused
    with other settings before a trial is written, so all its trials choose from the same.
    """

    def _set_trial_param_without_commit(
        self,
        session: Any,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
        previous_distribution: BaseDistribution | None = None,
    ) -> None:
        """Have a decision written with the transaction that creates its trial."""
        del previous_distribution
        session.add(
            TrialParamModel(
                trial_id=trial_id,
                param_name=param_name,
                param_value=param_value_internal,
                distribution_json=distribution_to_json(distribution),
            )
        )
