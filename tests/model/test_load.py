"""Loading and saving: shapes, external data, fingerprints, and files that are not models."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from placer.errors import InputError
from placer.graph import Edge, TensorType
from placer.graph.external_data import is_external
from placer.graph.shapes import parse_shape
from placer.model import load_model, save_model
from placer.model.load import load_as_is, model_fingerprint

Save = Callable[..., Path]

NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[N,3,H,W] x) => (float[N,4,P,Q] y)
<float[4,3,3,3] w = {1}> {
  c = Conv(x, w)
  y = Relu(c)
}
"""


def external(path: Path) -> Path:
    """The same model with its weights in another file."""
    out = path.parent / "external" / "model.onnx"
    out.parent.mkdir()
    onnx.save(onnx.load(path), out, save_as_external_data=True, location="w.bin", size_threshold=0)
    return out


def test_types_are_inferred_for_the_given_shape_and_stay_dynamic_in_the_file(save: Save):
    model = load_model(save(NET), {"x": (2, 3, 8, 8)})
    assert model.graph.type_of("c") == TensorType(TensorProto.FLOAT, (2, 4, 6, 6))
    assert model.input_shapes == {"x": (2, 3, 8, 8)}
    assert [d.dim_param for d in model.proto.graph.input[0].type.tensor_type.shape.dim] == [
        "N",
        "",
        "H",
        "W",
    ]
    assert model.graph.edges_of("y") == (Edge("y", "", 0),)
    assert model.array("w").shape == (4, 3, 3, 3)


def test_shapes_that_the_model_computes_from_its_input_are_known_for_the_given_one(save: Save):
    # ONNX's inference does not propagate values through Max and Div.
    model = load_model(
        save("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[1,N] x) => (float[A,B] y)
        <int64 at = {1}, int64 most = {100}, int64 four = {4}, int64[1] zero = {0},
         int64[3] zeros = {0, 0, 0}> {
          [shape] s = Shape(x)
          [size] n = Gather(s, at)
          [more] m = Max(n, most)
          [quarter] q = Div(m, four)
          [extent] e = Unsqueeze(q, zero)
          [ends] p = Concat <axis = 0> (zeros, e)
          [pad] z = Pad(x, p)
          [relu] r = Relu(z)
          [again] t = Pad(r, p)
          [out] y = Relu(t)
        }
        """),
        {"x": (1, 80)},
    )
    assert model.graph.type_of("z") == TensorType(TensorProto.FLOAT, (1, 105))
    assert model.graph.type_of("t") == TensorType(TensorProto.FLOAT, (1, 130))
    assert [node.op for node in model.graph.nodes][:2] == ["Shape", "Gather"]  # Other sizes run.


def test_an_unknown_batch_is_one_and_other_dimensions_are_asked_for(save: Save):
    batch_only = save(NET.replace("[N,3,H,W]", "[N,3,8,8]"))
    assert load_model(batch_only).input_shapes == {"x": (1, 3, 8, 8)}
    with pytest.raises(
        InputError, match=r"unknown dimensions \[1, 3, H, W\].*`shapes`, as x=1x3xNxN"
    ):
        load_model(save(NET))


def test_the_unknown_dimensions_of_all_inputs_are_asked_for_at_once(save: Save):
    two = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,3,H,W] x, int64[N,L] ids) => (float[N,3,H,W] y, int64[N,L] z) {
      y = Relu(x)
      z = Identity(ids)
    }
    """
    with pytest.raises(InputError) as caught:
        load_model(path := save(two))
    assert str(caught.value) == (
        f"{path}: input 'x' has unknown dimensions [1, 3, H, W] and input 'ids' has unknown "
        "dimensions [1, L]; give them with `shapes`, as x=1x3xNxN ids=1xN, a number for each N"
    )


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"image": (1, 3, 8, 8)}, "unknown input 'image'; use one of: x"),
        ({"x": (1, 3, 8)}, "shape x=1x3x8: the input has 4 dimensions"),
        ({"x": (1, 4, 8, 8)}, "dimension 1 is fixed to 3"),
        ({"x": (1, 3, 0, 8)}, "must be at least 1"),
    ],
)
def test_wrong_shapes(save: Save, shapes: dict[str, tuple[int, ...]], expected: str):
    with pytest.raises(InputError, match=expected):
        load_model(save(NET), shapes)


