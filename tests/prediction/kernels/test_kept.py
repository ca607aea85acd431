"""What is kept with a graph: predictions do not depend on those that were made before."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import PlacerError
from placer.graph import Graph
from placer.graph.kept import kept
from placer.learning.case import loaded
from placer.model import Model
from placer.plan import Layer
from placer.prediction.select import AnyPredictor, make_predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from tests.differential.graphs import random_model
from tests.differential.net import Misfit
from tests.differential.placements import random_placement
from tests.prediction.kernels.building import TARGET

PLACEMENTS = 3


def drawn(seed: int) -> tuple[Model, Model, list[Placement]]:
    """A random model, twice, and placements of it."""
    pack = load_pack("tensorrt")
    for attempt in range(100):
        random = Random(f"{seed}/{attempt}")
        try:
            proto = random_model(random, pack.rules)
            once, again = loaded(proto), loaded(proto)
            placements = [random_placement(once, pack, TARGET, random) for _ in range(PLACEMENTS)]
        except (PlacerError, Misfit):
            continue
        return once, again, placements
    raise RuntimeError("no valid graph")


def predictor_of(model: Model) -> AnyPredictor:
    return make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float16")


def layers(predictor: AnyPredictor, placement: Placement) -> list[Layer]:
    return [found.layer for found in predictor.predict(placement).layers]


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_a_placement_is_predicted_alike_after_others_and_first(seed: int):
    used, fresh, placements = drawn(seed)
    predictor = predictor_of(used)
    for placement in placements:
        predictor.predict(placement)
    for placement in reversed(placements):
        alone = predictor_of(fresh)
        fresh.graph.kept.clear()
        assert layers(predictor, placement) == layers(alone, placement)


def test_what_is_kept_is_computed_once_for_a_graph_and_arguments():
    asked = []

    @kept
    def outputs(graph: Graph, count: int) -> tuple[str, ...]:
        asked.append(count)
        return graph.outputs * count

    first, second, _ = drawn(1)
    graph = first.graph
    assert [outputs(graph, n) for n in (1, 2, 1)] == [graph.outputs * n for n in (1, 2, 1)]
    assert outputs(second.graph, 1) == second.graph.outputs
    assert asked == [1, 2, 1]
