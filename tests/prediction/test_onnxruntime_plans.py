"""Plans of ONNX Runtime, predicted as they are built."""

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.abilities import target_of
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.onnxruntime.coverage import Coverage
from placer.graph import Edge
from placer.graph.text import graph_of_text, parse_model
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.precision import convert
from placer.quantization import EMPTY, Placement, Range
from placer.quantization.placement import ScaleGroup
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target
from placer.search.space import build_space
from tests.prediction.test_openvino_plans import layers, varied

PACK = load_pack("onnxruntime")
HEAD = '<ir_version: 9, opset_import: ["": 17]>'
VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def plans(text: str, pairs: list[tuple[Edge, ...]], folder: Path) -> tuple[Plan, Plan]:
    """Predicted and built, of the groups of ``pairs``."""
    onnx.save(varied(parse_model(HEAD + text)), folder / "model.onnx")
    model = load_model(folder / "model.onnx", bodies=PACK.enters_bodies)
    scheme = PACK.manifest.scheme
    placement = Placement.of_groups(pairs)
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    target = target_of(OnnxRuntimeEngine())
    predictor = make_predictor(model.graph, PACK, target, "float", ranges=ranges)
    actual = OnnxRuntimeEngine().compile(candidate, folder).plan()
    return predictor.predict(placement).plan, actual


