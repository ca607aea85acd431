"""Recovery: sequences of steps, compared on samples that no step learns from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from placer.errors import PlacerError, RunError
from placer.recovery.correction import correct_bias, correct_scale
from placer.recovery.crossfit import score, worst_db
from placer.recovery.methods import mean_noises
from placer.recovery.reconstruction import reconstruct, round_weights
from placer.recovery.scaling import equalize, smooth
from placer.recovery.state import State, Step, Work

log = logging.getLogger(__name__)

# In the order in which they follow each other: what changes ranges goes first, what repairs means
# last, and weights are fitted before they are rounded.
STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "cross-layer-equalization": equalize,
        "smooth-quant": smooth,
        "layer-reconstruction": reconstruct,
        "weight-rounding": round_weights,
        "bias-correction": correct_bias,
        "scale-correction": correct_scale,
    }
)

# What the step on the right does, the one on the left does too.
_INCLUDED = MappingProxyType({"layer-reconstruction": "weight-rounding"})

# Sequences that each step is tried on, beside the state without any.
_WIDTH = 2
_RESAMPLES = 400
_CONFIDENCE = 0.75

_NO_LAYER = "no layer has constants that it could change without changing layers"
_NO_HELP = "it does not help on samples held back"
_OTHERS_HELP_MORE = "on samples held back other steps help more, and it adds nothing to them"

Noises = Sequence[Mapping[str, float]]  # By batch held back, then by part of an output.
Judge = Callable[[State], Noises]


@dataclass(frozen=True)
class Attempt:
    """One step that was tried. ``layers``: those with other constants.

    ``before``, ``after``: worst SQNR in dB on samples held back, behind the kept steps before it;
    of one that was not kept, behind none. ``reason``: why it did not apply, or was not kept; empty
    if it was.
    """

    step: str
    layers: int = 0
    before: float | None = None
    after: float | None = None
    reason: str = ""

    @property
    def kept(self) -> bool:
        """Whether the step is part of the result."""
        return not self.reason


@dataclass(frozen=True, eq=False)
class _Sequence:
    """A state, and the attempts, each of them kept, that led to it."""

    state: State
    noises: Noises
    attempts: tuple[Attempt, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(attempt.step for attempt in self.attempts)

    def followed_by(self, name: str, step: Step, work: Work, judge: Judge) -> _Sequence | str:
        """This with one more step, or why there is no such sequence."""
        for included in self.steps:
            if _INCLUDED.get(included) == name:
                return f"{included} has rounded the weights"
        try:
            state, layers = step(self.state, work)
            noises = judge(state) if layers else self.noises
        except (PlacerError, ValueError) as error:
            return str(error)
        if not layers:
            return _NO_LAYER
        before, after = (worst_db(mean_noises(found)) for found in (self.noises, noises))
        attempts = (*self.attempts, Attempt(name, layers, before, after))
        told = " + ".join((*self.steps, name))
        log.info("%s: %d layers, %.2f to %.2f dB", told, layers, before, after)
        return _Sequence(state, noises, attempts)


def try_steps(
    state: State,
    names: Sequence[str],
    work: Work,
    judge: Judge,
    told: Callable[[str], None] = log.info,
    steps: Mapping[str, Step] = STEPS,
) -> tuple[State, list[Attempt]]:
    """The state behind the best sequence of steps of ``names``, and what became of each step.

    A beam search over subsets of ``names`` in the order of ``steps``: each step is tried behind no
    other, and behind the ``_WIDTH`` best sequences of those before it. ``judge``: noise of a state
    on samples that are not in ``work``; raises RunError if it cannot be run. By ``value`` the
    result is no worse than any single step. ``told``: is told which step begins.
    """
    try:
        first = _Sequence(state, judge(state))
    except RunError as error:
        return state, [Attempt(name, reason=str(error)) for name in names]
    alone: dict[str, _Sequence | str] = {}
    beam: list[_Sequence] = []
    found: list[_Sequence] = []
    for name in (step for step in steps if step in names):
        told(name)
        alone[name] = first.followed_by(name, steps[name], work, judge)
        if alone[name] == _NO_LAYER:  # Which layers there are, no other step changes.
            continue
        tried = [one.followed_by(name, steps[name], work, judge) for one in beam]
        new = [one for one in (alone[name], *tried) if isinstance(one, _Sequence)]
        found += new
        beam = sorted([*beam, *new], key=lambda one: value(one.noises), reverse=True)[:_WIDTH]
    best = _chosen(first, found)
    return best.state, [_attempt(name, one, best, first) for name, one in alone.items()]


def value(noises: Noises) -> float:
    """Score of all batches together plus the mean of each one's, in dB.

    Both: a few samples may carry most of the noise of all, and what helps most samples a little may
    cost those few a lot.
    """
    return score(mean_noises(noises)) + float(np.mean([score(one) for one in noises]))


def helps(after: Noises, before: Noises) -> bool:
    """Whether the value rises."""
    return value(after) > value(before)


def _chosen(first: _Sequence, found: Sequence[_Sequence]) -> _Sequence:
    """The best single step if it helps; a longer sequence only where it is surely better.

    The best of many is partly the luckiest on these samples, and a short sequence does less that
    other samples may not like (akin to the one-standard-error rule, Breiman et al. 1984).
    """
    best = first
    for length in sorted({len(one.steps) for one in found}):
        longest = [one for one in found if len(one.steps) == length]
        tried = max(longest, key=lambda one: value(one.noises))
        is_better = helps if length == 1 else _is_surely_better
        if is_better(tried.noises, best.noises):
            best = tried
    return best


def _is_surely_better(after: Noises, before: Noises) -> bool:
    """Whether ``after`` helps, and does so in most bootstrap samples of the batches."""
    if not helps(after, before):
        return False
    rng = np.random.default_rng(0)
    gains = np.array([score(new) - score(old) for new, old in zip(after, before, strict=True)])
    better = 0
    for _ in range(_RESAMPLES):
        chosen = rng.integers(0, len(after), len(after))
        new, old = (score(mean_noises([one[i] for i in chosen])) for one in (after, before))
        better += new - old + gains[chosen].mean() > 0
    return better >= _CONFIDENCE * _RESAMPLES


def _attempt(name: str, alone: _Sequence | str, best: _Sequence, first: _Sequence) -> Attempt:
    """What became of the step ``name``."""
    for attempt in best.attempts:
        if attempt.step == name:
            return attempt
    if isinstance(alone, str):
        return Attempt(name, reason=alone)
    (attempt,) = alone.attempts
    reason = _OTHERS_HELP_MORE if helps(alone.noises, first.noises) else _NO_HELP
    return replace(attempt, reason=reason)
