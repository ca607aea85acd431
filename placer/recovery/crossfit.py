"""Calibration methods judged on samples that their ranges were not calibrated with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import decibels
from placer.quantization import Range, Ranges
from placer.recovery.simulation import Simulation

Methods = Mapping[str, str]  # Calibration method by tensor.
Noises = Mapping[str, float]  # Error power over signal power by part of an output.

# Whether activations alone are quantized, the fold, its batch, and the session's parameters.
_Key = tuple[bool, int, int, tuple[bytes, ...]]

# Beyond these an output is destroyed, or as good as exact, and more or less says nothing.
_WORST_DB, _BEST_DB = -10.0, 80.0


@dataclass(frozen=True, eq=False)
class Fold:
    """Ranges that rest on one part of the calibration data, and batches of samples of the rest.

    ``ranges``: by method. ``fixed``: ranges of tensors that no method decides, as those of an
    imported model.
    """

    ranges: Mapping[str, Ranges]
    fixed: Ranges
    batches: Sequence[Evaluator]

    def of(self, methods: Methods) -> dict[str, Range]:
        """The ranges of ``methods``."""
        return {
            **{tensor: self.ranges[method][tensor] for tensor, method in methods.items()},
            **self.fixed,
        }


@dataclass(frozen=True, eq=False)
class CrossFit:
    """One placement with any method for each tensor.

    ``activations``: the placement without its weights, to tell what one tensor alone does.
    ``folds``: each has at least one batch. What was run once is not run again: of a large network
    that is what comparing methods takes its time for.
    """

    simulation: Simulation
    activations: Simulation
    folds: Sequence[Fold]
    _known: dict[_Key, Noises] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def batches(self) -> int:
        """Number of batches that every fold has."""
        return min(len(fold.batches) for fold in self.folds)

    @cached_property
    def signals(self) -> Mapping[str, float]:
        """Mean of the float model's sum of squares over all batches, by part of an output.

        Parts that are zero throughout, empty, or not finite are left out: they tell no noise.
        """
        return mean_signals([batch for fold in self.folds for batch in fold.batches])

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that there are ranges of."""
        return tuple(self.folds[0].ranges)

    def everywhere(self, method: str) -> dict[str, str]:
        """One method for all tensors."""
        return dict.fromkeys(self.folds[0].ranges[method], method)

    def noises(self, methods: Methods, batches: Sequence[int]) -> dict[str, float]:
        """Noise by part of an output over ``batches`` of all folds, relative to ``signals``.

        A part that is zero in a batch counts as free of noise there. The mean of two batches is
        what both together have. Raises RunError if ONNX Runtime fails.
        """
        return self._noises(self.simulation, methods, batches, None)

    def noises_alone(
        self, methods: Methods, batches: Sequence[int], tensors: Collection[str]
    ) -> dict[str, float]:
        """As ``noises``, of ``tensors`` alone; all else is float."""
        return self._noises(self.activations, methods, batches, tensors)

    def _noises(
        self,
        simulation: Simulation,
        methods: Methods,
        batches: Sequence[int],
        only: Collection[str] | None,
    ) -> dict[str, float]:
        total = dict.fromkeys(self.signals, 0.0)
        share = 1 / (len(self.folds) * len(batches))
        for index, fold in enumerate(self.folds):
            given = simulation.parameters(fold.of(methods), only)
            values = tuple(array.tobytes() for array in given.values())
            for batch in batches:
                key = (simulation is self.activations, index, batch, values)
                if key not in self._known:
                    run = simulation.run_with(given)
                    self._known[key] = noises_in(fold.batches[batch], run, self.signals)
                for part, noise in self._known[key].items():
                    total[part] += share * noise
        return total


def mean_signals(batches: Sequence[Evaluator]) -> dict[str, float]:
    """Mean of the float model's sum of squares over ``batches``, by part of an output.

    Parts that are zero throughout, empty, or not finite are left out: they tell no noise.
    """
    means: dict[str, float] = {}
    for batch in batches:
        for part, signal in batch.signals.items():
            means[part] = means.get(part, 0.0) + signal / len(batches)
    return {part: signal for part, signal in means.items() if 0 < signal < math.inf}


def noises_in(batch: Evaluator, run: Run, signals: Mapping[str, float]) -> dict[str, float]:
    """Error power of ``run`` in one batch over ``signals``, by part of an output.

    ``signals``: means over all batches, so that the mean of several is what they have together;
    over each one's own, a batch with hardly any signal would outweigh all others. A part that is
    zero in a batch counts as free of noise there.
    """
    noises = batch.evaluate(run).noises
    signal_of = {part: batch.signals.get(part, 0.0) for part in signals}
    return {
        part: noises[part] * signal / signals[part] if signal else 0.0
        for part, signal in signal_of.items()
    }


def score(noises: Noises) -> float:
    """Mean of the worst part's SQNR and of all parts' mean SQNR, in dB.

    Gates look at the worst part. But where one part limits, what helps the others is not to be lost
    either, and a part that is destroyed may not stop all else.
    """
    levels = [min(max(decibels(noise), _WORST_DB), _BEST_DB) for noise in noises.values()]
    return float(min(levels) + np.mean(levels)) / 2 if levels else _BEST_DB


def worst_db(noises: Noises) -> float:
    """SQNR in dB of the worst part: what a gate on it looks at."""
    return decibels(max(noises.values(), default=0.0))
