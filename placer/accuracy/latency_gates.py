"""Which latencies a result must not be behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from placer.errors import InputError

# float: the float model. implicit: the INT8 engine that TensorRT makes of it by itself.
Beat = Literal["float", "implicit"]
BEATS: tuple[Beat, ...] = ("float", "implicit")


def parse_beats(texts: Sequence[str]) -> tuple[Beat, ...]:
    """What --beat names, each once; InputError for anything else."""
    for text in texts:
        if text not in BEATS:
            raise InputError(f"--beat '{text}' is unknown; use one of: {', '.join(BEATS)}")
    return tuple(beat for beat in BEATS if beat in texts)
