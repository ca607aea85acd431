"""Cases are the same for the same seed, and shrinking ends at what makes the difference."""

from dataclasses import dataclass
from random import Random

from placer.learning.case import Case, loaded
from placer.learning.shrink import shrink
from placer.plan import Layer, Plan
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.differential.graphs import random_model
from tests.differential.net import Net
from tests.differential.placements import random_placement

PACK = load_pack("tensorrt")


def drawn(seed: int) -> Case:
    random = Random(seed)
    model = loaded(random_model(random, PACK.rules))
    return Case(model, random_placement(model, PACK, Target(), random))


@dataclass
class Wrong:
    """An engine that runs a layer for each node, and a predictor that knows no ``blind`` nodes."""

    blind: str
    name: str = "wrong"

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        nodes = case.model.graph.nodes
        layers = [Layer(node.name, node.op, (node.name,), (), ()) for node in nodes]
        known = [layer for layer in layers if layer.op != self.blind]
        return Plan(tuple(known), "predicted"), Plan(tuple(layers), "actual")


def test_a_case_is_the_same_for_the_same_seed_and_quantizes_something_at_times():
    first, second = ([drawn(seed) for seed in range(9)] for _ in range(2))
    assert [case.id for case in first] == [case.id for case in second]
    assert len({case.id for case in first}) == 9
    assert any(case.placement.edges for case in first)


def test_shrinking_ends_at_the_node_that_differs():
    net = Net(Random(0))
    x = net.add("Relu", net.input(1, 8, 4, 4))
    y = net.add("Conv", x, net.weight(8, 8, 1, 1))
    net.add("Add", net.add("MaxPool", y, kernel_shape=[1, 1]), net.add("Tanh", y))
    model = loaded(net.finished())
    case = Case(model, Placement.of(e for e in model.graph.consumers[x]))
    engine = Wrong("MaxPool")
    found = shrink(case, lambda smaller: differs(engine, smaller))
    assert [node.op for node in found.model.graph.nodes] == ["MaxPool"]
    assert not found.placement.edges


def differs(engine: Wrong, case: Case) -> bool:
    predicted, actual = engine.plans(case)
    return len(predicted.layers) != len(actual.layers)
