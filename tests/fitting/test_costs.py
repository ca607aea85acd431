"""Costs from builds whose times are known, and the errors of networks that were left out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from placer.errors import RunError
from placer.fitting import processes
from placer.fitting.builds import WIDTH, Build, Network, ProfiledLayer
from placer.fitting.costs import fit_costs
from placer.fitting.equations import System
from placer.fitting.leave_out import (
    BuildPair,
    conformal_quantile,
    leave_out,
)
from placer.fitting.predicted import PredictedNetwork
from placer.fitting.records import BuildRecord, NetworkRecord
from placer.prediction.times.intervals import network_quantile
from placer.prediction.times.layer_parts import CostKey, Part

FLOAT, INTEGER, QUANTIZE = (
    CostKey("conv", "float"),
    CostKey("conv", "uint8"),
    CostKey("quantize", "float"),
)
# Microseconds for each layer, million operations, and megabytes read and written.
TRUE = {FLOAT: (2, 20, 0, 0), INTEGER: (3, 5, 0, 0), QUANTIZE: (1, 0, 100, 200)}


def part(key: CostKey, mops: float, mb: float) -> Part:
    return Part(key, 1, mops, mb, mb / 2)


def true_us(parts: tuple[Part, ...]) -> float:
    return sum(float(np.dot(p[1:], TRUE[p.key])) for p in parts)


def built(layers: Sequence[Part], times: tuple[ProfiledLayer, ...]) -> Build:
    """A float build of layers of one part each."""
    return Build("float", true_us(tuple(layers)), tuple((one,) for one in layers), times)


def network(seed: int) -> Network:
    """Some layers in float, all of them quantized, and half of them."""
    rng = np.random.default_rng(seed)
    work = [(float(mops), float(mb)) for mops, mb in rng.uniform((1, 0.01), (30, 0.2), (5, 2))]
    builds = []
    for label, quantized in (("float", 0), ("default", 5), ("random 1", int(rng.integers(1, 5)))):
        layers = [part(INTEGER if i < quantized else FLOAT, *w) for i, w in enumerate(work)]
        conversions = [part(QUANTIZE, 0, mb) for _, mb in work[:quantized]]
        parts = (*layers, *conversions)
        builds.append(Build(label, true_us(parts), (parts,)))
    return Network(f"network {seed}", tuple(builds))


NETWORKS = tuple(map(network, range(16)))


def quantized_builds_off(found: Network, factor: float) -> Network:
    """``found`` where all builds but the float one take ``factor`` times as long."""
    base, *others = found.builds
    return replace(found, builds=(base, *(replace(b, us=factor * b.us) for b in others)))


def measured(found: Network) -> PredictedNetwork:
    """As if each build had taken exactly its time in three rounds."""
    records = tuple(
        BuildRecord(label=b.label, groups=(), seconds=(b.us * 1e-6,) * 3, layers=())
        for b in found.builds
    )
    record = NetworkRecord(
        network=found.name, fingerprint="", copy_seconds=records[0].seconds, builds=records
    )
    return PredictedNetwork(record, (), found)


def test_a_network_that_was_left_out_is_estimated_by_costs_found_in_the_others():
    table = fit_costs(NETWORKS[:-1])
    for build in NETWORKS[-1].builds:
        assert table.layer_us(build.parts) == pytest.approx(build.us, rel=0.03)


def test_a_kind_has_the_most_that_was_measured_of_it_and_its_ancestor_of_all_like_it():
    table = fit_costs(NETWORKS)
    parts = [p for found in NETWORKS for build in found.builds for p in build.parts]

    def most_mops(*kinds: CostKey) -> float:
        return max(p.mops for p in parts if p.key in kinds)

    for kind in (FLOAT, INTEGER):
        assert table.find(kind).rates[0] > 0
        assert (table.find(kind).most or ())[0] == most_mops(kind)
    assert (table.find(CostKey("conv", "")).most or ())[0] == most_mops(FLOAT, INTEGER)


def test_no_cost_is_negative_even_where_that_would_fit_better():
    # More bytes take less time here, as if writing them gave some back.
    parts = {mb: (part(QUANTIZE, 0, mb),) for mb in (0.1, 0.5, 1)}
    builds = [Build("float", 100 - 50 * mb, (own,)) for mb, own in parts.items()]
    costs = fit_costs([Network(build.label, (build,)) for build in builds]).costs
    assert all(
        figure >= 0
        for cost in costs
        for figure in (cost.fixed_us, cost.us_per_mop, cost.us_per_mb_read, cost.us_per_mb_written)
    )


def test_one_build_that_was_measured_wrong_changes_little():
    first = NETWORKS[0]
    wrong = replace(first, builds=(*first.builds[:-1], replace(first.builds[-1], us=1e4)))
    table = fit_costs([wrong, *NETWORKS[1:]])
    for build in NETWORKS[-1].builds:
        assert table.layer_us(build.parts) == pytest.approx(build.us, rel=0.1)


def test_quantized_builds_are_compared_with_each_other_and_not_with_float_alone():
    # What all quantized builds of a network are off by says nothing of the ratio of two of them.
    errors = []
    for seed in range(4):
        factors = np.random.default_rng(seed).choice([0.8, 1.2], 12)
        table = fit_costs([*map(quantized_builds_off, NETWORKS, factors)])
        for other in map(network, range(30, 50)):
            one, two = (table.layer_us(build.parts) / build.us for build in other.builds[1:])
            errors.append(abs(np.log(one / two)))
    assert np.mean(errors) < 0.1


def test_layers_that_are_profiled_tell_kinds_apart_that_always_come_together():
    def profiled(mops: float) -> Network:
        parts = (part(FLOAT, mops, 0), part(QUANTIZE, 0, mops / 100))
        layers = tuple(ProfiledLayer((p,), true_us((p,))) for p in parts)
        return Network(str(mops), (Build("float", true_us(parts), (parts,), layers),))

    table = fit_costs([profiled(mops) for mops in range(1, 20)])
    assert table.layer_us([part(QUANTIZE, 0, 0.1)]) == pytest.approx(21, rel=0.1)


def test_a_profile_of_zeros_tells_nothing():
    """As of layers that take less than a profiler resolves."""

    def blind(build: Build) -> Build:
        return replace(build, layers=tuple(ProfiledLayer(parts, 0.0) for parts in build.plan))

    networks = [replace(n, builds=tuple(map(blind, n.builds))) for n in NETWORKS]
    assert fit_costs(networks).costs == fit_costs(NETWORKS).costs


def test_what_a_profiler_adds_to_each_layer_is_no_cost_of_the_layer():
    def profiled(mops: float) -> Network:
        layers = [part(FLOAT, mops, 0), *(part(QUANTIZE, 0, 0.01) for _ in range(int(mops)))]
        times = tuple(ProfiledLayer((one,), true_us((one,)) + 1.5) for one in layers)
        return Network(str(mops), (built(layers, times),))

    table = fit_costs([profiled(mops) for mops in range(1, 20)])
    quantize = part(QUANTIZE, 0, 0.01)
    assert true_us((quantize,)) == 3.0
    assert table.layer_us([quantize]) == pytest.approx(3.0, rel=0.05)


def test_a_profiler_adds_its_time_to_each_layer_that_the_engine_built_for_a_predicted_one():
    def profiled(mops: float) -> Network:
        layers = [part(FLOAT, mops, 0), *(part(QUANTIZE, 0, 0.01) for _ in range(int(mops)))]
        count = {FLOAT: 1, QUANTIZE: 3}
        times = tuple(
            ProfiledLayer((one,), true_us((one,)) + 1.5 * count[one.key], count[one.key])
            for one in layers
        )
        return Network(str(mops), (built(layers, times),))

    table = fit_costs([profiled(mops) for mops in range(1, 20)])
    assert table.layer_us([part(QUANTIZE, 0, 0.01)]) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(("first_us", "is_told"), [(0.0, True), (3.5, True), (20.0, False)])
def test_what_the_profiler_adds_is_each_builds_own_up_to_twice_what_it_is_in_others(
    first_us: float, is_told: bool
):
    def layer_times(first_us: float) -> np.ndarray:
        """Of a network with ``first_us`` added to each layer, where others have 2 us."""
        others = [profiled(found, 2.0) for found in NETWORKS[1:]]
        system = System.of([profiled(NETWORKS[0], first_us), *others], None)
        return system.values[system.scatters != 1]

    assert (layer_times(first_us) == pytest.approx(layer_times(2.0))) == is_told


def profiled(found: Network, added_us: float) -> Network:
    """Layers of one part each, as told by a profiler that takes ``added_us`` for each itself."""

    def with_layers(build: Build) -> Build:
        layers = (ProfiledLayer((one,), true_us((one,)) + added_us) for one in build.parts)
        return replace(build, plan=tuple((one,) for one in build.parts), layers=tuple(layers))

    return replace(found, builds=tuple(map(with_layers, found.builds)))


def test_layers_weigh_a_sixth_where_the_profiler_adds_five_microseconds_to_each():
    def weights(added_us: float) -> np.ndarray:
        system = System.of([profiled(found, added_us) for found in NETWORKS], None)
        return system.weights[system.scatters != 1]

    assert weights(5.0) == pytest.approx(weights(0.0) / 6)


@pytest.mark.parametrize(("times", "share"), [(1, 1.0), (400, 1 / 6)])
def test_layers_of_a_rare_kind_weigh_as_much_as_where_the_profiler_adds_nothing(
    times: int, share: float
):
    """Else its cost would be what the few builds that have it are off by."""
    softmax = part(CostKey("Softmax", "float"), 0.1, 0)

    def weight(added_us: float) -> float:
        """Of the kind's layers, all in one of 16 networks: 0.01% of all time, or 5%."""
        layer = ProfiledLayer((softmax,), 2.0 * times + added_us)
        first, *others = (profiled(found, added_us) for found in NETWORKS)
        builds = (replace(b, layers=(*b.layers, layer)) for b in first.builds)
        system = System.of([replace(first, builds=tuple(builds)), *others], None)
        start = WIDTH * system.keys.index(softmax.key)
        (row,) = set(system.columns[:, start : start + WIDTH].nonzero()[0])
        return float(system.weights[row] * system.scatters[row])

    assert weight(5.0) == pytest.approx(share * weight(0.0), rel=0.05)


