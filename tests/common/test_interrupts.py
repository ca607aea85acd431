"""Ctrl-C in the middle of what must not be cut short.

Each case is a process of its own: an interrupt that comes through ends the process it is sent to,
which must never be the one that runs the tests.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGINNING = """
import signal
from threading import Event, Thread
from placer.common.interrupts import dealt_with, held_back, leave_to_parent, noted, settle
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def printed(program: str) -> list[str]:
    """What a Python program prints, line by line."""
    code = BEGINNING + textwrap.dedent(program)
    child = [sys.executable, "-c", code]
    ended = subprocess.run(child, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_an_interrupt_waits_for_the_end_of_the_block():
    lines = printed(
        """
        try:
            with held_back():
                signal.raise_signal(signal.SIGINT)
                print("after the signal")
        except KeyboardInterrupt:
            print("interrupted")
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("as before")
        """
    )
    assert lines == ["after the signal", "interrupted", "as before"]


def test_blocks_nest():
    lines = printed(
        """
        try:
            with held_back():
                with held_back():
                    signal.raise_signal(signal.SIGINT)
                print("after the inner block")
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert lines == ["after the inner block", "interrupted"]


def test_an_error_in_the_block_is_kept_as_the_context_of_the_interrupt():
    lines = printed(
        """
        try:
            with held_back():
                signal.raise_signal(signal.SIGINT)
                raise ValueError("in the block")
        except KeyboardInterrupt as interrupt:
            print(repr(interrupt.__context__))
        """
    )
    assert lines == ["ValueError('in the block')"]


def test_other_threads_and_other_handlers_are_left_alone():
    lines = printed(
        """
        def work():
            with held_back():
                print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

        thread = Thread(target=work)
        thread.start()
        thread.join()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with held_back():
            print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
        """
    )
    assert lines == ["True", "True"]


def test_an_interrupt_that_python_drops_is_noted():
    lines = printed(
        """
        import sys
        import weakref

        sys.unraisablehook = lambda lost: print("dropped", lost.exc_type.__name__)
        pressed, gone = Event(), {1}
        with noted(pressed):
            called = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGINT))
            del gone
            print("goes on, noted:", pressed.is_set())
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """
    )
    assert lines == ["dropped KeyboardInterrupt", "goes on, noted: True", "True"]


def test_an_interrupt_that_is_noted_waits_for_the_end_of_a_block_inside():
    lines = printed(
        """
        pressed = Event()
        try:
            with noted(pressed), held_back():
                signal.raise_signal(signal.SIGINT)
                print("noted:", pressed.is_set())
        except KeyboardInterrupt:
            print("interrupted, noted:", pressed.is_set())
        """
    )
    assert lines == ["noted: False", "interrupted, noted: True"]


def test_more_of_them_at_once_are_one():
    """Until something dealt with it; the second print would be cut short else."""
    lines = printed(
        """
        settle()
        for _ in range(2):
            try:
                with noted(Event()), held_back():
                    signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                print("interrupted")
            dealt_with()
        """
    )
    assert lines == ["interrupted", "interrupted"]


def test_an_interrupt_that_python_drops_is_raised_again_in_a_program():
    """As while garbage is collected; other errors there are still reported."""
    lines = printed(
        """
        import sys
        import time
        import weakref

        class Callback:
            def __init__(self, act):
                self.reference = weakref.ref(gone, lambda _: act())

        sys.unraisablehook = lambda lost: print("dropped", lost.exc_type.__name__)
        settle()
        gone = {1}
        callbacks = [Callback(lambda: signal.raise_signal(signal.SIGINT)), Callback(lambda: 1 / 0)]
        del gone
        print("goes on")
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert lines == ["dropped ZeroDivisionError", "goes on", "interrupted"]


def test_one_that_was_dropped_but_noted_is_not_raised_again():
    lines = printed(
        """
        import time
        import weakref

        settle()
        pressed, gone = Event(), {1}
        with noted(pressed):
            called = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGINT))
            del gone
        dealt_with()
        time.sleep(0.2)
        print("noted:", pressed.is_set())
        """
    )
    assert lines == ["noted: True"]


def test_a_program_takes_sigterm_as_ctrl_c():
    lines = printed(
        """
        settle()
        try:
            with held_back():
                signal.raise_signal(signal.SIGTERM)
                print("after the signal")
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert lines == ["after the signal", "interrupted"]


def test_where_ctrl_c_is_ignored_sigterm_counts_all_the_same():
    """As in what a script starts with `&`: not to be ended by Ctrl-C, but by a scheduler."""
    lines = printed(
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        settle()
        signal.raise_signal(signal.SIGINT)
        pressed = Event()
        for _ in range(2):
            try:
                with noted(pressed), held_back():
                    signal.raise_signal(signal.SIGTERM)
                    print("after the signal")
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGTERM)
                print("interrupted, noted:", pressed.is_set())
            dealt_with()
        print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
        """
    )
    assert lines == [*["after the signal", "interrupted, noted: True"] * 2, "True"]


def test_a_sigterm_that_python_drops_is_raised_again():
    lines = printed(
        """
        import time
        import weakref

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        settle()
        gone = {1}
        called = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGTERM))
        del gone
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert lines == ["interrupted"]


@pytest.mark.parametrize(
    "prepared",
    [
        "settle()",
        "signal.signal(signal.SIGINT, signal.SIG_IGN); settle()",
        "leave_to_parent()",
    ],
)
def test_sigterm_ends_what_a_process_starts(prepared: str):
    """Forked children, as those that load data, and programs, as a vendor's compiler."""
    lines = printed(
        f"""
        import os
        import subprocess
        import time

        {prepared}
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        program = subprocess.Popen(["sleep", "20"])
        program.terminate()
        print(program.wait())
        """
    )
    assert lines == ["-15", "-15"]


def test_what_is_left_to_the_parent_is_ignored():
    lines = printed(
        """
        leave_to_parent()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        print("goes on")
        """
    )
    assert lines == ["goes on"]
