"""Models optimized on Dask workers, one a worker thread: ``placer onboard --executor dask://...``.

Dask finds the workers, hands them models and hands those of a lost worker to another one, where the
study goes on. What a worker does is what this machine would do (``process.start``), in the same
folders: all machines share a file system. See https://distributed.dask.org.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from placer.errors import InputError, PlacerError, RunError
from placer.onboarding.dask_address import SCHEME, is_address
from placer.onboarding.describe import Described, describe
from placer.onboarding.manifest_fields import Options
from placer.onboarding.planning import Planned
from placer.onboarding.process import Outcome, start
from placer.results.onboarding import Record
from placer.results.result import Result
from placer.version import __version__

if TYPE_CHECKING:
    from distributed import Client, Future

Answer = TypeVar("Answer")

_CONNECT_S = 10
_WORKERS_S = 5.0  # How long the number of workers is taken to stay.
_POLL_S = 0.2
_ASK_S = 1.0  # Between questions to the scheduler whether to stop.


class OnDask:
    """Workers of the scheduler at ``address``, ``dask://HOST:PORT``; at most ``most`` at a time.

    Raises InputError for an address that is none, RunError without Dask, a scheduler or a worker.
    """

    def __init__(self, address: str, most: int | None = None) -> None:
        if not is_address(address):
            raise InputError(f"`executor` is '{address}'; give {SCHEME}HOST:PORT of a scheduler")
        try:
            from distributed import Client  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise RunError("Dask is not installed; pip install distributed") from error
        try:
            self._client: Client = Client(
                f"tcp://{address.removeprefix(SCHEME)}", timeout=_CONNECT_S, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise RunError(f"no Dask scheduler answers at {address}: {error}") from error
        self._address, self._most = address, most
        self._run = f"placer-{uuid.uuid4().hex[:12]}"
        self._threads, self._asked = 0, 0.0
        try:
            self._check_workers()
        except PlacerError:
            self.close()
            raise

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()

    def describe(self, options: Options, folder: Path) -> Described:
        """What every worker says.

        Raises RunError if they differ, as their latencies would not compare, and for a worker that
        does not have ``folder``.
        """
        (first, answer), *others = sorted(self._answers(_describe, options, folder).items())
        for worker, other in others:
            if other != answer:
                raise RunError(
                    f"worker {first} has {answer.engine}, and worker {worker} {other.engine}; give "
                    "machines that are alike to one onboarding"
                )
        return answer

    def has_room(self, running: int) -> bool:
        """Whether a worker thread is free; workers may come and go.

        Raises RunError if the scheduler does not answer any more.
        """
        if time.monotonic() - self._asked > _WORKERS_S:
            with self._reached():
                self._threads = sum(self._client.nthreads().values())
            self._asked = time.monotonic()
        return running < min(self._threads, self._most or self._threads)

    def start(self, planned: Planned, folder: Path) -> Submitted:
        """Submit it."""
        future = self._client.submit(
            _optimize, planned, folder, self._run, key=f"{planned.job.name}-{uuid.uuid4().hex}"
        )
        return Submitted(planned, future, self._client, self._run)

    def ended(self, begun: object) -> None:
        """Nothing: the scheduler knows."""

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """RunError if the scheduler does not answer any more."""
        try:
            yield
        except OSError as error:
            raise RunError(
                f"the Dask scheduler at {self._address} was lost; start it again, then the same "
                "command goes on with what is not done"
            ) from error

    def _check_workers(self) -> None:
        for worker, version in sorted(self._answers(_version).items()):
            if version != __version__:
                raise RunError(
                    f"worker {worker} has placer {version}, here it is {__version__}; install the "
                    "same"
                )

    def _answers(self, function: Callable[..., Answer], *arguments: object) -> dict[str, Answer]:
        """What each worker returns; RunError for one that cannot, and if there is none."""
        with self._reached():
            answers = self._client.run(function, *arguments, on_error="return")
        for worker, error in sorted(answers.items()):
            if isinstance(error, PlacerError):
                raise RunError(f"worker {worker}: {error}") from error
            if isinstance(error, Exception) and not isinstance(error, OSError):
                raise RunError(
                    f"worker {worker} cannot run placer: {type(error).__name__}: {error}; install "
                    "the same placer there"
                ) from error
        # One that is lost meanwhile is not among them.
        answered = {w: one for w, one in answers.items() if not isinstance(one, OSError)}
        if not answered:
            raise RunError(
                f"the scheduler at {self._address} has no worker; start one, e.g. dask worker"
            )
        return answered


@dataclass(frozen=True)
class Submitted:
    """A model that a worker has, or that waits for one. ``run``: begins the names of its events."""

    planned: Planned
    future: Future
    client: Client
    run: str
    device: str | None = None

    def poll(self) -> Outcome | None:
        """How it ended; its result is read from the shared folder."""
        match self.future.status:
            case "pending":
                return None
            case "finished":
                ended: _Ended = self.future.result()
                if not ended.has_result:
                    return ended.outcome
                return replace(ended.outcome, result=Result.read(self.planned.folder))
            case "error":
                return Outcome("crashed", f"Dask gave it up: {self.future.exception()}")
            case "cancelled" if self.client.status == "running":
                return Outcome("interrupted", "interrupted; the same command goes on with it")
            case _:
                return Outcome(
                    "interrupted", "the Dask scheduler was lost; the same command goes on with it"
                )

    def interrupt(self) -> None:
        """Ask the worker, through the scheduler."""
        self._set(_STOP)

    def kill(self) -> None:
        """As before, and do not wait for it: perhaps no worker is left that has it."""
        self._set(_KILL)
        with suppress(OSError):
            self.future.cancel()

    def _set(self, name: str) -> None:
        from distributed import Event  # noqa: PLC0415 - an extra

        with suppress(OSError):  # The scheduler is lost, as ``poll`` will tell.
            Event(f"{self.run}-{name}", client=self.client).set()


_STOP, _KILL = "stop", "kill"


@dataclass(frozen=True)
class _Ended:
    """What a worker sends back; a result is in the folder."""

    outcome: Outcome
    has_result: bool


def _describe(options: Options, folder: Path) -> Described:
    if not folder.is_dir():
        raise RunError(f"{folder} is not there; give all machines the same file system")
    return describe(options, None, folder)


def _version() -> str:
    return __version__


def _optimize(planned: Planned, folder: Path, run: str) -> _Ended:
    """Optimize ``planned`` on this worker. What it starts dies with the worker."""
    from distributed import Event, get_worker  # noqa: PLC0415 - an extra

    where = f"on {get_worker().address}"
    if Record.read(planned.folder) is None:
        reason = f"{planned.folder} is not there {where}; give all machines the same file system"
        return _Ended(Outcome("failed", reason), has_result=False)
    process = start(planned, None, folder)
    events = {Event(f"{run}-{_STOP}"): process.interrupt, Event(f"{run}-{_KILL}"): process.kill}
    asked = time.monotonic()
    while (outcome := process.poll()) is None:
        time.sleep(_POLL_S)
        if time.monotonic() - asked > _ASK_S:
            asked = time.monotonic()
            for event in [event for event in events if event.is_set()]:
                events.pop(event)()
    return _Ended(replace(outcome, result=None, where=get_worker().address), bool(outcome.result))
