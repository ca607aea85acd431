"""``placer apply``: a placement file on another file of its network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from placer.apply.apply import (
    AUTO,
    Applied,
    BrokenGroup,
    Lost,
    Scales,
    apply_placement,
    calibrated_scales,
    kept_scales,
    quantized_model,
)
from placer.calibration.collect import default_cache_dir
from placer.calibration.dataset import load_dataset
from placer.cli.options import SHAPE_HELP, shapes_of
from placer.common.files import make_output_folder, write_text
from placer.errors import InputError
from placer.model import Model, load_model, save_model
from placer.optimizer.presets import load_preset
from placer.qdq.precision import FLOAT8_OPSET, InputOutputTypes, parse_base, with_opset
from placer.quantization.placement_file import PlacementFile, placement_text, read_placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites

MAX_ROWS = 20
RANGES = ("kept", "calibrated")


@dataclass(frozen=True, eq=False)
class _Outcome:
    """All that is reported. ``new_sites``: where rules could quantize nodes that are new."""

    file: PlacementFile
    model: Model
    applied: Applied
    scales: Scales
    new_sites: tuple[str, ...]
    warnings: tuple[str, ...]


def apply_command(
    placement: Annotated[Path, typer.Argument(help="placement.yaml of the other file.")],
    model: Annotated[Path, typer.Argument(help="The ONNX model to apply it to.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder [default: MODEL.applied].")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Calibration data: .npz, .npy, a folder of them, or module:function."),
    ] = None,
    ranges: Annotated[
        str | None,
        typer.Option(
            help="kept takes the file's, calibrated those of --data [default: calibrated with "
            "--data, else kept]."
        ),
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="auto, minmax, percentile, entropy or mse.")
    ] = AUTO,
    base: Annotated[
        str | None,
        typer.Option(
            help="Type of what is not quantized: float16, bfloat16 or float [default: float for "
            "schemes with int32 biases (ONNX Runtime), else float16]."
        ),
    ] = None,
    io_type: Annotated[
        InputOutputTypes,
        typer.Option(help="With --base: keep the types of inputs and outputs, or convert them."),
    ] = "keep",
    pack: Annotated[
        str | None,
        typer.Option(help="Rule pack that names sites the file says nothing of [default: its]."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse the model if an edge is not found in it.")
    ] = False,
    cache: Annotated[bool, typer.Option(help="Keep calibration statistics on disk.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Apply a placement to a retrained or re-exported model, whatever its nodes are called.

    Writes optimized.onnx, placement.yaml and apply.json, and lists what no longer matches.
    Exit codes: 0 done, 1 the run failed, 2 wrong input, nothing matches, or not all with --strict.
    """
    if ranges not in (None, *RANGES):
        raise InputError(f"unknown --ranges '{ranges}'; use one of: {', '.join(RANGES)}")
    if ranges == "calibrated" and data is None:
        raise InputError("--ranges calibrated needs data; give --data")
    if ranges == "kept" and data is not None:
        raise InputError("--ranges kept uses no data; give either it or --data")
    folder = output or Path(f"{model.stem}.applied")
    file = read_placement(placement)
    scheme = file.scheme
    chosen = parse_base(base or ("float" if scheme.bias == "int32" else "float16"))
    loaded = load_model(model, shapes_of(shape or []))
    if scheme.is_float8:
        loaded = with_opset(loaded, FLOAT8_OPSET)
    applied = apply_placement(file, loaded)
    if strict and applied.lost:
        first = applied.lost[0]
        raise InputError(
            f"{len(applied.lost)} edges of {placement} are not found in {model}, the first: "
            f"{first.edge} ({first.reason}); leave out --strict to apply the others"
        )
    notes: list[str] = []
    if loaded.imported is not None:
        notes.append(f"{model} is quantized already; the placement replaces its pairs")
    scales = _scales(applied, file, loaded, data, calibration, cache, notes)
    new_sites = _new_sites(applied, loaded, pack, file, notes)
    proto = quantized_model(loaded, applied.placement, scales, scheme, chosen, io_type)
    outcome = _Outcome(file, loaded, applied, scales, new_sites, tuple(notes))
    make_output_folder(folder)
    save_model(proto, loaded.base_dir, folder / "optimized.onnx")
    write_text(folder / "placement.yaml", _placement_text(outcome))
    report = json.dumps(_document(outcome), indent=2)
    write_text(folder / "apply.json", report + "\n")
    if as_json:
        typer.echo(report)
    else:
        _print(outcome)
        typer.echo(f"wrote {folder}")


