"""The search that learns, on small spaces whose optimum is known by trying everything.

Engines are exact: latency is the sum of hidden costs of the predicted layers, noise adds up.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from zlib import crc32

import numpy as np
import pytest

from placer.search.landscape.landscape import State, apply
from placer.search.out_of_time import OutOfTime
from placer.search.proposals.failed_layouts import FAILED, costs_of_failures
from placer.search.proposals.gated import Gated
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.round import NEAR, Round
from placer.search.proposals.surrogate import SurrogateProposer, seed_proposals
from placer.search.records import Skip, TrialRecord, by_latency
from placer.search.samplers import Proposal
from placer.search.space import PER_SITE, Choices
from tests.search.landscapes import BRANCHES, NET, landscape
from tests.search.simulated_engines import EdgeEngine, Engine, Noise, best, noisy_conv1, search

NETS = {"chain": (NET, "onnxruntime", "float"), "branches": (BRANCHES, "tensorrt", "float16")}


@pytest.mark.parametrize(
    ("net", "salt"),
    [
        ("chain", 0),
        ("branches", 0),
        *(
            pytest.param(net, salt, marks=pytest.mark.slow)
            for net in ("chain", "branches")
            for salt in (1, 2)
        ),
    ],
)
def test_the_optimum_is_found_in_a_few_trials(net: str, salt: int):
    engine = Engine(landscape(*NETS[net]), salt=salt)
    assert best(search(engine, 12)).ratio == pytest.approx(engine.optimum())


def test_the_search_ends_by_itself_without_trying_everything():
    states = math.prod(len(names) for names in landscape(*NETS["branches"]).names)
    assert len(records_of_branches()) < 40 < states


def test_where_the_model_is_right_changes_near_the_best_are_what_it_ends_with():
    kinds = [record.kind for record in records_of_branches()]
    assert NEAR not in kinds[:-1]


def test_a_layout_that_the_engine_refuses_is_left():
    """Of the layouts at one site, the default makes every candidate fail."""
    land = landscape(*NETS["branches"])
    site, layout = 0, land.state(land.space.defaults)[0]
    engine = Engine(land, refuses=[(site, layout)])
    records = search(engine, 20)
    assert best(records).ratio == pytest.approx(engine.optimum())
    failed = [record for record in records if record.error is not None]
    assert failed
    assert all(land.state(record.choices)[site] == layout for record in failed)
    # It is not tried over and over.
    assert len(failed) <= len(records) / 2


class OffEngine(EdgeEngine):
    """Latencies are up to 10% off any sum of layers."""

    def _latency(self, state: State) -> float:
        return super()._latency(state) * (
            0.9 + 0.2 * crc32(repr([*map(int, state)]).encode()) / 2**32
        )


@pytest.mark.slow
@pytest.mark.parametrize("refused", [(6, 1), (7, 1)])
def test_a_layout_that_the_engine_refuses_is_left_near_the_best_too(refused: tuple[int, int]):
    records = search(OffEngine(landscape(*NETS["branches"]), refuses=[refused]), 20)
    assert sum(record.kind == "near the best" for record in records) > 3
    assert sum(record.error is not None for record in records) == 1


def test_of_two_layouts_that_fail_together_the_one_that_the_best_lacks_costs_more():
    """Each of the two works without the other."""
    land = landscape(*NETS["branches"])
    floats, defaults = (land.state(own) for own in (land.space.floats, land.space.defaults))
    first, second = next(
        (i, j)
        for i, j in zip(*land.neighbouring_sites, strict=True)
        if floats[i] != defaults[i] and floats[j] != defaults[j]
    )
    engine = Engine(land, refuses=[(first, defaults[first]), (second, defaults[second])])
    tried = [
        apply(floats, [tuple((site, defaults[site]) for site in sites)])
        for sites in ((), (first,), (second,), (first, second))
    ]
    records = [engine.trial(i, Proposal("", land.choices(own))) for i, own in enumerate(tried)]
    assert [record.error is not None for record in records] == [False, False, False, True]
    costs = costs_of_failures(land, tried, records, best=tried[1])
    assert np.argwhere(costs).tolist() == [[second, defaults[second]]]
    costs = costs_of_failures(land, tried, records, best=floats)
    assert np.argwhere(costs).tolist() == sorted(
        [[first, defaults[first]], [second, defaults[second]]]
    )
    assert costs.sum() == FAILED


@pytest.mark.parametrize("known", [3, 4, 5, 6])
def test_what_is_proposed_follows_from_the_trials_alone(known: int):
    """Another process, which predicted nothing before, proposes the same: a study resumes."""
    records = records_of_branches()
    proposal = Engine(landscape(*NETS["branches"])).proposer().propose(records[:known])
    assert (proposal.kind, proposal.choices) == (records[known].kind, records[known].choices)


@cache
def records_of_branches() -> tuple[TrialRecord, ...]:
    """A search that may go on for as long as it finds something to try."""
    return tuple(search(Engine(landscape(*NETS["branches"])), 40))


@pytest.mark.slow
def test_other_seeds_explore_in_other_ways():
    engine = Engine(landscape(*NETS["branches"]))
    first, second = (search(engine, 8, seed) for seed in (1, 2))
    assert [r.choices for r in first] != [r.choices for r in second]
    assert [r.choices for r in first[:3]] == [r.choices for r in second[:3]]


def test_no_placement_is_proposed_twice():
    records = records_of_branches()
    assert len({record.placement_id for record in records}) == len(records)


@pytest.mark.slow
def test_a_group_is_split_where_one_of_its_sites_is_noisy():
    land = landscape(*NETS["chain"])
    engine = EdgeEngine(land, noise=noisy_conv1(land), limit=0.5)
    found = best(search(engine, 14))
    assert found.choices["conv-act:conv0"] == PER_SITE
    assert found.choices["site conv-act:conv0"] == "integer"
    assert found.choices["site conv-act:conv1"] == "float"
    assert found.ratio == pytest.approx(engine.optimum())


def test_groups_stay_whole_where_they_must_not_be_split():
    land = landscape(*NETS["chain"])
    engine = EdgeEngine(land, noise=noisy_conv1(land), limit=0.5)
    proposer, records = engine.proposer(per_site=False), list[TrialRecord]()
    while len(records) < 20 and (proposal := proposer.propose(records)) is not None:
        records.append(engine.trial(len(records), proposal))
    assert not any(PER_SITE in record.choices.values() for record in records)
    assert best(records).choices["conv-act:conv0"] == "float"


def test_warm_starts_come_first_and_known_placements_are_not_repeated():
    land = landscape(*NETS["chain"])
    engine = Engine(land)
    mine = Proposal("mine", {**land.space.defaults, "conv-act:conv2": "float"})
    again = replace(mine, kind="the same")
    proposer = SurrogateProposer(land, 0, engine.noise, warm_starts=(mine, again))
    records: list[TrialRecord] = []
    for number in range(4):
        proposal = proposer.propose(records)
        records.append(engine.trial(number, proposal))
    assert [record.kind for record in records] == ["mine", "none", "default", "everything"]


def test_noise_is_measured_only_once_a_gate_is_missed():
    land = landscape(*NETS["chain"])
    asked: list[Choices] = []

    def probe(choices: Choices) -> float:
        asked.append(choices)
        return noisy_conv1(land)(choices)

    lenient = Engine(land, noise=noisy_conv1(land), limit=100)
    proposer, records = SurrogateProposer(land, 0, probe), list[TrialRecord]()
    while len(records) < 8 and (proposal := proposer.propose(records)) is not None:
        records.append(lenient.trial(len(records), proposal))
    assert asked == []


@pytest.mark.slow
def test_changes_that_do_nothing_do_not_hide_those_that_do():
    """One average of many alone does nothing, whatever its site says."""
    pools = "".join(
        f"[pool{i}] p{i + 1} = AveragePool<kernel_shape = [1, 1]>(p{i})" for i in range(70)
    )
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,64,128,128] p0) => (float[1,64,128,128] out)
    <float[64,64,1,1] w0 = {{1}}, float[64,64,1,1] w1 = {{2}}> {{
      {pools}
      [conv0] a = Conv(p70, w0)
      [conv1] b = Conv(a, w1)
      [softmax1] c = Softmax<axis = 1>(b)
      [conv2] out = Conv(c, w1)
    }}
    """
    records = search(Engine(landscape(text)), 12)
    assert best(records).kind == "default"
    assert any("site conv-act:conv0" in record.choices for record in records)


