"""Where models are optimized: in processes of this machine, or on Dask workers (``dask``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from placer.onboarding.describe import Described, describe
from placer.onboarding.manifest_fields import Options
from placer.onboarding.planning import Planned
from placer.onboarding.process import Outcome, start


class Begun(Protocol):
    """A model that is being optimized. ``device``: of the manifest's devices, or the worker."""

    @property
    def device(self) -> str | None:
        """Where it runs, as far as it is known."""

    def poll(self) -> Outcome | None:
        """How it ended, None while it runs."""

    def interrupt(self) -> None:
        """Ask it to end with the best so far."""

    def kill(self) -> None:
        """End it at once."""


class Executor(Protocol):
    """Optimizes models somewhere."""

    def describe(self, options: Options, folder: Path) -> Described:
        """The engine and the pack that ``options`` choose there; see ``describe.describe``."""

    def has_room(self, running: int) -> bool:
        """Whether another model may begin while ``running`` are."""

    def start(self, planned: Planned, folder: Path) -> Begun:
        """Begin with ``planned``; ``folder``: the manifest's. Only called where there is room."""

    def ended(self, begun: Begun) -> None:
        """Take back the place of one that has ended."""


class Local:
    """Processes of this machine; ``slots``: a device for each at a time, None for no device."""

    def __init__(self, slots: Sequence[str | None]) -> None:
        self._first = slots[0]
        self._free = list(slots)
        self._slot_of: dict[int, str | None] = {}

    def describe(self, options: Options, folder: Path) -> Described:
        """Asked in a process of its own."""
        return describe(options, self._first, folder)

    def has_room(self, running: int) -> bool:  # noqa: ARG002 - the free slots tell
        """Whether a slot is free."""
        return bool(self._free)

    def start(self, planned: Planned, folder: Path) -> Begun:
        """Start a process on the next free slot."""
        slot = self._free.pop(0)
        begun = start(planned, slot, folder)
        self._slot_of[id(begun)] = slot
        return begun

    def ended(self, begun: Begun) -> None:
        """Its slot is free again."""
        self._free.append(self._slot_of.pop(id(begun)))
