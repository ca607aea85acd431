"""Types of fields in rules and manifests: names, edges and texts, and what each must look like."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

TensorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
InputName = Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*|_)[?*]?$")]
OutputName = Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*\*?|_)$")]
Reference = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.([a-z][a-z0-9_]*|\*)$")]
RuleId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Integers = Literal["int8", "uint8", "float8e4m3fn"]  # What activations are quantized to.
EngineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if len(text) < 10:
        raise ValueError("say why in a sentence")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def version_range(text: str) -> str:
    """``text`` if it is a range of versions as in PEP 440, e.g. ``>=1.18,<2``; else ValueError."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"'{text}' is not a version range; write e.g. '>=1.18,<2'") from error
    return text


_STRING_OR_STRINGS = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]
    }
)
Names = Annotated[list[str], BeforeValidator(_one_or_many), Field(min_length=1), _STRING_OR_STRINGS]
OutputNames = Annotated[
    list[OutputName], BeforeValidator(_one_or_many), Field(min_length=1), _STRING_OR_STRINGS
]


def plain(written: str) -> str:
    """A tensor's name without the mark behind it: ``b?`` is ``b``, ``xs*`` is ``xs``."""
    return written.rstrip("?*")


Why = Annotated[str, AfterValidator(_sentence)]
Source = Annotated[str, AfterValidator(_one_line), Field(min_length=3)]
Versions = Annotated[str, AfterValidator(version_range)]


def without_control_characters(data: object) -> object:
    """``data`` if no text in it has control characters; raises ValueError else.

    Texts of a pack are printed, and an escape sequence in one could rewrite the terminal.
    """
    for text in _strings(data):
        if text.isprintable():
            continue
        if any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text):
            raise ValueError(f"control characters are not allowed; remove them from {text[:40]!r}")
    return data


def _strings(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _strings(key)
            yield from _strings(value)
    elif isinstance(data, list):
        for value in data:
            yield from _strings(value)
