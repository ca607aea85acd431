"""The noise of placements on a few samples, measured beside the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from placer.accuracy.evaluator import Evaluator, Run
from placer.calibration.dataset import Dataset
from placer.errors import RunError
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.task import Task
from placer.quantization import Placement
from placer.search.space import Choices, Space


@dataclass(frozen=True, eq=False)
class FewSamples:
    """The evaluation samples on which noise is measured beside the trials.

    A few samples often carry most of the noise, and a random choice has them or not. So those are
    taken on which the default placement has the most error; a random choice where it is refused.
    """

    evaluator: Evaluator
    factors: Mapping[str, float] = field(default_factory=dict)
    """Noise of the default placement on all samples as a multiple of that on these, by part."""

    @staticmethod
    def of(task: Task, candidates: Candidates, evaluator: Evaluator, reference: Run) -> FewSamples:
        """``evaluator``: on all samples. ``reference``: the float model.

        Takes as long as judging one trial.
        """
        data, count = task.evaluation_data, task.preset.noise_samples

        def on(chosen: Dataset) -> Evaluator:
            return Evaluator(task.judged.graph, (), chosen, reference, tell_silent=False)

        if count >= len(data):
            return FewSamples(on(data))
        default = task.space.placement(task.space.defaults).computed_in(None)
        try:
            sums = evaluator.by_sample(candidates.runner(default))
        except RunError:
            sums = {}
        if not sums:
            return FewSamples(on(data.limit(count)))
        chosen = noisiest(sums, count)
        factors = {part: factor_of(own, chosen) for part, own in sums.items()}
        return FewSamples(on(data.choose(chosen.tolist())), factors)


def noisiest(sums: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """Indices of the ``count`` samples with the largest share of the noise of any part.

    ``sums``: error and signal power of each sample, shape (samples, 2), by part of an output.
    """
    least = np.finfo(float).tiny
    shares = [_finite(own[:, 0]) / max(own[:, 1].sum(), least) for own in sums.values()]
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    return np.sort(order[:count])


def _finite(errors: np.ndarray) -> np.ndarray:
    """``errors``, of which those that are not finite are the largest."""
    return np.where(np.isfinite(errors), errors, np.finfo(np.float64).max / 1e9)


def factor_of(sums: np.ndarray, chosen: np.ndarray) -> float:
    """Noise of all samples over that of ``chosen``; 1 where either says nothing."""
    (error, signal), (own_error, own_signal) = sums.sum(axis=0), sums[chosen].sum(axis=0)
    if not (0 < own_error < math.inf and own_signal > 0 and error < math.inf):
        return 1.0
    return float(error / signal * own_signal / own_error)


class NoiseMeter:
    """Noise power of a placement on a few samples, as a share of the outputs' power.

    In terms of all evaluation samples: what the few tell is scaled by what the default placement's
    noise is on all of them and on the few.
    """

    def __init__(self, space: Space, candidates: Candidates, few: Callable[[], FewSamples]) -> None:
        """``few``: called once noise is to be measured."""
        self._space = space
        self._candidates = candidates
        self._few = cache(few)

    def of(self, candidates: Candidates) -> NoiseMeter:
        """The same for others that ``candidates`` make of these choices, as in another scheme."""
        return NoiseMeter(self._space, candidates, self._few)

    def __call__(self, choices: Choices) -> float:
        """Return the noise of ``choices``; 1, as much as signal, where the engine refuses them."""
        try:
            noise = max(self.by_part(self._space.placement(choices)).values(), default=0.0)
        except RunError:
            return 1.0
        return noise if math.isfinite(noise) else 1.0

    def by_part(self, placement: Placement) -> Mapping[str, float]:
        """Noise by part of an output; raises RunError where the engine refuses ``placement``."""
        few, run = self._few(), self._candidates.runner(placement)
        noises = few.evaluator.evaluate(run).noises
        return {part: few.factors.get(part, 1.0) * noise for part, noise in noises.items()}
