"""The plans of two files compared."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from placer.errors import InputError
from placer.plan.diff import diff_plans as compare
from placer.plan.diff_result import PlanDiff
from placer.plan.plan import Plan
from placer.plan.readers.read import read_plan


def diff_plans(
    predicted: str | PathLike[str],
    actual: str | PathLike[str],
    profile: str | PathLike[str] | None = None,
) -> PlanDiff:
    """Compare the plans in two files, which may be any that ``read_plan`` takes.

    ``profile``: the trtexec profile of the actual engine, for its times. Raises InputError for
    files without plans and for plans that have no node name in common.
    """
    paths = Path(predicted), Path(actual)
    plans = read_plan(paths[0]), read_plan(paths[1], None if profile is None else Path(profile))
    for plan, path in zip(plans, paths, strict=True):
        _check(plan, path)
    diff = compare(*plans)
    if not (diff.by_nodes.matched or diff.splits or diff.fusions):
        raise InputError(
            f"{predicted} and {actual} have no node name in common; predict the plan of the very "
            "ONNX file that the engine was built from (placer explain writes it)"
        )
    return diff


def _check(plan: Plan, path: Path) -> None:
    if not any(layer.nodes for layer in plan.layers):
        raise InputError(f"{path} names no ONNX nodes to compare by; give the engine's layer info")
