"""``placer check``: does NVIDIA's builder take a model, and which Q/DQ pairs does it not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

import placer
from placer.cli.options import Replace, Shapes, json_option, option, shape_ranges_of, with_flags
from placer.cli.terminal import output_console, table_of
from placer.common.files import check_writable
from placer.common.listed import in_quotes
from placer.common.names import engine_title
from placer.errors import RunError

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.engines.tensorrt.build import BuildReport
    from placer.engines.tensorrt.check import CheckReport
    from placer.plan import Plan

_NO_PAIR = (
    "{} has no Q/DQ pair, so TensorRT 11 builds nothing of it in INT8 or FP8, and TensorRT 10 only "
    "after calibration (else 'Calibration failure occurred with no scaling factors detected'); if "
    "it was quantized, the export lost its pairs; placer optimize places pairs, and without "
    "--static the builder looks at all of it"
)
_TABLES = (
    "Do not use calibration tables with this file, which has Q/DQ pairs (beside it: {}). TensorRT "
    "ignores them. ONNX Runtime's TensorRT provider fails: leave out "
    "trt_int8_calibration_table_name."
)
EXAMPLES = ("placer check quantized.onnx --static", "placer check model.onnx --gpu rtx-5090")


def check_command(
    model: Annotated[Path, typer.Argument(help="Any ONNX model, with or without Q/DQ pairs.")],
    gpu: Annotated[str, option("gpu", help="GPU to build for, e.g. rtx-5090, or sm89.")] = "sm89",
    shape: Shapes = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static",
            help="Look at the Q/DQ pairs only: needs no TensorRT-RTX.",
            rich_help_panel="Engine",
        ),
    ] = False,
    as_json: Annotated[bool, json_option("the report")] = False,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Write the built plan for placer plan diff and explain.",
            rich_help_panel="Output",
        ),
    ] = None,
    replace: Replace = False,
) -> None:
    """Parse and build a model with TensorRT-RTX, no GPU needed, and show its layers.

    Q/DQ pairs that it refuses or reads differently are named first, each with its fix. Exit
    code 1 if the model is refused, with the node and the reason.
    """
    check_writable(plan_file, replace=replace)  # Else that is noticed when all is built.
    report = placer.check(model, gpu=gpu, shapes=shape_ranges_of(shape or []), static=static)
    if plan_file is not None and report.plan is not None:
        report.write_plan(plan_file)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print_report(report, model, static)
    if report.refusal is not None:
        raise RunError(report.refusal.replace("refuses it", f"refuses {model}", 1))


def _print_report(report: CheckReport, model: Path, static: bool) -> None:
    if report.placed_for is not None:
        typer.echo(_placed_for(model, report.placed_for))
    if report.findings:
        _print_findings(report)
    elif static and report.is_float:
        typer.echo(_NO_PAIR.format(model))
    elif static:
        typer.echo(f"TensorRT 10 and 11 take every Q/DQ pair of {model}")
    if report.older:
        typer.echo(report.older)
    if report.tables:
        typer.echo(_TABLES.format(in_quotes(report.tables)))
    if report.build is not None:
        _print(report.build, report.plan)
        if report.build.accepted and report.assumed is not None:
            typer.echo(with_flags(report.assumed))


def _placed_for(model: Path, engine: str) -> str:
    return (
        f"{model} was placed for {engine_title(engine)}, not for TensorRT; to place its pairs "
        f"anew: {shlex.join(['placer', 'optimize', str(model), '--engine', 'tensorrt'])}"
    )


def _print_findings(report: CheckReport) -> None:
    """A line for each fix, with the first node that needs it: what weighs most comes first."""
    console, groups = output_console(), report.grouped_findings
    for group in groups:
        others = len(group) - 1
        more = f" (and {others} more node{'s' if others > 1 else ''})" if others else ""
        console.print(f"{group[0].verdict}: {group[0]}{more}", soft_wrap=True, markup=False)
    if len(groups) < len(report.findings):
        console.print("--json lists every node")
    console.print(_by_import(report), soft_wrap=True, markup=False)


def _by_import(report: CheckReport) -> str:
    if report.is_float:
        return (
            "placer import refuses the file, which has no pairs; placer optimize takes it as it is"
        )
    both = "placer import, and placer optimize,"
    if report.not_imported is not None:
        return f"{both} refuse the file: {with_flags(report.not_imported)}"
    left = list(dict.fromkeys(f.node for f in report.findings if not f.imported))
    if not left:
        return f"{both} take all of these out of the file"
    return f"{both} leave {in_quotes(left, 1)} as in the file"


def _print(report: BuildReport, plan: Plan | None) -> None:
    console = output_console()
    if plan is not None:
        # Waits and signals between streams run nothing.
        count = sum(layer.kind != "no-op" for layer in plan.layers)
        title = f"{report.builder}, {report.gpu}: {count} layers"
        table = table_of("layer", "inputs", "outputs", "ONNX nodes", title=title)
        for layer in plan.layers:
            cells = (layer.op, *map(" ".join, (layer.input_types, layer.output_types, layer.nodes)))
            table.add_row(*map(escape, cells))
        console.print(table)
        console.print(f"engine of {len(report.engine)} bytes in {report.seconds:.1f} s")
    for refusal in report.refusals[1:]:
        console.print(str(refusal), soft_wrap=True, markup=False)
