"""What latency is measured on where samples take different branches of an If."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placer.engines.base import Tensors


@dataclass(frozen=True)
class Course:
    """A sample, and the share of all samples that take the same branches as it does."""

    inputs: Tensors
    share: float


class Courses(dict[str, np.ndarray]):
    """The inputs of the most frequent course, and one sample of each course.

    An engine that takes a single sample is given that of the most frequent course.
    """

    def __init__(self, courses: Sequence[Course]) -> None:
        self.courses = tuple(sorted(courses, key=lambda course: -course.share))
        super().__init__(self.courses[0].inputs)

    def __reduce__(self) -> tuple[type[Courses], tuple[tuple[Course, ...]]]:
        """Pickled by its courses."""
        return Courses, (self.courses,)


def each_course(inputs: Tensors) -> tuple[Tensors, ...]:
    """One sample of each course of ``inputs``; ``inputs`` itself where it is a single sample."""
    if not isinstance(inputs, Courses):
        return (inputs,)
    return tuple(course.inputs for course in inputs.courses)


def mean_seconds(inputs: Tensors, measure: Callable[[Tensors], np.ndarray]) -> np.ndarray:
    """What ``measure`` gives for ``inputs``, averaged over courses by their shares."""
    if not isinstance(inputs, Courses):
        return measure(inputs)
    first, *others = (course.share * measure(course.inputs) for course in inputs.courses)
    return sum(others, start=first)
