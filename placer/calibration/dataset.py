"""Datasets: checked, repeatable streams of engine-sized input batches with optional labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placer.calibration.indices import Bounds, check_indices, index_bounds
from placer.calibration.mask_values import is_mask
from placer.calibration.sample import LABELS, Note, Read, Sample
from placer.calibration.sources import open_source
from placer.calibration.specs import InputSpec, input_specs
from placer.errors import InputError
from placer.model import Model
from placer.model.fixed_inputs import fixed_values

# A search passes over the same samples for every trial: small datasets are kept in memory.
_KEEP_BYTES = 128 << 20
# A seed of its own keeps the choice of ``limit`` apart from that of the split.
_LIMIT_SEED = 0x5EED
_COARSE_CELLS = 8
_IMAGE_RANK = 4
_OF_8_BITS = (np.int8, np.uint8)


@dataclass(frozen=True)
class _Digest:
    """SHA-256 of a sample's inputs and of its labels."""

    inputs: bytes
    labels: bytes


@dataclass(frozen=True, eq=False)
class Dataset:
    """An ordered set of samples that can be iterated any number of times.

    Samples are streamed from their source; a dataset of at most 128 MiB stays in memory after its
    first pass. ``notes``: what the user should know of it, a sentence each. ``doubts``: those of
    them after which the accuracy may not be what it seems. ``synthetic``: random values stand in
    for real data. ``masks``: inputs that mask others (``mask_values``) in some
    sample of the source. ``varies``: an input holds more than one value in some sample,
    or could not. Built by ``load_dataset`` and ``synthetic_dataset``.
    """

    source: str
    read: Callable[[], Iterator[Sample]]
    positions: tuple[int, ...]
    digests: tuple[_Digest, ...]
    sample_bytes: int
    has_labels: bool
    synthetic: bool = False
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    masks: frozenset[str] = frozenset()
    varies: bool = True

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.positions)

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples in the order of the source.

        Raises InputError if the source no longer gives the samples of the first pass.
        """
        if len(self) * self.sample_bytes <= _KEEP_BYTES:
            return iter(self._kept)
        return self._stream()

    @cached_property
    def _kept(self) -> tuple[Sample, ...]:
        return tuple(self._stream())

    def _stream(self) -> Iterator[Sample]:
        expected = dict(zip(self.positions, self.digests, strict=True))
        for position, sample in enumerate(self.read()):
            if position not in expected:
                continue
            if _digest(sample) != expected.pop(position):
                raise InputError(
                    f"{sample.origin} differs from the first pass over {self.source}; "
                    "make it give the same samples each time"
                )
            yield sample
            if not expected:
                return
        if expected:
            raise InputError(
                f"{self.source} gave fewer samples than in its first pass; "
                "make it give the same samples each time"
            )

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the hex digest over the arrays and labels of all samples in order."""
        digest = hashlib.sha256()
        for item in self.digests:
            digest.update(item.inputs + item.labels)
        return f"sha256:{digest.hexdigest()}"

    def limit(self, samples: int) -> Dataset:
        """At most ``samples`` samples: a random choice, the same each time, in source order.

        The first ones would do for shuffled data only; folders are often sorted by class. Raises
        InputError for a limit below 1.
        """
        if samples < 1:
            raise InputError(f"a limit of {samples} leaves no sample; give at least 1")
        if samples >= len(self):
            return self
        order = np.random.default_rng(_LIMIT_SEED).permutation(len(self))
        return self.choose(order[:samples].tolist())

    def choose(self, chosen: Iterable[int]) -> Dataset:
        """The samples of the given indices, in the order of the source."""
        indices = sorted(chosen)
        return replace(
            self,
            positions=tuple(self.positions[i] for i in indices),
            digests=tuple(self.digests[i] for i in indices),
        )

    def check_informative(self) -> None:
        """Raise InputError if all samples are the same, or the only one holds no structure.

        On such data every candidate is accurate, and ranges are those of one input. A single sample
        with values that differ is taken, and so are inputs that stay the same beside one that does
        not.
        """
        if self.synthetic or len({item.inputs for item in self.digests}) > 1:
            return
        if len(self) > 1:
            raise InputError(
                f"all {len(self)} samples of {self.source} are the same, so they would say nothing "
                "of other inputs; give samples that differ as they do in use"
            )
        if not self.varies:
            raise InputError(
                f"the only sample of {self.source} holds one value in each input, so it would say "
                "nothing of other inputs; give samples as the network meets them in use"
            )

    def refuse_constant_outputs(self) -> None:
        """Raise InputError on outputs of the float model that are the same on all samples.

        Not if the samples are the same, too. Random inputs are no data that anyone could mend.
        """
        if not self.synthetic and len({digest.inputs for digest in self.digests}) > 1:
            raise InputError(
                f"the float model's outputs are the same on all {len(self)} samples of "
                f"{self.source}, so they would say nothing about accuracy; check the data, how it "
                "is scaled, and the model"
            )

    def _with_note(self, note: str) -> Dataset:
        return replace(self, notes=(*self.notes, note))

    def _with_doubt(self, doubt: str) -> Dataset:
        return replace(self._with_note(doubt), doubts=(*self.doubts, doubt))


