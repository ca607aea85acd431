"""What a run is asked to do, loaded and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from placer.accuracy.gates import Gate
from placer.accuracy.latency_gates import Beat
from placer.calibration.dataset import Dataset
from placer.engines.abilities import HasDefaultBase, abilities_of
from placer.engines.base import Engine, Tensors
from placer.graph import Edge
from placer.graph.shapes import ShapeRange
from placer.model import Model
from placer.model.judged import Judged, judged_by, with_scores
from placer.optimizer.options.presets import Preset
from placer.optimizer.options.request import Base, Request
from placer.optimizer.time_limit import UNLIMITED, TimeLimit
from placer.qdq.bases import parse_base
from placer.quantization import EMPTY, Placement
from placer.quantization.overrides import Pins
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.sites import Site
from placer.search.samplers import Proposal
from placer.search.space import Space

# Names of alternative schemes of a pack; None is its own.
Schemes = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that is settled before the first trial.

    ``from_quantized``: whether the file was quantized; ``source_sqnr``: then the SQNR in dB of the
    recovered float model's outputs against the file's, None if ONNX Runtime does not run that.
    ``bases``: the base precisions that the search decides between, that of the float model first;
    none if there is nothing to decide. ``schemes``: those that ``scheme`` auto stands for, that of
    the trials first. ``matches``: of rules in the model's graph. ``inputs``: the sample that
    latency is measured on, ``ExecutionPaths`` where samples take different branches of an If.
    ``limit``: of the run's time.
    """

    request: Request
    preset: Preset
    model: Model
    pack: Pack
    engine: Engine
    matches: Matches
    sites: tuple[Site, ...]
    space: Space
    gates: tuple[Gate, ...]
    calibration_data: Dataset
    evaluation_data: Dataset
    warnings: tuple[str, ...]
    beats: tuple[Beat, ...] = ()
    from_quantized: bool = False
    source_sqnr: float | None = None
    warm_starts: tuple[Proposal, ...] = ()
    bases: tuple[Base, ...] = ()
    schemes: Schemes = ()
    pins: Pins = field(default_factory=Pins)
    inputs: Tensors = field(default_factory=dict)
    limit: TimeLimit = UNLIMITED

    @cached_property
    def judged(self) -> Judged:
        """What accuracy is judged by: the model's outputs, or what stands for them, and scores."""
        named = [gate.output for gate in self.gates if gate.output]
        return with_scores(judged_by(self.model, named))

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """All edges that some layout quantizes."""
        layouts = (layout for site in self.sites for layout in site.layouts.values())
        return frozenset(edge for layout in layouts for edge in layout.quantize)

    @property
    def gate_texts(self) -> tuple[str, ...]:
        """All gates as the user writes them, those on latency last."""
        return (*(gate.text() for gate in self.gates), *(f"{beat}<=1" for beat in self.beats))

    @property
    def shape_ranges(self) -> Mapping[str, ShapeRange]:
        """Ranges of more than one shape that the engine builds for."""
        if "shape-ranges" not in abilities_of(self.engine):
            return {}
        ranges = self.request.shape_ranges
        return {
            name: shape_range for name, shape_range in ranges.items() if not shape_range.is_fixed
        }

    @property
    def budget(self) -> int | None:
        """Trials that the study may hold: as asked for, else the preset's unless time ends it."""
        if self.request.budget is None and self.request.timeout is None:
            return self.preset.budget
        return self.request.budget

    @property
    def base(self) -> Base:
        """Type of what is not quantized, where the engine takes one: FP16 by default on GPUs.

        Where the search decides on it, that of the float model.
        """
        if self.bases:
            return self.bases[0]
        asked = self.request.base
        if asked is None or asked == "auto":
            if isinstance(self.engine, HasDefaultBase):
                return parse_base(self.engine.default_base)
            return "float" if self.engine.remainder == "computed" else "float16"
        return asked

    def base_of(self, placement: Placement) -> Base:
        """Type of what ``placement`` does not quantize."""
        return parse_base(placement.base or "float") if self.bases else self.base

    @property
    def float_placement(self) -> Placement:
        """The float model in its base precision."""
        return EMPTY.computed_in(self.space.base_of({}))
