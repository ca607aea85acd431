"""result.json: everything a run found, as typed data with a published JSON Schema."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from placer.files import write_text
from placer.scheme import Scheme

StopReason = Literal["budget", "timeout", "exhausted", "interrupted"]
Verdict = Literal["faster", "no difference", "gate not met"]


class Part(BaseModel):
    """Base of all parts: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(Part):
    """The float model that was optimized."""

    path: str
    fingerprint: str
    input_shapes: dict[str, list[int]]
    notes: list[str] = Field(description="what normalising changed")


class EnginePart(Part):
    """What compiled, ran and measured the candidates."""

    name: str
    version: str
    device: str
    clock: str = Field(description="what latencies count")
    estimated: bool = Field(description="latencies are estimates; nothing was measured")


class PackPart(Part):
    """The rule pack that proposed the layouts."""

    name: str
    version: str
    fingerprint: str


class CalibrationPart(Part):
    """Where the ranges come from."""

    data: str | None = Field(description="null: seeded synthetic inputs")
    samples: int
    method: str
    requested_method: str
    sqnr_by_method: dict[str, float | None] = Field(
        description="dB of the pack's default on calibration data, where methods were compared"
    )


class EvaluationPart(Part):
    """What the gates were evaluated on."""

    data: str | None
    samples: int
    labels: bool


class BudgetPart(Part):
    """The budget and what ended the search."""

    trials: int | None
    timeout_s: float | None
    stopped: StopReason


class GatePart(Part):
    """A gate and its worst value; a null value was not finite (infinite SQNR passes)."""

    gate: str
    value: float | None
    where: str
    passed: bool


class LatencyPart(Part):
    """Latency in milliseconds: median, 10th and 90th percentile of ``rounds`` measurements."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    rounds: int


class TrialPart(Part):
    """One trial: a placement that was built, gated and measured."""

    number: int
    kind: str = Field(description="where the placement came from: a seed's name or a sampler")
    placement: str
    state: Literal["complete", "gate missed", "failed"]
    latency_ms: float | None = Field(description="the median")
    latency: LatencyPart | None
    ratio_to_float: float | None = Field(description="median of paired ratios")
    ratio_interval: list[float] | None = Field(description="95% bootstrap interval")
    gates: list[GatePart]
    error: str | None
    seconds: float


class BaselinePart(Part):
    """The float model on the same engine, measured in the same rounds as the best candidate."""

    latency: LatencyPart
    metrics: dict[str, float | None]


class BestPart(Part):
    """The result; speed-up is float latency over its latency in interleaved rounds."""

    placement: str
    trial: int | None = Field(description="null if the float model is the result")
    quantized_edges: int
    latency: LatencyPart
    speedup: float
    speedup_interval: list[float] = Field(description="95% bootstrap interval")
    gates: list[GatePart]
    metrics: dict[str, float | None]


class Result(Part):
    """Everything a run of ``placer optimize`` found."""

    format: Literal["placer-result/1"] = "placer-result/1"
    verdict: Verdict
    model: ModelPart
    engine: EnginePart
    pack: PackPart
    scheme: Scheme
    calibrated: bool
    calibration: CalibrationPart
    evaluation: EvaluationPart
    gates: list[str]
    seed: int
    budget: BudgetPart
    sites: int
    decisions: int = Field(description="groups of sites that were decided together")
    trials: list[TrialPart]
    baseline: BaselinePart | None
    best: BestPart | None
    warnings: list[str]
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        """Write ``path`` atomically."""
        write_text(path, self.model_dump_json(indent=2) + "\n")


def result_schema() -> dict[str, Any]:
    """JSON Schema of result.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Result.model_json_schema()}


def versions() -> Mapping[str, str]:
    """Versions of everything that shapes a result."""
    packages = ("placer", "onnx", "onnxruntime", "optuna", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
