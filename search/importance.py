"""Which decisions mattered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from optuna.samplers import RandomSampler

from placer.search.records import TrialRecord
from placer.search.samplers import mirror
from placer.search.space import Space

# Fewer trials say nothing about what mattered.
LEAST_TRIALS = 6
# What tells the faster half of the trials from the rest mattered. In a smaller part (Optuna's
# default is a tenth) all decisions are as the search left them, however little they bring.
FASTER = 0.5


def importances(space: Space, trials: Sequence[TrialRecord]) -> Mapping[str, float]:
    """How much each group's layout mattered for latency, by its name; the sum is 1.

    Optuna's PED-ANOVA (Watanabe et al. 2023) over all measured trials whose groups are whole.
    Empty where trials are too few or all alike.
    """
    study = mirror(space, trials, RandomSampler(seed=0))
    values = [trial.value for trial in study.trials]
    if len(values) < LEAST_TRIALS or np.ptp(np.array(values)) == 0:
        return {}
    # Where scikit-learn is installed this takes a second, which no other command should wait for.
    from optuna.importance import (  # noqa: PLC0415
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    evaluator = PedAnovaImportanceEvaluator(target_quantile=FASTER)
    shares = get_param_importances(study, evaluator=evaluator)
    return {name: float(value) for name, value in shares.items()}


def by_rule(space: Space, by_group: Mapping[str, float]) -> dict[str, float]:
    """Sums of ``by_group`` by the rule that the groups come from, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for group in space.groups:
        if group.name in by_group:
            sums[group.sites[0].match.rule.id] += by_group[group.name]
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
