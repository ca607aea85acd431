"""Normalising: what changes, and that outputs do not."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.graph.edit import every_node
from placer.graph.text import parse_model
from placer.model import load_model, save_model
from placer.model.passes.early_axes import name_axes
from tests.model.normalized import Save, ops, same_outputs
from tests.reference_outputs import outputs

BLOCKS = {
    "conv": ("Conv", (4, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "transpose": ("ConvTranspose", (4, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
}
SHAPES = {"row": (1, 4, 1, 1), "column": (4, 1, 1), "one": (1,), "scalar": (), "pixels": (6, 6)}


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Random chains of weighted, affine, idle and non-linear nodes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    nodes, tensors, tensor = [], [], "x"

    def weight(shape: tuple[int, ...]) -> str:
        name = f"w{len(tensors)}"
        values = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        tensors.append(numpy_helper.from_array(values, name))
        return name

    kinds = [*BLOCKS, "bn", "Add", "Mul", "Identity", "Constant", "Dropout", "Relu", "branch"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8)):
        made = f"t{len(nodes)}"
        if kind in BLOCKS:
            op, shape, attributes = BLOCKS[kind]
            bias = [weight((4,))] if draw(st.booleans()) else []
            node = helper.make_node(op, [tensor, weight(shape), *bias], [made], **attributes)
        elif kind == "bn":
            inputs = [tensor, *(weight((4,)) for _ in range(4))]
            node = helper.make_node("BatchNormalization", inputs, [made], epsilon=1e-3)
        elif kind in ("Add", "Mul"):
            inputs = [tensor, weight(SHAPES[draw(st.sampled_from(list(SHAPES)))])]
            node = helper.make_node(kind, inputs[:: draw(st.sampled_from([1, -1]))], [made])
        elif kind == "Constant":
            value = numpy_helper.from_array(rng.random((4, 1, 1), np.float32))
            nodes.append(helper.make_node("Constant", [], [f"c{len(nodes)}"], value=value))
            node = helper.make_node("Add", [tensor, nodes[-1].output[0]], [made])
        elif kind == "branch":
            node = helper.make_node("Add", [tensor, tensor], [made])
        else:
            node = helper.make_node(kind, [tensor], [made])
        nodes.append(node)
        tensor = made
    info = [
        helper.make_tensor_value_info(t, TensorProto.FLOAT, [1, 4, 6, 6]) for t in ("x", tensor)
    ]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@settings(max_examples=30, deadline=None)
@given(networks())
def test_normalising_keeps_outputs(tmp_path_factory: pytest.TempPathFactory, proto) -> None:
    path = tmp_path_factory.mktemp("net") / "model.onnx"
    onnx.save(proto, path)
    model = load_model(path)
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)
    before, after = outputs(proto, x=x), outputs(model.proto, x=x)
    scale = np.abs(before[0]).max() + 1
    assert np.isfinite(scale)
    np.testing.assert_allclose(after[0] / scale, before[0] / scale, atol=2e-6)
    if not any("folded" in note for note in model.notes):
        np.testing.assert_array_equal(after[0], before[0])
    onnx.checker.check_model(model.proto, full_check=True)
    assert [o.name for o in model.proto.graph.output] == [o.name for o in proto.graph.output]
    assert len({node.name for node in model.graph.nodes}) == len(model.graph.nodes)


@settings(max_examples=20, deadline=None)
@given(networks())
def test_a_normalised_model_stays_as_it_is(tmp_path_factory, proto) -> None:
    folder = tmp_path_factory.mktemp("net")
    onnx.save(proto, folder / "model.onnx")
    once = load_model(folder / "model.onnx")
    save_model(once.proto, folder, folder / "again.onnx")
    again = load_model(folder / "again.onnx")
    assert again.notes == ()
    assert again.proto.graph.node == once.proto.graph.node


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("y = Mul(n, each)", {"LayerNormalization": 1}),
        ("a = Add(each, n) y = Mul(a, half)", {"LayerNormalization": 1}),
        ("y = Mul(n, rows)", {"LayerNormalization": 1, "Mul": 1}),
        (
            "y = BatchNormalization(n, each, each, each, each)",
            {"LayerNormalization": 1, "BatchNormalization": 1},
        ),
    ],
    ids=["SmoothQuant's factors", "two in a row", "a value for each row", "over another axis"],
)
def test_constants_go_into_the_norm_before_them(save: Save, behind: str, expected: dict[str, int]):
    """Model-Optimizer issue 10."""
    path = save(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,4,4] x) => (float[2,4,4] y)
        <float[4] scale = {{1, 2, 3, 4}}, float[4] bias = {{0.5, 1, 2, 3}}, float half = {{0.5}},
         float[4] each = {{0.1, 0.2, 0.3, 0.4}}, float[4,1] rows = {{1, 2, 3, 4}}> {{
          n = LayerNormalization(x, scale, bias)
          {behind}
        }}""")
    x = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    model = load_model(path)
    assert ops(path) == expected
    np.testing.assert_allclose(
        outputs(model.proto, x=x)[0], outputs(onnx.load(path), x=x)[0], rtol=1e-5, atol=1e-6
    )


