"""Models held against the float model's outputs, by all metrics and by gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from placer.accuracy.channel_groups import ChannelGroup, channel_groups
from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Custom, Evaluator, own_score
from placer.accuracy.gates import Gate, GateResult
from placer.accuracy.intervals import Measure, measures
from placer.accuracy.labels import class_indices
from placer.accuracy.metrics import Comparison
from placer.calibration.sample import Sample
from placer.engines.base import Tensors
from placer.errors import InputError
from placer.graph import Graph


class Judge:
    """Compares models with the float model's outputs, sample by sample."""

    def __init__(
        self,
        graph: Graph,
        samples: Sequence[Sample],
        expected: Sequence[Mapping[str, np.ndarray]],
        functions: Mapping[str, Custom],
        gates: tuple[Gate, ...],
    ) -> None:
        self._samples = samples
        self.expected = expected
        self._labels = [_class_indices(sample.labels) for sample in samples]
        self._functions = functions
        numbers = [name for name in graph.outputs if _has_numbers(expected[0][name])]
        self.groups = tuple(
            group
            for group in channel_groups(graph)
            if group.output in numbers and _is_compared(group, expected[0][group.output])
        )
        self._evaluator = Evaluator(graph, gates, samples, _replayed(expected)) if gates else None

    def __call__(
        self, run: Run, path: Path, called: Mapping[str, str]
    ) -> tuple[tuple[Measure, ...], tuple[GateResult, ...]]:
        """Metrics and gates of what ``run`` computes; ``called``: other names of its outputs."""
        compared = []
        kept = []  # For gates, which are judged by what judges candidates.
        values: dict[str, list[float]] = {name: [] for name in self._functions}
        rows = zip(self._samples, self.expected, self._labels, strict=True)
        for sample, expected, labels in rows:
            outputs = run(sample.inputs)
            if all(_may_be_same(outputs[a], expected[b]) for a, b in called.items()):
                outputs = {called.get(name, name): value for name, value in outputs.items()}
            missing = expected.keys() - outputs.keys()
            if missing:
                raise InputError(
                    f"{path} has no output '{min(missing)}', which the float model has; "
                    "give a model quantized from it, with outputs of the same names"
                )
            if self._evaluator is not None:
                kept.append(dict(outputs))
            comparison = Comparison.of(self.groups)
            comparison.add(expected, outputs, labels)
            compared.append(comparison)
            for name, function in self._functions.items():
                values[name].append(own_score(f"metric {name}", function, outputs, sample))
        _check_labels(compared)
        judged = self._evaluator.evaluate(_replayed(kept)).gates if self._evaluator else ()
        return tuple(measures(compared, values)), tuple(value.result() for value in judged)


def _replayed(outputs: Sequence[Tensors]) -> Run:
    """What gives ``outputs`` one after the other, whatever the inputs."""
    rest = iter(outputs)
    return lambda _: next(rest)


def _class_indices(labels: np.ndarray | None) -> np.ndarray | None:
    """Class indices; None for other labels, such as boxes, which only functions read."""
    try:
        return None if labels is None else class_indices(labels)
    except ValueError:
        return None


def _check_labels(compared: Sequence[Comparison]) -> None:
    """Raise InputError for labels that are classes of no output that they fit."""
    fitting = [o for o, counts in compared[0].classes.items() if counts.labelled]
    outside = {o: sum(one.classes[o].outside for one in compared) for o in fitting}
    if fitting and all(outside.values()):
        output = fitting[0]
        raise InputError(
            f"{outside[output]} labels lie outside 0 to {compared[0].classes[output].classes - 1}, "
            f"the classes of output '{output}'; correct the labels"
        )


def _has_numbers(values: object) -> bool:
    """Whether an output is no text, sequence or map."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiub"


def _may_be_same(one: object, other: object) -> bool:
    """Whether both are arrays of one shape, of floats of any width or of one kind of values.

    Or neither is one: sequences and maps, whose parts may have any shapes, are not compared.
    """
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) == isinstance(other, np.ndarray)
    return (one.shape, one.dtype.kind) == (other.shape, other.dtype.kind)


def _is_compared(group: ChannelGroup, values: np.ndarray) -> bool:
    """Integers have no heads of some range: they are compared as a whole."""
    return values.dtype.kind == "f" or not group.spans
