"""The project file ``placer.yaml``: options of a run kept beside the model, with profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from placer.accuracy.gates import METRICS, Gate
from placer.common.durations import parse_duration
from placer.common.files import read_text
from placer.common.names import unknown
from placer.common.shapes import parse_shape_range
from placer.common.yaml_file import as_value_error, parse_text
from placer.engines.registry import AUTO, Registry
from placer.engines.select import BUILT_IN
from placer.errors import InputError
from placer.optimizer.options.request import Export
from placer.optimizer.options.run_options import Devices, RunOptions, Text, described
from placer.prediction.times.devices import load_device

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,49}$"
# Options whose values are files and folders, from the project's folder; `data` may be a function.
_PATHS = frozenset({"data", "eval_data", "output"})
# Native code, code through an engine's plug-ins, and a database that takes part in the run.
_UNSAFE = frozenset({"custom_ops", "engine_options", "storage"})


def _engine(name: str) -> str:
    if name != AUTO:
        with as_value_error():
            Registry.installed(BUILT_IN).factory(name)
    return name


def _gpu(text: str, info: ValidationInfo) -> str:
    with as_value_error():
        load_device(beside(_folder(info), text))
    return text


def _there(text: str, info: ValidationInfo) -> str:
    path = _folder(info) / text
    if _FUNCTION.fullmatch(text) is None and not path.exists():
        raise ValueError(f"there is no file or folder {path}; correct the path")
    return text


def _folder(info: ValidationInfo) -> Path:
    return info.context if isinstance(info.context, Path) else Path()


Engine = Annotated[Text, AfterValidator(_engine)]
GpuName = Annotated[Text, AfterValidator(_gpu)]
Source = Annotated[Text, AfterValidator(_there)]


class ProjectOptions(RunOptions):
    """What ``placer optimize`` takes; null is its default. Paths are from the file's folder."""

    engine: Engine | None = described("engine")
    gpu: GpuName | None = described("gpu")
    data: Source | None = described("data")
    eval_data: Source | None = described("eval_data")
    device: Text | None = described("device")
    devices: Devices | None = described("devices")
    storage: Text | None = described("storage")
    study: Text | None = described("study")
    output: Text | None = described("output")
    export: Export | None = described("export")


class Project(ProjectOptions):
    """A project file: options, and profiles that set some of them otherwise."""

    model: Source | None = Field(
        default=None, description="The model that the options are for, from the file's folder."
    )
    profiles: dict[Annotated[str, Field(pattern=_NAME)], ProjectOptions] = Field(
        default={},
        description="Options by name, for --profile: a target (engine, GPU) or an effort.",
    )


def read_project(path: Path) -> Project:
    """Read the project file at ``path``.

    Raises InputError, with file, line and field, for whatever is wrong in it.
    """
    text = read_text(path, "a project file", "yaml_bytes")
    return parse_text(text, str(path), Project, context=path.parent)


def keywords_of(project: Project, path: Path, profiles: Sequence[str]) -> dict[str, Any]:
    """The options of ``project`` as ``placer.optimize`` takes them, by their keywords.

    Of ``profiles`` a later one counts before an earlier one, and each before what stands outside;
    null brings the default back. Raises InputError for a profile that ``path`` does not have.
    """
    given: dict[str, Any] = {}
    for options in (project, *(_profile(project, path, name) for name in profiles)):
        set_here = options.model_fields_set - {"model", "profiles"}
        given.update({name: getattr(options, name) for name in set_here})
    folder = path.parent
    return {name: _value(name, value, folder) for name, value in given.items() if value is not None}


def unsafe_field(given: Mapping[str, Any], folder: Path) -> str | None:
    """Which of the options that a project in ``folder`` has wants it to be trusted, if any does.

    Those are options that run code, connect to a database or write outside ``folder``. ``given``:
    as ``keywords_of`` returns them.
    """
    return next((name for name, value in given.items() if _is_unsafe(name, value, folder)), None)


def _is_unsafe(name: str, value: Any, folder: Path) -> bool:
    if name in ("data", "eval_data"):
        return _FUNCTION.fullmatch(value) is not None
    if name == "gates":
        return any(Gate.parse(text).metric not in METRICS for text in value)
    if name == "output":
        return not value.resolve().is_relative_to(folder.resolve())
    return name in _UNSAFE


def _profile(project: Project, path: Path, name: str) -> ProjectOptions:
    if name not in project.profiles:
        raise InputError(f"{path}: {unknown('profile', name, project.profiles)}")
    return project.profiles[name]


def _value(name: str, value: Any, folder: Path) -> Any:
    if name == "shapes":
        return dict(parse_shape_range(f"{key}={text}") for key, text in value.items())
    if name == "timeout":
        return parse_duration(value)
    if name in ("warm_starts", "custom_ops"):
        return [folder / one for one in value]
    if name in ("gpu", "pack"):
        return beside(folder, value)
    if name in _PATHS and _FUNCTION.fullmatch(value) is None:
        return folder / value if name == "output" else str(folder / value)
    return value


def beside(folder: Path, text: str) -> str:
    """The path of ``text`` in ``folder`` if there is such a file or folder, else ``text`` as is."""
    path = folder / text
    return str(path) if path.exists() else text
