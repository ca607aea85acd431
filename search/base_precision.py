"""The base precision as one more decision of the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from placer.search.models.observe import observe
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord
from placer.search.samplers import Proposal


class BaseProposer:
    """Proposes in the base precision in which the least latency may be reached.

    Each precision has a proposer, whose predictions rest on trials in that precision, since what is
    not quantized takes another time and adds another noise in another one. Layers that are the same
    in several, as those that read and write integers, tell of each other like layers that earlier
    runs measured: they have one signature. Of the proposals, that with the lowest latency two
    standard deviations below its prediction is made.
    """

    def __init__(
        self,
        proposers: Sequence[SurrogateProposer],
        reserve: Callable[[int], int] | None = None,
    ) -> None:
        """``proposers``: one for each precision, that of the float model first.

        ``reserve``: see ``SurrogateProposer``; all precisions get the number of one proposal.
        """
        self._proposers = tuple(proposers)
        self._reserve = reserve

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        first, *others = self._proposers
        left = [first, *(proposer for proposer in others if not _is_out(proposer, trials))]
        for proposer in left:
            for seed in proposer.untried_seeds(trials):
                return seed
        measured = [first, *(proposer for proposer in left[1:] if _is_measured(proposer, trials))]
        layers = {proposer: _layers(proposer, trials) for proposer in self._proposers}
        # Turns alternate: with a number each, one precision would always explore, the other never.
        reserve = None if self._reserve is None else cache(self._reserve)
        offers: list[tuple[float, int, Proposal]] = []
        for number, proposer in enumerate(measured):
            known = {
                k: v for other, times in layers.items() if other is not proposer for k, v in times
            }
            informed = proposer.informed(known, reserve)
            proposal = informed.propose(trials)
            if proposal is not None:
                mean, deviation = informed.expected(trials, proposal.choices)
                offers.append((mean - 2 * deviation, number, proposal))
        return min(offers)[2] if offers else None


def _is_measured(proposer: SurrogateProposer, trials: Sequence[TrialRecord]) -> bool:
    return any(trial.ratio is not None for trial in proposer.own(trials))


def _is_out(proposer: SurrogateProposer, trials: Sequence[TrialRecord]) -> bool:
    """Whether the float model itself fails in this precision, or misses a gate on accuracy."""
    float_trial = proposer.floats(proposer.own(trials))
    if float_trial is None:
        return False
    judged = () if float_trial.judgement is None else float_trial.judgement.gates
    return float_trial.error is not None or any(gate.violation > 0 for gate in judged)


def _layers(
    proposer: SurrogateProposer, trials: Sequence[TrialRecord]
) -> Sequence[tuple[str, float]]:
    """Costs by signature id that trials in this precision have measured."""
    shares_of: dict[str, list[float]] = {}
    signatures = proposer.landscape.layers.signatures
    for trial in proposer.own(trials):
        if trial.measurement is not None:
            shares: Mapping[int, float] = observe(
                proposer.landscape, trial.choices, trial.measurement
            ).layers
            for number, share in shares.items():
                shares_of.setdefault(signatures[number].id, []).append(share)
    return [(name, float(np.mean(shares))) for name, shares in sorted(shares_of.items())]
