"""Weights in the costs of a plan, and the errors of networks with as many of them."""

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.costs import Cost, CostTable, excess
from placer.prediction.times.intervals import NEAREST, NetworkErrors, errors_of_size
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part, layer_parts
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET

GRAPH = graph_of_text("""
<ir_version: 9, opset_import: ["": 18]>
g (float[1,512,4,4] x) => (float[1,1024,4,4] y) <float[1024,512,1,1] w = {1}> {
  [one] y = Conv(x, w)
}
""")
QUANTIZED = Placement.of_groups([[Edge("x", "one", 0)], [Edge("w", "one", 1)]])


@pytest.mark.parametrize(("placement", "size"), [(EMPTY, 4), (QUANTIZED, 1)])
def test_a_layer_has_a_part_for_its_weights_a_quarter_as_large_in_integers(
    placement: Placement, size: int
):
    pack = load_pack("openvino")
    layers = Predictor(GRAPH, pack.rules, ANY_TARGET, "float", "uint8").predict(placement).layers
    (parts,) = (layer_parts(one, GRAPH) for one in layers if one.nodes)
    conv = parts[0]
    assert conv.read_mb == pytest.approx(size * 512 * 4 * 4 / 1e6)
    weights = Part(WEIGHTS, 1.0, 0.0, size * 512 * 1024 / 1e6, 0.0)
    assert [part for part in parts if part.key == WEIGHTS] == [weights]


@pytest.mark.parametrize(("weights_mb", "beyond"), [(3, 0), (10, 0), (15, 0.5), (20, 1), (200, 1)])
def test_an_excess_of_weights_is_whole_where_there_are_twice_as_many(
    weights_mb: float, beyond: float
):
    assert excess(weights_mb, 10) == pytest.approx(beyond)
    assert excess(weights_mb, None) == 0


def cost(name: str, fixed_us: float, us_per_mb_read: float) -> Cost:
    return Cost(
        name=name, dtype="float", fixed_us=fixed_us, us_per_mop=0, us_per_mb_read=us_per_mb_read,
        us_per_mb_written=0, builds=1,
    )  # fmt: skip


def test_layers_of_a_plan_with_many_weights_take_more():
    conv = cost("conv", 30, 0)
    table = CostTable([conv, cost("many weights", 7, 40)], many_weights_mb=0.5)
    layer = (Part(CostKey("conv", "float"), 1, 0, 1, 0), Part(WEIGHTS, 1, 0, 1, 0))
    little = (layer[0], Part(WEIGHTS, 1, 0, 0, 0))
    assert table.plan_us([layer, little]) == [30 + 7 + 40, 30 + 7]
    assert table.layer_us(layer) == 30
    assert CostTable([conv]).plan_us([layer, little]) == [30, 30]


def test_the_interval_is_of_networks_with_as_many_weights():
    small = [NetworkErrors(0.1 + number / 100, (0.1,), (0.05,)) for number in range(NEAREST)]
    large = [NetworkErrors(20 + number, (0.5,), (0.2,)) for number in range(NEAREST)]
    assert errors_of_size([*small, *large], 0.2) == pytest.approx((0.1, 0.05))
    assert errors_of_size([*small, *large], 100.0) == pytest.approx((0.5, 0.2))
    # Of half as many large ones, small ones are the nearest besides.
    assert errors_of_size([*small, *large[:2]], 100.0) == pytest.approx((0.1, 0.05))
