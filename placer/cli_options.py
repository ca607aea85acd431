"""Values of command-line options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence

from placer.errors import InputError
from placer.model import parse_shape


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Input shapes by name; InputError if one is given twice."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, shape = parse_shape(text)
        if name in shapes:
            raise InputError(f"--shape names input '{name}' twice; give it once")
        shapes[name] = shape
    return shapes


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
