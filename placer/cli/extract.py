"""``placer extract``: a region of a model, or the model for one value of an input, as a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

import placer
from placer.cli.options import SHAPE_HELP, CustomOps, PlainReplace, fixes_of, shapes_of
from placer.common.default_outputs import default_output
from placer.errors import InputError

EXAMPLES = (
    "placer extract model.onnx --around /layer1/conv1/Conv --data calibration.npz",
    "placer extract model.onnx --inputs input --outputs features -o backbone.onnx",
    "placer extract vad.onnx --fix sr=16000 --shape input=1x576 -o vad16k.onnx",
)


def extract_command(
    model: Annotated[Path, typer.Argument(help="Any ONNX model, with or without Q/DQ pairs.")],
    inputs: Annotated[
        str,
        typer.Option(help="Tensors where the region begins: A,B.", show_default="graph inputs"),
    ] = "",
    outputs: Annotated[str, typer.Option(help="Tensors where the region ends: C,D.")] = "",
    around: Annotated[
        str | None, typer.Option(help="Node that the region is around, instead of its outputs.")
    ] = None,
    depth: Annotated[int, typer.Option(help="How many edges away from that node it goes.")] = 2,
    data: Annotated[
        str | None,
        typer.Option(help="Calibration data of the whole model; writes that of the region."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File.", show_default="MODEL.region.onnx"),
    ] = None,
    replace: PlainReplace = False,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    fix: Annotated[
        list[str] | None,
        typer.Option(
            help="Give an input one value, NAME=VALUE; any number of times. The whole model is "
            "written without that input, in the shapes of --shape, and the branch that runs "
            "replaces each If that this decides."
        ),
    ] = None,
) -> None:
    """Write the part of a model between tensors or around a node, to examine it alone.

    With it you can narrow down and report what an engine refuses or runs slowly. With --data the
    values that reach the region are written beside it, as placer optimize takes them. With --fix,
    or --shape alone, the whole model is written for these values, without branches that never run.
    """
    is_region = bool(inputs or outputs) or around is not None
    if fix and (is_region or data is not None):
        raise InputError("--fix writes the whole model; leave out other options than --shape")
    if fix or (shape and not is_region):
        _fix(model, _target(model, ".fixed.onnx", output), fix or [], shape or [], replace)
        return
    _check_region(inputs, outputs, around)
    region = placer.extract_region(
        model,
        _target(model, ".region.onnx", output),
        inputs=_names(inputs, model),
        outputs=_names(outputs, model),
        around=around,
        depth=depth,
        data=data,
        shapes=shapes_of(shape or []),
        replace=replace,
    )
    typer.echo(f"inputs: {', '.join(region.inputs)}")
    typer.echo(f"outputs: {', '.join(region.outputs)}")
    data_file = "" if region.data is None else f" and {region.data}"
    typer.echo(f"wrote {region.model} of {_nodes(region.nodes)}{data_file}")


def _target(model: Path, suffix: str, output: Path | None) -> Path:
    """``output``, or the default one; says so where that is about another model."""
    from placer.model.save import source_of  # noqa: PLC0415

    target, note = default_output(model, suffix, source_of, output)
    if note:
        typer.echo(note)
    return target


def _check_region(inputs: str, outputs: str, around: str | None) -> None:
    """Raise InputError unless the region is named in one way."""
    if (around is None) == (outputs == ""):
        raise InputError(
            "give --outputs C,D (and --inputs A,B), --around NODE or --fix NAME=VALUE, one of these"
        )
    if around is not None and inputs:
        raise InputError("--around NODE finds the inputs itself; leave out --inputs")


def _fix(model: Path, output: Path, texts: list[str], shapes: list[str], replace: bool) -> None:
    """Write the model for one value of inputs and say what is left in bodies."""
    values = fixes_of(texts)
    fixed = placer.fix_inputs(model, output, values, shapes_of(shapes), replace=replace)
    without = f", without {', '.join(values)}" if values else ""
    typer.echo(f"wrote {fixed.model} of {_nodes(fixed.nodes)}{without}")
    if fixed.bodies.nodes:
        typer.echo(fixed.bodies.sentence())
    if fixed.uncompared:
        typer.echo(fixed.uncompared)


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _names(text: str, model: Path) -> list[str]:
    """The names in ``A,B``; a name of a tensor of ``model`` may have commas itself.

    Raises InputError where ``text`` can be read in two ways.
    """
    parts = text.split(",")
    if len(parts) < 2:
        return [text] if text else []
    from placer.graph.names import tensor_names  # noqa: PLC0415
    from placer.model.validate import read_model  # noqa: PLC0415

    readings = _readings(parts, tensor_names(read_model(model).graph))
    if len(readings) > 1:
        first, second = (" and ".join(f"'{name}'" for name in names) for names in readings)
        raise InputError(
            f"'{text}' can be read as {first} or as {second}: {model} has tensors of all these "
            "names. Name several in another order, or give placer.extract_region a list in Python"
        )
    return list(readings[0])


def _readings(parts: Sequence[str], known: Collection[str]) -> Sequence[tuple[str, ...]]:
    """Up to two ways to join ``parts`` to names with the fewest that are not ``known``."""
    behind: list[list[tuple[int, tuple[str, ...]]]] = [[(0, ())]]  # Unknown ones, and the names.
    for start in reversed(range(len(parts))):
        found = []
        for end, rests in enumerate(behind, start + 1):
            name = ",".join(parts[start:end])
            if name in known:
                found += [(unknown, (name, *names)) for unknown, names in rests]
            elif not name:
                found += rests
            elif end == start + 1:
                found += [(unknown + 1, (name, *names)) for unknown, names in rests]
        fewest = min(unknown for unknown, _ in found)
        behind.insert(0, [one for one in found if one[0] == fewest][:2])
    return [names for _, names in behind[0]]
