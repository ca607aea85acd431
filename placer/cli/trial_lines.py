"""The lines that a search prints in the terminal: a header, and one line per trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from placer.results.gate_values import gate_value

if TYPE_CHECKING:  # They bring in what takes long to import, and help is shown without it.
    from placer.results.objective import Objective
    from placer.search.records import TrialRecord

# Wide enough for ten thousand trials, latencies of hours, and the kinds that proposers name.
_NUMBER, _MEASURED, _SHARE, _KIND = 5, 13, 8, 13


def header(objective: Objective, *, estimated: bool) -> str:
    """What the columns of ``line`` hold."""
    measured = "latency, ms"
    if objective == "throughput":
        measured = "inferences/s"
    elif estimated:
        measured = "estimated, ms"
    return (
        f"{'trial':>{_NUMBER}}  {measured:>{_MEASURED}}  {'speed-up':>{_SHARE}}"
        f"  {'best':>{_SHARE}}  {'placement':<{_KIND}}  gates"
    )


def line(record: TrialRecord, best: float | None, objective: Objective) -> str:
    """A trial under the number that Optuna gives it, in rich's markup.

    ``best``: the least ratio to the float model of all trials so far that meet the gates.
    """
    outcome = _measured(record, objective)
    gates = "  ".join(
        f"{escape(gate.gate)}: {gate_value(gate.value, passed=gate.passed)} {mark(gate.passed)}"
        for gate in record.gates
    )
    if record.error is not None:
        outcome, gates = f"[red]{'failed':>{_MEASURED}}[/]", escape(record.error)[:60]
    elif record.judgement is None:
        gates = "[dim]slower than the best, not judged[/]"
    elif record.measurement is None:
        outcome = f"[dim]{'not measured':>{_MEASURED}}[/]"
    return (
        f"{record.number:>{_NUMBER}}  {outcome}  {speedup(record.ratio):>{_SHARE}}"
        f"  {speedup(best):>{_SHARE}}  [dim]{escape(record.kind):<{_KIND}}[/]  "
        f"{gates}{_base(record)}{_throttled(record)}"
    ).rstrip()


def speedup(ratio: float | None) -> str:
    """How many times as fast as the float model."""
    return "-" if ratio is None else f"x{1 / ratio:.2f}"


def mark(passed: bool) -> str:
    """Whether a gate is met."""
    return "[green]ok[/]" if passed else "[red]missed[/]"


def shown(value: float | None) -> str:
    """A value of a metric."""
    return "-" if value is None else f"{value:.4g}"


def _measured(record: TrialRecord, objective: Objective) -> str:
    if record.measurement is None:
        return ""
    latency = record.measurement.latency.median_ms
    if objective == "throughput":
        return f"{1e3 / latency:{_MEASURED}.1f}"
    return f"{latency:{_MEASURED}.3f}"


def _base(record: TrialRecord) -> str:
    return f"  [dim]in {record.base}[/]" if record.base else ""


def _throttled(record: TrialRecord) -> str:
    conditions = None if record.measurement is None else record.measurement.conditions
    return "  [yellow]throttled[/]" if conditions and conditions.throttled_by else ""
