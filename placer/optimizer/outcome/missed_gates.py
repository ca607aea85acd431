"""The outcome of a run in which no candidate meets the gates."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placer.accuracy.gates import METRICS
from placer.errors import GateError, RunError
from placer.graph.chosen_rows import chosen_rows
from placer.graph.randomness import random_outputs
from placer.model import save_model
from placer.optimizer.outcome.end_costs import end_seconds, lighter
from placer.optimizer.outcome.finals import Rejected
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.costs import TrialCosts
from placer.quantization import FLOAT_IDS
from placer.results.folder import OutputFolder
from placer.results.parts import StopReason
from placer.search.records import TrialRecord

log = logging.getLogger(__name__)

_GO_ON: dict[StopReason, str] = {
    "budget": "raise `budget`",
    "timeout": "raise `timeout`",
    "interrupted": "run the same command again to go on",
}


@dataclass(frozen=True)
class TimeNeeds:
    """Seconds: the ``limit``, what was ``spent`` before trials, a ``trial``, and the ``end``."""

    limit: float
    spent: Mapping[str, float]
    trial: float
    end: float

    @property
    def least(self) -> int:
        """A limit, in whole seconds, that a trial is expected to fit into."""
        return math.ceil(1.2 * (sum(self.spent.values()) + self.trial + self.end))

    def sentence(self) -> str:
        """What did not fit."""
        before = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.spent.items())
        return (
            f"no quantized candidate fits into {self.limit:g} s: {before}, a trial takes about "
            f"{self.trial:.1f} s, to confirm and write a result {self.end:.1f} s; give `timeout` "
            f"{self.least} or more"
        )


def time_needs(
    task: Task, setup: TrialSetup, records: Sequence[TrialRecord], spent: Mapping[str, float]
) -> TimeNeeds:
    """What a limit that the trials did not fit into would have had to hold."""
    costs = TrialCosts.of(records, setup, task)
    least = end_seconds(lighter(task.preset)[-1], costs, 1, task)
    before = {what: spent[what] for what in ("start", "preparation", "calibration")}
    return TimeNeeds(task.limit.seconds or 0.0, before, costs.trial, least)


_NOTHING_LEFT = "the search has nothing left to try"


def missed_error(
    task: Task,
    records: Sequence[TrialRecord],
    stopped: StopReason,
    rejected: Rejected | None,
    time_needs: TimeNeeds | None = None,
) -> GateError | RunError:
    """What a run ends with in which nothing meets the gates; see ``missed_sentence``.

    A RunError where the time or Ctrl-C ended the search before a candidate was measured: no gate
    was missed.
    """
    sentence = missed_sentence(task, records, stopped, rejected, time_needs)
    return RunError(sentence) if is_cut_short(records, stopped) else GateError(sentence)


def is_cut_short(records: Sequence[TrialRecord], stopped: StopReason) -> bool:
    """Whether the time or Ctrl-C ended the search before a quantized candidate was measured."""
    return stopped in ("interrupted", "timeout") and closest(records) is None


def missed_sentence(
    task: Task,
    records: Sequence[TrialRecord],
    stopped: StopReason,
    rejected: Rejected | None,
    time_needs: TimeNeeds | None = None,
) -> str:
    """Which gates nothing meets, how near the closest candidate comes, and what would help.

    ``rejected``: why the one that met them in its trial is no result. ``time_needs``: what the
    time of a run that ended by its limit went to.
    """
    gates = ", ".join(task.gate_texts)
    nearest = closest(records)
    if nearest is None and time_needs is not None:
        return time_needs.sentence()
    if nearest is None:
        on = _GO_ON.get(stopped, _NOTHING_LEFT)
        is_float = stopped == "budget" and len(records) == 1
        first = ", of which the first trial is the float model's" if is_float else ""
        return f"no quantized candidate was measured, so none meets {gates}; {on}{first}"
    for output, node in random_outputs(task.model.graph).items():
        if not any(gate.output in (None, output) for gate in task.gates):
            continue
        return (
            f"no candidate meets {gates}: output '{output}' is random (node '{node}') and differs "
            "from run to run; name the outputs to compare, e.g. sqnr>=15@scores"
        )
    values = ", ".join(f"{gate.gate} has {_rounded(gate.value)}" for gate in nearest.gates)
    if rejected is not None:
        return f"the fastest candidate met the gates in its trial ({values}), but {rejected.reason}"
    on = f" or {_GO_ON[stopped]}" if stopped in _GO_ON else f": {_NOTHING_LEFT}"
    fitted = ""
    if time_needs is not None:
        fitted = f" that {time_needs.limit:g} s left time for"
        on = f", or give more time: a trial takes about {time_needs.trial:.1f} s"
    return (
        f"no quantized candidate of {len(_measured(records))}{fitted} meets {gates}; the closest: "
        f"{values}; {_first(task)}relax the gate{on}{_chosen(task)}"
    )


def _first(task: Task) -> str:
    """What helps before all else: inputs made up at random are like none that a network sees."""
    return "give `data` (random inputs were used), " if task.calibration_data.synthetic else ""


def _chosen(task: Task) -> str:
    """What is said of rows that can be swapped, which no built-in metric allows for."""
    rows = chosen_rows(task.model.graph)
    on_metrics = [gate for gate in task.gates if gate.metric in METRICS]
    if rows is None or rows.sources or not on_metrics:
        return ""
    return (
        f"; layers work on rows that {' and '.join(rows.operators)} chose, which may only be in "
        "another order: a gate of your own can tell (MODULE:FUNCTION)"
    )


def write_closest(
    task: Task, setup: TrialSetup, folder: OutputFolder, records: Sequence[TrialRecord]
) -> None:
    """Write the candidate that misses the gates by least, to be looked at; it is no result."""
    nearest = closest(records)
    if nearest is None:
        return
    try:
        proto = setup.candidates.result(task.space.placement(nearest.choices))
        save_model(proto, task.model.base_dir, folder.closest)
    except RunError as error:
        log.warning("%s is not written: %s", folder.closest.name, error)


def _measured(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [r for r in records if r.placement_id not in FLOAT_IDS and r.ratio is not None]


def closest(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The quantized candidate that misses the gates by least; None if none was measured."""
    return min(_measured(records), key=lambda record: record.violation, default=None)


def _rounded(value: float | None) -> str:
    return "no number" if value is None else f"{value:.4g}"
