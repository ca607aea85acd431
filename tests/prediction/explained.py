"""Networks whose explanations several modules look at."""

from placer.graph import Edge, Graph
from placer.prediction.explanation.explain import Explainer, Explanation
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.quantization import Placement
from placer.rules.matcher import Matches
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

PACK = load_pack("tensorrt")
RESIDUAL = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[8,32,32,32] x) => (float[8,32,32,32] out)
    <float[32,32,3,3] w1 = {0.1}, float[32,32,3,3] w2 = {0.1}, float[32,32,3,3] w3 = {0.1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] r = Relu(c)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w2)
      [add] s = Add(d, r)
      [relu2] t = Relu(s)
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(t, w3)
    }
"""
CONVS = [
    *(Edge("x", "conv1", 0), Edge("w1", "conv1", 1)),
    *(Edge("r", "conv2", 0), Edge("w2", "conv2", 1)),
    *(Edge("t", "conv3", 0), Edge("w3", "conv3", 1)),
]
RESIDUAL_EDGE = Edge("r", "add", 1)


def explain(graph: Graph, placement: Placement, version: str = "10.3") -> Explanation:
    target = Target(version, "8.0", typing="strong")
    predictor = Predictor(graph, PACK.rules, target, "float16", "int8")
    roofline = Roofline(graph, load_gpu("a100"), load_layer_classes())
    return Explainer(Matches(graph), PACK.rules, target, predictor, roofline).explain(placement)


OWN_PAIRS = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[1,32,16,16] x) => (float[1,32,16,16] a, float[1,32,8,8] b)
    <float[32,32,1,1] w = {{0.1}}, float s = {{0.5}}, float t = {{0.6}}, int8 zero = {{0}}> {{
      [q0] q0 = QuantizeLinear(x, s, zero)
      [d0] d0 = DequantizeLinear(q0, s, zero)
      [wq] wq = QuantizeLinear(w, s, zero)
      [wd] wd = DequantizeLinear(wq, s, zero)
      [conv0] c = Conv(d0, {weight})
      [q1] q1 = QuantizeLinear(c, s, zero)
      [d1] d1 = DequantizeLinear(q1, s, zero)
      [q2] q2 = QuantizeLinear(c, t, zero)
      [d2] d2 = DequantizeLinear(q2, t, zero)
      [conv1] a = Conv(d1, wd)
      [conv2] b = Conv<strides = [2, 2]>(d2, wd)
    }}"""
