"""``placer doctor``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

import placer
from placer.cli.options import Device, EngineOptions, Threads, engine_options, option
from placer.cli.terminal import output_console, table_of
from placer.common.files import check_writable
from placer.errors import InputError, RunError

EXAMPLES = (
    "placer doctor",
    "placer doctor --json",
    "placer doctor --full --engine openvino --output checkup.json",
)
_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.checkup.run import Checkup
    from placer.checkup.step import Step
    from placer.engines.doctor import Diagnosis


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Build, run and check a small suite on an engine; takes minutes."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="With --full: write one file with all of it, to attach to an issue."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="With --output: over a file that no run of placer wrote."),
    ] = False,
    engine: Annotated[str, option("engine", help="With --full: the engine.")] = "auto",
    device: Device = None,
    threads: Threads = 1,
    engine_option: EngineOptions = None,
) -> None:
    """Show versions, GPUs, the engines that run here, and what the others lack.

    With --full, exit code 1 if a step of the suite failed.
    """
    if full:
        check_writable(output, replace=replace)  # Now, since minutes of work lie before it.
        _full(engine, device, threads, engine_option or [], output, as_json)
        return
    if output is not None:
        raise InputError("--output writes what --full finds; add --full, or take --json > FILE")
    diagnosis = placer.diagnose()
    if as_json:
        typer.echo(json.dumps(diagnosis.to_json(), indent=2))
        return
    _print(diagnosis)


def _full(
    engine: str,
    device: str | None,
    threads: int,
    extra: list[str],
    output: Path | None,
    as_json: bool,
) -> None:
    def tell(step: Step) -> None:
        typer.echo(f"· {step.name}: {step.verdict}", err=True)

    checkup = placer.check_up(
        engine,
        device=device,
        threads=threads,
        engine_options=engine_options(extra),
        on_step=tell,
    )
    if output is not None:
        checkup.write(output)
    if as_json:
        typer.echo(json.dumps(checkup.to_json(), indent=2))
    else:
        _print_steps(checkup)
    failed = [step.name for step in checkup.steps if step.verdict == "failed"]
    if failed:
        raise RunError(f"{len(failed)} of {len(checkup.steps)} steps failed: {', '.join(failed)}")


def _print_steps(checkup: Checkup) -> None:
    title = f"engine {checkup.engine} {checkup.version} on {checkup.device}, pack {checkup.pack}"
    table = table_of("step", "", "seconds", "", title=title)
    for step in checkup.steps:
        colour = _COLOURS[step.verdict]
        verdict = f"[{colour}]{step.verdict}[/]"
        table.add_row(step.name, verdict, f"{step.seconds:.1f}", escape(step.said))
    output_console().print(table)


def _print(diagnosis: Diagnosis) -> None:
    console = output_console()
    console.print(f"Python {diagnosis.python}, {diagnosis.system}")
    for package, version in diagnosis.packages.items():
        console.print(f"  {package} {version or '[dim]not installed[/]'}")
    _print_gpus(console, diagnosis)
    for engine in diagnosis.engines:
        mark = "[green]runs here[/]"
        if engine.reason is not None:
            mark = f"[yellow]does not run here[/]: {escape(engine.reason)}"
        console.print(f"engine {engine.name} {mark}", soft_wrap=True)


def _print_gpus(console: Console, diagnosis: Diagnosis) -> None:
    if not diagnosis.gpus:
        console.print("CUDA sees no GPU")
    for gpu in diagnosis.gpus:
        console.print(
            f"GPU {gpu.index}: {escape(gpu.name)}, compute capability {gpu.compute_capability}, "
            f"driver {gpu.driver}"
        )
