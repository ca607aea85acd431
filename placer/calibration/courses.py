"""Which branches of If nodes run on the samples of a data set."""

from __future__ import annotations

from collections.abc import Iterator

import onnxruntime as ort

from placer.calibration.dataset import Dataset
from placer.calibration.sample import Sample
from placer.common.ort_session import create_session, run_once
from placer.graph.branches import nest
from placer.graph.exposed import expose_courses
from placer.graph.scopes import Scope
from placer.model import Model

Course = frozenset[Scope]  # The branches that run, each by its scope.


def courses(model: Model, dataset: Dataset) -> Iterator[tuple[Sample, Course]]:
    """Each sample with the branches that run on it, by one run of ``model`` on ONNX Runtime.

    Raises RunError if ONNX Runtime refuses the model.
    """
    flat = model.flat()
    outputs = expose_courses(flat.graph, model.graph.scopes)
    nest(flat.graph, model.graph.scopes)
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = create_session(flat.SerializeToString(), model.base_dir, threads=1, level=level)
    for sample in dataset:
        where = f"{model.path} on {sample.origin}"
        values = run_once(session, list(outputs.values()), sample.inputs, where)
        yield sample, frozenset(b for b, v in zip(outputs, values, strict=True) if v.size)


def branches_that_run(model: Model, dataset: Dataset) -> Course:
    """All branches that run on some sample; see ``courses``."""
    return frozenset[Scope]().union(*(course for _, course in courses(model, dataset)))
