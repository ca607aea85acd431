"""What the given shapes settle is constant in an engine."""

import numpy as np
from onnx import TensorProto, numpy_helper

from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.prediction.layers.shape_constants import with_shapes_folded
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

# Half of the channels by a computed index, and a grid that grows with the image.
SPLIT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,4,4] x) => (float[1,8,4,4] y)
<float[8,8,1,1] w1 = {1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] from = {0},
 int64 zero = {0}, int64 step = {1}, float[1] half = {0.5}, int64 first = {2}> {
  [conv1] c = Conv(x, w1)
  [shape1] s = Shape(c)
  [gather1] n = Gather(s, one)
  [div1] half_n = Div(n, two)
  [slice1] a = Slice(c, from, half_n, one)
  [slice2] b = Slice(c, half_n, n, one)
  [concat1] joined = Concat<axis = 1>(a, b)
  [gather2] width = Gather(s, first)
  [range1] grid = Range(zero, width, step)
  [cast1] numbers = Cast<to = 1>(grid)
  [add1] centres = Add(numbers, half)
  [add2] y = Add(joined, centres)
}
"""


def test_shape_arithmetic_becomes_constants_with_their_values():
    graph = with_shapes_folded(graph_of_text(SPLIT))
    assert [node.name for node in graph.nodes] == ["conv1", "slice1", "slice2", "concat1", "add2"]
    assert [node.index for node in graph.nodes] == list(range(5))
    values = {t: numpy_helper.to_array(graph.initializers[t]) for t in ("n", "half_n", "centres")}
    assert (values["n"].tolist(), values["half_n"].tolist()) == ([8], [4])
    assert np.array_equal(values["centres"], np.float32([0.5, 1.5, 2.5, 3.5]))


def test_the_shape_of_what_is_computed_here_is_its_values():
    """Inference does not tell how long a Range is."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,1,3] x) => (float[1,2,3] y)
    <int64[1] last = {2}, int64 zero = {0}, int64 one = {1}, int64[1] two = {2}> {
      [shape1] s = Shape(x)
      [gather1] width = Gather<axis = 0>(s, last)
      [squeeze1] w = Squeeze(width)
      [range1] columns = Range(zero, w, one)
      [shape2] count = Shape(columns)
      [concat1] size = Concat<axis = 0>(two, count)
      [cast1] floats = Cast<to = 1>(columns)
      [expand1] grid = Expand(floats, size)
      [add1] y = Add(x, grid)
    }
    """
    graph = with_shapes_folded(graph_of_text(text))
    assert [node.name for node in graph.nodes] == ["add1"]
    grid = numpy_helper.to_array(graph.initializers["grid"])
    assert grid.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_what_needs_constants_of_another_file_stays():
    graph = graph_of_text(SPLIT)
    graph.initializers["two"].data_location = TensorProto.EXTERNAL
    names = [node.name for node in with_shapes_folded(graph).nodes]
    assert names == ["conv1", "div1", "slice1", "slice2", "concat1", "add2"]


def test_a_shape_reads_no_data():
    graph = with_shapes_folded(graph_of_text(SPLIT))
    assert {edge.node for edge in graph.edges_of("c")} == {"slice1", "slice2"}


def test_no_layer_computes_shapes():
    rules = load_pack("tensorrt").rules
    predictor = Predictor(graph_of_text(SPLIT), rules, Target(typing="strong"), "float16", "int8")
    plan = predictor.predict(EMPTY).plan
    covered = {node for layer in plan.of_kind("compute") for node in layer.nodes}
    assert covered == {"conv1", "add2"}  # Slices of channels run nothing.


def test_shapes_that_are_not_known_or_leave_the_graph_stay():
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8] x, float[N,8] dynamic) => (int64[2] s, int64[2] t)
    {
      [shape1] s = Shape(x)
      [shape2] u = Shape(dynamic)
      [add1] t = Add(u, u)
    }
    """
    graph = graph_of_text(text)
    assert with_shapes_folded(graph) is graph
