"""The ranges of a run: calibrated, and by the method of each tensor that harms outputs least."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import FiniteFloat, TypeAdapter

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import decibels, finite
from placer.calibration.collect import METHODS, Calibration, Progress, calibrate
from placer.calibration.methods import threshold
from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.options.request import AUTO
from placer.optimizer.setup.task import Task
from placer.qdq import Inserter
from placer.quantization import Range, Ranges
from placer.recovery.crossfit import CrossFit, Fold
from placer.recovery.destroyed_outputs import DESTROYED_NOISE, intact_choices
from placer.recovery.halves import Half, SplitCalibration, calibrate_halves
from placer.recovery.methods import Choice, Effort, choose, mixes, rank
from placer.recovery.simulation import Simulation
from placer.results.parts import CalibrationPart
from placer.search.out_of_time import OutOfTime
from placer.search.space import Choices

log = logging.getLogger(__name__)
_PAIRS = TypeAdapter(dict[str, tuple[FiniteFloat, FiniteFloat]])
MIXED = "mixed"
_LATE = "the time limit left no time"
# Of the time limit, so much has passed at most when statistics are complete, and when methods are
# compared.
_SHARE_OF_STATISTICS, _SHARE_OF_METHODS = 0.2, 0.35
# What statistics get of it however much has passed: all that follows rests on them.
_LEAST_SHARE = 0.05
# Batches besides those held back; see placer.recovery.methods.choose.
_LEAST_BATCHES = 16


@dataclass(frozen=True)
class Calibrated:
    """What calibration found: kept with a study, so that all its workers build the same models.

    ``ranges``: by the chosen method. ``plain``: by the first method, which the float model's own
    conversion to another type rests on; empty on engines that convert nothing.
    """

    ranges: Ranges
    plain: Ranges
    part: CalibrationPart

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``from_json`` reads; floats keep all their digits."""
        return {
            "ranges": {
                name: [float(low), float(high)] for name, (low, high) in self.ranges.items()
            },
            "plain": {name: [float(low), float(high)] for name, (low, high) in self.plain.items()},
            "part": self.part.model_dump(),
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Calibrated:
        """What ``to_json`` returned; raises ValueError or KeyError if it is damaged."""
        ranges, plain = (
            {name: Range(*pair) for name, pair in _PAIRS.validate_python(kept[key]).items()}
            for key in ("ranges", "plain")
        )
        if any(low > high for low, high in (*ranges.values(), *plain.values())):
            raise ValueError("a range ends before it begins")
        return Calibrated(ranges, plain, CalibrationPart.model_validate(kept["part"]))


def ranges_of(task: Task, calibration: Calibration, method: str) -> Ranges:
    """What the user pinned, then what an imported model had, then the ranges of ``method``."""
    scheme, imported = task.pack.manifest.scheme, task.model.imported
    calibrated = calibration.ranges(method, scheme)
    known = {} if imported is None else imported.ranges(scheme)
    return {**calibrated, **known, **_pinned(task, calibration)}


def _pinned(task: Task, calibration: Calibration) -> Ranges:
    """The ranges that overrides give, or that follow from the methods that they give."""
    scheme, pins = task.pack.manifest.scheme, task.pins
    by_method = {
        tensor: threshold(calibration.statistics[tensor], method, scheme)
        for tensor, method in pins.methods.items()
    }
    return {**by_method, **pins.ranges}


def activations_of(task: Task) -> list[str]:
    """Tensors that some layout quantizes and whose range only data can tell.

    Of an imported model those that had no scale, or whose method is pinned.
    """
    imported = task.model.imported
    kept = (imported.activations if imported else {}).keys() - task.pins.methods.keys()
    known = {*task.model.graph.initializers, *kept}
    return sorted({edge.tensor for edge in task.edges} - known)


def calibration_of(task: Task, observer: Observer) -> SplitCalibration:
    """Statistics of the calibration data; of its halves too where methods are to be compared."""
    activations, data, preset = activations_of(task), task.calibration_data, task.preset
    if activations:
        observer.stage(f"calibrating on {len(data)} samples")
    cache = task.request.cache_dir
    # A body of an If may run on the last sample only.
    late = task.limit.span(_SHARE_OF_STATISTICS, _LEAST_SHARE)
    until = math.inf if task.model.graph.scopes else late
    free = set(activations) - task.pins.by_tensor.keys()
    if task.request.calibration != AUTO or not free:
        whole = calibrate(task.model, activations, data, cache, observer.progress, until=until)
        return SplitCalibration(whole, ())
    batches = _LEAST_BATCHES + _effort(task).held_back
    few = data.limit(preset.noise_samples)
    progress = observer.progress
    return calibrate_halves(task.model, activations, data, few, batches, cache, progress, until)


def choose_ranges(
    task: Task, inserter: Inserter, data: SplitCalibration, reference: Run, observer: Observer
) -> Calibrated:
    """The ranges of the method that the request names, or of the best one of each tensor.

    ``reference``: what outputs are compared with.
    """
    requested = task.request.calibration
    choice, shortened = None, _shortened(task, data)
    if data.halves:
        observer.stage("comparing calibration methods")
        progress = _until(task.limit.after(_SHARE_OF_METHODS), observer.progress)
        try:
            progress(0, 1)
            choice, is_whole = _choice(task, inserter, data, reference, observer, progress)
            shortened += [] if is_whole else [f"{_LATE} to choose a method for each tensor"]
        except RunError as error:
            log.warning("calibration methods are not compared: %s", error)
        except OutOfTime:
            shortened.append(f"{_LATE} to compare calibration methods: ranges are by {METHODS[0]}")
    single = METHODS[0] if requested == AUTO else requested
    if choice is not None:
        single = choice.ranking.best
    converts = task.engine.remainder == "built"
    return Calibrated(
        ranges=_ranges(task, data.whole, choice, single),
        plain=ranges_of(task, data.whole, METHODS[0]) if converts else {},
        part=_part(task, data, choice, single, shortened),
    )


def _part(
    task: Task, data: SplitCalibration, choice: Choice | None, single: str, shortened: list[str]
) -> CalibrationPart:
    """What result.json says. ``single``: the method where tensors have no other."""
    ranking = {single: math.nan} if choice is None else choice.ranking.sqnr
    pinned = task.pins.by_tensor.keys()
    methods = {} if choice is None else choice.methods
    used = Counter(method for tensor, method in methods.items() if tensor not in pinned)
    mixed = len(used) > 1
    held_back = None if choice is None else choice.held_back
    return CalibrationPart(
        data=task.request.data,
        samples=data.whole.samples if activations_of(task) else len(task.calibration_data),
        method=MIXED if mixed else single,
        requested_method=task.request.calibration,
        sqnr_by_method={name: finite(value) for name, value in ranking.items()},
        tensors_by_method=dict(sorted(used.items())) if mixed else {},
        pinned=task.pins.sentences(),
        held_back_sqnr=None if held_back is None else [finite(value) for value in held_back],
        shortened=shortened,
    )


def _shortened(task: Task, data: SplitCalibration) -> list[str]:
    """What is said of samples for which no time was left."""
    samples = len(task.calibration_data)
    if not activations_of(task) or data.whole.samples == samples:
        return []
    return [f"{_LATE} to calibrate on more than {data.whole.samples} of {samples} samples"]


def _until(end: float, progress: Progress) -> Progress:
    """``progress``, which raises OutOfTime after ``end``, a ``time.monotonic`` time."""

    def report(done: int, total: int) -> None:
        progress(done, total)
        if done < total and time.monotonic() >= end:
            raise OutOfTime

    return report


def _ranges(task: Task, whole: Calibration, choice: Choice | None, single: str) -> Ranges:
    if choice is None:
        return ranges_of(task, whole, single)
    by_method = {name: ranges_of(task, whole, name) for name in {single, *choice.methods.values()}}
    mixed = {tensor: by_method[method][tensor] for tensor, method in choice.methods.items()}
    return {**by_method[single], **mixed}


def _effort(task: Task) -> Effort:
    """How much the preset spends; random inputs, and FP8 with its few methods, are not worth it."""
    samples = task.preset.noise_samples
    plain = task.calibration_data.synthetic or task.pack.manifest.scheme.has_float8
    groups = 0 if plain else task.preset.mixed_groups
    return Effort(max(1, samples // 4), 2 * samples if groups else 0, groups)


def _choice(
    task: Task,
    inserter: Inserter,
    data: SplitCalibration,
    reference: Run,
    observer: Observer,
    progress: Progress,
) -> tuple[Choice, bool]:
    """The choice on the default placement, or on as much of it as destroys no output.

    Where the default quantizes nothing, it is on all that may be quantized. Also whether nothing
    was left out of it. Raises OutOfTime if not even single methods were compared when ``progress``
    does.
    """
    # Entropy and MSE weigh the 255 even steps of INT8, which FP8 does not have.
    methods = METHODS[:2] if task.pack.manifest.scheme.has_float8 else METHODS
    folds = [_fold(task, half, methods, reference, progress) for half in data.halves]
    is_empty = not task.space.placement(task.space.defaults).edges
    compared = task.space.everything if is_empty else task.space.defaults
    crossfit = _crossfit(compared, task, inserter, folds)
    ranking = rank(crossfit, progress)
    if max(ranking.sqnr.values()) <= decibels(DESTROYED_NOISE):
        observer.stage("the default placement destroys an output; trying its groups one by one")
        del crossfit  # Its session holds the weights, and others are made.
        intact = _intact(task, inserter, folds, ranking.best, progress)
        crossfit = _crossfit(intact, task, inserter, folds)
        observer.stage("comparing calibration methods on the groups that destroy no output")
        ranking = rank(crossfit, progress)
    effort = _effort(task)
    if mixes(crossfit, effort):
        observer.stage("choosing a calibration method for each tensor")
    try:
        return choose(crossfit, effort, ranking, progress), True
    except OutOfTime:
        return Choice(crossfit.everywhere(ranking.best), ranking), False


def _intact(
    task: Task, inserter: Inserter, folds: list[Fold], method: str, progress: Progress
) -> Choices:
    """As much of the default placement as destroys no output."""
    tried = 0

    def noise(choices: Choices) -> float:
        nonlocal tried
        one = Simulation(inserter, task.space.placement(choices), _known(folds))
        alone = CrossFit(one, one, folds)
        noise_of = alone.noises(alone.everywhere(method), [0])
        tried += 1
        progress(tried, len(task.space.groups))
        return max(noise_of.values(), default=0.0)

    return intact_choices(task.space, noise)


def _fold(
    task: Task, half: Half, methods: tuple[str, ...], reference: Run, progress: Progress
) -> Fold:
    scheme, imported = task.pack.manifest.scheme, task.model.imported
    known = {} if imported is None else imported.ranges(scheme)
    pinned = _pinned(task, half.calibration)
    by_method: dict[str, Ranges] = {}
    for name in methods:  # Some take long to find the range of a tensor.
        by_method[name] = half.calibration.ranges(name, scheme)
        progress(0, 1)
    return Fold(
        ranges={
            name: {
                tensor: value_range
                for tensor, value_range in ranges.items()
                if tensor not in pinned
            }
            for name, ranges in by_method.items()
        },
        fixed={**known, **pinned},
        batches=[
            Evaluator(task.judged.graph, (), batch, reference, tell_silent=False)
            for batch in half.batches
        ],
    )


def _crossfit(choices: Choices, task: Task, inserter: Inserter, folds: list[Fold]) -> CrossFit:
    placement = task.space.placement(choices)
    known = _known(folds)
    alone = placement.without({edge for edge in placement.edges if inserter.is_weight(edge)})
    return CrossFit(
        Simulation(inserter, placement, known),
        Simulation(inserter, alone, known, switched=True),
        folds,
    )


def _known(folds: list[Fold]) -> Ranges:
    """Ranges of all tensors, by the first method."""
    return folds[0].of(dict.fromkeys(folds[0].ranges[METHODS[0]], METHODS[0]))
