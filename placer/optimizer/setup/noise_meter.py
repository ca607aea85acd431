"""The noise of placements on a few samples, measured beside the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import GroupSums
from placer.errors import RunError
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.task import Task
from placer.quantization import Placement
from placer.search.space import Choices, Space

# Part of the choice of samples that goes by the default's error; the rest is at random.
BY_ERROR = 0.5
# The first number of NumPy's generator of seed 0, so that the choice is the same each time.
START = 0.637


@dataclass(frozen=True, eq=False)
class FewSamples:
    """The evaluation samples on which noise is measured beside the trials.

    A few samples often carry most of the noise, and a simple random choice has them or not. The
    ones with the most error of one placement, though, have less of another's, so half of the choice
    is at random (``draw``): for every placement the expected noise is that on all samples.
    """

    evaluator: Evaluator
    weights: np.ndarray
    """How many of all samples each sample of ``evaluator`` stands for."""

    @staticmethod
    def of(task: Task, candidates: Candidates, evaluator: Evaluator) -> FewSamples:
        """``evaluator``: on all samples. Takes as long as judging one trial."""
        data, count = task.evaluation_data, task.preset.noise_samples
        if count >= len(data):
            return FewSamples(evaluator, np.ones(len(data)))
        sizes = np.zeros(len(data))
        with suppress(RunError):  # The engine refuses the default: all are as good.
            default = task.space.placement(task.space.defaults).computed_in(None)
            sizes = sizes_of(evaluator.by_sample(candidates.runner(default)), len(data))
        chosen, weights = draw(sizes, count)
        indices = chosen.tolist()
        return FewSamples(evaluator.on(data.choose(indices), indices), weights)

    def noises(self, run: Run) -> dict[str, float]:
        """Noise power on all samples, as estimated from these, by part of an output."""
        signals = self.evaluator.signals
        return {
            part: GroupSums(signals[part], error=float(self.weights @ rows[:, 0])).noise
            for part, rows in self.evaluator.by_sample(run).items()
        }


def sizes_of(sums: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """What each of ``count`` samples adds to the noise of a part, of the part where it is the most.

    ``sums``: error and signal power of each sample, shape (samples, 2), by part of an output.
    """
    least = np.finfo(float).tiny
    shares = [_finite(rows[:, 0]) / max(rows[:, 1].sum(), least) for rows in sums.values()]
    sizes: np.ndarray = np.max([np.zeros(count), *shares], axis=0)
    return sizes


def _finite(errors: np.ndarray) -> np.ndarray:
    """``errors``, of which those that are not finite are the largest."""
    return np.where(np.isfinite(errors), errors, np.finfo(np.float64).max / 1e9)


def draw(sizes: np.ndarray, count: int, start: float = START) -> tuple[np.ndarray, np.ndarray]:
    """Indices of ``count`` samples and how many samples each stands for.

    Systematic sampling in the order of size (Madow 1949), each sample with a probability that is
    ``BY_ERROR`` in proportion to its size and the rest the same for all, and weighted by its
    inverse (Horvitz and Thompson 1952): over all ``start`` from 0 to 1, which decides the choice,
    the mean of the sum of weighted errors is the sum over all samples.
    Weights are at most 1 / (1 - BY_ERROR) times those of a simple random choice, as in defensive
    importance sampling (Hesterberg 1995), so no placement is estimated much worse than by one.
    """
    chances = _chances(sizes, count)
    order = np.argsort(-chances, kind="stable")
    ticks = start + np.arange(count)
    places = np.searchsorted(np.cumsum(chances[order]), ticks).clip(max=len(sizes) - 1)
    chosen = np.sort(order[places])
    return chosen, 1 / chances[chosen]


def _chances(sizes: np.ndarray, count: int) -> np.ndarray:
    """The probability of each sample; they sum to ``count``."""
    largest = sizes.max()
    shares = sizes / largest if largest > 0 else np.ones(len(sizes))
    chances: np.ndarray = count * (BY_ERROR * shares / shares.sum() + (1 - BY_ERROR) / len(sizes))
    chances = np.minimum(chances, 1.0)
    while (left := count - chances.sum()) > 1e-9:
        free = chances < 1
        more = chances[free] * (1 + left / chances[free].sum())
        chances[free] = np.minimum(more, 1.0)
    return chances


class NoiseMeter:
    """Noise power of a placement as a share of the outputs' power, estimated from few samples."""

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
        return self._few().noises(self._candidates.runner(placement))
