"""The study of a run, with its settings and its proposer."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.accuracy.gates import METRICS, Gate
from placer.common.custom_ops import libraries_held
from placer.common.default_outputs import is_another_file, own_output
from placer.common.user_code import source_fingerprint
from placer.engines.rounds import TIMING
from placer.errors import PlacerError
from placer.model import model_fingerprint
from placer.optimizer.observer import Observer
from placer.optimizer.options.request import Base, Request
from placer.optimizer.setup.task import Schemes, Task
from placer.qdq.bases import parse_base
from placer.results.folder import SUFFIX, OutputFolder
from placer.search.study.storage import holds_studies, kept_attributes, masked, open_storage
from placer.search.study.study import STUDY_NAME, Study
from placer.version import __version__

_MODEL_FILE = "model file"
# Attribute of a study that holds what ``settings_of`` returns.
SETTINGS = "settings"
# Name of the setting that holds ``Task.schemes``.
_SCHEME = "scheme"
# How it tells None, as users read it.
_OWN = "the pack's own"
_OR = " or "
# Raised when trials of earlier versions cannot be gone on with.
STUDY_FORMAT = 3


def settings_of(task: Task) -> dict[str, Any]:
    """What must not change within a study, by the name that the user knows it by."""
    model, request = task.model, task.request
    return {
        "model": model.fingerprint,
        "input shapes": {
            **{name: list(shape) for name, shape in model.input_shapes.items()},
            **{name: shape_range.text for name, shape_range in task.shape_ranges.items()},
        },
        # Before the scheme and the pack, which are others on another engine.
        "engine": f"{task.engine.name} {task.engine.version}, {task.engine.device}",
        # Before the pack, which is another one in another scheme.
        _SCHEME: _OR.join(name or _OWN for name in task.schemes) or None,
        "pack": f"{task.pack.name_and_version} {task.pack.fingerprint}",
        **({} if task.engine.estimated else {"way of timing": TIMING}),
        "calibration": request.calibration,
        # Before the data, which it divides.
        "seed": request.seed,
        "calibration data": f"{task.calibration_data.fingerprint}, {len(task.calibration_data)}",
        "evaluation data": f"{task.evaluation_data.fingerprint}, {len(task.evaluation_data)}",
        "gates": list(task.gate_texts),
        "sampler": request.sampler,
        "objective": request.objective,
        "study format": STUDY_FORMAT,
        "engine options": dict(request.engine_options),
        **_nodes(request),
        **({"fix": dict(request.fix)} if request.fix else {}),
        **({"custom operators": libraries} if (libraries := libraries_held()) else {}),
        **({"overrides": [str(one) for one in o]} if (o := request.overrides) else {}),
        **({} if task.pack.manifest.scheme.weight_range == "full" else {"weight range": "reduced"}),
        **({"ranges": "imported"} if task.model.imported else {}),
        # Other versions may build other candidates; a run of one machine is gone on with.
        **({} if request.storage is None else {"version of placer": __version__}),
        **({"functions": functions} if (functions := _functions(task)) else {}),
        "base": _base(task),
    }


def _nodes(request: Request) -> dict[str, list[str]]:
    """Which nodes may be quantized, as far as the user said so."""
    given = {"exclude": request.exclude, "only": request.only, "force": request.force}
    return {option: sorted(patterns) for option, patterns in given.items() if patterns}


def _base(task: Task) -> str:
    match task.engine.remainder:
        case "kept":
            return "kept"
        case "computed":
            return _OR.join(task.bases) or task.base
        case _:
            return f"{task.base}, {task.request.io_type}"


def bases_begun(settings: object) -> tuple[Base, ...]:
    """The base precisions that a study with these ``settings`` decides between; see ``Task``."""
    base = settings.get("base") if isinstance(settings, Mapping) else None
    names = base.split(_OR) if isinstance(base, str) else []
    return tuple(parse_base(name) for name in names) if len(names) > 1 else ()


def schemes_begun(settings: object) -> Schemes:
    """The schemes that a study with these ``settings`` decides between; see ``Task``."""
    text = settings.get(_SCHEME) if isinstance(settings, Mapping) else None
    names = text.split(_OR) if isinstance(text, str) else []
    return tuple(None if name == _OWN else name for name in names)


def _functions(task: Task) -> dict[str, str]:
    """The user's functions that the study's judgements rest on, and what their files hold."""
    return {text: source_fingerprint(text) for text in functions_of(task.request)}


def functions_of(request: Request) -> list[str]:
    """The user's functions, each as ``module:function``, that ``request`` names; imports none."""
    sources = [text for text in (request.data, request.evaluation_data) if text]
    named = [text for text in sources if not Path(text).exists()]
    gates = [Gate.parse(text) for text in request.gates]
    return sorted({*named, *(gate.metric for gate in gates if gate.metric not in METRICS)})


