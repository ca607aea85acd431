"""The base precisions, as ``--base`` names them."""

from __future__ import annotations

from typing import Literal

from placer.common.names import unknown
from placer.errors import InputError

Base = Literal["float16", "bfloat16", "float"]
InputOutputTypes = Literal["keep", "convert"]
BASES: tuple[Base, ...] = ("float16", "bfloat16", "float")


def parse_base(text: str) -> Base:
    """The type that ``text`` names; InputError for any other."""
    for base in BASES:
        if text == base:
            return base
    raise InputError(unknown("base", text, BASES))