def test_inputs_and_outputs_without_a_rank_are_those_of_the_data(save: Save, tmp_path: Path):
    path = save(NET)
    proto = onnx.load(path)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    with pytest.raises(InputError, match=r"input 'x' has no shape; give it with `shapes`"):
        load_model(path)
    model = load_model(path, {"x": (1, 3, 8, 8)})
    assert model.graph.type_of("y").shape == (1, 4, 6, 6)
    save_model(model.proto, model.base_dir, tmp_path / "out.onnx")
    written = onnx.load(tmp_path / "out.onnx")
    assert not written.graph.output[0].type.tensor_type.HasField("shape")


def test_shape_flags():
    assert parse_shape("image=1x3x320x320") == ("image", (1, 3, 320, 320))
    assert parse_shape("a=b:0=7") == ("a=b:0", (7,))
    for text in ("image", "image=", "=1x3", "image=1xa", "image=1,3"):
        with pytest.raises(InputError, match="write NAME=1x3x224x224"):
            parse_shape(text)


def test_external_data_stays_outside_until_read(save: Save):
    path = external(save(NET))
    model = load_model(path, {"x": (1, 3, 8, 8)})
    assert is_external(model.graph.initializers["w"])
    inline = load_model(save(NET), {"x": (1, 3, 8, 8)})
    np.testing.assert_array_equal(model.array("w"), inline.array("w"))


def test_saving_streams_external_data_beside_the_model(save: Save, tmp_path: Path):
    model = load_model(external(save(NET)), {"x": (1, 3, 8, 8)})
    save_model(model.proto, model.base_dir, tmp_path / "out" / "copy.onnx")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["copy.onnx", "copy.onnx.data"]
    copy = load_model(tmp_path / "out" / "copy.onnx", {"x": (1, 3, 8, 8)})
    np.testing.assert_array_equal(copy.array("w"), model.array("w"))


def test_the_fingerprint_covers_external_data(save: Save):
    path = external(save(NET))
    before = load_model(path, {"x": (1, 3, 8, 8)}).fingerprint
    assert before == load_model(path, {"x": (1, 3, 9, 9)}).fingerprint
    data = path.parent / "w.bin"
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    assert load_model(path, {"x": (1, 3, 8, 8)}).fingerprint != before


def test_external_data_that_is_missing_short_or_elsewhere(save: Save):
    path = external(save(NET))
    data = path.parent / "w.bin"
    content = data.read_bytes()
    data.write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"w\.bin is too short for initializer 'w'"):
        load_model(path, {"x": (1, 3, 8, 8)})
    data.unlink()
    with pytest.raises(InputError, match=r"w\.bin of initializer 'w' is missing"):
        load_model(path, {"x": (1, 3, 8, 8)})
    (path.parent.parent / "secret").write_bytes(content)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../secret"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="points outside the model's folder"):
        load_model(path, {"x": (1, 3, 8, 8)})


def test_external_data_behind_a_link_out_of_the_folder(save: Save, tmp_path: Path):
    path = external(save(NET))
    data = path.parent / "w.bin"
    data.rename(tmp_path / "elsewhere.bin")
    data.symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(InputError, match="points outside the model's folder"):
        load_model(path, {"x": (1, 3, 8, 8)})


