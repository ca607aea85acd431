"""Datasets: checked, repeatable streams of engine-sized input batches with optional labels."""

from __future__ import annotations

import hashlib
import importlib
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType

import numpy as np
from onnx import helper

from placer.errors import InputError, PlacerError
from placer.model import Model

LABELS = "labels"
_SUFFIXES = (".npz", ".npy")
# A search passes over the same samples for every trial: small datasets are kept in memory.
_KEEP_BYTES = 128 << 20
# A fixed seed of its own keeps the choice of ``limit`` apart from the one of the split.
_LIMIT_SEED = 0x5EED
_COARSE_CELLS = 8

Note = Callable[[str], None]
Read = Callable[[Note], Iterator["Sample"]]


@dataclass(frozen=True, eq=False)
class Sample:
    """One batch of the engine's size.

    ``inputs``: array by input name, of exactly the model's input shape and type. ``labels``: one
    label per row of the batch, or None. ``origin``: where it came from, for error messages.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None
    origin: str


@dataclass(frozen=True)
class _Digest:
    """SHA-256 of a sample's inputs and of its labels."""

    inputs: bytes
    labels: bytes


@dataclass(frozen=True, eq=False)
class Dataset:
    """An ordered set of samples that can be iterated any number of times.

    Samples are streamed from their source; a dataset of at most 128 MiB stays in memory after its
    first pass. ``notes``: what the user should know of it, a sentence each. ``synthetic``: random
    values stand in for real data. Built by ``load_dataset`` and ``synthetic_dataset``.
    """

    source: str
    read: Callable[[], Iterator[Sample]]
    positions: tuple[int, ...]
    digests: tuple[_Digest, ...]
    sample_bytes: int
    has_labels: bool
    synthetic: bool = False
    notes: tuple[str, ...] = ()

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

        The first ones would do for shuffled data only; folders are often sorted by class.
        """
        if samples < 1:
            raise InputError(f"a limit of {samples} leaves no sample; give at least 1")
        if samples >= len(self):
            return self
        order = np.random.default_rng(_LIMIT_SEED).permutation(len(self))
        return self._choose(order[:samples])

    def _choose(self, chosen: np.ndarray) -> Dataset:
        """The samples of the given indices, in the order of the source."""
        indices = sorted(chosen.tolist())
        return replace(
            self,
            positions=tuple(self.positions[i] for i in indices),
            digests=tuple(self.digests[i] for i in indices),
        )

    def _with_note(self, note: str) -> Dataset:
        return replace(self, notes=(*self.notes, note))


def load_dataset(source: str, model: Model) -> Dataset:
    """Read and check all of ``source`` once; its samples are streamed again when iterated.

    ``source`` is one of:

    * an .npz file: an array per model input, the leading axis holding all samples one after the
      other (N * batch rows), and optionally ``labels``, one per row of the first input;
    * an .npy file, for models with one input;
    * a folder of such files, taken in the order of their names;
    * ``module:function``: called without arguments for each pass, returns an iterable of dicts,
      each one batch of the model's input shapes and optionally ``labels``. The current folder is
      importable.

    Rows beyond the last full batch are dropped with a note, floats of another width are converted
    with a note, integers of another width if their values fit.
    Raises InputError, naming file, array and fix, for anything else.
    """
    specs = _specs(model)
    path = Path(source)
    if path.exists():
        files = _files(path)

        def read(note: Note) -> Iterator[Sample]:
            for file in files:
                yield from _file_samples(file, source, specs, note)

    else:
        function = _load_function(source)

        def read(note: Note) -> Iterator[Sample]:
            return _function_samples(function, source, specs, note)

    return _survey(source, read, synthetic=False)


def synthetic_dataset(model: Model, samples: int, seed: int) -> Dataset:
    """Random inputs for models without data; ``synthetic`` is set.

    Float inputs of rank 4 are smooth images in [-1, 1] (noise on a grid of at most 8 x 8 cells,
    interpolated linearly), other floats standard normal, integers 0 or 1, booleans random.
    Raises InputError for inputs of another type and for less than one sample.
    """
    specs = _specs(model)
    if samples < 1:
        raise InputError(f"{samples} synthetic samples are too few; ask for at least 1")
    for spec in specs.values():
        if spec.dtype.kind not in "fiub":
            raise InputError(
                f"input '{spec.name}' has type {spec.dtype}, which cannot be made up; give data"
            )

    def read(_: Note) -> Iterator[Sample]:
        for index in range(samples):
            rng = np.random.default_rng([seed, index])
            inputs = {name: _synthetic_array(spec, rng) for name, spec in specs.items()}
            yield Sample(inputs, None, f"synthetic sample {index}")

    return _survey("synthetic data", read, synthetic=True)


def calibration_and_evaluation(
    calibration: Dataset | None, evaluation: Dataset | None, seed: int
) -> tuple[Dataset, Dataset]:
    """Return the data to calibrate on and the data to judge on.

    Two different datasets are used as they are. If there is only one, or both hold the same
    samples, it is split at random by ``seed`` into disjoint halves. Samples that still occur in
    both parts are reported in the evaluation data's notes.
    Raises InputError if no data is given or there are fewer than two samples to split.
    """
    given = [dataset for dataset in (calibration, evaluation) if dataset is not None]
    if not given:
        raise InputError("neither calibration nor evaluation data is given; give --data")
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
    shared = {d.inputs for d in first.digests} & {d.inputs for d in second.digests}
    if shared:
        second = second._with_note(
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
    return dataset._choose(order[: count // 2]), dataset._choose(order[count // 2 :])


@dataclass(frozen=True)
class _Spec:
    """What the model wants of one input."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def batch(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def rows(self) -> str:
        """Shape of an array of many samples, for messages."""
        leading = "N" if self.batch == 1 else f"N*{self.batch}"
        return f"({', '.join(map(str, (leading, *self.shape[1:])))})"


