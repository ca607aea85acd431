"""A predicted plan: its layers, the motion-normal form they follow from, and tensors' formats."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

from placer.graph import Edge, Graph
from placer.plan import Plan
from placer.prediction.layers.conversions import Conversion, PredictedLayer, TensorFormats
from placer.prediction.layers.layout_options import LayoutOptions
from placer.prediction.layers.memory_layouts import DEFAULT
from placer.prediction.layers.motion import NormalForm, Scale
from placer.prediction.layers.moved_transposes import with_transposes_moved
from placer.prediction.layers.steps import Step
from placer.quantization import EMPTY, Placement

FormatHistory = tuple[
    tuple[int, TensorFormats], ...
]  # What there is of a tensor behind each position.


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted layers in execution order and the motion-normal form they follow from.

    ``given``: scales before motion. ``steps``: by position; the same object in two predictions adds
    the same layers. ``histories``: by float tensor, in order of positions. ``changed``: positions
    whose step is another one than in the prediction that it was made from. ``moving``: the graph,
    where the engine moves its tensors between memory layouts as ``options`` say.
    """

    placement: Placement
    given: Mapping[Edge, Scale]
    form: NormalForm
    steps: Mapping[int, Step]
    histories: Mapping[str, FormatHistory]
    changed: tuple[int, ...] = ()
    moving: Graph | None = None
    options: LayoutOptions = DEFAULT

    @cached_property
    def layers(self) -> tuple[PredictedLayer, ...]:
        """The layers in execution order."""
        built: list[PredictedLayer] = []
        made: dict[Conversion, int] = {}
        for _, step in sorted(self.steps.items(), key=itemgetter(0)):
            made.update({c: i for i, c in enumerate(step.conversions, start=len(built))})
            built += step.layers
            for conversion, edge in step.served:
                known = built[made[conversion]]
                built[made[conversion]] = replace(known, edges=(*known.edges, edge))
        return tuple(built)

    @cached_property
    def all_layers(self) -> tuple[PredictedLayer, ...]:
        """``layers``, with what the engine adds and takes away where it moves tensors."""
        if self.moving is None:
            return self.layers
        return tuple(with_transposes_moved(self.layers, self.moving, self.options))

    @property
    def plan(self) -> Plan:
        """All layers without times."""
        layers = tuple(predicted.layer for predicted in self.all_layers)
        return Plan(layers, "predicted from rules", estimated=True)


BLANK = Prediction(EMPTY, {}, NormalForm({}, {}), {}, {})


def behind(history: FormatHistory, position: int) -> TensorFormats | None:
    """What there is behind ``position``, None where nothing before has dealt with the tensor."""
    if not history or history[-1][0] <= position:
        return history[-1][1] if history else None
    index = bisect_right(history, position, key=itemgetter(0))
    return history[index - 1][1] if index else None
