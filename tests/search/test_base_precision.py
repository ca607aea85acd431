"""The base precision as one more decision, on spaces whose optimum is known by trying everything.

The engine is exact: a candidate takes the sum of what its predicted layers take, and bfloat16
halves or doubles what layers without integers take.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.base_precision import BaseProposer
from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord, by_latency
from placer.search.samplers import ExhaustiveProposer, Proposal, RandomProposer, TpeProposer
from placer.search.space import BASE, Space, build_space
from tests.search.landscapes import NET
from tests.search.outcomes import judgement, measurement
from tests.search.simulated_engines import cost

BASES = ("bfloat16", "float")
PACK = load_pack("openvino")
GRAPH = graph_of_text(NET)
SPACE = replace(build_space(GRAPH, find_sites(GRAPH, PACK.rules)), bases=BASES)


def landscape(base: str) -> Landscape:
    integer = PACK.manifest.scheme.activation
    predictor = Predictor(GRAPH, PACK.rules, ANY_TARGET, base, integer)
    return Landscape(SPACE.within(base), LayerModel(GRAPH, predictor))


LANDS = {base: landscape(base) for base in BASES}


class Engine:
    """Makes trials. ``half``: what bfloat16 does to a layer. ``noise``: what it adds."""

    def __init__(self, half: float, noise: float = 0.0) -> None:
        self.half, self.noise = half, noise

    def times(self, base: str, state: State) -> dict[str, float]:
        """Microseconds by signature id."""
        land = LANDS[base]
        found = {}
        for number in land.counts(state):
            signature = land.layers.signatures[number]
            integers = signature.work is not None and signature.work.dtype == "uint8"
            slower = self.half if base == "bfloat16" and not integers else 1.0
            found[signature.id] = slower * cost(signature, 0)
        return found

    def ratio(self, base: str, state: State) -> float:
        """To the float model in the first precision."""
        first = LANDS[BASES[0]]
        return self._us(base, state) / self._us(BASES[0], first.state(SPACE.floats))

    def _us(self, base: str, state: State) -> float:
        signatures, times = LANDS[base].layers.signatures, self.times(base, state)
        return sum(times[signatures[n].id] * c for n, c in LANDS[base].counts(state).items())

    def trial(self, number: int, proposal: Proposal) -> TrialRecord:
        base = proposal.choices[BASE]
        state = LANDS[base].state(proposal.choices)
        noise = self.noise if base == "bfloat16" else 0.0
        return TrialRecord(
            number=number,
            kind=proposal.kind,
            choices=proposal.choices,
            placement_id=SPACE.placement(proposal.choices).id,
            measurement=measurement(self.ratio(base, state), self.times(base, state)),
            judgement=judgement(noise - 1.0, noise),
        )

    def search(self, trials: int, reserve: Callable[[int], int] | None = None) -> list[TrialRecord]:
        own = [SurrogateProposer(LANDS[base], 0, _silent, reserve=reserve) for base in BASES]
        proposer = BaseProposer(own, reserve)
        records: list[TrialRecord] = []
        while len(records) < trials:
            proposal = proposer.propose(records)
            if proposal is None:
                break
            records.append(self.trial(len(records), proposal))
        return records

    def optimum(self) -> tuple[float, str]:
        every = ExhaustiveProposer(SPACE)
        records: list[TrialRecord] = []
        while (proposal := every.propose(records)) is not None:
            records.append(self.trial(len(records), proposal))
        return best(records)


def _silent(choices: object) -> float:
    del choices
    return 0.0


def best(records: Sequence[TrialRecord]) -> tuple[float, str]:
    first = by_latency(records)[0]
    return first.ratio or 0.0, first.choices[BASE]


def test_placements_say_the_base_precision_where_it_is_a_decision():
    own, half = (SPACE.placement({**SPACE.defaults, BASE: base}) for base in ("float", "bfloat16"))
    assert own.edges == half.edges
    assert own == replace(SPACE, bases=()).placement(SPACE.defaults)  # As without a decision.
    assert half.base == "bfloat16"
    assert half.id != own.id
    assert half.changed(half.change_to(own)) == half
    assert SPACE.within("float").placement(SPACE.within("float").defaults) == own
    assert SPACE.defaults[BASE] == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize("half", [0.5, 2.0])
def test_the_optimum_of_both_precisions_is_found(half: float):
    engine = Engine(half)
    found, base = best(engine.search(12))
    optimum, where = engine.optimum()
    # Groups that are split may do better than all placements of whole ones.
    assert (found <= optimum + 1e-9, base) == (True, where)
    assert where == ("bfloat16" if half < 1 else "float")


@pytest.mark.slow
def test_a_proposal_has_one_number_in_all_precisions():
    given: list[int] = []

    def reserve(least: int) -> int:
        given.append(max(least, given[-1] + 1 if given else 0))
        return given[-1]

    # One worker alone in a shared study: the numbers are those of its trials, and so is the search.
    records = Engine(0.5).search(8, reserve)
    assert given == [4, 5, 6, 7]  # Those before are given.
    assert records == Engine(0.5).search(8)


def test_a_precision_whose_float_model_misses_a_gate_takes_one_trial():
    engine, tried = Engine(half=0.5, noise=2.0), list[TrialRecord]()
    proposer = BaseProposer([SurrogateProposer(LANDS[base], 0, _silent) for base in BASES[::-1]])
    while len(tried) < 12 and (proposal := proposer.propose(tried)) is not None:
        tried.append(engine.trial(len(tried), proposal))
    assert [r.kind for r in tried if r.choices[BASE] == "bfloat16"] == ["none"]


def test_proposals_name_their_precision_where_none_of_its_trials_was_measured():
    proposer, refused = SurrogateProposer(LANDS["float"], 0, _silent), list[TrialRecord]()
    while (proposal := proposer.propose(refused)) is not None and proposal.kind != "tpe":
        trial = Engine(0.5).trial(len(refused), proposal)
        refused.append(replace(trial, measurement=None, judgement=None, error="refused"))
    assert proposal is not None
    assert proposal.choices[BASE] == "float"
    assert SPACE.placement(proposal.choices).base is None


def test_layers_of_integers_are_the_same_layers_in_both_precisions():
    """So one precision tells of them what it has measured, and of others nothing."""
    ids = {
        base: {
            land.layers.signatures[n].id: land.layers.signatures[n]
            for n in land.counts(land.state(SPACE.defaults))
        }
        for base, land in LANDS.items()
    }
    both = ids["float"].keys() & ids["bfloat16"].keys()
    assert both
    for own in (ids["float"][name] for name in both):
        # The model's input is float in both, and so is what quantizes it.
        assert own.work is None or own.work.dtype == "uint8" or "conversion" in own.kind


@pytest.mark.parametrize("sampler", [RandomProposer, TpeProposer])
def test_other_samplers_decide_on_it_too(sampler: type[RandomProposer] | type[TpeProposer]):
    engine, records = Engine(0.5), list[TrialRecord]()
    proposer = sampler(SPACE, 0)
    while len(records) < 12 and (proposal := proposer.propose(records)) is not None:
        records.append(engine.trial(len(records), proposal))
    assert {record.choices[BASE] for record in records} == set(BASES)


def test_without_the_decision_nothing_of_it_is_kept():
    plain: Space = replace(SPACE, bases=())
    assert BASE not in plain.decisions
    assert BASE not in plain.defaults
    assert BASE not in plain.choices(plain.layouts(plain.defaults))
