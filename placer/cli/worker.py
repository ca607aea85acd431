"""``placer worker`` joins a study that ``placer optimize --storage`` began."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import placer
from placer.cli.console import ConsoleObserver
from placer.cli.options import Device, option
from placer.cli.terminal import output_console
from placer.common.durations import parse_duration

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.search.records import TrialRecord

EXAMPLES = ("placer worker --study digits --storage postgresql://user@host/database",)


def worker_command(
    study: Annotated[
        str, option("study", help="Name of the study, as placer optimize says it.", default=None)
    ],
    storage: Annotated[str, option("storage")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="The ONNX model here.",
            show_default="the study's path",
            rich_help_panel="Model and data",
        ),
    ] = None,
    data: Annotated[
        str | None, option("data", help="Calibration data here.", default="the study's")
    ] = None,
    eval_data: Annotated[
        str | None, option("eval_data", help="Data for the gates here.", default="the study's")
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option(
            help="A function that the study names, as module:function, and that may run here; any "
            "number of times.",
            rich_help_panel="Model and data",
        ),
    ] = None,
    custom_ops: Annotated[list[Path] | None, option("custom_ops")] = None,
    device: Device = None,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long to wait for a study that has not begun, e.g. 30m.",
            show_default="not at all",
            rich_help_panel="Search",
        ),
    ] = None,
    cache: Annotated[bool, option("cache", help="Keep times of layers on disk.")] = True,
    debug: Annotated[  # noqa: ARG001 - read in main, where errors are shown
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,
) -> None:
    """Run trials of a shared study until none is left.

    The model, its data, the pack, the engine and its device must be those of the study. Run the
    command of placer optimize again afterwards: it writes the result.
    """
    console, start = output_console(), time.monotonic()
    observer = ConsoleObserver(console)
    try:
        done = placer.work(
            study,
            storage,
            model=model,
            data=data,
            eval_data=eval_data,
            functions=function or [],
            custom_ops=custom_ops or [],
            device=device,
            cache=cache,
            wait=0.0 if wait is None else parse_duration(wait, "--wait"),
            observer=observer,
        )
    finally:
        observer.close()
    seconds = time.monotonic() - start
    console.print(
        f"worked {seconds:.0f} s: {_counts(done.own)}; the study holds {done.trials} trials, "
        f"and ended here by: {done.stopped}",
        soft_wrap=True,
    )
    if done.stopped == "interrupted":
        raise KeyboardInterrupt  # It is told, and its exit code is that of every command.


def _counts(records: Sequence[TrialRecord]) -> str:
    """E.g. ``5 trials (3 measured, 1 failed, 1 not measured)``."""
    kinds = Counter(_kind(record) for record in records)
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{len(records)} trial{'' if len(records) == 1 else 's'}" + (parts and f" ({parts})")


def _kind(record: TrialRecord) -> str:
    if record.error is not None:
        return "failed"
    return "not measured" if record.ratio is None else "measured"
