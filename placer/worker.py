"""Working on a study: what every process does, and every device of one, until nothing is left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from pydantic import TypeAdapter, ValidationError

from placer.bench import Bench, Calibrated, set_up
from placer.errors import InputError, PlacerError
from placer.search.records import TrialRecord
from placer.search.study import (
    StopReason,
    Study,
    kept_attributes,
    masked,
    open_storage,
    study_names,
)
from placer.searching import (
    ProfiledLayers,
    keep_layers,
    layer_costs,
    make_landscape,
    make_proposer,
    remembered_layers,
    settings_of,
)
from placer.task import Observer, Request, Task, engine_for, prepare
from placer.trials import TrialRunner

log = logging.getLogger(__name__)

OnTrial = Callable[[TrialRecord], None]
# What a study keeps for its workers, by the names of its attributes.
_REQUEST, _CALIBRATION = "request", "calibration"
# Parts of a request that concern one machine or one run; a storage's URL may hold a password.
_OWN = {"output", "storage", "study", "device", "devices", "cache_dir", "warm_starts"}
_REQUESTS = TypeAdapter(Request)


@dataclass(frozen=True, eq=False)
class Station:
    """One device and what its trials are made with; ``task.engine`` runs on it."""

    task: Task
    bench: Bench


@dataclass(frozen=True)
class WorkDone:
    """What a worker did: its own trials, those in the study, and why it stopped."""

    own: tuple[TrialRecord, ...]
    trials: int
    stopped: StopReason


def bench_of(task: Task, study: Study | None, observer: Observer) -> Bench:
    """The bench of a run, with the calibration that ``study`` keeps if there is one.

    Raises InputError if another version of placer kept it.
    """
    kept = None if study is None else study.attribute(_CALIBRATION)
    if study is None or kept is None:
        return set_up(task, observer)
    try:
        calibrated = Calibrated.from_json(kept)
    except (ValidationError, KeyError, TypeError) as error:
        raise _made_by_another_version(study.name) from error
    return set_up(task, observer, calibrated)


def keep_for_workers(study: Study, task: Task, bench: Bench) -> None:
    """Keep with ``study`` what other workers, and later runs, need to make the same candidates."""
    study.set_attribute(_CALIBRATION, bench.calibrated.to_json())
    if study.shared:
        study.set_attribute(_REQUEST, request_json(task.request))


def request_json(request: Request) -> dict[str, Any]:
    """``request`` without what concerns this machine or this run alone; paths are absolute."""
    found = replace(
        request,
        model=request.model.absolute(),
        data=_absolute(request.data),
        evaluation_data=_absolute(request.evaluation_data),
        pack=_absolute(request.pack),
        gpu=_absolute(request.gpu),
    )
    plain: dict[str, Any] = _REQUESTS.dump_python(found, mode="json", exclude=_OWN)
    return plain


def work(url: str, name: str, changes: Mapping[str, Any], observer: Observer) -> WorkDone:
    """Work on the study ``name`` in the storage at ``url`` until nothing is left to do.

    ``changes``: fields of the study's ``Request`` that are others on this machine. Raises
    InputError if there is no such study, or if this machine would measure something else: another
    model, pack, engine or data.
    """
    storage = open_storage(url, shared=True)
    kept = kept_attributes(storage, name)
    if kept is None or _REQUEST not in kept:
        known = ", ".join(f"'{found}'" for found in study_names(storage)) or "none"
        raise InputError(
            f"{masked(url)} has no study '{name}' to work on (it has: {known}); "
            "start placer optimize with this --storage first"
        )
    request = replace(_request_of(kept[_REQUEST], name), storage=url, study=name, **changes)
    task = prepare(request, observer)
    study = Study(
        storage,
        name,
        task.space,
        settings_of(task),
        shared=True,
        place=f"study '{name}'",
        fix="give this worker what the study was made with",
    )
    stations = [Station(task, bench_of(task, study, observer))]
    own: list[TrialRecord] = []
    stopped = search(stations, study, observer, "interrupted: its trial is given back", own.append)
    return WorkDone(tuple(own), len(study.records()), stopped)


def stations_of(task: Task, bench: Bench, observer: Observer) -> list[Station]:
    """``task`` and ``bench``, and the same on each other device of --devices.

    Raises InputError or RunError, which name the device, if one cannot be used.
    """
    others = task.request.devices[1:]
    if not others:
        return [Station(task, bench)]
    observer.stage(f"starting devices {', '.join(others)}")
    with ThreadPoolExecutor(len(others)) as pool:
        found = pool.map(lambda device: _station(task, bench, device, observer), others)
        return [Station(task, bench), *found]


def search(
    stations: Sequence[Station],
    study: Study,
    observer: Observer,
    interrupted: str,
    on_trial: OnTrial | None = None,
) -> StopReason:
    """Run trials on all ``stations`` at once until nothing is left to do.

    ``interrupted``: what the user is told on Ctrl-C; another one raises KeyboardInterrupt. Each
    station has its own proposer, as proposers are functions of the study's trials.
    """
    task, earlier = stations[0].task, study.records()
    deadline = None if task.request.timeout is None else time.monotonic() + task.request.timeout
    stop, telling = Event(), Lock()

    def tell(record: TrialRecord) -> None:
        with telling:
            log.info("trial %d %s %s", record.number, record.kind, record.ratio or record.error)
            observer.trial(record)
            if on_trial is not None:
                on_trial(record)

    work_of = [_work(station, study, earlier, deadline, tell, stop) for station in stations]
    observer.search(task.budget, len(earlier), task.engine.estimated)
    if len(work_of) == 1:
        try:
            return work_of[0]()
        except KeyboardInterrupt:
            observer.warn(interrupted)
            return "interrupted"
    futures = [_start(run) for run in work_of]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
        stop.set()  # After an exception; else all have ended.
    except KeyboardInterrupt:
        observer.warn(interrupted)
        stop.set()
    wait(futures)
    return min((future.result() for future in futures), key=_REASONS.index)


# The most telling first: a thread that finds nothing to do says less than one that was stopped.
_REASONS: tuple[StopReason, ...] = ("interrupted", "timeout", "budget", "converged")


def _work(
    station: Station,
    study: Study,
    earlier: Sequence[TrialRecord],
    deadline: float | None,
    tell: OnTrial,
    stop: Event,
) -> Callable[[], StopReason]:
    """What one station does; all that its devices share is read before it begins."""
    task, bench = station.task, station.bench
    landscape, costs = make_landscape(task), layer_costs(task)
    remembered = remembered_layers(task, bench, study, costs)
    proposer = make_proposer(task, bench, study, landscape, remembered)
    runner = TrialRunner(
        bench.candidates,
        bench.evaluator,
        bench.baseline,
        task.inputs,
        task.preset.rounds,
        task.sites,
        bench.rivals,
        layers=ProfiledLayers(landscape, task.inputs, earlier),
        earlier=earlier,
        judge_all=task.request.front is not None,
    )
    own: list[TrialRecord] = []

    def on_trial(record: TrialRecord) -> None:
        own.append(record)
        tell(record)

    def run() -> StopReason:
        try:
            return study.run(
                proposer,
                runner,
                budget=task.budget,
                deadline=deadline,
                on_trial=on_trial,
                stop=stop,
            )
        finally:
            keep_layers(costs, landscape, own)

    return run


def _start(run: Callable[[], StopReason]) -> Future[StopReason]:
    """Run in a thread that does not keep the process alive, unlike those of an executor."""
    future: Future[StopReason] = Future()

    def target() -> None:
        try:
            future.set_result(run())
        except BaseException as error:  # Raised where the result is asked for.
            future.set_exception(error)

    Thread(target=target, daemon=True).start()
    return future


def _station(task: Task, bench: Bench, device: str, observer: Observer) -> Station:
    try:
        engine, _, _ = engine_for(task.request, device)
        other = replace(task, engine=engine)
        if settings_of(other) != settings_of(task):
            raise InputError(
                f"it is {engine.device}, and the first device {task.engine.device}, so their "
                "latencies do not compare; leave it out of --devices"
            )
        return Station(other, set_up(other, observer, bench.calibrated))
    except PlacerError as error:
        raise type(error)(f"device {device}: {error}") from error


def _request_of(kept: Any, name: str) -> Request:
    try:
        return _REQUESTS.validate_python(kept)
    except ValidationError as error:
        raise _made_by_another_version(name) from error


def _made_by_another_version(name: str) -> InputError:
    return InputError(
        f"study '{name}' was made by another version of placer; install that one, or begin another "
        "study"
    )


def _absolute(text: str | None) -> str | None:
    """``text`` as an absolute path if it is the path of something, not e.g. a built-in pack."""
    if text is None or not ("/" in text or Path(text).suffix) or not Path(text).exists():
        return text
    return str(Path(text).absolute())
