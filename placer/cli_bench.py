"""``placer bench`` measures models on an engine; ``placer doctor`` says which engines run here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from placer.cli_options import engine_options, shapes_of
from placer.data import load_dataset, synthetic_dataset
from placer.doctor import Diagnosis, diagnose
from placer.engines import select_engine
from placer.engines.base import Engine, Tensors
from placer.model import Model, load_as_is
from placer.search.race import paired_ratio


@dataclass(frozen=True)
class Measured:
    """One model's latency in milliseconds and its ratio to the first model's."""

    model: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float
    ratio_interval: tuple[float, float]
    per_second: float


def bench_command(
    models: Annotated[list[Path], typer.Argument(help="ONNX models with the same inputs.")],
    engine: Annotated[str, typer.Option(help="auto, or an engine of placer doctor.")] = "auto",
    shape: Annotated[
        list[str] | None, typer.Option(help="Input shape, e.g. image=1x3x320x320.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Inputs as for optimize [default: random ones].")
    ] = None,
    rounds: Annotated[int, typer.Option(min=3, help="Interleaved rounds.")] = 51,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the engine.")] = 1,
    gpu: Annotated[str | None, typer.Option(help="GPU of fusion-model.")] = None,
    device: Annotated[str | None, typer.Option(help="Device that the engine runs on.")] = None,
    engine_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the engine, any number of times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure models in turn on one engine: medians, spread, and ratios to the first."""
    shapes = shapes_of(shape or [])
    loaded = [load_as_is(path, shapes) for path in models]
    chosen, _, why = select_engine(
        engine,
        threads=threads,
        pack=None,
        gpu=gpu,
        base="float16",
        shapes=shapes,
        device=device,
        extra=engine_options(engine_option or []),
    )
    measured = measure_models(chosen, loaded, _inputs(loaded[0], data), rounds)
    about = {
        "engine": chosen.name,
        "version": chosen.version,
        "device": chosen.device,
        "clock": chosen.clock,
        "estimated": chosen.estimated,
    }
    if as_json:
        typer.echo(json.dumps({**about, "models": [asdict(m) for m in measured]}, indent=2))
        return
    console = Console()
    console.print(f"{chosen.name} {chosen.version}: {escape(why)}", highlight=False, soft_wrap=True)
    console.print(_table(measured, chosen.estimated))
    console.print(f"latency is {chosen.clock} on {escape(chosen.device)}", highlight=False)


def measure_models(
    engine: Engine, models: list[Model], inputs: Tensors, rounds: int
) -> list[Measured]:
    """Latencies of ``models`` in interleaved rounds; raises RunError if the engine refuses one."""
    compiled = [engine.compile(model.proto, model.base_dir) for model in models]
    seconds = engine.measure(compiled, inputs, rounds)
    return [
        _measured(model, seconds[:, column], seconds[:, 0], inputs)
        for column, model in enumerate(models)
    ]


def _measured(model: Model, seconds: np.ndarray, baseline: np.ndarray, inputs: Tensors) -> Measured:
    low, median, high = np.percentile(seconds * 1e3, [10, 50, 90])
    ratio = paired_ratio(seconds, baseline)
    batch = next((value.shape[0] for value in inputs.values() if value.ndim), 1)
    return Measured(
        model=str(model.path),
        median_ms=float(median),
        p10_ms=float(low),
        p90_ms=float(high),
        ratio=ratio.median,
        ratio_interval=(ratio.low, ratio.high),
        per_second=batch * 1e3 / float(median),
    )


def _inputs(model: Model, data: str | None) -> Tensors:
    dataset = load_dataset(data, model) if data else synthetic_dataset(model, 1, 0)
    return next(iter(dataset)).inputs


def _table(measured: list[Measured], estimated: bool) -> Table:
    kind = "estimated " if estimated else ""
    table = Table()
    columns = ("model", f"{kind}latency, ms (p10 to p90)", "ratio (95% interval)", "samples/s")
    for column in columns:
        table.add_column(column, overflow="fold")
    for entry in measured:
        low, high = entry.ratio_interval
        table.add_row(
            escape(entry.model),
            f"{entry.median_ms:.3f} ({entry.p10_ms:.3f} to {entry.p90_ms:.3f})",
            f"{entry.ratio:.3f} ({low:.3f} to {high:.3f})",
            f"{entry.per_second:.1f}",
        )
    return table


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, GPUs, the engines that run here, and what the others lack."""
    found = diagnose()
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    console = Console()
    console.print(f"Python {found.python}, {found.system}", highlight=False)
    for package, version in found.packages.items():
        console.print(f"  {package} {version or '[dim]not installed[/]'}", highlight=False)
    _print_gpus(console, found)
    for engine in found.engines:
        mark = "[green]runs here[/]" if engine.reason is None else "[yellow]does not run here[/]:"
        console.print(
            f"engine {engine.name} {mark} {escape(engine.reason or '')}",
            highlight=False,
            soft_wrap=True,
        )


def _print_gpus(console: Console, found: Diagnosis) -> None:
    if not found.gpus:
        console.print("CUDA sees no GPU", highlight=False)
    for gpu in found.gpus:
        console.print(
            f"GPU {gpu.index}: {escape(gpu.name)}, compute capability {gpu.compute_capability}, "
            f"driver {gpu.driver}",
            highlight=False,
        )
