"""Runs within limits of time and memory, and what becomes of one that does not end."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from placer.common.run_limits import Runner


def test_a_call_returns_and_raises_as_if_it_was_made_here():
    runner = Runner()
    assert runner.run(lambda: 7, 10, pytest.fail) == 7
    with pytest.raises(ZeroDivisionError):
        runner.run(lambda: 1 // 0, 10, pytest.fail)
    threads = [runner.run(threading.current_thread, 10, pytest.fail) for _ in range(3)]
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_a_call_that_takes_too_long_is_told_to_stop():
    told = threading.Event()

    def until_told() -> None:
        while not told.is_set():
            sum(range(1000))
        raise RuntimeError("stopped")

    start = time.monotonic()
    with pytest.raises(TimeoutError) as raised:
        Runner().run(until_told, 0.2, told.set)
    assert time.monotonic() - start >= 0.2
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_call_that_does_not_stop_is_left_behind_and_the_next_one_is_made():
    end, runner = threading.Event(), Runner()

    def deaf() -> None:
        while not end.is_set():
            sum(range(1000))

    try:
        with pytest.raises(TimeoutError):
            runner.run(deaf, 0.2, lambda: None)
        assert runner.run(lambda: 7, 10, pytest.fail) == 7
    finally:
        end.set()


MORE_THAN_HEADROOM = """
import numpy as np
from placer.common.run_limits import headroom

try:
    with headroom(64 << 20):
        np.ones(128 << 20, np.uint8)
except MemoryError:
    print("refused, then", np.ones(128 << 20, np.uint8).all())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="not Linux")
def test_headroom_is_what_a_process_may_take_and_ends_with_the_run():
    """In a process of its own: threads of other tests lift the limit, or give memory back."""
    ended = subprocess.run(
        [sys.executable, "-c", MORE_THAN_HEADROOM], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "refused, then True\n"
