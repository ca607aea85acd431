"""``placer onboard``: many models from one manifest."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import placer
from placer.cli.terminal import output_console
from placer.common.files import check_writable, write_text
from placer.results.gate_values import gate_value
from placer.results.onboarding import DONE, MISSED, STATE_OF
from placer.results.verdict import Verdict

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.onboarding.planning import Planned
    from placer.results.onboarding import ModelSummary, Summary
    from placer.results.parts import GatePart

EXAMPLES = ("placer onboard models.yaml --dry-run", "placer onboard models.yaml --jobs 2")

_COLOURS = {**dict.fromkeys(DONE, "green"), MISSED: "yellow"}
_COLUMNS = (
    "model",
    "state",
    "float, ms",
    "best, ms",
    "speed-up (interval)",
    "gates",
    "trials",
    "time, s",
    "reason",
)
# Where nobody has set how wide a line is, as in the log of a CI job.
_WIDTH = 160
# Narrower than this, the table has its first columns only, and reasons stand below it.
_ALL_COLUMNS, _FIRST = 130, 5


def onboard_command(
    manifest: Annotated[Path, typer.Argument(help="YAML file that lists the models.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder.", show_default="the manifest's own choice"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Models at a time.", show_default="one, or one per device"),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="Dask scheduler whose workers do it, dask://HOST:PORT."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and why, and do nothing.")
    ] = False,
    redo: Annotated[
        bool, typer.Option("--redo", help="Begin all models anew, changed or not.")
    ] = False,
    redo_model: Annotated[
        list[str] | None,
        typer.Option(help="Begin the model of this name anew; any number of times."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the final table as Markdown, e.g. for a comment.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="With --markdown: over a file that no run of placer wrote."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
    debug: Annotated[  # noqa: ARG001 - read in placer.cli.app.main, where errors are shown
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,
) -> None:
    """Optimize many models; running it again redoes only what has changed.

    Exit codes: 0 all done, 1 a model has no result, 2 the manifest is wrong, 3 a gate is missed.
    """
    console = output_console(_WIDTH)
    begun_anew = True if redo else (redo_model or [])
    if dry_run:
        plan = placer.plan_onboarding(
            manifest, output=output, jobs=jobs, executor=executor, redo=begun_anew
        )
        if as_json:
            typer.echo(plan.summary.model_dump_json(indent=2))
        elif not quiet:
            for note in plan.notes:
                console.print(escape(note), soft_wrap=True)
            console.print(_planned(plan.planned))
        return

    def tell(text: str) -> None:
        if not quiet and not as_json:
            console.print(escape(text), soft_wrap=True)

    # Now, since hours of work may lie before it is written.
    check_writable(markdown, replace=replace)
    summary = placer.onboard(
        manifest, output=output, jobs=jobs, executor=executor, redo=begun_anew, tell=tell
    )
    if markdown is not None:
        write_text(markdown, markdown_of(summary))
    if as_json:
        typer.echo(summary.model_dump_json(indent=2))
    elif not quiet:
        print_summary(console, summary)
    else:
        for model in summary.models:
            if model.state not in DONE:
                typer.echo(f"placer: error: {model.name}: {model.state}: {model.reason}", err=True)
    raise typer.Exit(summary.exit_code or 0)


def _planned(planned: Sequence[Planned]) -> Table:
    table = _table("", "model", "path", "what", "why")
    for number, one in enumerate(planned, start=1):
        cells = map(escape, (one.job.name, one.job.model, one.action, one.why))
        table.add_row(str(number), *cells)
    return table


def print_summary(console: Console, summary: Summary) -> None:
    """Print a row per model; where not all columns have room, with reasons below."""
    # Where nothing but throughput was measured, nothing is in milliseconds.
    rated = any(model.float_per_second is not None for model in summary.models)
    unit = "ms or inferences" if rated else "ms"
    is_wide = console.width >= _ALL_COLUMNS
    heads = ["model", "state", f"float, {unit}", f"best, {unit}", *_COLUMNS[4:]]
    count = len(heads) if is_wide else _FIRST
    table = _table(*heads[:count])
    rows = [_row(model) for model in summary.models]
    for row in rows:
        cells = row if is_wide else [cell.replace(" (", "\n(").replace(", ", ",\n") for cell in row]
        table.add_row(*cells[:count])
    console.print(table)
    for row in () if is_wide else rows:
        if row[-1]:
            console.print(f"{row[0]}: {row[-1]}", soft_wrap=True)
    targets = _targets(summary)
    if targets:
        console.print(_by_target(summary, targets))


def _targets(summary: Summary) -> list[str]:
    return list(dict.fromkeys(model.target for model in summary.models if model.target))


def _by_target(summary: Summary, targets: Sequence[str]) -> Table:
    """A row per model with its speed-up for each target."""
    table = _table("speed-up", *map(escape, targets))
    for row in _rows_by_target(summary, targets):
        table.add_row(*row)
    return table


def _rows_by_target(summary: Summary, targets: Sequence[str]) -> list[tuple[str, ...]]:
    cells: dict[str, dict[str, str]] = {}
    for model in summary.models:
        colour = _COLOURS.get(model.state, "red")
        faster = model.state == STATE_OF[Verdict.FASTER] and model.speedup is not None
        text = f"{model.speedup:.2f}" if faster else model.state
        estimate = " (estimate)" if faster and model.estimated else ""
        by_target = cells.setdefault(model.of or model.name, {})
        by_target[model.target or ""] = f"[{colour}]{text}{estimate}[/]"
    rows = cells.items()
    return [
        (escape(name), *(by_target.get(target, "") for target in targets))
        for name, by_target in rows
    ]


def markdown_of(summary: Summary) -> str:
    """The same as a table in GitHub's Markdown, under a line that counts the states."""
    states = Counter(model.state_text for model in summary.models)
    counted = ", ".join(f"{number} {state}" for state, number in states.most_common())
    rows = [_COLUMNS, ("---",) * len(_COLUMNS)]
    rows += [tuple(map(_cell, _row(model))) for model in summary.models]
    lines = [f"**placer onboard**: {counted}", "", *map(_line, rows)]
    targets = _targets(summary)
    if targets:
        cells = [tuple(map(_cell, row)) for row in _rows_by_target(summary, targets)]
        heads = [("speed-up", *(_cell(escape(t)) for t in targets)), ("---",) * (len(targets) + 1)]
        lines += ["", *map(_line, (*heads, *cells))]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """What a row has for the terminal, without colours, on one line and with no Markdown in it."""
    plain = html.escape(Text.from_markup(text).plain, quote=False)
    return re.sub(r"([|*_`\[\]])", r"\\\1", plain).replace("\n", "<br>")


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "state")
    return table


