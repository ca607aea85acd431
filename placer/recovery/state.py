"""What recovery steps change, and what they learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from placer.calibration.dataset import Dataset
from placer.model import Model
from placer.quantization import Placement, Ranges, Scheme

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class State:
    """A float model, and ranges, that a placement makes a candidate of.

    ``model``: what is quantized. ``reference``: what each of its layers shall compute; it computes
    what the float model does, up to rounding.
    """

    model: Model
    reference: Model
    ranges: Ranges


@dataclass(frozen=True, eq=False)
class Work:
    """What steps recover: a placement under a scheme, with samples to learn from.

    ``samples``: the inputs of ``data``. ``loss``: less is better, on these samples; raises RunError
    if a state cannot be run; None where no step needs it. ``fixed``: tensors whose range stays.
    """

    placement: Placement
    scheme: Scheme
    data: Dataset
    loss: Callable[[State], float] | None = None
    fixed: frozenset[str] = frozenset()

    @cached_property
    def samples(self) -> Sequence[Tensors]:
        """Inputs by name, of each sample."""
        return [dict(sample.inputs) for sample in self.data]


class Step(Protocol):
    """Changes values of a state's initializers, and ranges."""

    def __call__(self, state: State, work: Work) -> tuple[State, int]:
        """The new state, and how many layers have other constants; 0 if none could have.

        Raises RunError if ONNX Runtime fails.
        """
