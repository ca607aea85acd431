"""Which bodies of If, Loop and Scan nodes run on the samples of a data set, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnxruntime as ort

from placer.calibration.dataset import Dataset
from placer.calibration.sample import Sample
from placer.common.ort_session import create_session, run_once
from placer.graph.exposed import expose_runs
from placer.graph.flat import nest
from placer.graph.scopes import Scope
from placer.model import Model

Ran = frozenset[Scope]  # The bodies that run, each by its scope.


def bodies_that_run(model: Model, dataset: Dataset) -> Ran:
    """All bodies that run on some sample; see ``runs_of_bodies``."""
    return frozenset[Scope]().union(*(runs for _, runs in runs_of_bodies(model, dataset)))


def most_runs(model: Model, dataset: Dataset) -> Counter[Scope]:
    """How often each body runs on one sample, at most; see ``runs_of_bodies``."""
    most: Counter[Scope] = Counter()
    for _, runs in runs_of_bodies(model, dataset):
        most |= runs
    return most


def runs_of_bodies(model: Model, dataset: Dataset) -> Iterator[tuple[Sample, Counter[Scope]]]:
    """Each sample with how often bodies run on it, by one run of ``model`` on ONNX Runtime.

    Raises RunError if ONNX Runtime refuses the model.
    """
    flat = model.flat()
    outputs, scopes = expose_runs(flat.graph, model.graph.scopes)
    nest(flat.graph, scopes)
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = create_session(flat.SerializeToString(), model.base_dir, threads=1, level=level)
    for sample in dataset:
        where = f"{model.path} on {sample.origin}"
        values = run_once(session, list(outputs.values()), sample.inputs, where)
        runs = {body: v.size for body, v in zip(outputs, values, strict=True) if v.size}
        yield sample, Counter(runs)
