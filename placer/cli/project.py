"""What a project file adds to a command line: options that were not typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placer.errors import InputError
from placer.optimizer.options.request import options
from placer.results.folder import SUFFIX

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.optimizer.options.project import Project

FILE = "placer.yaml"
ProjectFile = Annotated[
    Path | None,
    typer.Option(
        help="Project file: options that are not given here.",
        show_default="placer.yaml beside the model",
        rich_help_panel="Model and data",
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        help="Profile of the project file; any number of times, later ones override earlier ones.",
        rich_help_panel="Model and data",
    ),
]


@dataclass(frozen=True)
class ModelAndOptions:
    """The model and the options of a run, by keyword; ``origin``: where they come from."""

    model: Path
    given: Mapping[str, Any]
    origin: str = ""


def with_project(
    context: typer.Context,
    model: Path | None,
    typed: Mapping[str, Any],
    file: Path | None,
    profiles: Sequence[str],
) -> ModelAndOptions:
    """``typed`` with the options of the project ``file`` that were not typed.

    ``file``: by default ``placer.yaml`` beside ``model``, without a model in the current folder.
    One that was found so and names another model is left alone. ``profiles``: those asked for.
    Raises InputError for a project that is wrong, for profiles without one, if no model is named,
    and for one that was found in another folder, perhaps come with the model, and runs code.
    """
    if context.obj and model is not None:  # Of `placer onboard`: the manifest has all options.
        return ModelAndOptions(model, typed)
    path = file or (Path() if model is None else model.parent) / FILE
    if file is None and not path.is_file():
        return _without_project(path, model, typed, profiles)
    # Imported only now, for the same reason.
    from placer.optimizer.options.project import keywords_of, read_project, unsafe_field  # noqa: PLC0415

    project = read_project(path)
    if file is None and not _is_for(project, path, model):
        if profiles:
            raise InputError(f"`profile` {profiles[0]}: {path} is for {project.model}")
        return ModelAndOptions(
            model or Path(), typed, f"{path} is for {project.model} and not read"
        )
    if model is None and project.model is None:
        raise InputError(f"{path}: field 'model' is missing; set it, or name a model")
    chosen = model or path.parent / str(project.model)
    kept = keywords_of(project, path, profiles)
    found_elsewhere = file is None and path.parent.resolve() != Path.cwd()
    if found_elsewhere and (field := unsafe_field(kept, path.parent)):
        raise InputError(
            f"{path}: field '{field}' can run code or reach out of the folder, and nobody named "
            f"this file, which lies beside the model; look at it, then give `project` {path}"
        )
    if profiles and "output" not in kept:
        kept["output"] = Path(f"{'.'.join((chosen.stem, *profiles))}{SUFFIX}")
    unset = {keyword: value for keyword, value in kept.items() if not _was_typed(context, keyword)}
    _drop_other_device(context, unset)
    named = f", profile {', '.join(profiles)}" if profiles else ""
    return ModelAndOptions(chosen, {**typed, **unset}, f"options of {path}{named}")


def _without_project(
    path: Path, model: Path | None, typed: Mapping[str, Any], profiles: Sequence[str]
) -> ModelAndOptions:
    """What was typed alone, since nothing is at ``path``; raises InputError if it needs that."""
    if model is None:
        raise InputError(f"no model is given, and there is no {FILE} here; name a model")
    if profiles:
        raise InputError(f"`profile` {profiles[0]}: there is no {path}; give `project`")
    return ModelAndOptions(model, typed)


def _is_for(project: Project, path: Path, model: Path | None) -> bool:
    if model is None or project.model is None:
        return True
    return (path.parent / project.model).resolve() == model.resolve()


def _was_typed(context: typer.Context, keyword: str) -> bool:
    parameter = options()[keyword].flag.removeprefix("--").replace("-", "_")
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _drop_other_device(context: typer.Context, unset: dict[str, Any]) -> None:
    """Of `device` and `devices`, what was typed replaces what the project says of either."""
    for one, other in (("device", "devices"), ("devices", "device")):
        if _was_typed(context, one):
            unset.pop(other, None)
