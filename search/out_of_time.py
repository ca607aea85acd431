"""What ends proposals, and measurements beside the trials, where time is limited."""

from __future__ import annotations


class OutOfTime(Exception):
    """What was asked for is not known, and no time is left to find out."""
