"""The command line that repeats a run, from what the run was asked to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from placer.common.shapes import ShapeRange
from placer.optimizer.options.request import Request, options
from placer.quantization.overrides import Override
from placer.search.study.storage import masked


def command_of(request: Request) -> str:
    """Return ``placer optimize ...`` as a POSIX shell takes it, for the folder it was run in.

    Options that have their default are left out. A password in the storage's URL is masked.
    """
    given = {
        known.keyword: value
        for known in options().values()
        if (value := getattr(request, known.field)) not in (known.default, None, {})
    }
    given["cache"] = request.cache_dir is not None
    if request.storage is not None:
        given["storage"] = masked(request.storage)
    return shlex.join(["placer", "optimize", str(request.model), *words_of(given)])


def words_of(given: Mapping[str, object]) -> Iterator[str]:
    """The words that give options, by their keywords, to ``placer optimize``."""
    for known in options().values():
        value = given.get(known.keyword)
        if known.keyword == "fix" and isinstance(value, Mapping):
            for name, number in value.items():
                yield from (known.flag, f"{name}={_number(number)}")
        elif isinstance(value, bool):
            if not value:
                yield f"--no-{known.keyword}"
        elif known.keyword == "devices" and value:
            yield from (known.flag, ",".join(_texts(value)))
        elif known.keyword == "overrides" and isinstance(value, tuple | list):
            for one in value:
                yield from (known.flag, str(Override.of(one)))
        elif value is not None:
            for text in _texts(value):
                yield from (known.flag, text)


def _texts(value: object) -> Iterator[str]:
    """The values of an option, which is given once for each."""
    if isinstance(value, Mapping):
        yield from (f"{key}={_text(one)}" for key, one in value.items())
    elif isinstance(value, tuple | list):
        yield from map(str, value)
    else:
        yield _text(value)


def _number(value: float) -> str:
    """The shortest text that is read as ``value`` again."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def _text(value: object) -> str:
    if isinstance(value, ShapeRange):
        return value.text
    # Never an exponent, which no duration has.
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
