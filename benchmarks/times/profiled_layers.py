"""Layers of published engines with the times that they took, as far as profiles tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.plans import reference_engines as engines
from placer.plan.diff import diff_plans
from placer.prediction.times.gpus import Gpu, load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import gpu_work
from placer.prediction.times.work import Work


@dataclass(frozen=True)
class Sample:
    """One layer of an engine: its work and its share of the engine's time, in microseconds."""

    engine: str
    gpu: Gpu
    work: Work
    us: float
    engine_us: float


def profiler_us(entry: engines.Engine, known: Sequence[engines.Engine]) -> float:
    """What the profiler adds to each layer of ``entry``, in microseconds.

    It synchronises around every layer, so the times of all layers sum to more than the engine
    takes. In the profile of a single run the first layer is slow besides: there it is the least by
    which the profile of an engine of the same network among ``known`` exceeds it, for each layer.
    """
    alike = [entry]
    if entry.is_one_run:
        same = (e for e in known if engines.network(e) == engines.network(entry) and e.is_one_run)
        alike += same
    return min(_excess_us(e) / len(_times(e)) for e in alike)


@cache
def samples(entry: engines.Engine, extra_us: float) -> tuple[Sample, ...]:
    """The built layers that were predicted with the same nodes or, if conversions, place.

    ``extra_us``: what the profiler added to each. What is left of the excess was added to the first
    layer: only then does converting an image take as many cycles per element on the A100, where it
    is the first layer, as on an RTX 3090, where it is not (1.2 to 1.8, else 1.2 to 2.8).
    """
    prediction, actual = entry.predict(), entry.actual()
    by_name = {layer.layer.name: layer for layer in reversed(prediction.layers)}
    diff = diff_plans(prediction.plan, actual)
    same_nodes = (*diff.matched, *(pair for pair in diff.other_types if not pair.same_class))
    pairs = [(pair.predicted, pair.actual) for pair in same_nodes]
    pairs += [pair for conversion in diff.conversions for pair in conversion.shared]
    gpu, found = load_gpu(entry.gpu), []
    first = next(layer for layer in actual.layers if layer.time_us)
    cold_us = max(0.0, _excess_us(entry) - extra_us * len(_times(entry)))
    least_us = load_layer_classes().launch_us(gpu)
    for one, other in pairs:
        work = gpu_work(by_name[one.name], entry.graph)
        if work is not None and other.time_us:
            us = other.time_us - extra_us - (cold_us if other is first else 0.0)
            found.append(Sample(entry.name, gpu, work, max(us, least_us), 1e3 * entry.median_ms))
    return tuple(found)


@cache
def _times(entry: engines.Engine) -> tuple[float, ...]:
    return tuple(layer.time_us for layer in entry.actual().layers if layer.time_us)


def _excess_us(entry: engines.Engine) -> float:
    return max(0.0, sum(_times(entry)) - 1e3 * entry.median_ms)