def test_batch_normalization_with_other_readers_of_the_convolution_stays(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] c)
        <float[2,2,1,1] w = {1}, float[2] one = {1, 1}, float[2] zero = {0, 0}> {
          c = Conv(x, w)
          y = BatchNormalization(c, one, zero, zero, one)
        }
        """
    )
    assert ops(path) == {"Conv": 1, "BatchNormalization": 1}


def test_a_model_knows_where_its_file_has_norms_until_it_is_written(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2,2,1,1] w = {1}, float[2] one = {1, 1}, float[2] zero = {0, 0},
         float[1,2,1,1] s = {2, 3}> {
          c = Conv(x, w)
          n = BatchNormalization(c, one, zero, zero, one)
          m = Mul(n, s)
          d = Conv(m, w)
          y = Mul(d, s)
        }
        """
    )
    model = load_model(path)
    assert model.graph.normalized == {"m"}
    assert model.as_written().graph.normalized == frozenset()


def test_weights_that_others_read_are_copied_before_folding(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
        <float[2,2,1,1] w = {1}, float[2] s = {2, 3}, float[2] zero = {0, 0},
         float[2] one = {1, 1}> {
          c = Conv(x, w)
          y = BatchNormalization(c, s, zero, zero, one)
          z = Conv(x, w)
        }
        """
    )
    x = np.ones((1, 2, 4, 4), np.float32)
    model = load_model(path)
    assert Counter(n.op for n in model.graph.nodes) == {"Conv": 2}
    for before, after in zip(outputs(onnx.load(path), x=x), outputs(model.proto, x=x), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5)


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_takes_a_batch_normalization_and_its_own_beta(save: Save, transposed: int):
    shape = "3,5" if transposed else "5,3"
    path = save(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,5] x) => (float[2,3] y)
        <float[{shape}] w = {{1}}, float[3] b = {{1, 2, 3}}, float[3] s = {{2, 3, 4}},
         float[3] m = {{0, 1, 2}}, float[3] v = {{1, 2, 3}}> {{
          c = Gemm<transB = {transposed}, alpha = 2.0, beta = 3.0>(x, w, b)
          y = BatchNormalization(c, s, b, m, v)
        }}
        """
    )
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    assert ops(path) == {"Gemm": 1}
    before, after = outputs(onnx.load(path), x=x), outputs(load_model(path).proto, x=x)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)


def test_old_opsets_are_raised(save: Save):
    path = save(
        """
        <ir_version: 6, opset_import: ["": 11]>
        g (float[1,4] x) => (float[1,1,4] y) {
          z = Unsqueeze<axes = [0]>(x)
          y = Clip(z)
        }
        """
    )
    model = load_model(path)
    assert model.proto.opset_import[0].version == 17
    assert "opset 11 raised to 17" in model.notes
    x = np.arange(4, dtype=np.float32)[None]
    np.testing.assert_array_equal(outputs(model.proto, x=x)[0], x[None])


