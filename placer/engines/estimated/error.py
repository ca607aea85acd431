"""How far off estimated latencies are, as intervals beside them; measured ones keep their own."""

from __future__ import annotations

from dataclasses import dataclass

from placer.engines.base import Engine
from placer.results.parts import LatencyPart


@dataclass(frozen=True)
class EstimateError:
    """Relative errors that 80% of an engine's estimates stay within; 0 where it measures."""

    latency: float = 0.0
    ratio: float = 0.0

    @staticmethod
    def of(engine: Engine) -> EstimateError:
        """Those that ``engine`` states, if its latencies are estimates."""
        if not engine.estimated:
            return EstimateError()
        latency = float(getattr(engine, "latency_error", 0.0))
        return EstimateError(latency, float(getattr(engine, "ratio_error", 0.0)))

    def widened(self, part: LatencyPart) -> LatencyPart:
        """``part`` with the ends of the 80% interval, its 10th and 90th percentile."""
        factor = 1 + self.latency
        ends = {"p10_ms": part.p10_ms / factor, "p90_ms": part.p90_ms * factor}
        return part.model_copy(update=ends)

    def interval(self, low: float, high: float) -> list[float]:
        """An interval of ratios: of estimates the 80% interval, else ``low`` and ``high``."""
        factor = 1 + self.ratio
        return [low / factor, high * factor]
