"""One pass over the samples of a file, a folder or a Python function, checked and converted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from placer.calibration.archives import read_arrays
from placer.calibration.batches import named_arrays
from placer.calibration.images import IMAGES, open_images
from placer.calibration.layout import Samples, samples_in
from placer.calibration.preprocessing import PREPROCESSING
from placer.calibration.sample import LABELS, Note, Read, Sample, converted
from placer.calibration.specs import InputSpec, Specs
from placer.common.user_code import UserCode, load_function
from placer.errors import InputError

_SUFFIXES = (".npz", ".npy")


Fixed = Mapping[str, float]


def open_source(source: str, specs: Specs, fixed: Fixed) -> Read:
    """Return what passes over ``source``; see ``placer.calibration.dataset.load_dataset``.

    ``fixed``: the one value of each input that the model was fixed for. Each pass takes a function
    that is told what was dropped or converted. Raises InputError if the source does not exist; a
    pass raises it for data that does not fit ``specs``.
    """
    path = Path(source)
    if path.exists():
        files = files_of(path)
        if not files:
            return open_images(path, specs)
        return lambda note: _files_samples(files, source, specs, fixed, note)
    function = function_of(source)
    return lambda note: _function_samples(function, source, specs, fixed, note)


def _files_samples(
    files: Sequence[Path], source: str, specs: Specs, fixed: Fixed, note: Note
) -> Iterator[Sample]:
    """The samples in ``files`` of arrays, and a note of images that lie beside them."""
    image = next(_images_in(Path(source)), None) if Path(source).is_dir() else None
    if image is not None:
        note(
            f"{source} holds arrays and images (such as {image.name}), of which only the arrays "
            "are used; keep them in folders of their own"
        )
    named = files_by_name(files, {*specs, *fixed}) or files_by_name(files, specs)
    if named:
        yield from _samples(_of_files(named, specs, fixed, source), specs, source, source, note)
        return
    for file in files:
        yield from _file_samples(file, source, specs, fixed, note)


def _images_in(folder: Path) -> Iterator[Path]:
    """The images in ``folder`` and in folders within it."""
    found = itertools.chain(folder.iterdir(), folder.glob("*/*"))
    return (file for file in found if file.suffix.lower() in IMAGES and file.name[0] != ".")


def files_of(path: Path) -> list[Path]:
    """The files of arrays; none for a folder of images. InputError for what holds no samples."""
    if not path.is_dir():
        if path.suffix.lower() not in _SUFFIXES:
            raise InputError(
                f"{path} has the unsupported suffix '{path.suffix}'; give .npz, .npy, a folder of "
                "them or of images, or module:function"
            )
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.name[0] != "."
    )
    has_images = (path / PREPROCESSING).exists() or any(_images_in(path))
    if files and (path / PREPROCESSING).exists():
        raise InputError(
            f"folder {path} holds {PREPROCESSING}, which is for images, and {files[0].name}; "
            "keep images and arrays in folders of their own"
        )
    if not files and not has_images:
        raise InputError(
            f"folder {path} holds no .npz or .npy file and no image; put the samples there"
        )
    return files


def files_by_name(files: Sequence[Path], inputs: Iterable[str]) -> dict[str, Path]:
    """The files of a folder by the input, or labels, that each is called after.

    Empty unless the folder has such a file for each of ``inputs``. Of several inputs it may have
    other files besides, which are returned too: no file of samples is called after an input then.
    """
    named = {file.name.removesuffix(".npy"): file for file in files}
    wanted, found = {*inputs} - {LABELS}, named.keys() - {LABELS}
    is_complete = len(named) > 1 and (wanted == found or 1 < len(wanted & found) == len(wanted))
    return named if is_complete and all(file.suffix == ".npy" for file in files) else {}


def _of_files(
    files: Mapping[str, Path], specs: Specs, fixed: Fixed, where: str
) -> dict[str, np.ndarray]:
    read = {name: read_arrays(file) for name, file in files.items()}
    arrays = {name: array for name, array in read.items() if isinstance(array, np.ndarray)}
    return _named(arrays, specs, fixed, where)


def _file_samples(
    path: Path, source: str, specs: Specs, fixed: Fixed, note: Note
) -> Iterator[Sample]:
    return _samples(_read_arrays(path, specs, fixed), specs, str(path), source, note)


def _samples(
    arrays: Mapping[str, np.ndarray], specs: Specs, where: str, source: str, note: Note
) -> Iterator[Sample]:
    """The samples in ``arrays``, which have the names of ``specs``, and maybe labels."""
    labels = None if LABELS in specs else arrays.get(LABELS)
    samples = {name: samples_in(arrays[name], spec, where) for name, spec in specs.items()}
    for name, held in samples.items():
        if held.dropped:
            note(
                f"{source}: {held.dropped} of {len(arrays[name])} rows of array '{name}' are "
                f"dropped, they fill no batch of {held.spec.batch}"
            )
    count = _count(samples, where, source, note)
    first = next(iter(specs.values()))
    if labels is not None:
        rows = count * first.batch + samples[first.name].dropped
        labels = _label_rows(labels, rows, first, where)
    for index in range(count):
        origin = f"{where}, sample {index}"
        inputs = {
            name: converted(held[index], held.spec, origin, source, note)
            for name, held in samples.items()
        }
        yield Sample(inputs, None if labels is None else _rows(labels, first, index), origin)


def _count(samples: Mapping[str, Samples], where: str, source: str, note: Note) -> int:
    """The number of samples that all arrays hold; an array may hold one for all."""
    counts = {name: len(held) for name, held in samples.items()}
    several = {count for count in counts.values() if count != 1}
    if len(several) > 1:
        shown = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise InputError(
            f"{where}: arrays hold different numbers of samples ({shown}); make them equal"
        )
    whole = several.pop() if several else 1
    for name, count in counts.items():
        if count == 1 < whole:
            note(f"{source}: array '{name}' holds one sample, which is used with all {whole}")
    return whole


def _label_rows(labels: np.ndarray, rows: int, first: InputSpec, where: str) -> np.ndarray:
    """``labels`` with an entry for each row of the first input, stacked as it may be."""
    if labels.shape[:2] == (rows // first.batch, first.batch):
        labels = labels.reshape(rows, *labels.shape[2:])
    labels = np.atleast_1d(labels)
    if len(labels) != rows:
        raise InputError(
            f"{where}: '{LABELS}' has shape {labels.shape} but array '{first.name}' has "
            f"{rows} rows; give one label per row"
        )
    if labels.dtype.kind == "O":
        raise InputError(f"{where}: '{LABELS}' holds Python objects; give a numeric array")
    return labels


def _rows(labels: np.ndarray, first: InputSpec, index: int) -> np.ndarray:
    return np.array(labels[index * first.batch : (index + 1) * first.batch])


def _read_arrays(path: Path, specs: Specs, fixed: Fixed) -> dict[str, np.ndarray]:
    """Arrays of a file by name; an .npy file's array goes by the name of the only input."""
    loaded = read_arrays(path)
    if isinstance(loaded, np.ndarray):
        if len(specs) != 1:
            raise InputError(
                f"{path} holds one array but the model has {len(specs)} inputs; "
                f"give an .npz with arrays named: {', '.join(specs)}, or a folder with an .npy of "
                "each name"
            )
        return {next(iter(specs)): loaded}
    return _named(loaded, specs, fixed, str(path))


