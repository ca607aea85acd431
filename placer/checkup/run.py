"""``placer doctor --full``: the suite from start to end, and the document of what it found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from placer.checkup.step import Step
from placer.checkup.subject import RequestedEngine
from placer.checkup.suite import Suite
from placer.common.counts import MOST_THREADS, check_count
from placer.common.files import make_folder, temporary_folder, write_text
from placer.engines.doctor import Diagnosis, diagnose
from placer.engines.isolation import IsolatedEngine

FORMAT = "placer-checkup/1"


@dataclass(frozen=True)
class Checkup:
    """What the suite found of an engine; ``steps`` in order."""

    engine: str
    version: str
    device: str
    clock: str
    pack: str
    machine: Diagnosis
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Whether no step failed; one that was skipped did not."""
        return all(step.verdict != "failed" for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            **{k: getattr(self, k) for k in ("engine", "version", "device", "clock", "pack")},
            "machine": self.machine.to_json(),
            "steps": [asdict(step) for step in self.steps],
        }

    def write(self, path: str | PathLike[str]) -> None:
        """Write it as JSON, to attach to an issue: no model of yours is in it."""
        make_folder(Path(path).parent)
        write_text(Path(path), json.dumps(self.to_json(), indent=2) + "\n")


def check_up(
    engine: str = "auto",
    *,
    threads: int = 1,
    device: str | None = None,
    engine_options: Mapping[str, str] | None = None,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Checkup:
    """Build, run and check a small suite on ``engine``; ``on_step`` is told of each step's end.

    Steps that fail are in the result. Raises InputError for wrong options and RunError if the
    engine cannot run here.
    """
    check_count("threads", threads, 1, MOST_THREADS)
    asked = RequestedEngine(engine, threads, device, engine_options or {})
    made, pack = asked.make()
    steps = []
    try:
        with temporary_folder() as folder:
            for step in Suite(asked, made, pack, Path(folder)).steps():
                steps.append(step)
                on_step(step)
    finally:
        if isinstance(made, IsolatedEngine):
            made.close()
    name = pack.name_and_version
    machine = diagnose()
    return Checkup(made.name, made.version, made.device, made.clock, name, machine, tuple(steps))
