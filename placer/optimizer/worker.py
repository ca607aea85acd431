"""Working on a study: what every process does, and every device of one, until nothing is left."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage
from pydantic import TypeAdapter, ValidationError

from placer.common.names import unknown
from placer.errors import InputError
from placer.optimizer.device_search import Device
from placer.optimizer.observer import Observer
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.end_costs import first_trial_s
from placer.optimizer.search_loop import search
from placer.optimizer.setup.calibrated import Calibrated, activations_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import (
    SETTINGS,
    bases_begun,
    functions_of,
    schemes_begun,
    settings_of,
)
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.quantization.overrides import Override
from placer.results.parts import StopReason
from placer.search.records import TrialRecord
from placer.search.study.storage import (
    holds_studies,
    kept_attributes,
    masked,
    open_storage,
    study_names,
)
from placer.search.study.study import Study

# What a study keeps for its workers, by the names of its attributes.
_REQUEST, _CALIBRATION = "request", "calibration"
# Between two looks for a study that has not begun.
_POLL_S = 2.0
# Parts of a request that concern one machine or one run; a storage's URL may hold a password.
_OWN = {"output", "storage", "study", "device", "devices", "cache_dir", "warm_starts", "custom_ops"}
_REQUESTS = TypeAdapter(Request)
# Request itself does not import it, so that help is shown without what it brings in.
_REQUESTS.rebuild(_types_namespace={"Override": Override})


@dataclass(frozen=True)
class WorkDone:
    """What a worker did: its own trials, those in the study, and why it stopped."""

    own: tuple[TrialRecord, ...]
    trials: int
    stopped: StopReason


def trial_setup_of(task: Task, study: Study | None, observer: Observer) -> TrialSetup:
    """The setup of a run, with the calibration that ``study`` keeps if trials may rest on it.

    Raises InputError if another version of placer kept it.
    """
    kept = None if study is None else study.attribute(_CALIBRATION, dict[str, Any])
    if study is None or kept is None:
        return set_up(task, observer, first_trial_s=first_trial_s)
    try:
        calibrated = Calibrated.from_json(kept)
        if not calibrated.ranges.keys() >= set(activations_of(task)):
            raise ValueError("a tensor has no range")
    except (ValueError, KeyError) as error:  # Pydantic's are ValueErrors.
        raise _made_by_another_version(study.name) from error
    if calibrated.part.shortened and not study.shared and not study.records():
        # No trial rests on it: an earlier run had no time for more.
        return set_up(task, observer, first_trial_s=first_trial_s)
    return set_up(task, observer, calibrated)


def keep_for_workers(study: Study, task: Task, setup: TrialSetup) -> None:
    """Keep with ``study`` what other workers, and later runs, need to make the same candidates."""
    study.set_attribute(_CALIBRATION, setup.calibrated.to_json())
    if study.shared:
        study.set_attribute(_REQUEST, request_json(task.request))


def request_json(request: Request) -> dict[str, Any]:
    """``request`` without what concerns this machine or this run alone; paths are absolute."""
    portable = replace(
        request,
        model=request.model.absolute(),
        data=_absolute(request.data),
        evaluation_data=_absolute(request.evaluation_data),
        pack=_absolute(request.pack),
        gpu=_absolute(request.gpu),
    )
    plain: dict[str, Any] = _REQUESTS.dump_python(portable, mode="json", exclude=_OWN)
    return plain


def work(
    url: str,
    name: str,
    changes: Mapping[str, Any],
    observer: Observer,
    functions: Collection[str] = (),
    wait_s: float = 0.0,
) -> WorkDone:
    """Work on the study ``name`` in the storage at ``url`` until nothing is left to do.

    ``wait_s``: how long to wait for it to begin. ``changes``: fields of the study's ``Request``
    that are others on this machine. ``functions``: the user's functions, each as
    ``module:function``, that may run here besides those in ``changes``: whoever writes to the
    storage must not choose what this machine runs. Raises InputError if there is no such study, if
    it names other functions, or if this machine would measure something else: another model, pack,
    engine or data.
    """
    storage, kept = _begun(url, name, wait_s, observer)
    request = replace(_request_of(kept[_REQUEST], name), storage=url, study=name, **changes)
    _refuse_others(request, {*functions, *map(str, changes.values())}, name)
    begun = kept.get(SETTINGS)
    task = prepare(request, observer, bases_begun(begun), schemes_begun(begun))
    study = Study(
        storage,
        name,
        task.space,
        settings_of(task),
        shared=True,
        place=f"study '{name}'",
        fix="give this worker what the study was made with",
    )
    devices = [Device(task, trial_setup_of(task, study, observer))]
    records: list[TrialRecord] = []
    done = search(devices, study, observer, "interrupted: its trial is given back", records.append)
    return WorkDone(tuple(records), len(study.records()), done.stopped)


def _begun(
    url: str, name: str, wait_s: float, observer: Observer
) -> tuple[BaseStorage, Mapping[str, Any]]:
    """The storage at ``url`` and what it keeps of the study ``name``, once that has begun.

    Raises InputError if that has not come about after ``wait_s`` seconds.
    """
    until, told = time.monotonic() + wait_s, False
    while True:
        missing = f"{masked(url)} holds no studies"
        if holds_studies(url):
            storage = open_storage(url, shared=True)
            kept = kept_attributes(storage, name)
            if kept is not None and _REQUEST in kept:
                return storage, kept
            missing = f"{masked(url)}: {unknown('study', name, study_names(storage))}"
        left = until - time.monotonic()
        if left <= 0:
            fix = "begin the study with placer optimize --storage"
            waited = f" after {wait_s:.0f} s" if wait_s else ", or give `wait` to wait for it"
            raise InputError(f"{missing}; {fix}{waited}")
        if not told:
            observer.stage(f"{missing}; waiting {wait_s:.0f} s at most for study '{name}' to begin")
            told = True
        time.sleep(min(_POLL_S, left))


def _refuse_others(request: Request, named: Collection[str], name: str) -> None:
    """Raise InputError if ``request``, as kept with a study, has a function not ``named``."""
    for function in functions_of(request):
        if function not in named:
            raise InputError(
                f"study '{name}' names the function '{function}', which this worker's command line "
                f"does not; if you trust it, add `function` {function}"
            )


def _request_of(kept: Any, name: str) -> Request:
    try:
        return _REQUESTS.validate_python(kept)
    except ValidationError as error:
        raise _made_by_another_version(name) from error


def _made_by_another_version(name: str) -> InputError:
    return InputError(
        f"study '{name}' was made by another version of placer; install that one, or begin another "
        "study: choose another `output`, or another `study` in a shared storage"
    )


def _absolute(text: str | None) -> str | None:
    """``text`` as an absolute path if it is the path of something, not e.g. a built-in pack."""
    if text is None or not ("/" in text or Path(text).suffix) or not Path(text).exists():
        return text
    return str(Path(text).absolute())
