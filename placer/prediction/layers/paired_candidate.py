"""A layer candidate with the pairs around it."""

from __future__ import annotations

from dataclasses import dataclass

from placer.graph import Edge
from placer.prediction.layers.integer_readers import NO_ROUNDED, Rounded
from placer.prediction.layers.layer_candidate import LayerCandidate, Written
from placer.prediction.layers.motion import Scale, Scales


@dataclass(frozen=True, eq=False)
class PairedCandidate:
    """A candidate and the pairs around it: what of its step does not depend on other steps.

    ``chains``: the scales on each of its ``reads``. ``written``: those that each of its ``writes``
    is written in. ``feeds_float_conv``: a Conv reads in float what is written. ``constants``: edges
    on which constants are read that are dequantized in every run. ``rounds``: what reads it in
    integers converts what is written, whatever it could take along itself. ``rounded``: see
    ``integer_readers``. ``verdicts``: of each of its ``reads``, see ``Operand``. ``moved``: the
    scale of the integers that it moves for a layer that runs before it, though nodes of that stand
    behind it.
    ``chained``: the scale that it rounds its integers to after the one of ``written``.
    """

    candidate: LayerCandidate
    chains: tuple[Scales, ...] = ()
    written: tuple[Written, ...] = ()
    feeds_float_conv: bool = False
    constants: tuple[Edge, ...] = ()
    rounds: bool = False
    rounded: Rounded = NO_ROUNDED
    verdicts: tuple[bool | None, ...] = ()
    moved: Scale | None = None
    chained: Scale | None = None