BIASED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16] b = {1}> {
  [conv] c = Conv(x, w, b)
  [act] y = Tanh(c)
}
"""
# What conv1 writes as integers is read in float, with another tensor that is float.
MOVED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}> {
  [tanh] t = Tanh(x)
  [conv1] c = Conv(x, w)
  [add] a = Add(t, c)
  [conv2] d = Conv(a, v)
  [last] y = Tanh(d)
}
"""
# RESHAPES: two in a row; a pair in front moves past them, and they are one before it does.
RESHAPES = """
g (float[2,24,16] x) => (float[2,4,6,16] y)
<int64[2] rows = {48, 16}, int64[4] heads = {2, 4, 6, 16}> {
  [tanh] z = Tanh(x)
  [rows1] r = Reshape(z, rows)
  [heads1] h = Reshape(r, heads)
  [last] y = Softmax(h)
}
"""
# Unsqueezes in a row are not one, and of a row that a Squeeze begins the rest is.
UNSQUEEZED = """
g (float[1,16] x, float[1,16,8,8] z) => (float[1,16,8,8] y)
<int64[1] two = {2}, int64[1] three = {3}> {
  [tanh] t = Tanh(x)
  [u1] u = Unsqueeze(t, two)
  [u2] v = Unsqueeze(u, three)
  [last] y = Add(z, v)
}
"""
SQUEEZED = """
g (float[2,1,1,16] x) => (float[32,1,1] y)
<int64[1] one = {1}, int64[1] too = {1}, int64[2] s = {32, 1}> {
  [tanh] t = Tanh(x)
  [s1] u = Squeeze(t, one)
  [r1] v = Reshape(u, s)
  [u1] w = Unsqueeze(v, too)
  [last] y = Softmax(w)
}
"""
# Views of integers behind a Conv, and then what is read in float.
VIEWED = """
g (float[1,16,8,8] x) => (float[1,4,256] y)
<float[16,16,1,1] w = {1}, float[16] b = {1}, int64[3] s = {1, 16, 64}, int64[3] t = {1, 4, 256}> {
  [conv] c = Conv(x, w, b)
  [r1] d = Reshape(c, s)
  [r2] e = Reshape(d, t)
  [last] y = Softmax(e)
}
"""
# A Slice of all, which leaves out its axes.
WHOLE = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<int64[4] start = {0, 0, 0, 0}, int64[4] end = {1, 16, 8, 8}, int64[4] step = {1, 1, 1, 1}> {
  [tanh] t = Tanh(x)
  [slice] p = Slice(t, start, end, , step)
  [last] y = Softmax(p)
}
"""
# What a product adds its bias to is read in float and as integers.
MIXED = """
g (float[8,16,24] x) => (float[8,16,16] y) <float[24,16] w = {1}, float[16] b = {1}> {
  [conv] m = MatMul(x, w)
  [add] a = Add(m, b)
  [sig] s = Sigmoid(a)
  [last] y = Mul(a, s)
}
"""
SCALED = """
g (float[2,4,16,16] x, float[2,4,16,16] z) => (float[2,4,16,16] y) <float k = {4}> {
  [first] m = MatMul(x, z)
  [scale] e = Div(m, k)
  [second] y = MatMul(e, z)
}
"""
# Keys of a map are turned, and turned back between views by PyTorch's exporter.
TURNED_BACK = """
g (float[2,4,16,24] x, float[2,4,16,24] z) => (float[2,4,24,24] y)
<int64[3] rows = {8, 24, 16}, int64[4] heads = {2, 4, 16, 24}, float k = {0.5}> {
  [queries] u = Transpose<perm = [0, 1, 3, 2]>(z)
  [keys] h = Transpose<perm = [0, 1, 3, 2]>(x)
  [join] d = Reshape(h, rows)
  [turn] e = Transpose<perm = [0, 2, 1]>(d)
  [apart] t = Reshape(e, heads)
  [first] p = Mul(u, k)
  [second] q = Mul(t, k)
  [product] m = MatMul(p, q)
  [last] y = Softmax(m)
}
"""
CLIPPED = """
g (float[1,16,8] x) => (float[1,16,8] y) <float k = {0}, float u = {6}, float one = {1}> {
  [relu] r = Relu(x)
  [clip] c = Clip(r, k, u)
  [root] q = Sqrt(c)
  [div] d = Div(one, q)
  [mul] y = Mul(x, d)
}
"""
POOLED = """
g (float[1,24,8,8] x) => (float[1,24,4,4] y)
<float[24,24,1,1] w = {1}, float[24] b = {1}, float[24,24,2,2] v = {1}> {
  [conv1] c = Conv(x, w, b)
  [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
  [conv2] d = Conv<strides = [2, 2]>(c, v, b)
  [add] y = Add(p, d)
}
"""
# Transposes around a Conv and what follows it in float, as encoders of speech have them.
TURNED = """
g (float[1,20,16] x) => (float[1,20,16] y) <float[16,16,3] w = {1}, float[16] b = {1}> {
  [norm] n = Softmax(x)
  [there] t = Transpose<perm = [0, 2, 1]>(n)
  [conv] c = Conv<pads = [1, 1]>(t, w, b)
  [act] a = Tanh(c)
  [back] r = Transpose<perm = [0, 2, 1]>(a)
  [add] y = Add(n, r)
}
"""
# The sum of a block with channels last has them last, too, so that nothing is turned back.
RESIDUAL = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16] b = {1}, float[16,16,1,1] v = {1}, float[16] g = {1}> {
  [conv] c = Conv(x, w, b)
  [there] t = Transpose<perm = [0, 2, 3, 1]>(c)
  [norm] n = LayerNormalization(t, g, b)
  [back] r = Transpose<perm = [0, 3, 1, 2]>(n)
  [add] a = Add(c, r)
  [conv2] d = Conv(a, v)
  [last] y = Tanh(d)
}
"""
# A Concat has one scale for a Relu and what is negative: its Q does not do what the Relu does.
SHARED = """
g (float[1,16,8,8] x) => (float[1,32,8,8] y) <float[16,16,1,1] w = {1}, float[16] b = {1}> {
  [conv] c = Conv(x, w, b)
  [act] r = Relu(c)
  [negative] n = Tanh(x)
  [join] j = Concat<axis = 1>(r, n)
  [last] y = Tanh(j)
}
"""
# A norm over the channels of maps, which are not last, stays in nodes.
CHANNELS = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float two = {2}, float eps = {1e-6}, float[16,1,1] w = {1}, float[16,1,1] b = {1}> {
  [mean] m = ReduceMean<axes = [1]>(x)
  [sub] d = Sub(x, m)
  [pow] p = Pow(d, two)
  [var] v = ReduceMean<axes = [1]>(p)
  [eps] e = Add(v, eps)
  [root] r = Sqrt(e)
  [div] n = Div(d, r)
  [scale] o = Mul(n, w)
  [shift] y = Add(o, b)
}
"""
# What leads to a Conv leaves the graph, too: the channels are moved in front of it.
LEAVING = """
g (float[1,16,8,8] x) => (float[1,16,8,8] a, float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}> {
  [conv1] c = Conv(x, w)
  [act] a = HardSigmoid(c)
  [conv2] d = Conv(a, v)
  [last] y = Tanh(d)
}
"""
# The Relu of the sum is gone; what leads to conv2 is seen past it.
SUMMED = MOVED.replace("[conv2] d = Conv(a, v)", "[act] r = Relu(a) [conv2] d = Conv(r, v)")
# Parts of one tensor, which one Split cuts unless they are quantized otherwise than it.
PARTS = """
g (float[1,16,32] x) => (float[1,8,32] y)
<int64[1] first = {0}, int64[1] half = {8}, int64[1] last = {16}, int64[1] axis = {1}> {
  [tanh] h = Tanh(x)
  [upper] a = Slice(h, first, half, axis)
  [lower] b = Slice(h, half, last, axis)
  [mul] y = Mul(a, b)
}
"""
WHOLE_PAIR = (Edge("h", "upper", 0), Edge("h", "lower", 0))
PART_PAIRS = [(Edge("a", "mul", 0),), (Edge("b", "mul", 1),)]
X, W = Edge("x", "conv", 0), Edge("w", "conv", 1)
FIRST = [(Edge("x", "conv1", 0),), (Edge("w", "conv1", 1),), (Edge("c", "add", 1),)]
SECOND = [(Edge("a", "conv2", 0),), (Edge("v", "conv2", 1),), (Edge("d", "last", 0),)]
LEAVING_PAIRS = [*FIRST[:2], (Edge("c", "act", 0),), *SECOND]
LEFT = 3 if VERSION >= (1, 31) else 2  # What leaves keeps its layout from 1.31 on.


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [
        # A candidate has biases between pairs as integers, whatever follows their Conv.
        (BIASED, [(X,), (W,)], {"quantize": 1, "dequantize": 3}),
        # TryFixTransposeMissingQ: a pair behind what the optimizer moves before the sum.
        (MOVED, [*FIRST, *SECOND], {"quantize": 3, "dequantize": 3}),
        (MOVED, FIRST, {"quantize": 1, "dequantize": 1}),
        (RESHAPES, [(Edge("h", "last", 0),)], {"quantize": 1, "dequantize": 1}),
        (UNSQUEEZED, [], {}),
        (WHOLE, [], {}),
        (SQUEEZED, [], {}),
        (VIEWED, [(X,), (W,), (Edge("c", "r1", 0),)], {"quantize": 1, "dequantize": 1}),
        (
            MIXED,
            [(X,), (W,), (Edge("b", "add", 1),), (Edge("a", "sig", 0),)],
            {"quantize": 2, "dequantize": 1},
        ),
        (
            TURNED,
            [(Edge("t", "conv", 0),), (W,), (Edge("c", "act", 0),)],
            {"quantize": 1, "dequantize": 1},
        ),
        (
            RESIDUAL,
            [
                (X,),
                (W,),
                (Edge("c", "there", 0), Edge("c", "add", 0), Edge("t", "norm", 0)),
                (Edge("n", "back", 0), Edge("r", "add", 1)),
                (Edge("a", "conv2", 0),),
                (Edge("v", "conv2", 1),),
                (Edge("d", "last", 0),),
            ],
            {"quantize": 2, "dequantize": 2},
        ),
        (SCALED, [], {}),
        (TURNED_BACK, [], {}),
        (CLIPPED, [], {}),
        (POOLED, [], {}),
        (CHANNELS, [], {}),
        (
            SHARED,
            [(X,), (W,), (Edge("r", "join", 0), Edge("n", "join", 1)), (Edge("j", "last", 0),)],
            {"quantize": 3, "dequantize": 4},
        ),
        (
            SUMMED,
            [*FIRST, (Edge("r", "conv2", 0),), *SECOND[1:]],
            {"quantize": 3, "dequantize": 3},
        ),
        (
            LEAVING.replace("HardSigmoid", "Softmax"),
            LEAVING_PAIRS,
            {"quantize": LEFT, "dequantize": LEFT},
        ),
        (PARTS, PART_PAIRS, {"quantize": 2, "dequantize": 2}),
        (PARTS, [WHOLE_PAIR, PART_PAIRS[0] + PART_PAIRS[1]], {"quantize": 1}),
        (PARTS, [WHOLE_PAIR, *PART_PAIRS], {"quantize": 3, "dequantize": 4}),
        (LEAVING, LEAVING_PAIRS, {"quantize": LEFT, "dequantize": LEFT}),
    ],
)
def test_plans_are_predicted_as_they_are_built(
    tmp_path: Path, text: str, pairs: list[tuple[Edge, ...]], expected: dict[str, int]
):
    predicted, built = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(built)
    assert Counter(x.kind for x in predicted.layers if x.kind in expected) == expected
    assert Counter(x.kind for x in built.layers if x.kind in expected) == expected


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ("[gone] r = Relu(t)", "[left] y = Unsqueeze(r, axis)"),
        ("[gone] r = Transpose<perm = [1, 0]>(t)", "[left] y = Add(r, r)"),
    ],
)
def test_what_is_gone_is_in_no_layer_that_cannot_have_it(gone: str, left: str):
    text = """
    g (float[4,4] x) => (float[N] y) <int64[1] axis = {0}> { [tanh] t = Tanh(x) GONE LEFT }
    """.replace("LEFT", left)
    model = onnx.parser.parse_model(HEAD + text.replace("GONE", gone))
    built = onnx.parser.parse_model(
        HEAD + text.replace("GONE", "").replace("(r", "(t").replace(" r)", " t)")
    )
    assert Coverage(model.graph, built.graph).nodes() == [("tanh",), ("left",)]


def test_what_shapes_settle_is_no_part_of_the_product_that_it_scales():
    model = onnx.parser.parse_model(
        HEAD
        + """
        g (float[2,24,16] x, float[2,16,24] z) => (float[2,24,24] y) {
          [shape] s = Shape<start = 2>(x)
          [cast] f = Cast<to = 1>(s)
          [root] r = Sqrt(f)
          [scale] p = Div(x, r)
          [product] y = MatMul(p, z)
        }
        """
    )
    built = onnx.parser.parse_model(
        HEAD
        + "g (float[2,24,16] x, float[2,16,24] z) => (float[2,24,24] y)"
        + "{ [product] y = MatMul(x, z) }"
    )
    assert Coverage(model.graph, built.graph).nodes() == [("product", "scale")]


SWISH = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}, float[16] b = {1}> {
  [conv] c = Conv(x, w, b)
  [act] h = HardSwish(c)
  [last] y = Softmax(h)
}
"""


@pytest.mark.parametrize(("version", "first"), [("1.24.4", {"conv"}), ("1.30.0", {"conv", "act"})])
def test_rules_hold_from_the_version_that_they_name(version: str, first: set[str]):
    """A float Conv takes a HardSwish from 1.30 on, and the engine says which version it is."""
    graph = graph_of_text(HEAD + SWISH)
    plan = make_predictor(graph, PACK, Target(version), "float").predict(EMPTY).plan
    assert set(plan.layers[0].nodes) == first
    assert target_of(OnnxRuntimeEngine()).engine_version == onnxruntime.__version__


@pytest.mark.parametrize(("version", "pairs"), [("1.30.0", 2), ("1.31.0", 3)])
def test_what_leaves_keeps_its_layout_from_a_version_on(version: str, pairs: int):
    graph = graph_of_text(HEAD + LEAVING)
    placement = Placement.of_groups(LEAVING_PAIRS)
    plan = make_predictor(graph, PACK, Target(version), "float").predict(placement).plan
    assert len(plan.of_kind("dequantize")) == pairs


# ConvTranspose has no integer kernel; its weights and biases are quantized all the same.
UPSCALED = """
g (float[1,16,8,8] x) => (float[1,8,16,16] y)
<float[16,8,2,2] w = {1}, float[8] b = {1}> {
  [up] c = ConvTranspose<strides = [2, 2]>(x, w, b)
  [act] r = Relu(c)
  [last] y = Softmax(r)
}
"""
# Before each Conv of a DenseNet; the graph output keeps the Conv's BatchNormalization.
NORMED = """
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] c)
<float[16,16,1,1] w = {1}, float[16,16,1,1] v = {1}, float[16] k = {1}> {
  [conv1] c = Conv(x, w)
  [norm] n = BatchNormalization(c, k, k, k, k)
  [relu] r = Relu(n)
  [conv2] y = Conv(r, v)
}
"""


@pytest.mark.parametrize(
    ("text", "pairs", "conversions"),
    [
        (UPSCALED, [(Edge("x", "up", 0),), (Edge("r", "last", 0),)], 6),
        (UPSCALED, [(Edge("x", "up", 0),)], 2),
        (NORMED, [], 0),
    ],
    ids=["an upscaled map that is quantized", "one that is not", "blocks that are normalized"],
)
def test_float_kernels_are_predicted_as_they_are_built(
    text: str, pairs: list[tuple[Edge, ...]], conversions: int, tmp_path: Path
):
    predicted, built = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(built)
    for plan in (predicted, built):
        assert sum(x.kind in ("quantize", "dequantize") for x in plan.layers) == conversions


def test_scales_of_one_tensor_are_not_those_of_its_whole_range():
    """Which z has: x has one for each reader, and only their common range is known."""
    text = """
        g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,48,8,8] y) {
          [pool1] p = MaxPool<kernel_shape = [1, 1]>(x)
          [pool2] q = MaxPool<kernel_shape = [1, 1]>(x)
          [pool3] r = MaxPool<kernel_shape = [1, 1]>(z)
          [join] y = Concat<axis = 1>(p, q, r)
        }"""
    graph = graph_of_text(HEAD + text)
    edges = [Edge("x", "pool1", 0), Edge("x", "pool2", 0), Edge("z", "pool3", 0)]
    placement = Placement.of_scales(ScaleGroup(frozenset([edge])) for edge in edges)
    ranges = dict.fromkeys("xz", Range(0.0, 2.0))
    predictor = make_predictor(graph, PACK, Target(), "float", ranges=ranges)
    scales = predictor.predict(placement).form.scales
    assert len({scales[edge] for edge in edges}) == 3


# FusedConv: float16 has no kernel of Conv; that of Clip would be alone. A constant is cast in every
# run where two nodes read it, as w and k are. Concat and Transpose, two in a row, stay float16.
HALF = """
g (float[1,8,8,8] x) => (float[1,16,8,8] y)
<float[8,8,1,1] w = {1}, float low = {0}, float high = {6}, float k = {2}, float j = {3}> {
  [conv] c = Conv(x, w)
  [clip] p = Clip(c, low, high)
  [conv2] d = Conv(p, w)
  [mul1] m = Mul(d, k)
  [mul2] n = Mul(m, k)
  [mul3] o = Mul(n, j)
  [both] b = Concat<axis = 1>(d, o)
  [turn] s = Transpose<perm = [0, 1, 3, 2]>(b)
  [last] y = Sigmoid(s)
}
"""


def test_casts_surround_what_has_no_kernel_for_float16(tmp_path: Path):
    onnx.save(varied(parse_model(HEAD + HALF)), tmp_path / "float.onnx")
    half = convert(load_model(tmp_path / "float.onnx"), "float16", "convert").proto
    onnx.save(half, tmp_path / "half.onnx")
    model, engine = load_model(tmp_path / "half.onnx"), OnnxRuntimeEngine()
    predictor = make_predictor(model.graph, PACK, target_of(engine), "float")
    predicted = layers(predictor.predict(EMPTY).plan)
    assert predicted == layers(engine.compile(model.proto, tmp_path).plan())
    assert predicted[frozenset({"both"}), ("float16",)] == 1
    assert predicted[frozenset({"conv", "clip"}), ("float",)] == 1
    casts = {types: count for (nodes, types), count in predicted.items() if not nodes}
    assert casts == {("float",): 4, ("float16",): 3}


# Both branches of the Concat are read by Convs, and both Convs before it may be quantized with what
# they write; ONNX Runtime would make a QLinearConcat, which takes no float16 scales.
HALF_BRANCHES = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,8,8,8] x) => (float[1,8,8,8] y)
<float[8,8,1,1] w = {1}, float[8,8,1,1] v = {1}, float[8,16,1,1] u = {1}> {
  [conv1] a = Conv(x, w)
  [conv2] b = Conv(a, v)
  [join] c = Concat<axis = 1>(a, b)
  [conv3] y = Conv(c, u)
}
"""


def test_whatever_is_quantized_of_float16_has_no_integer_concat(tmp_path: Path):
    onnx.save(varied(parse_model(HALF_BRANCHES)), tmp_path / "float.onnx")
    half = convert(load_model(tmp_path / "float.onnx"), "float16", "convert").proto
    onnx.save(half, tmp_path / "half.onnx")
    model, scheme = load_model(tmp_path / "half.onnx"), PACK.manifest.scheme
    everything = {}
    for graph in (load_model(tmp_path / "float.onnx").graph, model.graph):
        space = build_space(graph, find_sites(graph, PACK.rules))
        everything[graph.type_of("a").dtype] = space.placement(space.everything)
    quantized = {
        dtype: {edge.tensor for edge in placement.edges if edge.node == "join"}
        for dtype, placement in everything.items()
    }
    assert quantized == {onnx.TensorProto.FLOAT: {"a", "b"}, onnx.TensorProto.FLOAT16: set()}
    placement = everything[onnx.TensorProto.FLOAT16]
    assert {edge.node for edge in placement.edges} == {"conv1", "conv2", "conv3", ""}
    ranges = dict.fromkeys("xabcy", Range(-8.0, 8.0))
    candidate = Inserter(model, scheme).insert(placement, ranges)
    plan = OnnxRuntimeEngine().compile(candidate, tmp_path).plan()  # It is not refused.
    assert {layer.op for layer in plan.of_kind("compute") if "join" in layer.nodes} == {"Concat"}


STATES = """
g (float[N,4] x) => (float[1,N,4] y, float[1,N,4] z)
<float[1,1,1] nothing = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] zero = {0},
 int64[1] one = {1}, int64[1] same = {0}, int64[1] last = {2}, int64[1] axis = {0}> {
  [shape] s = Shape(x)
  [batch] n = Slice(s, zero, one, axis)
  [sizes] c = Concat<axis = 0>(two, n, four)
  [states] h = Expand(nothing, c)
  [first] p = Slice(h, zero, one, axis)
  [again] q = Slice(h, same, one, axis)
  [second] r = Slice(h, one, last, axis)
  [sum1] a = Add(p, x)
  [sum2] b = Add(q, r)
  [mul1] y = Mul(a, b)
  [mul2] z = Mul(b, x)
}
"""


def test_slices_of_states_are_no_split_and_equal_ones_are_one(tmp_path: Path) -> None:
    """Of recurrent layers that PyTorch exports with an open batch."""
    predicted, actual = plans(STATES, [], tmp_path)
    found = {frozenset(one.nodes) for one in actual.of_kind("compute")}
    assert {frozenset({"first", "again"}), frozenset({"second"})} <= found
    assert {frozenset(one.nodes) for one in predicted.of_kind("compute")} >= found - {frozenset()}


GELU = """
g (float[1,8,4] x) => (float[1,8,4] out)
<TYPE k = {NUMBER}, float root = {1.4142135}, float half = {0.5}> {
  [soft] s = Softmax(x)
  PARTS
  [soft2] out = Softmax(y)
}
"""
ERF = "[div] d = Div(s, root) [erf] e = Erf(d) [add] f = Add(e, k) [mul] m = Mul(s, f) "
QUICK = "[scale] d = Mul(s, k) [gate] e = Sigmoid(d) [mul] y = Mul(s, e)"


@pytest.mark.parametrize(
    ("parts", "number"), [(ERF + "[half] y = Mul(m, half)", "1"), (QUICK, "1.702")]
)
@pytest.mark.parametrize("shape", ["float", "float[1]", "float[1,1,1]"])
def test_constants_with_all_axes_keep_an_activation_in_parts(
    shape: str, parts: str, number: str, tmp_path: Path
) -> None:
    text = GELU.replace("TYPE", shape).replace("NUMBER", number).replace("PARTS", parts)
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    is_one = len(actual.layers) == 3
    assert is_one == (shape != "float[1,1,1]")