Specs = Mapping[str, _Spec]


def _specs(model: Model) -> Specs:
    specs = {}
    for name in model.graph.inputs:
        code = model.graph.type_of(name).dtype
        if code is None:
            raise InputError(f"input '{name}' of {model.path} has no tensor type; export it again")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
        specs[name] = _Spec(name, tuple(model.input_shapes[name]), dtype)
    return specs


def _survey(source: str, read: Read, synthetic: bool) -> Dataset:
    """Pass over all samples once: check values, count, take digests and notes."""
    notes: dict[str, None] = {}
    digests = []
    labelled = None
    sample_bytes = 0
    for sample in read(notes.setdefault):
        _check_finite(sample)
        digests.append(_digest(sample))
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
    )


def _check_finite(sample: Sample) -> None:
    for name, array in sample.inputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(
                f"{sample.origin}: array '{name}' holds NaN or Inf as {array.dtype}; "
                "remove or repair that sample"
            )


def _digest(sample: Sample) -> _Digest:
    inputs = hashlib.sha256()
    for name in sorted(sample.inputs):
        inputs.update(_array_digest(sample.inputs[name]))
    labels = b"" if sample.labels is None else _array_digest(sample.labels)
    return _Digest(inputs.digest(), labels)


def _array_digest(array: np.ndarray) -> bytes:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.digest()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix not in _SUFFIXES:
            raise InputError(
                f"{path} has the unsupported suffix '{path.suffix}'; give .npz, .npy, a folder of "
                "them, or module:function"
            )
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix in _SUFFIXES and file.name[0] != "."
    )
    if not files:
        raise InputError(f"folder {path} holds no .npz or .npy file; put the samples there")
    return files


