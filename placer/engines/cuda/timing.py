"""Time work on the GPU: CUDA graphs, events around batches of launches, interleaved rounds."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.engines.cuda.api import CudaError, call, l2_bytes, runtime
from placer.engines.cuda.memory import DeviceBuffer, Event, Resource, Stream
from placer.engines.orders import balanced_orders
from placer.errors import RunError

log = logging.getLogger(__name__)

# A GPU that has nothing to do after the first event waits for the host to queue the batch, 10 to
# 100 us on an H100. With a launch before it the GPU is busy meanwhile. Where a launch
# takes longer than this, the wait is at most some permille, and one launch more would be a cost.
LEAD_BELOW_S = 20e-3

Launch = Callable[[Stream], None]  # Puts the work to time on the stream, without waiting.


@dataclass(frozen=True)
class Effort:
    """How to time: seconds of warm-up, least seconds between two events, cold or warm L2 cache.

    With ``flush_l2`` every launch starts with its data out of the L2 cache, as it would be after
    other work; the flush itself is not timed.
    """

    warm_up_s: float = 0.2
    interval_s: float = 2e-3
    flush_l2: bool = False
    graphs: bool = True


class Graph(Resource):
    """Work captured from a stream, which launches as one."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def launch(self, stream: Stream) -> None:
        """Put the graph on ``stream``."""
        call("cudaGraphLaunch", self._executable, stream.handle)

    def close(self) -> None:
        """Destroy the graph."""
        executable, self._executable = self._executable, None
        if executable is not None:
            call("cudaGraphExecDestroy", executable)


def capture(launch: Launch, stream: Stream) -> Graph | None:
    """Capture ``launch`` as a graph; None if it does something that cannot be captured."""
    mode = runtime().cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    call("cudaStreamBeginCapture", stream.handle, mode)
    try:
        launch(stream)
    except RuntimeError:  # Bindings raise it, and RunError is none.
        _end_capture(stream)
        return None
    except RunError:
        _end_capture(stream)
        return None
    graph = _end_capture(stream)
    if graph is None:
        return None
    try:
        return Graph(call("cudaGraphInstantiate", graph, 0))
    except CudaError:
        return None
    finally:
        call("cudaGraphDestroy", graph)


def _end_capture(stream: Stream) -> Any:
    try:
        return call("cudaStreamEndCapture", stream.handle)
    except CudaError:
        runtime().cudaGetLastError()  # A failed capture is no error of the calls to come.
        return None


@dataclass(frozen=True, eq=False)
class Timing:
    """``seconds`` per launch, shape (rounds, launches); ``captured``: which ran as a graph."""

    seconds: np.ndarray
    captured: tuple[bool, ...]


def time_launches(launches: Sequence[Launch], rounds: int, effort: Effort | None = None) -> Timing:
    """Time ``launches`` in turn, ``rounds`` times, after a warm-up.

    Each figure is the mean over a batch of launches between two events, long enough that the
    events do not matter; the orders are balanced. Before a batch of launches shorter than
    ``LEAD_BELOW_S`` goes one that is not timed. Raises CudaError if work fails.
    """
    effort = effort or Effort()
    with ExitStack() as stack:
        stream = stack.enter_context(Stream())
        flush = _flusher(stack, stream) if effort.flush_l2 else None
        prepared = [_prepare(launch, stream, effort, stack) for launch in launches]
        batches = [_batch(launch, stream, effort) for launch, _ in prepared]
        timer = _Timer(stream, stack, flush)
        seconds = np.empty((rounds, len(prepared)))
        for row, order in enumerate(balanced_orders(rounds, len(prepared))):
            for column in order:
                seconds[row, column] = timer.time(prepared[column][0], batches[column])
    return Timing(seconds, tuple(captured for _, captured in prepared))


def _prepare(
    launch: Launch, stream: Stream, effort: Effort, stack: ExitStack
) -> tuple[Launch, bool]:
    launch(stream)  # What allocates or tunes on first use cannot be captured.
    stream.synchronize()
    graph = _captured(launch, stream) if effort.graphs else None
    if graph is None:
        return launch, False
    return stack.enter_context(graph).launch, True


def _captured(launch: Launch, stream: Stream) -> Graph | None:
    """The graph of ``launch`` once it has run; None, with a warning, if it cannot be had or run."""
    try:
        graph = capture(launch, stream)
    except CudaError as error:
        log.warning("no CUDA graph, timing launch by launch: %s", error)
        return None
    if graph is None:
        return None
    try:
        graph.launch(stream)
        stream.synchronize()
    except CudaError as error:
        graph.close()
        runtime().cudaGetLastError()  # Else the launches to come would report it.
        log.warning("the CUDA graph does not run, timing launch by launch: %s", error)
        return None
    return graph


@dataclass(frozen=True)
class _Batch:
    """``count`` launches between two events; ``lead``: one more before them, which is not timed."""

    count: int
    lead: bool


def _batch(launch: Launch, stream: Stream, effort: Effort) -> _Batch:
    """Warm up; return a batch that takes ``effort.interval_s``."""
    start, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < effort.warm_up_s or not done:
        for _ in range(10):
            launch(stream)
        stream.synchronize()
        done += 10
    each = elapsed / done
    return _Batch(max(1, math.ceil(effort.interval_s / each)), each < LEAD_BELOW_S)


def _flusher(stack: ExitStack, stream: Stream) -> Callable[[], None]:
    """Writes more than the L2 cache holds, which throws everything else out of it."""
    size = 2 * l2_bytes()
    buffer = stack.enter_context(DeviceBuffer(size))
    return lambda: stream.fill(buffer.address, 0, size)


class _Timer:
    def __init__(self, stream: Stream, stack: ExitStack, flush: Callable[[], None] | None) -> None:
        self._stream = stream
        self._begin = stack.enter_context(Event())
        self._end = stack.enter_context(Event())
        self._flush = flush

    def time(self, launch: Launch, batch: _Batch) -> float:
        """Mean seconds of the launches of ``batch``."""
        count = batch.count
        if self._flush is None:
            if batch.lead:
                launch(self._stream)
            return self._between(launch, count) / count
        total = 0.0
        for _ in range(count):
            self._flush()
            total += self._between(launch, 1)
        return total / count

    def _between(self, launch: Launch, count: int) -> float:
        self._begin.record(self._stream)
        for _ in range(count):
            launch(self._stream)
        self._end.record(self._stream)
        self._stream.synchronize()
        return self._end.seconds_since(self._begin)