def test_long_layers_scatter_in_proportion_and_short_ones_by_a_share_and_fifty_microseconds():
    long, short = part(FLOAT, 39.9, 0), part(FLOAT, 0.4, 0)
    times = {long: 800.0, short: 10.0}
    assert [true_us((one,)) for one in times] == [pytest.approx(us) for us in times.values()]
    layers = tuple(ProfiledLayer((one,), us) for one, us in times.items())
    build = Build("float", 810.0, tuple((one,) for one in times), layers)
    system = System.of([Network("two layers", (build,))], None)
    shares = [(us + 0.02 * 810 + 50) / (0.05 * 810) for us in times.values()]
    # The build first, which scatters as builds do.
    assert system.scatters.tolist() == [1.0, *(pytest.approx(share) for share in shares)]


def test_a_kind_of_little_work_is_not_fitted_to_the_noise_of_large_builds():
    # 1 KB is copied in builds that took 10% longer than what is known of them.
    little = part(CostKey("Softmax", "float"), 0.001, 0.001)
    slower = [
        replace(
            n, builds=tuple(replace(b, us=1.1 * b.us, plan=(*b.plan, (little,))) for b in n.builds)
        )
        for n in NETWORKS[:2]
    ]
    table = fit_costs([*slower, *NETWORKS[2:]])
    much = [little._replace(mops=1.0, read_mb=1.0, written_mb=0.5)]
    kinds_known = max(us for us in (true_us((part(key, 1.0, 1.0),)) for key in TRUE))
    assert table.layer_us(much) < 10 * kinds_known


