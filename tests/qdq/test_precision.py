"""FP16 and BF16 bases: which tensors convert, what stays float, and how placements carry over."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph import Edge
from placer.model import Model, load_model
from placer.qdq import Inserter, precision
from placer.qdq.opset import with_opset
from placer.qdq.precision import convert
from placer.qdq.translation import translate, translate_ranges
from placer.quantization import Placement, Range, Scheme
from tests.conftest import DIGITS
from tests.reference_outputs import outputs, sqnr

Save = Callable[..., Path]

FLOAT, HALF, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
INT8 = Scheme(activation="int8", symmetric=True, bias="float")

RESIDUAL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,16,16] y)
<float[16,16,3,3] w1 = {0.1}, float[16] b1 = {0.1}, float[16,16,1,1] w2 = {0.1},
 float[32,16,2,2] w3 = {0.1}> {
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  [relu] r = Relu(c)
  [conv2] d = Conv(r, w2)
  [add] s = Add(r, d)
  [concat] k = Concat<axis = 1>(r, s)
  [up] y = ConvTranspose<strides = [2, 2]>(k, w3)
}
""".replace("b1 = {0.1}", "b1 = {" + ", ".join(["0.1"] * 16) + "}")


def load(save: Save, body: str) -> Model:
    return load_model(save(f'<ir_version: 8, opset_import: ["": 17]> {body}'))


def nodes(model: Model) -> dict[str, tuple[list[str], list[str]]]:
    """Inputs and outputs by node name."""
    return {n.name: (list(n.inputs), list(n.outputs)) for n in model.graph.nodes}


def types(model: Model, *tensors: str) -> list[int | None]:
    return [model.graph.type_of(tensor).dtype for tensor in tensors]


def images(count: int) -> np.ndarray:
    return np.load(DIGITS / "evaluation.npz")["image"][:count].astype(np.float32)


def test_names_stay_and_casts_stand_at_the_borders(save: Save):
    model = load(save, "g (float[2] x) => (float[2] y) { [n] a = Neg(x) [r] y = Relu(a) }")
    converted = convert(model, "float16", "keep")
    onnx.checker.check_model(converted.proto, full_check=True)
    assert nodes(converted) == {
        "x/float16/Cast": (["x"], ["x/float16"]),
        "n": (["x/float16"], ["a"]),
        "r": (["a"], ["y/float16"]),
        "y/Cast": (["y/float16"], ["y"]),
    }
    assert types(converted, "x", "a", "y") == [FLOAT, HALF, FLOAT]
    assert converted.notes[-2:] == (
        "opset 17 raised to 19",
        "converted to float16; 0 of 2 nodes stay float",
    )


def test_inputs_and_outputs_may_be_converted_too(save: Save):
    model = load(
        save, "g (float[2] x, int64[2] i) => (float[2] y) { [n] a = Neg(x) [g] y = Gather(a, i) }"
    )
    converted = convert(model, "bfloat16", "convert")
    onnx.checker.check_model(converted.proto, full_check=True)
    assert nodes(converted) == nodes(model)
    assert types(converted, "x", "i", "a", "y") == [BRAIN, TensorProto.INT64, BRAIN, BRAIN]
    assert converted.proto.opset_import[0].version == 22


def test_the_float_base_changes_nothing(save: Save):
    model = load(save, "g (float[2] x) => (float[2] y) { [n] y = Neg(x) }")
    assert convert(model, "float", "keep") is model


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_float16_is_close_to_float(io: precision.InputOutputTypes):
    model = load_model(DIGITS / "digits.onnx")
    converted = convert(model, "float16", io)
    x = images(32)
    given = x.astype(np.float16) if io == "convert" else x
    assert sqnr(*outputs(model.proto, image=x), *outputs(converted.proto, image=given)) >= 40
    assert converted.weight_bytes == model.weight_bytes // 2


def test_bfloat16_has_eight_bits_of_precision():
    """ONNX Runtime has no BF16 convolution on the CPU, so ONNX's reference runs it."""
    model = load_model(DIGITS / "digits.onnx")
    converted = convert(model, "bfloat16", "keep")
    x = images(2)
    (actual,) = ReferenceEvaluator(converted.proto).run(None, {"image": x})
    assert sqnr(*outputs(model.proto, image=x), actual) >= 30