def _file_samples(path: Path, source: str, specs: Specs, note: Note) -> Iterator[Sample]:
    arrays = _read_arrays(path, specs)
    labels = None if LABELS in specs else arrays.pop(LABELS, None)
    counts = {}
    for name, spec in specs.items():
        array = arrays[name]
        _check_rows(array, spec, path)
        counts[name], rest = divmod(len(array), spec.batch)
        if rest:
            note(
                f"{source}: {rest} of {len(array)} rows of array '{name}' are dropped, they fill "
                f"no batch of {spec.batch}"
            )
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise InputError(
            f"{path}: arrays hold different numbers of samples ({shown}); make them equal"
        )
    first = next(iter(specs.values()))
    if labels is not None and (labels.ndim == 0 or len(labels) != len(arrays[first.name])):
        raise InputError(
            f"{path}: '{LABELS}' has shape {labels.shape} but array '{first.name}' has "
            f"{len(arrays[first.name])} rows; give one label per row"
        )
    for index in range(counts[first.name]):
        origin = f"{path}, sample {index}"
        inputs = {
            name: _convert(_rows(arrays[name], spec, index), spec, origin, source, note)
            for name, spec in specs.items()
        }
        yield Sample(inputs, _label_rows(labels, first, index), origin)


def _rows(array: np.ndarray, spec: _Spec, index: int) -> np.ndarray:
    rows = array[index * spec.batch : (index + 1) * spec.batch]
    return rows.reshape(spec.shape)


def _label_rows(labels: np.ndarray | None, first: _Spec, index: int) -> np.ndarray | None:
    if labels is None:
        return None
    return np.array(labels[index * first.batch : (index + 1) * first.batch])


def _read_arrays(path: Path, specs: Specs) -> dict[str, np.ndarray]:
    """Arrays of a file by name; an .npy file's array goes by the name of the only input."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        if len(specs) != 1:
            raise InputError(
                f"{path} holds one array but the model has {len(specs)} inputs; "
                f"give an .npz with arrays named: {', '.join(specs)}"
            )
        return {next(iter(specs)): loaded}
    if loaded.keys() - {LABELS} != specs.keys() - {LABELS} or not specs.keys() <= loaded.keys():
        raise InputError(
            f"{path} has arrays named: {', '.join(loaded) or 'none'}; the model's inputs are "
            f"named: {', '.join(specs)}; rename the arrays"
        )
    return loaded


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    try:
        # Memory mapping (.npy only) reads a large file piece by piece.
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is damaged or holds pickled Python objects ({error}); "
            "save plain numeric arrays with np.savez or np.save"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; check the file"
        ) from error


def _check_rows(array: np.ndarray, spec: _Spec, path: Path) -> None:
    if array.ndim != max(len(spec.shape), 1) or array.shape[1:] != spec.shape[1:]:
        raise InputError(
            f"{path}: array '{spec.name}' has shape {array.shape} but the model needs "
            f"{spec.rows}; reshape it or set the model's shape with --shape"
        )
    if array.size == 0:
        raise InputError(f"{path}: array '{spec.name}' is empty; give at least one sample")


def _convert(array: np.ndarray, spec: _Spec, origin: str, source: str, note: Note) -> np.ndarray:
    """A read-only copy with the input's type; see ``load_dataset`` for what is converted."""
    kind, wanted = array.dtype.kind, spec.dtype.kind
    if array.dtype != spec.dtype:
        if not (kind == wanted == "f" or (kind in "iu" and wanted in "iu")):
            hint = "preprocess it as in training and " if kind in "iu" and wanted == "f" else ""
            raise InputError(
                f"{origin}: array '{spec.name}' has type {array.dtype} but the model needs "
                f"{spec.dtype}; {hint}save it as {spec.dtype}"
            )
        if wanted in "iu":
            _check_fits(array, spec, origin)
        note(f"{source}: array '{spec.name}' is {array.dtype} and was converted to {spec.dtype}")
    with np.errstate(over="ignore"):  # What overflows is reported as Inf.
        converted = np.array(array, dtype=spec.dtype, order="C")
    converted.flags.writeable = False
    return converted


