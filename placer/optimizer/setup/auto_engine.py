"""``auto`` on a CPU: which engine, and which base precision.

Both depend on the model: on some CPUs bfloat16 alone is faster than INT8 beside float, on others it
is not there. So each combination is measured and judged with what is known before any search: the
float model and the default placement tell the engine. The base precision is decided by the search;
the float model, which candidates are held against, has the one that is fastest without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from placer.calibration.collect import METHODS, calibrate
from placer.engines.base import Compiled
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.engines.registry import ComparesBases, Registry, measures_throughput
from placer.engines.select import BUILT_IN
from placer.engines.times import measured_seconds
from placer.errors import InputError, PlacerError, RunError
from placer.optimizer.observer import Observer, QuietObserver
from placer.optimizer.options.option_values import check_values
from placer.optimizer.options.request import AUTO, Base, Request
from placer.optimizer.setup.auto_scheme import SHARE_OF_TIME, schemes_of_defaults
from placer.optimizer.setup.calibrated import activations_of, ranges_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import bases_begun, study_settings
from placer.optimizer.setup.task import Schemes, Task
from placer.optimizer.setup.trial_setup import candidates_before_trials, evaluator_of
from placer.optimizer.time_limit import UNLIMITED, TimeLimit
from placer.qdq.bases import parse_base
from placer.quantization import EMPTY

log = logging.getLogger(__name__)

# Engines that measure on a CPU; the first is taken where they are equally fast.
CPU_ENGINES = ("openvino", "onnxruntime")
# Rounds in which contenders take turns: a processor's clock drifts, by a third within seconds where
# others use it, and what is measured in blocks of several rounds differs by that, too.
_ROUNDS = 15


@dataclass(frozen=True, eq=False)
class _Contender:
    """An engine and base precision that the request may stand for, and what to measure there.

    ``compiled``: what meets the gates of the float model and the default placement.
    ``has_float``: whether the first of these is the float model.
    """

    request: Request
    task: Task
    compiled: Sequence[Compiled]
    has_float: bool

    @property
    def name(self) -> str:
        return _name(self.request)


def _name(request: Request) -> str:
    return request.engine if request.base is None else f"{request.engine} in {request.base}"


@dataclass(frozen=True)
class Resolved:
    """What a request stands for.

    ``bases``: the base precisions that the search decides between, that of the float model first;
    none if nothing is left open. ``schemes``: see ``Task``; None where none were compared.
    """

    request: Request
    bases: tuple[Base, ...] = ()
    schemes: Schemes | None = None


def leaves_open(request: Request) -> bool:
    """Whether there are engines or bases to compare; raises as ``resolve_engine_and_base``."""
    check_values(request)
    return list(_choices(request)) != [request]


def resolve_engine_and_base(
    request: Request, observer: Observer, schemes: Schemes = (), limit: TimeLimit = UNLIMITED
) -> Resolved:
    """``request`` with the engine named, and what else was found for it.

    A study that was begun keeps what it was begun with. ``schemes``: see ``Task``. ``limit``: of
    the run's time; what comes late in it is not compared. Raises InputError if the engine has no
    choice of the base, and what ``prepare`` raises if no choice can be used.
    """
    if not leaves_open(request):
        return Resolved(request)
    choices = list(_choices(request))
    begun = study_settings(request)
    if begun is not None:
        return _as_begun(request, choices, begun)
    contenders = _contenders(choices, observer, schemes, limit)
    if len(contenders) == 1:
        return Resolved(contenders[0].request, (), contenders[0].task.schemes)
    times = _times(contenders)
    fastest = [min(times_of_one) for times_of_one in times]
    best = contenders[fastest.index(min(fastest))]
    listed = ", ".join(
        f"{contender.name} {_time_text(seconds, request)}"
        for contender, seconds in zip(contenders, fastest, strict=True)
    )
    observer.stage(
        f"{best.name} is the fastest here (the faster of float model and default placement that "
        f"meets the gates: {listed})"
    )
    bases = _bases(best.request, contenders, times)
    if not bases:
        return Resolved(best.request, (), best.task.schemes)
    observer.stage(f"the search decides on the base precision; the float model is in {bases[0]}")
    return Resolved(replace(best.request, base="auto"), bases, best.task.schemes)


def _bases(
    chosen: Request, contenders: Sequence[_Contender], times: Sequence[Sequence[float]]
) -> tuple[Base, ...]:
    """The base precisions of the chosen engine, in the order of their float models' times.

    One in which the float model misses a gate, or is refused, is none.
    """
    timed = [
        (times_of_one[0], contender.request.base)
        for contender, times_of_one in zip(contenders, times, strict=True)
        if contender.request.engine == chosen.engine and contender.has_float
    ]
    bases = [parse_base(base) for _, base in sorted(timed, key=itemgetter(0)) if base is not None]
    return tuple(bases) if len(bases) > 1 and chosen.base in bases else ()


def _time_text(seconds: float, request: Request) -> str:
    if request.objective == "throughput":
        return f"{1 / seconds:.3g} inferences/s"
    return f"{1e3 * seconds:.3g} ms"


def _choices(request: Request) -> Iterator[Request]:
    """What ``request`` may stand for, ``request`` itself if there is nothing to choose."""
    for engine in _engines(request):
        if request.base != AUTO:
            yield replace(request, engine=engine)
        elif bases := _bases_of(engine):
            for base in bases:
                yield replace(request, engine=engine, base=base)
        elif request.engine == AUTO:
            yield replace(request, engine=engine, base=None)
        else:
            able = " or ".join(n for n, f in BUILT_IN.items() if isinstance(f, ComparesBases))
            raise InputError(
                f"`base` auto is for engines with a choice of it, such as {able}; name the type "
                f"that {engine} is to use"
            )


def _bases_of(engine: str) -> tuple[Base, ...]:
    """What `base` auto compares on ``engine``; nothing where it leaves no choice."""
    if engine == AUTO:
        return ()
    factory = Registry.installed(BUILT_IN).factory(engine)
    return factory.bases if isinstance(factory, ComparesBases) else ()


def _engines(request: Request) -> Sequence[str]:
    """The engines to compare; none are where another option is meant for one of them."""
    if request.engine == AUTO and request.objective == "throughput":
        return [name for name, f in BUILT_IN.items() if measures_throughput(f)]
    if request.engine != AUTO or request.pack or request.engine_options or request.scheme:
        return [request.engine]
    registry = Registry.installed(BUILT_IN)
    if request.export is not None:
        return [request.export]  # Called after the engine that has judged it.
    first, _, _ = registry.resolve(AUTO)
    if first not in CPU_ENGINES or request.base not in (None, AUTO):
        return [request.engine]
    there = [name for name in CPU_ENGINES if registry.factory(name).unavailable() is None]
    return there if len(there) > 1 or request.base == AUTO else [request.engine]


def _as_begun(request: Request, choices: Sequence[Request], begun: Mapping[str, Any]) -> Resolved:
    """The choice that a study with the settings ``begun`` was made with."""
    engine, base = str(begun.get("engine", "")).split(" ")[0], begun.get("base")
    bases = bases_begun(begun)
    if bases and request.base == AUTO:
        return Resolved(replace(request, engine=engine), bases)
    for choice in choices:
        if choice.engine == engine and choice.base in (None, base):
            return Resolved(choice)
    return Resolved(choices[0])  # Opening the study tells what does not fit.


def _contenders(
    choices: Sequence[Request], observer: Observer, schemes: Schemes, limit: TimeLimit
) -> list[_Contender]:
    """Those that can be used; raises the first reason if there are none.

    Once one is found, no other is looked at that would end after its part of the time limit.
    """
    contenders: list[_Contender] = []
    reasons: list[PlacerError] = []
    observer.stage("comparing " + " and ".join(dict.fromkeys(c.engine for c in choices)))
    longest = 0.0
    for number, choice in enumerate(choices):
        start = time.monotonic()
        if contenders and start + longest >= limit.after(SHARE_OF_TIME):
            left = ", ".join(_name(other) for other in choices[number:])
            observer.warn(f"the time limit left no time to compare {left}")
            break
        try:
            contenders.append(_contender(choice, schemes, observer, limit))
        except PlacerError as error:
            log.info("%s, base %s, is left out: %s", choice.engine, choice.base, error)
            reasons.append(error)
        longest = max(longest, time.monotonic() - start)
    if not contenders:
        raise reasons[0]
    return contenders


def _contender(
    request: Request, schemes: Schemes, observer: Observer, limit: TimeLimit
) -> _Contender:
    task = prepare(request, QuietObserver(), schemes=schemes, limit=limit)
    if not schemes and (schemes := schemes_of_defaults(task, observer)):
        task = prepare(request, QuietObserver(), schemes=schemes, limit=limit)
    model = task.judged.model
    few = task.calibration_data.limit(task.preset.noise_samples)
    reference = OnnxRuntimeModel(model.proto, model.base_dir, request.threads).run
    evaluator = evaluator_of(task, reference)
    calibration = calibrate(task.model, activations_of(task), few, request.cache_dir)
    candidates = candidates_before_trials(task, ranges_of(task, calibration, METHODS[0]))
    compiled_of: dict[str, Compiled] = {}
    for placement in (EMPTY, task.space.placement(task.space.defaults)):
        try:
            compiled = candidates.compile(placement)
            candidates.verify(placement, compiled, task.inputs)
            exact = placement == EMPTY and request.base in (None, "float")
            if exact or evaluator.evaluate(candidates.judged_run(placement, compiled)).passed:
                compiled_of[placement.id] = compiled
        except RunError as error:
            log.info("%s refuses a candidate: %s", task.engine.name, error)
    if not compiled_of:
        raise RunError(f"engine {task.engine.name} runs nothing that meets the gates")
    return _Contender(request, task, list(compiled_of.values()), EMPTY.id in compiled_of)


def _times(contenders: Sequence[_Contender]) -> list[list[float]]:
    """Seconds of the models of each, measured in turn."""
    seconds: list[list[np.ndarray]] = [[] for _ in contenders]
    for _ in range(_ROUNDS):
        for contender, rounds in zip(contenders, seconds, strict=True):
            task = contender.task
            rounds.append(measured_seconds(task.engine, contender.compiled, task.inputs, 1))
    return [np.median(np.vstack(rounds), axis=0).tolist() for rounds in seconds]
