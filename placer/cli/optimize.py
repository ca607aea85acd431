"""``placer optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import placer
from placer.cli.console import ConsoleObserver, print_result
from placer.cli.options import (
    Device,
    EngineOptions,
    Fix,
    Shapes,
    Threads,
    engine_options,
    fixes_of,
    option,
    shape_ranges_of,
)
from placer.cli.project import Profiles, ProjectFile, with_project
from placer.cli.terminal import output_console
from placer.common.durations import parse_duration
from placer.optimizer.options.request import Request

EXAMPLES = (
    "placer optimize model.onnx --data calibration.npz --gate 'sqnr>=20'",
    "placer optimize model.onnx --data images/ --engine fusion-model --gpu l4 --timeout 10m",
    "placer optimize --profile thorough",
)


def optimize_command(
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
    custom_ops: Annotated[list[Path] | None, option("custom_ops")] = None,
    data: Annotated[str | None, option("data")] = Request.data,
    eval_data: Annotated[str | None, option("eval_data")] = Request.evaluation_data,
    gate: Annotated[list[str] | None, option("gates")] = None,
    beat: Annotated[list[str] | None, option("beats")] = None,
    calibration: Annotated[str, option("calibration")] = Request.calibration,
    recover: Annotated[list[str] | None, option("recover")] = None,
    ranges: Annotated[str, option("ranges")] = Request.ranges,
    override: Annotated[list[str] | None, option("overrides")] = None,
    engine: Annotated[str, option("engine")] = Request.engine,
    gpu: Annotated[str | None, option("gpu")] = Request.gpu,
    build_for: Annotated[str | None, option("build_for")] = Request.build_for,
    threads: Threads = Request.threads,
    objective: Annotated[str, option("objective")] = Request.objective,
    device: Device = Request.device,
    devices: Annotated[str | None, option("devices")] = None,
    engine_option: EngineOptions = None,
    pack: Annotated[str | None, option("pack")] = Request.pack,
    scheme: Annotated[str | None, option("scheme")] = Request.scheme,
    weight_range: Annotated[str, option("weight_range")] = Request.weight_range,
    base: Annotated[str | None, option("base")] = Request.base,
    io_type: Annotated[str, option("io_type")] = Request.io_type,
    exclude: Annotated[list[str] | None, option("exclude")] = None,
    only: Annotated[list[str] | None, option("only")] = None,
    force: Annotated[list[str] | None, option("force")] = None,
    preset: Annotated[str, option("preset")] = Request.preset,
    budget: Annotated[int | None, option("budget")] = Request.budget,
    timeout: Annotated[str | None, option("timeout")] = None,
    sampler: Annotated[str, option("sampler")] = Request.sampler,
    front: Annotated[int | None, option("front")] = Request.front,
    warm_start: Annotated[list[Path] | None, option("warm_starts")] = None,
    storage: Annotated[str | None, option("storage")] = Request.storage,
    study: Annotated[str | None, option("study")] = Request.study,
    seed: Annotated[int, option("seed")] = Request.seed,
    output: Annotated[Path | None, option("output", "-o")] = Request.output,
    export: Annotated[str | None, option("export")] = Request.export,
    cache: Annotated[bool, option("cache")] = True,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print errors only.", rich_help_panel="Output"),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result.json.", rich_help_panel="Output")
    ] = False,
    debug: Annotated[  # noqa: ARG001 - read in main, where errors are shown
        bool, typer.Option("--debug", help="Show tracebacks.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Find the fastest Q/DQ placement that meets the gates.

    Running the same command again resumes a killed run. Exit codes: 0 done, 1 the run failed or
    its measurements are inconclusive, 2 wrong input, 3 no candidate meets the gates, 130 stopped by
    Ctrl-C.
    """
    # Texts as they were typed: the values are checked with those of every other way in.
    several = {
        "custom_ops": custom_ops,
        "gates": gate,
        "beats": beat,
        "recover": recover,
        "overrides": override,
        "exclude": exclude,
        "only": only,
        "force": force,
        "warm_starts": warm_start,
    }
    typed: dict[str, Any] = {
        **{keyword: values or [] for keyword, values in several.items()},
        "shapes": shape_ranges_of(shape or []),
        "fix": fixes_of(fix or []),
        "data": data,
        "eval_data": eval_data,
        "calibration": calibration,
        "ranges": ranges,
        "engine": engine,
        "gpu": gpu,
        "build_for": build_for,
        "threads": threads,
        "objective": objective,
        "device": device,
        "devices": [part.strip() for part in devices.split(",")] if devices else [],
        "engine_options": engine_options(engine_option or []),
        "pack": pack,
        "scheme": scheme,
        "weight_range": weight_range,
        "base": base,
        "io_type": io_type,
        "preset": preset,
        "budget": budget,
        "timeout": None if timeout is None else parse_duration(timeout, "--timeout"),
        "sampler": sampler,
        "front": front,
        "storage": storage,
        "study": study,
        "seed": seed,
        "output": output,
        "export": export,
        "cache": cache,
    }
    asked = with_project(context, model, typed, project, profile or [])
    console = output_console()
    observer = None if quiet or as_json else ConsoleObserver(console)
    if observer is not None and asked.origin:
        observer.stage(asked.origin)
    try:
        result = placer.optimize(asked.model, **asked.given, observer=observer)
    finally:
        if observer is not None:
            observer.close()
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    elif observer is not None:
        print_result(console, result, str(result.folder))