def load_dataset(source: str, model: Model) -> Dataset:
    """Read and check all of ``source`` once; its samples are streamed again when iterated.

    ``source`` is one of:

    * an .npz file: an array per model input that holds all samples, one after the other along the
      leading axis (N * batch rows) or along an axis of their own (see
      ``placer.calibration.layout.samples_in``), or one that is used with all; and optionally
      ``labels``, one per row of the first input;
    * an .npy file, for models with one input;
    * a folder of such files, taken in the order of their names;
    * a folder of images with a ``preprocess.yaml`` (``placer.calibration.images``);
    * ``module:function``: called without arguments for each pass, returns an iterable of batches
      (``placer.calibration.batches``), each of any number of samples. The current folder is
      importable.

    Arrays of inputs that the model was fixed for (``placer.model.fixed_inputs``) must hold that
    value and are not used. Rows beyond the last full batch are dropped with a note, floats of
    another width are converted with a note, integers of another width if their values fit.
    Raises InputError, naming file, array and fix, for anything else.
    """
    read = open_source(source, input_specs(model), fixed_values(model.proto))
    return _survey(source, read, index_bounds(model.graph), synthetic=False)


def synthetic_dataset(model: Model, samples: int, seed: int) -> Dataset:
    """Random inputs for models without data; ``synthetic`` is set.

    Float inputs of rank 4 are smooth images in [-1, 1] (noise on a grid of at most 8 x 8 cells,
    interpolated linearly), and so are those of 8 bits, which fill their type's range. Other floats
    are standard normal, integers 0 or 1, which indices of any table may be, and booleans random.
    Raises InputError for inputs of another type and for less than one sample.
    """
    specs = input_specs(model)
    if samples < 1:
        raise InputError(f"{samples} synthetic samples are too few; ask for at least 1")
    for spec in specs.values():
        if spec.dtype.kind not in "fiub":
            kind = "text" if spec.dtype.kind == "O" else spec.dtype
            fix = spec.advice or "give data"
            raise InputError(f"input '{spec.name}' holds {kind}, which cannot be made up; {fix}")

    def read(_: Note) -> Iterator[Sample]:
        for index in range(samples):
            rng = np.random.default_rng([seed, index])
            inputs = {name: _synthetic_array(spec, rng) for name, spec in specs.items()}
            yield Sample(inputs, None, f"synthetic sample {index}")

    return _survey("synthetic data", read, {}, synthetic=True)


def calibration_and_evaluation(
    calibration: Dataset | None, evaluation: Dataset | None, seed: int
) -> tuple[Dataset, Dataset]:
    """Return the data to calibrate on and the data to judge on.

    Two different datasets are used as they are. If there is only one, or both hold the same
    samples, it is split at random by ``seed`` into disjoint halves. Samples that still occur in
    both parts are reported in the evaluation data's notes.
    Raises InputError if no data is given, there are fewer than two samples to split, or all samples
    of a dataset are the same (``Dataset.check_informative``).
    """
    given = [dataset for dataset in (calibration, evaluation) if dataset is not None]
    if not given:
        raise InputError("neither calibration nor evaluation data is given; give `data`")
    if len(given) == 1:
        first, second = _halves(given[0], seed)
    elif given[0].fingerprint == given[1].fingerprint:
        first, second = _halves(given[0], seed)
        second = second._with_note(
            f"{given[0].source} and {given[1].source} hold the same samples: one random half "
            "calibrates, the other evaluates"
        )
    else:
        first, second = given
    for dataset in given:
        dataset.check_informative()
    judged = {d.inputs for d in second.digests}
    shared = judged.intersection(d.inputs for d in first.digests)
    if len(judged.union(d.inputs for d in first.digests)) == 1 and not second.synthetic:
        second = second._with_doubt(
            f"the only samples of {first.source} and {second.source} are the same: ranges and "
            "gates rest on one sample and say nothing of others"
        )
    elif shared:
        second = second._with_doubt(
            f"calibration data ({first.source}) and evaluation data ({second.source}) share "
            f"{len(shared)} identical samples; the accuracy may look better than it is"
        )
    return first, second


