"""Judge a candidate's outputs by metrics and gates against the float model's."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from placer.accuracy.channel_groups import ChannelGroup, channel_groups
from placer.accuracy.evaluation import Evaluation, Run, Sample, Samples, Score
from placer.accuracy.gate_labels import label_output, read_labels
from placer.accuracy.gates import LABEL_METRICS, METRIC_NEEDS, METRICS, Gate, GateValue
from placer.accuracy.metrics import Comparison, GroupSums
from placer.common.names import unknown
from placer.common.ort_session import blamed_on
from placer.common.user_code import UserCode, load_function
from placer.errors import InputError
from placer.graph import Graph
from placer.graph.port_arithmetic import as_numbers, integer_ports, numeric_outputs

log = logging.getLogger(__name__)


# What the float model scores against itself, unless its outputs are not finite.
_PERFECT = {"sqnr": math.inf, "cosine": 1.0, "max_abs": 0.0, "argmax_agreement": 1.0}
# What is kept of the float model's scores, which are in no metric.
_SCORE_BYTES = 2**28
_NOT_NUMBERS = (None, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)

Custom = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], float]


class Evaluator:
    """Evaluates candidates against the float model on the same data.

    ``samples`` is iterated once per candidate; the float model's outputs are computed once and
    kept in memory. A part of an output that is zero throughout has no signal to compare with, so
    ``sqnr`` and ``cosine`` leave it out; the whole output still counts. Quantized outputs
    are compared by the numbers that they stand for.

    Raises InputError for a gate on labels without labels, with labels that do not fit, or that the
    float model meets no better than by guessing (``placer.accuracy.labels``), on an output that is
    unknown, has no such metric or is not finite in the float model, or with a function that cannot
    be used; and for a sample that makes an index of the float model out of range.
    """

    def __init__(
        self,
        graph: Graph,
        gates: tuple[Gate, ...],
        samples: Samples,
        reference: Run,
        *,
        tell_silent: bool = True,
        scores: Collection[str] = (),
    ) -> None:
        """``tell_silent``: log which parts are zero, which says little of a few samples.

        ``scores``: outputs of ``graph`` that have noise and are in no metric.
        """
        self._unjudged = frozenset(scores)
        self._gates = gates
        self._samples = samples
        self._groups = _number_groups(graph)
        self._ports = {p.integers: p for p in integer_ports(graph) if not p.is_input}
        self._floats = numeric_outputs(graph)
        self._custom = {g: load_function(g.metric) for g in gates if g.metric not in METRICS}
        on_labels = [gate for gate in gates if gate.metric in LABEL_METRICS]
        self._labels = read_labels(samples, on_labels)
        self._references = list(self._outputs_of(reference))
        itself = Comparison.of(self._groups)
        for outputs, labels in zip(self._references, self._labels, strict=True):
            itself.add(outputs, outputs, labels)
        check_gates(gates, graph.outputs, any(labels is not None for labels in self._labels))
        judged = {name: c for name, c in itself.classes.items() if name not in self._unjudged}
        self._label_outputs = {gate: label_output(gate, judged, self._floats) for gate in on_labels}
        self._own_scores = tuple(self._scores(itself))
        self._signals = {
            group.name: sums.reference
            for group, sums in itself.groups.items()
            if self._has_signal(group, sums)
        }
        self._check_scores()
        if tell_silent:
            self._log_silent(itself)

    def _outputs_of(self, reference: Run) -> Iterator[Mapping[str, np.ndarray]]:
        """Outputs for each sample, without scores from where these are too large to be kept."""
        held = 0
        for sample in self._samples:
            with blamed_on(sample.origin):
                outputs = as_numbers(reference(sample.inputs), self._ports)
            held += sum(outputs[name].nbytes for name in self._unjudged)
            kept_back = self._unjudged if held > _SCORE_BYTES else ()
            yield {name: values for name, values in outputs.items() if name not in kept_back}

    def evaluate(self, run: Run) -> Evaluation:
        """Run all samples through ``run`` and compare."""
        comparison = Comparison.of(self._groups)
        totals = dict.fromkeys(self._custom, 0.0)
        batches = zip(self._samples, self._references, self._labels, strict=True)
        for sample, reference, labels in batches:
            outputs = run(sample.inputs)
            comparison.add(reference, as_numbers(outputs, self._ports), labels)
            for gate, function in self._custom.items():
                totals[gate] += own_score(f"gate {gate.metric}", function, outputs, sample)
        means = {gate: total / len(self._references) for gate, total in totals.items()}
        scores = tuple(self._scores(comparison))
        values = tuple(
            GateValue(gate, means[gate], "all outputs")
            if gate in means
            else self._worst(gate, scores)
            for gate in self._gates
        )
        return Evaluation(
            gates=values,
            metrics={**_by_name(scores), **{g.metric: v for g, v in means.items()}},
            noises={
                group.name: sums.noise
                for group, sums in comparison.groups.items()
                if self._has_signal(group, sums)
            },
        )

    def on(self, samples: Samples, chosen: Sequence[int]) -> Evaluator:
        """The same on some of the samples; ``signals`` remain those of all.

        ``samples``: those of the indices ``chosen``, in their order.
        """
        evaluator = copy.copy(self)
        evaluator._samples = samples
        evaluator._references = [self._references[i] for i in chosen]
        evaluator._labels = [self._labels[i] for i in chosen]
        return evaluator

    def by_sample(self, run: Run) -> dict[str, np.ndarray]:
        """Error and signal power of each sample, shape (samples, 2), by channel group.

        Of the groups that ``Evaluation.noises`` has.
        """
        sums_of: dict[str, list[tuple[float, float]]] = {name: [] for name in self._signals}
        for sample, reference in zip(self._samples, self._references, strict=True):
            comparison = Comparison.of(self._groups)
            comparison.add(reference, as_numbers(run(sample.inputs), self._ports), None)
            for group, sums in comparison.groups.items():
                if group.name in sums_of:
                    sums_of[group.name].append((sums.error, sums.reference))
        return {name: np.array(rows) for name, rows in sums_of.items()}

    @property
    def signals(self) -> Mapping[str, float]:
        """Sum of the float model's squares of each channel group that ``noises`` has."""
        return self._signals

    @property
    def is_constant(self) -> bool:
        """Whether the float model gives the same for several samples; floats count if any are."""
        return are_constant(self._references, self._floats or self._references[0], self._floats)

    def reference_metrics(self) -> dict[str, float]:
        """What the float model itself scores on labels, by the same names."""
        return _by_name(score for score in self._own_scores if score.metric == "top1")

    def _check_scores(self) -> None:
        """Raise InputError for a gate that no candidate could meet."""
        for gate in self._gates:
            if gate.metric not in METRIC_NEEDS:
                continue
            if not self._of(gate, self._own_scores):
                raise InputError(
                    f"gate {gate.text()} needs {METRIC_NEEDS[gate.metric]}, which "
                    f"{gate.output or 'the model'} {'is not' if gate.output else 'does not have'}; "
                    "choose another metric or output"
                )
            worst = self._worst(gate, self._own_scores)
            if worst.value != _PERFECT[gate.metric]:
                raise InputError(
                    f"gate {gate.text()}: the float model's own {worst.where} holds NaN or Inf; "
                    "name another output, as in sqnr>=15@OUTPUT, or repair the model or the data"
                )

    def _log_silent(self, itself: Comparison) -> None:
        for group, sums in itself.groups.items():
            if group.output in self._floats - self._unjudged and not self._has_signal(group, sums):
                log.warning("%s is zero on all samples; sqnr and cosine leave it out", group.name)

    def _of(self, gate: Gate, scores: Sequence[Score]) -> list[Score]:
        """Those of ``scores`` that ``gate`` is on."""
        output = self._label_outputs.get(gate, gate.output)
        return [s for s in scores if s.metric == gate.metric and output in (None, s.output)]

    def _worst(self, gate: Gate, scores: Sequence[Score]) -> GateValue:
        sign = 1 if gate.comparison == ">=" else -1
        worst = min(
            self._of(gate, scores),
            key=lambda s: -math.inf if math.isnan(s.value) else sign * s.value,
        )
        return GateValue(gate, worst.value, worst.where)

    def _has_signal(self, group: ChannelGroup, sums: GroupSums) -> bool:
        return group.output in self._floats and (sums.reference != 0 or not group.spans)

    def _scores(self, comparison: Comparison) -> Iterator[Score]:
        """All built-in metrics of all outputs that have them."""
        for group, sums in comparison.groups.items():
            if group.output in self._unjudged:
                continue
            if self._has_signal(group, sums):
                yield Score("sqnr", group.output, sums.sqnr, group.name)
                yield Score("cosine", group.output, sums.cosine, group.name)
            yield Score("max_abs", group.output, sums.max_abs, group.name)
        for output, counts in comparison.classes.items():
            if output in self._unjudged:
                continue
            if counts.positions:
                yield Score("argmax_agreement", output, counts.agreement, output)
            if counts.labelled:
                yield Score("top1", output, counts.top1, output)
                yield Score("top1_drop", output, counts.top1_drop, output)