def test_opsets_of_which_onnxruntime_has_no_pairs_are_lowered(save: Save):
    text = """
        <ir_version: 11, opset_import: ["": 28]>
        g (float[2,4] x) => (float[2,4] y) <float[4] b = {1, 2, 3, 4}> {
          h = Add(x, b)
          y = OPERATOR
        }
        """
    model = load_model(save(text.replace("OPERATOR", "Celu<alpha = 2.0>(h)")))
    assert model.proto.opset_import[0].version == 27
    assert "opset 28 lowered to 27, in which ONNX Runtime has pairs" in model.notes
    only_there = load_model(save(text.replace("OPERATOR", "SwiGLU(h, h)")))
    assert only_there.proto.opset_import[0].version == 28


def with_weight(text: str, path: Path, w: np.ndarray) -> Path:
    """Write the ONNX text model with the weight ``w``, of a type that texts cannot give."""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(proto, path)
    return path


def test_half_precision_is_raised_to_an_opset_with_pairs_of_it(tmp_path: Path):
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[2,4] x) => (float16[2] y) {
          h = MatMul(x, w)
          y = ReduceMax<axes = [1], keepdims = 0>(h)
        }
        """
    w = np.diag([1, 1, 1, 2]).astype(np.float16)
    model = load_model(with_weight(text, tmp_path / "model.onnx", w))
    assert model.proto.opset_import[0].version == 19
    assert "opset 17 raised to 19, which has pairs of half precision" in model.notes
    x = np.arange(8, dtype=np.float16).reshape(2, 4)
    np.testing.assert_array_equal(outputs(model.proto, x=x)[0], [6, 14])


@pytest.mark.parametrize("coordinates", [False, True])
def test_sparse_initializers_are_written_out(tmp_path: Path, *, coordinates: bool):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,2] y) <float[4,2] v = {1, 0, 0, 1, 1, 0, 0, 1}> {
          h = MatMul(x, w)
          y = MatMul(h, v)
        }
        """
    )
    dense = np.zeros((4, 4), np.float32)
    dense[0, 1], dense[3, 2] = 5, 7
    places = np.argwhere(dense) if coordinates else np.flatnonzero(dense)
    values = numpy_helper.from_array(dense[dense != 0], "w")
    indices = numpy_helper.from_array(places.astype(np.int64))
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, (4, 4)))
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert "wrote out 1 sparse initializers" in model.notes
    np.testing.assert_array_equal(model.array("w"), dense)
    assert model.graph.type_of("h").shape == (1, 4)
    x = np.arange(4, dtype=np.float32)[None]
    np.testing.assert_array_equal(outputs(model.proto, x=x)[0], outputs(proto, x=x)[0])


@pytest.mark.parametrize("opset", [11, 17])
def test_sparse_constants_are_written_out(tmp_path: Path, opset: int):
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [5, 7])
    places = helper.make_tensor("i", TensorProto.INT64, [2], [0, 3])
    sparse = helper.make_sparse_tensor(values, places, [4])
    constant = helper.make_node("Constant", [], ["c"], sparse_value=sparse)
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        g (float[4] x) => (float[4] y) {{ y = Add(x, c) }}""")
    proto.graph.node.insert(0, constant)
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    np.testing.assert_array_equal(model.array("c"), [5, 0, 0, 7])


def test_float_weights_stored_in_half_precision_raise_no_opset(tmp_path: Path):
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2] x) => (float[1,2] y) {
          f = Cast<to = 1>(w)
          y = MatMul(x, f)
        }
        """
    path = with_weight(text, tmp_path / "model.onnx", np.eye(2, dtype=np.float16))
    assert load_model(path).proto.opset_import[0].version == 17


def test_a_converter_failure_names_the_node(save: Save):
    path = save(
        """
        <ir_version: 6, opset_import: ["": 6]>
        g (float[1,2,4,4] x, float[2] s) => (float[1,2,4,4] y) {
          [relu] r = Relu(x)
          [norm] y = BatchNormalization<is_test = 0>(r, s, s, s, s)
        }
        """
    )
    with pytest.raises(InputError, match=r"cannot be raised to 17 at node 'norm' \(BatchN"):
        load_model(path)


