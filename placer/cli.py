"""The command line: a thin layer over the library."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from placer import __version__
from placer.calibration import default_cache_dir
from placer.cli_apply import apply_command
from placer.cli_bench import bench_command, doctor_command
from placer.cli_check import check_command
from placer.cli_explain import explain_command
from placer.cli_import import import_command
from placer.cli_options import SHAPE_HELP, engine_options, shape_ranges_of
from placer.cli_plan import plan_app
from placer.cli_rules import rules_app
from placer.cli_worker import worker_command
from placer.console import ConsoleObserver, QuietObserver, print_result
from placer.errors import InputError, PlacerError
from placer.precision import InputOutputTypes
from placer.run import Request, optimize

app = typer.Typer(
    help="Decide where Q/DQ pairs go in an ONNX model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(plan_app, name="plan")
app.add_typer(rules_app, name="rules")
app.command("apply")(apply_command)
app.command("bench")(bench_command)
app.command("check")(check_command)
app.command("doctor")(doctor_command)
app.command("explain")(explain_command)
app.command("import")(import_command)
app.command("worker")(worker_command)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"placer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that come before the command."""


@app.command("optimize")
def optimize_command(
    model: Annotated[Path, typer.Argument(help="The ONNX model: float, or quantized already.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder [default: MODEL.placer].")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Calibration data: .npz, .npy, a folder of them, or module:function."),
    ] = None,
    eval_data: Annotated[
        str | None,
        typer.Option(help="Data for the gates [default: a disjoint half of --data]."),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition, e.g. sqnr>=15, cosine>=0.99@logits, top1_drop<=0.01 or "
            "module:function>=0.4 [default: top1_drop<=0.01 with labels, else sqnr>=15]."
        ),
    ] = None,
    beat: Annotated[
        list[str] | None,
        typer.Option(
            help="Gate on latency: not slower than the float model (float), or than the INT8 "
            "engine that TensorRT 10 makes of it by itself (implicit)."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="auto, onnxruntime, fusion-model or a plug-in's name.")
    ] = "auto",
    gpu: Annotated[
        str | None, typer.Option(help="GPU of fusion-model, e.g. a100, or a YAML file.")
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            help="Type of what is not quantized, for GPU engines: float16, bfloat16 or float."
        ),
    ] = "float16",
    io_type: Annotated[
        InputOutputTypes,
        typer.Option(help="With --base: keep the types of inputs and outputs, or convert them."),
    ] = "keep",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the engine.")] = 1,
    build_for: Annotated[
        str | None,
        typer.Option(help="Build each candidate with TensorRT-RTX too, e.g. sm89 (fusion-model)."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device that the engine runs on [default: its first].")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="Devices of this machine to search on at once, e.g. 0,1,2,3.")
    ] = None,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE for the engine, any number of times (plug-ins)."),
    ] = None,
    pack: Annotated[
        str | None, typer.Option(help="Rule pack, a name or folder [default: the engine's].")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Number format beside the pack's own, e.g. fp8 (tensorrt).")
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="auto, minmax, percentile, entropy or mse.")
    ] = "auto",
    ranges: Annotated[
        str,
        typer.Option(
            help="Of a model that is quantized already: imported keeps its scales and calibrates "
            "other tensors only, calibrated keeps none."
        ),
    ] = "imported",
    preset: Annotated[str, typer.Option(help="Effort: quick, default or thorough.")] = "default",
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of trials [default: the preset's].")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="Time for the search, e.g. 90s, 10m or 1h.")
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="surrogate, tpe, random or exhaustive.")
    ] = "surrogate",
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(
            help="Begin with a previous result (folder or result.json), a placement.yaml or a Q/DQ "
            "model; any number of times."
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="URL of an Optuna storage that workers share, e.g. postgresql://..."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study in --storage [default: the model's].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything but measured times.")] = 0,
    cache: Annotated[bool, typer.Option(help="Keep calibration statistics on disk.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json.")] = False,
    debug: Annotated[  # noqa: ARG001 - read in main, where errors are shown
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,
) -> None:
    """Find the fastest Q/DQ placement that meets the gates.

    Running the same command again resumes a killed run. Exit codes: 0 done, 1 the run failed,
    2 wrong input, 3 no candidate meets the gates.
    """
    request = Request(
        model=model,
        output=output,
        shape_ranges=shape_ranges_of(shape or []),
        data=data,
        evaluation_data=eval_data,
        engine=engine,
        threads=threads,
        gpu=gpu,
        base=base,
        io_type=io_type,
        build_for=build_for,
        device=device,
        devices=tuple(part.strip() for part in devices.split(",")) if devices else (),
        engine_options=engine_options(engine_option or []),
        pack=pack,
        scheme=scheme,
        calibration=calibration,
        ranges=ranges,
        gates=tuple(gate or ()),
        beats=tuple(beat or ()),
        preset=preset,
        budget=budget,
        timeout=None if timeout is None else parse_duration(timeout),
        seed=seed,
        sampler=sampler,
        warm_starts=tuple(warm_start or ()),
        storage=storage,
        study=study,
        cache_dir=default_cache_dir() if cache else None,
    )
    console = Console()
    if quiet or as_json:
        result = optimize(request, QuietObserver())
        if as_json:
            typer.echo(result.model_dump_json(indent=2))
        return
    observer = ConsoleObserver(console)
    try:
        result = optimize(request, observer)
    finally:
        observer.close()
    print_result(console, result, str(request.output_folder))


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m`` or ``1.5h``; InputError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise InputError(f"--timeout '{text}' is no duration; write e.g. 90s, 10m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    debug = "--debug" in sys.argv
    try:
        app()
    except PlacerError as error:
        if debug:
            traceback.print_exc()
        print(f"placer: error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("placer: interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(1) from None
