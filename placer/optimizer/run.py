"""The main job: a float model in, a measured and gated Q/DQ model out."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placer.accuracy.gate_labels import note_on_few_labels
from placer.common.files import make_output_folder, remove_if_empty, write_text
from placer.common.folder_lock import locked
from placer.common.freed_memory import give_back_freed
from placer.engines.abilities import abilities_of
from placer.errors import InputError, PlacerError, RunError
from placer.graph.bodies import BODY_OPS, bodies_of
from placer.optimizer.device_search import Device
from placer.optimizer.observer import Observer, QuietObserver
from placer.optimizer.options.option_values import check_inputs_there
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.doubts import doubt_sentence, final_warnings, no_difference_sentence
from placer.optimizer.outcome.end_costs import kept_by, with_affordable_end
from placer.optimizer.outcome.export import export
from placer.optimizer.outcome.finals import Final, Rejected, chosen_placement
from placer.optimizer.outcome.given_file import ratio_to_given
from placer.optimizer.outcome.missed_gates import (
    is_cut_short,
    missed_error,
    time_needs,
    write_closest,
)
from placer.optimizer.outcome.near_misses import recovered_near_miss
from placer.optimizer.outcome.noise_sources import noise_sources
from placer.optimizer.outcome.pareto_front import (
    FrontPoint,
    confirmed_front,
    front_parts,
    write_front,
)
from placer.optimizer.outcome.summary import summarize
from placer.optimizer.outcome.winner import chosen, written_and_judged
from placer.optimizer.outcome.written import Written
from placer.optimizer.run_log import log_to
from placer.optimizer.search_loop import devices_of, search
from placer.optimizer.setup.auto_engine import Resolved, resolve_engine_and_base
from placer.optimizer.setup.auto_scheme import resolve_schemes, schemes_of_defaults
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.random_gates import check_random_gates
from placer.optimizer.setup.study_settings import (
    dashboard_command,
    earlier_study,
    keep_model_file,
    open_study,
)
from placer.optimizer.setup.task import Schemes, Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.time_limit import TimeLimit, TimeSpent
from placer.optimizer.trials.proposer import predictor_of, probes_of
from placer.optimizer.worker import keep_for_workers, trial_setup_of
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.quantization import FLOAT_IDS
from placer.report import write_report
from placer.results.folder import OutputFolder
from placer.results.result import Result
from placer.results.verdict import Verdict
from placer.search.records import TrialRecord
from placer.search.study.study import Study

__all__ = ["Observer", "Request", "optimize"]

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted: going on with the best so far (again to quit)"


def optimize(request: Request, observer: Observer) -> Result:
    """Run ``request`` and write its outputs.

    Raises InputError for wrong input, RunError if the engine refuses every candidate or, after
    writing result.json, if what it measured is inconclusive or the run was cut short before a
    candidate was measured, and GateError, after writing result.json, if no quantized candidate
    meets the gates.
    """
    check_inputs_there(request)
    limit = TimeLimit.begun(request.timeout)
    spent = TimeSpent(limit)
    spent.add("start", limit.passed_s)
    folder = OutputFolder(request.output_folder)
    make_output_folder(folder.path)
    try:
        with locked(folder.path):  # First of all: loading and comparing engines may take minutes.
            with spent.on("preparation"):
                schemes = resolve_schemes(request, observer)
                resolved = resolve_engine_and_base(request, observer, schemes, limit)
                task = _prepared(resolved, schemes, observer, limit)
                check_random_gates(task)
                if few := note_on_few_labels(task.gates, task.evaluation_data):
                    observer.warn(few)
                    task = replace(task, warnings=(*task.warnings, few))
            give_back_freed(task.model.weight_bytes)
            with log_to(folder.log):
                return _run(task, folder, observer, spent)
    finally:
        remove_if_empty(folder.path)


def _prepared(resolved: Resolved, schemes: Schemes, observer: Observer, limit: TimeLimit) -> Task:
    """The task of a request, in the scheme that its engine's comparison found, or the pack's own.

    ``schemes``: those that were asked for, which leave nothing to find.
    """
    request, bases = resolved.request, resolved.bases
    if schemes or resolved.schemes is not None:
        return prepare(request, observer, bases, schemes or resolved.schemes or (), limit)
    task = prepare(request, observer, bases, limit=limit)
    found = schemes_of_defaults(task, observer)
    return prepare(request, QuietObserver(), bases, found, limit) if found else task


def _check_budget(task: Task) -> None:
    """Raise InputError for a budget that the float model's trial uses up.

    A given placement, as that of a quantized file, is tried in its place.
    """
    if task.budget == 1 and not (task.from_quantized or task.warm_starts):
        raise InputError(
            "`budget` is 1, which is the float model's trial and leaves none for a candidate; give "
            "2 or more"
        )


def _run(task: Task, folder: OutputFolder, observer: Observer, spent: TimeSpent) -> Result:
    earlier = earlier_study(task)
    if earlier is None:
        _check_budget(task)
    with spent.on("calibration"):
        setup = trial_setup_of(task, earlier, observer)
    devices = devices_of(task, setup, observer)
    study = earlier or open_study(task)
    keep_for_workers(study, task, setup)
    keep_model_file(study, task.request)
    return _searched(devices, study, folder, observer, spent)


def _searched(
    devices: Sequence[Device],
    study: Study,
    folder: OutputFolder,
    observer: Observer,
    spent: TimeSpent,
) -> Result:
    task, setup = devices[0].task, devices[0].setup
    if study.shared:
        observer.stage(f"others join with: placer worker --study '{study.name}' --storage ...")
    observer.stage(f"watch the trials with: {dashboard_command(task.request)}")
    folder.remove_closest()
    searched = search(devices, study, observer, INTERRUPTED, kept_s=kept_by(task, setup))
    for what, seconds in searched.parts.items():
        spent.add(what, seconds)
    records = study.records()
    _refuse_if_all_failed(records)
    with spent.on("finals"):
        ended = _finals(task, setup, folder, records, observer)
        task, setup, final = ended.task, ended.setup, ended.final
        given = ratio_to_given(task, setup, final, observer)
    with spent.on("noise sources"):
        sources = noise_sources(task, setup, study, records, final, observer)
    result = summarize(
        task,
        records,
        setup,
        final,
        ended.written if isinstance(ended.written, Written) else None,
        searched.stopped,
        front=front_parts(task, setup, ended.points),
        probes=probes_of(study),
        sources=sources,
        given=given,
        spent_s=spent.seconds,
    )
    _warn_of(result, ended, records, observer)
    result.write(folder.result)
    # Where no candidate was measured there is nothing to show, and it is late.
    if not is_cut_short(records, searched.stopped):
        _write_shown(result, ended, folder, observer)
    _raise_if_not_done(result, ended, folder, records, spent)
    return result


def _warn_of(
    result: Result, ended: _Ended, records: Sequence[TrialRecord], observer: Observer
) -> None:
    """Tell the user the warnings of ``result`` that were not told on the way."""
    told = {*ended.task.warnings, *ended.setup.calibration.shortened}
    told.update(final_warnings(ended.task, records, ended.final))
    for sentence in result.warnings:
        if sentence not in told:
            observer.warn(sentence)


def _write_shown(result: Result, ended: _Ended, folder: OutputFolder, observer: Observer) -> None:
    """Write the plans and the report."""
    task = ended.task
    _tell_of_bodies(task, _write_plans(task, folder, ended.final, ended.setup), observer)
    if task.request.front is not None:
        folder.keep_front_points({OutputFolder(folder.path / part.folder) for part in result.front})
    _write_report(folder, observer)


def _raise_if_not_done(
    result: Result,
    ended: _Ended,
    folder: OutputFolder,
    records: Sequence[TrialRecord],
    spent: TimeSpent,
) -> None:
    """Raise GateError where no candidate meets the gates, RunError where nothing can be told."""
    task, setup, stopped = ended.task, ended.setup, result.budget.stopped
    if result.verdict is Verdict.GATE_NOT_MET:
        write_closest(task, setup, folder, records)
        why = ended.written if isinstance(ended.written, Rejected) else None
        needs = time_needs(task, setup, records, spent.seconds) if stopped == "timeout" else None
        raise missed_error(task, records, stopped, why, needs)
    if ended.final is not None and ended.final.inconclusive:
        raise RunError(no_difference_sentence(task, ended.final))


def _tell_of_bodies(task: Task, float_plan: Plan | None, observer: Observer) -> None:
    """Tell how much of the float model's time lies in bodies that are not quantized."""
    inside = bodies_of(task.model.flat()).nodes
    if inside and float_plan is not None and (share := float_plan.time_share(BODY_OPS)):
        observer.stage(
            f"{share:.0%} of the float model's time is in If, Loop and Scan, whose bodies are float"
        )


