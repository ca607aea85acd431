"""Which latencies a result must not be behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from placer.common.names import unknown
from placer.errors import InputError

# float: the float model. implicit: the INT8 engine that TensorRT makes of it by itself.
Beat = Literal["float", "implicit"]
BEATS: tuple[Beat, ...] = ("float", "implicit")


def parse_beats(texts: Sequence[str]) -> tuple[Beat, ...]:
    """What ``texts`` name, each once; InputError for anything else."""
    for text in texts:
        if text not in BEATS:
            raise InputError(unknown("beat", text, BEATS))
    return tuple(beat for beat in BEATS if beat in texts)
