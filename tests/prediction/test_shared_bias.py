"""A bias that several Convs read keeps what follows them out of their kernels, as in OpenVINO."""

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import this_processor
from placer.graph.text import parse_model
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target

PACK = load_pack("openvino")
# A head of two levels.
TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] fine, float[1,16,4,4] coarse) => (float[1,16,8,8] y1, float[1,16,4,4] y2)
<float[16,16,3,3] w = {0.01}, float[16] b = {BIAS}> {
  [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(fine, w, b)
  [act1] a1 = ACT(c1)
  [last1] d1 = Conv<pads = [1, 1, 1, 1]>(a1, w)
  [out1] y1 = Add(d1, fine)
  [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(coarse, w, b)
  [act2] a2 = ACT(c2)
  [last2] d2 = Conv<pads = [1, 1, 1, 1]>(a2, w)
  [out2] y2 = Tanh(d2)
}
"""
RESIDUAL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,3,3] w = {0.01}, float[16] b = {0.3}> {
  [conv0] c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  [relu0] r = Relu(c)
  [conv1] d = Conv<pads = [1, 1, 1, 1]>(r, w)
  [relu1] s = Relu(d)
  [conv2] e = Conv<pads = [1, 1, 1, 1]>(s, w, b)
  [add] a = Add(e, r)
  [relu2] t = Relu(a)
  [conv3] out = Conv<pads = [1, 1, 1, 1]>(t, w)
}
"""


def layers(plan: Plan) -> set[tuple[tuple[str, ...], str]]:
    return {(x.nodes, x.output_types[0]) for x in plan.of_kind("compute")}


def varied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` with constants as networks have: OpenVINO treats one value throughout apart."""
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        spread = rng.uniform(0.5, 1.5, values.shape).astype(values.dtype)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values * spread, tensor.name))
    return proto


def plans(text: str, folder: Path, quantized: bool) -> tuple[Plan, Plan]:
    """Predicted and built, of the default placement or of the float model."""
    engine = pytest.importorskip("placer.engines.openvino.engine", exc_type=ImportError)
    onnx.save(varied(parse_model(text)), folder / "model.onnx")
    model, target = load_model(folder / "model.onnx"), Target(processor=this_processor())
    sites, scheme = find_sites(model.graph, PACK.rules, target), PACK.manifest.scheme
    placement = place(sites, {}) if quantized else EMPTY
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    predictor = make_predictor(model.graph, PACK, target, "float", ranges=ranges)
    return predictor.predict(placement).plan, engine.OpenVinoEngine().compile(
        candidate, folder
    ).plan()


@pytest.mark.parametrize(
    ("bias", "act", "quantized", "fused"),
    [
        ("0.3", "Relu", False, False),
        ("0.3", "Relu", True, False),
        ("0.3", "Tanh", True, False),
        ("0", "Relu", False, True),  # Taken away, so it keeps nothing apart.
        ("0", "Tanh", True, True),
    ],
)
def test_what_follows_is_in_the_kernel_where_openvino_has_it(bias, act, quantized, fused, tmp_path):
    text = TEXT.replace("BIAS", bias).replace("ACT", act)
    predicted, actual = plans(text, tmp_path, quantized)
    assert layers(predicted) == layers(actual)
    assert (("conv1", "act1") in [nodes for nodes, _ in layers(actual)]) == fused


def test_a_residual_add_behind_such_a_conv_is_a_layer_of_its_own(tmp_path):
    predicted, actual = plans(RESIDUAL, tmp_path, quantized=True)
    assert layers(predicted) == layers(actual)
    assert (("add", "relu2"), "uint8") in layers(actual)