def test_local_functions_are_inlined(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x) => (float[1,4] y) { y = mine.twice(x) }
        <opset_import: ["": 17], domain: "mine">
        twice (a) => (b) { b = Add(a, a) }
        """
    )
    onnx.save(proto, tmp_path / "model.onnx")
    assert ops(tmp_path / "model.onnx") == {"Add": 1}


def test_attributes_that_calls_of_functions_leave_out_have_the_functions_defaults(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x) => (float[1,4] y) {
          a = mine.outer(x)  b = mine.leaky <slope = 0.75> (a)
          c = mine.passing(b)  y = mine.passing <s = 0.25> (c)
        }
        <opset_import: ["": 17, "mine": 1], domain: "mine">
        outer (a) => (b) { b = mine.leaky(a) }
        <opset_import: ["": 17, "mine": 1], domain: "mine">
        passing <s> (a) => (b) { b = mine.leaky <slope: float = @s> (a) }
        <opset_import: ["": 17], domain: "mine">
        leaky <slope: float = 0.5> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }
        """
    )
    onnx.save(proto, tmp_path / "model.onnx")
    nodes = load_model(tmp_path / "model.onnx").proto.graph.node
    assert [node.attribute[0].f for node in nodes] == [0.5, 0.75, 0.5, 0.25]
    same_outputs(tmp_path / "model.onnx", x=np.array([[-64, -8, 0, 1]], np.float32))


@pytest.mark.parametrize(("condition", "expected"), [(1, ["Relu", "Add"]), (0, ["Relu", "Mul"])])
def test_a_constant_condition_leaves_one_branch(save: Save, condition: int, expected: list[str]):
    path = save(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) <bool c = {{{condition}}}, float[2] w = {{3, 4}}> {{
          z = Relu(x)
          y = If(c) <
            then_branch = t () => (float[2] a) {{
              k = Constant<value = float[2] {{1, 2}}>()
              a = Add(k, z)
            }},
            else_branch = e () => (float[2] a) {{ a = Mul(w, z) }}
          >
        }}
        """
    )
    assert same_outputs(path, x=np.ones(2, np.float32)) == expected


def test_branches_see_renamed_tensors(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (bool c, float[2] x) => (float[2] y) {
          i = Identity(x)
          r = Relu(i)
          z = Identity(r)
          y = If(c) <
            then_branch = t () => (float[2] a) { a = Neg(z) },
            else_branch = e () => (float[2] b) { b = Add(i, z) }
          >
        }
        """
    )
    x = np.array([1, -2], np.float32)
    for condition in (True, False):
        assert same_outputs(path, x=x, c=np.array(condition)) == ["Relu", "If"]