def test_a_model_and_its_data_that_are_links_into_one_folder(save: Save, tmp_path: Path):
    """As Hugging Face's cache has them; names of blobs are hashes."""
    path = external(save(NET))
    plain = load_model(path, {"x": (1, 3, 8, 8)})
    weight = plain.array("w")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, blob in (("model.onnx", "1a"), ("w.bin", "2b")):
        (path.parent / name).rename(blobs / blob)
        (snapshot / name).symlink_to(f"../../../blobs/{blob}")
    link = snapshot / "model.onnx"
    model = load_model(link, {"x": (1, 3, 8, 8)})
    assert model.fingerprint == plain.fingerprint == model_fingerprint(link)
    np.testing.assert_array_equal(model.array("w"), weight)
    save_model(model.proto, model.base_dir, tmp_path / "out" / "copy.onnx")
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    own = ort.InferenceSession(link).run(None, x)
    np.testing.assert_allclose(
        ort.InferenceSession(tmp_path / "out" / "copy.onnx").run(None, x), own
    )
    as_is = load_as_is(link, {"x": (1, 3, 8, 8)})
    np.testing.assert_array_equal(as_is.array("w"), weight)
    (snapshot / "w.bin").unlink()
    (tmp_path / "secret").write_bytes((blobs / "2b").read_bytes())
    (snapshot / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="points outside the model's folder"):
        load_model(link, {"x": (1, 3, 8, 8)})


