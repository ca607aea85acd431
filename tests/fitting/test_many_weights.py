"""From how many weights on layers take more, and how much, found in the times of builds."""

from collections.abc import Callable

import numpy as np
import pytest

from placer.fitting.builds import Build, Network
from placer.fitting.costs import fit_costs
from placer.fitting.estimates import estimate
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part

MANY_MB, BESIDES_US, US_PER_MB = 8.0, 20.0, 100.0
US_PER_MOP = {"float": 20.0, "uint8": 5.0}


def layer(dtype: str, mops: float, weights_mb: float) -> tuple[Part, ...]:
    size = weights_mb if dtype == "float" else weights_mb / 4
    conv = Part(CostKey("conv", dtype), 1.0, mops, 0.0, 0.0)
    return (conv, Part(WEIGHTS, 1.0, 0.0, size, 0.0))


def without(plan: tuple[tuple[Part, ...], ...]) -> float:
    return sum(US_PER_MOP[conv.key.dtype] * conv.mops for conv, _ in plan)


def with_excess(plan: tuple[tuple[Part, ...], ...]) -> float:
    beyond = min(max(sum(weights.read_mb for _, weights in plan) / MANY_MB - 1, 0), 1)
    besides = sum(BESIDES_US + US_PER_MB * weights.read_mb for _, weights in plan)
    return without(plan) + beyond * besides


def network(seed: int, true_us: Callable[[tuple[tuple[Part, ...], ...]], float]) -> Network:
    """Eight layers in float, all of them quantized, and half of them; every third one is large."""
    rng = np.random.default_rng(seed)
    largest = 8.0 if seed % 3 == 0 else 0.2
    work = rng.uniform((0.5, largest / 4), (5, largest), (8, 2)).tolist()
    builds = []
    for label, quantized in (("float", 0), ("default", 8), ("random 1", 4)):
        types = ["uint8"] * quantized + ["float"] * (8 - quantized)
        plan = tuple(layer(dtype, *own) for dtype, own in zip(types, work, strict=True))
        builds.append(Build(label, true_us(plan), plan))
    return Network(f"network {seed}", tuple(builds))


def test_in_networks_with_many_weights_layers_take_more_and_most_those_with_many():
    table = fit_costs([network(seed, with_excess) for seed in range(1, 31)])
    assert table.many_weights_mb == pytest.approx(MANY_MB, rel=0.3)
    found = table.find(CostKey("many weights", "float"))
    assert found.fixed_us + 2 * found.us_per_mb_read == pytest.approx(
        BESIDES_US + 2 * US_PER_MB, rel=0.2
    )
    # Nothing tells what operations would take besides, and nothing is said of it.
    assert (found.us_per_mop, found.us_per_mb_written) == (0, 0)
    large = network(0, with_excess)
    assert without(large.builds[0].plan) < 0.6 * large.builds[0].us
    measured = [build.us for build in large.builds]
    assert estimate(table, large) == pytest.approx(measured, rel=0.1)


def test_where_layers_take_the_same_with_many_weights_nothing_is_added():
    table = fit_costs([network(seed, without) for seed in range(1, 31)])
    for build in network(0, without).builds:
        assert sum(table.plan_us(build.plan)) == pytest.approx(build.us, rel=0.02)