def earlier_study(task: Task) -> Study | None:
    """The run's study if it exists; a study is made once all that it needs is known to be right.

    Raises InputError if it was made with other settings.
    """
    return None if _kept(task.request, _name(task)) is None else open_study(task)


def study_settings(request: Request) -> Mapping[str, Any] | None:
    """The settings of the study that ``request`` goes on with; None if it begins one."""
    name = request.study
    if request.storage is None:
        name = STUDY_NAME
    elif name is None:
        name = _default_name(request, model_fingerprint(request.model, request.fix))
    kept = (_kept(request, name) or {}).get(SETTINGS)
    return kept if isinstance(kept, Mapping) else None


def keep_model_file(study: Study, request: Request) -> None:
    """Keep with ``study`` which file it is about, for ``apart_from_others``."""
    study.set_attribute(_MODEL_FILE, str(request.model.resolve()))


def apart_from_others(request: Request, observer: Observer) -> Request:
    """``request`` with a folder of its own if the default one is about a file of the same name.

    A study of a file that is no more, as of one that was moved, is gone on with.
    """
    if request.output is not None or request.storage is not None:
        return request
    other = (_kept(request, STUDY_NAME) or {}).get(_MODEL_FILE)
    if not isinstance(other, str) or not is_another_file(Path(other), request.model):
        return request
    output = own_output(request.model, SUFFIX)
    observer.stage(f"{request.output_folder} is about {other}; these results go to {output}")
    return replace(request, output=output)


def dashboard_command(request: Request) -> str:
    """What opens Optuna's dashboard on the run's study, without the storage's password."""
    url = request.storage or OutputFolder(request.output_folder).study_url
    return f"optuna-dashboard {shlex.quote(masked(url))}"


def _name(task: Task) -> str:
    request = task.request
    if request.storage is None:
        return STUDY_NAME
    return request.study or _default_name(request, task.model.fingerprint)


def _default_name(request: Request, fingerprint: str) -> str:
    """Name of a study in a storage, where the user gives none."""
    return f"{request.model.stem} {fingerprint[:12]}"


def _kept(request: Request, name: str) -> Mapping[str, Any] | None:
    """What is kept with the study ``name`` where ``request`` keeps it; None without it."""
    url = request.storage or OutputFolder(request.output_folder).study_url
    if not holds_studies(url):
        return None
    return kept_attributes(open_storage(url, shared=request.storage is not None), name)


@contextmanager
def _gone_if_not_made(path: Path) -> Iterator[None]:
    """Remove a database that was to be made and could not be, as on a full disk."""
    existed = path.exists()
    try:
        yield
    except PlacerError:
        if not existed:
            for file in path.parent.glob(f"{glob.escape(path.name)}*"):
                file.unlink(missing_ok=True)
        raise


def open_study(task: Task) -> Study:
    """Open or create the run's study: in its output folder, or in the storage."""
    request, settings = task.request, settings_of(task)
    if request.storage is None:
        folder = OutputFolder(request.output_folder)
        with _gone_if_not_made(folder.study):
            storage = open_storage(folder.study_url, shared=False)
            place = str(request.output_folder)
            return Study(storage, _name(task), task.space, settings, place=place)
    storage = open_storage(request.storage, shared=True)
    name = _name(task)
    return Study(storage, name, task.space, settings, shared=True, place=f"study '{name}'")
