"""Calibration: statistics of activations over a dataset, gathered once and reused."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import platformdirs
from onnx import TensorProto

from placer.calibration.archives import DAMAGED
from placer.calibration.dataset import Dataset
from placer.calibration.histogram import BINS, Statistics
from placer.calibration.methods import METHODS, PERCENTILE, threshold
from placer.calibration.sample import Sample
from placer.common.files import temporary_beside
from placer.common.ort_session import Session, create_session, run_once
from placer.errors import InputError
from placer.model import Model
from placer.quantization import Ranges, Scheme

__all__ = ["METHODS", "Calibration", "calibrate", "default_cache_dir"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

_BUDGET_BYTES = 256 << 20
_THREADS = 2
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
_CALIBRATED = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Statistics by tensor; ``synthetic`` if they rest on random inputs."""

    statistics: Mapping[str, Statistics]
    synthetic: bool

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
    budget_bytes: int = _BUDGET_BYTES,
) -> Calibration:
    """Gather statistics of ``tensors`` over ``dataset`` with ONNX Runtime on the CPU.

    Float32 and float16 activations are observed; initializers and tensors of other types are left
    out. Tensors of one sample that exceed ``budget_bytes`` together are observed in several passes
    over the data, with the same result. ``progress`` is told the batches done and all there are.
    With ``cache_dir`` the statistics are kept there, by model, data and tensors.
    Raises InputError for an unknown tensor and where an activation is NaN or Inf, RunError if
    ONNX Runtime refuses the model.
    """
    chosen = _observable(model, tensors)
    cache = None if cache_dir is None else cache_dir / f"{_key(model, chosen, dataset)}.npz"
    statistics = None if cache is None else _read_cache(cache, chosen)
    if statistics is None:
        statistics = _observe(model, chosen, dataset, progress, budget_bytes)
        if cache is not None:
            _write_cache(cache, statistics)
    return Calibration(statistics, dataset.synthetic)


def _observable(model: Model, tensors: Collection[str]) -> list[str]:
    """Names, sorted, of the tensors that calibration observes."""
    graph = model.graph
    for name in tensors:
        if not (name in graph.producer or name in graph.inputs or name in graph.initializers):
            raise InputError(
                f"{model.path} has no tensor '{name}' to calibrate; name an input of a node"
            )
    return sorted(
        name
        for name in set(tensors)
        if name not in graph.initializers and graph.type_of(name).dtype in (None, *_CALIBRATED)
    )


def _observe(
    model: Model,
    tensors: Sequence[str],
    dataset: Dataset,
    progress: Progress | None,
    budget_bytes: int,
) -> dict[str, Statistics]:
    fed = [name for name in tensors if name in model.graph.inputs]
    computed = [name for name in tensors if name not in model.graph.inputs]
    chunks = _chunks(model, computed, budget_bytes)
    if fed:
        chunks = [fed + chunks[0], *chunks[1:]] if chunks else [fed]
    found: dict[str, Statistics] = {}
    for number, chunk in enumerate(chunks):

        def batch_done(index: int, before: int = number * len(dataset)) -> None:
            if progress is not None:
                progress(before + index + 1, len(chunks) * len(dataset))

        found.update(_observe_chunk(model, chunk, dataset, batch_done))
    return found


def _observe_chunk(
    model: Model, tensors: Sequence[str], dataset: Dataset, batch_done: Callable[[int], None]
) -> dict[str, Statistics]:
    """One pass over the data. Its session, which holds all weights, ends with the pass."""
    computed = [name for name in tensors if name not in model.graph.inputs]
    session = _session(model, computed) if computed else None
    found: dict[str, Statistics] = {}
    for index, sample in enumerate(dataset):
        values = {name: sample.inputs[name] for name in tensors if name in sample.inputs}
        if session is not None:
            values.update(_run(session, computed, model, sample))
        for name, value in values.items():
            _add(found, model, name, value, sample)
        batch_done(index)
    return found