@dataclass(frozen=True, eq=False)
class _Ended:
    """The result, which may be in another scheme than the trials, and what is on disk of it."""

    task: Task
    setup: TrialSetup
    final: Final[TrialRecord] | None
    written: Written | Rejected | None
    points: Sequence[FrontPoint] = ()


def _finals(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    records: Sequence[TrialRecord],
    observer: Observer,
) -> _Ended:
    """Race, confirm and write what the trials found, with the effort that time allows."""
    near = recovered_near_miss(task, setup, records, observer)
    task = with_affordable_end(task, setup, records, observer)
    points: list[FrontPoint] = []
    if task.request.front is None:
        final, written, scheme = chosen(task, setup, folder, records, near, observer)
        task, setup = (task, setup) if scheme is None else (scheme.task, scheme.setup)
    else:
        final_or_why, points = confirmed_front(task, records, setup, observer, task.request.front)
        if points:
            points, rejected = write_front(task, setup, folder, points, observer)
            final_or_why = points[0].final if points else rejected
        final, written = written_and_judged(task, setup, folder, final_or_why, near, observer)
    if final is None:
        folder.remove_model()
    else:
        export(task, setup, folder, observer)
    doubt = None if final is None else doubt_sentence(task, final)
    if final is not None and doubt is not None and not final.inconclusive:  # An error says it.
        observer.warn(doubt)
    return _Ended(task, setup, final, written, points)


