"""A prediction in the making, as changes to another one, step by step."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from placer.common.overlay import Overlay
from placer.prediction.layers.conversions import TensorFormats
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm
from placer.prediction.layers.paired import Decided
from placer.prediction.layers.paired_candidate import PairedCandidate
from placer.prediction.layers.prediction import FormatHistory, Prediction, behind
from placer.prediction.layers.steps import Step

# What is built of a candidate with its pairs, by what there is of its tensors.
MakesStep = Callable[[PairedCandidate, tuple[TensorFormats | None, ...]], Step]


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

    def rebuild(self, decisions: Iterable[Decided], make_step: MakesStep) -> None:
        """Build all steps that differ from ``near``'s.

        Outside the regions that ``decisions`` are of these differ only by what there is of the
        tensors that they read.
        """
        due: dict[int, PairedCandidate | None] = {}
        before = self.near.steps
        for decided in decisions:
            for position, paired in decided.items():
                old = before.get(position)
                # The same candidate with the same pairs is looked at only if what it reads differs.
                if paired is not (None if old is None else old.paired):
                    due[position] = paired
        waiting = sorted(due)
        while waiting:
            position = heapq.heappop(waiting)
            while waiting and waiting[0] == position:
                heapq.heappop(waiting)
            old = self.steps.get(position)
            paired = due.get(position, None if old is None else old.paired)
            step = None
            if paired is not None:
                step = make_step(paired, self.formats(paired.candidate))
            if step is not old:
                for later in self._put(position, old, step):
                    heapq.heappush(waiting, later)

    def formats(self, candidate: LayerCandidate) -> tuple[TensorFormats | None, ...]:
        """What there is of the tensors that ``candidate`` deals with, before it does."""
        changed, known, before = self._histories, self.near.histories, candidate.position - 1
        return tuple(
            [
                behind(changed[t] if t in changed else known.get(t, ()), before)
                for t in candidate.format_tensors
            ]
        )

    def _put(self, position: int, old: Step | None, new: Step | None) -> list[int]:
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
