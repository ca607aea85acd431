"""``--scheme auto``: which number format.

Whether products with zero points cost time depends on the CPU, and so does whether an engine
computes with signed activations as it should. So the default placement is built in each of the
pack's schemes, compared with what ONNX Runtime makes of the same file, and measured in turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from placer.accuracy.evaluator import Evaluator
from placer.calibration.collect import METHODS, calibrate
from placer.common.statistics import paired_ratio, still_in
from placer.engines.abilities import target_of
from placer.engines.base import Compiled
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.engines.times import measured_seconds
from placer.errors import InputError, RunError
from placer.optimizer.observer import Observer, QuietObserver
from placer.optimizer.options.request import AUTO, Request
from placer.optimizer.setup.calibrated import activations_of, ranges_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import schemes_begun, study_settings
from placer.optimizer.setup.task import Schemes, Task
from placer.optimizer.setup.trial_setup import candidates_before_trials
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.rules.sites import place

log = logging.getLogger(__name__)

# An engine whose outputs have this many dB more noise than ONNX Runtime's of the same file computes
# something else; builds that only round otherwise are within 1 dB.
WRONG_DB = 3.0
# Of the time limit, what comparing engines, bases and schemes unasked may take.
SHARE_OF_TIME = 0.15


@dataclass(frozen=True, eq=False)
class _Built:
    """The default placement in a scheme. ``name``: None is the pack's own. ``sqnr``: in dB."""

    name: str | None
    compiled: Compiled
    sqnr: float

    @property
    def text(self) -> str:
        """The name as users read it."""
        return scheme_text(self.name)


def resolve_schemes(request: Request, observer: Observer) -> Schemes:
    """What ``scheme`` auto stands for: the scheme that is the fastest here, then the others.

    Of schemes that are equally fast, the most accurate. There are none if the request is not open.
    Those that the engine computes wrongly are left out. A study that was begun keeps its schemes.
    Raises InputError if the engine is open, too, if an override pins a scale, or if the pack has
    one scheme only, and what ``prepare`` raises.
    """
    if request.scheme != AUTO:
        return ()
    if request.engine == AUTO:
        raise InputError("`scheme` auto compares the schemes of one engine; name the `engine`")
    if any(one.scale is not None for one in request.overrides):
        raise InputError(
            "`overrides`: a scale belongs to one scheme, and `scheme` auto may end in another; "
            "name the scheme, or give a range"
        )
    begun = study_settings(request)
    if begun is not None:
        # One that was begun without `auto` is refused as all with other settings are.
        return schemes_begun(begun) or (None,)
    base = None if request.base == AUTO else request.base
    task = prepare(replace(request, scheme=None, base=base), QuietObserver())
    if not task.engine.verified:
        raise InputError(
            "`scheme` auto needs an engine whose outputs are compared with ONNX Runtime's, as "
            f"openvino; with engine {task.engine.name} name the scheme"
        )
    names = _alternatives(task)
    if not names:
        raise InputError(f"`scheme` auto: pack '{task.pack.manifest.name}' has one scheme only")
    return _compared(task, names, observer)


def schemes_of_defaults(task: Task, observer: Observer) -> Schemes:
    """As ``resolve_schemes`` where no scheme was asked for: none but for those that quantize more.

    Some layers read integers in one scheme only, so that the default placements differ. Where they
    do not, the pack's own scheme stands, and so it does, with a warning, where the time limit
    leaves no time. ``task`` is in that one.
    """
    request = task.request
    pinned = any(one.scale is not None for one in request.overrides)
    if request.scheme is not None or pinned or not task.engine.verified:
        return ()
    begun = study_settings(request)
    if begun is not None:
        return schemes_begun(begun)
    names = [name for name in _alternatives(task) if _quantizes_more(task, name)]
    if not names:
        return ()
    if time.monotonic() >= task.limit.after(SHARE_OF_TIME):
        observer.warn(f"the time limit left no time to compare number format {' and '.join(names)}")
        return ()
    found = _compared(task, names, observer)
    return () if found == (None,) else found


def _alternatives(task: Task) -> list[str]:
    """Names of the pack's other schemes.

    The default placement of one that offers more formats to single sites is in its own.
    """
    alternatives = task.pack.manifest.alternatives
    return sorted(n for n, alternative in alternatives.items() if not alternative.scheme.formats)


