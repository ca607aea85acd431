"""The option ``beats``: the latency of another engine of the same model as a gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.accuracy.gates import LatencyValue
from placer.accuracy.latency_gates import Beat
from placer.common.statistics import Ratio, paired_ratio
from placer.engines.abilities import HasImplicit, abilities_of
from placer.engines.base import Compiled, Engine
from placer.engines.tensorrt.library import NO_IMPLICIT
from placer.errors import InputError

# Columns of all measurements that LatencyBaselines judges; those of other baselines follow.
FLOAT, CANDIDATE, IMPLICIT = 0, 1, 2


def implicit_engine(engine: Engine) -> HasImplicit:
    """Return ``engine``; InputError if it has no implicit quantization."""
    if "implicit" in abilities_of(engine) and isinstance(engine, HasImplicit):
        return engine
    raise InputError(f"beat implicit: engine {engine.name} {engine.version} {NO_IMPLICIT}")


@dataclass(frozen=True, eq=False)
class LatencyBaselines:
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
    baseline = FLOAT if beat == "float" else IMPLICIT
    return paired_ratio(seconds[:, column], seconds[:, baseline])
