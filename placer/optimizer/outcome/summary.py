"""From a finished run to result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.accuracy.metrics import finite
from placer.common.statistics import Ratio
from placer.engines.abilities import abilities_of
from placer.engines.base import Engine
from placer.engines.conditions import memory_of
from placer.engines.estimated.error import EstimateError
from placer.optimizer.options.command import command_of
from placer.optimizer.outcome.doubts import (
    calibration_warnings,
    engine_warnings,
    final_warnings,
    output_warnings,
    precision_warnings,
    within_error,
)
from placer.optimizer.outcome.finals import Final, chosen_placement
from placer.optimizer.outcome.written import Written
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.result_parts import (
    conditions_part,
    decided_base,
    gate_parts,
    measured_parts,
    measured_throughput,
    throttling_warnings,
)
from placer.quantization.placement import edges_by_format
from placer.results.parts import (
    BaselinePart,
    BestPart,
    BudgetPart,
    DecisionPart,
    EnginePart,
    EvaluationPart,
    FrontPart,
    ModelPart,
    NoiseSourcePart,
    PackPart,
    RulePart,
    SitePart,
    SourcePart,
    StopReason,
    TrialPart,
    TrialState,
)
from placer.results.result import Result, versions
from placer.results.verdict import Verdict
from placer.rules.pack import Pack
from placer.rules.sites import Site
from placer.search.importance import by_rule, importances
from placer.search.records import TrialRecord
from placer.search.space import PER_SITE, Choices, Space


def _verdict(task: Task, final: Final[TrialRecord] | None) -> Verdict:
    if final is None:
        return Verdict.GATE_NOT_MET
    if final.inconclusive:
        return Verdict.INCONCLUSIVE
    if not final.is_faster:
        return Verdict.NO_DIFFERENCE
    return Verdict.CANNOT_TELL if within_error(task, final) else Verdict.FASTER


def summarize(
    task: Task,
    records: Sequence[TrialRecord],
    setup: TrialSetup,
    final: Final[TrialRecord] | None,
    written: Written | None,
    stopped: StopReason,
    *,
    front: Sequence[FrontPart],
    probes: int,
    sources: Sequence[NoiseSourcePart],
    given: Ratio | None,
    spent_s: Mapping[str, float],
) -> Result:
    """Gather what result.json says.

    ``written``: what ``final`` is on disk. ``front``: with ``front``, its points. ``probes``: how
    often noise alone was measured. ``sources``: where the accuracy went. ``given``: the result's
    time over that of the quantized file that was given. ``spent_s``: see ``BudgetPart``.
    """
    request = task.request
    error = EstimateError.of(task.engine)
    trials = [_trial_part(task, record, error) for record in records]
    important = importances(task.space, records)
    confirmation = None if final is None else conditions_part(final.conditions)
    choices = _choices(task.space, final)
    return Result(
        verdict=_verdict(task, final),
        objective=request.objective,
        model=_model_part(task),
        engine=_engine_part(task.engine),
        pack=_pack_part(task.pack),
        scheme=task.pack.manifest.scheme,
        calibrated=not task.calibration_data.synthetic,
        calibration=setup.calibration,
        evaluation=_evaluation_part(task),
        gates=list(task.gate_texts),
        seed=request.seed,
        budget=BudgetPart(
            trials=task.budget,
            timeout_s=request.timeout,
            stopped=stopped,
            spent_s=dict(spent_s),
        ),
        sites=len(task.sites),
        sampler=request.sampler,
        decisions=_decisions(task.space, choices or {}, important),
        importance_by_rule=by_rule(task.space, important),
        trials=trials,
        probes=probes,
        baseline=_baseline_part(task, setup, final),
        best=_best_part(task, setup, final, written),
        recovery=None if written is None else written.recovery,
        source=_source_part(task, written, given),
        front=list(front),
        confirmation=confirmation,
        noise_sources=list(sources),
        warnings=[
            *task.warnings,
            *calibration_warnings(task, setup, task.space.placement(choices or {})),
            *output_warnings(task, setup),
            *engine_warnings(task, setup),
            *precision_warnings(setup),
            *final_warnings(task, records, final),
            *throttling_warnings(trials, confirmation),
        ],
        versions=dict(versions()),
        command=command_of(request),
        rules=_rules(task.sites),
        site_decisions=_site_decisions(task, choices),
    )


def _model_part(task: Task) -> ModelPart:
    model = task.model
    return ModelPart(
        path=str(model.path),
        fingerprint=model.fingerprint,
        input_shapes={name: list(shape) for name, shape in model.input_shapes.items()},
        shape_ranges={
            name: [list(shape.minimum), list(shape.optimum), list(shape.maximum)]
            for name, shape in task.shape_ranges.items()
        },
        notes=list(model.notes),
    )


def _engine_part(engine: Engine) -> EnginePart:
    return EnginePart(
        name=engine.name,
        version=engine.version,
        device=engine.device,
        clock=engine.clock,
        estimated=engine.estimated,
        built_plans="built-plans" in abilities_of(engine),
    )


def _pack_part(pack: Pack) -> PackPart:
    manifest = pack.manifest
    return PackPart(name=manifest.name, version=manifest.version, fingerprint=pack.fingerprint)


def _evaluation_part(task: Task) -> EvaluationPart:
    return EvaluationPart(
        data=task.request.evaluation_data or task.request.data,
        samples=len(task.evaluation_data),
        labels=task.evaluation_data.has_labels,
        notes=list(task.evaluation_data.doubts),
    )


def _choices(space: Space, final: Final[TrialRecord] | None) -> Choices | None:
    """What the final decides, or the float model if that is the result; None without a final."""
    if final is None:
        return None
    return final.entry.choices if final.is_faster else space.floats


def _rules(sites: Sequence[Site]) -> dict[str, RulePart]:
    rules = {site.match.rule.id: site.match.rule for site in sites}
    return {name: RulePart(why=rule.why, source=rule.source) for name, rule in rules.items()}


def _site_decisions(task: Task, choices: Choices | None) -> list[SitePart]:
    layouts = {} if choices is None else task.space.layouts(choices)
    return [
        SitePart(
            rule=site.match.rule.id,
            nodes=[node.name for node in site.match.nodes.values()],
            layout=layouts.get(site.name),
        )
        for site in task.sites
    ]


def _decisions(
    space: Space, choices: Choices, important: Mapping[str, float]
) -> list[DecisionPart]:
    return [
        DecisionPart(
            group=group.name,
            rule=group.sites[0].match.rule.id,
            signature=group.sites[0].signature,
            sites=len(group.sites),
            layout=None if choices.get(group.name) == PER_SITE else choices.get(group.name),
            default=group.default,
            importance=important.get(group.name),
        )
        for group in space.groups
    ]


def _state(record: TrialRecord) -> TrialState:
    if record.error is not None:
        return "failed"
    if record.violation > 0:
        return "gate missed"
    return "complete" if record.feasible else "ruled out"


def _trial_part(task: Task, record: TrialRecord, error: EstimateError) -> TrialPart:
    measurement = record.measurement
    ratio = measurement.ratio if measurement else None
    latency_part = error.widened(measurement.latency) if measurement else None
    throughput = None
    if latency_part is not None and task.request.objective == "throughput":
        throughput, latency_part = measured_throughput(latency_part, task.inputs), None
    return TrialPart(
        number=record.number,
        kind=record.kind,
        placement=record.placement_id,
        base=decided_base(task, task.space.placement(record.choices)),
        state=_state(record),
        latency_ms=latency_part.median_ms if latency_part else None,
        latency=latency_part,
        throughput=throughput,
        ratio_to_float=record.ratio,
        ratio_interval=error.interval(ratio.low, ratio.high) if ratio else None,
        gates=gate_parts(record.gates),
        error=record.error,
        ruled_out=record.ruled_out,
        seconds=record.seconds,
        conditions=measurement.conditions if measurement else None,
        noise=record.noise,
        skipped=len(record.skipped),
    )


def _baseline_part(
    task: Task, setup: TrialSetup, final: Final[TrialRecord] | None
) -> BaselinePart | None:
    if final is None:
        return None
    metrics = setup.evaluator.reference_metrics()
    measured, throughput = measured_parts(task, final.seconds[:, 0])
    return BaselinePart(
        latency=measured,
        throughput=throughput,
        memory_bytes=memory_of(setup.baseline, task.inputs),
        metrics={name: finite(value) for name, value in metrics.items()},
    )


def _best_part(
    task: Task, setup: TrialSetup, final: Final[TrialRecord] | None, written: Written | None
) -> BestPart | None:
    if final is None or written is None:
        return None
    placement = chosen_placement(task, final)
    is_float = not final.is_faster
    compiled = setup.baseline if is_float else final.compiled
    error = EstimateError.of(task.engine)
    interval = error.interval(1 / final.ratio.high, 1 / final.ratio.low)
    measured, throughput = measured_parts(task, final.seconds[:, 0 if is_float else 1])
    return BestPart(
        placement=placement.id,
        base=decided_base(task, placement),
        trial=None if is_float else final.entry.number,
        quantized_edges=len(placement.edges),
        formats=edges_by_format(task.pack.manifest.scheme, placement),
        latency=measured,
        throughput=throughput,
        memory_bytes=memory_of(compiled, task.inputs),
        speedup=1.0 if is_float else 1 / final.ratio.median,
        speedup_interval=[1.0, 1.0] if is_float else interval,
        gates=gate_parts(value.result() for value in written.gates),
        metrics={name: finite(value) for name, value in written.evaluation.metrics.items()},
        model_sha256=written.sha256,
        data_sha256=written.data_sha256,
    )


def _source_part(task: Task, written: Written | None, given: Ratio | None) -> SourcePart | None:
    """How far the float model and the result are from a file that was quantized."""
    if not task.from_quantized:
        return None
    result = None if written is None else written.source_sqnr
    return SourcePart(
        float_sqnr_db=None if task.source_sqnr is None else finite(task.source_sqnr),
        result_sqnr_db=None if result is None else finite(result),
        compared=task.source_sqnr is not None,
        time_ratio=None if given is None else given.median,
        time_ratio_interval=None if given is None else [given.low, given.high],
    )
