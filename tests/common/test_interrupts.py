"""Ctrl-C in the middle of what must not be cut short."""

import signal
from threading import Thread

import pytest

from placer.common.interrupts import held_back


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        done.append("after the signal")
    assert done == ["after the signal"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_blocks_nest():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            signal.raise_signal(signal.SIGINT)
        done.append("after the inner block")
    assert done == ["after the inner block"]


def test_an_error_in_the_block_is_kept_as_the_context_of_the_interrupt():
    with pytest.raises(KeyboardInterrupt) as raised, held_back():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("in the block")
    assert isinstance(raised.value.__context__, ValueError)


def test_other_threads_and_other_handlers_are_left_alone():
    ran = []

    def work() -> None:
        with held_back():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ignored)
