"""``placer bench``: models measured in turn on one engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

import placer
from placer.cli.options import (
    CustomOps,
    Device,
    EngineOptions,
    OwnBase,
    Shapes,
    Threads,
    engine_options,
    json_option,
    option,
    shape_ranges_of,
    with_flags,
)
from placer.cli.terminal import output_console, table_of

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.engines.bench import Measured

EXAMPLES = ("placer bench model.onnx model.placer/optimized.onnx --engine onnxruntime",)


def bench_command(
    models: Annotated[
        list[Path],
        typer.Argument(help="ONNX models, or saved TensorRT engines, with the same inputs."),
    ],
    shape: Shapes = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    data: Annotated[
        str | None, option("data", help="Inputs as for optimize.", default="random ones")
    ] = None,
    engine: Annotated[str, option("engine", help="auto, or an engine of placer doctor.")] = "auto",
    gpu: Annotated[str | None, option("gpu")] = None,
    threads: Threads = 1,
    device: Device = None,
    base: OwnBase = None,
    engine_option: EngineOptions = None,
    rounds: Annotated[
        int, typer.Option(help="Interleaved rounds, 3 or more.", rich_help_panel="Engine")
    ] = 51,
    as_json: Annotated[bool, json_option()] = False,
) -> None:
    """Measure models in turn on one engine: medians, spread, and ratios to the first."""
    result = placer.bench(
        models,
        engine=engine,
        shapes=shape_ranges_of(shape or []),
        data=data,
        rounds=rounds,
        threads=threads,
        gpu=gpu,
        device=device,
        base=base,
        engine_options=engine_options(engine_option or []),
    )
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
        return
    console = output_console()
    reason = f": {escape(result.why)}" if result.why else ""
    console.print(f"{result.engine} {result.version}{reason}", soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {escape(with_flags(note))}", soft_wrap=True)
    console.print(_table(result.models, result.estimated))
    console.print(f"latency is {result.clock} on {escape(result.device)}")


def _table(measured: Sequence[Measured], estimated: bool) -> Table:
    kind = "estimated " if estimated else ""
    spread, interval = ("80% interval",) * 2 if estimated else ("p10 to p90", "95% interval")
    columns = ("model", f"{kind}latency, ms ({spread})", f"ratio ({interval})", "samples/s")
    table = table_of(*columns)
    for entry in measured:
        low, high = entry.ratio_interval
        table.add_row(
            escape(entry.model),
            f"{entry.median_ms:.3f} ({entry.p10_ms:.3f} to {entry.p90_ms:.3f})",
            f"{entry.ratio:.3f} ({low:.3f} to {high:.3f})",
            f"{entry.per_second:.1f}",
        )
    return table
