"""Options of the command line: those of a run as ``Request`` defines them, and their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from placer.common.custom_ops import custom_ops
from placer.common.shapes import Shape, ShapeRange, optima, parse_shape_range
from placer.errors import InputError
from placer.optimizer.options.request import options

SHAPE_HELP = options()["shapes"].option.help


def option(
    keyword: str,
    *short: str,
    help: str = "",
    default: str | None = "",
    choices: Sequence[str] = (),
    callback: Callable[..., Any] | None = None,
) -> Any:
    """The option of ``Request`` that ``keyword`` names in Python, for a command's signature.

    ``help``, ``default`` (in words) and ``choices``: where this command says something else.
    ``default`` None: there is none, as the command needs the option.
    ``callback``: what is done with the value before the command begins.
    """
    known = options()[keyword]
    values = choices or known.choices
    names = () if keyword == "cache" else (known.flag, *short)
    return typer.Option(
        *names,
        help=help or known.option.help,
        show_default=default is not None and (default or known.option.default or True),
        rich_help_panel=known.option.group,
        callback=callback,
        autocompletion=_completion(values) if values else None,
    )


def json_option(what: str = "") -> Any:
    """The option ``--json``, for a command's signature; ``what`` it prints, if not everything."""
    shown = f"Print {what} as JSON." if what else "Print JSON."
    return typer.Option("--json", help=shown, rich_help_panel="Output")


def _completion(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """What a shell offers; the values themselves are checked with all others of a request."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _load_custom_ops(context: typer.Context, libraries: list[Path] | None) -> list[Path] | None:
    if libraries:
        context.with_resource(custom_ops(*libraries))
    return libraries


# Options that several commands take as they are.
Shapes = Annotated[list[str] | None, option("shapes")]
# The library is there for all that the command does.
CustomOps = Annotated[list[Path] | None, option("custom_ops", callback=_load_custom_ops)]
Fix = Annotated[list[str] | None, option("fix")]
OwnBase = Annotated[
    str | None,
    option(
        "base",
        help="Type that OpenVINO computes float models in: float or bfloat16.",
        default="the one that each file names, else float",
        choices=("float", "bfloat16"),
    ),
]
Threads = Annotated[int, option("threads")]
Device = Annotated[str | None, option("device")]
EngineOptions = Annotated[list[str] | None, option("engine_options")]
# For commands that write files of the user's choice; the second where options have no panels.
_REPLACE_HELP = "Write over files that no run of placer wrote."
Replace = Annotated[bool, typer.Option("--replace", help=_REPLACE_HELP, rich_help_panel="Output")]
PlainReplace = Annotated[bool, typer.Option("--replace", help=_REPLACE_HELP)]


def with_flags(text: str) -> str:
    """What the library says, which names an option in backticks, with the option's flag."""
    return re.sub(r"`(\w+)`", lambda match: _flag(match[1]), text)


def _flag(name: str) -> str:
    known = options().get(name)
    return f"--{name.replace('_', '-')}" if known is None else known.flag


def shape_ranges_of(texts: Sequence[str]) -> dict[str, ShapeRange]:
    """Ranges of input shapes by name; InputError if one is given twice."""
    ranges: dict[str, ShapeRange] = {}
    for text in texts:
        name, shape_range = parse_shape_range(text)
        if name in ranges:
            raise InputError(f"--shape names input '{name}' twice; give it once")
        ranges[name] = shape_range
    return ranges


def shapes_of(texts: Sequence[str]) -> dict[str, Shape]:
    """Input shapes by name, the optimum of a range; InputError if one is given twice."""
    return optima(shape_ranges_of(texts))


def fixes_of(texts: Sequence[str]) -> dict[str, float]:
    """Values of inputs by name; InputError for anything that is not NAME=VALUE."""
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or math.isnan(value):
            raise InputError(f"--fix '{text}' is not NAME=VALUE, e.g. sr=16000")
        if name in values:
            raise InputError(f"--fix names input '{name}' twice; give it once")
        values[name] = value
    return values


def engine_options(texts: Sequence[str]) -> dict[str, str]:
    """Values by key; InputError for anything that is not KEY=VALUE."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InputError(f"--engine-option '{text}' is not KEY=VALUE; write e.g. target=cuda")
        if key in options:
            raise InputError(f"--engine-option names '{key}' twice; give it once")
        options[key] = value
    return options
