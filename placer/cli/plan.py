"""``placer plan``: look at plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

import placer
from placer.cli.terminal import output_console
from placer.common.listed import MOST, listed
from placer.errors import RunError

EXAMPLES = ("placer plan diff predicted.json layers.json --profile times.json",)

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.plan.diff_result import PlanDiff

plan_app = typer.Typer(
    help="Compare predicted layers with those that an engine built.",
    no_args_is_help=True,
    add_completion=False,
)


@plan_app.callback()
def _plans() -> None:
    """Keeps ``diff`` a command of its own, which Typer would merge into a lone one."""


@plan_app.command("diff")
def diff_command(
    predicted: Annotated[Path, typer.Argument(help="The predicted plan.")],
    actual: Annotated[
        Path,
        typer.Argument(
            help="The actual plan: TensorRT layer info JSON, profile or log, ONNX Runtime's "
            "optimized ONNX file, or a placer plan."
        ),
    ],
    profile: Annotated[
        Path | None, typer.Option(help="trtexec --exportProfile JSON or log of the actual engine.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if they differ.")] = False,
) -> None:
    """Show where the layers of an engine differ from the predicted ones.

    Either plan may be any file that placer reads. Exit codes: 0 compared, 1 they differ and
    --strict is given, 2 wrong input.
    """
    diff = placer.diff_plans(predicted, actual, profile)
    if as_json:
        typer.echo(json.dumps(diff.to_json(), indent=2))
    else:
        _print(diff)
    if strict and not diff.agrees:
        raise RunError(f"the plans differ: {predicted} is not what {actual} does")


def _print(diff: PlanDiff) -> None:
    console = output_console()
    title = f"{diff.predicted_source or 'predicted'} against {diff.actual_source or 'actual'}"
    table = Table(title=title)
    for column in ("compute layers", "matched", "predicted", "actual", "precision", "recall", "F1"):
        table.add_column(column, justify="left" if column == "compute layers" else "right")
    for name, score in diff.scores:
        counts = map(str, (score.matched, score.predicted, score.actual))
        shares = (f"{share:.3f}" for share in (score.precision, score.recall, score.f1))
        table.add_row(name, *counts, *shares)
    console.print(table)
    console.print(
        "A layer counts as matched: exact, with the same nodes and output types; by class, with "
        "the same nodes and outputs of the same kind, quantized or float; by nodes, with the same "
        "nodes.",
        soft_wrap=True,
    )
    console.print(_conversion_table(diff))
    for sentence in diff.sentences:
        console.print(sentence, markup=False, soft_wrap=True)
    for plan, names in (("predicted", diff.only_predicted), ("actual", diff.only_actual)):
        if names:
            more = "; --json lists all" if len(names) > MOST else ""
            console.print(
                f"Without a partner, as the other plan names none of their nodes: {len(names)} "
                f"{plan} compute layers ({listed(names)}{more}).",
                markup=False,
                soft_wrap=True,
            )
    if diff.agrees:
        console.print("The plans agree.")


def _conversion_table(diff: PlanDiff) -> Table:
    table = Table()
    table.add_column("conversion layers")
    for column in ("predicted", "actual", "missing", "extra"):
        table.add_column(column, justify="right")
    for c in diff.conversions:
        counts = (c.predicted, c.actual, len(c.missing), len(c.extra))
        table.add_row(c.kind, *map(str, counts))
    return table
