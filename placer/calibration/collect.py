"""Calibration: statistics of activations over a dataset, gathered once and reused."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

from placer.calibration.activations import BUDGET_BYTES, activations, observable, passes
from placer.calibration.archives import DAMAGED
from placer.calibration.dataset import Dataset
from placer.calibration.histogram import BINS, Statistics
from placer.calibration.methods import METHODS, PERCENTILE, threshold
from placer.calibration.sample import Sample
from placer.common.custom_ops import libraries_held
from placer.common.files import temporary_beside
from placer.errors import InputError
from placer.graph import TensorType
from placer.model import Model
from placer.quantization import Ranges, Scheme

__all__ = ["METHODS", "Calibration", "calibrate", "default_cache_dir"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

_CACHE_FORMAT = 1
# What reading a damaged file raises.
_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    *DAMAGED,
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Statistics by tensor; ``synthetic`` if they rest on random inputs.

    ``samples``: on how many the tensors rest that saw the fewest.
    """

    statistics: Mapping[str, Statistics]
    synthetic: bool
    samples: int = 0

    def ranges(self, method: str, scheme: Scheme, percentile: float = PERCENTILE) -> Ranges:
        """Range by tensor by one of ``METHODS``; see ``placer.calibration.methods.threshold``.

        ``percentile`` (in percent) matters to the method of that name only.
        Raises InputError for an unknown method and a percentile outside (0, 100].
        """
        return {
            name: threshold(statistics, method, scheme, percentile)
            for name, statistics in self.statistics.items()
        }


def default_cache_dir() -> Path:
    """The user's cache folder for placer; it need not exist."""
    return Path(platformdirs.user_cache_dir("placer"))


def calibrate(
    model: Model,
    tensors: Collection[str],
    dataset: Dataset,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    budget_bytes: int = BUDGET_BYTES,
    until: float = math.inf,
) -> Calibration:
    """Gather statistics of ``tensors`` over ``dataset`` with ONNX Runtime on the CPU.

    Float32 and float16 activations are observed; initializers and tensors of other types are left
    out. Tensors of one sample that exceed ``budget_bytes`` together are observed in several passes
    over the data, with the same result. ``progress`` is told the batches done and all there are.
    With ``cache_dir`` the statistics are kept there, by model, data and tensors.
    There are none of a tensor in a body of an If, Loop or Scan that runs on no sample.
    After ``until``, a ``time.monotonic`` time, no sample is looked at but the first of a pass;
    statistics of fewer samples than there are do not go into the cache.
    Raises InputError for an unknown tensor and where an activation is NaN or Inf, RunError if
    ONNX Runtime refuses the model.
    """
    chosen = observable(model, tensors)
    cache = None if cache_dir is None else cache_dir / f"{_key(model, chosen, dataset)}.npz"
    statistics = None if cache is None else _read_cache(cache, chosen)
    samples = len(dataset)
    if statistics is None:
        statistics, samples = _observe(model, chosen, dataset, progress, budget_bytes, until)
        # Nothing is known of a body that does not run on this data: that is told anew each time.
        if cache is not None and statistics.keys() == set(chosen) and samples == len(dataset):
            _write_cache(cache, statistics)
    return Calibration(statistics, dataset.synthetic, samples)


def _observe(
    model: Model,
    tensors: Sequence[str],
    dataset: Dataset,
    progress: Progress | None,
    budget_bytes: int,
    until: float,
) -> tuple[dict[str, Statistics], int]:
    """Statistics, and of how many samples the pass was that saw the fewest."""
    chunks = passes(model, tensors, dataset, budget_bytes)
    observed: dict[str, Statistics] = {}
    fewest, start = len(dataset), time.monotonic()
    for number, chunk in enumerate(chunks, 1):
        end = start + (until - start) * number / len(chunks)  # Each pass has an equal part.
        seen = 0
        for sample, values in activations(model, chunk, dataset):
            for name, value in values.items():
                _add(observed, model, name, value, sample, dataset.synthetic)
            seen += 1
            if progress is not None:
                progress((number - 1) * len(dataset) + seen, len(chunks) * len(dataset))
            if time.monotonic() >= end:
                break
        fewest = min(fewest, seen)
    return observed, fewest


def _add(
    observed: dict[str, Statistics],
    model: Model,
    name: str,
    value: np.ndarray,
    sample: Sample,
    synthetic: bool,
) -> None:
    if value.dtype not in (np.float32, np.float16):  # Shape inference did not know its type.
        return
    try:
        statistics = Statistics.of(value)
    except ValueError as error:
        node = model.graph.producer.get(name)
        by = f" of node '{node.name}' ({node.op})" if node else ""
        reason, advice = _why_not_finite(model, synthetic)
        problem = f"tensor '{name}'{by} is NaN or Inf on {sample.origin}: {reason}"
        raise InputError(problem, advice) from error
    observed[name] = observed[name].merge(statistics) if name in observed else statistics


def _why_not_finite(model: Model, synthetic: bool) -> tuple[str, str]:
    """What to blame for values that are not finite, and the option that helps."""
    damaged = _nan_weight(model)
    if damaged is not None:
        return f"weight '{damaged}' holds NaN; export the model from weights without", ""
    if synthetic:
        return "random inputs do not suit this model", "give real ones, as `data`"
    return "the float model overflows on this data; check how the inputs are scaled", ""


def _nan_weight(model: Model) -> str | None:
    """The first weight that holds NaN."""
    for name, tensor in model.graph.initializers.items():
        if TensorType(tensor.data_type, None).is_float and np.isnan(model.array(name)).any():
            return name
    return None


def _key(model: Model, tensors: Sequence[str], dataset: Dataset) -> str:
    shapes = {name: list(shape) for name, shape in sorted(model.input_shapes.items())}
    parts = [_CACHE_FORMAT, model.fingerprint, dataset.fingerprint, list(tensors), shapes]
    parts += libraries_held()
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _write_cache(path: Path, statistics: Mapping[str, Statistics]) -> None:
    """Write atomically; a cache that cannot be written costs time only, hence a warning."""
    items = list(statistics.values())
    counts = np.array([(s.count, s.zeros, s.exponent) for s in items], np.int64)
    temporary = temporary_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as out:
                np.savez_compressed(
                    out,
                    names=np.array(list(statistics), np.str_),
                    extremes=np.array([(s.low, s.high) for s in items]).reshape(-1, 2),
                    counts=counts.reshape(-1, 3),
                    histograms=np.array([s.histogram for s in items], np.int64).reshape(-1, BINS),
                )
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        log.warning("calibration is not cached: cannot write %s: %s", path, error.strerror)


def _read_cache(path: Path, tensors: Collection[str]) -> dict[str, Statistics] | None:
    """Statistics of ``tensors``; None if there is no such file or it is damaged."""
    try:
        # Given a path, np.load would leave a damaged archive open.
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            names, extremes = arrays["names"], arrays["extremes"]
            counts, histograms = arrays["counts"], arrays["histograms"]
        cached = {
            str(name): Statistics(
                float(low), float(high), int(count), int(zeros), int(exponent), histogram
            )
            for name, (low, high), (count, zeros, exponent), histogram in zip(
                names, extremes, counts, histograms, strict=True
            )
        }
        if cached.keys() != set(tensors):
            raise ValueError("it holds other tensors")
        for name, statistics in cached.items():
            if not statistics.is_possible:
                raise ValueError(f"the statistics of '{name}' contradict each other")
        return cached
    except (FileNotFoundError, NotADirectoryError):
        return None
    except _DAMAGE as error:
        log.warning("calibration cache %s is damaged and will be replaced: %s", path, error)
        return None
