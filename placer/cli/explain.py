"""``placer explain``: what the rules make of a model and which pairs stay layers of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import placer
from placer.cli.explain_output import (
    no_times,
    print_actual,
    print_explanation,
    print_sentences,
)
from placer.cli.options import (
    CustomOps,
    Fix,
    Replace,
    Shapes,
    fixes_of,
    json_option,
    option,
    shapes_of,
    with_flags,
)
from placer.cli.terminal import output_console
from placer.common.files import check_writable
from placer.common.processor import PROCESSORS

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.explaining.api import ModelExplanation

_NOTHING_CHOSEN = (
    "for TensorRT on a100, as neither GPU nor engine was chosen: --gpu takes another GPU, and "
    "--pack onnxruntime or openvino shows what these engines build on this machine's CPU"
)
EXAMPLES = (
    "placer explain model.onnx --gpu l4",
    "placer explain quantized.onnx --gpu l4 --improved better.yaml",
    "placer explain model.onnx --gpu orin --html explained.html",
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
    shape: Shapes = None,
    fix: Fix = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    gpu: Annotated[
        str | None,
        option(
            "gpu",
            help="GPU to estimate for, a YAML file, or one of placer fit.",
            default="a100; none with the pack of another engine than TensorRT",
        ),
    ] = None,
    base: Annotated[
        str | None,
        option(
            "base",
            help="Type of what stays float: float16, bfloat16 or float.",
            default="float16 on a GPU, bfloat16 if the file is; or the fit's",
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
    processor: Annotated[
        str | None,
        typer.Option(
            help=f"Kind of the CPU that will run the model: {', '.join(PROCESSORS)}.",
            show_default="the fit's, or this machine's",
            rich_help_panel="Engine",
        ),
    ] = None,
    pack: Annotated[
        str | None,
        option("pack", default="the one that the placement or model names, the fit's, or tensorrt"),
    ] = None,
    scheme: Annotated[
        str | None,
        option(
            "scheme",
            help="Number format other than the pack's own, of a model without pairs or of the "
            "placement.",
        ),
    ] = None,
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
    html: Annotated[
        Path | None,
        typer.Option(help="Write the explanation as a page of its own.", rich_help_panel="Output"),
    ] = None,
    replace: Replace = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every layer and match.", rich_help_panel="Output")
    ] = False,
    as_json: Annotated[bool, json_option("the explanation")] = False,
) -> None:
    """Show the decision at each site, the predicted layers, and the pairs that do not fuse.

    Every time is an estimate, of TensorRT or of what placer fit measured; for other engines there
    is none. Nothing is built or run.
    """
    # Else that is noticed when all is predicted.
    check_writable(plan_file, improved, html, replace=replace)
    explained = placer.explain(
        model,
        placement,
        gpu=gpu,
        base=base,
        weak=weak,
        pack=pack,
        scheme=scheme,
        shapes=shapes_of(shape or []),
        fix=fixes_of(fix or []),
        actual=actual,
        profile=profile,
        processor=processor,
    )
    if plan_file is not None:
        explained.write_plan(plan_file)
    if improved is not None:
        explained.write_improved(improved)
    if html is not None:
        _write_page(model, explained, html)
    if as_json:
        typer.echo(json.dumps(explained.to_json(), indent=2))
        return
    console = output_console()
    heading = f"{model}: {_of_what(explained)}"
    not_built = explained.not_built
    pinned = [f"pinned: {sentence}" for sentence in explained.pinned]
    is_chosen = not (gpu is None and pack is None) or explained.gpu is None
    chosen = [] if is_chosen else [_NOTHING_CHOSEN]
    print_sentences(console, [heading, *chosen, *map(with_flags, not_built)])
    notes = [*pinned, *map(with_flags, explained.notes[len(not_built) :])]
    print_explanation(console, explained, show_all, notes)
    if explained.built is not None:
        print_actual(console, explained.outcomes, explained.built, show_all)


def _of_what(shown: ModelExplanation) -> str:
    estimates = "" if shown.gpu is None else f"estimates for {shown.gpu.name}, "
    processor = f", for {shown.processor}" if shown.processor else ""
    scheme = f", scheme {shown.scheme}" if shown.scheme else ""
    pack = f"pack {shown.pack.name_and_version}{scheme}"
    return f"{shown.source}; {estimates}base {shown.base}, {pack}{processor}"


def _write_page(model: Path, explained: ModelExplanation, path: Path) -> None:
    # Imported only now: help is shown without what takes long to import.
    from placer.report.explanation import Explained, write_explanation  # noqa: PLC0415

    pinned = [f"pinned: {sentence}" for sentence in explained.pinned]
    first = [f"change first: {change.text(show_all=True)}" for change in explained.first_changes]
    advice = [explained.default_advice] if explained.default_advice else []
    facts = [_of_what(explained), *pinned, *advice, *explained.notes, *first]
    timed = explained.gpu is not None
    if not timed:
        facts.append(no_times(explained))
    write_explanation(Explained(model.name, facts, explained.explanation, timed), path)
