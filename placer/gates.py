"""Gates: conditions that a candidate must meet, and their evaluation over data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from placer.accuracy import ChannelGroup, Comparison, channel_groups, finite
from placer.errors import InputError
from placer.graph import Graph
from placer.user_code import UserCode, load_function

# Direction in which each metric is good.
METRICS = {
    "sqnr": ">=",
    "cosine": ">=",
    "max_abs": "<=",
    "argmax_agreement": ">=",
    "top1": ">=",
    "top1_drop": "<=",
}
LABEL_METRICS = ("top1", "top1_drop")
# What a value that is not a number counts as in a constraint, which must be finite.
_FAR = 1e9

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
Custom = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], float]


class Sample(Protocol):
    """One batch of evaluation data."""

    @property
    def inputs(self) -> Mapping[str, np.ndarray]:
        """Input tensors by name."""

    @property
    def labels(self) -> np.ndarray | None:
        """Class indices, None without labels."""


class Samples(Protocol):
    """Evaluation data: can be iterated any number of times, in the same order."""

    def __iter__(self) -> Iterator[Sample]:
        """Yield the batches."""


@dataclass(frozen=True)
class Gate:
    """``metric>=threshold`` or ``metric<=threshold``, for one output if ``output`` is set.

    ``metric`` is one of ``METRICS`` or ``module:function``, a function of (outputs, batch) that
    returns a number, averaged over batches; batch holds the inputs, and ``labels`` if given.
    """

    metric: str
    comparison: str
    threshold: float
    output: str | None = None

    @staticmethod
    def parse(text: str) -> Gate:
        """Read ``sqnr>=15``, ``cosine>=0.99@logits`` or ``module:function<=0.1``.

        Raises InputError for an unknown metric, a bad number or the wrong direction.
        """
        match = re.fullmatch(r"\s*([^<>=\s]+)\s*(>=|<=)\s*([^@\s]+?)\s*(?:@\s*(\S+)\s*)?", text)
        if match is None:
            raise InputError(f"--gate '{text}' is no condition; write e.g. sqnr>=15")
        metric, comparison, number, output = match.groups()
        if metric not in METRICS and ":" not in metric:
            known = ", ".join(METRICS)
            raise InputError(
                f"--gate '{text}': unknown metric '{metric}'; use one of {known}, or "
                "module:function"
            )
        right = METRICS.get(metric, comparison)
        if comparison != right:
            raise InputError(f"--gate '{text}' points the wrong way; write {metric}{right}{number}")
        try:
            threshold = float(number)
        except ValueError as error:
            raise InputError(f"--gate '{text}': '{number}' is no number") from error
        if not math.isfinite(threshold):
            raise InputError(f"--gate '{text}': the threshold must be finite")
        return Gate(metric, comparison, threshold, output)

    def text(self) -> str:
        """The gate as the user writes it."""
        at = f"@{self.output}" if self.output else ""
        return f"{self.metric}{self.comparison}{self.threshold:g}{at}"


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

    def to_json(self) -> dict[str, Any]:
        """Fields of result.json; a value that is not finite is null."""
        return {
            "gate": self.gate.text(),
            "value": finite(self.value),
            "where": self.where,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Evaluation:
    """What one candidate scored: its gates and all built-in metrics by where they were taken.

    ``noise``: the worst error power over signal power of all channel groups.
    """

    gates: tuple[GateValue, ...]
    metrics: Mapping[str, float]
    noise: float

    @property
    def sqnr(self) -> float:
        """``noise`` in dB: the worst SQNR of all channel groups."""
        if self.noise == 0:
            return math.inf
        return -math.inf if math.isinf(self.noise) else -10 * math.log10(self.noise)

    @property
    def passed(self) -> bool:
        """Whether all gates are met."""
        return all(value.passed for value in self.gates)


def default_gates(has_labels: bool) -> tuple[Gate, ...]:
    """``top1_drop<=0.01`` with labels, else ``sqnr>=15`` (dB)."""
    return (Gate.parse("top1_drop<=0.01" if has_labels else "sqnr>=15"),)


class Evaluator:
    """Evaluates candidates against the float model on the same data.

    ``samples`` is iterated once per candidate; the float model's outputs are computed once and
    kept in memory. Raises InputError for a gate
    on labels without labels, on an unknown output, or with a function that cannot be used.
    """

    def __init__(
        self, graph: Graph, gates: tuple[Gate, ...], samples: Samples, reference: Run
    ) -> None:
        self._gates = gates
        self._samples = samples
        self._groups = _float_groups(graph)
        self._all_outputs = graph.outputs
        for gate in gates:
            self._check(gate)
        self._custom = {g: load_function(g.metric) for g in gates if g.metric not in METRICS}
        self._references = [dict(reference(sample.inputs)) for sample in self._samples]
        self._check_labels()

    def evaluate(self, run: Run) -> Evaluation:
        """Run all samples through ``run`` and compare."""
        comparison = Comparison.of(self._groups)
        totals = dict.fromkeys(self._custom, 0.0)
        for sample, reference in zip(self._samples, self._references, strict=True):
            outputs = run(sample.inputs)
            comparison.add(reference, outputs, sample.labels)
            for gate, function in self._custom.items():
                totals[gate] += _call(gate.metric, function, outputs, sample)
        means = {gate: total / len(self._references) for gate, total in totals.items()}
        values = tuple(
            GateValue(gate, means[gate], "all outputs")
            if gate in means
            else self._worst(gate, comparison)
            for gate in self._gates
        )
        return Evaluation(
            gates=values,
            metrics={**self._metrics(comparison), **{g.metric: v for g, v in means.items()}},
            noise=max((sums.noise for sums in comparison.groups.values()), default=0.0),
        )

    def reference_metrics(self) -> dict[str, float]:
        """What the float model itself scores on labels, by the same names."""
        comparison = Comparison.of(self._groups)
        for sample, reference in zip(self._samples, self._references, strict=True):
            comparison.add(reference, reference, sample.labels)
        return {k: v for k, v in self._metrics(comparison).items() if k.startswith("top1 ")}

    def _check(self, gate: Gate) -> None:
        if gate.output is not None and gate.output not in self._all_outputs:
            known = ", ".join(self._all_outputs)
            raise InputError(f"gate {gate.text()}: the model has no such output; it has: {known}")
        if gate.metric in LABEL_METRICS and not self._has_labels:
            raise InputError(
                f"gate {gate.text()} needs labels; add an array named 'labels' to the data"
            )
        if gate.metric in ("sqnr", "cosine", "max_abs") and not self._groups:
            raise InputError(f"gate {gate.text()}: the model has no float output")

    @cached_property
    def _has_labels(self) -> bool:
        return any(sample.labels is not None for sample in self._samples)

    def _check_labels(self) -> None:
        if not any(gate.metric in LABEL_METRICS for gate in self._gates):
            return
        comparison = Comparison.of(self._groups)
        first = next(iter(self._samples))
        comparison.add(self._references[0], self._references[0], first.labels)
        if not any(counts.labelled for counts in comparison.classes.values()):
            raise InputError(
                "labels fit no output: give one class index per position of an output's last axis"
            )

    def _worst(self, gate: Gate, comparison: Comparison) -> GateValue:
        scored = [
            (value, where)
            for metric, output, value, where in _scores(comparison)
            if metric == gate.metric and gate.output in (None, output)
        ]
        if not scored:
            return GateValue(gate, math.nan, "no output that has this metric")
        sign = 1 if gate.comparison == ">=" else -1
        value, where = min(scored, key=lambda s: -math.inf if math.isnan(s[0]) else sign * s[0])
        return GateValue(gate, value, where)

    def _metrics(self, comparison: Comparison) -> dict[str, float]:
        return {f"{metric} {where}": value for metric, _, value, where in _scores(comparison)}


def _float_groups(graph: Graph) -> tuple[ChannelGroup, ...]:
    return tuple(g for g in channel_groups(graph) if graph.type_of(g.output).is_float)


def _scores(comparison: Comparison) -> Iterable[tuple[str, str, float, str]]:
    """Metric, output, value and where, for all built-in metrics that apply."""
    for group, sums in comparison.groups.items():
        for metric in ("sqnr", "cosine", "max_abs"):
            yield metric, group.output, getattr(sums, metric), group.name
    for output, counts in comparison.classes.items():
        if counts.positions:
            yield "argmax_agreement", output, counts.agreement, output
        if counts.labelled:
            yield "top1", output, counts.top1, output
            yield "top1_drop", output, counts.reference_top1 - counts.top1, output


def _call(
    metric: str, function: Custom, outputs: Mapping[str, np.ndarray], sample: Sample
) -> float:
    batch = dict(sample.inputs)
    if sample.labels is not None:
        batch["labels"] = sample.labels
    with UserCode(f"gate {metric}", "make it return a number"):
        return float(function(outputs, batch))
    raise AssertionError  # UserCode lets no exception pass.