def _scales(
    applied: Applied,
    file: PlacementFile,
    model: Model,
    data: str | None,
    method: str,
    cache: bool,
    notes: list[str],
) -> Scales:
    if data is None:
        if model.fingerprint != file.model:
            notes.append(
                "ranges are of the weights that the placement was made with; "
                "give --data to calibrate this model"
            )
        if not file.calibrated:
            notes.append("ranges of the placement rest on random inputs; give --data")
        return kept_scales(applied, file, model)
    dataset = load_dataset(data, model).limit(load_preset("default").calibration_samples)
    notes += dataset.notes
    folder = default_cache_dir() if cache else None
    return calibrated_scales(applied, model, file.scheme, dataset, method, folder)


def _new_sites(
    applied: Applied, model: Model, pack: str | None, file: PlacementFile, notes: list[str]
) -> tuple[str, ...]:
    if not applied.new_nodes:
        return ()
    try:
        rules = load_pack(pack or file.pack.split()[0]).rules
    except InputError as error:
        if pack is not None:
            raise
        notes.append(f"sites of new nodes are not listed: {error}")
        return ()
    new = set(applied.new_nodes)
    return tuple(s.name for s in find_sites(model.graph, rules) if s.match.anchor.name in new)


def _placement_text(outcome: _Outcome) -> str:
    return placement_text(
        outcome.applied.placement,
        outcome.scales.ranges,
        outcome.file.scheme,
        model=outcome.model.fingerprint,
        pack=outcome.file.pack,
        calibrated=outcome.scales.calibrated,
        graph=outcome.model.graph,
    )


def _document(outcome: _Outcome) -> dict[str, Any]:
    applied, scales = outcome.applied, outcome.scales
    return {
        "placement_file": str(outcome.file.path),
        "model": str(outcome.model.path),
        "placement": applied.placement.id,
        "same_structure": applied.is_exact,
        "found": [
            {
                "source": str(found.source),
                "edge": str(found.edge),
                "by": "name" if found.by_name else "structure",
                "operators": found.operators,
            }
            for found in applied.found
        ],
        "lost": [
            {
                "edge": str(lost.edge),
                "operator": lost.operator,
                "reason": lost.reason,
                "candidates": list(lost.candidates),
            }
            for lost in applied.lost
        ],
        "broken_groups": [
            {"kept": [str(e) for e in group.kept], "lost": [str(e) for e in group.lost]}
            for group in applied.broken
        ],
        "new_nodes": list(applied.new_nodes),
        "new_sites": list(outcome.new_sites),
        "ranges": {
            "method": scales.method,
            "calibrated": scales.calibrated,
            "sqnr": scales.sqnr,
        },
        "warnings": list(outcome.warnings),
    }


def _print(outcome: _Outcome) -> None:
    console = Console()
    applied, scales = outcome.applied, outcome.scales
    named = sum(found.by_name for found in applied.found)
    same = {True: "the same structure", False: "another structure", None: "no structure in file"}
    table = Table(title=escape(f"{outcome.file.path.name} on {outcome.model.path.name}"))
    table.add_column("what")
    table.add_column("number", justify="right")
    rows = (
        ("edges found by name", named),
        ("edges found by structure", len(applied.found) - named),
        ("of them in another operator", len(_other_operators(applied))),
        ("edges not found", len(applied.lost)),
        ("scale groups broken", len(applied.broken)),
        (f"new nodes ({same[applied.is_exact]})", len(applied.new_nodes)),
        ("sites of new nodes, left float", len(outcome.new_sites)),
    )
    for what, number in rows:
        table.add_row(what, str(number))
    console.print(table)
    sqnr = "" if scales.sqnr is None else f", SQNR {scales.sqnr:.1f} dB on calibration data"
    lines = [f"ranges: {scales.method}{sqnr}"]
    lines += _shown([f"another operator: {line}" for line in _other_operators(applied)])
    lines += _shown([_lost_line(lost) for lost in applied.lost])
    lines += _shown([_broken_line(group) for group in applied.broken])
    lines += _shown([f"new site: {site}" for site in outcome.new_sites])
    for line in lines:
        console.print(f"- {line}", highlight=False, soft_wrap=True, markup=False)
    for warning in outcome.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)


def _other_operators(applied: Applied) -> list[str]:
    return [
        f"{found.edge} is {found.operators[1]}, was {found.operators[0]}"
        for found in applied.found
        if found.operators is not None
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