def test_dropout_goes_unless_it_trains(save: Save):
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) <float p = {0.5}, bool t = {0}> {
          r = Relu(x)
          d = Dropout(r, p, t)
          y = Neg(d)
        }
        """
    assert same_outputs(save(text), x=np.ones(2, np.float32)) == ["Relu", "Neg"]
    assert ops(save(text.replace("t = {0}", "t = {1}"))) == {"Relu": 1, "Dropout": 1, "Neg": 1}


def test_views_that_lead_back_go(save: Save):
    """As behind TensorFlow's poolings."""
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,4,6,6] x) => (float[N,4,1,1] y)
        <int64[2] axes = {2, 3}, int64[4] shape = {-1, 4, 1, 1}> {
          p = GlobalAveragePool(x)
          s = Squeeze(p, axes)
          r = Reshape(s, shape)
          y = Neg(r)
        }
        """
    path = save(text)
    x = np.arange(144, dtype=np.float32).reshape(1, 4, 6, 6)
    assert same_outputs(path, x=x) == ["GlobalAveragePool", "Neg"]
    assert "removed 2 nodes that only copy what they read" in load_model(path).notes


def test_casts_to_the_type_that_they_read_go(save: Save):
    """As Keras 3 writes them with its backend of PyTorch, around norms in parts."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,1,2,2] x, int64[1] n) => (float[1,2,2,2] y, float[1] m)
        <float[2,1,1,1] w = {3, 5}, float[2,1,1] mean = {1, 2}, float[2,1,1] scale = {4, -1},
         float[2,1,1] shift = {7, 0}, float two = {2}> {
          c = Conv(x, w)
          cast = Cast<to = 1>(c)
          centred = Sub(cast, mean)
          scaled = Mul(centred, scale)
          shifted = Add(scaled, shift)
          back = Cast<to = 1>(shifted)
          turned = Sub(two, back)
          y = Relu(turned)
          m = Cast<to = 1>(n)
        }
        """
    )
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    assert same_outputs(path, x=x, n=np.array([3])) == ["Conv", "Relu", "Cast"]
    notes = load_model(path).notes
    assert "removed 2 nodes that only copy what they read" in notes
    assert "folded 2 Sub nodes into the weights before them" in notes


def test_inputs_that_are_absent_and_last_go(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[4] y) <int64[2] pads = {1, 1}> {
          p = Pad(x, pads, "")
          y = Clip(p, "", "")
        }
        """
    )
    assert same_outputs(path, x=np.ones(2, np.float32)) == ["Pad", "Clip"]
    assert [len(node.input) for node in load_model(path).proto.graph.node] == [2, 1]


def test_views_that_something_else_reads_or_that_are_not_known_to_lead_back_stay(save: Save):
    """The Reshape behind the Squeeze goes, which has something else to feed."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2,1,3] x, float[M,N] z)
            => (float[2,3] s, float[2,1,3] y, int64[2,3] i, float[K,L] w)
        <int64[1] axis = {1}, int64[3] shape = {2, 1, 3}, int64[2] other = {-1, 4}> {
          r = Relu(x)
          s = Squeeze(r, axis)
          back = Reshape(s, shape)
          y = Neg(back)
          i = Cast<to = 7>(s)
          t = Relu(z)
          v = Reshape(t, other)
          w = Neg(v)
        }
        """
    )
    found = [node.op for node in load_model(path, {"z": (2, 2)}).graph.nodes]
    assert Counter(found) == {"Relu": 2, "Squeeze": 1, "Neg": 2, "Cast": 1, "Reshape": 1}


def test_names_of_outputs_survive_an_identity(save: Save):
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] a, float[2] b, float[2] c, float[2] w) <float[2] w = {1, 2}> {
          r = Relu(x)
          a = Identity(r)
          b = Identity(r)
          c = Identity(x)
        }
        """
    )
    assert same_outputs(path, x=np.ones(2, np.float32)) == ["Relu", "Identity", "Identity"]
    assert load_model(path).graph.outputs == ("a", "b", "c", "w")


def test_old_and_careless_files(tmp_path: Path):
    """Weights among the inputs, nodes in any order, the standard domain spelled out, no name."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 3, opset_import: ["ai.onnx": 12], metadata_props: ["made by": "hand"]>
        g (float[1,40] x, float[40,40] w) => (float[1,40] y) {
          [same] y = Neg(m)
          [same] m = MatMul(x, w)
        }
        """
    )
    w = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    proto.graph.name = ""
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert [(n.name, n.op) for n in model.graph.nodes] == [("same", "MatMul"), ("same_1", "Neg")]
    assert model.graph.inputs == ("x",)
    assert model.proto.metadata_props[0].value == "hand"
    x = np.ones((1, 40), np.float32)
    np.testing.assert_allclose(outputs(model.proto, x=x)[0], -(x @ w), rtol=1e-4)


def test_an_opset_is_raised_around_operators_of_other_domains(save: Save):
    path = save(
        """
        <ir_version: 7, opset_import: ["": 12, "com.microsoft": 1]>
        g (float[1,4,4] x) => (float[1,4,4] y) {
          z = com.microsoft.Inverse(x)
          s = Squeeze<axes = [0]>(z)
          y = Unsqueeze<axes = [0]>(s)
        }
        """
    )
    one = np.eye(4, dtype=np.float32)[None]
    assert same_outputs(path, x=one) == ["Inverse", "Squeeze", "Unsqueeze"]


def test_functions_of_a_compatible_opset_are_inlined(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x) => (float[4] y) { y = mine.flat(x) }
        <opset_import: ["": 13], domain: "mine">
        flat (a) => (b) { axes = Constant<value_ints = [0]>() b = Squeeze(a, axes) }
        """
    )
    onnx.save(proto, tmp_path / "model.onnx")
    assert ops(tmp_path / "model.onnx") == {"Squeeze": 1}


