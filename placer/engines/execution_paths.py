"""What latency is measured on where samples take different execution paths.

An execution path is told by the bodies of If, Loop and Scan nodes that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.engines.base import Tensors


@dataclass(frozen=True)
class ExecutionPath:
    """A sample, and the share of all samples that take its path."""

    inputs: Tensors
    share: float


class ExecutionPaths(Mapping[str, np.ndarray]):
    """The inputs of the most frequent path, and one sample of each path.

    An engine that takes a single sample is given that of the most frequent path.
    """

    def __init__(self, paths: Sequence[ExecutionPath]) -> None:
        self.paths = tuple(sorted(paths, key=lambda path: -path.share))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.paths[0].inputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths[0].inputs)

    def __len__(self) -> int:
        return len(self.paths[0].inputs)


def each_path(inputs: Tensors) -> tuple[Tensors, ...]:
    """One sample of each path of ``inputs``; ``inputs`` itself where it is a single sample."""
    if not isinstance(inputs, ExecutionPaths):
        return (inputs,)
    return tuple(path.inputs for path in inputs.paths)


def mean_seconds(inputs: Tensors, measure: Callable[[Tensors], np.ndarray]) -> np.ndarray:
    """What ``measure`` gives for ``inputs``, averaged over paths by their shares."""
    if not isinstance(inputs, ExecutionPaths):
        return measure(inputs)
    first, *others = (path.share * measure(path.inputs) for path in inputs.paths)
    return sum(others, start=first)