def _add(
    found: dict[str, Statistics], model: Model, name: str, value: np.ndarray, sample: Sample
) -> None:
    if value.dtype not in (np.float32, np.float16):  # Shape inference did not know its type.
        return
    try:
        statistics = Statistics.of(value)
    except ValueError as error:
        node = model.graph.producer.get(name)
        by = f" of node '{node.name}' ({node.op})" if node else ""
        raise InputError(
            f"tensor '{name}'{by} is NaN or Inf on {sample.origin}: the float model overflows on "
            "this data; check how the inputs are scaled"
        ) from error
    found[name] = found[name].merge(statistics) if name in found else statistics


def _chunks(model: Model, tensors: Sequence[str], budget_bytes: int) -> list[list[str]]:
    """Split ``tensors``, in graph order, into runs that fit the budget; at least one each."""
    order = {name: i for i, name in enumerate(model.graph.producer)}
    known = {name: _bytes(model, name) for name in tensors}
    # A tensor of unknown shape is taken to be as large as the largest known one.
    largest = max((size for size in known.values() if size is not None), default=budget_bytes)
    chunks: list[list[str]] = []
    used = 0
    for name in sorted(tensors, key=lambda tensor: order[tensor]):
        size = known[name]
        size = largest if size is None else size
        if not chunks or used + size > budget_bytes:
            chunks.append([])
            used = 0
        chunks[-1].append(name)
        used += size
    return chunks


def _bytes(model: Model, tensor: str) -> int | None:
    """Size of a tensor of one sample, None if its shape is unknown."""
    dtype, shape = model.graph.type_of(tensor)
    if shape is None:
        return None
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == TensorProto.FLOAT16 else 4)


def _run(
    session: Session, tensors: list[str], model: Model, sample: Sample
) -> dict[str, np.ndarray]:
    values = run_once(session, tensors, sample.inputs, f"{model.path} on {sample.origin}")
    return dict(zip(tensors, values, strict=True))


def _session(model: Model, tensors: Sequence[str]) -> Session:
    """A session of the float model that also returns ``tensors``."""
    present = {output.name for output in model.proto.graph.output}
    extra = onnx.ModelProto()
    for name in tensors:
        if name not in present:
            extra.graph.output.append(_value_info(model, name))
    # Serialized messages that are concatenated merge, and repeated fields append
    # (protobuf.dev, "Encoding"): outputs are added without copying the initializers as messages.
    serialized = b"".join((model.proto.SerializeToString(), extra.SerializeToString()))
    # Fusions depend on which tensors are outputs and round differently. Without them a tensor has
    # the same values whatever else is observed, and chunks and caches cannot change a result.
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return create_session(serialized, model.base_dir, threads=_THREADS, level=level)


def _value_info(model: Model, tensor: str) -> onnx.ValueInfoProto:
    dtype = model.graph.type_of(tensor).dtype
    info = onnx.ValueInfoProto(name=tensor)
    if dtype is not None:
        info.type.tensor_type.elem_type = dtype
    return info


def _key(model: Model, tensors: Sequence[str], dataset: Dataset) -> str:
    shapes = {name: list(shape) for name, shape in sorted(model.input_shapes.items())}
    parts = [_CACHE_FORMAT, model.fingerprint, dataset.fingerprint, list(tensors), shapes]
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
        found = {
            str(name): Statistics(
                float(low), float(high), int(count), int(zeros), int(exponent), histogram
            )
            for name, (low, high), (count, zeros, exponent), histogram in zip(
                names, extremes, counts, histograms, strict=True
            )
        }
        if found.keys() != set(tensors):
            raise ValueError("it holds other tensors")
        for name, statistics in found.items():
            if not statistics.is_possible:
                raise ValueError(f"the statistics of '{name}' contradict each other")
        return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except _DAMAGE as error:
        log.warning("calibration cache %s is damaged and will be replaced: %s", path, error)
        return None