def test_errors_are_those_of_networks_that_were_left_out():
    found = leave_out([measured(network) for network in NETWORKS])
    assert (found.errors.networks, found.errors.builds, found.errors.pairs) == (16, 48, 48)
    assert found.errors.ratio < 0.05
    assert found.errors.ordered == 1.0
    assert found.errors.training_ratio <= found.errors.ratio


def test_each_fit_is_told_of():
    told: list[str] = []
    found = leave_out([measured(network) for network in NETWORKS[:8]], told.append)
    assert told[0] == "fit 1 of 9, to all 8 networks"
    assert told[1] == "fit 2 of 9, without network 0"
    assert len(told) == 9
    assert found.table.find(FLOAT).us_per_mop == pytest.approx(20, rel=0.1)


@pytest.mark.slow
def test_fits_in_processes_are_those_of_one_process(monkeypatch: pytest.MonkeyPatch):
    folds = [{one.name} for one in NETWORKS[:3]]
    expected = list(processes.all_estimates_without(NETWORKS, folds))
    monkeypatch.setattr(processes, "_WORTHWHILE", 0)
    monkeypatch.setattr(processes, "usable_cores", lambda: 2)
    assert list(processes.all_estimates_without(NETWORKS, folds)) == expected
    # One in which nothing can be imported ends at once, and its fits are made here.
    monkeypatch.setenv("PYTHONHOME", "nowhere")
    assert list(processes.all_estimates_without(NETWORKS, folds)) == expected


