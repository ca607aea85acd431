"""Write the model that a run chose, read it again, and judge what is on disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from placer.accuracy.evaluation import Evaluation
from placer.accuracy.gates import AnyGateValue, Gate, GateValue
from placer.accuracy.metrics import decibels, finite
from placer.accuracy.sanity import MIN_SQNR_DB
from placer.common.files import data_file, sha256_of, write_text
from placer.errors import RunError
from placer.importing.source_model import Source, inputs_of
from placer.model import save_model
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.end_costs import recovery_ends
from placer.optimizer.outcome.finals import Final, Rejected, chosen_placement, latency_gates
from placer.optimizer.outcome.near_misses import NearMiss
from placer.optimizer.outcome.recovered import recover
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.qdq.base_property import name_base
from placer.qdq.origin import name_origin
from placer.quantization import Placement, Ranges
from placer.quantization.placement_file import placement_text
from placer.recovery.crossfit import score
from placer.recovery.recover import steps_of
from placer.results.folder import OutputFolder
from placer.results.parts import RecoveryPart
from placer.search.records import TrialRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Written:
    """A model on disk: ``gates`` as it meets them, and ``evaluation`` with all metrics.

    ``source_sqnr``: of a model that was quantized, SQNR in dB against the file as it was given;
    None if it was not, or cannot be run. ``sha256``: of the file, without external data;
    ``data_sha256``: of these, None if there are none. ``recovery``: what was tried to make it more
    accurate.
    """

    gates: tuple[AnyGateValue, ...]
    evaluation: Evaluation
    source_sqnr: float | None
    sha256: str
    data_sha256: str | None
    recovery: RecoveryPart | None = None

    @property
    def missed(self) -> tuple[str, ...]:
        """The gates that it misses."""
        return tuple(value.gate.text() for value in self.gates if not value.passed)


def write_and_judge(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    final: Final[TrialRecord],
    observer: Observer,
    near: NearMiss | None = None,
) -> Written | Rejected:
    """Write what ``final`` stands for into ``folder``; why not, if the file cannot be the result.

    The file is read again and run on the evaluation data, by the engine or, where that only
    estimates, by ONNX Runtime. One that misses a gate or cannot be run is removed. With ``recover``
    a file with other constants takes its place if it is more accurate there, and meets all gates.
    ``near``: what meets them with other constants only, which are known.
    """
    placement = chosen_placement(task, final)
    steps = steps_of(task.request.recover) if placement.edges else ()
    plain = _write(task, setup, folder, final, setup.candidates)
    if not steps:
        return plain
    if near is not None and near.record.number == final.entry.number:
        recovery = near.recovered
    else:
        until = recovery_ends(task, setup, [final.entry])
        recovery = recover(task, setup, placement, steps, observer, until)
    part = recovery.part
    if recovery.candidates is not None:
        recovered = _write(task, setup, folder, final, recovery.candidates)
        part = _judged(part, plain, recovered)
        if part.kept and isinstance(recovered, Written):
            return replace(recovered, recovery=part)
        if isinstance(plain, Written):
            plain = _write(task, setup, folder, final, setup.candidates)
        else:
            folder.remove_model()
    return replace(plain, recovery=part) if isinstance(plain, Written) else plain


def _write(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    final: Final[TrialRecord],
    candidates: Candidates,
) -> Written | Rejected:
    """Write the model of ``candidates`` and judge it.

    The placement file says the ranges of the model as it was given, also where ``candidates`` have
    other constants: it goes with that model's weights.
    """
    placement, path = chosen_placement(task, final), folder.model
    proto = candidates.result(placement)
    calibrated = not task.calibration_data.synthetic
    name_origin(proto, placement.id, task.pack.name_and_version, calibrated)
    if task.engine.remainder == "computed":
        name_base(proto, task.base_of(placement))
    OutputFolder(task.request.output_folder).remove_outcome()
    save_model(proto, task.model.base_dir, path)
    write_text(folder.placement, _placement_text(task, setup.ranges, placement))
    try:
        written = _judge(task, setup, candidates, path, final)
    except RunError as error:
        return _removed(folder, f"as it was written it cannot be run: {error}")
    if written.missed:
        return _removed(folder, f"as it was written it misses {', '.join(written.missed)}")
    return written


def _removed(folder: OutputFolder, reason: str) -> Rejected:
    log.warning("%s is removed: %s", folder.model, reason)
    folder.remove_model()
    return Rejected(reason)


def _judged(
    part: RecoveryPart, plain: Written | Rejected, recovered: Written | Rejected
) -> RecoveryPart:
    """``part`` with what the evaluation data says of the files without and with recovery."""
    if isinstance(recovered, Rejected):
        return part.model_copy(update={"kept": False, "reason": recovered.reason})
    after = recovered.evaluation.noises
    before = plain.evaluation.noises if isinstance(plain, Written) else {}
    sqnr = {
        where: [finite(decibels(before[where])) if before else None, finite(decibels(noise))]
        for where, noise in after.items()
    }
    worse = bool(before) and score(after) <= score(before)
    reason = "it does not help on the evaluation data" if worse else ""
    return part.model_copy(update={"kept": not worse, "reason": reason, "sqnr": sqnr})


def _judge(
    task: Task, setup: TrialSetup, candidates: Candidates, path: Path, final: Final[TrialRecord]
) -> Written:
    run, data = candidates.run_written(path), data_file(path)
    digests = (sha256_of(path), sha256_of(data) if data.is_file() else None)
    evaluation = setup.evaluator.evaluate(run)
    gates: tuple[AnyGateValue, ...] = (
        *evaluation.gates,
        *latency_gates(setup.latency_baselines, final),
    )
    if task.source_sqnr is None:
        return Written(gates, evaluation, None, *digests)
    source = Source.of(task.model, task.evaluation_data)
    samples = inputs_of(task.model, task.evaluation_data)
    comparison = source.compared(run, samples)
    if comparison is None:
        return Written(gates, evaluation, None, *digests)
    where = "all outputs, against the quantized file"
    if comparison.left_out:
        where += f" ({comparison.left_out})"
    least = GateValue(Gate("sqnr", ">=", MIN_SQNR_DB), comparison.sqnr, where)
    return Written((*gates, least), evaluation, comparison.sqnr, *digests)


def _placement_text(task: Task, ranges: Ranges, placement: Placement) -> str:
    # What the model's metadata name has to be here, too: placer apply makes the same file of it.
    named = task.bases or task.engine.remainder == "computed"
    return placement_text(
        placement,
        ranges,
        task.pack.manifest.scheme,
        model=task.model.fingerprint,
        pack=task.pack.name_and_version,
        calibrated=not task.calibration_data.synthetic,
        graph=task.model.graph,
        pinned=task.pins.by_tensor,
        base=task.base_of(placement) if named else None,
        weights=task.model.weights_digest(),
    )
