"""Trials on every device of a process until nothing is left to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock, Thread

from placer.common.blas import one_blas_thread
from placer.common.collector import few_full_collections
from placer.common.interrupts import dealt_with, noted
from placer.errors import InputError, PlacerError
from placer.optimizer.device_search import Device, DeviceSearch, OnTrial
from placer.optimizer.observer import Observer
from placer.optimizer.setup.chosen_engine import engine_for
from placer.optimizer.setup.study_settings import settings_of
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.optimizer.trials.search_time import KeptForTheEnd, SearchTime
from placer.results.parts import StopReason
from placer.search.records import TrialRecord, by_latency
from placer.search.study.study import Study

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Searched:
    """How a search ended, and the wall time that it took.

    ``trials_s``: of its trials, by device; ``noise_s``: of noise that was measured beside them.
    """

    stopped: StopReason
    seconds: float
    trials_s: float
    noise_s: float

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by what they were spent on."""
        rest = max(0.0, self.seconds - self.trials_s - self.noise_s)
        return {"trials": self.trials_s, "noise": self.noise_s, "proposals": rest}


def devices_of(task: Task, setup: TrialSetup, observer: Observer) -> list[Device]:
    """``task`` and ``setup``, and the same on each other of its devices.

    Raises InputError or RunError, which name the device, if one cannot be used.
    """
    others = task.request.devices[1:]
    if not others:
        return [Device(task, setup)]
    observer.stage(f"starting devices {', '.join(others)}")
    with ThreadPoolExecutor(len(others)) as pool:
        # Libraries of custom operators belong to the context, which threads do not inherit.
        started = [
            pool.submit(copy_context().run, _other_device, task, setup, device, observer)
            for device in others
        ]
        return [Device(task, setup), *(one.result() for one in started)]


def search(
    devices: Sequence[Device],
    study: Study,
    observer: Observer,
    interrupted: str,
    on_trial: OnTrial | None = None,
    kept_s: KeptForTheEnd = lambda _: 0.0,
) -> Searched:
    """Run trials on all ``devices`` at once until nothing is left to do.

    ``interrupted``: what the user is told on Ctrl-C; another one raises KeyboardInterrupt. Each
    device has its own proposer, as proposers are functions of the study's trials. ``kept_s``:
    seconds of the time limit that trials leave to what follows them, by all trials so far.
    """
    task, earlier, start = devices[0].task, study.records(), time.monotonic()
    spent = SearchTime(task.limit.end, kept_s, earlier)
    stop, telling = Event(), Lock()
    records: list[TrialRecord] = []

    def tell(record: TrialRecord) -> None:
        with telling:
            records.append(record)
            spent.add(record)
            log.info("trial %d (%s): %s", record.number, record.kind, _in_words(record))
            observer.trial(record)
            if on_trial is not None:
                on_trial(record)

    def on_probe(done: int) -> None:
        with telling:
            observer.probe(done)

    searches = [DeviceSearch(device, study, earlier, spent, on_probe) for device in devices]
    fastest = next(iter(by_latency(earlier)), None)
    best = None if fastest is None else fastest.ratio
    observer.search(task.budget, len(earlier), best, task.engine.estimated, task.request.objective)
    with one_blas_thread(), few_full_collections():
        runs = [partial(one.run, tell, stop) for one in searches]
        stopped = _run_all(runs, stop, lambda: observer.warn(interrupted))
    return Searched(
        stopped,
        seconds=time.monotonic() - start,
        trials_s=sum(record.seconds for record in records) / len(devices),
        noise_s=spent.noise_s,
    )


def _in_words(record: TrialRecord) -> str:
    """What came of a trial, for the log."""
    if record.ratio is None:
        return str(record.error or record.ruled_out)
    return f"{record.ratio:.3f} of the float model's latency"


def _run_all(
    runs: Sequence[Callable[[], StopReason]], stop: Event, on_interrupt: Callable[[], None]
) -> StopReason:
    """Do all ``runs`` at once; ``stop`` ends them."""
    if len(runs) == 1:
        with noted(stop):
            try:
                stopped: StopReason = runs[0]()
            except KeyboardInterrupt:
                stopped = "interrupted"
        if stopped == "interrupted":
            dealt_with()
            on_interrupt()
        return stopped
    futures = [_start(run) for run in runs]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
        stop.set()  # After an exception; else all have ended.
    except KeyboardInterrupt:
        dealt_with()
        on_interrupt()
        stop.set()
    wait(futures)
    return min((future.result() for future in futures), key=_REASONS.index)


# The most telling first: a thread that finds nothing to do says less than one that was stopped.
_REASONS: tuple[StopReason, ...] = ("interrupted", "timeout", "budget", "converged")


def _start(run: Callable[[], StopReason]) -> Future[StopReason]:
    """Run in a thread that does not keep the process alive, unlike those of an executor."""
    future: Future[StopReason] = Future()
    context = copy_context()

    def target() -> None:
        try:
            future.set_result(context.run(run))
        except BaseException as error:  # Raised where the result is asked for.
            future.set_exception(error)

    Thread(target=target, daemon=True).start()
    return future


def _other_device(task: Task, setup: TrialSetup, device: str, observer: Observer) -> Device:
    try:
        engine, _, _ = engine_for(task.request, device, task.bases, task.schemes)
        other = replace(task, engine=engine)
        if settings_of(other) != settings_of(task):
            raise InputError(
                f"it is {engine.device}, and the first device {task.engine.device}, so their "
                "latencies do not compare; leave it out of `devices`"
            )
        return Device(other, set_up(other, observer, setup.calibrated))
    except PlacerError as error:
        raise type(error)(f"device {device}: {error}") from error