def test_shares_of_ratios_agree_though_one_network_has_most_of_them():
    """Of 10 networks one has 190 pairs, all well estimated, and each other one pair that is not."""
    networks = []
    for number, found in enumerate(NETWORKS[:10]):
        first, other, _ = found.builds
        off = replace(other, us=other.us * (1.5 if number % 2 else 0.7))
        many = (first,) * 20 if number == 0 else (first, off)
        networks.append(measured(replace(found, builds=many)))
    errors = leave_out(networks).errors
    assert errors.ratio_median <= errors.ratio <= errors.ratio_95
    assert errors.ratio > 0.2


def test_too_few_networks_are_refused_rather_than_called_perfect():
    with pytest.raises(RunError, match=r"4 networks were measured .* takes 5: measure more"):
        leave_out([measured(network) for network in NETWORKS[:4]])


def test_a_ratio_of_half_is_as_wrong_as_one_of_twice():
    assert BuildPair(1.0, 0.5, apart=True).error == pytest.approx(1.0)
    assert BuildPair(1.0, 2.0, apart=True).error == pytest.approx(1.0)


def test_the_quantile_of_errors_is_the_one_that_a_new_error_stays_within():
    errors = [0.01 * number for number in range(1, 10)]
    assert conformal_quantile(errors, 0.8) == pytest.approx(0.08)  # The 8th of 9: ceil(0.8 * 10).
    assert conformal_quantile(errors, 0.95) == pytest.approx(0.09)


def test_the_interval_of_a_new_network_counts_each_known_one_alike():
    # Of 9 networks and the new one, 8 are within 0.08; how many errors one has does not matter.
    errors = [[0.01 * number] * (50 if number == 9 else 1) for number in range(1, 10)]
    assert network_quantile(errors, 0.8) == pytest.approx(0.08)
    assert network_quantile(errors[:3], 0.8) == pytest.approx(0.03)  # No more is known.


def test_costs_are_closer_to_a_network_that_counts_for_more():
    builds = tuple(replace(b, us=3 * b.us) for b in NETWORKS[0].builds)
    other = Network("three times as slow", builds)

    def estimated(weight: float) -> float:
        found = fit_costs([*NETWORKS[1:6], replace(other, weight=weight)])
        return found.layer_us(builds[0].parts)

    assert estimated(1.0) < 0.9 * estimated(30.0)
    assert estimated(30.0) < 1.1 * builds[0].us


def test_generated_networks_are_estimated_by_fits_without_their_kind():
    # Networks of one kind run at half speed: only those of their kind could tell.
    slow = [
        replace(n, name=f"tokens-{i}", builds=tuple(replace(b, us=2 * b.us) for b in n.builds))
        for i, n in enumerate(NETWORKS[:4])
    ]
    others = [
        replace(n, name=f"{('short', 'mixed', 'wide')[i % 3]}-{i}")
        for i, n in enumerate(NETWORKS[4:])
    ]
    left = leave_out(list(map(measured, [*slow, *others])))
    for one in slow:
        off = [us / b.us for us, b in zip(left.estimates[one.name], one.builds, strict=True)]
        assert off == pytest.approx([0.5] * len(off), rel=0.05)
    for one in others:
        assert len(left.estimates[one.name]) == len(one.builds)
