"""The console that commands print to."""

from __future__ import annotations

import os

from rich.console import Console

# More columns than any table has.
_UNLIMITED = 100_000


def output_console() -> Console:
    """Standard output, as wide as the terminal or ``COLUMNS``; elsewhere no line is wrapped.

    Programs that read the output, such as grep, then find names in one piece.
    """
    console = Console()
    is_set = console.is_terminal or "COLUMNS" in os.environ
    return console if is_set else Console(width=_UNLIMITED)
