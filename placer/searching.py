"""What a run searches with: its study, its proposer and what its trials learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from placer import __version__
from placer.bench import Bench
from placer.engines.abilities import target_of
from placer.engines.base import Compiled, Tensors
from placer.errors import InputError
from placer.gates import Gate
from placer.layer_costs import FILE_NAME, LayerCosts
from placer.placement import EMPTY, Placement
from placer.rules.fusion import Predictor
from placer.search.landscape import Landscape
from placer.search.layers import LayerModel, PredictedLayers, attribute
from placer.search.records import TrialRecord
from placer.search.samplers import (
    ExhaustiveProposer,
    Proposal,
    Proposer,
    RandomProposer,
    TpeProposer,
)
from placer.search.space import Choices
from placer.search.study import STUDY_NAME, Study, open_storage
from placer.search.surrogate import SurrogateProposer, observe
from placer.task import Task
from placer.warm_start import warm_starts

Sampler = Literal["surrogate", "tpe", "random", "exhaustive"]
SAMPLERS: tuple[Sampler, ...] = ("surrogate", "tpe", "random", "exhaustive")
# A layer that so many trials have profiled is known well enough.
ENOUGH_PROFILES = 2
# Rounds in which the float model is measured to compare with what other runs measured.
FLOAT_ROUNDS = 5
# Raised when trials of earlier versions cannot be gone on with.
STUDY_FORMAT = 2


def parse_sampler(text: str) -> Sampler:
    """The sampler that --sampler names; InputError for any other."""
    for sampler in SAMPLERS:
        if text == sampler:
            return sampler
    raise InputError(f"unknown --sampler '{text}'; use one of: {', '.join(SAMPLERS)}")


def settings_of(task: Task) -> dict[str, Any]:
    """What must not change within a study, by the name that the user knows it by."""
    model, request = task.model, task.request
    return {
        "model": model.fingerprint,
        "input shapes": {
            **{name: list(shape) for name, shape in model.input_shapes.items()},
            **{name: found.text for name, found in task.shape_ranges.items()},
        },
        "pack": f"{task.pack.name_and_version} {task.pack.fingerprint}",
        "engine": f"{task.engine.name} {task.engine.version}, {task.engine.device}",
        "calibration": request.calibration,
        "calibration data": f"{task.calibration_data.fingerprint}, {len(task.calibration_data)}",
        "evaluation data": f"{task.evaluation_data.fingerprint}, {len(task.evaluation_data)}",
        "gates": list(task.gate_texts),
        "seed": request.seed,
        "sampler": parse_sampler(request.sampler),
        "study format": STUDY_FORMAT,
        "engine options": dict(request.engine_options),
        **({"ranges": "imported"} if task.model.imported else {}),
        # Other versions may build other candidates; a run of one machine is gone on with.
        **({} if request.storage is None else {"version of placer": __version__}),
        "base": "kept" if task.engine.remainder == "kept" else f"{task.base}, {request.io_type}",
    }


def earlier_study(task: Task) -> Study | None:
    """The run's study if it exists, or if there is a storage to keep it in; None otherwise.

    Raises InputError if it was made with other settings.
    """
    request = task.request
    if request.storage is None and not (request.output_folder / "study.db").exists():
        return None
    return open_study(task)


def open_study(task: Task) -> Study:
    """Open or create the run's study: in its output folder, or in --storage."""
    request, settings = task.request, settings_of(task)
    if request.storage is None:
        path = request.output_folder / "study.db"
        storage = open_storage(f"sqlite:///{path}", shared=False)
        return Study(storage, STUDY_NAME, task.space, settings, place=str(request.output_folder))
    storage = open_storage(request.storage, shared=True)
    name = request.study or f"{request.model.stem} {task.model.fingerprint[:12]}"
    return Study(storage, name, task.space, settings, shared=True, place=f"study '{name}'")


def make_predictor(task: Task) -> Predictor:
    """Predicts plans by the pack's rules, for what the engine builds."""
    scheme = task.pack.manifest.scheme
    base = "float" if task.engine.remainder == "kept" else task.base
    rules, target = task.pack.rules, target_of(task.engine)
    return Predictor(task.model.graph, rules, target, base, scheme.activation)


def make_landscape(task: Task) -> Landscape:
    """What the search predicts layers with."""
    return Landscape(task.space, LayerModel(task.model.graph, make_predictor(task)))


