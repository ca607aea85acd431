"""Small graphs with their spaces and landscapes."""

from placer.graph import Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.space import Space, build_space

NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] out)
<float[4,4,1,1] w0 = {1}, float[4,4,1,1] w1 = {2}, float[4,4,3,3] w2 = {1}> {
  [conv0] a = Conv(x, w0)
  [conv1] b = Conv(a, w1)
  [conv2] c = Conv<pads = [1, 1, 1, 1]>(b, w2)
  [add1] s = Add(c, a)
  [softmax1] out = Softmax<axis = 1>(s)
}
"""

# Two branches whose Concat only gains if both are quantized, and a chain of equal convolutions.
BRANCHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,16,16] x) => (float[1,16,16,16] out)
<float[8,8,3,3] w0 = {1}, float[8,8,3,3] w1 = {2}, float[8,8,1,1] w2 = {3},
 float[16,16,1,1] w3 = {4}> {
  [conv0] a = Conv<pads = [1, 1, 1, 1]>(x, w0)
  [relu0] b = Relu(a)
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(b, w1)
  [conv2] d = Conv(x, w2)
  [relu2] e = Relu(d)
  [concat1] f = Concat<axis = 1>(c, e)
  [conv3] g = Conv(f, w3)
  [pool1] h = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(g)
  [conv4] i = Conv(h, w3)
  [conv5] j = Conv(i, w3)
  [add1] out = Add(j, h)
}
"""


def space() -> Space:
    graph = graph_of_text(NET)
    return build_space(graph, find_sites(graph, load_pack("onnxruntime").rules))


def landscape(text: str = NET, pack: str = "onnxruntime", base: str = "float") -> Landscape:
    graph: Graph = graph_of_text(text)
    rules = load_pack(pack).rules
    space = build_space(graph, find_sites(graph, rules))
    integer = load_pack(pack).manifest.scheme.activation
    return Landscape(space, LayerModel(graph, Predictor(graph, rules, ANY_TARGET, base, integer)))
