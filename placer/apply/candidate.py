"""The Q/DQ model of a placement that was found in a float model, and the ranges of its pairs."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import onnx

from placer.accuracy.evaluator import Evaluator
from placer.apply.transfer import Transferred
from placer.calibration.collect import METHODS, calibrate
from placer.calibration.dataset import Dataset
from placer.calibration.methods import threshold
from placer.common.names import unknown
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.errors import InputError, RunError
from placer.model import Model
from placer.model.judged import judged_by
from placer.qdq import Inserter
from placer.qdq.bases import Base, InputOutputTypes
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import Placement, Ranges, Scheme
from placer.quantization.placement_file import PlacementFile

log = logging.getLogger(__name__)

AUTO = "auto"


@dataclass(frozen=True, eq=False)
class Scales:
    """What a placement is inserted with. ``sqnr``: in dB, on calibration data; None without.

    ``calibrated``: whether no range rests on random inputs, neither the file's nor new ones.
    """

    ranges: Ranges
    method: str
    sqnr: float | None
    calibrated: bool


def kept_scales(transferred: Transferred, file: PlacementFile, model: Model) -> Scales:
    """The file's own ranges; raises InputError if it has none of a quantized activation."""
    missing = without_range(transferred, model)
    if missing:
        others = f" and of {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{file.path} has no range of tensor '{missing[0]}'{others}; give `data`, and `ranges` "
            "kept to keep those that it has"
        )
    return Scales(transferred.ranges, "kept", None, file.calibrated)


def without_range(transferred: Transferred, model: Model) -> list[str]:
    """Activations that the placement quantizes and gives no range."""
    return sorted(_activations(transferred.placement, model) - transferred.ranges.keys())


def check_method(method: str) -> None:
    """Raise InputError unless ``method`` is one that ``calibrated_scales`` takes."""
    if method not in (AUTO, *METHODS):
        raise InputError(unknown("calibration", method, (AUTO, *METHODS)))


def calibrated_scales(
    transferred: Transferred,
    file: PlacementFile,
    model: Model,
    data: Dataset,
    method: str,
    cache_dir: Path | None,
    kept: Ranges | None = None,
) -> Scales:
    """Ranges of ``model`` on ``data`` by ``method``, one of ``METHODS``; ``kept``: not calibrated.

    ``auto``: the one with the highest SQNR against the float model on ``data``, as run by ONNX
    Runtime. Tensors that the user pinned keep the file's range or
    their own method. Raises RunError if ONNX Runtime refuses the model.
    """
    scheme, kept = file.scheme, kept or {}
    activations = _activations(transferred.placement, model)
    calibration = calibrate(model, activations, data, cache_dir)
    # The file tells of tensors in a body that runs on no sample.
    unseen = (set(activations) - calibration.statistics.keys()) & transferred.ranges.keys()
    unseen_ranges = {tensor: transferred.ranges[tensor] for tensor in sorted(unseen)}
    judged = judged_by(model)
    inserter = Inserter(judged.model, scheme)
    reference = OnnxRuntimeModel(judged.model.proto, model.base_dir, threads=1)
    evaluator = Evaluator(judged.graph, (), data, reference.run)
    # Entropy and MSE weigh the 255 even steps of INT8, which FP8 does not have.
    some = METHODS[:2] if scheme.has_float8 else METHODS
    pinned = {
        tensor: transferred.ranges[tensor]
        if pin == "range"
        else threshold(calibration.statistics[tensor], pin, scheme)
        for tensor, pin in transferred.pinned.items()
        if tensor in calibration.statistics
    }
    tried = {
        name: {**unseen_ranges, **calibration.ranges(name, scheme), **pinned, **kept}
        for name in (some if method == AUTO else (method,))
    }
    scores = {}
    for name, ranges in tried.items():
        proto = inserter.insert(transferred.placement, ranges)
        try:
            run = OnnxRuntimeModel(proto, model.base_dir, threads=1).run
            scores[name] = evaluator.evaluate(run).sqnr
        except RunError as error:  # The engine that the model is for may still run it.
            log.warning("calibration %s: %s", name, error)
            scores[name] = -math.inf
    best = max(scores, key=lambda name: scores[name])
    sqnr = scores[best] if math.isfinite(scores[best]) else None
    said = f"kept, others {best}" if kept else best
    # Ranges that the user pinned rest on no inputs.
    of_file = {t for t in unseen | kept.keys() if transferred.pinned.get(t) != "range"}
    calibrated = (file.calibrated or not of_file) and not data.synthetic
    return Scales(tried[best], said, sqnr, calibrated)


def _activations(placement: Placement, model: Model) -> set[str]:
    return {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()


def quantized_model(
    model: Model,
    placement: Placement,
    scales: Scales,
    scheme: Scheme,
    base: Base = "float",
    io_type: InputOutputTypes = "keep",
) -> onnx.ModelProto:
    """``model`` with the pairs of ``placement``; ``base`` and ``io_type``: see ``precision``.

    Raises InputError if the pairs cannot be inserted or the rest cannot be converted.
    """
    if base == "float":
        proto = Inserter(model, scheme).insert(placement, scales.ranges)
    else:
        inserter = Inserter(model, scheme)
        mixed = MixedPrecision.of(inserter, base, io_type, scales.ranges, placement.edges)
        proto = mixed.insert(placement)
    return proto
