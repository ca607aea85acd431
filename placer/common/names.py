"""Names that are looked up in a set: what is said of one that is not in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

# Ratio of difflib from which on a name is meant: `fp16` is near to `float16`, `trt` to `tensorrt`.
_NEAR = 0.54

_TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "tensorrt": "TensorRT",
    "tensorrt-rtx": "TensorRT-RTX",
}


# What people call engines for short, by the name without separators.
_SHORT = {
    "ort": "onnxruntime",
    "ov": "openvino",
    "rtx": "tensorrt-rtx",
    "trt": "tensorrt",
    "trtrtx": "tensorrt-rtx",
}


def engine_title(name: str) -> str:
    """The name of an engine in a sentence: as its makers write it, where that is known."""
    return _TITLES.get(name, name)


def texts_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Texts, of which one may be given by itself."""
    return (given,) if isinstance(given, str) else tuple(given)


def unknown(what: str, name: object, known: Iterable[str], others: str = "") -> str:
    """The sentence ``unknown WHAT 'NAME'; use one of: A, B; did you mean 'A'?``.

    The question is left out if no name is near. ``others``: what else is taken, in words.
    """
    names = list(known)
    if not names:
        return f"unknown {what} '{name}'; there is none"
    listed = ", ".join(names) + (f", or {others}" if others else "")
    return f"unknown {what} '{name}'; use one of: {listed}{near(name, names)}"


def near(name: object, known: Iterable[str]) -> str:
    """``; did you mean 'A'?`` for the known name that is like ``name``, else nothing.

    What ``name`` is short for comes first, where that is known. One that ``name`` begins comes
    before one in which letters differ: ``rtx3060`` is an ``rtx-3060-laptop`` sooner than an
    ``rtx-3090``.
    """
    by_lower = {one.lower(): one for one in known}
    wanted = _letters(str(name))
    if (meant := _SHORT.get(wanted)) in by_lower:
        return f"; did you mean '{meant}'?"
    begun = [one for one in by_lower if _letters(one).startswith(wanted)] if wanted else []
    matches = sorted(begun, key=len) or get_close_matches(
        str(name).lower(), by_lower, n=1, cutoff=_NEAR
    )
    return f"; did you mean '{by_lower[matches[0]]}'?" if matches else ""


def _letters(name: str) -> str:
    """``name`` without case and separators."""
    return re.sub(r"[\W_]", "", name.lower())
