"""Raised where time is up, to end proposals and measurements beside the trials."""

from __future__ import annotations


class OutOfTime(Exception):
    """What was asked for is not known, and no time is left to find out."""
