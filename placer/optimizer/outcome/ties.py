"""Where estimates cannot tell candidates apart, the rules' default stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placer.engines.estimated.error import EstimateError
from placer.optimizer.setup.task import Task
from placer.search.records import TrialRecord, by_latency


@dataclass(frozen=True)
class Tie:
    """The rules' default placement and the fastest candidate, within the estimates' ``error``.

    ``error``: relative error that 80% of estimated ratios of two builds of a network stay within.
    """

    default: TrialRecord
    fastest: TrialRecord
    error: float

    def __str__(self) -> str:
        """Return one sentence."""
        ratio = (self.fastest.ratio or 0.0) / (self.default.ratio or 1.0)
        low, high = ratio / (1 + self.error), ratio * (1 + self.error)
        return (
            f"trial {self.fastest.number} is estimated to take {ratio:.3f} of the time of the "
            f"rules' default (80% interval {low:.2f} to {high:.2f}), too close to 1 for the "
            "estimate to tell; the default is the result"
        )


def tie_with_default(task: Task, records: Sequence[TrialRecord]) -> Tie | None:
    """The tie that makes the rules' default the result.

    None if latencies are measured, the default misses a gate, or it is slower, or faster, than
    every other candidate beyond doubt.
    """
    error = EstimateError.of(task.engine).ratio
    ranked = by_latency(records)
    placement = task.space.placement(task.space.defaults).id
    default = next((r for r in ranked if r.placement_id == placement), None)
    if not error or default is None or not default.ratio:
        return None
    fastest = ranked[0]
    gain = default.ratio / (fastest.ratio or default.ratio)
    return Tie(default, fastest, error) if 1 < gain <= 1 + error else None