def _refuse_if_all_failed(records: Sequence[TrialRecord]) -> None:
    quantized = [record for record in records if record.placement_id not in FLOAT_IDS]
    if quantized and all(record.ratio is None for record in quantized):
        raise RunError(f"the engine refused every candidate; the first: {quantized[0].error}")


def _write_plans(
    task: Task, folder: OutputFolder, final: Final[TrialRecord] | None, setup: TrialSetup
) -> Plan | None:
    """Write what the engine really runs, layer by layer, and what the rules predict.

    Returns the float model's plan, None if the engine does not tell it.

    An engine that only estimates predicts both, the plan of the result and that of the float model,
    unless it builds what it estimates.
    """
    estimated = task.engine.estimated and "built-plans" not in abilities_of(task.engine)
    models = {folder.float_plan(predicted=estimated): setup.baseline}
    if final is not None:
        models[folder.plan(predicted=estimated)] = (
            final.compiled if final.is_faster else setup.baseline
        )
    if final is not None and not estimated:
        placement = chosen_placement(task, final)
        predictor = predictor_of(task, task.base_of(placement), setup.ranges)
        _write_plan(folder.plan(predicted=True), predictor.predict(placement).plan)
    float_plan = None
    for path, compiled in models.items():
        try:
            plan = compiled.plan(task.inputs)
        except RunError as error:
            log.warning("%s is not written: %s", path.name, error)
            continue
        _write_plan(path, plan)
        if path == folder.float_plan(predicted=estimated):
            float_plan = plan
    return float_plan


def _write_plan(path: Path, plan: Plan) -> None:
    write_text(path, json.dumps(plan_json(plan), indent=2) + "\n")


def _write_report(folder: OutputFolder, observer: Observer) -> None:
    try:
        write_report(folder.path)
    except PlacerError as error:  # Everything else is written; the report can be made again.
        log.warning("no report: %s", error)
        observer.warn(f"no {folder.report.name}: {error}")
