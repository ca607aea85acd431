"""Noise of placements, each measured once, and what leaving subjects float costs in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.accuracy.metrics import finite
from placer.engines.base import Compiled
from placer.engines.times import measured_seconds
from placer.errors import RunError
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.probing.noise_cache import NoiseCache, Noises
from placer.probing.subjects import Subject
from placer.quantization import Placement
from placer.results.sensitivity import SavedPart, SubjectPart

_RESAMPLES = 2000
Tell = Callable[[], None]


class Probes:
    """Measures the noise of placements; counts what was measured and what was known."""

    def __init__(self, setup: TrialSetup, cache: NoiseCache) -> None:
        self._setup = setup
        self._cache = cache
        self.measured: set[str] = set()
        self.known: set[str] = set()

    def noises(self, placement: Placement) -> Noises:
        """Noise by part of an output; raises RunError where the engine refuses the candidate."""
        known = self._cache.get(placement.id)
        if known is not None:
            if placement.id not in self.measured:
                self.known.add(placement.id)
            return known
        run = self._setup.candidates.runner(placement)
        noises = self._setup.evaluator.evaluate(run).noises
        known = {part: finite(noise) for part, noise in noises.items()}
        self._cache.add(placement.id, known)
        self.measured.add(placement.id)
        return known


def probe(task: Task, probes: Probes, subjects: Sequence[Subject], tell: Tell) -> list[SubjectPart]:
    """What each of ``subjects`` does; ``tell`` is called after each. No latencies yet.

    Raises RunError if the default placement is refused.
    """
    floats = task.space.placement(task.space.floats)
    default = task.space.placement(task.space.defaults)
    probes.noises(default)
    probed = []
    for subject in subjects:
        alone, without = subject.alone(task.space), subject.without(task.space)
        only: Noises | None = None
        rest: Noises | None = None
        error = None
        try:
            only = None if alone == floats else probes.noises(alone)
            rest = None if without == default else probes.noises(without)
        except RunError as refused:
            error = str(refused)
        first = subject.sites[0].match
        probed.append(
            SubjectPart(
                kind=subject.kind,
                name=subject.name,
                rule=first.rule.id,
                sites=len(subject.sites),
                nodes=[n.name for n in first.nodes.values()] if subject.kind == "site" else [],
                default=without != default,
                alone=None if only is None else dict(only),
                without=None if rest is None else dict(rest),
                error=error,
            )
        )
        tell()
    return probed


def saved(
    task: Task,
    setup: TrialSetup,
    subjects: Sequence[Subject],
    rounds: int,
    tell: Tell,
) -> list[SavedPart | None]:
    """Time that each of ``subjects`` saves in the default placement, None where it is float there.

    The placement without it is measured in turn with the default one. Raises RunError if the
    engine refuses that.
    """
    default = task.space.placement(task.space.defaults)
    compiled = setup.candidates.compile(default)
    known: dict[str, SavedPart | None] = {default.id: None}
    savings = []
    for subject in subjects:
        without = subject.without(task.space)
        if without.id not in known:
            known[without.id] = _saved(task, setup, without, compiled, rounds)
        savings.append(known[without.id])
        tell()
    return savings


def _saved(
    task: Task, setup: TrialSetup, without: Placement, default: Compiled, rounds: int
) -> SavedPart | None:
    try:
        other = setup.candidates.compile(without)
    except RunError:
        return None  # Its noise tells why.
    if task.engine.estimated:
        first, second = measured_seconds(task.engine, [default, other], task.inputs, 1)[0]
        return SavedPart(microseconds=1e6 * float(second - first))
    seconds = measured_seconds(task.engine, [default, other], task.inputs, rounds)
    gains = 1e6 * (seconds[:, 1] - seconds[:, 0])
    picks = np.random.default_rng(0).integers(0, len(gains), size=(_RESAMPLES, len(gains)))
    low, high = np.quantile(np.median(gains[picks], axis=1), (0.025, 0.975))
    return SavedPart(microseconds=float(np.median(gains)), interval=[float(low), float(high)])
