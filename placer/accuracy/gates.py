"""Gates: conditions that a candidate must meet, and their evaluation over data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TypeAlias

from placer.accuracy.metrics import finite
from placer.common.names import unknown
from placer.common.statistics import Ratio
from placer.errors import InputError

# Direction in which each metric is good.
METRICS = {
    "sqnr": ">=",
    "cosine": ">=",
    "max_abs": "<=",
    "argmax_agreement": ">=",
    "top1": ">=",
    "top1_drop": "<=",
}
FLOAT_METRICS = ("sqnr", "cosine")
LABEL_METRICS = ("top1", "top1_drop")
METRIC_NEEDS = {
    "sqnr": "a float output",
    "cosine": "a float output",
    "max_abs": "an output of numbers",
    "argmax_agreement": "an output with classes along its last axis",
}
# Metrics that are shares of positions or labels, often taken for percent.
_SHARES = ("argmax_agreement", *LABEL_METRICS)
# The least and the largest value of metrics that have one.
_LIMITS = {
    "cosine": (-1, 1),
    "max_abs": (0, math.inf),
    "argmax_agreement": (0, 1),
    "top1": (0, 1),
    "top1_drop": (-1, 1),
}
# What a value that is not a number counts as in a constraint, which must be finite.
_FAR = 1e9


@dataclass(frozen=True)
class Gate:
    """``metric>=threshold`` or ``metric<=threshold``, for one output if ``output`` is set.

    ``metric`` is one of ``METRICS`` or ``module:function``, a function of (outputs, batch) that
    returns a number, averaged over batches; batch holds the inputs, and ``labels`` if given.
    Without ``output`` a built-in metric's worst value over all outputs that have it decides;
    metrics on labels take the one output that the labels fit.
    """

    metric: str
    comparison: str
    threshold: float
    output: str | None = None

    @staticmethod
    def parse(text: str) -> Gate:
        """Read ``sqnr>=15``, ``cosine>=0.99@logits`` or ``module:function<=0.1``.

        Raises InputError for an unknown metric, a bad number, the wrong direction, and a threshold
        that tells nothing.
        """
        gate = Gate.parse_stored(text)
        gate._check_limits()
        return gate

    @staticmethod
    def parse_stored(text: str) -> Gate:
        """``parse`` for gates of finished runs, whose thresholds an earlier version may have taken.

        Raises InputError for what is not a gate.
        """
        match = re.fullmatch(r"\s*([^<>=\s]+)\s*(>=|<=)\s*([^@\s]+?)\s*(?:@\s*(\S+)\s*)?", text)
        if match is None:
            raise InputError(f"gate '{text}' is not a condition; write e.g. sqnr>=15")
        metric, comparison, number, output = match.groups()
        if metric not in METRICS and ":" not in metric:
            raise InputError(
                f"gate '{text}': {unknown('metric', metric, METRICS, 'module:function')}"
            )
        right = METRICS.get(metric, comparison)
        if comparison != right:
            raise InputError(f"gate '{text}' points the wrong way; write {metric}{right}{number}")
        try:
            threshold = float(number)
        except ValueError as error:
            raise InputError(f"gate '{text}': '{number}' is not a number") from error
        if not math.isfinite(threshold):
            raise InputError(f"gate '{text}': the threshold must be finite")
        if output is not None and metric not in METRICS:
            raise InputError(f"gate '{text}': a function gets all outputs; leave out @{output}")
        return Gate(metric, comparison, threshold, output)

    def _tells_models_apart(self) -> bool:
        least, most = _LIMITS.get(self.metric, (-math.inf, math.inf))
        if self.comparison == ">=":
            return least < self.threshold <= most
        return least <= self.threshold < most

    def _check_limits(self) -> None:
        """Raise InputError for a threshold that no model can meet, or that every model meets."""
        if self._tells_models_apart():
            return
        least, most = _LIMITS[self.metric]
        is_low = self.threshold <= least
        is_met = is_low == (self.comparison == ">=")
        bound = f"{'least' if is_low else 'most'} {least if is_low else most}"
        advice = f"give at {bound}"
        if is_met:
            advice = f"give more than {least}" if is_low else f"give less than {most}"
        share = replace(self, threshold=float(f"{self.threshold / 100:g}"))
        if not is_low and self.metric in _SHARES and share._tells_models_apart():
            advice = f"for {self.threshold:g}% write {share.text()}"
        raise InputError(
            f"gate '{self.text()}': {self.metric} is at {bound}, so every model "
            f"{'meets' if is_met else 'misses'} it; {advice}"
        )

    def text(self) -> str:
        """The gate as the user writes it."""
        at = f"@{self.output}" if self.output else ""
        # repr has all digits: gates that differ must not read the same.
        return f"{self.metric}{self.comparison}{repr(self.threshold).removesuffix('.0')}{at}"


@dataclass(frozen=True)
class GateResult:
    """How a candidate did by one gate, as trials and results keep it.

    ``gate``: as the user writes it. ``value``: None if it is not finite. ``violation``: at most 0
    if the gate is met, and always finite (Optuna's convention).
    """

    gate: str
    value: float | None
    where: str
    violation: float

    @property
    def passed(self) -> bool:
        """Whether the gate is met."""
        return self.violation <= 0


@dataclass(frozen=True)
class GateValue:
    """A gate's worst value over outputs and channel groups, and where that is."""

    gate: Gate
    value: float
    where: str

    @property
    def violation(self) -> float:
        """At most 0 if the gate is met, and always finite (Optuna's convention)."""
        sign = 1 if self.gate.comparison == ">=" else -1
        missing = sign * (self.gate.threshold - self.value)
        if math.isnan(missing):
            return _FAR
        return max(-_FAR, min(_FAR, missing))

    @property
    def passed(self) -> bool:
        """Whether the gate is met."""
        return self.violation <= 0

    def result(self) -> GateResult:
        """What is kept of it."""
        return GateResult(self.gate.text(), finite(self.value), self.where, self.violation)


@dataclass(frozen=True)
class LatencyValue:
    """A candidate's latency over that of what is to be beaten, from interleaved rounds.

    The gate is met unless the candidate is slower outside the noise: unless the whole 95% interval
    of the ratio lies above 1.
    """

    baseline: str
    ratio: Ratio

    @property
    def gate(self) -> Gate:
        """The condition, e.g. ``implicit<=1``."""
        return Gate(self.baseline, "<=", 1.0)

    @property
    def violation(self) -> float:
        """By how much even the lower end of the interval is above 1; at most 0 if it is not."""
        return self.ratio.low - 1

    @property
    def passed(self) -> bool:
        """Whether the gate is met."""
        return self.violation <= 0

    def result(self) -> GateResult:
        """What is kept of it."""
        low, high = self.ratio.low, self.ratio.high
        where = f"latency over that of {self.baseline}, 95% interval {low:.3f} to {high:.3f}"
        return GateResult(self.gate.text(), self.ratio.median, where, self.violation)


AnyGateValue: TypeAlias = GateValue | LatencyValue


def default_gates(has_labels: bool, has_floats: bool = True) -> tuple[Gate, ...]:
    """``top1_drop<=0.01`` with labels, else ``sqnr>=15`` (dB).

    A model without float outputs has no SQNR: as many of its integers as of top1 are to stay.
    """
    if has_labels:
        return (Gate.parse("top1_drop<=0.01"),)
    return (Gate.parse("sqnr>=15" if has_floats else "argmax_agreement>=0.99"),)
