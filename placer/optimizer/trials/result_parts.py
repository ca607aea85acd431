"""What result.json says of gates, latency, throughput and the conditions of measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from placer.accuracy.gates import GateResult
from placer.common.listed import listed
from placer.engines.base import Tensors
from placer.engines.conditions import Conditions
from placer.engines.cuda.nvml import GpuState
from placer.engines.estimated.error import EstimateError
from placer.optimizer.setup.task import Task
from placer.quantization import Placement
from placer.results.parts import (
    ConditionsPart,
    GatePart,
    GpuPart,
    LatencyPart,
    ThroughputPart,
    TrialPart,
)


def gate_parts(results: Iterable[GateResult]) -> list[GatePart]:
    """``results`` as result.json has them."""
    return [
        GatePart(gate=one.gate, value=one.value, where=one.where, passed=one.passed)
        for one in results
    ]


def decided_base(task: Task, placement: Placement) -> str | None:
    """The base precision of ``placement`` where the search decides on it."""
    return task.base_of(placement) if task.bases else None


def conditions_part(conditions: Conditions | None) -> ConditionsPart | None:
    """``conditions`` as result.json has them."""
    if conditions is None:
        return None
    return ConditionsPart(
        before=_gpu_part(conditions.before),
        after=_gpu_part(conditions.after),
        cuda_graphs=all(conditions.captured),
        repeats=conditions.repeats,
        throttled_by=list(conditions.throttled_by),
    )


def _gpu_part(state: GpuState | None) -> GpuPart | None:
    if state is None:
        return None
    return GpuPart(
        sm_clock_mhz=state.sm_clock,
        memory_clock_mhz=state.memory_clock,
        power_w=state.power,
        temperature_c=state.temperature,
    )


def throughput_part(latency: LatencyPart, inputs: Tensors) -> ThroughputPart:
    """Runs and samples per second at the median latency.

    The batch size is the first dimension of the first input, 1 if that is a scalar.
    """
    batch = next(iter(inputs.values())).shape[:1]
    per_second = 1e3 / latency.median_ms
    return ThroughputPart(
        samples_per_s=per_second * (batch[0] if batch else 1), batches_per_s=per_second
    )


def measured_throughput(per_inference: LatencyPart, inputs: Tensors) -> ThroughputPart:
    """What was measured with several requests in flight; ``per_inference``: wall time for each."""
    slow, fast = 1e3 / per_inference.p90_ms, 1e3 / per_inference.p10_ms
    return throughput_part(per_inference, inputs).model_copy(
        update={"batches_per_s_interval": [slow, fast], "rounds": per_inference.rounds}
    )


def measured_parts(task: Task, seconds: np.ndarray) -> tuple[LatencyPart | None, ThroughputPart]:
    """What ``seconds`` of one model tell; no latency where the objective is throughput."""
    estimate = EstimateError.of(task.engine).widened(latency(seconds))
    if task.request.objective == "throughput":
        return None, measured_throughput(estimate, task.inputs)
    return estimate, throughput_part(estimate, task.inputs)


def throttling_warnings(
    trials: Sequence[TrialPart], confirmation: ConditionsPart | None
) -> list[str]:
    """Sentences on measurements that were taken while the GPU throttled, worst first."""
    advice = "lock the clocks, or let the GPU cool, and run it again"
    sentences = []
    if confirmation is not None and confirmation.throttled_by:
        reasons = ", ".join(confirmation.throttled_by)
        sentences.append(
            f"the GPU throttled ({reasons}) while the result was confirmed, so its speed-up may be "
            f"off; {advice}"
        )
    slowed = [t for t in trials if t.conditions is not None and t.conditions.throttled_by]
    if slowed:
        numbers = listed([trial.number for trial in slowed], 8)
        sentences.append(
            f"the GPU throttled while {len(slowed)} of {len(trials)} trials were measured "
            f"({numbers}); {advice}"
        )
    return sentences


def latency(seconds: np.ndarray) -> LatencyPart:
    """Median, 10th and 90th percentile of ``seconds`` in milliseconds."""
    p10, median, p90 = (float(1e3 * q) for q in np.quantile(seconds, (0.1, 0.5, 0.9)))
    return LatencyPart(median_ms=median, p10_ms=p10, p90_ms=p90, rounds=len(seconds))
