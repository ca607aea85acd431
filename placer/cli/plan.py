"""``placer plan``: look at plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from placer.errors import InputError, RunError
from placer.plan import Layer, Plan
from placer.plan.diff import PlanDiff, Score, diff_plans, sentences
from placer.plan.readers.read import read_plan

plan_app = typer.Typer(
    help="Plans: compare predicted with actual layers.", no_args_is_help=True, add_completion=False
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
            help="The actual plan: TensorRT layer info JSON, TensorRT-RTX build log, ONNX "
            "Runtime's optimized ONNX file, or a placer plan."
        ),
    ],
    profile: Annotated[
        Path | None, typer.Option(help="trtexec --exportProfile JSON of the actual engine.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if they differ.")] = False,
) -> None:
    """Show where the layers of an engine differ from the predicted ones.

    Either plan may be any file that placer reads. Exit codes: 0 compared, 1 they differ and
    --strict is given, 2 wrong input.
    """
    plans = read_plan(predicted), read_plan(actual, profile)
    for plan, path in zip(plans, (predicted, actual), strict=True):
        _check(plan, path)
    diff = diff_plans(*plans)
    if not (diff.by_nodes.matched or diff.splits or diff.fusions):
        raise InputError(
            f"{predicted} and {actual} have no node name in common; predict the plan of the very "
            "ONNX file that the engine was built from (placer explain MODEL --plan FILE)"
        )
    if as_json:
        typer.echo(json.dumps(diff_json(diff), indent=2))
    else:
        _print(diff)
    if strict and not diff.agrees:
        raise RunError(f"the plans differ: {predicted} is not what {actual} does")


def _check(plan: Plan, path: Path) -> None:
    if not any(layer.nodes for layer in plan.layers):
        raise InputError(f"{path} names no ONNX nodes to compare by; give the engine's layer info")


def diff_json(diff: PlanDiff) -> dict[str, Any]:
    """Return ``diff`` for ``json.dumps``: scores, and layers by name; times in microseconds."""
    return {
        "agrees": diff.agrees,
        "predicted": diff.predicted_source,
        "actual": diff.actual_source,
        "scores": {name: _score_json(score) for name, score in _scores(diff)},
        "matched": [
            {
                "predicted": pair.predicted.name,
                "actual": pair.actual.name,
                "nodes": list(pair.nodes),
                "time_us": pair.actual.time_us,
            }
            for pair in diff.matched
        ],
        "types": [
            {
                "predicted": pair.predicted.name,
                "actual": pair.actual.name,
                "predicted_types": list(pair.predicted.output_types),
                "actual_types": list(pair.actual.output_types),
                "same_class": pair.same_class,
            }
            for pair in diff.other_types
        ],
        "splits": [
            {"predicted": split.whole.name, "actual": _names(split.parts)} for split in diff.splits
        ],
        "fusions": [
            {"actual": fusion.whole.name, "predicted": _names(fusion.parts)}
            for fusion in diff.fusions
        ],
        "conversions": {
            c.kind: {
                "predicted": c.predicted,
                "actual": c.actual,
                "missing": _names(c.missing),
                "extra": _names(c.extra),
            }
            for c in diff.conversions
        },
        "only": {"predicted": list(diff.only_predicted), "actual": list(diff.only_actual)},
        "sentences": list(sentences(diff)),
    }


def _names(layers: tuple[Layer, ...]) -> list[str]:
    return [layer.name for layer in layers]


def _scores(diff: PlanDiff) -> tuple[tuple[str, Score], ...]:
    return (("exact", diff.exact), ("by class", diff.by_class), ("by nodes", diff.by_nodes))


def _score_json(score: Score) -> dict[str, float]:
    return {
        "matched": score.matched,
        "predicted": score.predicted,
        "actual": score.actual,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
    }


def _print(diff: PlanDiff) -> None:
    console = Console()
    title = f"{diff.predicted_source or 'predicted'} against {diff.actual_source or 'actual'}"
    table = Table(title=title)
    for column in ("compute layers", "matched", "predicted", "actual", "precision", "recall", "F1"):
        table.add_column(column, justify="left" if column == "compute layers" else "right")
    for name, score in _scores(diff):
        counts = map(str, (score.matched, score.predicted, score.actual))
        shares = (f"{share:.3f}" for share in (score.precision, score.recall, score.f1))
        table.add_row(name, *counts, *shares)
    console.print(table)
    console.print(_conversion_table(diff))
    for sentence in sentences(diff):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    for plan, names in (("predicted", diff.only_predicted), ("actual", diff.only_actual)):
        if names:
            console.print(
                f"Without a partner, as the other plan names none of their nodes: {len(names)} "
                f"{plan} compute layers ({', '.join(names)}).",
                highlight=False,
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
