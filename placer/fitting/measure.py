"""Networks built on a real engine, in float and with several placements, and measured in turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.abilities import target_of
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.times import measured_seconds
from placer.errors import RunError
from placer.fitting.records import DEFAULT, FLOAT, BuildRecord, LayerRecord, NetworkRecord
from placer.model import Model
from placer.optimizer.setup.candidates import Candidates
from placer.qdq import Inserter
from placer.qdq.bases import Base
from placer.qdq.mixed_precision import MixedPrecision
from placer.qdq.opset import FLOAT8_OPSET, with_opset
from placer.quantization import EMPTY, Placement
from placer.rules.pack import Pack
from placer.rules.sites import Site, find_sites, place

log = logging.getLogger(__name__)

SAMPLES = 4
# How likely a site leaves its default, from placement to placement.
_DEPARTURES = (0.2, 0.5, 0.8)
_ATTEMPTS = 3  # Random placements drawn for each that is wanted: some are like one before.


@dataclass(frozen=True)
class Measurer:
    """An engine to measure on. ``base``: of what is not quantized, where the engine takes one."""

    engine: Engine
    pack: Pack
    base: Base
    rounds: int
    placements: int

    def measure(self, network: str, model: Model) -> NetworkRecord:
        """Build ``model`` in float, by the rules' defaults and at random, and measure all in turn.

        Builds that the engine refuses are left out. Raises RunError if it refuses the float model.
        """
        given = model
        if self.pack.manifest.scheme.has_float8:
            model = with_opset(model, FLOAT8_OPSET)
        target = self.pack.target(target_of(self.engine))
        sites = find_sites(model.graph, self.pack.rules, target)
        chosen = placements(sites, self.placements, seed=_seed(given))
        candidates = self._candidates(model, list(chosen.values()))
        built, refused = _built(candidates, chosen)
        copy = candidates.compile(EMPTY)
        inputs = next(iter(synthetic_dataset(model, 1, 0))).inputs
        compiled = [copy, *built.values()]
        seconds = measured_seconds(self.engine, compiled, inputs, self.rounds)
        builds = (
            _record(label, chosen[label], build, seconds[:, column], inputs)
            for column, (label, build) in enumerate(built.items(), start=1)
        )
        return NetworkRecord(
            network=network,
            fingerprint=given.fingerprint,
            copy_seconds=tuple(map(float, seconds[:, 0])),
            builds=tuple(builds),
            refused=tuple(refused),
        )

    def _candidates(self, model: Model, all_placements: Sequence[Placement]) -> Candidates:
        edges = {edge for placement in all_placements for edge in placement.edges}
        tensors = {edge.tensor for edge in edges} - model.graph.initializers.keys()
        calibration = calibrate(model, sorted(tensors), synthetic_dataset(model, SAMPLES, 0))
        ranges = calibration.ranges("minmax", self.pack.manifest.scheme)
        inserter = Inserter(model, self.pack.manifest.scheme)
        mixed = None
        if self.engine.remainder == "built" and self.base != "float":
            mixed = MixedPrecision.of(inserter, self.base, "keep", ranges, edges)
        return Candidates(model, self.engine, inserter, ranges, mixed)


def _seed(model: Model) -> int:
    """A number that follows from the model's fingerprint."""
    return int(model.fingerprint.rpartition(":")[2][:8], 16)


def placements(sites: Sequence[Site], count: int, seed: int) -> Mapping[str, Placement]:
    """Different placements by label: float, the default, and ``count`` random ones at most.

    In a random one some sites have a layout that is not their default, more of them from one
    placement to the next.
    """
    by_name = {FLOAT: EMPTY, DEFAULT: place(sites, {})}
    if by_name[DEFAULT] == EMPTY:
        del by_name[DEFAULT]
    rng = np.random.default_rng(seed)
    drawn = 0
    for attempt in range(_ATTEMPTS * count):
        departure = _DEPARTURES[attempt % len(_DEPARTURES)]
        choices = {
            site.name: str(rng.choice([name for name in site.layouts if name != site.default]))
            for site in sites
            if len(site.layouts) > 1 and rng.random() < departure
        }
        placement = place(sites, choices)
        if drawn < count and placement not in by_name.values():
            drawn += 1
            by_name[f"random {drawn}"] = placement
    return by_name


def _built(
    candidates: Candidates, chosen: Mapping[str, Placement]
) -> tuple[dict[str, Compiled], list[str]]:
    """The builds that the engine takes, by label, and what it said of the others."""
    built: dict[str, Compiled] = {}
    refused = []
    for label, placement in chosen.items():
        try:
            built[label] = candidates.compile(placement)
        except RunError as error:
            if label == FLOAT:
                raise
            refused.append(str(error))
    return built, refused


def _record(
    label: str, placement: Placement, build: Compiled, seconds: np.ndarray, inputs: Tensors
) -> BuildRecord:
    try:
        plan = build.plan(inputs)
    except RunError as error:  # Its latency tells enough.
        log.warning("the engine tells no layers: %s", error)
        plan = None
    groups = tuple(
        tuple((edge.tensor, edge.node, edge.input_index) for edge in group)
        for group in placement.sorted()
    )
    return BuildRecord(
        label=label,
        groups=groups,
        seconds=tuple(map(float, seconds)),
        layers=() if plan is None else tuple(map(LayerRecord.of, plan.layers)),
        removed=() if plan is None else plan.removed,
    )


def model_paths(folder: Path) -> list[Path]:
    """The ONNX files in ``folder``, sorted by name."""
    return sorted(folder.glob("*.onnx"))
