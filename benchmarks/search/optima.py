"""The best known latency of each case: of all combinations, or of a long local search."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.search.models import REDUCED, Latency, Problem, load_problem
from benchmarks.search.runs import NEAR, Case, Run, parallel, starts_of
from placer.search.space import Choices


@dataclass(frozen=True)
class Best:
    """The best known latency of a case, and of what placement.

    ``start``: the best of the placements that ours begins with, None if none holds the gate.
    """

    ratio: float
    choices: Choices
    start: float | None

    @property
    def is_hard(self) -> bool:
        """Whether no beginning is within 1% of it."""
        return self.start is None or self.start > NEAR * self.ratio


def find_bests(
    cases: Sequence[Case], kept: Mapping[Case, Best], evaluations: int, jobs: int
) -> dict[Case, Best]:
    """The best of every case; those in ``kept`` are taken over if they still hold.

    ``evaluations``: of a long search, where the space is too large for all combinations.
    """
    found = {case: kept[case] for case in cases if case in kept and _holds(kept[case], case)}
    tasks: list[Callable[[], dict[Case, Best]]] = []
    for model in dict.fromkeys(case.model for case in cases):
        missing = [c for c in cases if c.model == model and c not in found]
        if model in REDUCED and missing:
            tasks.append(partial(exhaust, missing))
        else:
            tasks += [partial(long_search, case, evaluations) for case in missing]
    for part in parallel(tasks, jobs, "references"):
        found.update(part)
    return found


def _holds(best: Best, case: Case) -> bool:
    """Whether a kept best is of the space as it is now and still takes as long."""
    problem = load_problem(case.model)
    layouts = {group.name: group.layouts for group in problem.space.groups}
    if layouts.keys() != best.choices.keys():
        return False
    if any(best.choices[name] not in own for name, own in layouts.items()):
        return False
    ratio = case.latency().ratio(problem.space.placement(best.choices))
    return math.isclose(ratio, best.ratio, rel_tol=1e-9)


def exhaust(cases: Sequence[Case]) -> dict[Case, Best]:
    """The optimum of a reduced space; ``cases`` are of one model."""
    problem = load_problem(cases[0].model)
    layers = problem.layer_model()
    by_gpu: dict[tuple[str, float], list[Case]] = {}
    for case in cases:
        by_gpu.setdefault((case.gpu, case.hidden), []).append(case)
    latencies = {key: own[0].latency(layers) for key, own in by_gpu.items()}
    gates = {case: case.gate() for case in cases}
    noise = next(iter(gates.values()))
    found: dict[Case, tuple[float, Choices]] = {}
    for choices in problem.choices():
        placement = problem.space.placement(choices)
        power = 0.0 if noise is None else noise.power(choices)
        for key, own in by_gpu.items():
            ratio = latencies[key].ratio(placement)
            for case in own:
                gate = gates[case]
                holds = gate is None or power <= gate.limit
                if holds and ratio < found.get(case, (math.inf,))[0]:
                    found[case] = ratio, choices
    return {case: Best(*best, _best_start(case)) for case, best in found.items()}


def long_search(case: Case, evaluations: int) -> dict[Case, Best]:
    """The best of so many evaluations: local search from random starts and from near the best."""
    ratio, choices = LongSearch(load_problem(case.model), case.latency()).run(evaluations)
    return {case: Best(ratio, choices, _best_start(case))}


def _best_start(case: Case) -> float | None:
    problem = load_problem(case.model)
    latency = case.latency()
    starts = starts_of(problem.space)
    gate = case.gate()
    if gate is not None:
        starts = [choices for choices in starts if gate.power(choices) <= gate.limit]
    ratios = (latency.ratio(problem.space.placement(choices)) for choices in starts)
    return min(ratios, default=None)


class LongSearch:
    """Changes one group at a time while that helps; then starts elsewhere."""

    def __init__(self, problem: Problem, latency: Latency) -> None:
        self._space = problem.space
        self._latency = latency
        self._known: dict[str, float] = {}
        self._rng = np.random.default_rng(0)
        self._most = 0

    def run(self, evaluations: int) -> tuple[float, dict[str, str]]:
        """Stops earlier if the last so many starts brought nothing new to evaluate."""
        self._most = evaluations
        starts = (self._space.floats, self._space.defaults, self._space.everything)
        best = min(self._descend(dict(start)) for start in starts)
        idle = 0
        while len(self._known) < evaluations and idle < 100:
            before = len(self._known)
            start = self._random() if self._rng.uniform() < 0.25 else self._near(dict(best[1]))
            best = min(best, self._descend(start))
            idle = idle + 1 if len(self._known) == before else 0
        return best[0], dict(best[1])

    def _descend(self, choices: dict[str, str]) -> tuple[float, list[tuple[str, str]]]:
        ratio = self._evaluate(choices)
        improved = True
        while improved and len(self._known) < self._most:
            improved = False
            for index in self._rng.permutation(len(self._space.groups)):
                group = self._space.groups[int(index)]
                for layout in group.layouts:
                    changed = {**choices, group.name: layout}
                    other = self._evaluate(changed)
                    if other < ratio - 1e-12:
                        choices, ratio, improved = changed, other, True
        return ratio, sorted(choices.items())

    def _evaluate(self, choices: Choices) -> float:
        placement = self._space.placement(choices)
        if placement.id not in self._known:
            self._known[placement.id] = self._latency.ratio(placement)
        return self._known[placement.id]

    def _random(self) -> dict[str, str]:
        return {g.name: self._layout(g.layouts) for g in self._space.groups}

    def _near(self, choices: dict[str, str]) -> dict[str, str]:
        count = min(len(self._space.groups), int(self._rng.integers(2, 7)))
        for index in self._rng.choice(len(self._space.groups), size=count, replace=False):
            group = self._space.groups[int(index)]
            choices[group.name] = self._layout(group.layouts)
        return choices

    def _layout(self, layouts: Sequence[str]) -> str:
        return layouts[int(self._rng.integers(len(layouts)))]


def with_runs(bests: Mapping[Case, Best], runs: Sequence[Run]) -> dict[Case, Best]:
    """``bests``, but for cases where a run did better than the long search."""
    found = dict(bests)
    for run in runs:
        known = found[run.case]
        found[run.case] = replace(known, ratio=min(known.ratio, run.best(run.trials)))
    return found


def read_bests(path: Path | None) -> dict[Case, Best]:
    """The references of an earlier run; empty if there is none."""
    if path is None or not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))["references"]
    return {Case(**e["case"]): Best(e["ratio"], e["choices"], e["start"]) for e in entries}