def test_functions_of_another_opset_are_inlined_beside_weights_and_other_functions(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x) => (float[4] y) <float[1,4] w = {1, 2, 3, 4}> {
          s = mine.scaled(x, w)
          z = Add(s, w)
          y = mine.flat(z)
        }
        <opset_import: ["": 16], domain: "mine">
        scaled (a, b) => (d) { c = Mul(a, b) d = LeakyRelu(c) }
        <opset_import: ["": 13], domain: "mine">
        flat (a) => (b) { axes = Constant<value_ints = [0]>() b = Squeeze(a, axes) }
        """
    )
    onnx.save(proto, tmp_path / "model.onnx")
    assert ops(tmp_path / "model.onnx") == {"Mul": 1, "LeakyRelu": 1, "Add": 1, "Squeeze": 1}


@pytest.mark.parametrize(
    ("body", "functions", "expected"),
    [
        (
            """p = Mul(x, x) y = If(c) <
              then_branch = t () => (float[1,4] a) { a0 = Neg(p) a = mine.f(a0) },
              else_branch = e () => (float[1,4] b) { b = Abs(p) }
            >""",
            "",
            ["Mul", "If"],
        ),
        (
            """y = Loop(n, go, x) <
              body = l (int64 i, bool k, float[1,4] s) => (bool l, float[1,4] t) {
                l = Identity(k) p = Neg(s) t = mine.f(p)
              }
            >""",
            "",
            ["Neg", "LeakyRelu"] * 2,
        ),
        (
            "y = mine.g(x)",
            """<opset_import: ["": 17, "mine": 1], domain: "mine"> g (a) => (d) {
              b = mine.f(a) c = Neg(b) d = mine.f(c)
            }""",
            ["LeakyRelu", "Neg", "LeakyRelu"],
        ),
    ],
    ids=["in a branch", "in a loop", "in another function"],
)
def test_functions_of_another_opset_are_inlined_where_no_types_are_known(
    tmp_path: Path, body: str, functions: str, expected: list[str]
):
    proto = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 17, "mine": 1]>
        g (float[1,4] x, bool c) => (float[1,4] y) <int64 n = {{2}}, bool go = {{1}}> {{ {body} }}
        <opset_import: ["": 16], domain: "mine"> f (v) => (w) {{ w = LeakyRelu(v) }}
        {functions}""")
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    x = np.array([[-1, 0, 1, 2]], np.float32)
    assert same_outputs(path, x=x, c=np.array(True)) == expected


