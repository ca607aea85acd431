"""``placer check``: does NVIDIA's builder take a model, and which Q/DQ pairs does it not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from placer.cli.options import SHAPE_HELP, shape_ranges_of
from placer.common.files import write_text
from placer.engines.tensorrt.build import BuildReport
from placer.engines.tensorrt.offline_builder import check_file, import_builder
from placer.errors import InputError, RunError
from placer.model import load_quantized
from placer.model.importing import Finding, check_pairs, is_quantized
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.rtx_log import typed_layers

MAX_FINDINGS = 30


def check_command(
    model: Annotated[Path, typer.Argument(help="Any ONNX model, with or without Q/DQ pairs.")],
    gpu: Annotated[str, typer.Option(help="Compute capability to build for.")] = "sm89",
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Look at the Q/DQ pairs only: needs no TensorRT-RTX.")
    ] = False,
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", help="Write the built plan for placer plan diff and explain."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Parse and build a model with TensorRT-RTX, no GPU needed, and show its layers.

    Q/DQ pairs that it refuses or reads differently are named first, each with its fix. Exit
    code 1 if the model is refused, with the node and the reason.
    """
    if not model.is_file():
        raise InputError(f"{model} does not exist; give the path of an ONNX file")
    shapes = shape_ranges_of(shape or [])
    findings = _findings(model)
    if findings and not as_json:
        _print_findings(findings)
    if static:
        _end_static(model, findings, as_json)
        return
    report = check_file(import_builder(), model, gpu, shapes)
    plan = Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)
    if plan_file is not None and report.accepted:
        write_text(plan_file, json.dumps(plan_json(plan), indent=2) + "\n")
    if as_json:
        document = {**_document(report), "pairs": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(document, indent=2))
    else:
        _print(report, plan)
    if not report.accepted:
        raise RunError(f"{report.builder} refuses {model}: {report.refusals[0]}")


def _findings(model: Path) -> tuple[Finding, ...]:
    proto = load_quantized(model)
    return check_pairs(proto, model.parent, model) if is_quantized(proto) else ()


def _end_static(model: Path, findings: Sequence[Finding], as_json: bool) -> None:
    refused = [finding for finding in findings if finding.verdict == "refused"]
    if as_json:
        typer.echo(json.dumps({"pairs": [asdict(finding) for finding in findings]}, indent=2))
    elif not findings:
        typer.echo(f"TensorRT takes every Q/DQ pair of {model}")
    if refused:
        raise RunError(f"TensorRT refuses {model}: {refused[0]}")


def _print_findings(findings: Sequence[Finding]) -> None:
    console = Console()
    for finding in findings[:MAX_FINDINGS]:
        console.print(
            f"{finding.verdict}: {finding}", highlight=False, soft_wrap=True, markup=False
        )
    if len(findings) > MAX_FINDINGS:
        console.print(f"and {len(findings) - MAX_FINDINGS} more; --json shows all")
    console.print("placer import, and placer optimize, make all these fixes", highlight=False)


def _document(report: BuildReport) -> dict[str, object]:
    document = {**asdict(report), "accepted": report.accepted, "engine_bytes": len(report.engine)}
    del document["engine"]
    return document


def _print(report: BuildReport, plan: Plan) -> None:
    console = Console()
    if report.accepted:
        # Waits and signals between streams run nothing.
        count = sum(layer.kind != "no-op" for layer in plan.layers)
        table = Table(title=f"{report.builder}, {report.gpu}: {count} layers")
        for column in ("layer", "inputs", "outputs", "ONNX nodes"):
            table.add_column(column, overflow="fold")
        for layer in plan.layers:
            cells = (layer.op, *map(" ".join, (layer.input_types, layer.output_types, layer.nodes)))
            table.add_row(*cells)
        console.print(table)
        console.print(f"engine of {len(report.engine)} bytes in {report.seconds:.1f} s")
    for refusal in report.refusals[1:]:
        console.print(str(refusal), highlight=False, soft_wrap=True)
