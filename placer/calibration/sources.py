"""One pass over the samples of a file, a folder or a Python function, checked and converted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import helper

from placer.calibration.archives import read_arrays
from placer.common.user_code import UserCode, load_function
from placer.errors import InputError
from placer.model import Model

LABELS = "labels"
_SUFFIXES = (".npz", ".npy")

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
class InputSpec:
    """Shape and type that the model wants of one input."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def batch(self) -> int:
        """Rows of one sample: the leading dimension."""
        return self.shape[0] if self.shape else 1

    @property
    def rows(self) -> str:
        """Shape of an array of many samples, for messages."""
        leading = "N" if self.batch == 1 else f"N*{self.batch}"
        return f"({', '.join(map(str, (leading, *self.shape[1:])))})"


Specs = Mapping[str, InputSpec]


def input_specs(model: Model) -> Specs:
    """Specs of all graph inputs in order; raises InputError if there is none or it is no tensor."""
    if not model.graph.inputs:
        raise InputError(f"{model.path} has no input, so no data can be given; export it again")
    specs = {}
    for name in model.graph.inputs:
        code = model.graph.type_of(name).dtype
        if code is None:
            raise InputError(f"input '{name}' of {model.path} has no tensor type; export it again")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
        specs[name] = InputSpec(name, tuple(model.input_shapes[name]), dtype)
    return specs


def open_source(source: str, specs: Specs) -> Read:
    """Return what passes over ``source``; see ``placer.calibration.dataset.load_dataset``.

    Each pass takes a function that is told what was dropped or converted. Raises InputError if
    the source does not exist; a pass raises it for data that does not fit ``specs``.
    """
    path = Path(source)
    if path.exists():
        files = _files(path)

        def read_files(note: Note) -> Iterator[Sample]:
            for file in files:
                yield from _file_samples(file, source, specs, note)

        return read_files
    function = _load_function(source)
    return lambda note: _function_samples(function, source, specs, note)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix.lower() not in _SUFFIXES:
            raise InputError(
                f"{path} has the unsupported suffix '{path.suffix}'; give .npz, .npy, a folder of "
                "them, or module:function"
            )
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.name[0] != "."
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


def _rows(array: np.ndarray, spec: InputSpec, index: int) -> np.ndarray:
    rows = array[index * spec.batch : (index + 1) * spec.batch]
    return rows.reshape(spec.shape)


def _label_rows(labels: np.ndarray | None, first: InputSpec, index: int) -> np.ndarray | None:
    if labels is None:
        return None
    return np.array(labels[index * first.batch : (index + 1) * first.batch])


def _read_arrays(path: Path, specs: Specs) -> dict[str, np.ndarray]:
    """Arrays of a file by name; an .npy file's array goes by the name of the only input."""
    loaded = read_arrays(path)
    if isinstance(loaded, np.ndarray):
        if len(specs) != 1:
            raise InputError(
                f"{path} holds one array but the model has {len(specs)} inputs; "
                f"give an .npz with arrays named: {', '.join(specs)}"
            )
        return {next(iter(specs)): loaded}
    _check_names(loaded, specs, str(path))
    return loaded


def _check_names(names: Iterable[object], specs: Specs, where: str) -> None:
    given = set(names)
    if given - {LABELS} != specs.keys() - {LABELS} or not specs.keys() <= given:
        shown = ", ".join(sorted(map(str, given))) or "none"
        raise InputError(
            f"{where} has arrays named: {shown}; the model's inputs are named: "
            f"{', '.join(specs)}; rename the arrays"
        )


def _check_rows(array: np.ndarray, spec: InputSpec, path: Path) -> None:
    if array.size == 0:
        raise InputError(f"{path}: array '{spec.name}' is empty; give at least one sample")
    if array.ndim != max(len(spec.shape), 1) or array.shape[1:] != spec.shape[1:]:
        raise InputError(
            f"{path}: array '{spec.name}' has shape {array.shape} but the model needs "
            f"{spec.rows}; reshape it or set the model's shape with `shapes`"
        )


def _convert(
    array: np.ndarray, spec: InputSpec, origin: str, source: str, note: Note
) -> np.ndarray:
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


def _check_fits(array: np.ndarray, spec: InputSpec, origin: str) -> None:
    limits = np.iinfo(spec.dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise InputError(
            f"{origin}: array '{spec.name}' ({array.dtype}) has values that do not fit the "
            f"model's {spec.dtype}; correct them"
        )


def _load_function(source: str) -> Callable[[], Iterable[object]]:
    module_name, colon, name = source.partition(":")
    if not colon or Path(source).suffix.lower() in _SUFFIXES or not module_name or not name:
        raise InputError(
            f"{source} does not exist; give an .npz or .npy file, a folder of them, or "
            "module:function"
        )
    found: Callable[[], Iterable[object]] = load_function(source)
    return found


_END = object()


def _function_samples(
    function: Callable[[], Iterable[object]], source: str, specs: Specs, note: Note
) -> Iterator[Sample]:
    guard = UserCode(source, "correct the function")
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
            f"{origin} has type {type(item).__name__}; give a dict from input name to array"
        )
    _check_names(item, specs, origin)
    inputs = {}
    for name, spec in specs.items():
        with UserCode(f"reading '{name}' of {origin}", "give a numeric array"):
            array = np.asarray(item[name])
        if array.shape != spec.shape:
            raise InputError(
                f"{origin}: array '{name}' has shape {array.shape} but the model needs "
                f"{spec.shape}; give one batch of that shape"
            )
        inputs[name] = _convert(array, spec, origin, source, note)
    labels = None if LABELS in specs else item.get(LABELS)
    return Sample(inputs, _function_labels(labels, specs, origin), origin)


def _function_labels(given: object, specs: Specs, origin: str) -> np.ndarray | None:
    if given is None:
        return None
    with UserCode(f"reading '{LABELS}' of {origin}", "give a numeric array"):
        labels = np.atleast_1d(np.array(given))
    rows = next(iter(specs.values())).batch
    if len(labels) != rows:
        raise InputError(
            f"{origin}: '{LABELS}' has {len(labels)} entries but the batch has {rows} rows; "
            "give one label per row"
        )
    if labels.dtype.kind == "O":
        raise InputError(f"{origin}: '{LABELS}' holds Python objects; give a numeric array")
    return labels
