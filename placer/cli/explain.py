"""``placer explain``: what the rules make of a model and which pairs stay layers of their own."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from placer.cli.options import shapes_of
from placer.common.files import write_text
from placer.engines.fusion_model import BASES
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.model import is_quantized_file, load_model, load_quantized
from placer.plan import Layer, Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.prediction.explain import (
    Decision,
    Explainer,
    Explanation,
    Remedy,
    SiteOutcome,
    StandaloneConversion,
    compare_sites,
    explanation_json,
)
from placer.prediction.gpus import Gpu, load_gpu
from placer.prediction.predictor import Predictor
from placer.prediction.roofline import Roofline, load_layer_classes
from placer.qdq.extract import extract_placement
from placer.quantization import Placement
from placer.quantization.placement_file import load_placement, placement_text
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target

MAX_LAYERS = 60  # More are left to --all and --json.


@dataclass(frozen=True)
class _Subject:
    """What is explained: a float graph, a placement on it and where that comes from."""

    graph: Graph
    placement: Placement
    source: str
    fingerprint: str


def explain_command(
    model: Annotated[Path, typer.Argument(help="A float model, or one with Q/DQ pairs.")],
    placement: Annotated[
        Path | None,
        typer.Option(help="placement.yaml [default: the model's pairs, or the pack's default]."),
    ] = None,
    gpu: Annotated[str, typer.Option(help="GPU to estimate for, or a YAML file.")] = "a100",
    base: Annotated[str, typer.Option(help="Type of what stays float.")] = "float16",
    weak: Annotated[
        bool, typer.Option("--weak", help="Weak typing, as TensorRT up to 10 may have.")
    ] = False,
    pack: Annotated[str, typer.Option(help="Rule pack, a name or folder.")] = "tensorrt",
    shape: Annotated[
        list[str] | None, typer.Option(help="Input shape, e.g. image=1x3x320x320.")
    ] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Write the predicted plan for placer plan diff.")
    ] = None,
    actual: Annotated[
        Path | None,
        typer.Option(help="The engine's own plan, as for placer plan diff: shown per site."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="trtexec --exportProfile JSON of that engine.")
    ] = None,
    improved: Annotated[
        Path | None, typer.Option(help="Write the placement with all remedies applied.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every layer and match.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Show matched rules, the decision at each site, the predicted plan and its stray conversions.

    Every time is an estimate. Nothing is built or run.
    """
    if base not in BASES:
        raise InputError(f"unknown --base '{base}'; use one of: {', '.join(BASES)}")
    rules, target_gpu = load_pack(pack), load_gpu(gpu)
    target = Target(
        compute_capability=target_gpu.compute_capability, typing="weak" if weak else "strong"
    )
    subject = _subject(model, placement, shapes_of(shape or []), rules, target)
    explainer = _explainer(subject.graph, rules, target_gpu, target, base)
    explanation = explainer.explain(subject.placement)
    if plan_file is not None:
        write_text(plan_file, json.dumps(plan_json(explanation.plan), indent=2) + "\n")
    if improved is not None:
        write_text(improved, _placement_text(explanation.improved, subject, rules))
    built = read_plan(actual, profile) if actual is not None else None
    outcomes = compare_sites(explanation.decisions, explanation.plan, built) if built else ()
    if built is not None and not outcomes:
        raise InputError(
            f"{actual} names no node of {model}; give the plan of an engine built from this file"
        )
    if as_json:
        document = {"gpu": target_gpu.name, **explanation_json(explanation)}
        document = {**document, "plan": plan_json(explanation.plan)}
        if built is not None:
            document = {**document, "actual": [_outcome(outcome) for outcome in outcomes]}
        typer.echo(json.dumps(document, indent=2))
        return
    console = Console()
    console.print(
        f"{escape(str(model))}: {escape(subject.source)}; estimates for {target_gpu.name}, "
        f"{base} remainder, pack {rules.name_and_version}",
        highlight=False,
        soft_wrap=True,
    )
    _print(console, explanation, show_all)
    if built is not None:
        _print_actual(console, outcomes, built, show_all)


