"""Fits without some networks each, in processes of their own: each takes seconds of a core.

What goes to and from a process are pickles on its standard input and output: the networks, then the
names that each fit leaves out and its estimates. It ends when its input does, so with this process.

Not those of a ProcessPoolExecutor: started anew they would run a user's script again that has no
main guard, and forked they would have the locks of this process's other threads. A process for each
fit would import for as long as it fits.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from types import TracebackType

from placer.common.child_process import importing_alike
from placer.common.cores import usable_cores
from placer.fitting.builds import Network
from placer.fitting.estimates import Estimates, estimates_without

# Each holds all networks: 100 to 300 MB.
_MOST = 8
# Builds below which starting a process takes longer than it saves.
_WORTHWHILE = 400


def all_estimates_without(
    networks: Sequence[Network], folds: Sequence[Collection[str]]
) -> Iterator[Estimates]:
    """``estimates_without`` each of ``folds``, in their order, as many at once as there are cores.

    The same in one process as in several. What a process fails at, as where memory is short, is
    done in this one.
    """
    count = _process_count(networks, folds)
    with ThreadPoolExecutor(max(count, 1)) as pool, ExitStack() as stack:
        idle: SimpleQueue[_Process] = SimpleQueue()
        pickled = pickle.dumps(list(networks), pickle.HIGHEST_PROTOCOL) if count else b""
        for _ in range(count):
            idle.put(stack.enter_context(_Process(pickled)))

        def of_a_process(fold: Collection[str]) -> Estimates | None:
            process = idle.get()
            try:
                return process.estimates_without(fold)
            finally:
                idle.put(process)

        found = pool.map(of_a_process, folds) if count else iter([None] * len(folds))
        for fold, estimates in zip(folds, found, strict=True):
            yield estimates_without(networks, fold) if estimates is None else estimates


def _process_count(networks: Sequence[Network], folds: Sequence[Collection[str]]) -> int:
    """How many processes to start; 0: none is worth it."""
    builds = sum(len(network.builds) for network in networks)
    count = min(usable_cores(), len(folds), _MOST)
    return count if count > 1 and builds >= _WORTHWHILE else 0


class _Process:
    """One process; it is killed at the end of the block."""

    def __init__(self, networks: bytes) -> None:
        """``networks``: a pickle of them."""
        self._networks = networks
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=importing_alike(),
            start_new_session=True,  # Out of reach of Ctrl-C, on which this process kills it.
        )

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        with suppress(OSError):  # What was not sent yet.
            self._process.communicate()

    def estimates_without(self, names: Collection[str]) -> Estimates | None:
        """See ``placer.fitting.estimates``; None where the process has ended."""
        networks, self._networks = self._networks, b""  # It has them from now on.
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None and answers is not None
        try:
            sent.write(networks)
            sent.write(pickle.dumps(set(names), pickle.HIGHEST_PROTOCOL))
            sent.flush()
            estimates: Estimates = pickle.load(answers)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            return None
        return estimates


def main() -> None:
    """The process: answer until there is nothing to read any more."""
    with suppress(EOFError, BrokenPipeError):
        networks: list[Network] = pickle.load(sys.stdin.buffer)
        while True:
            estimates = estimates_without(networks, pickle.load(sys.stdin.buffer))
            pickle.dump(estimates, sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
