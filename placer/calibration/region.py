"""A region of a model as a model of its own, with the calibration data that reaches it."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ValueInfoProto

from placer.calibration.data_shapes import with_shapes_of_data
from placer.calibration.dataset import Dataset, load_dataset
from placer.common.files import cannot_write, check_writable, text_of_source
from placer.common.names import texts_of
from placer.common.ort_session import create_session, run_once
from placer.common.own_files import ARCHIVE_COMMENT
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.errors import InputError
from placer.graph.edit import reads
from placer.model import Model, load_as_is
from placer.model.custom_types import infer_all_values
from placer.model.normalize import tidy_named
from placer.model.region import cut_region, tensors_around
from placer.model.save import saved_together

_THREADS = 2


@dataclass(frozen=True)
class Region:
    """What ``extract_region`` wrote.

    ``data``: the .npz with the region's inputs, None if no data was given.
    """

    model: Path
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    data: Path | None


def extract_region(
    model: Path | str,
    output: Path | str,
    *,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    around: str | None = None,
    depth: int = 2,
    data: str | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    replace: bool = False,
) -> Region:
    """Write a region of the ONNX file ``model`` to ``output`` and, with ``data``, its inputs.

    The region computes ``outputs`` from ``inputs`` (graph inputs if none are named), or holds the
    nodes at most ``depth`` edges from the node ``around``. Names stay those of ``model``. ``data``
    is calibration data of the whole model as ``placer optimize`` takes it: ONNX Runtime runs the
    part before the region on it, and what reaches the region is written beside ``output`` as
    ``<stem>.npz``, which ``placer optimize`` takes for the region. ``shapes`` fixes dynamic
    inputs; the region's inputs have the shapes inferred for them. ``replace``: whether files that
    no run of placer wrote may be written over.

    Raises InputError for a node or tensor that is not there, inputs that do not cut the region
    off and data that does not fit, and RunError if ONNX Runtime cannot run the part before it.
    """
    path, target = Path(model), Path(output)
    inputs, outputs = texts_of(inputs), texts_of(outputs)
    given = None if data is None else text_of_source(data)
    archive = _archive(path, target, given)
    # Else that is noticed when the model is loaded.
    check_writable(target, archive, replace=replace)
    if bool(outputs) == (around is not None):
        raise InputError("a region is given by its outputs or by the node that it is around")
    if depth < 0:
        raise InputError(f"a depth of {depth} is impossible; give 0 or more")
    source = load_as_is(path, with_shapes_of_data(path, optima(given_ranges(shapes)), given))
    tidy_named(source.proto)
    types = infer_all_values(source.proto, source.base_dir, source.input_shapes, path)
    if around is None:
        starts, ends = list(inputs) or _needed_inputs(source, outputs), list(outputs)
    else:
        starts, ends = tensors_around(source.proto, around, depth, path)
    region = cut_region(source.proto, types, starts, ends, path)
    dataset = None if given is None else load_dataset(given, source)
    with saved_together(region, source.base_dir, target, source=path, replace=replace) as draft:
        if dataset is not None:
            samples = _values(source, types, starts, dataset)
            _write_data(samples, len(dataset), draft.with_suffix(".npz"))
    return Region(target, len(region.graph.node), tuple(starts), tuple(ends), archive)


def _archive(model: Path, target: Path, data: str | None) -> Path | None:
    """Where the region's inputs are written; InputError if a file given would be overwritten."""
    if target.resolve() == model.resolve():
        raise InputError(f"{target} is the model itself; choose another output")
    if data is None:
        return None
    archive = target.with_suffix(".npz")
    if archive.resolve() in (target.resolve(), Path(data).resolve()):
        raise InputError(
            f"the region's data would be written to {archive}, which is the "
            f"{'model' if archive == target else 'data'} itself; choose another output"
        )
    return archive


def _needed_inputs(source: Model, outputs: Sequence[str]) -> list[str]:
    """Graph inputs that ``outputs`` depend on."""
    needed = set(outputs)
    for node in reversed(source.proto.graph.node):
        if needed.intersection(node.output):
            needed.update(reads(node))
    return [name for name in source.graph.inputs if name in needed]


def _values(
    source: Model,
    types: Mapping[str, ValueInfoProto],
    tensors: Sequence[str],
    dataset: Dataset,
) -> Iterator[dict[str, np.ndarray]]:
    """Values of ``tensors``, some of which may be graph inputs, for one sample after the other."""
    computed = [name for name in tensors if name not in source.input_shapes]
    before = _needed_inputs(source, computed)
    session = None
    if computed:
        prefix = cut_region(source.proto, types, before, computed, source.path)
        # Fusions round differently: as in calibration, each node computes what it says.
        level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = create_session(
            prefix.SerializeToString(), source.base_dir, threads=_THREADS, level=level
        )
    for sample in dataset:
        values = {name: sample.inputs[name] for name in tensors if name in sample.inputs}
        if session is not None:
            given = {name: sample.inputs[name] for name in before}
            results = run_once(session, computed, given, f"{source.path} on {sample.origin}")
            values.update(zip(computed, results, strict=True))
        yield values


def _write_data(samples: Iterable[Mapping[str, np.ndarray]], count: int, path: Path) -> None:
    """Write an .npz with the ``count`` samples one after the other along the first axis."""
    try:
        # Arrays grow on disk: what reaches a region may be larger than the memory.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".region-") as folder:
            files = _write_arrays(samples, count, Path(folder))
            with zipfile.ZipFile(path, "w") as archive:
                archive.comment = ARCHIVE_COMMENT
                for name, file in files.items():
                    # Names begin with a slash at times, which ZipFile.write would drop.
                    with (
                        file.open("rb") as values,
                        archive.open(f"{name}.npy", "w", force_zip64=True) as member,
                    ):
                        shutil.copyfileobj(values, member)
    except OSError as error:
        raise cannot_write(path, error) from error


def _write_arrays(
    samples: Iterable[Mapping[str, np.ndarray]], count: int, folder: Path
) -> dict[str, Path]:
    files: dict[str, Path] = {}
    arrays: dict[str, np.ndarray] = {}
    for number, values in enumerate(samples):
        for name, value in values.items():
            rows = np.atleast_1d(value)
            if name not in arrays:
                files[name] = folder / f"{len(files)}.npy"
                shape = (count * len(rows), *rows.shape[1:])
                arrays[name] = np.lib.format.open_memmap(
                    files[name], mode="w+", dtype=rows.dtype, shape=shape
                )
            whole = arrays[name]
            if (len(rows) * count, *rows.shape[1:]) != whole.shape:
                raise InputError(
                    f"'{name}' has another shape in sample {number} than in those before; "
                    "cut the region at a tensor of fixed shape"
                )
            whole[number * len(rows) : (number + 1) * len(rows)] = rows
    return files
