"""A prediction in the making: what changes of another one, step by step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import itemgetter

from placer.common.overlay import Overlay
from placer.prediction.layers.motion import NormalForm
from placer.prediction.layers.prediction import Prediction, behind
from placer.prediction.layers.steps import Step


class PredictionDraft:
    """A prediction that changes step by step from ``near``, which stays as it is."""

    def __init__(self, near: Prediction) -> None:
        self.near = near
        self.given = Overlay(near.given)
        self.scales = Overlay(near.form.scales)
        self.second = Overlay(near.form.second)
        self.form = NormalForm(self.scales, self.second)
        self.steps = Overlay(near.steps)
        self.histories = Overlay(near.histories)

    @property
    def changed(self) -> Mapping[int, Step | None]:
        """The steps that are others than ``near``'s, by position."""
        before = self.near.steps
        return {i: step for i, step in self.steps.changes.items() if step is not before.get(i)}

    def update_history(self, position: int, old: Step | None, new: Step | None) -> Iterator[int]:
        """Put ``new`` instead of ``old`` into the histories.

        Yields the next position of each tensor of which there is something else now than before.
        """
        formats = {} if new is None else new.formats
        before = {} if old is None else old.formats
        for tensor in formats.keys() | before.keys():
            if tensor in before and before[tensor] == formats.get(tensor):
                continue
            history = self.histories.get(tensor)
            if not history:
                if tensor in formats:
                    self.histories.put(tensor, ((position, formats[tensor]),))
                continue
            start = bisect_left(history, position, key=itemgetter(0))
            rest = history[start:]
            if rest and rest[0][0] == position:
                rest = rest[1:]
            own = ((position, formats[tensor]),) if tensor in formats else ()
            updated = (*history[:start], *own, *rest)
            self.histories.put(tensor, updated)
            now = behind(updated, position)
            if rest and now != behind(self.near.histories.get(tensor, ()), position):
                yield rest[0][0]
