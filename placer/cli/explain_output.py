"""What ``placer explain`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from placer.cli.terminal import table_of
from placer.common.display import with_short_names
from placer.common.listed import listed
from placer.plan.dtypes import is_quantized, reads_quantized

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.explaining.api import ModelExplanation
    from placer.plan import Layer, Plan
    from placer.prediction.explanation.conversion_text import Pairs
    from placer.prediction.explanation.explain import (
        DecisionCost,
        Explanation,
        StandaloneConversion,
    )
    from placer.prediction.explanation.first_changes import FirstChange
    from placer.prediction.explanation.site_outcomes import SiteOutcome

MAX_CONVERSIONS = 10


def no_times(explained: ModelExplanation) -> str:
    """Why there are no times."""
    engine = explained.pack.manifest.engine
    return f"no times are estimated for {engine}; measure them with placer optimize or placer bench"


def print_explanation(
    console: Console, explained: ModelExplanation, show_all: bool, notes: Sequence[str]
) -> None:
    """Decisions, layers, what only converts, and estimates of times where there are any.

    Of a file's own pairs, what they cost, what is wrong with them and what to change come first;
    ``notes`` are sentences on them. Where no engine takes them their time matters less.
    """
    explanation, timed = explained.explanation, explained.gpu is not None
    verdict_first = timed and explained.has_own_pairs and not explained.not_built
    if verdict_first:
        _print_times(console, explained)
    if explained.has_own_pairs:
        print_sentences(console, notes)
    _print_first_changes(console, explained.first_changes, show_all)
    _print_decisions(console, explained, show_all)
    _print_conversions(console, explanation, timed, show_all)
    if not timed:
        print_sentences(console, [no_times(explained)])
    elif not verdict_first:
        _print_times(console, explained)
    if not explained.has_own_pairs:
        print_sentences(console, notes)


def print_sentences(console: Console, sentences: Iterable[str]) -> None:
    """One on each line, however long."""
    for sentence in sentences:
        console.print(escape(sentence), soft_wrap=True)


def _print_decisions(console: Console, explained: ModelExplanation, show_all: bool) -> None:
    """The decisions where there is a choice, and the layers, or how many there are."""
    explanation, timed = explained.explanation, explained.gpu is not None
    tree = _decisions(explanation, timed, show_all)
    none = f"nothing to decide: no rule of pack '{explained.pack.manifest.name}' has a choice here"
    console.print(tree if tree.children else escape(none))
    if left := _without_choice(explanation, timed):
        console.print(left)
    if explanation.overlaps and show_all:
        console.print(_overlaps(explanation))
    if show_all:
        console.print(_layers(explanation.plan, explanation.total_us if timed else None))
    else:
        console.print(f"{_counted(explanation.plan)}; show them with --all")


def _print_first_changes(console: Console, changes: Sequence[FirstChange], show_all: bool) -> None:
    """What saves most, as a file with pairs is explained to find out what to change."""
    if changes:
        title = "[bold]what to change first[/], by estimates (tensor -> node\\[input]):"
        console.print(title, soft_wrap=True)
    for change in changes:
        text = change.text(show_all=show_all)
        shown = text if show_all else with_short_names(text)
        console.print(escape(f"- {shown}"), soft_wrap=True)


def _counted(plan: Plan) -> str:
    """How many layers run, of how many the inputs are quantized, and how many are no-ops."""
    no_ops = len(plan.of_kind("no-op"))
    layers = len(plan.layers) - no_ops
    are = "layer is" if layers == 1 else "layers are"
    types = Counter(
        next(filter(is_quantized, layer.input_types))
        for layer in plan.of_kind("compute")
        if reads_quantized(layer)
    )
    read = listed([f"{count} in {name}" for name, count in types.most_common()])
    idle = f", and {no_ops} no-op{'s' * (no_ops > 1)}" if no_ops else ""
    return f"{layers} {are} predicted, {read or 'none in integers'}{idle}"


def _print_times(console: Console, explained: ModelExplanation) -> None:
    explanation = explained.explanation
    shortest, longest = (us / 1e3 for us in explanation.interval_us)
    low, high = explanation.speedup_interval
    tie = ", too close to 1 for the estimate to tell" if explanation.is_tie else ""
    console.print(
        f"estimated: {explanation.total_us / 1e3:.3f} ms (80% interval {shortest:.3f} to "
        f"{longest:.3f}); float {explanation.float_us / 1e3:.3f} ms, so a speed-up of "
        f"{explanation.speedup:.2f} ({low:.2f} to {high:.2f}){tie}",
        soft_wrap=True,
    )
    if explanation.default_us < explanation.total_us:
        default = (
            f"the pack's default placement: {explanation.default_us / 1e3:.3f} ms, an estimate"
        )
        console.print(explained.default_advice or default, soft_wrap=True)
    if explanation.improved_us < explanation.total_us:
        console.print(
            f"with all remedies: {explanation.improved_us / 1e3:.3f} ms, an estimate; "
            "write that placement with --improved FILE, and the model with "
            f"{explained.apply_command}{_written(explained)}",
            soft_wrap=True,
        )
    if explanation.float_by_default:
        console.print(
            "by default nothing is quantized: the float model is estimated to be faster; placer "
            "optimize looks for pairs that are worth it",
            soft_wrap=True,
        )
    elif explanation.float_is_faster:
        console.print(
            "the float model is estimated to be faster even without conversions: the layers "
            "themselves take longer in integers; placer optimize --engine fusion-model finds out "
            "which pairs are worth it, if any",
            soft_wrap=True,
        )


def _written(explained: ModelExplanation) -> str:
    """What the written model is estimated to take where that is not what was announced."""
    written = explained.written
    if written is None:
        return ""
    nodes = f" and in {written.kept} nodes" if written.kept else ""
    return (
        f"; that keeps float32 at inputs and outputs{nodes}, with {written.casts} Casts, and is "
        f"estimated at {written.total_us / 1e3:.3f} ms, its float model at "
        f"{written.float_us / 1e3:.3f} ms"
    )


def print_actual(
    console: Console, outcomes: tuple[SiteOutcome, ...], built: Plan, show_all: bool
) -> None:
    """Sites that came out otherwise (all with --all), then what pairs that did not fuse cost."""
    right = sum(outcome.agrees for outcome in outcomes)
    title = f"{built.source}: {right} of {len(outcomes)} sites as predicted"
    estimated = built.estimated or built.estimated_times
    time_of_built = "est. us of built" if estimated else "measured us"
    table = table_of("site", "predicted", "est. us", "built", time_of_built, title=title)
    for outcome in outcomes:
        if show_all or not outcome.agrees:
            cells = (_described(outcome.predicted), _total(outcome.predicted))
            table.add_row(
                escape(outcome.decision.site.name),
                *cells,
                _described(outcome.actual),
                _total(outcome.actual),
            )
    console.print(table if table.row_count else f"{title}; show them with --all")
    word = "estimated" if estimated else "measured"
    for layer in built.of_kind("quantize", "dequantize", "requantize", "reformat"):
        time = "" if layer.time_us is None else f": {layer.time_us:.1f} us {word}"
        console.print(f"- {escape(layer.name)}{time}", soft_wrap=True)


def _described(layers: tuple[Layer, ...]) -> str:
    return "\n".join(
        escape(f"{'+'.join(layer.nodes)} -> {' '.join(layer.output_types)}") for layer in layers
    )


def _total(layers: tuple[Layer, ...]) -> str:
    times = [layer.time_us for layer in layers if layer.time_us is not None]
    return f"{sum(times):.1f}" if times else ""


def _decisions(explanation: Explanation, timed: bool, show_all: bool) -> Tree:
    """Rules, the layouts chosen for them and where, the costliest first."""
    # Imported only now: help is shown without what takes long to import.
    from placer.prediction.explanation.decision_tree import decision_tree  # noqa: PLC0415

    tree = Tree("[bold]what was decided[/]" + (", the costliest first" if timed else ""))
    total = explanation.total_us if timed else 0.0
    for branch_of_rule in decision_tree(explanation):
        branch = tree.add(
            f"[bold]{escape(branch_of_rule.rule.id)}[/]: {_sites(branch_of_rule.costs, total)}"
        )
        source = f" [{branch_of_rule.rule.source}]" if show_all else ""
        branch.add(f"[dim]{escape(branch_of_rule.rule.why + source)}[/]")
        for layout in branch_of_rule.layouts:
            leaf = branch.add(f"[cyan]{escape(layout.shown)}[/]: {_sites(layout.costs, total)}")
            names = _anchors(layout.costs)
            leaf.add(escape(names if show_all else with_short_names(names)))
            for note in layout.notes:
                leaf.add(f"[yellow]{escape(note)}[/]")
    return tree


def _without_choice(explanation: Explanation, timed: bool) -> str:
    # Imported only now: help is shown without what takes long to import.
    from placer.prediction.explanation.decision_tree import without_choice  # noqa: PLC0415

    return without_choice(explanation, timed)


def _sites(costs: Sequence[DecisionCost], total_us: float) -> str:
    """How many, and what they take where that is estimated."""
    sites = f"{len(costs)} site{'s' if len(costs) > 1 else ''}"
    us = sum(cost.us for cost in costs)
    return f"{sites}, est. {us:.1f} us ({us / total_us:.0%})" if total_us else sites


def _anchors(costs: Sequence[DecisionCost]) -> str:
    return listed([cost.decision.site.match.anchor.name for cost in costs])


def _overlaps(explanation: Explanation) -> Table:
    table = table_of("rule", "at", "to", "because", title="matches that gave way")
    for overlap in explanation.overlaps:
        table.add_row(
            overlap.lost.rule.id,
            escape(overlap.lost.anchor.name),
            overlap.won.rule.id,
            overlap.because,
        )
    return table


def _layers(plan: Plan, total_us: float | None) -> Table:
    """The predicted layers in order; without ``total_us`` they have no times."""
    columns = ("layer", "operator", "reads", "writes", *(("est. us", "share") if total_us else ()))
    table = table_of(*columns, title=f"predicted plan: {len(plan.layers)} layers")
    for layer in plan.layers:
        us = layer.time_us or 0.0
        table.add_row(
            escape(layer.name),
            layer.op,
            " ".join(layer.input_types),
            " ".join(layer.output_types),
            *((f"{us:.1f}", f"{us / total_us:.1%}") if total_us else ()),
            style="yellow" if layer.kind not in ("compute", "no-op") else None,
        )
    return table


def _print_conversions(
    console: Console, explanation: Explanation, timed: bool, show_all: bool
) -> None:
    """The costliest ten and those that a remedy removes, or all of them with whole names."""
    if not explanation.conversions:
        console.print("no layer only converts tensors")
        return
    total, cost = sum(conversion.us for conversion in explanation.conversions), ""
    if timed:
        cost = f", est. {total:.1f} us ({total / explanation.total_us:.0%} of the engine)"
    count = len(explanation.conversions)
    what = "1 layer only converts" if count == 1 else f"{count} layers only convert"
    console.print(f"[bold]{what} tensors[/]{cost}:")
    first = len(explanation.conversions) if show_all else MAX_CONVERSIONS
    told = [*explanation.conversions[:first]]
    left: list[StandaloneConversion] = []
    for conversion in explanation.conversions[first:]:
        (left if conversion.remedy is None else told).append(conversion)
    for because, remedy, layers in _alike(told, explanation.pairs, timed):
        alike = f" ({layers} layers)" if layers > 1 else ""
        lines = [f"- {because}{alike}", *([f"    {remedy}"] if remedy else [])]
        for line in lines if show_all else map(with_short_names, lines):
            console.print(escape(line), soft_wrap=True)
    if left:
        cost = f", est. {sum(conversion.us for conversion in left):.1f} us" if timed else ""
        console.print(f"- {len(left)} more{cost}; show them with --all")


def _alike(
    conversions: Sequence[StandaloneConversion], pairs: Pairs, timed: bool
) -> Iterator[tuple[str, str, int]]:
    """Why conversions stay layers, what removes them, and how many are alike in both.

    A change that removes several conversions is written out once.
    """
    # Imported only now: help is shown without what takes long to import.
    from placer.prediction.explanation.conversion_text import conversion_text  # noqa: PLC0415

    alike: dict[tuple[str, str], list[StandaloneConversion]] = {}
    for one in conversions:
        alike.setdefault(conversion_text(one, timed=timed, pairs=pairs), []).append(one)
    first: dict[str, str] = {}
    for (because, remedy), layers in alike.items():
        said = remedy
        if remedy in first:
            said = f"the change given for '{first[remedy]}' removes it, too"
        elif layers[0].remedy is not None:
            first[remedy] = layers[0].name
        yield because, said, len(layers)
