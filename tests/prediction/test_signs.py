"""Schemes whose type follows from the range: uint8 where nothing is negative, else int8."""

import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import Processor, this_processor
from placer.engines.openvino.engine import OpenVinoEngine
from placer.graph import Edge
from placer.graph.text import graph_of_text, parse_model
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Ranges
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target

PACK = load_pack("openvino").with_scheme("symmetric")
TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,64,128] out)
<float[16,16,1,1] w1 = {0.1}, float[16,16,1,1] w2 = {-0.1}, float[16,128] w3 = {0.1},
 int64[3] shape = {1, 64, 16}> {
  [conv1] c = Conv(x, w1)
  [relu1] r = Relu(c)
  [conv2] d = Conv(r, w2)
  [tanh1] t = Tanh(d)
  [reshape1] tokens = Reshape(t, shape)
  [fc1] out = MatMul(tokens, w3)
}
"""
RANGES = {tensor: Range(-1.0, 1.0) for tensor in ("x", "d", "t", "tokens")} | {"r": Range(0.0, 1.0)}


def types(plan: Plan) -> dict[str, str]:
    """What each layer writes, by its last node."""
    return {layer.nodes[-1]: layer.output_types[0] for layer in plan.layers if layer.nodes}


def quantized(plan: Plan) -> dict[str, str]:
    """What is quantized apart, and to which type."""
    ports = (port for layer in plan.of_kind("quantize") for port in layer.outputs)
    return {port.tensor: port.dtype for port in ports}


def predicted(signed_products: bool, ranges: Ranges | None) -> Plan:
    graph = graph_of_text(TEXT)
    target = Target(processor=Processor(signed_products))
    predictor = make_predictor(graph, PACK, target, "float", ranges=ranges)
    return predictor.predict(place(find_sites(graph, PACK.rules, target), {})).plan


@pytest.mark.parametrize("ranges", [RANGES, None], ids=["ranges", "operators"])
def test_what_is_never_negative_is_uint8(ranges):
    plan = predicted(True, ranges)
    assert quantized(plan) == {"x": "int8", "tokens": "int8"}
    assert types(plan)["relu1"] == "uint8"


def test_a_range_says_more_than_the_operators():
    assert types(predicted(True, {**RANGES, "r": Range(-1.0, 1.0)}))["relu1"] == "int8"


def test_behind_a_node_that_does_nothing_its_own_range_counts():
    # Only what some layout quantizes has a range: `u`, which is `t` plus a bias of 0.
    text = TEXT.replace("Reshape(t, ", "Reshape(u, ").replace(
        "w3 = {0.1},", "w3 = {0.1}, float zero = {0},"
    )
    graph = graph_of_text(text.replace("[reshape1]", "[bias1] u = Add(t, zero)\n  [reshape1]"))
    target = Target(processor=Processor(signed_products=True))
    placement = Placement.of([Edge("u", "reshape1", 0), Edge("w3", "fc1", 1)])
    found = [
        make_predictor(graph, PACK, target, "float", ranges={"u": Range(low, 1.0)})
        for low in (0.0, -1.0)
    ]
    assert [list(quantized(p.predict(placement).plan).values()) for p in found] == [
        ["uint8"],
        ["int8"],
    ]


def test_without_products_of_two_signed_operands_convolutions_read_uint8_and_others_do_not():
    plan = predicted(False, RANGES)
    assert quantized(plan) == {"x": "uint8", "tokens": "int8"}


def test_openvino_writes_these_types(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(parse_model(TEXT), path)
    model: Model = load_model(path)
    target = Target(processor=this_processor())
    placement = place(find_sites(model.graph, PACK.rules, target), {})
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    scheme = PACK.manifest.scheme
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    actual = OpenVinoEngine().compile(Inserter(model, scheme).insert(placement, ranges), tmp_path)
    predictor = make_predictor(model.graph, PACK, target, "float", ranges=ranges)
    assert types(predictor.predict(placement).plan) == types(actual.plan())
