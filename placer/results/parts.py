"""The parts of result.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

StopReason = Literal["budget", "timeout", "converged", "interrupted"]
TrialState = Literal["complete", "gate missed", "ruled out", "failed"]

_Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
_INTERVAL = "95% bootstrap interval; of estimates, what 80% of them stay within"
_LATENCY = "null where the objective is throughput: with requests in flight none is measured"
_FORMATS = "quantized edges by their type, where sites could choose one; else empty"
_BASE = "what is not quantized is computed in; null where the search did not decide on it"
_MEMORY = (
    "bytes of device memory: weights, activations, inputs and outputs; null if the engine does not "
    "tell"
)


class Part(BaseModel):
    """Base of all parts: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(Part):
    """The float model that was optimized."""

    path: str
    fingerprint: str
    input_shapes: dict[str, list[int]]
    shape_ranges: dict[str, list[list[int]]] = Field(
        default={}, description="minimum, optimum and maximum, where the engine is built for more"
    )
    notes: list[str] = Field(description="what normalising changed")


class EnginePart(Part):
    """What compiled, ran and measured the candidates."""

    name: str
    version: str
    device: str
    clock: str = Field(description="what latencies count, or how inferences per second are")
    estimated: bool = Field(description="latencies are estimates; nothing was measured")
    built_plans: bool = Field(
        default=False,
        description="latencies are estimates, but of layers that the engine's builder has made",
    )

    @property
    def predicts(self) -> bool:
        """Whether the plans that it wrote are predictions."""
        return self.estimated and not self.built_plans


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
        description="worst dB by method, where methods were compared: of the pack's default, or a "
        "part of it that destroys no output, on calibration data that the ranges do not rest on"
    )
    tensors_by_method: dict[str, int] = Field(
        default={}, description="where the method is `mixed`: how many tensors have each"
    )
    pinned: list[str] = Field(
        default=[], description="what overrides pin, a sentence for each tensor"
    )
    held_back_sqnr: list[float | None] | None = Field(
        default=None,
        description="worst dB of the mixture and of the best single method, on calibration data "
        "that neither rests on; null: no mixture was tried",
    )
    shortened: list[str] = Field(
        default=[], description="what was left out for lack of time, a sentence each"
    )


class EvaluationPart(Part):
    """What the gates were evaluated on."""

    data: str | None
    samples: int
    labels: bool
    notes: list[str] = Field(
        default=[], description="warnings that the accuracy may not be what it seems"
    )


class RecoveryStepPart(Part):
    """A step that changed values of weights and biases, or was to."""

    step: str
    kept: bool
    layers: int = Field(description="those whose constants it changed; 0: it did not apply")
    held_back_sqnr: list[float | None] | None = Field(
        description="worst dB before and after it, on calibration data that it did not learn from; "
        "null: it did not apply"
    )
    reason: str = Field(description="why it does not apply or was not kept; empty if it was")


class RecoveryPart(Part):
    """Accuracy recovered in the result, whose layers stay the same."""

    samples: int = Field(description="calibration samples that the steps learned from")
    held_back: int = Field(description="calibration samples that they were judged on")
    kept: bool = Field(description="the result has what the steps changed")
    reason: str = Field(description="why nothing was kept; empty if something was")
    steps: list[RecoveryStepPart]
    sqnr: dict[str, list[float | None]] = Field(
        default={},
        description="dB before and after by part of an output, on evaluation data; null: exact",
    )


class BudgetPart(Part):
    """The budget, what ended the search, and what the time went to."""

    trials: int | None
    timeout_s: float | None
    stopped: StopReason
    spent_s: dict[str, float] = Field(
        default={},
        description="seconds of this run by what they were spent on, in the order of the run; "
        "`trials`, `noise` (measured beside the trials) and `proposals` are parts of the search",
    )


class GatePart(Part):
    """A gate and its worst value; a null value was not finite (infinite SQNR passes)."""

    gate: str
    value: float | None
    where: str
    passed: bool


class LatencyPart(Part):
    """Latency in milliseconds: median, 10th and 90th percentile of ``rounds`` measurements.

    Of an estimate the ends of its 80% interval stand for the percentiles.
    """

    median_ms: float
    p10_ms: float
    p90_ms: float
    rounds: int


class GpuPart(Part):
    """The GPU at one moment; null where the driver does not tell."""

    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None


class ConditionsPart(Part):
    """How a measurement on a GPU went: the GPU before and after it."""

    before: GpuPart | None
    after: GpuPart | None
    cuda_graphs: bool = Field(description="all models ran as CUDA graphs")
    repeats: int = Field(description="how often it was taken again because the GPU throttled")
    throttled_by: list[str] = Field(description="NVML's names of what slowed the GPU; empty: none")


class ThroughputPart(Part):
    """Runs per second, and samples: runs times the batch size.

    Measured with several requests in flight where the objective is throughput, else what follows
    from the median latency.
    """

    samples_per_s: float
    batches_per_s: float
    batches_per_s_interval: _Interval | None = Field(
        default=None,
        description="10th and 90th percentile of the rounds; null where it follows from latency",
    )
    rounds: int | None = Field(default=None, description="null where it follows from latency")