def _subject(
    model: Path,
    placement: Path | None,
    shapes: dict[str, tuple[int, ...]],
    pack: Pack,
    target: Target,
) -> _Subject:
    if is_quantized_file(model):
        if placement is not None:
            raise InputError(
                f"{model} has Q/DQ pairs already; give the float model or no placement"
            )
        found = extract_placement(load_quantized(model))
        graph = found.graph(shapes, model)
        return _Subject(graph, found.placement, "the model's own Q/DQ pairs", "")
    loaded = load_model(model, shapes)
    if placement is not None:
        chosen, source = load_placement(placement, loaded.graph), f"placement {placement}"
    else:
        sites = find_sites(loaded.graph, pack.rules, target)
        chosen, source = place(sites, {}), "the pack's default placement"
    return _Subject(loaded.graph, chosen, source, loaded.fingerprint)


def _explainer(graph: Graph, pack: Pack, gpu: Gpu, target: Target, base: str) -> Explainer:
    integer = pack.manifest.scheme.activation
    predictor = Predictor(graph, pack.rules, target, base, integer)
    roofline = Roofline(graph, gpu, load_layer_classes())
    return Explainer(graph, pack.rules, target, predictor, roofline)


def _placement_text(placement: Placement, subject: _Subject, pack: Pack) -> str:
    return placement_text(
        placement,
        {},
        pack.manifest.scheme,
        model=subject.fingerprint,
        pack=pack.name_and_version,
        calibrated=False,
        graph=subject.graph,
    )


def _print(console: Console, explanation: Explanation, show_all: bool) -> None:
    console.print(_decisions(explanation.decisions))
    if explanation.overlaps and show_all:
        console.print(_overlaps(explanation))
    console.print(_layers(explanation.plan, explanation.total_us, show_all))
    hidden = len(explanation.plan.layers) - MAX_LAYERS
    if hidden > 0 and not show_all:
        console.print(f"{hidden} more layers; show them with --all", highlight=False)
    _print_conversions(console, explanation)
    console.print(
        f"estimated: {explanation.total_us / 1e3:.3f} ms; float {explanation.float_us / 1e3:.3f} "
        f"ms, so a speed-up of {explanation.float_us / explanation.total_us:.2f}",
        highlight=False,
    )
    if explanation.improved_us < explanation.total_us:
        console.print(
            f"with all remedies: {explanation.improved_us / 1e3:.3f} ms, an estimate; "
            "write that placement with --improved FILE",
            highlight=False,
        )


def _print_actual(
    console: Console, outcomes: tuple[SiteOutcome, ...], built: Plan, show_all: bool
) -> None:
    """Sites that came out otherwise (all of them with --all), then what stray pairs really cost."""
    right = sum(outcome.agrees for outcome in outcomes)
    table = Table(title=f"{built.source}: {right} of {len(outcomes)} sites as predicted")
    for column in ("site", "predicted", "est. us", "built", "measured us"):
        table.add_column(column, overflow="fold")
    for outcome in outcomes:
        if show_all or not outcome.agrees:
            cells = (_described(outcome.predicted), _total(outcome.predicted))
            table.add_row(
                escape(outcome.decision.site.name),
                *cells,
                _described(outcome.actual),
                _total(outcome.actual),
            )
    console.print(table)
    for layer in built.of_kind("quantize", "dequantize", "requantize", "reformat"):
        time = "" if layer.time_us is None else f": {layer.time_us:.1f} us measured"
        console.print(f"- {escape(layer.name)}{time}", highlight=False, soft_wrap=True)


def _described(layers: tuple[Layer, ...]) -> str:
    return "\n".join(
        escape(f"{'+'.join(layer.nodes)} -> {' '.join(layer.output_types)}") for layer in layers
    )


def _total(layers: tuple[Layer, ...]) -> str:
    times = [layer.time_us for layer in layers if layer.time_us is not None]
    return f"{sum(times):.1f}" if times else ""