def test_while_nothing_is_measured_proposals_of_many_workers_differ_and_follow_from_the_rules():
    engine = Engine(landscape(*NETS["branches"]))
    proposer, running = engine.proposer(), list[TrialRecord]()
    while len(running) < 8 and (proposal := proposer.propose(running)) is not None:
        trial = engine.trial(len(running), proposal)
        running.append(replace(trial, measurement=None, judgement=None, running=True))
    assert len({trial.placement_id for trial in running}) == len(running) > 4
    assert {trial.kind for trial in running} <= {
        *("none", "default", "everything", "surrogate", "explore"),
    }


def test_what_is_hoped_to_hold_is_what_was_not_measured():
    """All is loud, and no time is left to measure how loud single layouts are."""
    land = landscape(*NETS["branches"])

    def late(_: Choices) -> float:
        raise OutOfTime

    def noise(choices: Choices) -> float:
        return sum(1.0 for layout in choices.values() if layout not in ("float", "follow"))

    engine = Engine(land, noise=noise)
    records = [engine.trial(i, seed) for i, seed in enumerate(seed_proposals(land.space))]
    known = Knowledge(land, 0, late, {}, per_site=False, noise_limit=1.0, levels=0)
    expected, hoped = (Gated(known, records, math.inf, None, hopes=own) for own in (False, True))
    alone = land.state({**land.space.floats, "conv-add-relu:add1": "both-quantized"})
    assert expected.noise.predict(alone) > expected.limit > hoped.noise.predict(alone)
    assert expected.limit == hoped.limit == 1.0


