"""``placer import``: the float model behind a quantized one, its scales and its placement."""

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

from placer.cli.options import SHAPE_HELP, shapes_of
from placer.common.files import make_output_folder, write_text
from placer.errors import InputError
from placer.graph import Edge
from placer.model import Model, load_model, save_model
from placer.model.importing import Imported, Loss
from placer.quantization.placement_file import placement_text
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

MAX_ROWS = 20


@dataclass(frozen=True)
class _Comparison:
    """Quantized edges of the source held against the pack's default placement."""

    kept: frozenset[Edge]
    left: frozenset[Edge]
    added: frozenset[Edge]
    uncalibrated: tuple[str, ...]


def import_command(
    model: Annotated[Path, typer.Argument(help="The quantized ONNX model.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Float model [default: MODEL.float.onnx]."),
    ] = None,
    pack: Annotated[
        str, typer.Option(help="Rule pack whose scheme the scales are converted to.")
    ] = "tensorrt",
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Write the float model behind a quantized one, and its scales as placement.yaml.

    Takes Q/DQ pairs, QOperator nodes and dynamic quantization. Lists what could not be kept.
    placer optimize takes the quantized model itself and keeps the scales of weights too.
    """
    target = output or Path(f"{model.stem}.float.onnx")
    if target.resolve() == model.resolve():
        raise InputError(f"--output {target} is the quantized model itself; choose another name")
    rules = load_pack(pack)
    shapes = shapes_of(shape or [])
    loaded = load_model(model, shapes)
    if loaded.imported is None:
        raise InputError(f"{model} is not quantized; give it to placer optimize as it is")
    placement_file = target.with_name(f"{target.stem}.placement.yaml")
    make_output_folder(target.parent)
    save_model(loaded.proto, loaded.base_dir, target)
    written = load_model(target, shapes)
    write_text(placement_file, _placement_text(loaded.imported, rules, written))
    comparison = _compare(loaded, loaded.imported, rules)
    losses = loaded.imported.losses(rules.manifest.scheme)
    if as_json:
        typer.echo(json.dumps(_document(loaded.imported, comparison, losses), indent=2))
    else:
        _print(loaded.imported, rules, comparison, losses)
        typer.echo(f"wrote {target} and {placement_file}")


def _placement_text(imported: Imported, pack: Pack, written: Model) -> str:
    return placement_text(
        imported.placement,
        imported.ranges(pack.manifest.scheme),
        pack.manifest.scheme,
        model=written.fingerprint,
        pack=pack.name_and_version,
        calibrated=True,
        graph=written.graph,
    )


def _compare(model: Model, imported: Imported, pack: Pack) -> _Comparison:
    chosen = place(find_sites(model.graph, pack.rules), {}).edges
    source = imported.placement.edges
    known = {*imported.activations, *model.graph.initializers}
    uncalibrated = sorted({edge.tensor for edge in chosen} - known)
    return _Comparison(chosen & source, source - chosen, chosen - source, tuple(uncalibrated))


def _document(
    imported: Imported, comparison: _Comparison, losses: Sequence[Loss]
) -> dict[str, Any]:
    return {
        "source": imported.source,
        "pairs": {
            "kept": _texts(comparison.kept),
            "left": _texts(comparison.left),
            "added": _texts(comparison.added),
        },
        "without range": list(comparison.uncalibrated),
        "scales": {
            name: {"scale": found.scale, "zero_point": found.zero_point, "type": found.type}
            for name, found in imported.activations.items()
        },
        "coarser": [
            {"tensor": x.tensor, "step_growth": x.step_growth, "decibel": x.decibel} for x in losses
        ],
        "notes": list(imported.notes),
    }


def _texts(edges: frozenset[Edge]) -> list[str]:
    return [str(edge) for edge in sorted(edges)]


def _print(imported: Imported, pack: Pack, comparison: _Comparison, losses: Sequence[Loss]) -> None:
    console = Console()
    table = Table(title=f"imported: {imported.source}")
    table.add_column("what")
    table.add_column("number", justify="right")
    name = pack.manifest.name
    rows = (
        ("scales of activations", len(imported.activations)),
        ("scales of weights", len(imported.weights)),
        ("quantized edges", len(imported.placement.edges)),
        (f"of them in the default placement of pack {name}", len(comparison.kept)),
        ("of them elsewhere", len(comparison.left)),
        (f"only in the default placement of pack {name}", len(comparison.added)),
        ("tensors there without a scale, to be calibrated", len(comparison.uncalibrated)),
    )
    for what, number in rows:
        table.add_row(what, str(number))
    console.print(table)
    if losses:
        console.print(_losses(losses, name))
    for note in imported.notes:
        console.print(f"- {note}", highlight=False, soft_wrap=True, markup=False)


def _losses(losses: Sequence[Loss], pack: str) -> Table:
    hidden = len(losses) - MAX_ROWS
    more = f"{hidden} more with --json" if hidden > 0 else None
    table = Table(title=f"coarser in the scheme of pack {pack}", caption=more)
    for column in ("tensor", "source", "step", "rounding noise"):
        table.add_column(column, overflow="fold")
    for loss in losses[:MAX_ROWS]:
        cells = (
            loss.tensor,
            loss.source.text,
            f"{loss.step_growth:.3f} times",
            f"+{loss.decibel:.2f} dB",
        )
        table.add_row(*map(escape, cells))
    return table