def _outcome(outcome: SiteOutcome) -> dict[str, object]:
    return {
        "site": outcome.decision.site.name,
        "agrees": outcome.agrees,
        "predicted": [layer.name for layer in outcome.predicted],
        "built": [layer.name for layer in outcome.actual],
        "measured_us": [layer.time_us for layer in outcome.actual],
    }


def _decisions(decisions: tuple[Decision, ...]) -> Table:
    table = Table(title="sites and what was decided", show_lines=True)
    for column in ("rule", "sites", "layout", "why"):
        table.add_column(column, overflow="fold")
    groups: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in decisions:
        if len(decision.site.layouts) > 1:
            groups[decision.site.match.rule.id, decision.layout].append(decision)
    for (rule, layout), same in sorted(groups.items()):
        nodes = ", ".join(decision.site.match.anchor.name for decision in same[:3])
        more = f" and {len(same) - 3} more" if len(same) > 3 else ""
        default = same[0].site.default
        chosen = layout if layout == default else f"{layout} (default: {default})"
        first = same[0].site.match.rule
        why = f"{first.why} [{first.source}]"
        table.add_row(rule, escape(f"{len(same)}: {nodes}{more}"), chosen, escape(why))
    return table


def _overlaps(explanation: Explanation) -> Table:
    table = Table(title="matches that gave way")
    for column in ("rule", "at", "to", "because"):
        table.add_column(column, overflow="fold")
    for overlap in explanation.overlaps:
        table.add_row(
            overlap.lost.rule.id,
            escape(overlap.lost.anchor.name),
            overlap.won.rule.id,
            overlap.because,
        )
    return table


def _layers(plan: Plan, total_us: float, show_all: bool) -> Table:
    table = Table(title=f"predicted plan: {len(plan.layers)} layers")
    for column in ("layer", "operator", "reads", "writes", "est. us", "share"):
        table.add_column(column, overflow="fold")
    for layer in plan.layers if show_all else plan.layers[:MAX_LAYERS]:
        us = layer.time_us or 0.0
        table.add_row(
            escape(layer.name),
            layer.op,
            " ".join(layer.input_types),
            " ".join(layer.output_types),
            f"{us:.1f}",
            f"{us / total_us:.1%}",
            style="yellow" if layer.kind not in ("compute", "no-op") else None,
        )
    return table


def _print_conversions(console: Console, explanation: Explanation) -> None:
    if not explanation.conversions:
        console.print("no pair stays a layer of its own")
        return
    total = sum(conversion.us for conversion in explanation.conversions)
    console.print(
        f"[bold]{len(explanation.conversions)} layers only convert tensors[/], est. {total:.1f} us "
        f"({total / explanation.total_us:.0%} of the engine):",
        highlight=False,
    )
    for conversion in explanation.conversions:
        for line in _conversion_lines(conversion):
            console.print(escape(line), highlight=False, soft_wrap=True)


def _conversion_lines(conversion: StandaloneConversion) -> list[str]:
    lines = [f"- {conversion.name}: est. {conversion.us:.1f} us; {conversion.because}"]
    if conversion.remedy is not None:
        lines.append(f"    remove it: {_remedy(conversion.remedy)}")
    elif conversion.goes_with_others:
        lines.append("    it goes with the remedies of the others")
    return lines


def _remedy(remedy: Remedy) -> str:
    parts = []
    if remedy.add:
        parts.append(f"quantize {_edges(remedy.add)}")
    if remedy.remove:
        parts.append(f"leave {_edges(remedy.remove)} in float")
    what = " and ".join(parts) or "give the tensors one scale"
    return f"{what}; the engine gains est. {remedy.saves_us:.1f} us"


def _edges(edges: tuple[Edge, ...]) -> str:
    shown = ", ".join(map(str, edges[:4]))
    return shown if len(edges) <= 4 else f"{shown} and {len(edges) - 4} more"
