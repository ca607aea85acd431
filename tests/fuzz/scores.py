"""Metrics of outputs against others, written anew from what docs/gates.md says of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

Outputs = Mapping[str, np.ndarray]
_GATE = re.compile(r"(\w+)(>=|<=)([^@]+)(?:@(.+))?")
METRICS = ("sqnr", "cosine", "max_abs", "argmax_agreement")
_PART = re.compile(r"(\d+):(\d+), axis (\d+)")
# Noise below this share of the signal is rounding of float32, which kernels do differently.
_EXACT = 1e-9
# Of 636 values that were recomputed, of all metrics, none was off by more than 7e-6 of itself.
_SHARE = 0.02


def parsed(gate: str) -> tuple[str, str, float]:
    """Metric, comparison and number of a gate."""
    found = _GATE.fullmatch(gate)
    if found is None:
        raise ValueError(f"no gate: {gate}")
    return found[1], found[2], float(found[3])


def holds(gate: str, value: float) -> bool:
    """Whether ``value`` meets the gate."""
    _, comparison, number = parsed(gate)
    return value >= number if comparison == ">=" else value <= number


def score(metric: str, where: str, wanted: Sequence[Outputs], found: Sequence[Outputs]) -> float:
    """A metric over all samples, of an output or of a part such as ``y[0:4, axis 1]``."""
    pairs = list(zip(_values(where, wanted), _values(where, found), strict=True))
    if metric == "max_abs":
        return max(float(np.abs(w - f).max(initial=0)) for w, f in pairs)
    if metric == "argmax_agreement":
        same = [_classes(w) == _classes(f) for w, f in pairs]
        return float(np.concatenate([s.ravel() for s in same]).mean())
    error = sum(float(np.square(w - f).sum()) for w, f in pairs)
    signal = sum(float(np.square(w).sum()) for w, _ in pairs)
    if metric == "sqnr":
        ratio = signal / error if error else math.inf
        return 10 * math.log10(ratio) if ratio > 0 else -math.inf
    other = sum(float(np.square(f).sum()) for _, f in pairs)
    product = sum(float((w * f).sum()) for w, f in pairs)
    return 1.0 if not error else product / math.sqrt(signal * other) if signal * other else 0.0


def rounding(metric: str, where: str, wanted: Sequence[Outputs]) -> float:
    """What rounding of float32, which kernels do differently, may change of a metric.

    Of ``max_abs`` a millionth of the largest value; of ``argmax_agreement`` the share of classes
    whose value another one comes as near to.
    """
    values = _values(where, wanted)
    step = 1e-6 * max(float(np.abs(v).max(initial=0)) for v in values)
    if metric == "max_abs":
        return step
    if metric != "argmax_agreement":
        return 0.0
    rows = [np.moveaxis(v, 1 if v.ndim == 2 else -1, -1) for v in values]
    ties = [(row >= row.max(-1, keepdims=True) - step).sum(-1) > 1 for row in rows]
    return float(np.concatenate([t.ravel() for t in ties]).mean())


def _values(where: str, outputs: Sequence[Outputs]) -> list[np.ndarray]:
    """The values of an output or a part such as ``y[0:4, axis 1]``, by sample."""
    name, _, spans = where.partition("[")
    if name not in outputs[0]:  # An output whose name has brackets itself.
        name, spans = where, ""
    parts = [(int(a), int(b), int(axis)) for a, b, axis in _PART.findall(spans)]
    return [_cut(found[name], parts).astype("f8") for found in outputs]


def _cut(values: np.ndarray, parts: Sequence[tuple[int, int, int]]) -> np.ndarray:
    for start, stop, axis in parts:
        values = values.take(range(start, stop), axis)
    return values


def _classes(values: np.ndarray) -> np.ndarray:
    classes: np.ndarray = values.argmax(1 if values.ndim == 2 else -1)
    return classes


def agrees(metric: str, told: float | None, found: float, slack: float) -> bool:
    """Whether a value that was told is the one ``found``, but for rounding; None is infinity.

    ``slack``: see ``rounding``.
    """
    value = math.inf if told is None else told
    match metric:
        case "sqnr":
            one, other = (10 ** (-v / 10) for v in (value, found))
            return abs(one - other) <= _EXACT + _SHARE * max(one, other)
        case "cosine":
            return abs(value - found) <= 1e-6 + _SHARE * abs(1 - found)
        case _:
            return abs(value - found) <= 1e-5 + slack + _SHARE * abs(found)
