"""The result of a run in the form that another deployment needs, judged like the model itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from placer.accuracy.evaluation import Run
from placer.accuracy.sanity import invalid_output
from placer.engines.abilities import LoadsEngines
from placer.engines.base import Tensors
from placer.engines.openvino.export import save_as_openvino
from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.results.folder import OutputFolder


def export(task: Task, setup: TrialSetup, folder: OutputFolder, observer: Observer) -> None:
    """Write ``optimized.xml`` and ``optimized.bin`` if they were asked for.

    What is on disk is loaded and judged by the gates; if it misses one it is removed, and the user
    is told why.
    """
    if task.request.export is None:
        return
    folder.remove_exported()
    try:
        save_as_openvino(folder.model, folder.exported)
        problem = _problem(task, setup, folder)
    except RunError as error:
        problem = str(error)
    if problem is not None:
        folder.remove_exported()
        observer.warn(f"no {folder.exported.name}: {problem}")


def _problem(task: Task, setup: TrialSetup, folder: OutputFolder) -> str | None:
    engine, names = task.engine, task.model.graph.outputs
    if not isinstance(engine, LoadsEngines):
        raise RunError(f"engine {engine.name} does not load OpenVINO's files")
    saved = engine.load(folder.exported)

    def run(inputs: Tensors) -> Mapping[str, np.ndarray]:
        return dict(zip(names, saved.run(inputs).values(), strict=True))

    if task.judged.has_more:  # Files of OpenVINO get no further outputs.
        return _differing(task, folder, run)
    gates = setup.evaluator.evaluate(run).gates
    missed = [value.gate.text() for value in gates if not value.passed]
    return f"as written it misses {', '.join(missed)}" if missed else None


def _differing(task: Task, folder: OutputFolder, run: Run) -> str | None:
    """How outputs differ from those of the model that was judged, on the same engine."""
    model = onnx.load(folder.model, load_external_data=False)
    judged = task.engine.compile(model, folder.model.parent)
    for sample in task.evaluation_data:
        problem = invalid_output(run(sample.inputs), judged.run(sample.inputs))
        if problem is not None:
            return f"as written its {problem}"
    return None
