"""Which bodies of If, Loop and Scan run on the data: what runs on no sample stays float."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placer.calibration.body_runs import Ran, bodies_that_run, runs_of_bodies
from placer.calibration.dataset import Dataset
from placer.common.listed import listed
from placer.engines.base import Tensors
from placer.engines.execution_paths import ExecutionPath, ExecutionPaths
from placer.graph import Graph
from placer.graph.scopes import Scope
from placer.model import Model
from placer.rules.restriction import restricted
from placer.rules.sites import Site

# Each path is measured in turn: many Ifs that samples decide apart have one for each sample.
MOST_PATHS = 8


@dataclass(frozen=True, eq=False)
class BodiesRun:
    """``inputs``: what latency is measured on. ``idle``: nodes that do not run on all data, of
    which ``note`` is a sentence.
    """

    graph: Graph
    inputs: Tensors
    idle: frozenset[str] = frozenset()
    note: str = ""

    def sites(self, sites: tuple[Site, ...]) -> tuple[Site, ...]:
        """``sites`` without what would quantize a node that no sample reaches."""
        return restricted(sites, self.graph, self.idle) if self.idle else sites


def bodies_run(
    model: Model, calibration: Dataset, evaluation: Dataset, warn: Callable[[str], None]
) -> BodiesRun:
    """Look which bodies run on both data sets.

    ``warn`` is told of those that stay float, and of rare execution paths that latency leaves out.

    Raises RunError if ONNX Runtime refuses the model.
    """
    graph = model.graph
    if not graph.scopes:
        return BodiesRun(graph, next(iter(evaluation)).inputs)
    inputs, evaluated = _by_path(model, evaluation, warn)
    both = bodies_that_run(model, calibration) & evaluated
    idle = {name: scope for name, scope in graph.scopes.items() if scope not in both}
    sentence = _sentence(graph, idle) if idle else ""
    if sentence:
        warn(sentence)
    return BodiesRun(graph, inputs, frozenset(idle), sentence)


def _sentence(graph: Graph, idle: Mapping[str, Scope]) -> str:
    """Which bodies stay float; ``idle``: scopes of the nodes that not all data reaches."""
    scopes = sorted(dict.fromkeys(idle.values()), key=len)
    bodies = listed([scope[-1] for scope in scopes], 1)
    return (
        f"{len(idle)} of {len(graph.nodes)} nodes stay float in {bodies}: calibration "
        "and evaluation data must both run them; give samples that do"
    )


def _by_path(model: Model, data: Dataset, warn: Callable[[str], None]) -> tuple[Tensors, Ran]:
    """A sample of each path with the share of those that take it, and all bodies that run."""
    by_ran: dict[Ran, list[_Sample]] = defaultdict(list)
    for number, (_, runs) in enumerate(runs_of_bodies(model, data)):
        by_ran[frozenset(runs)].append(_Sample(runs.total(), number))
    total = sum(map(len, by_ran.values()))
    kept = sorted(by_ran.values(), key=len, reverse=True)[:MOST_PATHS]
    covered = sum(map(len, kept))
    if len(kept) < len(by_ran):
        warn(
            f"latency is that of the {MOST_PATHS} most frequent of {len(by_ran)} combinations of "
            f"bodies that run, which {covered / total:.0%} of the samples have"
        )
    shares = {_typical(samples): len(samples) / covered for samples in kept}
    chosen = zip(sorted(shares), data.choose(sorted(shares)), strict=True)
    inputs = {number: sample.inputs for number, sample in chosen}
    paths = [ExecutionPath(inputs[number], share) for number, share in shares.items()]
    return ExecutionPaths(paths), frozenset[Scope]().union(*by_ran)


class _Sample(NamedTuple):
    """How often bodies run on a sample, in all, and its number."""

    runs: int
    number: int


def _typical(samples: Sequence[_Sample]) -> int:
    """The first sample with the median number of runs, the lower one of two."""
    median = sorted(sample.runs for sample in samples)[(len(samples) - 1) // 2]
    return next(sample.number for sample in samples if sample.runs == median)