def test_before_the_search_ends_what_is_little_too_noisy_by_the_sum_is_measured():
    """Three sites are too noisy by the sum, but their errors cancel out a little."""
    land = landscape(*NETS["branches"])
    floats, defaults = (land.state(own) for own in (land.space.floats, land.space.defaults))
    sites = [i for i, pair in enumerate(zip(floats, defaults, strict=True)) if len(set(pair)) > 1]
    quiet = sites[:3]

    def only(own: Iterable[int]) -> State:
        return apply(floats, [tuple((site, defaults[site]) for site in own)])

    def noise(choices: Choices) -> float:
        state = land.state(choices)
        if state == only(quiet):
            return 0.95
        changed = (i for i, own in enumerate(state) if own != floats[i])
        return sum(0.4 if i in quiet else 2.0 for i in changed)

    engine = EdgeEngine(land, noise=noise)
    known = Knowledge(land, 0, noise, {}, per_site=True, noise_limit=1.0, levels=0)
    tried = [sites, *([site] for site in sites), *itertools.combinations(quiet, 2)]
    starts = [Proposal("", land.choices(only(own))) for own in tried]
    records = [engine.trial(i, start) for i, start in enumerate(starts)]
    assert Gated(known, records, math.inf, None).noise.predict(only(quiet)) > 1.1
    proposal = Round(known, records, math.inf, len(records), explores=False).hoped()
    assert land.state(proposal.choices) == only(quiet)


@pytest.mark.parametrize(("few", "tries"), [(1.5, True), (50.0, False)])
def test_before_the_search_ends_what_few_samples_may_have_ruled_out_in_error_is_tried(
    few: float, tries: bool
):
    """On the few samples placements are half to twice as noisy as on all."""
    land = landscape(*NETS["branches"])
    floats, defaults = (land.state(own) for own in (land.space.floats, land.space.defaults))
    sites = [i for i, pair in enumerate(zip(floats, defaults, strict=True)) if len(set(pair)) > 1]

    def only(*own: int) -> Choices:
        return land.choices(apply(floats, [tuple((site, defaults[site]) for site in own)]))

    def noise(choices: Choices) -> float:
        return 0.4 * sum(own != floats[i] for i, own in enumerate(land.state(choices)))

    def on_few(choices: Choices) -> float:
        return noise(choices) * (0.5, 2.0)[crc32(str(land.state(choices)).encode()) % 2]

    engine = EdgeEngine(land, noise=noise)
    known = Knowledge(land, 0, on_few, {}, per_site=True, noise_limit=1.0, levels=0)
    skip = Skip(only(*sites[:2]), few)
    starts = [Proposal("", only(*own)) for own in ((), sites, *([site] for site in sites))]
    starts.append(Proposal("", only(*sites[1:4]), (skip,)))
    records = [engine.trial(i, start) for i, start in enumerate(starts)]
    proposal = Round(known, records, math.inf, len(records), explores=False).doubtful()
    assert (proposal.choices if proposal else None) == (skip.choices if tries else None)


