"""``placer.sensitivity``: where the accuracy goes, and what each decision saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import get_args

from placer.calibration.collect import default_cache_dir
from placer.common.custom_ops import libraries_held
from placer.common.files import text_of_source
from placer.common.names import texts_of, unknown
from placer.common.shapes import GivenShape, given_ranges
from placer.errors import InputError
from placer.graph.port_arithmetic import numeric_outputs
from placer.optimizer.api import Overrides, overrides_of
from placer.optimizer.observer import Observer, observer_of
from placer.optimizer.options.request import (
    BaseOption,
    Calibration,
    Preset,
    Ranges,
    Request,
    WeightRangeOption,
)
from placer.optimizer.setup.auto_scheme import resolve_schemes
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.probing.engine_choice import on_chosen_engine
from placer.probing.noise_cache import NoiseCache
from placer.probing.probes import Probes, probe, saved
from placer.probing.subjects import subjects
from placer.results.sensitivity import Kind, Sensitivity
from placer.version import __version__

KINDS: tuple[Kind, ...] = get_args(Kind)
SAMPLES = 16


def sensitivity(
    model: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    eval_data: str | PathLike[str] | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    fix: Mapping[str, float] | None = None,
    by: str | Sequence[str] = KINDS,
    samples: int = SAMPLES,
    measure: bool = False,
    engine: str = Request.engine,
    threads: int = Request.threads,
    device: str | None = Request.device,
    engine_options: Mapping[str, str] | None = None,
    gpu: str | None = Request.gpu,
    pack: str | None = Request.pack,
    scheme: str | None = Request.scheme,
    weight_range: WeightRangeOption = Request.weight_range,
    base: BaseOption | None = Request.base,
    calibration: Calibration = Request.calibration,
    ranges: Ranges = Request.ranges,
    overrides: Overrides = Request.overrides,
    exclude: str | Sequence[str] = Request.exclude,
    only: str | Sequence[str] = Request.only,
    preset: Preset = Request.preset,
    seed: int = Request.seed,
    cache: bool = True,
    observer: Observer | None = None,
) -> Sensitivity:
    """Measure the noise that each site, group and rule causes at each part of the outputs.

    Each is quantized alone, all else float, and taken out of the pack's default placement.
    ``by``: ``rule``, ``group`` or ``site``, or several of them. ``samples``: at most so many of the
    evaluation data. ``measure``: measure what each saves, too; an engine that estimates always
    tells. ``engine``: ``auto`` is the one that ``placer.optimize`` would take with its default
    gates; unlike there, the pack's own scheme stands unless ``scheme`` says otherwise. ``cache``:
    keep the engine and what is measured in the user's cache, so that the same call resumes.
    ``observer`` is told how it goes on. Other keywords are those of ``placer.optimize``.

    Raises InputError for wrong input and RunError if the engine refuses the default placement.
    """
    kinds = _kinds(by)
    if samples < 1:
        raise InputError(f"`samples` is {samples}; give 1 or more")
    request = Request(
        model=Path(model),
        shape_ranges=given_ranges(shapes),
        fix=dict(fix or {}),
        data=None if data is None else text_of_source(data),
        evaluation_data=None if eval_data is None else text_of_source(eval_data, "eval_data"),
        engine=engine,
        threads=threads,
        device=device,
        engine_options=dict(engine_options or {}),
        gpu=gpu,
        pack=pack,
        scheme=scheme,
        weight_range=weight_range,
        base=base,
        calibration=calibration,
        ranges=ranges,
        overrides=overrides_of(overrides),
        exclude=texts_of(exclude),
        only=texts_of(only),
        preset=preset,
        seed=seed,
        cache_dir=default_cache_dir() if cache else None,
    )
    observer = observer_of(observer)
    schemes = resolve_schemes(request, observer)
    task = prepare(on_chosen_engine(request, observer, schemes), observer, schemes=schemes)
    if not numeric_outputs(task.judged.graph):
        raise InputError(
            f"{model} has no float output, nor scores before it that are known, at which noise "
            "could be measured; export its scores as a tensor"
        )
    task = replace(task, gates=(), evaluation_data=task.evaluation_data.limit(samples))
    return _found(task, set_up(task, observer), kinds, measure, observer)


def _kinds(by: str | Sequence[str]) -> tuple[Kind, ...]:
    asked = texts_of(by)
    for kind in asked:
        if kind not in KINDS:
            raise InputError(unknown("`by`", kind, KINDS))
    return tuple(kind for kind in KINDS if kind in asked)


def _found(
    task: Task, setup: TrialSetup, kinds: Sequence[Kind], measure: bool, observer: Observer
) -> Sensitivity:
    chosen = subjects(task.space, kinds)
    timed = measure or task.engine.estimated
    probes = Probes(setup, NoiseCache(task.request.cache_dir, _context(task, setup)))
    total, done = len(chosen) * (2 if timed else 1), 0

    def tell() -> None:
        nonlocal done
        done += 1
        observer.progress(done, total)

    floats, default = (task.space.placement(c) for c in (task.space.floats, task.space.defaults))
    observer.stage(f"probing {len(chosen)} rules, groups and sites")
    parts = probe(task, probes, chosen, tell)
    if timed:
        times = saved(task, setup, chosen, task.preset.rounds, tell)
        parts = [
            part.model_copy(update={"saves": time}) for part, time in zip(parts, times, strict=True)
        ]
    return Sensitivity(
        model=str(task.model.path),
        engine=task.engine.name,
        version=task.engine.version,
        estimated=task.engine.estimated,
        pack=task.pack.name_and_version,
        calibrated=not task.calibration_data.synthetic,
        samples=len(task.evaluation_data),
        floats=dict(probes.noises(floats)),
        default=dict(probes.noises(default)),
        probes=len(probes.measured),
        known=len(probes.known),
        subjects=sorted(parts, key=lambda p: (KINDS.index(p.kind), -p.worst_alone[0])),
        warnings=list(task.warnings),
    )


def _context(task: Task, setup: TrialSetup) -> list[object]:
    """All that the noise of a placement depends on besides the placement."""
    engine = task.engine
    return [
        __version__,
        task.model.fingerprint,
        {name: list(shape) for name, shape in task.model.input_shapes.items()},
        [engine.name, engine.version, engine.device, task.base],
        task.pack.manifest.scheme.model_dump(),
        setup.calibrated.to_json(),
        task.evaluation_data.fingerprint,
        *libraries_held(),
    ]
