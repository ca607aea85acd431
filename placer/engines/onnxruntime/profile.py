"""Times of kernels from ONNX Runtime's profiler, over a few runs of a session."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf
from pathlib import Path

import numpy as np
from pydantic import BaseModel, TypeAdapter

from placer.common.ort_session import ORT_ERRORS, Session, one_line
from placer.engines.base import Tensors
from placer.errors import RunError

# A profile takes this many runs, fewer of a slow model: as many as fit into the time.
_WARM_UP = 2
_RUNS = (3, 15)
_SECONDS = 1.0
_RUN = "model_run"  # An event that covers a whole run.
_KERNEL_TIME = "_kernel_time"  # How the profile ends the names of nodes.


class _Details(BaseModel):
    provider: str = ""
    op_name: str = ""


class Event(BaseModel):
    """What is read of an event of a profile; ``dur`` and its start ``ts`` in microseconds."""

    name: str
    dur: float
    ts: float = 0.0
    args: _Details = _Details()


# A profile has a megabyte for every thousand events, of which this keeps what is needed.
_EVENTS = TypeAdapter(list[Event])


def run_session(session: Session, inputs: Tensors) -> list[np.ndarray]:
    """All outputs, without a limit of time; RunError if ONNX Runtime fails."""
    try:
        values: list[np.ndarray] = session.own.run(None, dict(inputs))
    except ORT_ERRORS as error:
        raise RunError(f"ONNX Runtime failed to run the model: {one_line(error)}") from error
    return values


def profile(session: Session, inputs: Tensors) -> Mapping[str, Sequence[Event]]:
    """Events of some runs after a warm-up, by the name of the node that ran.

    Empty if the profile cannot be read: ONNX Runtime 1.23 writes quotes in names as they are.
    """
    try:
        runs = _runs(session, inputs)
    finally:
        file = Path(session.own.end_profiling())
    by_node = _by_node(_events(file))
    return {name: of_node[-runs:] for name, of_node in by_node.items()}


def profile_in_turn(
    session: Session, inputs: Sequence[Tensors]
) -> list[Mapping[str, Sequence[Event]]]:
    """As ``profile``, for each of ``inputs``, on which different branches of an If may run."""
    try:
        counts = [_WARM_UP + _runs(session, one) for one in inputs]
    finally:
        file = Path(session.own.end_profiling())
    events = sorted(_events(file), key=lambda event: event.ts)
    starts = [event.ts for event in events if event.name == _RUN]
    profiles: list[Mapping[str, Sequence[Event]]] = []
    for first, count in zip(accumulate(counts, initial=0), counts, strict=False):
        begin = starts[first + _WARM_UP] if first + _WARM_UP < len(starts) else inf
        end = starts[first + count] if first + count < len(starts) else inf
        profiles.append(_by_node([event for event in events if begin <= event.ts < end]))
    return profiles


def _events(file: Path) -> list[Event]:
    try:
        return _EVENTS.validate_json(file.read_bytes())
    except ValueError:
        return []


def _by_node(events: Sequence[Event]) -> dict[str, list[Event]]:
    events_of: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.name.endswith(_KERNEL_TIME):
            events_of[event.name.removesuffix(_KERNEL_TIME)].append(event)
    return events_of


def _runs(session: Session, inputs: Tensors) -> int:
    """Run a few times after a warm-up; return how many runs came after it."""
    for _ in range(_WARM_UP):
        run_session(session, inputs)
    least, most = _RUNS
    start, runs = time.perf_counter(), 0
    while runs < least or (runs < most and time.perf_counter() - start < _SECONDS):
        run_session(session, inputs)
        runs += 1
    return runs


def median_us(events: Sequence[Event]) -> float:
    """Median duration in microseconds."""
    return float(np.median([event.dur for event in events]))