def test_what_gains_much_is_tried_though_it_is_as_likely_as_not_to_miss_the_gate():
    """A site makes most of the gain and, on few samples, 2% more noise than is allowed."""
    land = landscape(*NETS["branches"])
    floats, defaults = (land.state(own) for own in (land.space.floats, land.space.defaults))
    large, *others = (i for i, (a, b) in enumerate(zip(floats, defaults, strict=True)) if a != b)

    class UnevenEngine(EdgeEngine):
        def _latency(self, state: State) -> float:
            return super()._latency(state) - 0.4 * (state[large] != floats[large])

    def noise(choices: Choices) -> float:
        state = land.state(choices)
        return sum(1.02 if i == large else 0.4 for i, own in enumerate(state) if own != floats[i])

    def only(*sites: int) -> State:
        return apply(floats, [tuple((site, defaults[site]) for site in sites)])

    engine = UnevenEngine(land, noise=noise)
    known = Knowledge(land, 0, noise, {}, per_site=False, noise_limit=1.0, levels=0)
    tried = (floats, defaults, *map(only, others), only(large, others[0]))
    starts = [Proposal("", land.choices(state)) for state in tried]
    records = [engine.trial(i, start) for i, start in enumerate(starts)]
    assert Gated(known, records, math.inf, None).noise.predict(only(large)) > 1.0
    proposal = Round(known, records, math.inf, 8, explores=False).propose(only_gains=True)
    assert land.state(proposal.choices) == only(large)


def test_before_the_search_ends_both_halves_of_the_best_are_tried_unless_such_were():
    """All trials are near the best or float: what is between is only predicted."""
    land = landscape(*NETS["branches"])
    engine = Engine(land, salt=2)
    known = Knowledge(land, 0, engine.noise, {}, per_site=False, noise_limit=None, levels=0)
    records = [engine.trial(i, seed) for i, seed in enumerate(seed_proposals(land.space))]
    least, best = records[0].choices, by_latency(records)[0].choices
    checks = []
    while proposal := Round(known, records, math.inf, 99, explores=False).check():
        checks.append(proposal.choices)
        records.append(engine.trial(len(records), proposal))
    assert len(checks) == 2
    for name in best.keys() | least.keys():
        assert {own[name] for own in checks} == {best[name], least[name]}


def test_how_likely_gates_hold_depends_on_what_is_known_of_the_changes():
    """All sites are as loud, as is known; or their noise is not known at all."""
    land = landscape(*NETS["branches"])
    floats, defaults = (land.state(own) for own in (land.space.floats, land.space.defaults))
    loud = [i for i, pair in enumerate(zip(floats, defaults, strict=True)) if len(set(pair)) > 1]

    def noise(choices: Choices) -> float:
        return float(sum(own != floats[i] for i, own in enumerate(land.state(choices))))

    def late(_: Choices) -> float:
        raise OutOfTime

    limit = len(loud) - 0.5
    records = [Engine(land, noise=noise, limit=limit).trial(0, Proposal("", land.space.defaults))]

    def chance(probe: Noise, quiet: int) -> float:
        known = Knowledge(land, 0, probe, {}, per_site=True, noise_limit=limit, levels=0)
        state = apply(defaults, [tuple((i, floats[i]) for i in loud[:quiet])])
        return Gated(known, records, math.inf, None).chance(state, floats)

    assert chance(noise, 0) < 0.5 < chance(noise, 1)
    assert chance(noise, 2) > 0.9 > chance(late, 2)
