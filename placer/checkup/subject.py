"""The engine that the suite looks at, and models ready to be built with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from placer.accuracy.metrics import decibels
from placer.calibration.collect import calibrate
from placer.calibration.dataset import Dataset, synthetic_dataset
from placer.engines.abilities import target_of
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.select import select_engine
from placer.graph.shapes import ShapeRange, optima
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.bases import Base
from placer.qdq.mixed_precision import MixedPrecision
from placer.qdq.opset import FLOAT8_OPSET, with_opset
from placer.quantization import Placement, Ranges
from placer.rules.pack import Pack
from placer.rules.sites import find_sites, place

SAMPLES = 4


@dataclass(frozen=True)
class RequestedEngine:
    """The engine as the user names it."""

    engine: str
    threads: int = 1
    device: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def make(self, ranges: Mapping[str, ShapeRange] | None = None) -> tuple[Engine, Pack]:
        """A new engine, for these ranges of input shapes; see ``select_engine``.

        Raises InputError for an engine that only estimates, too.
        """
        engine, pack, _ = select_engine(
            self.engine,
            threads=self.threads,
            shapes=optima(ranges or {}),
            shape_ranges=ranges or {},
            device=self.device,
            extra=self.extra,
            measures=True,
        )
        return engine, pack


@dataclass(frozen=True, eq=False)
class Subject:
    """A network for an engine: ``base`` is the type that what is not quantized is built in."""

    model: Model
    engine: Engine
    pack: Pack
    base: Base
    data: Dataset

    @staticmethod
    def of(path: Path, engine: Engine, pack: Pack) -> Subject:
        """Load ``path`` for ``engine``: FP16 where the engine builds it, else its own types."""
        model = load_model(path)
        if pack.manifest.scheme.has_float8:
            model = with_opset(model, FLOAT8_OPSET)
        base: Base = "float16" if engine.remainder == "built" else "float"
        return Subject(model, engine, pack, base, synthetic_dataset(model, SAMPLES, 0))

    @property
    def inputs(self) -> Tensors:
        """One sample."""
        return next(iter(self.data)).inputs

    def placement(self) -> Placement:
        """All that the pack's default layouts quantize, whether it pays or not."""
        target = self.pack.target(target_of(self.engine))
        sites = find_sites(self.model.graph, self.pack.rules, target)
        return place(sites, {})

    def candidate(self, placement: Placement) -> onnx.ModelProto:
        """The Q/DQ model of ``placement`` as the engine would get it in a search."""
        inserter = Inserter(self.model, self.pack.manifest.scheme)
        ranges = self._ranges(placement)
        if self.base == "float":
            return inserter.insert(placement, ranges)
        mixed = MixedPrecision.of(inserter, self.base, "keep", ranges, placement.edges)
        return mixed.insert(placement)

    def _ranges(self, placement: Placement) -> Ranges:
        tensors = {edge.tensor for edge in placement.edges} - self.model.graph.initializers.keys()
        calibration = calibrate(self.model, sorted(tensors), self.data)
        return calibration.ranges("minmax", self.pack.manifest.scheme)

    def compile(self, proto: onnx.ModelProto) -> Compiled:
        """Build ``proto``."""
        return self.engine.compile(proto, self.model.base_dir)

    def on_cpu(self, proto: onnx.ModelProto) -> Mapping[str, np.ndarray]:
        """What ONNX Runtime computes of ``proto``, which it leaves as it is."""
        return HalfPrecisionModel(proto, self.model.base_dir, threads=1).run(self.inputs)

    def predicted(self, placement: Placement) -> Plan:
        """The plan that the pack's rules predict."""
        target = target_of(self.engine)
        predictor = make_predictor(self.model.graph, self.pack, target, self.base)
        return predictor.predict(placement).plan


def sqnr(values: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """The lowest signal-to-noise ratio in dB over all outputs; NaN if a value is not finite."""
    decibels_of = []
    for name, right in expected.items():
        exact = np.asarray(right, np.float64)
        noise = float(np.square(np.asarray(values[name], np.float64) - exact).mean())
        decibels_of.append(decibels(noise / max(float(np.square(exact).mean()), 1e-30)))
    return min(decibels_of)
