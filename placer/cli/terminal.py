"""The console that commands print to."""

from __future__ import annotations

import os

from rich.console import Console

# More columns than any table has.
_UNLIMITED = 100_000


def output_console(width: int = _UNLIMITED) -> Console:
    """Standard output, as wide as the terminal or ``COLUMNS``; elsewhere as ``width`` says.

    By default no line is wrapped there: programs that read the output, such as grep, then find
    names in one piece. Nothing gets a colour that the text does not name.
    """
    console = Console(highlight=False)
    is_set = console.is_terminal or "COLUMNS" in os.environ
    return console if is_set else Console(width=width, highlight=False)
