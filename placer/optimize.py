"""The main job: a float model in, a measured and gated Q/DQ model out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import onnx
import onnx.helper
from packaging.specifiers import SpecifierSet

from placer.accuracy import finite
from placer.calibration import METHODS, Calibration, calibrate
from placer.data import Dataset, calibration_and_evaluation, load_dataset, synthetic_dataset
from placer.engines import select_engine
from placer.engines.base import Compiled, Engine, Tensors
from placer.errors import GateError, InputError, RunError
from placer.files import make_output_folder, write_text
from placer.finals import Final, Finalist, confirm, race
from placer.gates import Evaluator, Gate, default_gates
from placer.model import Model, load_model, save_model
from placer.placement import EMPTY, Placement
from placer.placement_file import placement_text
from placer.presets import Preset, load_preset
from placer.qdq import Inserter
from placer.ranges import Ranges
from placer.result import (
    BaselinePart,
    BestPart,
    BudgetPart,
    CalibrationPart,
    EnginePart,
    EvaluationPart,
    GatePart,
    LatencyPart,
    ModelPart,
    PackPart,
    Result,
    TrialPart,
    Verdict,
    versions,
)
from placer.rules.loader import Pack, load_pack
from placer.rules.sites import Site, find_sites
from placer.search.race import Ratio
from placer.search.space import Space, build_space
from placer.search.study import Study, TrialRecord, by_latency
from placer.trials import Candidates, NoiseMeter, TrialRunner, latency

log = logging.getLogger(__name__)

SYNTHETIC_SAMPLES = 16
AUTO = "auto"
StopReason = Literal["budget", "timeout", "exhausted", "interrupted"]


@dataclass(frozen=True)
class Request:
    """What the user asks for; None stands for the documented default.

    ``data`` and ``evaluation_data``: see ``placer.data.load_dataset``. ``timeout`` in seconds.
    ``static`` fixes the input shapes in the written model.
    """

    model: Path
    output: Path | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    data: str | None = None
    evaluation_data: str | None = None
    engine: str = AUTO
    threads: int = 1
    pack: str | None = None
    calibration: str = AUTO
    gates: tuple[str, ...] = ()
    preset: str = "default"
    budget: int | None = None
    timeout: float | None = None
    seed: int = 0
    cache_dir: Path | None = None

    @property
    def output_folder(self) -> Path:
        """``output``, or ``<model>.placer`` in the current folder."""
        return self.output or Path(f"{self.model.stem}.placer")


class Observer(Protocol):
    """Is told how a run goes on."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def warn(self, text: str) -> None:
        """Something the user should know."""

    def search(self, budget: int | None, done: int) -> None:
        """The search begins; ``done`` trials were found in the study."""

    def trial(self, record: TrialRecord, baseline_ms: float) -> None:
        """A trial has ended."""

    def progress(self, done: int, total: int) -> None:
        """Part of a stage is done."""


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that is settled before the first trial."""

    request: Request
    preset: Preset
    model: Model
    pack: Pack
    engine: Engine
    sites: tuple[Site, ...]
    space: Space
    gates: tuple[Gate, ...]
    calibration_data: Dataset
    evaluation_data: Dataset
    warnings: tuple[str, ...]

    @cached_property
    def inputs(self) -> Tensors:
        """The sample that latency is measured on."""
        return next(iter(self.evaluation_data)).inputs


def optimize(request: Request, observer: Observer) -> Result:
    """Run ``request`` and write its outputs.

    Raises InputError for wrong input, RunError if the engine refuses every candidate, and
    GateError, after writing result.json, if no quantized candidate meets the gates.
    """
    task = _prepare(request, observer)
    folder = request.output_folder
    make_output_folder(folder)
    study = Study(folder / "study.db", task.space, _settings(task), request.seed)
    with _log_to(folder / "placer.log"):
        return _run(task, study, folder, observer)


def _prepare(request: Request, observer: Observer) -> Task:
    preset = load_preset(request.preset)
    observer.stage(f"loading {request.model}")
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        observer.warn(text)

    engine, why = select_engine(request.engine, request.threads)
    observer.stage(f"engine {engine.name} {engine.version} on {engine.device}: {why}")
    pack = load_pack(request.pack or engine.name)
    _check_pack(pack, engine, warn)
    model = load_model(request.model, request.shapes)
    sites = find_sites(model.graph, pack.rules)
    if not sites:
        raise InputError(
            f"no rule of pack '{pack.manifest.name}' matches a node of {request.model}; "
            "there is nothing to quantize"
        )
    space = build_space(model.graph, sites)
    calibration_data, evaluation_data = _datasets(request, model, preset, warn)
    gates = tuple(Gate.parse(text) for text in request.gates)
    gates = gates or default_gates(evaluation_data.has_labels)
    if request.calibration not in (AUTO, *METHODS):
        known = ", ".join((AUTO, *METHODS))
        raise InputError(f"unknown calibration '{request.calibration}'; use one of: {known}")
    return Task(
        request=request,
        preset=preset,
        model=model,
        pack=pack,
        engine=engine,
        sites=sites,
        space=space,
        gates=gates,
        calibration_data=calibration_data,
        evaluation_data=evaluation_data,
        warnings=tuple(warnings),
    )


def _check_pack(pack: Pack, engine: Engine, warn: Callable[[str], None]) -> None:
    manifest = pack.manifest
    if manifest.engine != engine.name:
        raise InputError(
            f"pack '{manifest.name}' is for engine {manifest.engine}, not {engine.name}; "
            "choose another --pack or --engine"
        )
    if not SpecifierSet(manifest.engine_versions).contains(engine.version, prereleases=True):
        warn(
            f"pack '{manifest.name}' was made for {engine.name} {manifest.engine_versions}, "
            f"this is {engine.version}"
        )


def _datasets(
    request: Request, model: Model, preset: Preset, warn: Callable[[str], None]
) -> tuple[Dataset, Dataset]:
    given = [
        load_dataset(source, model) if source else None
        for source in (request.data, request.evaluation_data)
    ]
    if given == [None, None]:
        warn("no --data: ranges and gates rest on random inputs; the result is not calibrated")
        given[0] = synthetic_dataset(model, SYNTHETIC_SAMPLES, request.seed)
    calibration, evaluation = calibration_and_evaluation(given[0], given[1], request.seed)
    calibration = calibration.limit(preset.calibration_samples)
    evaluation = evaluation.limit(preset.evaluation_samples)
    for note in dict.fromkeys((*calibration.notes, *evaluation.notes)):
        warn(note)
    return calibration, evaluation


def _run(task: Task, study: Study, folder: Path, observer: Observer) -> Result:
    bench = _set_up(task, observer)
    stopped = _search(task, study, bench, observer)
    records = study.records()
    _refuse_if_all_failed(records)
    final = _final(task, records, bench, observer)
    result = _result(task, records, bench, final, stopped)
    _write(task, folder, result, final, bench)
    if result.verdict == "gate not met":
        raise GateError(_gate_sentence(task, records))
    return result


@dataclass(frozen=True, eq=False)
class Bench:
    """What trials are made and judged with."""

    baseline: Compiled
    baseline_ms: float
    candidates: Candidates
    evaluator: Evaluator
    noise: NoiseMeter
    ranges: Ranges
    calibration: CalibrationPart


def _set_up(task: Task, observer: Observer) -> Bench:
    model, engine = task.model, task.engine
    observer.stage(f"calibrating on {len(task.calibration_data)} samples")
    calibration = calibrate(
        model,
        _activations(task),
        task.calibration_data,
        task.request.cache_dir,
        observer.progress,
    )
    inserter = Inserter(model, task.pack.manifest.scheme)
    baseline = engine.compile(model.proto, model.base_dir)
    few = task.calibration_data.limit(task.preset.noise_samples)
    on_few = Evaluator(model.graph, (Gate.parse("sqnr>=0"),), few, baseline.run)
    by_method = _compare_methods(task, calibration, inserter, on_few, observer)
    method = max(by_method, key=lambda name: by_method[name])
    ranges = calibration.ranges(method, task.pack.manifest.scheme)
    candidates = Candidates(model, engine, inserter, ranges)
    observer.stage("measuring the float model")
    seconds = engine.measure([baseline], task.inputs, task.preset.rounds)
    return Bench(
        baseline=baseline,
        baseline_ms=latency(seconds[:, 0]).median_ms,
        candidates=candidates,
        evaluator=Evaluator(model.graph, task.gates, task.evaluation_data, baseline.run),
        noise=NoiseMeter(task.space, candidates, on_few),
        ranges=ranges,
        calibration=CalibrationPart(
            data=task.request.data,
            samples=len(task.calibration_data),
            method=method,
            requested_method=task.request.calibration,
            sqnr_by_method={name: finite(value) for name, value in by_method.items()},
        ),
    )


def _activations(task: Task) -> list[str]:
    """Tensors that some layout quantizes and whose range only data can tell."""
    edges = {
        edge for site in task.sites for layout in site.layouts.values() for edge in layout.quantize
    }
    return sorted({edge.tensor for edge in edges} - task.model.graph.initializers.keys())


def _compare_methods(
    task: Task,
    calibration: Calibration,
    inserter: Inserter,
    evaluator: Evaluator,
    observer: Observer,
) -> dict[str, float]:
    """SQNR in dB of the default placement by calibration method, on calibration data only."""
    requested = task.request.calibration
    if requested != AUTO:
        return {requested: math.nan}
    observer.stage("comparing calibration methods")
    placement = task.space.placement(task.space.defaults)
    found = {}
    for method in METHODS:
        ranges = calibration.ranges(method, task.pack.manifest.scheme)
        candidates = Candidates(task.model, task.engine, inserter, ranges)
        try:
            evaluation = evaluator.evaluate(candidates.compile(placement).run)
        except RunError as error:
            log.warning("calibration %s: %s", method, error)
            continue
        found[method] = evaluation.gates[0].value
    return found or {METHODS[0]: math.nan}


def _settings(task: Task) -> dict[str, Any]:
    """What must not change within a study, by the name that the user knows it by."""
    model, request = task.model, task.request
    return {
        "model": model.fingerprint,
        "input shapes": {name: list(shape) for name, shape in model.input_shapes.items()},
        "pack": f"{task.pack.name_and_version} {task.pack.fingerprint}",
        "engine": f"{task.engine.name} {task.engine.version}, {task.engine.device}",
        "calibration": request.calibration,
        "calibration data": f"{task.calibration_data.fingerprint}, {len(task.calibration_data)}",
        "evaluation data": f"{task.evaluation_data.fingerprint}, {len(task.evaluation_data)}",
        "gates": [gate.text() for gate in task.gates],
        "seed": request.seed,
    }


def _search(task: Task, study: Study, bench: Bench, observer: Observer) -> StopReason:
    request = task.request
    budget = request.budget
    if budget is None and request.timeout is None:
        budget = task.preset.budget
    deadline = None if request.timeout is None else time.monotonic() + request.timeout
    runner = TrialRunner(
        bench.candidates, bench.evaluator, bench.baseline, task.inputs, task.preset.rounds
    )

    def on_trial(record: TrialRecord) -> None:
        log.info("trial %d %s %s", record.number, record.kind, record.ratio or record.error)
        observer.trial(record, bench.baseline_ms)

    observer.search(budget, len(study.records()))
    try:
        return study.run(runner, bench.noise, budget=budget, deadline=deadline, on_trial=on_trial)
    except KeyboardInterrupt:
        observer.warn("interrupted: going on with the best so far (again to quit)")
        return "interrupted"


def _refuse_if_all_failed(records: Sequence[TrialRecord]) -> None:
    quantized = [record for record in records if record.placement_id != EMPTY.id]
    if quantized and all(record.ratio is None for record in quantized):
        raise RunError(f"the engine refused every candidate; the first: {quantized[0].error}")


def _final(
    task: Task, records: Sequence[TrialRecord], bench: Bench, observer: Observer
) -> Final[TrialRecord] | None:
    """Race the fastest candidates that meet the gates; None if there are none."""
    best = [r for r in by_latency(records) if r.placement_id != EMPTY.id]
    if not best:
        return None
    finalists = [
        Finalist(record, bench.candidates.compile(task.space.placement(record.choices)))
        for record in best[: task.preset.finalists]
    ]
    preset = task.preset
    observer.stage(f"racing {len(finalists)} finalists")
    winner = race(task.engine, finalists, task.inputs, preset.race_rounds, preset.races)
    observer.stage("confirming the winner against the float model")
    return confirm(task.engine, winner, bench.baseline, task.inputs, preset.confirm_rounds)


def _verdict(final: Final[TrialRecord] | None) -> Verdict:
    if final is None:
        return "gate not met"
    return "faster" if final.is_faster else "no difference"


def _result(
    task: Task,
    records: Sequence[TrialRecord],
    bench: Bench,
    final: Final[TrialRecord] | None,
    stopped: StopReason,
) -> Result:
    request, model, manifest = task.request, task.model, task.pack.manifest
    verdict = _verdict(final)
    warnings = list(task.warnings)
    if final is not None and verdict == "no difference":
        warnings.append(_no_difference_sentence(final))
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
        budget=BudgetPart(trials=request.budget, timeout_s=request.timeout, stopped=stopped),
        sites=len(task.sites),
        decisions=len(task.space.groups),
        trials=[_trial_part(record, bench.baseline_ms) for record in records],
        baseline=_baseline_part(bench, final),
        best=_best_part(task, bench, final),
        warnings=warnings,
        versions=dict(versions()),
    )


def _trial_part(record: TrialRecord, baseline_ms: float) -> TrialPart:
    measured = record.ratio is not None
    return TrialPart(
        number=record.number,
        kind=record.kind,
        placement=record.placement_id,
        state="failed" if not measured else "complete" if record.feasible else "gate missed",
        latency_ms=record.ratio * baseline_ms if record.ratio is not None else None,
        latency=LatencyPart(**record.details["latency"]) if measured else None,
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
    placement = _placement(task, final)
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


def _placement(task: Task, final: Final[TrialRecord]) -> Placement:
    return task.space.placement(final.entry.choices) if final.is_faster else EMPTY


def _write(
    task: Task, folder: Path, result: Result, final: Final[TrialRecord] | None, bench: Bench
) -> None:
    if final is not None:
        placement = _placement(task, final)
        proto = bench.candidates.build(placement)
        onnx.helper.set_model_props(proto, {**_properties(proto), "placer.placement": placement.id})
        save_model(proto, task.model.base_dir, folder / "optimized.onnx")
        text = placement_text(
            placement,
            bench.ranges,
            result.scheme,
            model=task.model.fingerprint,
            pack=task.pack.name_and_version,
        )
        write_text(folder / "placement.yaml", text)
    result.write(folder / "result.json")


def _properties(proto: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def _no_difference_sentence(final: Final[TrialRecord]) -> str:
    ratio = final.ratio
    return (
        f"the fastest candidate that meets the gates takes {ratio.median:.3f} of the float "
        f"model's time (95% interval {ratio.low:.3f} to {ratio.high:.3f}), which is no clear "
        "gain; the float model is the result"
    )


def _gate_sentence(task: Task, records: Sequence[TrialRecord]) -> str:
    gates = ", ".join(gate.text() for gate in task.gates)
    quantized = [r for r in records if r.placement_id != EMPTY.id and r.ratio is not None]
    if not quantized:
        return f"no quantized candidate was measured, so none meets {gates}; raise --budget"
    closest = min(quantized, key=lambda record: record.violation)
    values = ", ".join(f"{gate['gate']} has {gate['value']}" for gate in closest.details["gates"])
    return (
        f"none of {len(quantized)} quantized candidates meets {gates}; the closest: {values}; "
        "relax the gate or raise --budget"
    )


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Keep placer's log messages in ``path`` while the run lasts."""
    root = logging.getLogger("placer")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