def test_external_data_of_a_branch_is_saved_too(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If(c) <
            then_branch = t () => (float[2] a)
              <float[2] w = ["location": "w.bin", "offset": "4", "length": "8"]> { a = Add(x, w) },
            else_branch = e () => (float[2] b) { b = Neg(x) }
          >
        }
        """
    )
    (tmp_path / "w.bin").write_bytes(np.array([9, 1, 2], np.float32).tobytes())
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    model = load_model(tmp_path / "model.onnx")
    save_model(model.proto, tmp_path, tmp_path / "out" / "copy.onnx")
    session = ort.InferenceSession(tmp_path / "out" / "copy.onnx")
    inputs = {"c": np.array(True), "x": np.ones(2, np.float32)}
    np.testing.assert_array_equal(session.run(None, inputs)[0], [2, 3])


def test_saving_leaves_the_model_and_its_folder_as_they_are(save: Save, tmp_path: Path):
    model = load_model(external(save(NET)), {"x": (1, 3, 8, 8)})
    before = model.proto.SerializeToString(deterministic=True)
    save_model(model.proto, model.base_dir, tmp_path / "copy.onnx")
    assert model.proto.SerializeToString(deterministic=True) == before
    folder = tmp_path / "taken.onnx"
    folder.mkdir()
    for target in (folder, save(NET) / "below" / "x.onnx"):
        with pytest.raises(InputError, match=r"cannot write .*; choose another output"):
            save_model(model.proto, model.base_dir, target)
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("size", [-4, 4])
def test_weights_that_do_not_fill_their_shape(save: Save, size: int):
    proto = onnx.load(save(NET.replace("[4,3,3,3]", "[400,3,3,3]").replace("[N,4,", "[N,400,")))
    raw = proto.graph.initializer[0].raw_data
    proto.graph.initializer[0].raw_data = raw[:size] if size < 0 else raw + bytes(size)
    path = save(NET)
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="tensor 'w' is damaged or cut short"):
        load_model(path, {"x": (1, 3, 8, 8)})


@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_file_is_refused_or_read(save: Save, position: int, value: int):
    path = save(NET)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content)
    try:
        assert load_model(path, {"x": (1, 3, 8, 8)}).graph.inputs
    except InputError as error:
        assert str(error)


def test_files_that_are_no_models(save: Save, tmp_path: Path):
    path = save(NET)
    broken = tmp_path / "broken.onnx"
    for content in (b"just text, not a model at all", path.read_bytes()[:-40], b"", b"\x08\x09"):
        broken.write_bytes(content)
        with pytest.raises(InputError, match=r"broken\.onnx is not an ONNX"):
            load_model(broken)
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path / "nowhere.onnx")
    with pytest.raises(InputError, match="is a folder"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[n1] c = Conv(x, w)", "[n1] c = custom.Conv(x, w)", "'n1' uses operator Conv of the unk"),
        ("[n1] c = Conv(x, w)", "[n1] c = Mish(x)", "define; export it with opset 18 or later"),
        (
            "Relu(c)",
            "Cast<to = 1, saturate = 1>(c)",
            "has attribute saturate, which is not defined in opset 17; remove it, or export the "
            "model with opset 19 or later",
        ),
        (
            "Relu(c)",
            "Dropout<ratio = 0.5>(c)",
            "attribute ratio, which is an input in opset 17; if the model was made for opset 11 "
            r"or earlier, declare that opset in the file and convert it with onnx\.version_conv",
        ),
        ("Relu(c)", "Dropout<is_test = 1>(c)", "made for opset 6 or earlier, declare that opset"),
        (
            "Relu(c)",
            "ReduceMean<keepdims = 1>(c, c)",
            r"\(ReduceMean\) has 2 inputs where 1 are defined in opset 17; export the model with "
            "opset 18 or later",
        ),
        (
            "Relu(c)",
            "Upsample(c, c)",
            "uses operator Upsample, which is deprecated in opset 17; if the model was made for "
            "opset 9, declare",
        ),
        ("[n1] c = Conv(x, w)", "[n1] c = Conv(x, v)", "not a valid ONNX model"),
        ("Relu(c)", "DequantizeLinear(c, c)", "'c' with scales that are not constant"),
    ],
)
def test_nodes_that_cannot_be_used(tmp_path: Path, old: str, new: str, expected: str):
    text = NET.replace("c = Conv", "[n1] c = Conv").replace("= {1}", "")
    text = text.replace("float[4,3,3,3] w", "float[1,3,1,1] w = {1, 2, 3}").replace(old, new)
    text = text.replace('"": 17]', '"": 17, "custom": 1]')
    proto = onnx.parser.parse_model(text)
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(InputError, match=expected):
        load_model(tmp_path / "model.onnx", {"x": (1, 3, 8, 8)})


def test_quantized_nodes_in_bodies_and_functions(tmp_path: Path):
    branch = """
        y = If(c) <
          then_branch = t () => (float[2] a) { a = Neg(x) },
          else_branch = e () => (float[2] b) { [q] d, s, z = DynamicQuantizeLinear(x) b = Abs(x) }
        >
    """
    loop = """
        n = Constant<value = int64 {3}> () true = Constant<value = bool {1}> ()
        y = Loop(n, true, x) <
          body = l (int64 i, bool k, float[2] v) => (bool o, float[2] b) {
            [q] d, s, z = DynamicQuantizeLinear(v) b = Neg(v) t = ReduceSum<keepdims = 0>(v)
            o = Less(t, t)
          }
        >
    """
    function = """
        <opset_import: ["": 17], domain: "mine">
        f (a) => (b) { [q] d, s, z = DynamicQuantizeLinear(a) b = Neg(a) }
    """

    def write(body: str, functions: str) -> Path:
        text = f"""
            <ir_version: 9, opset_import: ["": 17, "mine": 1]>
            g (bool c, float[2] x) => (float[2] y) {{ {body} }} {functions}
        """
        onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    for body, expected in (
        (branch, ["Neg", "Abs", "If"]),
        (loop, ["Neg", "ReduceSum", "Less", "Loop"]),
    ):
        entered = load_model(write(body, ""), bodies=True)
        assert [node.op for node in entered.graph.nodes] == expected
    imported = load_model(write("y = mine.f(x)", function))
    assert [node.op for node in imported.graph.nodes] == ["Neg"]


def test_inputs_that_are_no_tensors(tmp_path: Path):
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (seq(float[2]) x) => (float[2] y) <int64 i = {0}> { y = SequenceAt(x, i) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises(InputError, match="input 'x' is not a tensor"):
        load_model(tmp_path / "model.onnx")


def test_an_operator_that_onnx_lacks_is_taken_for_a_plugin(save: Save):
    proto = onnx.load(save(NET))
    proto.graph.node[1].op_type = "EfficientNMS_TRT"
    path = save(NET).with_name("plugin.onnx")
    onnx.save(proto, path)
    with pytest.raises(InputError, match=r"EfficientNMS_TRT, which ONNX does not have; .* extract"):
        load_model(path, {"x": (1, 3, 8, 8)})
