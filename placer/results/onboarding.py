"""How models were onboarded: onboarding.json of each, and summary.json of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from placer.common.files import write_text
from placer.results.folder import OutputFolder
from placer.results.parts import GatePart, Part
from placer.results.verdict import Verdict

State = Literal[
    "waiting",
    "running",
    "faster",
    "cannot tell",
    "float kept",
    "nothing to quantize",
    "gate not met",
    "bad input",
    "failed",
    "crashed",
    "timed out",
    "interrupted",
]
STATE_OF: Mapping[Verdict, State] = {
    Verdict.FASTER: "faster",
    Verdict.CANNOT_TELL: "cannot tell",
    Verdict.NO_DIFFERENCE: "float kept",
    Verdict.INCONCLUSIVE: "failed",
    Verdict.GATE_NOT_MET: "gate not met",
}
MISSED = STATE_OF[Verdict.GATE_NOT_MET]
NOTHING: State = "nothing to quantize"
DONE: tuple[State, ...] = (
    *(STATE_OF[v] for v in (Verdict.FASTER, Verdict.CANNOT_TELL, Verdict.NO_DIFFERENCE)),
    NOTHING,
)
# What ends before there is a result.json, whatever is tried again.
WITHOUT_RESULT: tuple[State, ...] = (NOTHING, "bad input")
# What nothing but other inputs changes; all others are run again.
SETTLED: tuple[State, ...] = (*DONE, MISSED, "bad input")


class Record(Part):
    """What is kept with a model's results: what they were made from and how it went.

    ``inputs``: everything that decides the result by the name that the user knows it by; files as
    hashes of their content.
    """

    format: Literal["placer-onboarding/1"] = "placer-onboarding/1"
    state: State
    reason: str
    inputs: dict[str, str]
    seconds: float

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """The record in ``folder``; None if there is none that this version can read."""
        try:
            return cls.model_validate_json(OutputFolder(folder).onboarding.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, folder: Path) -> None:
        """Write it to ``folder`` atomically."""
        write_text(OutputFolder(folder).onboarding, self.model_dump_json(indent=2) + "\n")


class ModelSummary(Part):
    """How one model was onboarded; latencies are null where there is no result."""

    name: str
    model: str = Field(description="path from the manifest's folder")
    state: State
    ran: bool = Field(description="false: nothing changed, and what an earlier run found stands")
    why: str = Field(description="why it was run or not, e.g. model changed")
    reason: str = Field(description="what the state rests on, in one sentence")
    folder: str = Field(description="of its results and logs, from that of summary.json")
    result: str | None = Field(description="path of result.json, from the folder of summary.json")
    engine: str | None
    pack: str | None
    device: str | None = Field(
        description="of the manifest's devices, or the Dask worker, the one that it ran on"
    )
    target: str | None = Field(default=None, description="of the manifest's, what it is for")
    of: str | None = Field(default=None, description="the model's name without the target")
    estimated: bool | None = Field(description="latencies are estimates; nothing was measured")
    float_ms: float | None
    best_ms: float | None
    float_per_second: float | None = Field(
        default=None, description="inferences per second; null unless throughput is the objective"
    )
    best_per_second: float | None = Field(default=None, description="as before, of the result")
    speedup: float | None
    speedup_interval: list[float] | None = Field(
        description="95% bootstrap interval; of estimates, 80% of their errors"
    )
    gates: list[GatePart]
    trials: int | None
    seconds: float | None = Field(description="of its last run")

    @property
    def state_text(self) -> str:
        """The state, and whether it is an earlier run's."""
        if self.ran or self.state not in SETTLED:
            return self.state
        return f"{self.state}, up to date" if self.state in DONE else f"{self.state}, unchanged"


class Summary(Part):
    """summary.json: how all models of a manifest were onboarded."""

    format: Literal["placer-summary/1"] = "placer-summary/1"
    manifest: str
    exit_code: Literal[0, 1, 3] | None = Field(description="null as long as models are waiting")
    started: str = Field(description="ISO 8601, UTC")
    seconds: float
    versions: dict[str, str]
    warnings: list[str]
    models: list[ModelSummary]

    def write(self, path: Path) -> None:
        """Write ``path`` atomically."""
        write_text(path, self.model_dump_json(indent=2) + "\n")


def exit_code_of(states: Iterable[State]) -> Literal[0, 1, 3]:
    """1 if a model should have a result and has none, else 3 if one misses its gates, else 0."""
    distinct = set(states)
    if distinct - {*DONE, MISSED}:
        return 1
    return 3 if MISSED in distinct else 0
