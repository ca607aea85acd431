"""Times of layers that trials profile, and that earlier runs have left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import NonNegativeFloat

from placer.engines.base import Compiled
from placer.engines.rounds import TIMING
from placer.engines.times import measured_seconds
from placer.optimizer.options.request import Base
from placer.optimizer.setup.layer_cache import FILE_NAME, LayerCosts
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.quantization import Placement
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel, PredictedLayers
from placer.search.models.attribution import attribute
from placer.search.models.observe import observe
from placer.search.records import TrialRecord
from placer.search.study.study import Study

# A layer that so many trials have profiled is known well enough.
ENOUGH_PROFILES = 2
# Rounds in which the float model is measured to compare with what other runs measured.
FLOAT_ROUNDS = 5


class ProfiledLayers:
    """Times of layers by the engine's profiler, until they are known well enough."""

    def __init__(
        self,
        task: Task,
        landscapes: Mapping[Base, Landscape],
        earlier: Sequence[TrialRecord],
    ) -> None:
        """``landscapes``: by base precision. ``earlier``: the trials of the study so far."""
        self._task = task
        self._models = {base: landscape.layers for base, landscape in landscapes.items()}
        self._last: dict[Base, PredictedLayers] = {}
        self._seen: Counter[str] = Counter()
        self._hidden = False
        for record in earlier:
            if record.measurement is not None:
                self._seen.update(record.measurement.layers.keys())

    def known(self, placement: Placement) -> bool:
        """See ``placer.optimizer.trials.trial.LayerTimes``."""
        if self._hidden:
            return True
        model, predicted = self._predict(placement)
        return all(
            self._seen[model.signatures[number].id] >= ENOUGH_PROFILES
            for number in predicted.counts()
        )

    def measure(self, placement: Placement, compiled: Compiled) -> Mapping[str, float]:
        """See ``placer.optimizer.trials.trial.LayerTimes``."""
        model, predicted = self._predict(placement)
        plan = compiled.plan(self._task.inputs)
        # An engine may profile an If as one layer: those in its bodies would count as free.
        scopes = self._task.model.graph.scopes
        self._hidden = bool(scopes) and scopes.keys().isdisjoint(
            node for layer in plan.layers for node in layer.nodes
        )
        if self._hidden:
            return {}
        times = attribute(predicted, plan, model)
        time_of = {model.signatures[number].id: time for number, time in times.items()}
        self._seen.update(time_of.keys())
        return time_of

    def _predict(self, placement: Placement) -> tuple[LayerModel, PredictedLayers]:
        base = self._task.base_of(placement)
        # What is asked for twice in turn, or is like the last, takes next to no time.
        self._last[base] = self._models[base].predict(placement, self._last.get(base))
        return self._models[base], self._last[base]


def remembered_layers(
    task: Task, setup: TrialSetup, study: Study, base: Base, costs: LayerCosts | None
) -> Mapping[str, float]:
    """Costs of layers that other runs measured in ``base``, in parts of the float model's latency.

    As the study began with them, so that a resumed one goes on in the same way.
    """
    name = "remembered" if base == task.base else f"remembered in {base}"
    kept = study.attribute(name, dict[str, NonNegativeFloat])
    if kept is None:
        times = costs.load() if costs is not None else {}
        kept = {}
        if times:
            seconds = measured_seconds(task.engine, [setup.baseline], task.inputs, FLOAT_ROUNDS)
            latency_us = 1e6 * float(np.median(seconds))
            kept = {signature: time / latency_us for signature, time in times.items()}
        study.set_attribute(name, kept)
    shares: Mapping[str, float] = kept
    return shares


def keep_layers(
    costs: LayerCosts | None, landscape: Landscape, records: Sequence[TrialRecord]
) -> None:
    """Keep the times of layers that ``records``, of the landscape's precision, have measured."""
    if costs is None:
        return
    times: list[tuple[str, float]] = []
    for record in records:
        measurement = record.measurement
        if measurement is not None and measurement.layers:
            seen = observe(landscape, record.choices, measurement)
            float_us = 1e3 * measurement.latency.median_ms / measurement.ratio.median
            signatures = landscape.layers.signatures
            times += [(signatures[n].id, share * float_us) for n, share in seen.layers.items()]
    costs.add(times)


def layer_costs(task: Task, base: Base) -> LayerCosts | None:
    """Where times of layers in ``base`` are kept between runs.

    None if nothing is kept, or nothing is measured. In bodies of If, Loop and Scan the time of a
    layer is weighted by how often they run on this data, which says nothing of the same layer
    elsewhere.
    """
    folder = task.request.cache_dir
    if folder is None or task.engine.estimated or task.model.graph.scopes:
        return None
    engine = task.engine
    # As the engine says it itself where it has one base precision.
    device = f"{engine.device}, {base}" if task.bases else engine.device
    kind = f"{engine.name} {engine.version}, {device}, {engine.clock}, {TIMING}, {base}"
    return LayerCosts(folder / FILE_NAME, kind)
