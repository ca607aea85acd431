"""Searches that placer's own is compared with on engines: those of computed latencies, and greedy.

Each trial of theirs is both measured and judged, whatever it gives, so that they know of it what
there is to know. How they take gates: ``rivals``, ``region_scheme``. Noise is measured beside the
trials by greedy alone, as placer measures it, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarks.search import runs
from benchmarks.search.rivals import QuietestProposer, StartedProposer, decided_by_default
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.trial import TrialRunner
from placer.search.samplers import Proposer

OURS, GREEDY = "surrogate", "greedy"
# By what they are called here: what they are called in ``runs``.
_SHARED: Mapping[str, str] = {
    "tpe from the same starts": runs.SEEDED_TPE,
    "cma-es": runs.CMA_ES,
    "local search": runs.LOCAL,
    "tpe": runs.TPE,
    "random": runs.RANDOM,
    "regions": runs.REGIONS,
    "regions, default imported": runs.IMPORTED_REGIONS,
}
SAMPLERS = (OURS, GREEDY, *_SHARED)


def make_rival(sampler: str, task: Task, bench: TrialSetup) -> tuple[Proposer, int]:
    """The search, and how often it has measured noise."""
    space, seed = task.space, task.request.seed
    if sampler in _SHARED:
        return runs.make_rival(_SHARED[sampler], space, seed), 0
    names = decided_by_default(space)
    noise = {name: bench.noise({**space.floats, name: space.defaults[name]}) for name in names}
    quietest = QuietestProposer(space, noise)
    return StartedProposer(space, runs.starts_of(space), quietest.propose), len(noise)


def whole_trials(task: Task, bench: TrialSetup) -> TrialRunner:
    """Measures what misses gates, too, and judges what is slow."""
    return TrialRunner(
        bench.candidates,
        bench.evaluator,
        bench.baseline,
        task.inputs,
        task.preset.rounds,
        judge_all=True,
        recoverable=math.inf,
    )
