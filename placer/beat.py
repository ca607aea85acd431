"""``--beat``: the latency of another engine of the same model as a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from placer.engines.abilities import HasImplicit, abilities_of
from placer.engines.base import Compiled, Engine
from placer.errors import InputError
from placer.gates import LatencyValue
from placer.search.race import Ratio, paired_ratio
from placer.trt.library import NO_IMPLICIT

# float: the float model. implicit: the INT8 engine that TensorRT makes of it by itself.
Beat = Literal["float", "implicit"]
BEATS: tuple[Beat, ...] = ("float", "implicit")
# Columns of all measurements that Rivals judges; those of other rivals follow.
FLOAT, CANDIDATE, IMPLICIT = 0, 1, 2


def parse_beats(texts: Sequence[str]) -> tuple[Beat, ...]:
    """What --beat names, each once; InputError for anything else."""
    for text in texts:
        if text not in BEATS:
            raise InputError(f"--beat '{text}' is unknown; use one of: {', '.join(BEATS)}")
    return tuple(beat for beat in BEATS if beat in texts)


def implicit_engine(engine: Engine) -> HasImplicit:
    """Return ``engine``; InputError if it has no implicit quantization."""
    if "implicit" in abilities_of(engine) and isinstance(engine, HasImplicit):
        return engine
    raise InputError(f"--beat implicit: engine {engine.name} {engine.version} {NO_IMPLICIT}")


@dataclass(frozen=True, eq=False)
class Rivals:
    """What candidates must not be slower than; ``implicit`` is compiled if it is one of them."""

    beats: tuple[Beat, ...] = ()
    implicit: Compiled | None = None

    @property
    def measured(self) -> list[Compiled]:
        """What is measured in the rounds of the float model and the candidate, after these."""
        return [] if self.implicit is None else [self.implicit]

    def gates(self, seconds: np.ndarray, column: int = CANDIDATE) -> tuple[LatencyValue, ...]:
        """The gates of the model in ``column`` of ``seconds``.

        ``seconds``: shape (rounds, 2 + len(measured)), columns float model, candidate, measured.
        """
        return tuple(LatencyValue(beat, _ratio(seconds, column, beat)) for beat in self.beats)


def _ratio(seconds: np.ndarray, column: int, beat: Beat) -> Ratio:
    rival = FLOAT if beat == "float" else IMPLICIT
    return paired_ratio(seconds[:, column], seconds[:, rival])
