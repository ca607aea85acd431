"""Everything that decides a model's result, as names and hashes, cheap enough for every start."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto
from onnx.external_data_helper import ExternalDataInfo

from placer.accuracy.gates import Gate
from placer.calibration.images import IMAGES
from placer.calibration.preprocessing import PREPROCESSING
from placer.graph.edit import all_tensors
from placer.graph.external_data import is_external
from placer.onboarding.describe import Described
from placer.onboarding.manifest import Job
from placer.onboarding.manifest_fields import Options
from placer.version import __version__

# A study goes on with another value of these; with another of any other input it is begun anew.
# What is recovered in the result does not decide the trials.
GOES_ON = frozenset({"budget", "timeout", "recover"})
# Options that are hashed as files, described otherwise, or do not decide the result.
_NOT_AS_OPTIONS = {
    "data",
    "eval_data",
    "warm_starts",
    "engine",
    "pack",
    "cache",
    "priority",
    "time_limit",
}
_DATA_SUFFIXES = IMAGES | {".npz", ".npy"}
_HASH = "sha256:"
_MISSING = "missing"
_CHUNK = 1 << 20


def inputs_of(job: Job, described: Described, folder: Path) -> dict[str, str]:
    """What decides the result of ``job``, by names for the user; ``folder``: the manifest's."""
    options = job.options
    hashes = {
        "model": _model(folder / job.model),
        "engine": described.engine,
        "pack": described.pack,
        "placer.lock": described.lock,
        "placer": __version__,
    }
    for name, source in (("data", options.data), ("eval_data", options.eval_data)):
        if source is not None:
            hashes[name] = f"{source} {_source(source, folder)}"
    for text in options.gates or ():
        metric = Gate.parse_stored(text).metric
        if ":" in metric:
            hashes[f"gate function {metric}"] = _module(metric, folder)
    for text in options.warm_starts or ():
        hashes[f"warm start {text}"] = _tree(folder / text)
    for text in options.custom_ops or ():
        hashes[f"library {text}"] = _tree(folder / text)
    if options.gpu is not None and (folder / options.gpu).is_file():
        hashes[f"file {options.gpu}"] = _files([folder / options.gpu])
    return hashes | _plain(options)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is different, e.g. ``model changed`` or ``budget changed: 4 -> 8``, in order."""
    return [
        _change(name, before.get(name), now.get(name))
        for name in dict.fromkeys((*now, *before))
        if before.get(name) != now.get(name)
    ]


def only_goes_on(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a study that was made from ``before`` can be gone on with."""
    names = {*before, *now}
    return {name for name in names if before.get(name) != now.get(name)} <= GOES_ON


def _change(name: str, before: str | None, now: str | None) -> str:
    if before == _MISSING:
        return f"{name} is there now"
    if now == _MISSING:
        return f"{name} is missing"
    if before is None or now is None:
        return f"{name} {'added' if before is None else 'removed'}"
    if _HASH in before or _HASH in now or not (before and now):
        return f"{name} changed"
    return f"{name} changed: {before} -> {now}"


def _plain(options: Options) -> dict[str, str]:
    """The options that count as they are written."""
    chosen = options.model_dump(exclude=_NOT_AS_OPTIONS, exclude_none=True)
    return {name: _text(value) for name, value in chosen.items()}


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={value[key]}" for key in sorted(value))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _model(path: Path) -> str:
    """Hash of the file and of its external data, as far as they are there."""
    if not path.is_file():
        return _MISSING
    return _files([path, *(path.parent / name for name in _external_names(path))])


def _external_names(path: Path) -> list[str]:
    """Names of external data files; none of a file that is no ONNX model, which is told later."""
    try:
        proto = ModelProto.FromString(path.read_bytes())
        tensors = [t for t in all_tensors(proto.graph) if is_external(t)]
        return sorted({ExternalDataInfo(tensor).location for tensor in tensors})
    except (DecodeError, UnicodeDecodeError, ValueError, OSError):
        return []


def _source(source: str, folder: Path) -> str:
    path = folder / source
    if path.is_dir():
        found = (*path.glob("*"), *path.glob("*/*"))  # rglob would leave out links to folders.
        return _files(sorted(filter(_is_data, found)), path)
    if path.is_file():
        return _files([path])
    return _module(source, folder) if ":" in source else _MISSING


def _is_data(path: Path) -> bool:
    """Whether the file counts in a folder of data: arrays, images and how these are prepared."""
    return path.suffix.lower() in _DATA_SUFFIXES or path.name == PREPROCESSING


def _module(text: str, folder: Path) -> str:
    """Hash of the source of ``module:function``, found without importing it."""
    parts = text.partition(":")[0].split(".")
    places = [folder]
    spec = _spec(parts[0])
    if spec is not None and spec.submodule_search_locations is not None:
        places += [Path(place).parent for place in spec.submodule_search_locations]
    elif spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent)
    for place in places:
        base = place.joinpath(*parts)
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return _files([file])
    return _MISSING


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # Such as an empty name.
        return None


def _tree(path: Path) -> str:
    """Hash of a file, or of all files of a folder."""
    if path.is_dir():
        return _files(sorted(file for file in path.rglob("*") if file.is_file()))
    return _files([path]) if path.is_file() else _MISSING


def _files(paths: Iterable[Path], folder: Path | None = None) -> str:
    """One hash over names, sizes and contents; what cannot be read counts as such.

    ``folder``: from where names count, as folders of images are classes; by default file names.
    """
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size if path.is_file() else -1
        name = path.name if folder is None else path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        try:
            for chunk in _chunks(path) if size >= 0 else ():
                digest.update(chunk)
        except OSError as error:
            digest.update(f"{error.strerror}\0".encode())
    return f"{_HASH}{digest.hexdigest()}"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
