"""From a finished run to result.json."""

from __future__ import annotations

from collections.abc import Sequence

from placer.accuracy import finite
from placer.bench import Bench
from placer.finals import Final
from placer.placement import EMPTY, Placement
from placer.result import (
    BaselinePart,
    BestPart,
    BudgetPart,
    EnginePart,
    EvaluationPart,
    GatePart,
    LatencyPart,
    ModelPart,
    PackPart,
    Result,
    StopReason,
    TrialPart,
    Verdict,
    versions,
)
from placer.search.race import Ratio
from placer.search.study import TrialRecord
from placer.task import Task
from placer.trials import latency


def _verdict(final: Final[TrialRecord] | None) -> Verdict:
    if final is None:
        return "gate not met"
    return "faster" if final.is_faster else "no difference"


def summarize(
    task: Task,
    records: Sequence[TrialRecord],
    bench: Bench,
    final: Final[TrialRecord] | None,
    stopped: StopReason,
) -> Result:
    """Gather what result.json says."""
    request, model, manifest = task.request, task.model, task.pack.manifest
    verdict = _verdict(final)
    warnings = list(task.warnings)
    if final is not None and verdict == "no difference":
        warnings.append(no_difference_sentence(final, task.engine.estimated))
    return Result(
        verdict=verdict,
        model=ModelPart(
            path=str(model.path),
            fingerprint=model.fingerprint,
            input_shapes={name: list(shape) for name, shape in model.input_shapes.items()},
            notes=list(model.notes),
        ),
        engine=EnginePart(
            name=task.engine.name,
            version=task.engine.version,
            device=task.engine.device,
            clock=task.engine.clock,
            estimated=task.engine.estimated,
        ),
        pack=PackPart(
            name=manifest.name, version=manifest.version, fingerprint=task.pack.fingerprint
        ),
        scheme=manifest.scheme,
        calibrated=not task.calibration_data.synthetic,
        calibration=bench.calibration,
        evaluation=EvaluationPart(
            data=request.evaluation_data or request.data,
            samples=len(task.evaluation_data),
            labels=task.evaluation_data.has_labels,
        ),
        gates=[gate.text() for gate in task.gates],
        seed=request.seed,
        budget=BudgetPart(trials=task.budget, timeout_s=request.timeout, stopped=stopped),
        sites=len(task.sites),
        decisions=len(task.space.groups),
        trials=[_trial_part(record) for record in records],
        baseline=_baseline_part(bench, final),
        best=_best_part(task, bench, final),
        warnings=warnings,
        versions=dict(versions()),
    )


def _trial_part(record: TrialRecord) -> TrialPart:
    measured = record.ratio is not None
    latency_part = LatencyPart(**record.details["latency"]) if measured else None
    return TrialPart(
        number=record.number,
        kind=record.kind,
        placement=record.placement_id,
        state="failed" if not measured else "complete" if record.feasible else "gate missed",
        latency_ms=latency_part.median_ms if latency_part else None,
        latency=latency_part,
        ratio_to_float=record.ratio,
        ratio_interval=record.details["interval"] if measured else None,
        gates=[GatePart(**gate) for gate in record.details.get("gates", [])],
        error=record.error,
        seconds=record.seconds,
    )


def _baseline_part(bench: Bench, final: Final[TrialRecord] | None) -> BaselinePart | None:
    if final is None:
        return None
    metrics = bench.evaluator.reference_metrics()
    return BaselinePart(
        latency=latency(final.seconds[:, 0]),
        metrics={name: finite(value) for name, value in metrics.items()},
    )


def _best_part(task: Task, bench: Bench, final: Final[TrialRecord] | None) -> BestPart | None:
    if final is None:
        return None
    placement = chosen_placement(task, final)
    is_float = not final.is_faster
    evaluation = bench.evaluator.evaluate((bench.baseline if is_float else final.compiled).run)
    ratio = Ratio(1.0, 1.0, 1.0, final.ratio.rounds) if is_float else final.ratio
    return BestPart(
        placement=placement.id,
        trial=None if is_float else final.entry.number,
        quantized_edges=len(placement.edges),
        latency=latency(final.seconds[:, 0 if is_float else 1]),
        speedup=1 / ratio.median,
        speedup_interval=[1 / ratio.high, 1 / ratio.low],
        gates=[GatePart(**value.to_json()) for value in evaluation.gates],
        metrics={name: finite(value) for name, value in evaluation.metrics.items()},
    )


def chosen_placement(task: Task, final: Final[TrialRecord]) -> Placement:
    """The final's placement, or the empty one if the float model is the result."""
    return task.space.placement(final.entry.choices) if final.is_faster else EMPTY


def no_difference_sentence(final: Final[TrialRecord], estimated: bool) -> str:
    """Why the float model is the result."""
    ratio = final.ratio
    takes = "is estimated to take" if estimated else "takes"
    return (
        f"the fastest candidate that meets the gates {takes} {ratio.median:.3f} of the float "
        f"model's time (95% interval {ratio.low:.3f} to {ratio.high:.3f}), which is no clear "
        "gain; the float model is the result"
    )
