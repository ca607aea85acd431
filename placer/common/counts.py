"""Bounds of the counts that users give."""

from __future__ import annotations

from placer.errors import InputError

# More threads than any machine has cores only cost memory, and so do rounds: an interval of a
# ratio is no narrower after hours.
MOST_THREADS = 1024
MOST_ROUNDS = 100_000


def check_count(keyword: str, count: int, least: int, most: int | None = None) -> None:
    """Raise InputError if ``count``, given as the option ``keyword``, is not within the bounds."""
    if count < least:
        raise InputError(f"`{keyword}` is {count}; give {least} or more")
    if most is not None and count > most:
        raise InputError(f"`{keyword}` is {count}; give {most} or fewer")