def _number_groups(graph: Graph) -> tuple[ChannelGroup, ...]:
    """Channel groups of all outputs that hold numbers; integers have no heads of some range."""
    floats = numeric_outputs(graph)
    return tuple(
        group
        for group in channel_groups(graph)
        if graph.type_of(group.output).dtype not in _NOT_NUMBERS
        and (group.output in floats or not group.spans)
    )


def are_constant(
    outputs: Sequence[Mapping[str, np.ndarray]], names: Collection[str], floats: Collection[str]
) -> bool:
    """Whether ``outputs`` of several samples agree by all ``names``; NaN of ``floats`` are one."""
    first, *others = outputs
    return bool(others) and all(
        np.array_equal(first[name], other[name], equal_nan=name in floats)
        for other in others
        for name in names
    )


def check_gates(gates: tuple[Gate, ...], outputs: tuple[str, ...], labelled: bool) -> None:
    """Raise InputError for outputs and functions that are not there, and for missing labels."""
    for gate in gates:
        if gate.output is not None and gate.output not in outputs:
            raise InputError(f"gate {gate.text()}: {unknown('output', gate.output, outputs)}")
        if gate.metric not in METRICS:
            load_function(gate.metric)
        if gate.metric in LABEL_METRICS and not labelled:
            raise InputError(
                f"gate {gate.text()} needs labels; add an array named 'labels' to the data"
            )


def _by_name(scores: Iterable[Score]) -> dict[str, float]:
    return {f"{score.metric} {score.where}": score.value for score in scores}


def own_score(
    what: str, function: Custom, outputs: Mapping[str, np.ndarray], sample: Sample
) -> float:
    """What a function of the user's returns for a sample; an array of one number counts as it.

    It gets copies of all arrays: it may compute in place, and they are needed again.
    ``what``: what it is called where it raises or returns something else, which is an InputError.
    """
    batch = dict(sample.inputs)
    if sample.labels is not None:
        batch["labels"] = sample.labels
    with UserCode(what, "make it return a number"):
        score: Any = function(*copy.deepcopy((dict(outputs), batch)))
        return float(score.item() if hasattr(score, "item") else score)
