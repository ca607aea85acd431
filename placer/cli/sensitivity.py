"""``placer sensitivity``: where the accuracy goes, and what each decision saves."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import placer
from placer.cli.console import ConsoleObserver
from placer.cli.options import (
    CustomOps,
    Device,
    EngineOptions,
    Fix,
    Replace,
    Shapes,
    Threads,
    engine_options,
    fixes_of,
    json_option,
    option,
    shapes_of,
)
from placer.cli.project import Profiles, ProjectFile, with_project
from placer.cli.terminal import output_console
from placer.common.files import check_writable
from placer.common.listed import MOST, listed
from placer.optimizer.options.request import Request

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.results.sensitivity import Noises, Sensitivity, SubjectPart

EXAMPLES = (
    "placer sensitivity model.onnx --data calibration.npz --figure sensitivity.html",
    "placer sensitivity model.onnx --data images/ --engine fusion-model --gpu l4 --by site",
)
SAMPLES, ROWS = 16, 15
LOW_DB = 15.0
_HEADS = {"rule": "rule", "group": "group: rule and first node", "site": "site: rule and node"}


def sensitivity_command(
    context: typer.Context,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The ONNX model: float, or quantized already.", show_default="the project's"
        ),
    ] = None,
    project: ProjectFile = None,
    profile: Profiles = None,
    shape: Shapes = None,
    fix: Fix = None,
    custom_ops: CustomOps = None,
    data: Annotated[str | None, option("data")] = Request.data,
    eval_data: Annotated[
        str | None, option("eval_data", help="Data on which noise is measured.")
    ] = Request.evaluation_data,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="What to measure: rule, group or site; any number of times.",
            show_default="all three",
            rich_help_panel="Search",
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(help="Samples to measure noise on, at most.", rich_help_panel="Accuracy"),
    ] = SAMPLES,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure what each saves, in turn with the default placement.",
            rich_help_panel="Engine",
        ),
    ] = False,
    calibration: Annotated[str, option("calibration")] = Request.calibration,
    ranges: Annotated[str, option("ranges")] = Request.ranges,
    override: Annotated[list[str] | None, option("overrides")] = None,
    engine: Annotated[str, option("engine")] = Request.engine,
    gpu: Annotated[str | None, option("gpu")] = Request.gpu,
    threads: Threads = Request.threads,
    device: Device = Request.device,
    engine_option: EngineOptions = None,
    pack: Annotated[str | None, option("pack")] = Request.pack,
    scheme: Annotated[str | None, option("scheme")] = Request.scheme,
    weight_range: Annotated[str, option("weight_range")] = Request.weight_range,
    base: Annotated[str | None, option("base")] = Request.base,
    exclude: Annotated[list[str] | None, option("exclude")] = None,
    only: Annotated[list[str] | None, option("only")] = None,
    preset: Annotated[str, option("preset", help="Effort of calibration.")] = Request.preset,
    seed: Annotated[int, option("seed")] = Request.seed,
    cache: Annotated[bool, option("cache")] = True,
    rows: Annotated[
        int,
        typer.Option(min=1, help="Rows of each table, the worst first.", rich_help_panel="Output"),
    ] = ROWS,
    figure: Annotated[
        Path | None,
        typer.Option(help="Write a page with figures, one .html file.", rich_help_panel="Output"),
    ] = None,
    replace: Replace = False,
    as_json: Annotated[bool, json_option()] = False,
) -> None:
    """Show the noise that each site, group and rule causes at the outputs, and what it saves.

    What is measured is kept, so that the same command resumes. The options of a project file count
    as far as this command has them.
    """
    several = {
        "custom_ops": custom_ops,
        "overrides": override,
        "exclude": exclude,
        "only": only,
    }
    typed: dict[str, Any] = {
        **{keyword: values or () for keyword, values in several.items()},
        "shapes": shapes_of(shape or []),
        "fix": fixes_of(fix or []),
        "data": data,
        "eval_data": eval_data,
        "engine": engine,
        "gpu": gpu,
        "threads": threads,
        "device": device,
        "engine_options": engine_options(engine_option or []),
        "pack": pack,
        "scheme": scheme,
        "weight_range": weight_range,
        "base": base,
        "calibration": calibration,
        "ranges": ranges,
        "preset": preset,
        "seed": seed,
        "cache": cache,
    }
    asked = with_project(context, model, typed, project, profile or [])
    given = {name: value for name, value in asked.given.items() if name in typed}
    context.with_resource(placer.custom_ops(*given.pop("custom_ops")))
    check_writable(figure, replace=replace)  # Else that is noticed when all is measured.
    console = output_console()
    observer = None if as_json else ConsoleObserver(console)
    if observer is not None and asked.origin:
        observer.stage(asked.origin)
    try:
        sensitivity = placer.sensitivity(
            asked.model,
            by=by or ("rule", "group", "site"),
            samples=samples,
            measure=measure,
            observer=observer,
            **given,
        )
    finally:
        if observer is not None:
            observer.close()
    if figure is not None:
        # Plotly takes long to import.
        from placer.report.sensitivity import write_sensitivity  # noqa: PLC0415

        write_sensitivity(sensitivity, figure)
    if as_json:
        typer.echo(sensitivity.model_dump_json(indent=2))
    else:
        _print(console, sensitivity, rows, figure)


def _print(console: Console, result: Sensitivity, limit: int, figure: Path | None) -> None:
    by_site = any(subject.kind == "site" for subject in result.subjects)
    for kind, head in _HEADS.items():
        subjects = [subject for subject in result.subjects if subject.kind == kind]
        # A group of one site has the row of its site.
        is_of_sites = kind == "group" and by_site and all(one.sites <= 1 for one in subjects)
        if subjects and not is_of_sites:
            console.print(_table(head, subjects, result, limit))
            if len(subjects) > limit:
                console.print(f"{len(subjects) - limit} more with --rows or --json")
    console.print(
        f"SQNR in dB at the worst output part, on {result.samples} samples. Default placement: "
        f"{_db(result.default)}; the least that the rules let be quantized: {_db(result.floats)}"
    )
    for sentence in _lost(result):
        console.print(escape(sentence), soft_wrap=True)
    console.print(f"{result.probes} placements measured, {result.known} known from before")
    if not result.calibrated:
        console.print("[yellow]not calibrated:[/] ranges and noise rest on random inputs")
    if figure is not None:
        console.print(f"figures are in {escape(str(figure))}", soft_wrap=True)


def _lost(result: Sensitivity) -> Iterator[str]:
    """Sentences on the sites that alone leave little of an output."""
    from placer.accuracy.metrics import decibels  # noqa: PLC0415

    lossy = [
        (subject, decibels(subject.worst_alone[0]))
        for subject in result.subjects
        if subject.kind == "site" and subject.alone is not None and subject.worst_alone[0] > 0
    ]
    for quantized in (True, False):
        found = [
            (subject.name.partition(":")[2], db)
            for subject, db in lossy
            if db < LOW_DB and subject.default == quantized
        ]
        if found:
            names = [name for name, _ in found]
            told = listed([f"'{name}' ({db:.1f} dB)" for name, db in found])
            leave, them = ("leaves", "it") if len(found) == 1 else ("leave", "them")
            flags = " ".join(f"--exclude {shlex.quote(name)}" for name in names[:MOST])
            how = f"placer optimize {flags} leaves {them} in float"
            what = how if quantized else f"the default placement leaves {them} in float"
            yield f"quantized alone, {told} {leave} little: {what}"


def _table(
    head: str, subjects: Sequence[SubjectPart], sensitivity: Sensitivity, limit: int
) -> Table:
    """The worst of ``subjects``, within 80 columns."""
    timed = any(subject.saves is not None for subject in subjects)
    several = len(sensitivity.default) > 1
    table = Table()
    table.add_column(head, overflow="fold")
    table.add_column("sites", justify="right")
    table.add_column("SQNR\nalone", justify="right")
    if several:
        table.add_column("worst at", overflow="fold", max_width=18)
    table.add_column("default\nwithout", justify="right")
    if timed:
        table.add_column(
            "saves µs" + ("\n(estimate)" if sensitivity.estimated else ""), justify="right"
        )
    for subject in subjects[:limit]:
        cells = [escape(subject.name), str(subject.sites), _alone(subject)]
        if several:
            cells.append(escape(subject.worst_alone[1]))
        cells.append("" if subject.without is None else _db(subject.without))
        if timed:
            cells.append(_saves(subject))
        table.add_row(*cells)
    return table


def _alone(subject: SubjectPart) -> str:
    if subject.error is not None:
        return "refused"
    return "follows" if subject.alone is None else _db(subject.alone)


def _saves(subject: SubjectPart) -> str:
    saved = subject.saves
    if saved is None:
        return ""
    if saved.interval is None:
        return f"{saved.microseconds:.1f}"
    low, high = saved.interval
    return f"{saved.microseconds:.1f}\n({low:.1f} to {high:.1f})"


def _db(noises: Noises) -> str:
    """SQNR in dB of the worst part."""
    from placer.accuracy.metrics import decibels  # noqa: PLC0415
    from placer.results.sensitivity import worst  # noqa: PLC0415

    noise, _ = worst(noises)
    return "exact" if noise == 0 else f"{decibels(noise):.1f}"
