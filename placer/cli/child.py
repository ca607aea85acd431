"""``python -m placer.cli.child ARGUMENTS``: placer's command line, until its parent dies.

The parent holds the other end of standard input. When it goes, however it goes, so does this
process: two processes on one study would disturb each other once the parent is started again.
Its exit codes are placer's, but for ``NothingToQuantizeError.child_code``.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread

from placer.cli.app import program


def _end_with_parent() -> None:
    # Not through sys.stdin: a thread that is within it when Python ends makes Python abort.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    program(as_child=True)