def _halves(dataset: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    count = len(dataset)
    if count < 2:
        raise InputError(
            f"{dataset.source} holds one batch only, too few to calibrate and to evaluate on; "
            "give at least two"
        )
    order = np.random.default_rng(seed).permutation(count)
    half = count // 2
    return dataset.choose(order[:half].tolist()), dataset.choose(order[half:].tolist())


def _survey(source: str, read: Read, bounds: Bounds, synthetic: bool) -> Dataset:
    """Pass over all samples once: check values, count, take digests and notes."""
    notes: dict[str, None] = {}
    digests = []
    masks: set[str] = set()
    labelled = None
    sample_bytes = 0
    varies = False
    for sample in read(notes.setdefault):
        _check_finite(sample)
        check_indices(sample, bounds)
        masks.update(name for name, values in sample.inputs.items() if is_mask(values))
        digests.append(_digest(sample))
        varies = varies or _varies(sample)
        sample_bytes = sum(array.nbytes for array in sample.inputs.values())
        if labelled is None:
            labelled = sample.labels is not None
        elif labelled != (sample.labels is not None):
            raise InputError(
                f"{sample.origin} has {'no ' if labelled else ''}'{LABELS}', unlike the samples "
                "before it; give labels for all samples or for none"
            )
    if not digests:
        raise InputError(
            f"{source} holds no full batch ({'; '.join(notes) or 'it gave no sample'}); "
            "give more data"
        )

    def drop(_: str) -> None:
        """Later passes repeat the notes of the first."""

    return Dataset(
        source=source,
        read=lambda: read(drop),
        positions=tuple(range(len(digests))),
        digests=tuple(digests),
        sample_bytes=sample_bytes,
        has_labels=bool(labelled),
        synthetic=synthetic,
        notes=tuple(notes),
        masks=frozenset(masks),
        varies=varies,
    )


def _varies(sample: Sample) -> bool:
    """Whether some array holds more than one value, or none could."""
    arrays = [array for array in sample.inputs.values() if array.size > 1]
    return not arrays or any((array != array.flat[0]).any() for array in arrays)


def _check_finite(sample: Sample) -> None:
    """Raise InputError for NaN and infinity, but for that below: masks of attention hold it."""
    for name, array in sample.inputs.items():
        if array.dtype.kind == "f" and not (array < np.inf).all():  # False of NaN, too.
            raise InputError(
                f"{sample.origin}: array '{name}' holds NaN or Inf as {array.dtype}; "
                "remove or repair that sample"
            )


def _digest(sample: Sample) -> _Digest:
    inputs = hashlib.sha256()
    for name in sorted(sample.inputs):
        inputs.update(name.encode() + _array_digest(sample.inputs[name]))
    labels = b"" if sample.labels is None else _array_digest(sample.labels)
    return _Digest(inputs.digest(), labels)


def _array_digest(array: np.ndarray) -> bytes:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.dtype.kind == "O":  # Text, of which the array holds addresses.
        digest.update(json.dumps(array.tolist()).encode())
        return digest.digest()
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _synthetic_array(spec: InputSpec, rng: np.random.Generator) -> np.ndarray:
    is_image = len(spec.shape) == _IMAGE_RANK
    if is_image and spec.dtype in _OF_8_BITS:
        shares = (_smooth(spec.shape, rng) + 1) / 2
        return np.asarray(np.rint(np.iinfo(spec.dtype).min + shares * 255)).astype(spec.dtype)
    if spec.dtype.kind != "f":
        return rng.integers(0, 2, spec.shape).astype(spec.dtype)
    if is_image:
        return _smooth(spec.shape, rng).astype(spec.dtype)
    return np.asarray(rng.standard_normal(spec.shape)).astype(spec.dtype)


def _smooth(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Uniform noise on a coarse grid over the last two axes, interpolated linearly."""
    *outer, height, width = shape
    rows, columns = min(_COARSE_CELLS, height), min(_COARSE_CELLS, width)
    grid = rng.uniform(-1, 1, (*outer, rows, columns))
    values: np.ndarray = _interpolation(height, rows) @ grid @ _interpolation(width, columns).T
    return values


def _interpolation(size: int, cells: int) -> np.ndarray:
    """Matrix, shape (size, cells), that interpolates linearly between ``cells`` points."""
    distance = np.abs(np.linspace(0, cells - 1, size)[:, None] - np.arange(cells))
    weights: np.ndarray = np.clip(1 - distance, 0, None)
    return weights
