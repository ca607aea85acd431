"""``placer explain``: what the rules make of a model and which pairs stay layers of their own."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import placer
from placer.cli.options import option, shapes_of

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.graph import Edge
    from placer.plan import Layer, Plan
    from placer.prediction.explain import (
        Decision,
        Explanation,
        SiteOutcome,
        StandaloneConversion,
    )
    from placer.prediction.remedies import Remedy

MAX_LAYERS = 60  # More are left to --all and --json.
EXAMPLES = (
    "placer explain model.onnx --gpu l4",
    "placer explain quantized.onnx --gpu l4 --improved better.yaml",
)


def explain_command(
    model: Annotated[Path, typer.Argument(help="A float model, or one with Q/DQ pairs.")],
    placement: Annotated[
        Path | None,
        typer.Option(
            help="placement.yaml.",
            show_default="the model's pairs, or the pack's default",
            rich_help_panel="Model and data",
        ),
    ] = None,
    shape: Annotated[list[str] | None, option("shapes")] = None,
    gpu: Annotated[
        str, option("gpu", help="GPU to estimate for, a YAML file, or one of placer fit.")
    ] = "a100",
    base: Annotated[
        str | None,
        option(
            "base",
            help="Type of what stays float: float16, bfloat16 or float.",
            default="float16, or the fit's",
        ),
    ] = None,
    weak: Annotated[
        bool,
        typer.Option(
            "--weak",
            help="Weak typing, as TensorRT up to 10 may have.",
            rich_help_panel="Engine",
        ),
    ] = False,
    pack: Annotated[str | None, option("pack", default="tensorrt, or the fit's")] = None,
    actual: Annotated[
        Path | None,
        typer.Option(
            help="The engine's own plan, as for placer plan diff: shown per site.",
            rich_help_panel="Engine",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="trtexec --exportProfile JSON of that engine.", rich_help_panel="Engine"),
    ] = None,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Write the predicted plan for placer plan diff.",
            rich_help_panel="Output",
        ),
    ] = None,
    improved: Annotated[
        Path | None,
        typer.Option(
            help="Write the placement with all remedies applied.", rich_help_panel="Output"
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every layer and match.", rich_help_panel="Output")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the explanation as JSON.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Show matched rules, the decision at each site, the predicted plan and its stray conversions.

    Every time is an estimate. Nothing is built or run.
    """
    found = placer.explain(
        model,
        placement,
        gpu=gpu,
        base=base,
        weak=weak,
        pack=pack,
        shapes=shapes_of(shape or []),
        actual=actual,
        profile=profile,
    )
    if plan_file is not None:
        found.write_plan(plan_file)
    if improved is not None:
        found.write_improved(improved)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    console = Console()
    console.print(
        f"{escape(str(model))}: {escape(found.source)}; estimates for {found.gpu.name}, "
        f"{found.base} remainder, pack {found.pack.name_and_version}",
        highlight=False,
        soft_wrap=True,
    )
    _print(console, found.explanation, show_all)
    if found.inside:
        console.print(escape(found.inside), highlight=False, soft_wrap=True)
    if found.built is not None:
        _print_actual(console, found.outcomes, found.built, show_all)


def _print(console: Console, explanation: Explanation, show_all: bool) -> None:
    console.print(_decisions(explanation.decisions))
    if explanation.overlaps and show_all:
        console.print(_overlaps(explanation))
    console.print(_layers(explanation.plan, explanation.total_us, show_all))
    hidden = len(explanation.plan.layers) - MAX_LAYERS
    if hidden > 0 and not show_all:
        console.print(f"{hidden} more layers; show them with --all", highlight=False)
    _print_conversions(console, explanation)
    shortest, longest = (us / 1e3 for us in explanation.interval_us)
    low, high = explanation.speedup_interval
    console.print(
        f"estimated: {explanation.total_us / 1e3:.3f} ms (80% interval {shortest:.3f} to "
        f"{longest:.3f}); float {explanation.float_us / 1e3:.3f} ms, so a speed-up of "
        f"{explanation.speedup:.2f} ({low:.2f} to {high:.2f})",
        highlight=False,
        soft_wrap=True,
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
    added, removed = remedy.change.added, remedy.change.removed
    if added:
        parts.append(f"quantize {_edges(added)}")
    if removed:
        parts.append(f"leave {_edges(removed)} in float")
    what = " and ".join(parts) or "give the tensors one scale"
    return f"{what}; the engine gains est. {remedy.saves_us:.1f} us"


def _edges(edges: tuple[Edge, ...]) -> str:
    shown = ", ".join(map(str, edges[:4]))
    return shown if len(edges) <= 4 else f"{shown} and {len(edges) - 4} more"
