"""``placer fit``: layer costs measured on an engine, in a file that ``--gpu`` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

import placer
from placer.cli.options import (
    Device,
    EngineOptions,
    PlainReplace,
    Threads,
    engine_options,
    option,
)
from placer.cli.terminal import output_console, table_of
from placer.common.durations import parse_duration

EXAMPLES = (
    "placer fit --engine openvino --output fit.json",
    "placer explain model.onnx --gpu fit.json",
)

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.prediction.times.fitted import Fit


def fit_command(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The file to write; measured builds are kept beside it."
        ),
    ],
    engine: Annotated[str, option("engine", help="The engine to measure on.")] = "auto",
    models: Annotated[
        Path | None,
        typer.Option(
            help="A folder of ONNX models to measure too.", rich_help_panel="Model and data"
        ),
    ] = None,
    device: Device = None,
    threads: Threads = 1,
    base: Annotated[str | None, option("base")] = None,
    engine_option: EngineOptions = None,
    networks: Annotated[
        int, typer.Option(help="Networks to measure, a fifth of known architectures.")
    ] = 280,
    placements: Annotated[
        int, typer.Option(help="Random placements of each, besides float and the default.")
    ] = 4,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds, 3 or more.")] = 15,
    timeout: Annotated[
        str | None,
        typer.Option(help="Time after which no further network is begun, e.g. 30m."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Write the names of given models to the file.")
    ] = False,
    replace: PlainReplace = False,
) -> None:
    """Measure what layers cost on an engine: a file for --gpu, or to send to the maintainers.

    The file holds no weights. After an interruption, the same command goes on where it was.
    """

    def tell(sentence: str) -> None:
        typer.echo(f"· {sentence}", err=True)

    fit = placer.fit(
        engine,
        output,
        models=models,
        threads=threads,
        device=device,
        base=base,
        engine_options=engine_options(engine_option or []),
        networks=networks,
        placements=placements,
        rounds=rounds,
        names=names,
        replace=replace,
        timeout=None if timeout is None else parse_duration(timeout, "--timeout"),
        on_network=tell,
    )
    _print(output_console(), fit, output)


def _print(console: Console, fit: Fit, output: Path) -> None:
    columns = ("rule", "predicted", "built", "of these types", "most often otherwise")
    table = table_of(*columns, title="predicted layers and those that were built")
    for rule in fit.rules:
        worst = f"{rule.otherwise[0][1]}: {rule.otherwise[0][0]}" if rule.otherwise else ""
        counts = map(str, (rule.predicted, rule.built, rule.same_types))
        table.add_row(escape(rule.rule), *counts, escape(worst))
    console.print(table)
    errors = fit.errors
    console.print(
        f"{errors.networks} networks, {errors.builds} builds, each network estimated by a fit "
        f"without its kind: 80% of latencies within {errors.latency:.0%}; ratios of two builds "
        f"within {errors.ratio_median:.0%} (half), {errors.ratio:.0%} (80%), "
        f"{errors.ratio_95:.0%} (95%); {_ordered(fit)}",
        soft_wrap=True,
    )
    for remark in fit.remarks:
        console.print(f"note: {escape(remark)}", soft_wrap=True)
    console.print(f"wrote {escape(str(output))}: costs on {escape(fit.name)}")


def _ordered(fit: Fit) -> str:
    errors = fit.errors
    if errors.ordered is None:
        return "no two builds differ by more than noise"
    return (
        f"{errors.ordered:.1%} in the right order of the {errors.pairs_apart} pairs that differ "
        "by more than noise"
    )
