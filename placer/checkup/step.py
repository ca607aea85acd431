"""One step of the suite, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from placer.common.files import writing_temporary_files
from placer.errors import PlacerError

Verdict = Literal["passed", "failed", "skipped"]


class Skipped(Exception):
    """What the engine or this machine cannot do; the message is the reason."""


class Failed(Exception):
    """What did not come out as it must."""


@dataclass(frozen=True)
class Outcome:
    """What a step has to say; ``details`` go to the file only."""

    said: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """What was tried, how it ended and what is to be said of it; ``seconds`` of wall time."""

    name: str
    verdict: Verdict
    said: str
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)


def attempt(name: str, do: Callable[[], Outcome]) -> Step:
    """Do a step; whatever goes wrong in it is how it ended, and the suite goes on."""
    start = time.perf_counter()
    verdict: Verdict
    details: Mapping[str, Any] = {}
    try:
        with writing_temporary_files():
            outcome = do()
        verdict, said, details = "passed", outcome.said, outcome.details
    except Skipped as reason:
        verdict, said = "skipped", str(reason)
    except (Failed, PlacerError) as error:
        verdict, said = "failed", str(error)
    except Exception as error:  # An engine's own exceptions are what the suite is to find.
        verdict, said = "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"
    return Step(name, verdict, said, time.perf_counter() - start, details)