def make_proposer(
    task: Task, bench: Bench, study: Study, landscape: Landscape, remembered: Mapping[str, float]
) -> Proposer:
    """The proposer that --sampler names."""
    space, seed = task.space, task.request.seed
    sampler = parse_sampler(task.request.sampler)
    if sampler == "random":
        return RandomProposer(space, seed)
    if sampler == "tpe":
        return TpeProposer(space, seed)
    if sampler == "exhaustive":
        return ExhaustiveProposer(space)

    def probe(choices: Choices) -> float:
        return study.keep(f"noise of {space.placement(choices).id}", lambda: bench.noise(choices))

    return SurrogateProposer(
        landscape,
        seed,
        probe,
        warm_starts=(*_as_imported(task), *_warm_starts(task, study)),
        remembered=remembered,
        noise_limit=_noise_limit(task.gates),
        levels=0 if task.request.front is None else task.request.front - 1,
    )


def _warm_starts(task: Task, study: Study) -> tuple[Proposal, ...]:
    """What --warm-start names, or what the study began with: its files may be elsewhere."""
    if task.request.warm_starts:
        found = warm_starts(task.request.warm_starts, task.model, task.space)
        study.set_attribute("warm starts", [[own.kind, dict(own.choices)] for own in found])
        return found
    return tuple(Proposal(*pair) for pair in study.attribute("warm starts") or ())


def _as_imported(task: Task) -> Iterator[Proposal]:
    """Where a model that is quantized already had its pairs."""
    if task.model.imported is None:
        return
    choices = task.space.nearest(task.model.imported.placement)
    if task.space.placement(choices) != EMPTY:
        yield Proposal("as imported", choices)


class ProfiledLayers:
    """Times of layers by the engine's profiler, until they are known well enough."""

    def __init__(
        self, landscape: Landscape, inputs: Tensors, earlier: Sequence[TrialRecord]
    ) -> None:
        """``earlier``: the trials of the study so far."""
        self._model = landscape.layers
        self._inputs = inputs
        self._last: PredictedLayers | None = None
        self._seen: Counter[str] = Counter()
        for record in earlier:
            self._seen.update((record.details.get("layers") or {}).keys())

    def known(self, placement: Placement) -> bool:
        """See ``placer.trials.LayerTimes``."""
        numbers = self._predict(placement).counts()
        return all(
            self._seen[self._model.signatures[number].id] >= ENOUGH_PROFILES for number in numbers
        )

    def measure(self, placement: Placement, compiled: Compiled) -> Mapping[str, float]:
        """See ``placer.trials.LayerTimes``."""
        predicted = self._predict(placement)
        times = attribute(predicted, compiled.plan(self._inputs), self._model)
        found = {self._model.signatures[number].id: time for number, time in times.items()}
        self._seen.update(found.keys())
        return found

    def _predict(self, placement: Placement) -> PredictedLayers:
        # What is asked for twice in turn, or is like the last, takes next to no time.
        self._last = self._model.predict(placement, self._last)
        return self._last


def remembered_layers(
    task: Task, bench: Bench, study: Study, costs: LayerCosts | None
) -> Mapping[str, float]:
    """Costs of layers that other runs measured, in parts of the float model's latency.

    As the study began with them, so that a resumed one goes on in the same way.
    """
    kept = study.attribute("remembered")
    if kept is None:
        times = costs.load() if costs is not None else {}
        kept = {}
        if times:
            seconds = task.engine.measure([bench.baseline], task.inputs, FLOAT_ROUNDS)
            latency_us = 1e6 * float(np.median(seconds))
            kept = {signature: time / latency_us for signature, time in times.items()}
        study.set_attribute("remembered", kept)
    shares: Mapping[str, float] = kept
    return shares


def keep_layers(
    costs: LayerCosts | None, landscape: Landscape, records: Sequence[TrialRecord]
) -> None:
    """Keep the times of layers that trials measured for other runs."""
    if costs is None:
        return
    found: list[tuple[str, float]] = []
    for record in records:
        if record.ratio is not None and record.details.get("layers"):
            seen = observe(landscape, record)
            float_us = 1e3 * record.details["latency"]["median_ms"] / record.ratio
            signatures = landscape.layers.signatures
            found += [(signatures[n].id, share * float_us) for n, share in seen.layers.items()]
    costs.add(found)


def layer_costs(task: Task) -> LayerCosts | None:
    """Where times of layers are kept between runs; None if nothing is, or nothing is measured."""
    folder = task.request.cache_dir
    if folder is None or task.engine.estimated:
        return None
    engine = task.engine
    kind = f"{engine.name} {engine.version}, {engine.device}, {engine.clock}, {task.base}"
    return LayerCosts(folder / FILE_NAME, kind)


def _noise_limit(gates: tuple[Gate, ...]) -> float | None:
    """The noise power that a gate on the SQNR of all outputs allows, None without such a gate."""
    limits = [
        10 ** (-gate.threshold / 10)
        for gate in gates
        if gate.metric == "sqnr" and gate.output is None and gate.comparison == ">="
    ]
    only = len(limits) == len(gates)
    return min(limits) if limits and only else None
