"""The console that commands print to, and tables for it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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


def table_of(*columns: str, title: str = "", caption: str = "") -> Table:
    """A table without rows, in which long texts go on below; no text is taken for markup."""
    table = Table(title=escape(title), caption=escape(caption))
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def table_of_counts(title: str, counts: Iterable[tuple[str, int]]) -> Table:
    """What was counted, a row each."""
    table = table_of("what", "number", title=title)
    table.columns[1].justify = "right"
    for what, number in counts:
        table.add_row(what, str(number))
    return table
