"""An engine that builds nothing: the plan is predicted from rules, its latency estimated.

Outputs are ONNX Runtime's, so accuracy gates mean what they say; latencies are estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from placer.common.files import temporary_folder
from placer.common.names import unknown
from placer.engines.abilities import Ability
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.estimated.candidate import EstimatedCandidate, estimated_seconds
from placer.engines.estimated.error import EstimateError
from placer.engines.tensorrt.offline_builder import check_file, import_builder
from placer.errors import InputError, RunError
from placer.graph.shapes import ShapeRange
from placer.model import save_model
from placer.model.named_dimensions import with_ones
from placer.plan import Plan
from placer.prediction.layers.prediction import Prediction
from placer.prediction.select import AnyPredictor, make_predictor
from placer.prediction.times.devices import (
    Device,
    base_of,
    make_estimator,
    target_on,
    told_apart,
)
from placer.prediction.times.estimator import Estimator
from placer.prediction.times.fitted import Fit
from placer.prediction.times.layer_classes import load_layer_classes
from placer.qdq.extract import ExtractedModel, extract_placement
from placer.qdq.integer_ports import with_float_ports
from placer.rules.pack import Pack
from placer.version import __version__

BASES = ("float16", "bfloat16", "float")


class FusionModelEngine:
    """Predicts what the engine of ``pack`` would build on ``gpu`` and estimates its latency.

    ``gpu``: a GPU, for which types are strong, or what ``placer fit`` measured on a device.
    ``base``: type of what is not quantized, one of ``BASES``; by default float16, or the fit's.
    ``build_for``: compute capability, e.g. ``sm89``, for which TensorRT-RTX builds every candidate
    too, so that what NVIDIA's parser or builder refuses is a failed trial.
    """

    name = "fusion-model"
    clock = "an estimate: predicted plan and roofline, nothing was run"
    estimated = True
    verified = False
    remainder: Remainder = "written"

    def __init__(
        self,
        gpu: Device,
        pack: Pack,
        base: str | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        threads: int = 1,
        build_for: str | None = None,
        shape_ranges: Mapping[str, ShapeRange] | None = None,
    ) -> None:
        if isinstance(gpu, Fit):
            gpu.check_pack(pack)
            gpu.check_base(base)
        base = base or base_of(gpu)
        if base not in BASES:
            raise InputError(unknown("base", base, BASES))
        if isinstance(gpu, Fit):
            self._errors = EstimateError(gpu.errors.latency, gpu.errors.ratio)
            self.clock = "an estimate: predicted plan and fitted costs, nothing was run"
        else:
            classes = load_layer_classes()
            error = classes.least_ratio_error(base, gpu.compute_capability)
            self._errors = EstimateError(classes.latency_error, error)
        self.default_base = base
        self.version = __version__
        self.device = f"{gpu.name} ({base}, pack {pack.name_and_version}{told_apart(gpu)})"
        self.rules: str = pack.manifest.engine
        self._gpu = gpu
        self._pack = pack
        self._base = base
        self.target = target_on(gpu)
        # Only NVIDIA's builder has use for a range; estimates are for one shape.
        self.abilities: frozenset[Ability] = frozenset({"shape-ranges"} if build_for else ())
        self._shapes = dict(shapes or {})
        fixed = {name: ShapeRange.fixed(shape) for name, shape in self._shapes.items()}
        self._ranges = {**fixed, **(shape_ranges or {})}
        self._threads = threads
        self._known: _ModelOnGpu | None = None
        self._build_for = build_for
        if build_for:
            import_builder()  # Says at once if it is not installed.

    @property
    def ratio_error(self) -> float:
        """Within this share of each other, estimates of two builds of a network tell no difference.

        That of the model that was compiled last; before, that of all that a fit measured.
        """
        return self._known.errors.ratio if self._known else self._errors.ratio

    @property
    def latency_error(self) -> float:
        """What 80% of latencies stay within, of the same model."""
        return self._known.errors.latency if self._known else self._errors.latency

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> EstimatedCandidate:
        """Predict the plan of ``model``; an ONNX Runtime session is made when it is first run.

        Raises RunError if candidates are built and the builder refuses this one.
        """
        return self.compile_written(model, model, base_dir)

    def compile_written(
        self, model: onnx.ModelProto, written: onnx.ModelProto, base_dir: Path
    ) -> EstimatedCandidate:
        """Predict the plan of ``model``; what is built and run is ``written``.

        Its pairs are those of ``model``, but what is not quantized has the base type.
        """
        if self._build_for:
            self._build(written, base_dir, self._build_for)
        scheme = self._pack.manifest.scheme
        extracted = extract_placement(model, scheme)
        if self._known is None or self._known.structure != extracted.structure:
            # All candidates of a run share the float graph, and so the predictor.
            self._known = self._index(extracted)
        estimated = self._known.estimate(extracted)
        optimized = written is model and not scheme.has_float8
        return EstimatedCandidate(written, base_dir, self._threads, estimated, optimized=optimized)

    def _build(self, model: onnx.ModelProto, base_dir: Path, gpu: str) -> None:
        with temporary_folder() as folder:
            path = Path(folder) / "candidate.onnx"
            save_model(model, base_dir, path)
            report = check_file(import_builder(), path, gpu, self._ranges)
        if not report.accepted:
            raise RunError(f"{report.builder} refuses the candidate: {report.refusals[0]}")

    def _index(self, extracted: ExtractedModel) -> _ModelOnGpu:
        shapes = with_ones(extracted.proto, self._shapes)
        graph = extracted.graph(shapes, Path("the candidate"))
        graph, stored = with_float_ports(extracted, graph)
        predictor = make_predictor(graph, self._pack, self.target, self._base, stored=stored)
        estimator = make_estimator(graph, self._gpu, self._pack.manifest.behaviour, self._base)
        return _ModelOnGpu(extracted.structure, predictor, estimator)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Estimated seconds, see ``estimated_seconds``."""
        del inputs
        return estimated_seconds(models, rounds)


class _ModelOnGpu:
    """What all candidates of one float model share."""

    def __init__(self, structure: int, predictor: AnyPredictor, estimator: Estimator) -> None:
        self.structure = structure
        self._predictor = predictor
        self._estimator = estimator
        self.errors = EstimateError(estimator.latency_error, estimator.ratio_error)

    def estimate(self, extracted: ExtractedModel) -> Plan:
        prediction: Prediction = self._predictor.predict(extracted.placement)
        return self._estimator.estimate(prediction)
