"""``placer apply``: a placement file on another file of its network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import placer
from placer.cli.options import CustomOps, Shapes, json_option, option, shapes_of, with_flags
from placer.cli.terminal import output_console, table_of_counts

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.apply.api import AppliedModel
    from placer.apply.transfer import BrokenGroup, Lost, Transferred
    from placer.results.parts import RecoveryPart

MAX_ROWS = 20
EXAMPLES = (
    "placer apply model.placer/placement.yaml retrained.onnx --data calibration.npz",
    "placer apply model.placer/placement.yaml exported-anew.onnx --strict",
)


def apply_command(
    placement: Annotated[Path, typer.Argument(help="placement.yaml of the other file.")],
    model: Annotated[Path, typer.Argument(help="The ONNX model to apply it to.")],
    shape: Shapes = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    data: Annotated[str | None, option("data")] = None,
    ranges: Annotated[
        str | None,
        option(
            "ranges",
            help="kept takes the file's, and --data for tensors without any; calibrated takes "
            "those of --data.",
            default="calibrated with --data, else kept",
            choices=("kept", "calibrated"),
        ),
    ] = None,
    calibration: Annotated[str, option("calibration")] = "auto",
    recover: Annotated[list[str] | None, option("recover")] = None,
    base: Annotated[
        str | None,
        option(
            "base",
            help="Type of what is not quantized: float16, bfloat16 or float.",
            default="the placement's, else float16 for TensorRT and float for others",
        ),
    ] = None,
    io_type: Annotated[str, option("io_type")] = "keep",
    pack: Annotated[
        str | None,
        option(
            "pack",
            help="Rule pack that names sites the file says nothing of.",
            default="the file's",
        ),
    ] = None,
    weight_range: Annotated[
        str,
        option(
            "weight_range",
            help="Integers that weights may have: full, reduced (see placer optimize), or auto, "
            "which is the placement's.",
        ),
    ] = "auto",
    output: Annotated[Path | None, option("output", "-o", default="MODEL.applied")] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse the model if an edge is not found in it.",
            rich_help_panel="Output",
        ),
    ] = False,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Apply the placement even if the model seems to be another network.",
            rich_help_panel="Output",
        ),
    ] = False,
    cache: Annotated[bool, option("cache", help="Keep calibration statistics on disk.")] = True,
    as_json: Annotated[bool, json_option("the report")] = False,
) -> None:
    """Apply a placement to a retrained or re-exported model, whatever its nodes are called.

    Writes optimized.onnx, placement.yaml and apply.json, and lists what no longer matches.
    Exit codes: 0 done, 1 the run failed, 2 wrong input, fewer than half of the edges found, or not
    all with --strict.
    """
    # Texts as they were typed, which the library checks.
    given: dict[str, Any] = {
        "output": output,
        "shapes": shapes_of(shape or []),
        "data": data,
        "ranges": ranges,
        "calibration": calibration,
        "recover": recover or [],
        "base": base,
        "io_type": io_type,
        "pack": pack,
        "weight_range": weight_range,
        "strict": strict,
        "partial": partial,
        "cache": cache,
    }
    outcome = placer.apply_placement(placement, model, **given)
    if as_json:
        typer.echo(json.dumps(outcome.to_json(), indent=2))
    else:
        _print(outcome)
        typer.echo(f"wrote {outcome.folder}")


def _print(outcome: AppliedModel) -> None:
    console = output_console()
    transferred, scales = outcome.applied, outcome.scales
    named = sum(transfer.by_name for transfer in transferred.found)
    same = {True: "the same structure", False: "another structure", None: "no structure in file"}
    title = f"{outcome.file.path.name} on {outcome.model.path.name}"
    counts = (
        ("edges found by name", named),
        ("edges found by structure", len(transferred.found) - named),
        ("of them in another operator", len(_other_operators(transferred))),
        ("edges not found", len(transferred.lost)),
        ("scale groups broken", len(transferred.broken)),
        (f"new nodes ({same[transferred.is_exact]})", len(transferred.new_nodes)),
        ("sites of new nodes, left float", len(outcome.new_sites)),
    )
    console.print(table_of_counts(title, counts))
    sqnr = "" if scales.sqnr is None else f", SQNR {scales.sqnr:.1f} dB on calibration data"
    lines = [f"ranges: {scales.method}{sqnr}"]
    if outcome.sqnr is not None:
        kept = f"keep {outcome.sqnr:.1f} dB of" if outcome.sqnr < inf else "equal"
        lines.append(f"outputs {kept} the given model's")
    if outcome.recovery is not None:
        lines.append(_recovery_line(outcome.recovery))
    lines += _shown([f"another operator: {line}" for line in _other_operators(transferred)])
    lines += _shown([_lost_line(lost) for lost in transferred.lost])
    lines += _shown([_broken_line(group) for group in transferred.broken])
    lines += _shown([f"new site: {site}" for site in outcome.new_sites])
    for line in lines:
        console.print(f"- {line}", soft_wrap=True, markup=False)
    for warning in outcome.warnings:
        console.print(f"[yellow]warning:[/] {escape(with_flags(warning))}", soft_wrap=True)


def _recovery_line(part: RecoveryPart) -> str:
    if not part.kept:
        return f"nothing recovered: {part.reason}"
    kept = [step for step in part.steps if step.kept]
    (before, _), (_, after) = (kept[i].held_back_sqnr or (None, None) for i in (0, -1))
    gain = "" if before is None or after is None else f", {before:.1f} to {after:.1f} dB"
    return f"recovered by {', '.join(step.step for step in kept)}{gain} on samples held back"


def _other_operators(transferred: Transferred) -> list[str]:
    return [
        f"{transfer.edge} is {transfer.operators[1]}, was {transfer.operators[0]}"
        for transfer in transferred.found
        if transfer.operators is not None
    ]


def _shown(lines: Sequence[str]) -> list[str]:
    hidden = len(lines) - MAX_ROWS
    return [*lines[:MAX_ROWS], *([f"{hidden} more with --json"] if hidden > 0 else [])]


def _lost_line(lost: Lost) -> str:
    operator = f" ({lost.operator})" if lost.operator else ""
    near = f"; nearest: {', '.join(lost.candidates)}" if lost.candidates else ""
    return f"not found: {lost.edge}{operator}: {lost.reason}{near}"


def _broken_line(group: BrokenGroup) -> str:
    kept, lost = (", ".join(map(str, edges)) for edges in (group.kept, group.lost))
    return f"scale group broken: {kept} no longer share a scale with {lost}"