def _quantizes_more(task: Task, name: str) -> bool:
    """Whether the default placement has edges in scheme ``name`` that it lacks in the own one.

    FP8 is another matter than zero points, and never taken unasked.
    """
    if task.pack.manifest.alternatives[name].scheme.has_float8:
        return False
    target = target_of(task.engine)
    own, other = (
        place(sites_with_defaults(task.model.graph, pack, target), {}).edges
        for pack in (task.pack, in_scheme(task, name).pack)
    )
    return not other <= own


def _compared(task: Task, names: list[str], observer: Observer) -> Schemes:
    """The pack's own scheme and ``names``, the best one first, without those computed wrongly."""
    observer.stage(f"comparing number formats: the pack's own and {' and '.join(names)}")
    built = list(_built(task, [None, *names], observer))
    if not built:
        return (None,)
    best = _best(task, built, observer)
    return (best.name, *(one.name for one in built if one is not best))


def scheme_text(name: str | None) -> str:
    """A scheme as users read it."""
    return "the pack's own number format" if name is None else f"number format {name}"


def _built(task: Task, names: list[str | None], observer: Observer) -> Iterator[_Built]:
    """What the engine computes as ONNX Runtime does."""
    model, data = task.model, task.calibration_data.limit(task.preset.noise_samples)
    judged = task.judged
    reference = OnnxRuntimeModel(judged.model.proto, model.base_dir, task.request.threads).run
    evaluator = Evaluator(judged.graph, (), task.evaluation_data, reference)
    for name in names:
        scheme_task = task if name is None else _with_sites_of(task, name)
        placement = scheme_task.space.placement(scheme_task.space.defaults)
        activations = activations_of(scheme_task)
        calibration = calibrate(model, activations, data, task.request.cache_dir)
        ranges = ranges_of(scheme_task, calibration, METHODS[0])
        candidates = candidates_before_trials(scheme_task, ranges)
        try:
            compiled = candidates.compile(placement)
            sqnr = evaluator.evaluate(candidates.judged_run(placement, compiled)).sqnr
            expected = evaluator.evaluate(candidates.runner(placement)).sqnr
        except RunError as error:
            log.info("%s is left out: %s", scheme_text(name), error)
            continue
        if sqnr < expected - WRONG_DB:
            observer.stage(
                f"{scheme_text(name)} is left out: {task.engine.name} computes the default "
                f"placement at {sqnr:.1f} dB on this machine, ONNX Runtime the same file at "
                f"{expected:.1f} dB"
            )
            continue
        yield _Built(name, compiled, sqnr)


def _with_sites_of(task: Task, name: str) -> Task:
    """``task`` with the scheme ``name`` and what that lets be quantized, on the same engine."""
    prepared = prepare(replace(task.request, scheme=name), QuietObserver())
    return replace(prepared, engine=task.engine)


def in_scheme(task: Task, name: str | None) -> Task:
    """``task`` with the scheme ``name`` of its pack, for placements of its own sites."""
    pack = load_pack(task.request.pack or task.engine.rules)
    target = target_of(task.engine)
    if name is not None:
        pack = pack.with_scheme(name, target)
    return replace(task, pack=pack.with_weight_range(task.request.weight_range, target))


def _best(task: Task, built: list[_Built], observer: Observer) -> _Built:
    """The fastest, by interleaved rounds; the most accurate of those that are equally fast."""
    preset = task.preset
    compiled = [one.compiled for one in built]
    rounds = preset.race_rounds * preset.races
    seconds = measured_seconds(task.engine, compiled, task.inputs, rounds)
    kept = [built[i] for i in still_in(seconds)]
    best = max(kept, key=lambda one: one.sqnr)
    column = built.index(best)
    ratios = [paired_ratio(seconds[:, column], seconds[:, i]) for i in range(len(built))]
    others_text = "".join(
        f"; {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of the time that it takes in "
        f"{other.text}, at {other.sqnr:.1f} dB"
        for other, ratio in zip(built, ratios, strict=True)
        if other is not best
    )
    observer.stage(f"{best.text}: the default placement is at {best.sqnr:.1f} dB{others_text}")
    return best
