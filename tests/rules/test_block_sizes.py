"""Sums of images whose sizes the model leaves open: predicted as ONNX Runtime builds them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import PROCESSORS
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement
from placer.rules.block_sizes import Size, block_sizes, equality_edges
from placer.rules.packaging.load import load_pack

Save = Callable[..., Path]
PACK = load_pack("onnxruntime")
TEXT = """<ir_version: 9, opset_import: ["": 17]>
g (float[DIMS] x) => (float[A,B,C,D] out)
<float[16,16,1,1] w = {0.1}, float[16,16,1,1] u = {0.3}, float[16,16,3,3] v = {0.2},
 float[16] b = {0.5}, float[16,32,1,1] wide = {0.1}, float[4] twice = {1, 1, 2, 2}> {
  [stem] s = Conv(x, w, b)
  BODY
  [sum] t = Add(l, r)
  [act] a = Relu(t)
  [end] out = Softmax(a)
}
"""
PADDED = "Conv<pads = [1, 1, 1, 1]>"
HALVED = "strides = [2, 2], pads = [1, 1, 1, 1]"
# Open sizes come from one tensor, halved as often.
KEPT = f"[left] l = {PADDED}(s, v) [right] r = Relu(s)"
HALVES = f"[left] l = Conv<{HALVED}>(s, v) [right] r = Conv<strides = [2, 2]>(s, w)"
POOLED = f"""
  [left] l = Conv<strides = [2, 2]>(s, w)
  [right] r = MaxPool<kernel_shape = [3, 3], {HALVED}>(s)
"""
SAME_PADS = f"""
  [left] l = Conv<{HALVED}>(s, v)
  [right] r = AveragePool<kernel_shape = [2, 2], strides = [2, 2], auto_pad = "SAME_UPPER">(s)
"""
JOINED = """
  [tanh] h = Tanh(s)
  [cat] j = Concat<axis = 1>(h, s)
  [left] l = Conv(j, wide)
  [right] r = Relu(s)
"""
NORMALIZED = "[left] l = Conv(s, w) [right] r = BatchNormalization(s, b, b, b, b)"
# They do not, though shapes given for the run are equal.
APART = "[left] l = Conv(x, w) [right] r = Relu(s)"
QUARTERS = "[left] l = Conv<strides = [4, 4]>(s, w) [right] r = Conv<strides = [4, 4]>(s, u)"
DILATED = "[left] l = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(s, v) [right] r = Relu(s)"
UNPADDED = f"""
  [left] l = Conv<{HALVED}>(s, v)
  [right] r = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
"""
RESIZED = f"""
  [small] h = Conv<strides = [2, 2]>(s, w)
  [left] l = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                    nearest_mode = "floor">(h, , twice)
  [right] r = {PADDED}(s, v)
"""


def model_of(save: Save, body: str, dims: str = "1,16,H,W") -> Model:
    text = TEXT.replace("DIMS", dims).replace("BODY", body)
    return load_model(save(text), {"x": (1, 16, 16, 16)})


def computed(plan: Plan) -> Counter[frozenset[str]]:
    return Counter(frozenset(layer.nodes) for layer in plan.of_kind("compute"))


def predicted_and_built(
    model: Model, placement: Placement = EMPTY
) -> tuple[Counter[frozenset[str]], Counter[frozenset[str]]]:
    engine, scheme = OnnxRuntimeEngine(), PACK.manifest.scheme
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    predictor = make_predictor(model.graph, PACK, engine.target, "float", ranges=ranges)
    predicted = predictor.predict(placement).plan
    return computed(predicted), computed(engine.compile(candidate, model.base_dir).plan())


@pytest.mark.parametrize("dims", ["1,16,H,W", "N,16,H,W", "1,16,?,?", "1,16,16,W"])
@pytest.mark.parametrize(
    ("body", "adds"),
    [
        (KEPT, True),
        (HALVES, True),
        (POOLED, True),
        (SAME_PADS, True),
        (JOINED, True),
        (NORMALIZED, True),
        (APART, False),
        (QUARTERS, False),
        (DILATED, False),
        (UNPADDED, False),
        (RESIZED, False),
    ],
    ids=(
        "kept halves pooled same-pads joined normalized apart quarters dilated unpadded resized"
    ).split(),
)
def test_a_conv_adds_what_is_known_to_be_of_its_size(save: Save, body: str, adds: bool, dims: str):
    predicted, built = predicted_and_built(model_of(save, body, dims))
    assert predicted == built
    alone = frozenset({"sum"})
    assert (alone not in built) == adds


@pytest.mark.parametrize("body", [APART, QUARTERS, DILATED, UNPADDED, RESIZED])
def test_a_conv_adds_all_that_the_model_fixes(save: Save, body: str):
    predicted, built = predicted_and_built(model_of(save, body, "1,16,16,16"))
    assert predicted == built
    assert frozenset({"sum"}) not in built


@pytest.mark.parametrize("kind", ["avx2", "avx512"])
@pytest.mark.parametrize(("body", "adds"), [(HALVES, True), (APART, False)])
def test_sizes_are_followed_on_any_processor(save: Save, body: str, adds: bool, kind: str):
    model, target = model_of(save, body), OnnxRuntimeEngine().target
    target = replace(target, processor=PROCESSORS[kind])
    plan = make_predictor(model.graph, PACK, target, "float").predict(EMPTY).plan
    assert (frozenset({"sum"}) not in computed(plan)) == adds


# A second sum, behind one that is a layer of its own or a product that leaves the blocks.
TWO_SUMS = """
  [other] o = Conv(x, w)
  [first] f = Add(s, o)
  [left] l = Conv(f, w)
  [right] r = Tanh(f)
