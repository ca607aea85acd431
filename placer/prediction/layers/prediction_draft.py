"""A prediction in the making, as changes to another one, step by step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter

from placer.common.overlay import Overlay
from placer.prediction.layers.conversions import TensorFormats
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm
from placer.prediction.layers.prediction import FormatHistory, Prediction, behind
from placer.prediction.layers.steps import Step


class PredictionDraft:
    """A prediction that changes step by step from ``near``, which stays as it is."""

    def __init__(self, near: Prediction) -> None:
        self.near = near
        self.given = Overlay(near.given)
        self.scales = Overlay(near.form.scales)
        self.second = Overlay(near.form.second)
        self.form = NormalForm(self.scales, self.second)
        self.built = StepsDraft(near)


class StepsDraft:
    """What is built, as it changes from ``near``."""

    def __init__(self, near: Prediction) -> None:
        self.near = near
        self.steps = Overlay(near.steps)
        # Of the tensors of which there is something else than in ``near``.
        self._histories: dict[str, FormatHistory] = {}

    @property
    def changed(self) -> Mapping[int, Step | None]:
        """The steps that are others than ``near``'s, by position."""
        before = self.near.steps
        return {i: step for i, step in self.steps.changes.items() if step is not before.get(i)}

    @property
    def histories(self) -> dict[str, FormatHistory]:
        """What there is of all tensors."""
        return {**self.near.histories, **self._histories}

    def formats(self, candidate: LayerCandidate) -> tuple[TensorFormats | None, ...]:
        """What there is of the tensors that ``candidate`` deals with, before it does."""
        changed, known, before = self._histories, self.near.histories, candidate.position - 1
        return tuple(
            [
                behind(changed[t] if t in changed else known.get(t, ()), before)
                for t in candidate.format_tensors
            ]
        )

    def put(self, position: int, old: Step | None, new: Step | None) -> list[int]:
        """Have ``new`` instead of ``old``.

        Returns the next position of each tensor of which there is something else now than before.
        """
        self.steps.put(position, new)
        formats = {} if new is None else new.formats
        before = {} if old is None else old.formats
        concerned = [
            self._update(t, position, written)
            for t, written in formats.items()
            if before.get(t) != written
        ]
        concerned += [self._update(t, position, None) for t in before if t not in formats]
        return [later for later in concerned if later is not None]

    def _update(self, tensor: str, position: int, formats: TensorFormats | None) -> int | None:
        """Put ``formats`` into the history of ``tensor``; the next position if that changes it."""
        known: FormatHistory = self.near.histories.get(tensor, ())
        history = self._histories.get(tensor, known)
        start = bisect_left(history, position, key=itemgetter(0))
        rest = history[start:]
        if rest and rest[0][0] == position:
            rest = rest[1:]
        entry = ((position, formats),) if formats is not None else ()
        updated = self._histories[tensor] = (*history[:start], *entry, *rest)
        if rest and behind(updated, position) != behind(known, position):
            return rest[0][0]
        return None
