"""The command line that repeats a run, from what the run was asked to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields

from placer.optimizer.request import Request
from placer.search.storage import masked

# Options that are not called as the field is; others follow the field's name.
_OPTIONS = {
    "evaluation_data": "eval-data",
    "engine_options": "engine-option",
    "gates": "gate",
    "beats": "beat",
    "warm_starts": "warm-start",
}
_OWN = {"model", "shapes", "shape_ranges", "cache_dir", "devices", "timeout", "storage"}


def command_of(request: Request) -> str:
    """Return ``placer optimize ...`` as a POSIX shell takes it, for the folder it was run in.

    Options that have their default are left out. A password in --storage is masked.
    """
    return shlex.join(["placer", "optimize", str(request.model), *_words(request)])


def _words(request: Request) -> Iterator[str]:
    shapes = {name: "x".join(map(str, shape)) for name, shape in request.shapes.items()}
    shapes |= {name: found.text for name, found in request.shape_ranges.items()}
    for name, text in shapes.items():
        yield from ("--shape", f"{name}={text}")
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name not in _OWN and value not in (field.default, None, {}):
            option = _OPTIONS.get(field.name, field.name.replace("_", "-"))
            for text in _texts(value):
                yield from (f"--{option}", text)
    if request.devices:
        yield from ("--devices", ",".join(request.devices))
    if request.timeout is not None:
        yield from ("--timeout", f"{request.timeout:f}".rstrip("0").rstrip("."))
    if request.storage is not None:
        yield from ("--storage", masked(request.storage))
    if request.cache_dir is None:
        yield "--no-cache"


def _texts(value: object) -> Iterator[str]:
    """The values of an option, which is given once for each."""
    if isinstance(value, Mapping):
        yield from (f"{key}={text}" for key, text in value.items())
    elif isinstance(value, tuple):
        yield from map(str, value)
    else:
        yield str(value)
