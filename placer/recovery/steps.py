"""Recovery: steps tried one after the other, each kept only if it helps where it did not learn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from placer.errors import PlacerError, RunError
from placer.recovery.correction import correct_bias, correct_scale
from placer.recovery.crossfit import score, worst_db
from placer.recovery.methods import mean_noises
from placer.recovery.reconstruction import reconstruct, round_weights
from placer.recovery.scaling import equalize, smooth
from placer.recovery.state import State, Step, Work

log = logging.getLogger(__name__)

# In the order in which they are tried: what changes ranges goes first, what repairs means last, and
# weights are fitted before they are rounded.
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

_NO_LAYER = "no layer has constants that it could change without changing layers"

Noises = Sequence[Mapping[str, float]]  # By batch held back, then by part of an output.
Judge = Callable[[State], Noises]


@dataclass(frozen=True)
class Attempt:
    """One step that was tried. ``layers``: those with other constants.

    ``before``, ``after``: worst SQNR in dB on samples held back. ``reason``: why it did not apply,
    or was not kept; empty if it was.
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


def try_steps(
    state: State,
    names: Sequence[str],
    work: Work,
    judge: Judge,
    told: Callable[[str], None] = log.info,
) -> tuple[State, list[Attempt]]:
    """The state after those steps of ``names`` that help, and what each did.

    ``judge``: noise of a state on samples that are not in ``work``; raises RunError if it cannot be
    run. ``told``: is told which step begins. A step is kept if it ``helps`` on these.
    """
    attempts: list[Attempt] = []
    try:
        before = judge(state)
    except RunError as error:
        return state, [Attempt(name, reason=str(error)) for name in names]
    for name in (step for step in STEPS if step in names):
        told(name)
        done = [one.step for one in attempts if one.kept and _INCLUDED.get(one.step) == name]
        if done:
            attempts.append(Attempt(name, reason=f"{done[0]} has rounded the weights"))
            continue
        try:
            tried, layers = STEPS[name](state, work)
            after = judge(tried) if layers else before
        except (PlacerError, ValueError) as error:
            attempts.append(Attempt(name, reason=str(error)))
            continue
        if not layers:
            attempts.append(Attempt(name, reason=_NO_LAYER))
            continue
        found = worst_db(mean_noises(before)), worst_db(mean_noises(after))
        better = helps(after, before)
        reason = "" if better else "it does not help on samples held back"
        attempts.append(Attempt(name, layers, *found, reason))
        log.info("%s: %d layers, %.2f to %.2f dB%s", name, layers, *found, reason and "; not kept")
        if better:
            state, before = tried, after
    return state, attempts


def helps(after: Noises, before: Noises) -> bool:
    """Whether the score rises: over all batches together, and over each alone, on average.

    The mean of both: a few samples may carry most of the noise of all, and what helps most samples
    a little may cost those few a lot.
    """
    gains = [score(new) - score(old) for new, old in zip(after, before, strict=True)]
    total = score(mean_noises(after)) - score(mean_noises(before))
    return total + sum(gains) / len(gains) > 0
