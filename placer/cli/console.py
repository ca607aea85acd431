"""Terminal output of a run: stages, live progress and the final table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from placer.cli.options import with_flags
from placer.cli.terminal import output_console, table_of
from placer.cli.trial_lines import header, line, mark, shown, speedup
from placer.common.durations import duration_text
from placer.common.listed import listed
from placer.common.names import engine_title
from placer.optimizer.observer import Observer
from placer.results.gate_values import gate_value
from placer.results.verdict import Verdict

if TYPE_CHECKING:  # They bring in what takes long to import, and help is shown without it.
    from placer.results.objective import Objective
    from placer.results.parts import BaselinePart, BestPart, BudgetPart, FrontPart, StopReason
    from placer.results.result import Result
    from placer.search.records import TrialRecord


# What is measured, by objective, with its unit.
_MEASURED = {"latency": "latency, ms", "throughput": "inferences per second"}
# Where no bar can be drawn, measurements of noise are told of in such numbers.
PROBES_PER_LINE = 10
# Seconds of which the terminal tells what they were spent on.
_SHOWN_S = 0.05
# Metrics of parts of outputs that the terminal lists.
_MOST_PARTS = 16
# Metrics that compare an output with the float model's; the error is 0 where they are equal.
_ERROR = "max_abs "
_DISTANCES = ("sqnr", "cosine", "max_abs", "argmax_agreement")


class ConsoleObserver(Observer):
    """Prints stages and one line per trial; on a terminal a progress bar stays below them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = console or output_console()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._best: float | None = None
        self._count = 0
        self._objective: Objective = "latency"

    def stage(self, text: str) -> None:
        """Print what happens next."""
        self._end_bar()
        self._console.print(f"[cyan]·[/] {escape(text)}", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._console.print(f"[yellow]warning:[/] {escape(with_flags(text))}", soft_wrap=True)

    def progress(self, done: int, total: int) -> None:
        """Advance the bar of the current stage."""
        if self._task is None:
            self._begin_bar("progress", total)
        self._update_bar(done)

    def search(
        self,
        budget: int | None,
        done: int,
        best: float | None,
        estimated: bool,
        objective: Objective,
    ) -> None:
        """Begin the search's bar, and print what the columns of its trials hold."""
        self._objective, self._count, self._best = objective, done, best
        most = "" if budget is None else f", {budget} trial{'s' if budget != 1 else ''} at most"
        resumed = f", resumed after {done}" if done else ""
        self.stage(f"searching{most}{resumed}")
        text = header(objective, estimated=estimated)
        self._console.print(f"[bold]{text}[/]", soft_wrap=True)
        self._begin_bar("trials", budget)
        self._show_trials()

    def trial(self, record: TrialRecord) -> None:
        """Print the trial's latency, speed-up and gates, and the best so far."""
        self._count += 1
        if record.feasible and record.ratio is not None:
            self._best = min(record.ratio, self._best or record.ratio)
        text = line(record, self._best, self._objective)
        self._console.print(text, soft_wrap=True)
        self._show_trials()

    def probe(self, done: int) -> None:
        """Say how often noise was measured beside the trials, without a terminal now and then."""
        if self._task is not None:
            self._bar.update(self._task, description=f"trials, {_probes(done)}")
        if not self._console.is_terminal and done % PROBES_PER_LINE == 0:
            self._console.print(f"[dim]{_probes(done)} beside the trials[/]")

    def close(self) -> None:
        """Remove the bar."""
        self._end_bar()

    def _begin_bar(self, description: str, total: int | None) -> None:
        self._end_bar()
        self._bar.start()
        self._task = self._bar.add_task(description, total=total, best="")

    def _show_trials(self) -> None:
        """How many trials there were, and the best of them, on the bar."""
        self._update_bar(self._count, f"best {speedup(self._best)}")

    def _update_bar(self, done: int, best: str = "") -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=done, best=best)

    def _end_bar(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._bar.stop()
            self._task = None


def print_result(console: Console, result: Result, folder: str) -> None:
    """Print the final table and where the outputs are."""
    verdict = str(result.verdict)
    if result.verdict is Verdict.CANNOT_TELL:
        verdict += ", within the error of estimates"
    title = f"{Path(result.model.path).name} on {result.engine.name}: {verdict}"
    table = table_of("", "float", "best", title=title)
    if result.baseline is not None and result.best is not None:
        _add_rows(table, result, result.baseline, result.best)
    console.print(table)
    if result.best is not None and result.baseline is not None:
        is_float = result.best.trial is None
        _print_metrics(console, result.baseline.metrics, result.shown_metrics(), is_float=is_float)
    if result.front:
        _print_front(console, result)
    if not result.calibrated:
        console.print("[yellow]not calibrated:[/] ranges and gates rest on random inputs")
    for text in result.evaluation.notes:  # Told before the trials, which may be long ago.
        console.print(f"[yellow]data:[/] {escape(with_flags(text))}", soft_wrap=True)
    for note in _notes(result):
        console.print(note)
    console.print(f"outputs are in {escape(folder)}")


def _notes(result: Result) -> Iterator[str]:
    """What the tables do not say: how the search ended, and what the figures are about."""
    yield _ended(result)
    if looked_faster := result.looked_faster():
        yield looked_faster
    if result.budget.timeout_s is not None:
        yield _spent(result.budget, result.budget.timeout_s)
    yield f"{result.objective} is {result.engine.clock} on {result.engine.device}"
    if result.source is not None:
        yield escape(result.beside_source())
    if result.best is not None and result.best.base is not None:
        yield f"what is not quantized is computed in {result.best.base}"
    if result.best is not None and result.best.quantized_edges:
        # Estimates run on no engine: their rule pack tells what the result is for.
        engine = result.pack.name if result.engine.estimated else result.engine.name
        yield f"placed for {engine_title(engine)}; another engine may run it slower than float"


def _probes(done: int) -> str:
    return f"{done} accuracy check{'s' if done != 1 else ''} of parts of the model"


def _ended(result: Result) -> str:
    """Why the search ended, and after how many trials and probes."""
    budget = result.budget
    of = "" if budget.trials is None else f" of {budget.trials}"
    done = f"after {len(result.trials)}{of} trials"
    if result.probes:
        done += f" and {_probes(result.probes)}"
    reasons: dict[StopReason, str] = {
        "budget": "the budget is used",
        "timeout": "no other trial would end within the time limit",
        "converged": "nothing is left to gain",
        "interrupted": "interrupted",
    }
    return f"the search ended {done}: {reasons[budget.stopped]}"


def _spent(budget: BudgetPart, limit_s: float) -> str:
    """What the time of a run with a limit went to, without what took next to none."""
    spent = dict(budget.spent_s)
    total = spent.pop("total", 0.0)
    parts = [f"{what} {seconds:.1f} s" for what, seconds in spent.items() if seconds >= _SHOWN_S]
    return f"of {duration_text(limit_s)} it took {total:.1f} s: {', '.join(parts)}"


def _print_front(console: Console, result: Result) -> None:
    kind = "estimated " if result.engine.estimated else ""
    interval = "80% interval" if result.engine.estimated else "95% interval"
    share = f"of float ({interval})"
    if result.objective == "throughput":
        share = f"speed-up ({interval})"
    columns = ("", _MEASURED[result.objective], share, "SQNR, dB", "in")
    table = table_of(*columns, title=f"front of {kind}{result.objective} and accuracy")
    for rank, part in enumerate(result.front, start=1):
        table.add_row(
            str(rank),
            *_point(part),
            "exact" if part.sqnr_db is None else f"{part.sqnr_db:.1f}",
            escape(part.folder),
        )
    console.print(table)


def _print_metrics(
    console: Console,
    before: dict[str, float | None],
    after: dict[str, float | None],
    *,
    is_float: bool = False,
) -> None:
    """Print the metrics of the result, after those of the float model where it has them.

    ``is_float``: it is the float model, of which nobody need be told that its outputs are equal.
    """
    equal = [name.removeprefix(_ERROR) for name in after if name.startswith(_ERROR)]
    equal = [output for output in equal if after[f"{_ERROR}{output}"] == 0]
    after = {name: value for name, value in after.items() if not _is_of(name, equal)}
    metrics = _without_most_parts(after)
    for name, value in metrics.items():
        was = f"{shown(before[name])} -> " if name in before else ""
        unit = " dB" if name.startswith("sqnr") and value is not None else ""
        console.print(f"{escape(name)}: {was}{shown(value)}{unit}")
    if len(metrics) < len(after):
        console.print(f"{len(after) - len(metrics)} more, of parts of outputs, in the report")
    outputs = [escape(output) for output in equal if "[" not in output]
    if outputs and not is_float:
        text = f"outputs equal to the float model's: {listed(outputs)}"
        console.print(text)


def _without_most_parts(metrics: dict[str, float | None]) -> dict[str, float | None]:
    """``metrics`` with those of parts of outputs last; of many parts the worst SQNR alone."""
    whole = {name: value for name, value in metrics.items() if "[" not in name}
    parts = {name: value for name, value in metrics.items() if name not in whole}
    if len(parts) <= _MOST_PARTS:
        return whole | parts
    noisy = (
        (value, name)
        for name, value in parts.items()
        if value is not None and name.startswith("sqnr ")
    )
    worst = min(noisy, default=None)
    return whole if worst is None else whole | {worst[1]: worst[0]}


def _is_of(name: str, outputs: Collection[str]) -> bool:
    """Whether the metric ``name`` compares one of ``outputs`` with the float model's."""
    metric, _, output = name.partition(" ")
    return metric in _DISTANCES and output in outputs


def _point(part: FrontPart) -> tuple[str, str]:
    """What was measured of a point of the front, and how it compares with float."""
    low, high = part.ratio_interval
    if part.latency is not None:
        share = f"{part.ratio_to_float:.3f} ({low:.3f} to {high:.3f})"
        return f"{part.latency.median_ms:.3f}", share
    rate = "" if part.throughput is None else f"{part.throughput.batches_per_s:.1f}"
    return rate, f"{1 / part.ratio_to_float:.3f} ({1 / high:.3f} to {1 / low:.3f})"


def _add_rows(table: Table, result: Result, before: BaselinePart, after: BestPart) -> None:
    """What was measured of the float model and of the result, within 80 columns."""
    estimated = result.engine.estimated
    kind = "estimated " if estimated else ""
    spread, interval = ("80% interval",) * 2 if estimated else ("p10 to p90", "95% interval")
    parts = (before, after)
    measured = f"{kind}{_MEASURED[result.objective]}\n({spread})"
    table.add_row(measured, *(_measured(part) for part in parts))
    table.add_row("samples/s", *(f"{part.throughput.samples_per_s:.1f}" for part in parts))
    if after.memory_bytes is not None:
        table.add_row("MB on the device", *(_megabytes(part.memory_bytes) for part in parts))
    low, high = after.speedup_interval
    speedup = f"{after.speedup:.3f} ({low:.3f} to {high:.3f})"
    table.add_row(f"{kind}speed-up\n({interval})", "1", speedup)
    for gate in after.gates:
        value = f"{gate_value(gate.value, passed=gate.passed)} {mark(gate.passed)}"
        table.add_row(f"gate {escape(gate.gate)}", "", value)
    table.add_row("quantized edges", "0", str(after.quantized_edges))
    for name, edges in after.formats.items():
        table.add_row(f"of these in {name}", "0", str(edges))
    table.add_row("trial", "", "the float model" if after.trial is None else str(after.trial))


def _measured(part: BaselinePart | BestPart) -> str:
    """Latency, or inferences per second."""
    latency, rate = part.latency, part.throughput
    if latency is not None:
        return f"{latency.median_ms:.3f} ({latency.p10_ms:.3f} to {latency.p90_ms:.3f})"
    if rate.batches_per_s_interval is None:
        return ""
    low, high = rate.batches_per_s_interval
    return f"{rate.batches_per_s:.1f} ({low:.1f} to {high:.1f})"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"
