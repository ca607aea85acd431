"""What memory takes to bring weights, and how many a cache keeps, found in the times of builds."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from placer.fitting.costs import fit_costs
from placer.fitting.equations import Build, Network
from placer.fitting.leave_out import estimate
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part

KEPT_MB, US_PER_MB = 8.0, 100.0
US_PER_MOP = {"float": 20.0, "uint8": 5.0}


def layer(dtype: str, mops: float, weights_mb: float) -> tuple[Part, ...]:
    size = weights_mb if dtype == "float" else weights_mb / 4
    conv = Part(CostKey("conv", dtype), 1.0, mops, 0.0, 0.0)
    return (conv, Part(WEIGHTS, 1.0, 0.0, size, 0.0))


def kept(plan: tuple[tuple[Part, ...], ...]) -> float:
    return sum(US_PER_MOP[conv.key.dtype] * conv.mops for conv, _ in plan)


def waited(plan: tuple[tuple[Part, ...], ...]) -> float:
    missing = min(max(sum(weights.read_mb for _, weights in plan) / KEPT_MB - 1, 0), 1)
    total = 0.0
    for conv, weights in plan:
        us = US_PER_MOP[conv.key.dtype] * conv.mops
        total += us + missing * (math.hypot(us, US_PER_MB * weights.read_mb) - us)
    return total


def network(
    seed: int, true_us: Callable[[tuple[tuple[Part, ...], ...]], float], light: int = 0
) -> Network:
    """Eight layers in float, all of them quantized, and half of them; every third one is large.

    ``light``: how many more layers in float it has, with hardly any weights.
    """
    rng = np.random.default_rng(seed)
    largest = 8.0 if seed % 3 == 0 else 0.2
    work = rng.uniform((0.5, largest / 4), (5, largest), (8, 2)).tolist()
    builds = []
    for label, quantized in (("float", 0), ("default", 8), ("random 1", 4)):
        types = ["uint8"] * quantized + ["float"] * (8 - quantized)
        own = [layer(dtype, *sizes) for dtype, sizes in zip(types, work, strict=True)]
        plan = (*own, *([layer("float", 1.0, 0.01)] * light))
        builds.append(Build(label, true_us(plan), plan))
    return Network(f"network {seed}", tuple(builds))


def test_weights_that_no_cache_keeps_take_what_memory_takes_to_bring_them():
    table = fit_costs([network(seed, waited) for seed in range(1, 31)])
    assert table.memory.kept_mb == pytest.approx(KEPT_MB, rel=0.3)
    assert table.memory.us_per_mb == pytest.approx(US_PER_MB, rel=0.3)
    large = network(0, waited)
    assert kept(large.builds[0].plan) < 0.6 * large.builds[0].us
    measured = [build.us for build in large.builds]
    assert estimate(table, large) == pytest.approx(measured, rel=0.1)


def test_layers_take_longer_in_caches_that_weights_have_emptied():
    def true_us(plan: tuple[tuple[Part, ...], ...]) -> float:
        """As ``waited``, and 50 us more for each float layer where all weights are missing."""
        missing = min(max(sum(weights.read_mb for _, weights in plan) / KEPT_MB - 1, 0), 1)
        return waited(plan) + 50 * missing * sum(conv.key.dtype == "float" for conv, _ in plan)

    table = fit_costs([network(seed, true_us, seed % 9) for seed in range(1, 31)])
    assert table.find(CostKey("cold caches", "float")).fixed_us > 10
    large = network(0, true_us, 5)
    measured = [build.us for build in large.builds]
    assert estimate(table, large) == pytest.approx(measured, rel=0.1)


def test_where_all_weights_stay_in_a_cache_nothing_waits_for_them():
    table = fit_costs([network(seed, kept) for seed in range(1, 31)])
    for build in network(0, kept).builds:
        assert sum(table.plan_us(build.plan)) == pytest.approx(build.us, rel=0.02)