@pytest.mark.parametrize("base", ["float16", "bfloat16"])
@pytest.mark.parametrize("io", ["keep", "convert"])
def test_conversion_is_deterministic_and_idempotent(
    save: Save, base: precision.Base, io: precision.InputOutputTypes
):
    text = """g (float[2,4] x) => (float[2] y, float[2,4] e) <float[4] big = {1e9, 0, 0, 0}> {
        [add] a = Add(x, x) [exp] e = Exp(a) [sum] s = ReduceMax<axes = [1], keepdims = 0>(e)
        [cut] c = Min(a, big) [m] t = ReduceMax<axes = [1], keepdims = 0>(c) [y] y = Add(s, t)
    }"""
    model = load(save, text)
    once = convert(model, base, io)
    onnx.checker.check_model(once.proto, full_check=True)
    assert convert(model, base, io).proto == once.proto
    twice = convert(once, base, io)
    assert twice.proto == once.proto
    assert twice.notes == once.notes


def test_a_softmax_in_parts_stays_float_without_casts_inside(save: Save):
    model = load(
        save,
        """g (float[2,4] x) => (float[2,4] y) {
            [relu] a = Relu(x) [exp] e = Exp(a) [sum] s = ReduceSum(e) [div] y = Div(e, s)
        }""",
    )
    converted = nodes(convert(model, "float16", "convert"))
    assert converted["exp"] == (["a/float32"], ["e"])
    assert converted["sum"] == (["e"], ["s"])
    assert converted["div"] == (["e/float16", "s/float16"], ["y"])


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
def test_a_variance_stays_float(save: Save, square: str):
    model = load(
        save,
        f"""g (float[2,4] d) => (float[2,1] v) <float two = {{2}}> {{
            [square] q = {square} [mean] v = ReduceMean<axes = [1]>(q)
        }}""",
    )
    converted = nodes(convert(model, "float16", "convert"))
    assert converted["mean"][1] == ["v/float32"]


def test_weights_out_of_range_keep_their_node_float(save: Save):
    model = load(
        save,
        """g (float[2] x) => (float[2] y)
        <float large = {1e6}, float epsilon = {1e-12}, float fine = {60000}> {
            [a] a = Mul(x, large) [b] b = Add(a, epsilon) [c] y = Mul(b, fine)
        }""",
    )
    converted = convert(model, "float16", "convert")
    assert types(converted, "large", "epsilon", "fine") == [FLOAT, FLOAT, HALF]
    assert converted.notes[-2:] == (
        "node 'a' stays float: 'large' is out of the range of float16",
        "node 'b' stays float: 'epsilon' is out of the range of float16",
    )
    assert types(convert(model, "bfloat16", "convert"), "large", "epsilon") == [BRAIN, BRAIN]