"""
PRODUCT = TWO_SUMS.replace("Add", "Mul")


@pytest.mark.parametrize(("body", "adds"), [(TWO_SUMS, True), (PRODUCT, False)])
def test_sums_of_open_sizes_stay_in_blocks_and_products_do_not(save: Save, body: str, adds: bool):
    predicted, built = predicted_and_built(model_of(save, body))
    assert predicted == built
    assert (frozenset({"sum"}) not in built) == adds


# What is between the operands and the tensor that both sizes come from.
LONG = f"""
  [trunk] k = Tanh(s)
  [c1] c = {PADDED}(k, v)
  [c2] d = Relu(c)
  [left] l = Conv(d, w)
  [right] r = Conv(k, u)
"""


@pytest.mark.parametrize(
    ("tensors", "adds"),
    [
        ("", True),
        ("x", True),  # Before the tensor that sizes come from.
        ("s", False),  # The trunk is then read row by row.
        ("d", False),
        ("c", False),
        ("k", False),
    ],
)
def test_pairs_cut_sizes_off(save: Save, tensors: str, adds: bool):
    model = model_of(save, LONG)
    edges = [edge for tensor in tensors.split() for edge in model.graph.edges_of(tensor)]
    predicted, built = predicted_and_built(model, Placement.of(edges))
    assert predicted == built
    assert (frozenset({"sum"}) not in built) == adds


def test_dimensions_are_those_of_the_file_whatever_shapes_are_given(save: Save):
    graph = model_of(save, KEPT, "N,16,H,?").graph
    assert graph.type_of("x").shape == (1, 16, 16, 16)
    assert graph.dimensions_of("x") == ("N", 16, "H", None)
    assert graph.dimensions_of("s") == ("N", 16, None, None)  # ONNX's inference follows no sizes.
    assert graph.dimensions_of("w") == (16, 16, 1, 1)


def test_sizes_have_an_origin_and_are_halved_since():
    graph = graph_of_text(TEXT.replace("DIMS", "1,16,H,W").replace("BODY", HALVES))
    sizes = block_sizes(graph, 16)
    assert sizes["s"] == (Size("s"),) * 4
    assert sizes["l"] == (Size("s"), Size("l"), Size("s", 1), Size("s", 1))
    assert sizes["r"] == (Size("s"), Size("r"), Size("s", 1), Size("s", 1))
    assert equality_edges(graph.by_name["sum"], graph, 16) == (
        Edge("s", "right", 0),
        Edge("s", "left", 0),
    )


def test_fixed_sizes_need_no_origin():
    graph = graph_of_text(TEXT.replace("DIMS", "1,16,16,16").replace("BODY", HALVES))
    assert equality_edges(graph.by_name["sum"], graph, 16) == ()


# 22 channels fill no blocks; such a Conv adds what the model has of its own shape.
UNBLOCKED = """<ir_version: 9, opset_import: ["": 17]>
g (float[DIMS] x) => (float[A,B,C,D] out) <float[22,22,1,1] w = {0.1}, float[22] b = {0.5}> {
  [first] s = Conv(x, w, b)
  [tanh] r = Tanh(s)
  [left] l = Conv(r, w, b)
  [sum] t = Add(l, r)
  [end] out = Softmax(t)
}
"""


@pytest.mark.parametrize(
    ("dims", "adds"),
    [("1,22,16,16", True), ("N,22,16,16", True), ("?,22,16,16", False), ("1,22,H,W", False)],
)
def test_a_conv_without_blocks_adds_what_the_model_has_equal(save: Save, dims: str, adds: bool):
    path = save(UNBLOCKED.replace("DIMS", dims))
    predicted, built = predicted_and_built(load_model(path, {"x": (1, 22, 16, 16)}))
    assert predicted == built
    assert (frozenset({"sum"}) not in built) == adds


NORM = """<ir_version: 9, opset_import: ["": 17]>
g (float[DIMS] x) => (float[A,B,C] out) <float[16] s = {1}, float[16] b = {1}> {
  [tanh] h = Tanh(x)
  [other] q = Softmax(h)
  [sum] z = Add(h, q)
  [norm] n = LayerNormalization(z, s, b)
  [end] out = Tanh(n)
}
"""


@pytest.mark.parametrize(
    ("dims", "adds"), [("2,8,16", True), ("N,L,16", True), ("?,8,16", False), ("2,?,16", False)]
)
def test_a_norm_takes_a_sum_whose_shapes_the_model_has_equal(save: Save, dims: str, adds: bool):
    path = save(NORM.replace("DIMS", dims))
    predicted, built = predicted_and_built(load_model(path, {"x": (2, 8, 16)}))
    assert predicted == built
    assert (frozenset({"sum"}) not in built) == adds
