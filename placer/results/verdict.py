"""What a run found, in a word."""

from __future__ import annotations

from enum import Enum


class Verdict(str, Enum):
    """What came of a run; the values are those of result.json."""

    # A candidate meets the gates and is faster than the float model outside the noise.
    FASTER = "faster"
    # A candidate meets the gates and is estimated to be faster, by less than the estimate's error.
    CANNOT_TELL = "cannot tell"
    # Some meet the gates, none is faster, so the float model is the result.
    NO_DIFFERENCE = "no difference"
    # Rounds that disagree too much, even when taken again: nothing can be said.
    INCONCLUSIVE = "inconclusive"
    # No quantized candidate meets the gates.
    GATE_NOT_MET = "gate not met"

    def __str__(self) -> str:
        """The word itself, whatever the version of Python would print."""
        return self.value
