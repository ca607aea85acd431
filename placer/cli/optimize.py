"""``placer optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from placer.cli.console import ConsoleObserver, print_result
from placer.cli.options import SHAPE_HELP, engine_options, shape_ranges_of
from placer.common.durations import parse_duration
from placer.optimizer.api import optimize
from placer.optimizer.request import LEAST_FRONT, Request
from placer.qdq.precision import InputOutputTypes


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
        str, typer.Option(help="auto, onnxruntime, openvino, fusion-model or a plug-in's name.")
    ] = Request.engine,
    gpu: Annotated[
        str | None, typer.Option(help="GPU of fusion-model, e.g. a100, or a YAML file.")
    ] = Request.gpu,
    base: Annotated[
        str | None,
        typer.Option(
            help="Type of what is not quantized: float16, bfloat16 or float for GPU engines "
            "[default: float16], float or bfloat16 for openvino [default: float]."
        ),
    ] = Request.base,
    io_type: Annotated[
        InputOutputTypes,
        typer.Option(help="With --base: keep the types of inputs and outputs, or convert them."),
    ] = Request.io_type,
    threads: Annotated[
        int, typer.Option(min=1, help="CPU threads of the engine.")
    ] = Request.threads,
    build_for: Annotated[
        str | None,
        typer.Option(help="Build each candidate with TensorRT-RTX too, e.g. sm89 (fusion-model)."),
    ] = Request.build_for,
    device: Annotated[
        str | None, typer.Option(help="Device that the engine runs on [default: its first].")
    ] = Request.device,
    devices: Annotated[
        str | None, typer.Option(help="Devices of this machine to search on at once, e.g. 0,1,2,3.")
    ] = None,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE for the engine, any number of times (plug-ins)."),
    ] = None,
    pack: Annotated[
        str | None, typer.Option(help="Rule pack, a name or folder [default: the engine's].")
    ] = Request.pack,
    scheme: Annotated[
        str | None, typer.Option(help="Number format beside the pack's own, e.g. fp8 (tensorrt).")
    ] = Request.scheme,
    calibration: Annotated[
        str, typer.Option(help="auto, minmax, percentile, entropy or mse.")
    ] = Request.calibration,
    ranges: Annotated[
        str,
        typer.Option(
            help="Of a model that is quantized already: imported keeps its scales and calibrates "
            "other tensors only, calibrated keeps none."
        ),
    ] = Request.ranges,
    preset: Annotated[
        str, typer.Option(help="Effort: quick, default or thorough.")
    ] = Request.preset,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of trials [default: the preset's].")
    ] = Request.budget,
    timeout: Annotated[
        str | None, typer.Option(help="Time for the search, e.g. 90s, 10m or 1h.")
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="surrogate, tpe, random or exhaustive.")
    ] = Request.sampler,
    front: Annotated[
        int | None,
        typer.Option(
            min=LEAST_FRONT,
            help="Points of the latency-accuracy front to find [default: the fastest only].",
        ),
    ] = Request.front,
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
    ] = Request.storage,
    study: Annotated[
        str | None, typer.Option(help="Name of the study in --storage [default: the model's].")
    ] = Request.study,
    seed: Annotated[
        int, typer.Option(min=0, help="Fixes everything but measured times.")
    ] = Request.seed,
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
    console = Console()
    observer = None if quiet or as_json else ConsoleObserver(console)
    try:
        result = optimize(
            model,
            output=output,
            shapes=shape_ranges_of(shape or []),
            data=data,
            eval_data=eval_data,
            engine=engine,
            threads=threads,
            gpu=gpu,
            base=base,
            io_type=io_type,
            build_for=build_for,
            device=device,
            devices=[part.strip() for part in devices.split(",")] if devices else [],
            engine_options=engine_options(engine_option or []),
            pack=pack,
            scheme=scheme,
            calibration=calibration,
            ranges=ranges,
            gates=gate or [],
            beats=beat or [],
            preset=preset,
            budget=budget,
            timeout=None if timeout is None else parse_duration(timeout),
            seed=seed,
            sampler=sampler,
            front=front,
            warm_starts=warm_start or [],
            storage=storage,
            study=study,
            cache=cache,
            observer=observer,
        )
    finally:
        if observer is not None:
            observer.close()
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    elif observer is not None:
        print_result(console, result, str(result.folder))
