"""The proposer that a run asks for its next placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

from placer.accuracy.gates import Gate
from placer.common.collector import without_collection
from placer.engines.abilities import target_of
from placer.optimizer.options.request import Base
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.search_time import SearchTime
from placer.prediction.select import AnyPredictor, make_predictor
from placer.quantization import FLOAT8, Ranges
from placer.results.result import AS_IMPORTED
from placer.search.base_precision import BaseProposer
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.samplers import (
    ExhaustiveProposer,
    Proposal,
    Proposer,
    RandomProposer,
    TpeProposer,
)
from placer.search.space import BASE, Choices, Space
from placer.search.study.study import Study

# Under what a study keeps the noise of placements that was measured beside the trials.
PROBE = "noise on noisy samples of "


def probes_of(study: Study) -> int:
    """Of how many placements the noise alone was measured, on a few samples, by all workers."""
    return study.kept(PROBE)


def predictor_of(
    task: Task, base: Base | None = None, ranges: Ranges | None = None
) -> AnyPredictor:
    """Predicts plans by the pack, for what the engine builds in ``base``, the task's by default.

    ``ranges``: what candidates are quantized with; see ``make_predictor``.
    """
    base_type = "float" if task.engine.remainder == "kept" else base or task.base
    target = target_of(task.engine)
    return make_predictor(
        task.model.graph, task.pack, target, base_type, task.matches, ranges=ranges
    )


@without_collection()
def make_landscapes(task: Task) -> dict[Base, Landscape]:
    """What the search predicts layers with, by base precision, that of the float model first."""
    graph = task.model.graph
    if not task.bases:
        return {task.base: Landscape(task.space, LayerModel(graph, predictor_of(task)))}
    return {
        base: Landscape(task.space.within(base), LayerModel(graph, predictor_of(task, base)))
        for base in task.bases
    }


def make_proposer(
    task: Task,
    setup: TrialSetup,
    study: Study,
    landscapes: Mapping[Base, Landscape],
    remembered: Mapping[Base, Mapping[str, float]],
    on_probe: Callable[[int], None],
    spent: SearchTime | None = None,
) -> Proposer:
    """The proposer that the request names.

    ``remembered``: costs of layers by base precision. ``on_probe``: is told how often noise was
    measured beside the trials, each time it was. ``spent``: the time of the search, which
    limits how much of it is measured.
    """
    space, seed = task.space, task.request.seed
    sampler = task.request.sampler
    if sampler == "random":
        return RandomProposer(space, seed)
    if sampler == "tpe":
        return TpeProposer(space, seed)
    if sampler == "exhaustive":
        return ExhaustiveProposer(space)

    def probe(choices: Choices) -> float:
        def measure() -> float:
            on_probe(probes_of(study) + 1)
            with nullcontext() if spent is None else spent.of_noise():
                return setup.noise(choices)

        # What INT8 adds is measured beside float, whatever the base precision adds.
        placement = space.placement(choices).computed_in(None)
        deadline = None if spent is None else spent.probing_ends
        return study.keep(f"{PROBE}{placement.id}", measure, deadline)

    starts = (*_as_imported(task), *_warm_starts(task, study))
    reserve = study.reserve if study.shared else None
    proposers = [
        SurrogateProposer(
            landscape,
            seed,
            probe,
            warm_starts=[_in_base(start, landscape.space) for start in starts],
            remembered=remembered[base],
            noise_limit=noise_limit(task.gates),
            levels=0 if task.request.front is None else task.request.front - 1,
            reserve=reserve,
            hurries=task.limit.seconds is not None,
        )
        for base, landscape in landscapes.items()
    ]
    return proposers[0] if len(proposers) == 1 else BaseProposer(proposers, reserve)


def _in_base(start: Proposal, space: Space) -> Proposal:
    """``start`` in the base precision of ``space``, if that says one."""
    base_choice = {BASE: space.bases[0]} if space.bases else {}
    return replace(start, choices={**start.choices, **base_choice})


def _warm_starts(task: Task, study: Study) -> tuple[Proposal, ...]:
    """Those of the request, or what the study began with: its files may be elsewhere."""
    if task.warm_starts:
        starts = [[start.kind, dict(start.choices)] for start in task.warm_starts]
        study.set_attribute("warm starts", starts)
        return task.warm_starts
    kept = study.attribute("warm starts", list[tuple[str, dict[str, str]]]) or ()
    return tuple(Proposal(*pair) for pair in kept)


def _as_imported(task: Task) -> Iterator[Proposal]:
    """The placement nearest to the pairs of a model that is quantized already."""
    if task.model.imported is None:
        return
    source = task.model.imported
    is_new = source.is_float8 and not task.pack.manifest.scheme.is_float8
    placement = source.placement.in_format(FLOAT8) if is_new else source.placement
    choices = task.space.nearest(placement)
    if task.space.placement(choices).edges:
        yield Proposal(AS_IMPORTED, choices)


def noise_limit(gates: tuple[Gate, ...]) -> float | None:
    """The noise power that a gate on the SQNR of all outputs allows, None without such a gate."""
    limits = [
        10 ** (-gate.threshold / 10)
        for gate in gates
        if gate.metric == "sqnr" and gate.output is None and gate.comparison == ">="
    ]
    only = len(limits) == len(gates)
    return min(limits) if limits and only else None
