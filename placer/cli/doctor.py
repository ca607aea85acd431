"""``placer doctor``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

import placer

EXAMPLES = ("placer doctor", "placer doctor --json")

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.engines.doctor import Diagnosis


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, GPUs, the engines that run here, and what the others lack."""
    found = placer.diagnose()
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