def _named(
    arrays: Mapping[str, np.ndarray], specs: Specs, fixed: Fixed, where: str
) -> dict[str, np.ndarray]:
    """``arrays`` of inputs that are not fixed, and labels; InputError for other names."""
    left = _without_fixed(arrays, fixed, where)
    _check_names(left, specs, where)
    return left


def _without_fixed(
    arrays: Mapping[str, np.ndarray], fixed: Fixed, where: str
) -> dict[str, np.ndarray]:
    """``arrays`` but for those of fixed inputs; InputError if one holds another value."""
    for name, value in fixed.items():
        if name in arrays and not np.all(np.asarray(arrays[name]) == value):
            raise InputError(
                f"{where}: array '{name}' holds other values than {value:g}, for which the model "
                "was fixed; give the samples with that value only"
            )
    return {name: array for name, array in arrays.items() if name not in fixed}


def _check_names(names: Iterable[object], specs: Specs, where: str) -> None:
    given = set(names)
    if given - {LABELS} != specs.keys() - {LABELS} or not specs.keys() <= given:
        shown = ", ".join(sorted(map(str, given)))
        has = f"has arrays named: {shown}" if given else "has no array"
        raise InputError(
            f"{where} {has}; the model's inputs are named: "
            f"{', '.join(specs)}; {_remedy(given, specs)}"
        )


def _remedy(given: set[object], specs: Specs) -> str:
    """What to do about names that are not those of the inputs."""
    missing, others = specs.keys() - given, given - {LABELS} - specs.keys()
    if missing and others:
        return "rename the arrays"
    verb, names = ("add", missing) if missing else ("leave out", others)
    return f"{verb} {', '.join(sorted(map(str, names)))}"


def check_source(source: str) -> None:
    """Raise InputError if ``source`` is no file or folder of data, nor names a function.

    No function is imported, and no file read.
    """
    path = Path(source)
    if path.exists():
        files_of(path)
    else:
        _check_function_name(source)


def function_of(source: str) -> Callable[[], Iterable[object]]:
    """The function that ``module:function`` names; InputError if it names none."""
    _check_function_name(source)
    function: Callable[[], Iterable[object]] = load_function(source)
    return function


def _check_function_name(source: str) -> None:
    module_name, colon, name = source.partition(":")
    what = "an .npz or .npy file, a folder of them or of images, or module:function"
    if name.startswith("//"):
        raise InputError(f"{source} is a URL; download it and give {what}")
    if not colon or Path(source).suffix.lower() in _SUFFIXES or not module_name or not name:
        raise InputError(f"{source} does not exist; give {what}")


def _function_samples(
    function: Callable[[], Iterable[object]], source: str, specs: Specs, fixed: Fixed, note: Note
) -> Iterator[Sample]:
    guard = UserCode(source, "correct the function")
    for index, item in enumerate(guard.items(function)):
        where = f"{source}, batch {index}"
        arrays = _without_fixed(named_arrays(item, list(specs), where), fixed, where)
        _check_names(arrays, specs, where)
        yield from _samples(arrays, specs, where, source, note)