def _row(model: ModelSummary) -> tuple[str, ...]:
    colour = _COLOURS.get(model.state, "red")
    estimate = "\n(estimate)" if model.estimated else ""
    why = model.why if model.ran and model.why != "new" else ""
    reason = "" if model.state == STATE_OF[Verdict.FASTER] else model.reason
    return (
        escape(model.name),
        f"[{colour}]{model.state_text}[/]",
        _number(model.float_ms, estimate) or _number(model.float_per_second, " per s"),
        _number(model.best_ms, estimate) or _number(model.best_per_second, " per s"),
        _speedup(model) + (estimate if model.speedup is not None else ""),
        "\n".join(escape(_gate(gate)) for gate in model.gates),
        "" if model.trials is None else str(model.trials),
        "" if model.seconds is None else f"{model.seconds:.1f}",
        escape(": ".join(filter(None, (why, reason)))),
    )


def _number(value: float | None, estimate: str) -> str:
    return "" if value is None else f"{value:.3g}{estimate}"


def _speedup(model: ModelSummary) -> str:
    if model.speedup is None or model.speedup_interval is None:
        return ""
    low, high = model.speedup_interval
    return f"{model.speedup:.3f} ({low:.3f} to {high:.3f})"


def _gate(gate: GatePart) -> str:
    value = gate_value(gate.value, passed=gate.passed)
    return f"{gate.gate}: {value} {'ok' if gate.passed else 'missed'}"