def test_an_infinite_mask_is_in_range(save: Save):
    text = "g (float[1] x) => (float[1] y) <float[1] mask = {0}> { [add] y = Add(x, mask) }"
    path = save(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    proto = onnx.load(path)
    infinite = numpy_helper.from_array(np.array([-np.inf], np.float32), "mask")
    proto.graph.initializer[0].CopyFrom(infinite)
    onnx.save(proto, path)
    assert types(convert(load_model(path), "float16", "keep"), "mask") == [HALF]


def test_calibrated_ranges_keep_producers_and_consumers_float(save: Save):
    text = """g (float[2] x) => (float[2] y) {
        [a] a = Neg(x) [b] b = Abs(a) [c] c = Relu(b) [d] y = Neg(c)
    }"""
    model = load(save, text)
    ranges = {"a": Range(-30000, 0), "b": Range(0, 40000)}
    converted = nodes(convert(model, "float16", "convert", ranges=ranges))
    assert converted["a"] == (["x"], ["a"])
    assert converted["b"] == (["a/float32"], ["b"])
    assert converted["c"] == (["b"], ["c"])
    assert converted["d"] == (["c/float16"], ["y"])
    assert nodes(convert(model, "bfloat16", "convert", ranges=ranges)) == nodes(model)


def test_a_graph_output_out_of_range_keeps_its_type(save: Save):
    model = load(save, "g (float[2] x) => (float[2] y) { [a] a = Neg(x) [b] y = Abs(a) }")
    converted = convert(model, "float16", "convert", ranges={"y": Range(0, 1e6)})
    assert types(converted, "x", "a", "y") == [HALF, HALF, FLOAT]
    onnx.checker.check_model(converted.proto, full_check=True)


def test_nodes_can_be_kept_float_by_name(save: Save):
    model = load(save, "g (float[2] x) => (float[2] y) { [a] a = Neg(x) [b] y = Abs(a) }")
    converted = convert(model, "float16", "convert", keep_float=["a"])
    assert nodes(converted)["a"] == (["x/float32"], ["a"])
    with pytest.raises(InputError, match=r"keep_float names node 'z', which .* does not have"):
        convert(model, "float16", "keep", keep_float=["z"])


def test_a_weight_of_mixed_use_exists_in_both_types(save: Save):
    model = load(
        save,
        """g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}> {
            [a] a = MatMul(x, w) [b] y = MatMul(a, w)
        }""",
    )
    converted = convert(model, "float16", "keep", keep_float=["a"])
    assert nodes(converted)["a"][0] == ["x", "w"]
    assert nodes(converted)["b"][0] == ["a/float16", "w/float16"]
    np.testing.assert_array_equal(converted.array("w"), converted.array("w/float16"))


def test_what_an_operator_wants_as_float32_stays_so(save: Save):
    model = load(
        save,
        """g (float[1,1,2,2] x) => (float[1,1,4,4] y, int64[4] s)
        <float[4] scales = {1, 1, 2, 2}> {
            [r] y = Resize<mode = "nearest">(x, , scales) [s] s = Shape(y)
        }""",
    )
    converted = convert(model, "float16", "keep")
    onnx.checker.check_model(converted.proto, full_check=True)
    assert nodes(converted)["r"] == (["x/float16", "", "scales"], ["y/float16"])
    assert types(converted, "scales") == [FLOAT]
    assert nodes(converted)["s"][0] == ["y/float16"]


def test_subgraphs_stay_float_and_read_casts(save: Save):
    model = load(
        save,
        """g (float[2] x, bool c) => (float[2] y) {
            [n] a = Neg(x)
            [if] b = If(c) <
                then_branch = t () => (float[2] u) { [u] u = Relu(a) },
                else_branch = e () => (float[2] v) { [v] v = Abs(a) }
            >
            [r] y = Neg(b)
        }""",
    )
    converted = convert(model, "float16", "keep")
    onnx.checker.check_model(converted.proto, full_check=True)
    assert [e.tensor for e in converted.graph.edges_of("a/float32")] == ["a/float32"]
    x = np.array([-1.5, 2.5], np.float32)
    feeds = {"x": x, "c": np.array(False)}
    np.testing.assert_array_equal(outputs(converted.proto, **feeds), outputs(model.proto, **feeds))


def test_operators_of_other_domains_stay_float(save: Save):
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2,2] x) => (float[2,2] y) {
            [n] a = Neg(x) [inverse] b = com.microsoft.Inverse(a) [after] y = Abs(b)
        }"""
    model = load_model(save(text))
    converted = convert(model, "float16", "keep")
    assert nodes(converted)["inverse"] == (["a/float32"], ["b"])
    assert nodes(converted)["after"] == (["b"], ["y"])
    x = {"x": np.array([[1.5, -0.5], [0.5, 1]], np.float32)}
    np.testing.assert_array_equal(outputs(converted.proto, **x), outputs(model.proto, **x))


def test_a_taken_name_gets_a_number(save: Save):
    text = "g (float[2] x) => (float[2] y) { [a] t = Neg(x) [b] y = Abs(t) }"
    path = save(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    proto = onnx.load(path)
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "x/float16"
    onnx.save(proto, path)
    converted = convert(load_model(path), "float16", "keep")
    assert nodes(converted)["a"] == (["x/float16_1"], ["x/float16"])


def test_external_weights_are_read_one_by_one(tmp_path: Path):
    proto = onnx.load(DIGITS / "digits.onnx")
    path = tmp_path / "external.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.data", size_threshold=100)
    converted = convert(load_model(path), "float16", "keep")
    inline = convert(load_model(DIGITS / "digits.onnx"), "float16", "keep")
    assert {name: converted.array(name).tobytes() for name in converted.graph.initializers} == {
        name: inline.array(name).tobytes() for name in inline.graph.initializers
    }


def test_more_weights_than_one_message_holds_are_refused(
    save: Save, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(precision, "MAX_INLINE_BYTES", 1000)
    with pytest.raises(InputError, match=r"holds 0\.0 GB of weights in float16.*`base` float"):
        convert(load_model(save(RESIDUAL)), "float16", "keep")


def test_with_opset_keeps_nodes_and_moves_attributes_to_initializers(save: Save):
    model = load(save, "g (float[2,4] x) => (float[2,1] y) { [m] y = ReduceMean<axes = [1]>(x) }")
    raised = with_opset(model, 19)
    assert [n.name for n in raised.graph.nodes] == ["m"]
    assert raised.array(raised.graph.by_name["m"].inputs[1]).tolist() == [1]
    assert raised.notes[-1] == "opset 17 raised to 19"
    assert with_opset(raised, 19) is raised


EDGES = [
    Edge("x", "conv1", 0),
    Edge("w1", "conv1", 1),
    Edge("r", "conv2", 0),
    Edge("w2", "conv2", 1),
    Edge("r", "add", 0),
    Edge("r", "concat", 0),
    Edge("s", "concat", 1),
    Edge("k", "up", 0),
    Edge("w3", "up", 1),
    Edge("y", "", 0),
]
ALL = Placement.of(EDGES, shared=[{"r", "s", "k"}])
RANGES = {name: Range(-3.0, 3.0) for name in "xrsky"}


def test_a_placement_carries_over_by_node_and_index(save: Save):
    model = load_model(save(RESIDUAL))
    converted = convert(model, "float16", "keep")
    moved = translate(ALL, converted.graph)
    assert Edge("x/float16", "conv1", 0) in moved.edges
    assert Edge("y/float16", "y/Cast", 0) in moved.edges
    assert len(moved.edges) == len(EDGES)
    assert len(moved.groups) == len(ALL.groups)
    ranges = translate_ranges(RANGES, converted.graph)
    assert ranges["x/float16"] == RANGES["x"]
    assert ranges["y/float16"] == RANGES["y"]
    assert translate(moved, converted.graph) == moved
    assert translate(ALL, model.graph) == ALL
    assert translate_ranges(RANGES, model.graph) == RANGES


def test_a_group_is_split_where_types_differ(save: Save):
    model = load_model(save(RESIDUAL))
    converted = convert(model, "float16", "keep", keep_float=["conv2"])
    moved = translate(ALL, converted.graph)
    assert {e.tensor for e in moved.edges} >= {"r", "r/float32"}
    candidate = Inserter(converted, INT8).insert(moved, translate_ranges(RANGES, converted.graph))
    onnx.checker.check_model(candidate, full_check=True)


def test_an_edge_of_an_unknown_node_is_refused(save: Save):
    graph = load_model(save(RESIDUAL)).graph
    with pytest.raises(InputError, match=r"quantizes x -> gone\[0\], which the model does not"):
        translate(Placement.of([Edge("x", "gone", 0)]), graph)


@given(edges=st.sets(st.sampled_from(EDGES)), io=st.sampled_from(["keep", "convert"]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_placement_of_the_float_model_works_on_the_converted_one(
    tmp_path_factory: pytest.TempPathFactory, edges: set[Edge], io: precision.InputOutputTypes
):
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    proto = onnx.parser.parse_model(RESIDUAL)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        random = 0.1 * rng.standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(random, tensor.name))
    onnx.save(proto, path)
    model = load_model(path)
    placement = Placement.of(edges)
    expected = Inserter(model, INT8).insert(placement, RANGES)
    converted = convert(model, "float16", io)
    actual = Inserter(converted, INT8).insert(
        translate(placement, converted.graph), translate_ranges(RANGES, converted.graph)
    )
    onnx.checker.check_model(actual, full_check=True)
    assert len(actual.graph.node) == len(expected.graph.node) + (2 if io == "keep" else 0)
    x = rng.uniform(-3, 3, (1, 16, 8, 8)).astype(np.float32)
    half = x if io == "keep" else x.astype(np.float16)
    assert sqnr(*outputs(expected, x=x), *outputs(actual, x=half)) > 25


@pytest.mark.parametrize("base", ["float16", "bfloat16"])
@pytest.mark.parametrize("quantized", [False, True], ids=["float", "int8"])
def test_nvidias_builder_takes_the_residual_graph(
    save: Save, builder: ModuleType, base: precision.Base, quantized: bool
):
    model = convert(load_model(save(RESIDUAL)), base, "keep")
    proto = model.proto
    if quantized:
        proto = Inserter(model, INT8).insert(
            translate(ALL, model.graph), translate_ranges(RANGES, model.graph)
        )
    unquantized = "half" if base == "float16" else "bfloat16"
    assert types_of_convolutions(builder, proto) == {"int8" if quantized else unquantized}


@pytest.mark.parametrize("base", ["float16", "bfloat16"])
def test_nvidias_builder_takes_the_bundled_model(builder: ModuleType, base: precision.Base):
    converted = convert(load_model(DIGITS / "digits.onnx"), base, "keep")
    unquantized = "half" if base == "float16" else "bfloat16"
    assert types_of_convolutions(builder, converted.proto) == {unquantized}


def types_of_convolutions(builder: ModuleType, proto: ModelProto) -> set[str]:
    """Input types of the convolutions in an engine that TensorRT-RTX builds."""
    report = check_model(builder, proto, "sm89")
    assert report.refusals == ()
    return {layer.input_types[0] for layer in report.plan.layers if layer.op == "correlation"}
