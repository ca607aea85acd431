"""Labels of the evaluation data for gates: which output they are of, and whether they tell."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from placer.accuracy.evaluation import Samples
from placer.accuracy.gates import Gate
from placer.accuracy.labels import class_indices, is_guessing
from placer.accuracy.metrics import ClassCounts
from placer.errors import InputError


def read_labels(samples: Samples, gates: Sequence[Gate]) -> list[np.ndarray | None]:
    """The class indices of each batch, None where there are none.

    Raises InputError for labels that are no class indices although ``gates`` need them.
    """
    labels: list[np.ndarray | None] = []
    for sample in samples:
        labels.append(None)
        if sample.labels is None:
            continue
        try:
            labels[-1] = class_indices(sample.labels)
        except ValueError as error:  # A function of the user's may need such labels.
            if gates:
                raise InputError(f"gate {gates[0].text()}: labels {error}") from error
    return labels


def note_on_few_labels(gates: Sequence[Gate], samples: Samples) -> str | None:
    """A sentence on the gate whose ``top1_drop`` is less than what one label stands for, if any.

    ``samples`` are read only where there is a gate that needs labels, and not further than that.
    """
    drops = [gate for gate in gates if gate.metric == "top1_drop" and 0 < gate.threshold < 1]
    if not drops:
        return None
    finest = min(drops, key=lambda gate: gate.threshold)
    needed, count = math.ceil(1 / finest.threshold), 0
    for sample in samples:
        count += 0 if sample.labels is None else int(np.size(sample.labels))
        if count >= needed:
            return None
    if not count:
        return None
    return (
        f"{count} label{'s are' if count > 1 else ' is'} too few for {finest.text()}: one more "
        f"wrong answer is a drop of {1 / count:.2g}; give {needed} or more"
    )


def label_output(gate: Gate, classes: Mapping[str, ClassCounts], floats: Collection[str]) -> str:
    """The output whose classes the labels tell; those of ``floats`` come first.

    ``classes``: what was counted of the float model's outputs. Raises InputError where labels fit
    no output or several, lie outside the classes, or the float model does no better than guessing.
    """
    fitting = [
        output
        for output, counts in classes.items()
        if gate.output in (None, output) and 0 < counts.labelled == counts.positions
    ]
    fitting = [o for o in fitting if o in floats] or fitting
    if not fitting:
        fit = f"do not fit {gate.output}" if gate.output else "fit no output"
        raise InputError(
            f"gate {gate.text()}: labels {fit}; give one class index per position of an "
            "output, which has classes along its last axis, or a gate without labels: sqnr>=15"
        )
    if len(fitting) > 1:
        raise InputError(
            f"gate {gate.text()}: labels fit several outputs ({', '.join(fitting)}); name one, "
            f"as in {gate.text()}@{fitting[0]}"
        )
    _check_counts(gate, fitting[0], classes[fitting[0]])
    return fitting[0]


def _check_counts(gate: Gate, output: str, counts: ClassCounts) -> None:
    """Raise InputError for labels of which ``gate`` would say nothing."""
    if counts.outside:
        raise InputError(
            f"gate {gate.text()}: {counts.outside} labels lie outside 0 to "
            f"{counts.classes - 1}, the classes of output '{output}'; correct the labels"
        )
    if is_guessing(counts.reference_correct, counts.labelled, counts.classes):
        raise InputError(
            f"gate {gate.text()}: the float model meets {counts.reference_correct} of "
            f"{counts.labelled} labels of '{output}', no better than guessing among "
            f"{counts.classes} classes; correct the labels or their order, give more of them, or "
            "choose another gate"
        )
