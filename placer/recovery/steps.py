"""Recovery: sequences of steps, compared on samples that no step learns from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_HARMS_OUTPUTS = (
    "on samples held back it helps before the last Softmax, Sigmoid or Tanh, but makes the outputs "
    "worse"
)
_OTHERS_HELP_MORE = "on samples held back other steps help more, and it adds nothing to them"

# By batch held back, then by part of an output: error power over the mean signal of all batches.
Noises = Sequence[Mapping[str, float]]
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
        before, after = (worst_db(mean_noises(by_part)) for by_part in (self.noises, noises))
        attempts = (*self.attempts, Attempt(name, layers, before, after))
        names = " + ".join((*self.steps, name))
        log.info("%s: %d layers, %.2f to %.2f dB", names, layers, before, after)
        return _Sequence(state, noises, attempts)


def try_steps(
    state: State,
    names: Sequence[str],
    work: Work,
    judge: Judge,
    tell: Callable[[str], None] = log.info,
    steps: Mapping[str, Step] = STEPS,
    outputs: Judge | None = None,
) -> tuple[State, list[Attempt]]:
    """The state behind the best sequence of steps of ``names``, and what became of each step.

    A beam search over subsets of ``names`` in the order of ``steps``: each step is tried behind no
    other, and behind the ``_WIDTH`` best sequences of those before it. ``judge``: noise of a state
    on samples that are not in ``work``; raises RunError if it cannot be run. By ``value`` the
    result is no worse than any single step. ``outputs``: noise of the network's own outputs, where
    ``judge`` looks at what comes before them; what surely makes these worse is left out, and so is
    a longer sequence that does so to a shorter one. ``tell``: is told which step begins.
    """
    try:
        first = _Sequence(state, judge(state))
    except RunError as error:
        return state, [Attempt(name, reason=str(error)) for name in names]
    alone: dict[str, _Sequence | str] = {}
    beam: list[_Sequence] = []
    sequences: list[_Sequence] = []
    for name in (step for step in steps if step in names):
        tell(name)
        alone[name] = first.followed_by(name, steps[name], work, judge)
        if alone[name] == _NO_LAYER:  # Which layers there are, no other step changes.
            continue
        tried = [one.followed_by(name, steps[name], work, judge) for one in beam]
        new = [one for one in (alone[name], *tried) if isinstance(one, _Sequence)]
        sequences += new
        beam = sorted([*beam, *new], key=lambda one: value(one.noises), reverse=True)[:_WIDTH]
    of_model = _Outputs(outputs)
    best = _chosen(first, sequences, of_model)
    return best.state, [_attempt(name, one, best, first, of_model) for name, one in alone.items()]


def value(noises: Noises) -> float:
    """Score of all batches together plus the mean of each one's, in dB.

    Both: a few samples may carry most of the noise of all, and what helps most samples a little may
    cost those few a lot.
    """
    return score(mean_noises(noises)) + float(np.mean([score(one) for one in noises]))


def helps(after: Noises, before: Noises) -> bool:
    """Whether the value rises."""
    return value(after) > value(before)


class _Outputs:
    """Whether states surely make the network's outputs worse, which are looked at on demand.

    What a Softmax or Sigmoid reads tells a gain from chance, but not whether it matters: a network
    that is sure of nearly all samples has its noise in the few that it is not sure of, and less
    noise in all others is no gain.
    """

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self._known: dict[int, tuple[State, Noises]] = {}  # With the state, so that its id stays.

    def worse(self, after: State, before: State) -> bool:
        """Whether they surely are, and also where ``after`` cannot be run."""
        if self._judge is None:
            return False
        try:
            noises = [self._noises(self._judge, state) for state in (after, before)]
        except RunError as error:
            log.warning("outputs cannot be judged: %s", error)
            return True
        return _is_surely_worse(*noises)

    def _noises(self, judge: Judge, state: State) -> Noises:
        if id(state) not in self._known:
            self._known[id(state)] = state, judge(state)
        return self._known[id(state)][1]


def _chosen(first: _Sequence, sequences: Sequence[_Sequence], outputs: _Outputs) -> _Sequence:
    """The best single step if it helps; a longer sequence only where it is surely better.

    The best of many is partly the luckiest on these samples, and a short sequence does less that
    other samples may not like (akin to the one-standard-error rule, Breiman et al. 1984).
    """
    best = first
    for length in sorted({len(one.steps) for one in sequences}):
        is_better = helps if length == 1 else _is_surely_better
        longest = [one for one in sequences if len(one.steps) == length]
        for tried in sorted(longest, key=lambda one: value(one.noises), reverse=True):
            if not is_better(tried.noises, best.noises):
                break
            if not outputs.worse(tried.state, best.state):
                best = tried
                break
    return best


def _is_surely_better(after: Noises, before: Noises) -> bool:
    """Whether ``after`` helps, and does so in most bootstrap samples of the batches."""
    if not helps(after, before):
        return False
    gains = np.array([score(new) - score(old) for new, old in zip(after, before, strict=True)])
    better = [
        _gain(after, before, chosen) + float(gains[chosen].mean()) > 0
        for chosen in _resampled(after)
    ]
    return sum(better) >= _CONFIDENCE * _RESAMPLES


def _is_surely_worse(after: Noises, before: Noises) -> bool:
    """Whether the noise of all batches together grows in most bootstrap samples of them."""
    worse = [_gain(after, before, chosen) < 0 for chosen in _resampled(after)]
    return sum(worse) >= _CONFIDENCE * _RESAMPLES


def _resampled(noises: Noises) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.integers(0, len(noises), len(noises)) for _ in range(_RESAMPLES))


def _gain(after: Noises, before: Noises, chosen: np.ndarray) -> float:
    """In dB of the score of the ``chosen`` batches together."""
    new, old = (score(mean_noises([one[i] for i in chosen])) for one in (after, before))
    return float(new - old)


def _attempt(
    name: str, alone: _Sequence | str, best: _Sequence, first: _Sequence, outputs: _Outputs
) -> Attempt:
    """What became of the step ``name``."""
    for attempt in best.attempts:
        if attempt.step == name:
            return attempt
    if isinstance(alone, str):
        return Attempt(name, reason=alone)
    (attempt,) = alone.attempts
    if not helps(alone.noises, first.noises):
        return replace(attempt, reason=_NO_HELP)
    harms = outputs.worse(alone.state, first.state)
    reason = _HARMS_OUTPUTS if harms else _OTHERS_HELP_MORE
    return replace(attempt, reason=reason)