def _check_fits(array: np.ndarray, spec: _Spec, origin: str) -> None:
    limits = np.iinfo(spec.dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise InputError(
            f"{origin}: array '{spec.name}' ({array.dtype}) has values that do not fit the "
            f"model's {spec.dtype}; correct them"
        )


def _load_function(source: str) -> Callable[[], Iterable[object]]:
    module_name, colon, name = source.partition(":")
    if not colon or Path(source).suffix in _SUFFIXES or not module_name or not name:
        raise InputError(
            f"{source} does not exist; give an .npz or .npy file, a folder of them, or "
            "module:function"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with _UserCode(f"importing module '{module_name}' of {source}"):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"module '{error.name}' of {source} cannot be found; run in its folder or install it"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        raise InputError(f"module '{module_name}' has no function '{name}'; correct {source}")
    if not callable(function):
        raise InputError(
            f"'{name}' of module '{module_name}' is no function but a "
            f"{type(function).__name__}; make it a function that returns an iterable of dicts"
        )
    found: Callable[[], Iterable[object]] = function
    return found


class _UserCode:
    """Turns whatever the user's code raises into an InputError that names it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        passed = (PlacerError, ModuleNotFoundError)
        if isinstance(error, Exception) and not isinstance(error, passed):
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{self._what} failed with {reason}; correct the function") from error


_END = object()


def _function_samples(
    function: Callable[[], Iterable[object]], source: str, specs: Specs, note: Note
) -> Iterator[Sample]:
    guard = _UserCode(source)
    with guard:
        items = iter(function())
    index = 0
    while True:
        with guard:
            item = next(items, _END)
        if item is _END:
            return
        yield _function_sample(item, f"{source}, sample {index}", source, specs, note)
        index += 1


def _function_sample(item: object, origin: str, source: str, specs: Specs, note: Note) -> Sample:
    if not isinstance(item, Mapping):
        raise InputError(
            f"{origin} is a {type(item).__name__}; give a dict from input name to array"
        )
    if item.keys() - {LABELS} != specs.keys() - {LABELS} or not specs.keys() <= item.keys():
        raise InputError(
            f"{origin} has arrays named: {', '.join(map(str, item)) or 'none'}; the model's "
            f"inputs are named: {', '.join(specs)}; rename the keys"
        )
    inputs = {}
    for name, spec in specs.items():
        array = np.asarray(item[name])
        if array.shape != spec.shape:
            raise InputError(
                f"{origin}: array '{name}' has shape {array.shape} but the model needs "
                f"{spec.shape}; give one batch of that shape"
            )
        inputs[name] = _convert(array, spec, origin, source, note)
    given = None if LABELS in specs else item.get(LABELS)
    first = next(iter(specs.values()))
    labels = None if given is None else np.atleast_1d(np.array(given))
    if labels is not None and len(labels) != first.batch:
        raise InputError(
            f"{origin}: '{LABELS}' has {len(labels)} entries but the batch has {first.batch} rows; "
            "give one label per row"
        )
    return Sample(inputs, labels, origin)


def _synthetic_array(spec: _Spec, rng: np.random.Generator) -> np.ndarray:
    if spec.dtype.kind == "f":
        values = _smooth(spec.shape, rng) if len(spec.shape) == 4 else None
        if values is None:
            values = rng.standard_normal(spec.shape)
    else:
        values = rng.integers(0, 2, spec.shape)
    return np.asarray(values).astype(spec.dtype)


def _smooth(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Uniform noise on a coarse grid over the last two axes, interpolated linearly."""
    *outer, height, width = shape
    coarse = [min(_COARSE_CELLS, size) for size in (height, width)]
    grid = rng.uniform(-1, 1, (*outer, *coarse))
    smooth: np.ndarray = _interpolation(height, coarse[0]) @ grid
    smooth = smooth @ _interpolation(width, coarse[1]).T
    return smooth


def _interpolation(size: int, cells: int) -> np.ndarray:
    """Matrix, shape (size, cells), that interpolates linearly between ``cells`` points."""
    at = np.linspace(0, cells - 1, size)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(cells)))