class TrialPart(Part):
    """One trial: a placement that was built, gated and measured."""

    number: int
    kind: str = Field(description="where the placement came from: a seed's name or a sampler")
    placement: str
    base: str | None = Field(default=None, description=_BASE)
    state: TrialState
    latency_ms: float | None = Field(description="the median")
    latency: LatencyPart | None = Field(description=_LATENCY)
    throughput: ThroughputPart | None = Field(
        default=None, description="null if latency was measured instead, or nothing"
    )
    ratio_to_float: float | None = Field(description="median of paired ratios")
    ratio_interval: _Interval | None = Field(description=_INTERVAL)
    gates: list[GatePart]
    error: str | None
    ruled_out: str | None = Field(
        description="why it was not measured, or not judged by the gates; null if it was both"
    )
    seconds: float
    conditions: ConditionsPart | None = Field(description="null on engines that do not tell")
    noise: float | None = Field(
        default=None,
        description="error power of the outputs over their power; null if it was not judged, or "
        "not finite",
    )
    skipped: int = Field(
        default=0,
        description="placements passed over before it, since their noise misses the gates or, with "
        "a front, the limit that it was looked for",
    )


class BaselinePart(Part):
    """The float model on the same engine, measured in the same rounds as the best candidate."""

    latency: LatencyPart | None = Field(description=_LATENCY)
    throughput: ThroughputPart
    memory_bytes: int | None = Field(description=_MEMORY)
    metrics: dict[str, float | None]


class BestPart(Part):
    """The result; speed-up is float latency over its latency in interleaved rounds.

    With the objective throughput it is its inferences per second over those of the float model.
    """

    placement: str
    base: str | None = Field(default=None, description=_BASE)
    trial: int | None = Field(description="null if the float model is the result")
    quantized_edges: int
    formats: dict[str, int] = Field(default={}, description=_FORMATS)
    latency: LatencyPart | None = Field(description=_LATENCY)
    throughput: ThroughputPart
    memory_bytes: int | None = Field(description=_MEMORY)
    speedup: float
    speedup_interval: _Interval = Field(description=_INTERVAL)
    gates: list[GatePart]
    metrics: dict[str, float | None]
    model_sha256: str | None = Field(
        default=None,
        description="of optimized.onnx, without external data; null in files of earlier versions",
    )
    data_sha256: str | None = Field(
        default=None,
        description="of optimized.onnx.data, the external data; null without, and in files of "
        "earlier versions",
    )


class SourcePart(Part):
    """Of a model that was quantized already: how far the run's models are from that file."""

    compared: bool = Field(
        description="false: ONNX Runtime does not run the file, or it has no float output with "
        "finite values that are the same in each run"
    )
    float_sqnr_db: float | None = Field(
        description="of the float model that was recovered, on calibration data; null if exact"
    )
    result_sqnr_db: float | None = Field(
        description="of the model as written, on evaluation data; null if exact or without one"
    )
    time_ratio: float | None = Field(
        default=None,
        description="the result's time over the file's on this engine; null if not measured",
    )
    time_ratio_interval: list[float] | None = Field(
        default=None, description="95% interval of time_ratio"
    )


class FrontPart(Part):
    """A point of the latency-accuracy front: no other is both faster and more accurate."""

    folder: str = Field(description="its model and placement.yaml, from the output folder")
    placement: str
    base: str | None = Field(default=None, description=_BASE)
    trial: int
    quantized_edges: int
    formats: dict[str, int] = Field(default={}, description=_FORMATS)
    latency: LatencyPart | None = Field(description=_LATENCY)
    throughput: ThroughputPart | None = Field(
        default=None, description="null if latency was measured instead"
    )
    ratio_to_float: float = Field(description="median of paired ratios; one run for all points")
    ratio_interval: _Interval = Field(description=_INTERVAL)
    sqnr_db: float | None = Field(description="of all outputs; null if they are exact")
    gates: list[GatePart]
    metrics: dict[str, float | None]


class DecisionPart(Part):
    """One group of sites of equal structure and what was decided there."""

    group: str = Field(description="rule and first node")
    rule: str
    signature: str = Field(description="equal for groups of equal structure, in any model")
    sites: int
    layout: str | None = Field(description="of the best placement; null if the group was split")
    default: str
    importance: float | None = Field(
        description="for latency, by Optuna's PED-ANOVA over the trials; null if they do not tell"
    )


class NoiseSourcePart(Part):
    """Sites of the result, alone quantized as it has them: what noise they make."""

    name: str = Field(description="the rule, or the group: rule and first node")
    rule: str
    sites: int
    noises: dict[str, float | None] = Field(
        description="error power over signal power by output part, on a few evaluation samples; "
        "null if not finite"
    )


class RulePart(Part):
    """What a rule of the pack says, as far as sites came from it."""

    why: str
    source: str


class SitePart(Part):
    """One site and what was decided there."""

    rule: str
    nodes: list[str]
    layout: str | None = Field(
        description="null where nothing was decided: the gates are not met, or the site follows "
        "others"
    )
