"""Metrics of a candidate's outputs against the float model's, accumulated batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from placer.accuracy.channel_groups import ChannelGroup


@dataclass
class GroupSums:
    """Running sums over one channel group, in float64."""

    reference: float = 0.0
    candidate: float = 0.0
    product: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0

    def add(self, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Add one batch; shapes must be equal."""
        ref = reference.astype(np.float64).ravel()
        can = candidate.astype(np.float64).ravel()
        # A candidate may overflow: the sums carry NaN and infinity on to a value that fails.
        with np.errstate(invalid="ignore", over="ignore"):
            self.reference += _dot(ref, ref)
            self.candidate += _dot(can, can)
            self.product += _dot(ref, can)
            difference = can - ref
            self.error += _dot(difference, difference)
        if difference.size:
            # np.maximum keeps NaN, which max() would lose.
            self.max_abs = float(np.maximum(self.max_abs, np.abs(difference).max()))

    def add_mismatch(self, reference: np.ndarray) -> None:
        """Add one batch whose candidate has another shape, so an error without bound."""
        ref = reference.astype(np.float64).ravel()
        self.reference += _dot(ref, ref)
        self.error = self.max_abs = math.inf
        self.product = math.nan

    @property
    def noise(self) -> float:
        """Error power over signal power; 0 without error, infinite where it is not finite."""
        if self.error == 0:
            return 0.0
        ratio = self.error / self.reference if self.reference else math.inf
        return ratio if math.isfinite(ratio) else math.inf

    @property
    def sqnr(self) -> float:
        """10 log10(signal power / error power) in dB; inf without error."""
        return decibels(self.noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between reference and candidate; 1 without error."""
        if self.error == 0:
            return 1.0
        norm = math.sqrt(self.reference) * math.sqrt(self.candidate)
        # A product that is NaN stays so: where nothing compares, no angle may pass.
        return self.product / norm if norm else 0.0 * self.product


def _dot(one: np.ndarray, other: np.ndarray) -> float:
    """The scalar product of two vectors, without BLAS.

    OpenBLAS takes all threads from 10,000 values on. Where the CPU is busy they wait for each
    other for ten times as long, and the last digits depend on their number.
    """
    return float(np.einsum("i,i->", one, other))


def decibels(noise: float) -> float:
    """SQNR in dB of error power over signal power: inf for 0, -inf for infinity."""
    if noise == 0:
        return math.inf
    return -math.inf if math.isinf(noise) else 10 * math.log10(1 / noise)


@dataclass
class ClassCounts:
    """Running counts over the classes that one output tells.

    A float output scores classes along its last axis (axis 1 for rank 2); an integer output holds
    class indices, of which the largest that was seen tells the number of ``classes``. Labels count
    where there are as many as the output tells classes; ``outside`` counts those of no class. Where
    the float model's best score is not finite it meets no label.
    """

    positions: int = 0
    agreeing: int = 0
    labelled: int = 0
    correct: int = 0
    reference_correct: int = 0
    classes: int = 0
    outside: int = 0

    def add(self, reference: np.ndarray, candidate: np.ndarray, labels: np.ndarray | None) -> None:
        """Add one batch; ``labels`` has one integer per position or is None."""
        expected = _classes(reference)
        if expected is None:
            return
        got = _finite_classes(candidate) if candidate.shape == reference.shape else None
        self.positions += expected.size
        self.agreeing += 0 if got is None else int((got == expected).sum())
        if labels is not None and labels.size == expected.size:
            truth = labels.reshape(expected.shape)
            self.labelled += truth.size
            self.correct += 0 if got is None else int((got == truth).sum())
            classes = _finite_classes(reference)
            self.reference_correct += 0 if classes is None else int((classes == truth).sum())
            if _is_index(reference):
                largest = max(int(truth.max(initial=0)), int(expected.max(initial=0)))
                self.classes = max(self.classes, largest + 1, 2)
                self.outside += int((truth < 0).sum())
            else:
                self.classes = reference.shape[-1]
                self.outside += int(((truth < 0) | (truth >= self.classes)).sum())

    @property
    def agreement(self) -> float:
        """Fraction of positions with the float model's class."""
        return self.agreeing / self.positions if self.positions else math.nan

    @property
    def top1(self) -> float:
        """Fraction of labelled positions with the right class; NaN without labels."""
        return self.correct / self.labelled if self.labelled else math.nan

    @property
    def top1_drop(self) -> float:
        """The float model's ``top1`` minus the candidate's; NaN without labels."""
        # One division: 0.99 - 0.98 is more than 0.01.
        drop = self.reference_correct - self.correct
        return drop / self.labelled if self.labelled else math.nan


def _classes(values: np.ndarray) -> np.ndarray | None:
    """Class index per position; None where no axis holds classes."""
    if _is_index(values):
        return values
    return values.argmax(axis=-1) if values.ndim > 1 and values.shape[-1] else None


def _is_index(values: np.ndarray) -> bool:
    return values.dtype.kind in "iub"


def _finite_classes(values: np.ndarray) -> np.ndarray | None:
    """``_classes``, -1 where the best score is not finite; a score of -inf masks a class."""
    classes = _classes(values)
    if classes is None or _is_index(values):
        return classes
    return np.where(np.isfinite(values.max(axis=-1)), classes, -1)


@dataclass
class Comparison:
    """Sums over all batches, by channel group and by output."""

    groups: Mapping[ChannelGroup, GroupSums]
    classes: Mapping[str, ClassCounts] = field(default_factory=dict)

    @staticmethod
    def of(groups: tuple[ChannelGroup, ...]) -> Comparison:
        """An empty comparison of these groups."""
        outputs = dict.fromkeys(group.output for group in groups)
        return Comparison({g: GroupSums() for g in groups}, {o: ClassCounts() for o in outputs})

    def add(
        self,
        reference: Mapping[str, np.ndarray],
        candidate: Mapping[str, np.ndarray],
        labels: np.ndarray | None,
    ) -> None:
        """Add one batch of outputs.

        A shape that depends on the data (e.g. of detections) may differ: that batch counts as
        wrong altogether. What ``reference`` lacks is not compared.
        """
        for group, sums in self.groups.items():
            if group.output not in reference:
                continue
            expected, got = reference[group.output], candidate[group.output]
            if expected.shape == got.shape:
                sums.add(group.cut(expected), group.cut(got))
            else:
                sums.add_mismatch(group.cut(expected))
        for output, counts in self.classes.items():
            if output in reference:
                counts.add(reference[output], candidate[output], labels)


def finite(value: float) -> float | None:
    """``value`` for JSON, which has no infinity and no NaN: those become null."""
    return value if math.isfinite(value) else None
