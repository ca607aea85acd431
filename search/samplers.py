"""Schemes of search: each says what to try next, given all trials so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import TrialState, create_trial

from placer.search.records import Skip, TrialRecord
from placer.search.space import PER_SITE, Choices, Space

# Sampling that keeps returning known placements has nothing left to find.
MAX_REPEATS = 200


@dataclass(frozen=True)
class Proposal:
    """A placement to try, as choices, where it comes from and what was skipped for it."""

    kind: str
    choices: Choices
    skipped: tuple[Skip, ...] = ()


class Proposer(Protocol):
    """A scheme of search: a pure function of the trials, so that a killed study resumes."""

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """Return what to try next, None if nothing is worth trying.

        ``trials``: all so far, in order, those that other workers are running included.
        """


class RandomProposer:
    """Every group's layout at random, without repeating a placement."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        rng = np.random.default_rng([self._seed, len(trials)])

        def draw() -> Choices:
            offered = self._space.decisions.items()
            return {name: values[rng.integers(len(values))] for name, values in offered}

        return untried("random", draw, self._space, trials)


class ExhaustiveProposer:
    """Every combination of the groups' layouts in turn."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``; a linear search for the first that was not tried."""
        tried = {trial.placement_id for trial in trials}
        decisions = self._space.decisions
        for layouts in itertools.product(*decisions.values()):
            choices = dict(zip(decisions, layouts, strict=True))
            if self._space.placement(choices).id not in tried:
                return Proposal("exhaustive", choices)
        return None


class TpeProposer:
    """Optuna's TPE sampler with its own defaults, told of gates as constraints."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        # The liar writes to the trial that is asked for, and this one is not stored.
        seed = self._seed * 1_000_003 + len(trials)
        sampler = TPESampler(seed=seed, constant_liar=False)
        study = mirror(self._space, trials, sampler)
        return untried("tpe", lambda: _sample(study, sampler, self._space), self._space, trials)


def untried(
    kind: str, draw: Callable[[], Choices], space: Space, trials: Sequence[TrialRecord]
) -> Proposal | None:
    """Draw until a placement comes that was not tried; None if ``MAX_REPEATS`` draws give none."""
    tried = {trial.placement_id for trial in trials}
    for _ in range(MAX_REPEATS):
        choices = draw()
        if space.placement(choices).id not in tried:
            return Proposal(kind, choices)
    return None


def mirror(space: Space, trials: Sequence[TrialRecord], sampler: BaseSampler) -> optuna.Study:
    """An Optuna study in memory with the trials whose groups are whole."""
    plain = {name: CategoricalDistribution(offered) for name, offered in space.decisions.items()}
    study = optuna.create_study(sampler=sampler)
    for trial in trials:
        if trial.ratio is None or PER_SITE in trial.choices.values():
            continue
        study.add_trial(
            create_trial(
                value=trial.ratio,
                params={name: trial.choices[name] for name in plain},
                distributions=dict(plain),
                constraints=trial.constraints,
            )
        )
    return study


def _sample(study: optuna.Study, sampler: BaseSampler, space: Space) -> Choices:
    """Sample as ``Study.ask`` would, without recording a trial."""
    trial = create_trial(state=TrialState.RUNNING)
    relative = sampler.sample_relative(
        study, trial, sampler.infer_relative_search_space(study, trial)
    )
    choices = {}
    for name, offered in space.decisions.items():
        distribution = CategoricalDistribution(offered)
        choices[name] = str(
            relative[name]
            if name in relative
            else sampler.sample_independent(study, trial, name, distribution)
        )
    return choices