def test_types_that_an_opset_adds_change_no_function(tmp_path: Path):
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "mine": 1]>
        g (float[1,4] x) => (float[4] y) { y = mine.f(x) }
        <opset_import: ["": 18], domain: "mine"> f (v) => (w) {
          s = Constant<value_ints = [4]>() w = Reshape(v, s)
        }""")
    onnx.save(proto, tmp_path / "model.onnx")
    assert ops(tmp_path / "model.onnx") == {"Reshape": 1}


@pytest.mark.parametrize(
    ("op", "arguments", "opset", "target"),
    [
        ("Softmax", "<axis = 1>(v)", 11, 17),  # Of all axes from there on; then of one.
        ("Softmax", "<axis = 1>(v)", 13, 12),
        ("Hardmax", "(v)", 11, 17),
        ("Resize", "(v, s)", 10, 17),
        ("Upsample", "(v, s)", 9, 17),  # Which there is no more.
        ("QuantizeLinear", "(v, z)", 13, 19),
    ],
)
def test_functions_whose_operators_the_opset_of_the_model_defines_otherwise_are_refused(
    tmp_path: Path, op: str, arguments: str, opset: int, target: int
):
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": {target}, "mine": 1]>
        g (float[1,2,4,4] x, float[4] s, float z) => (float[A,B,C,D] y) {{ y = mine.f(x, s, z) }}
        <opset_import: ["": {opset}], domain: "mine">
        f (v, s, z) => (w) {{ w = {op}{arguments} }}""")
    onnx.save(proto, tmp_path / "model.onnx")
    words = (
        rf"function 'f' has opset {opset}, whose node 'w' \({op}\) differs in the "
        rf"model's opset {target}; export the model with one opset"
    )
    with pytest.raises(InputError, match=words):
        load_model(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("weight", "factor", "left"),
    [
        (60000, 2, ["Conv", "Mul"]),
        (0.01, 1e-4, ["Conv", "Mul"]),  # 1e-6 is stored in steps of 6e-8.
        (1e-4, 1e-4, ["Conv", "Mul"]),  # 1e-8 is stored as 0.
        (0.01, 0.1, ["Conv"]),
        (0.01, 0, ["Conv"]),
    ],
)
def test_what_half_precision_does_not_hold_is_not_folded(
    tmp_path: Path, weight: float, factor: float, left: list[str]
):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float16[1,1,2,2] x) => (float16[1,1,2,2] y) {
          c = Conv(x, w)
          y = Mul(c, s)
        }
        """
    )
    for name, shape, value in (("w", (1, 1, 1, 1), weight), ("s", (1,), factor)):
        array = np.full(shape, value, np.float16)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "model.onnx")
    x = np.full((1, 1, 2, 2), 0.001 if weight > 1 else 1000, np.float16)
    assert same_outputs(tmp_path / "model.onnx", x=x) == left


@pytest.mark.parametrize(
    ("factors", "left"), [([1, 1e-6], ["Conv"]), ([1e-6, 1e-6], ["Conv", "BatchNormalization"])]
)
def test_a_channel_next_to_nothing_beside_others_keeps_no_norm_from_half_precision(
    tmp_path: Path, factors: list[float], left: list[str]
):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float16[1,1,2,2] x) => (float16[1,2,2,2] y) {
      c = Conv(x, w) y = BatchNormalization(c, scale, zeros, zeros, ones)
    }"""
    proto = onnx.parser.parse_model(text)
    values = {"scale": factors, "zeros": [0, 0], "ones": [1, 1]}
    arrays = {"w": np.full((2, 1, 1, 1), 0.1), **{n: np.array(v) for n, v in values.items()}}
    for name, array in arrays.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float16), name))
    onnx.save(proto, tmp_path / "model.onnx")
    assert [n.op for n in load_model(tmp_path / "model.onnx").graph.nodes] == left


def test_axis_0_is_written_where_only_early_opsets_have_it():
    """Into bodies, too, but not into contrib operators, whose axis is 1 at any opset."""
    proto = parse_model("""
        <ir_version: 6, opset_import: ["": 11, "com.microsoft": 1]>
        g (bool c) => (float[2,2] y, float[2,2] m)
        <int8[2,2] w = {1, 2, 3, 4}, float[2] s = {1, 2}, int8[2] z = {0, 0}> {
          y = If (c) <
            then_branch = a () => (float[2,2] t) { t = DequantizeLinear(w, s, z) },
            else_branch = b () => (float[2,2] e) { e = Cast<to = 1>(w) }
          >
          m = com.microsoft.DequantizeLinear(w, s, z)
        }""")
    name_axes(proto)
    axes = {
        node.output[0]: [a.i for a in node.attribute]
        for node in every_node(proto.graph.node)
        if node.op_type == "DequantizeLinear"
    }
    assert axes == {"t": [0], "m": []}
