"""Gates on outputs that are drawn at random, which no candidate can meet."""

from __future__ import annotations

from placer.accuracy.gates import LABEL_METRICS, METRICS
from placer.errors import InputError
from placer.graph.randomness import random_outputs
from placer.importing.source_model import random_on
from placer.optimizer.setup.task import Task


def check_random_gates(task: Task) -> None:
    """Raise InputError for a gate that compares an output whose values differ from run to run.

    Labels are told right or wrong, which noise may leave as it is.
    """
    compared = [g for g in task.gates if g.metric in METRICS and g.metric not in LABEL_METRICS]
    for output in sorted(random_on(task.model, task.evaluation_data)) if compared else ():
        for gate in (one for one in compared if one.output in (None, output)):
            raise InputError(
                f"gate {gate.text()}: output '{output}' is random (node "
                f"'{random_outputs(task.model.graph)[output]}') and differs from run to run; name "
                "another output, as in sqnr>=15@OUTPUT, or make the noise an input of the model"
            )
