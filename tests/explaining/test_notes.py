"""What explanations of quantized files say beside decisions and layers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import placer

Save = Callable[..., Path]

PAIR = "{0}q = QuantizeLinear({0}, s, z) {0}d = DequantizeLinear({0}q, s, z) "


def notes_of(path: Path, pack: str = "tensorrt", **options: object) -> tuple[str, ...]:
    return placer.explain(path, pack=pack, **options).notes


def test_sizes_that_the_file_leaves_open_are_told(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[N,16,H,W] x) => (float[N,16,H,W] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} [conv] y = Conv(xd, wd)
    }}""")
    told = (
        "input 'x' has unknown dimensions [1, 16, H, W], taken as 1 here; give them with `shapes`"
    )
    assert notes_of(path)[0].startswith(told)
    assert not any("unknown" in note for note in notes_of(path, shapes={"x": (1, 16, 8, 8)}))


@pytest.mark.parametrize(("scale", "told"), [("1", True), ("0.5", False)])
def test_scales_that_nobody_computed_are_told(save: Save, scale: str, told: bool):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{{scale}}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv(xd, wd) r = Relu(c)
      {PAIR.format("r")} y = Conv(rd, wd)
    }}""")
    said = [note for note in notes_of(path) if note.startswith("all 2 activations with pairs")]
    assert bool(said) == told


def test_activations_between_casts_are_told(save: Save):
    """ultralytics pull request 25920: a Sigmoid in float32 is not fused with the Conv before it."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 19]>
    g (float16[1,1,8,8] x) => (float16[1,1,8,8] y)
    <float16[1,1,1,1] w = {{14336}}, float16 s = {{14336}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv(xd, wd)
      f = Cast<to = 1>(c) [act] g = Sigmoid(f) h = Cast<to = 10>(g)
      y = Mul(c, h)
    }}""")
    told = "'act' (Sigmoid) computes in float32 between Casts of a half-precision model, which keep"
    assert any(note.startswith(told) for note in notes_of(path))
    assert not any("Casts" in note for note in notes_of(path, "onnxruntime"))


def test_pairs_of_constants_that_nothing_reads_as_integers_are_told(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (int64[1,8] ids) => (float[1,8,16] y)
    <float[32,16] t = {{0.1}}, float[16,16] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("t")} {PAIR.format("w")}
      [embed] e = Gather(td, ids) {PAIR.format("e")}
      [fc] y = MatMul(ed, wd)
    }}""")
    (note,) = (note for note in notes_of(path) if "constant" in note)
    assert note.startswith("pairs on a constant, 't' (Gather 'embed'), round it and gain no speed")


def test_pairs_of_the_bounds_of_a_clip_are_told(save: Save):
    """TensorRT issue 1897: PPQ quantizes the bounds, too."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float low = {{0}}, float high = {{6}}, float[16,16,1,1] w = {{0.1}}, float s = {{0.5}},
     int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} {PAIR.format("low")} {PAIR.format("high")}
      c = Conv(xd, wd) [act] a = Clip(c, lowd, highd) {PAIR.format("a")} y = Conv(ad, wd)
    }}""")
    assert (
        "pairs on constants, 'high' (Clip 'act'), 'low' (Clip 'act'), round them and gain no "
        "speed, because they are read in float: take these pairs out"
    ) in notes_of(path)


@pytest.mark.parametrize(
    "product", ["w = Transpose(td) y = MatMul(ed, w)", "y = Gemm<transB = 1>(ed, td)"]
)
def test_a_table_that_a_product_reads_through_the_same_pair_is_not_idle(save: Save, product: str):
    """As of language models, whose last product has the table of embeddings for its weight."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (int64[8] ids) => (float[8,32] y)
    <float[32,16] t = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("t")} e = Gather(td, ids) {PAIR.format("e")} {product}
    }}""")
    assert not any("constant" in note for note in notes_of(path))


def test_weights_of_operators_of_onnx_runtime_are_not_said_to_be_idle(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")}
      [conv] y = com.microsoft.FusedConv<activation = "Relu">(xd, wd)
    }}""")
    assert not any("constant" in note for note in notes_of(path))


@pytest.mark.parametrize(("channels", "told"), [(3, ""), (36, "'conv' (36 as 64)"), (64, "")])
def test_channels_that_int8_pads_are_told(save: Save, channels: int, told: str):
    """TensorRT issue 1310, an HRNet."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,{channels},64,64] x) => (float[1,32,64,64] y)
    <float[32,{channels},1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} [conv] y = Conv(xd, wd)
    }}""")
    found = [note for note in notes_of(path) if "multiples of 32" in note]
    assert (told in found[0]) if told else not found


def test_convs_that_onnx_runtime_computes_in_float_between_pairs_are_shown_so(
    save: Save, placer: Callable[..., object]
):
    """Symmetric int8 takes no Relu into the Q behind it, so that no Conv is fused."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv(xd, wd) [relu] r = Relu(c)
      rq = QuantizeLinear(r, s, z) y = DequantizeLinear(rq, s, z)
    }}""")
    assert "integer, but computed in float" in placer("explain", path, "--pack", "onnxruntime").out


def test_open_sizes_are_predicted_as_if_they_were_1(save: Save):
    """Else the shapes behind would not be known, by which layers are told."""
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,64,28,28] x) => (float[1,64,28,28] y)
    <float[64,64,3,3] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv<pads = [1, 1, 1, 1]>(xd, wd)
      a = Add(c, xd) r = Relu(a) {PAIR.format("r")} y = Conv<pads = [1, 1, 1, 1]>(rd, wd)
    }}"""
    known, open_size = (
        placer.explain(save(one)).explanation
        for one in (text, text.replace("float[1,64", "float[N,64"))
    )
    assert [layer.name for layer in known.plan.layers] == [la.name for la in open_size.plan.layers]
    assert known.total_us == open_size.total_us


def test_sizes_that_another_input_tells_are_not_taken_as_1(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[N,16,S] x, float[N,16,S] m) => (float[N,16,S] y)
    <float[16,16,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      a = Mul(x, m) {PAIR.format("a")} {PAIR.format("w")} y = Conv(ad, wd)
    }}""")
    one, both = (
        placer.explain(path, pack="tensorrt", shapes=shapes)
        for shapes in ({"x": (8, 16, 64)}, {"x": (8, 16, 64), "m": (8, 16, 64)})
    )
    assert one.explanation.total_us == both.explanation.total_us
    assert not any("unknown" in note for note in one.notes)


def test_a_file_of_a_training_tools_operators_is_told_to_be_shown_by_default(save: Save):
    path = save("""
    <ir_version: 9, opset_import: ["": 17, "com.vai.quantize": 1]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {0.1}, float s = {0.5}, int8 z = {0}> {
      q = com.vai.quantize.VitisQuantizeLinear(x, s, z)
      d = com.vai.quantize.VitisDequantizeLinear(q, s, z) y = Conv(d, w)
    }""")
    told = "this file quantizes by other operators than QuantizeLinear and DequantizeLinear"
    assert any(note.startswith(told) for note in notes_of(path))


@pytest.mark.parametrize(("second", "told"), [("t", True), ("s", False)])
def test_products_that_read_one_tensor_in_several_scales_are_told(
    save: Save, second: str, told: bool
):
    """dinov2 issue 489: a quantizer before each of queries and keys."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,32,64] x) => (float[1,32,64] a, float[1,32,64] b)
    <float[64,64] w = {{0.1}}, float s = {{0.5}}, float t = {{0.25}}, int8 z = {{0}}> {{
      {PAIR.format("w")} {PAIR.format("x")}
      i = QuantizeLinear(x, {second}, z) d = DequantizeLinear(i, {second}, z)
      [query] a = MatMul(xd, wd) [key] b = MatMul(d, wd)
    }}""")
    said = "products read 'x' (by 'query', 'key') through pairs of several scales"
    assert any(note.startswith(said) for note in notes_of(path)) == told


@pytest.mark.parametrize(
    ("pack", "told"), [("onnxruntime", True), ("openvino", False), ("tensorrt", True)]
)
def test_activations_with_a_scale_for_each_channel_are_told(save: Save, pack: str, told: bool):
    """ONNX Runtime issue 24518: QLinearConv is made, and refuses the zero points when it runs."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,2,8,8] x) => (float[1,2,8,8] y)
    <int8[2,2,1,1] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}, uint8 a = {128},
     float[2] t = {0.25, 0.5}, uint8[2] b = {128, 128}> {
      xq = QuantizeLinear(x, s, a) xd = DequantizeLinear(xq, s, a)
      wd = DequantizeLinear(w, s, z) c = Conv(xd, wd)
      cq = QuantizeLinear<axis = 1>(c, t, b) y = DequantizeLinear<axis = 1>(cq, t, b)
    }""")
    told_of = [note for note in notes_of(path, pack) if "a scale for each channel" in note]
    assert [note.split(" have ")[0] for note in told_of] == ["pairs on 'y'"] * told


def test_weights_that_are_clipped_between_q_and_dq_are_no_activations(save: Save):
    """Brevitas writes weights of 4 bits so."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,2,8,8] x) => (float[1,2,8,8] y)
    <float[2,2,1,1] w = {1, 2, 3, 4}, float s = {0.5}, uint8 a = {128}, int8 low = {-7},
     int8 high = {7}, float[2] t = {0.25, 0.5}, int8[2] z = {0, 0}> {
      xq = QuantizeLinear(x, s, a) xd = DequantizeLinear(xq, s, a)
      wq = QuantizeLinear<axis = 0>(w, t, z) c = Clip(wq, low, high)
      wd = DequantizeLinear<axis = 0>(c, t, z) y = Conv(xd, wd)
    }""")
    assert not any("for each channel" in note for note in notes_of(path, "onnxruntime"))


@pytest.mark.parametrize(
    ("middle", "options", "told"),
    [
        ("e = Softmax(m)", {}, True),
        ("e = Softmax(m)", {"weak": True}, False),
        ("e = Softmax(m)", {"base": "float"}, False),
        ("h = Cast<to = 10>(m) f = Softmax(h) e = Cast<to = 1>(f)", {}, False),
        ("e = Softmax(m)", {"pack": "onnxruntime"}, False),
    ],
    ids=["as it is", "weak typing", "float32", "a file with float16", "on a CPU"],
)
def test_floats_that_strong_typing_leaves_in_float32_are_told(
    save: Save, middle: str, options: dict[str, object], told: bool
):
    """Model-Optimizer issue 167."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 19]>
    g (float[64,256] x) => (float[64,256] y)
    <float[256,256] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} m = MatMul(xd, wd)
      {middle} [float] y = MatMul(e, w)
    }}""")
    notes = [note for note in notes_of(path, **options) if "float32 if this file is built" in note]
    assert len(notes) == told


@pytest.mark.parametrize(
    ("middle", "told"),
    [
        ("cq = QuantizeLinear(c, s, z) cd = DequantizeLinear(cq, s, z) [add] a = Add(cd, b)", True),
        ("[add] a = Add(c, b)", False),
        ("cq = QuantizeLinear(c, s, z) cd = DequantizeLinear(cq, s, z) a = Add(cd, xd)", False),
    ],
    ids=["a pair between", "no pair", "no constant"],
)
def test_pairs_are_told_that_keep_a_constant_from_the_weights(save: Save, middle: str, told: bool):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}, float[16,1,1] b = {{1}}> {{
      {PAIR.format("x")} {PAIR.format("w")} [conv] c = Conv(xd, wd) {middle} y = Relu(a)
    }}""")
    notes = [note for note in notes_of(path) if "from being part of the weights of 'conv'" in note]
    assert len(notes) == told


def test_pairs_that_keep_constants_from_weights_are_told_in_one_sentence(save: Save):
    """ONNX Runtime's quantize_static makes 30 of them in PP-OCRv4's text detection."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}, float k = {{2}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv(xd, wd) {PAIR.format("c")} [one] a = Mul(cd, k)
      {PAIR.format("a")} e = Conv(ad, wd) {PAIR.format("e")} [two] b = Add(ed, k) y = Relu(b)
    }}""")
    (told,) = (note for note in notes_of(path) if "part of the weights" in note)
    assert told.startswith("2 pairs keep constants from being part of the weights before them: ")
    assert "before 'one' (Mul)" in told
    assert "before 'two' (Add)" in told


def test_factors_of_smoothquant_are_to_be_part_of_the_norm(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[4,16] x) => (float[4,16] y)
    <float[16,16] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}, float[16] one = {{1}}> {{
      [norm] n = LayerNormalization(x, one, one) [smooth] m = Mul(n, one)
      {PAIR.format("m")} {PAIR.format("w")} y = MatMul(md, wd)
    }}""")
    assert any(note.startswith("fold 'smooth' (Mul) into 'norm'") for note in notes_of(path))


@pytest.mark.parametrize(("axis", "scale"), [(1, "ones"), (-1, "given")])
@pytest.mark.parametrize("quantized", [True, False])
def test_factors_that_import_does_not_fold_are_not_told(
    save: Save, axis: int, scale: str, quantized: bool
):
    """Of norms over several axes, and of those whose scale is an input."""
    pairs = f"{PAIR.format('m')} {PAIR.format('w')}" if quantized else ""
    data = "md, wd" if quantized else "m, w"
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[2,4,16] x, float[16] given) => (float[2,4,16] y)
    <float[16,16] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}},
     float[4,16] ones = {{1}}, float[16] f = {{2}}> {{
      [norm] n = LayerNormalization<axis = {axis}>(x, {scale}) [smooth] m = Mul(n, f)
      {pairs} y = MatMul({data})
    }}""")
    assert not any("fold" in note for note in notes_of(path))


def test_a_constant_that_makes_further_channels_is_no_part_of_the_weights(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[1,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}, float[16,1,1] f = {{2}}> {{
      {PAIR.format("x")} {PAIR.format("w")} c = Conv(xd, wd) {PAIR.format("c")}
      m = Mul(cd, f) y = Relu(m)
    }}""")
    assert not any("part of the weights" in note for note in notes_of(path))


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize(
    ("factor", "told"), [("ReduceL2<axes = [1, 2, 3]>(v)", True), ("Abs(v)", False)]
)
def test_a_weight_norm_of_constants_is_computed_in_every_run(save: Save, factor: str, told: bool):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] v = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      [norm] n = {factor} w = Div(v, n) {PAIR.format("x")} {PAIR.format("w")} y = Conv(xd, wd)
    }}""")
    said = "'norm' (ReduceL2) of constants is computed in every run"
    assert any(note.startswith(said) for note in notes_of(path, "tensorrt-rtx")) == told
    built = placer.check(path).plan
    assert built is not None
    assert any(not layer.inputs for layer in built.of_kind("compute")) == told


def test_random_numbers_of_the_shape_of_a_constant_are_none(save: Save):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[1,16,8,8] v = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      r = RandomNormalLike(v) m = ReduceMax<axes = [1]>(r) {PAIR.format("x")} y = Add(xd, m)
    }}""")
    assert not any("of constants" in note for note in notes_of(path, "tensorrt-rtx"))


@pytest.mark.parametrize("scale", ["nan", "inf"])
def test_scales_that_are_no_numbers_are_told_first(save: Save, scale: str):
    """TensorRT issues 2628 and 3112: calibration met NaN."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}, float t = {{1}}> {{
      [q] xq = QuantizeLinear(x, t, z) [d] xd = DequantizeLinear(xq, t, z)
      {PAIR.format("w")} y = Conv(xd, wd)
    }}""")
    proto = onnx.load(path)
    (stored,) = (tensor for tensor in proto.graph.initializer if tensor.name == "t")
    stored.CopyFrom(numpy_helper.from_array(np.float32(scale), "t"))
    onnx.save(proto, path)
    for pack in ("onnxruntime", "openvino"):
        assert notes_of(path, pack)[0] == (
            f"this file has no result as it is: node 'q' (QuantizeLinear) on 'x': its scale is "
            f"{scale}, which makes NaN of every value; calibrate again with other data (and 1 more)"
        )
    (out,) = ort.InferenceSession(path).run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
    assert np.isnan(out).all()


@pytest.mark.parametrize("pack", ["tensorrt", "onnxruntime", "openvino"])
def test_pairs_on_outputs_are_told(save: Save, pack: str):
    """TensorRT issue 2604: MobileNetV2 with a pair behind every operator."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] yd, float[1,16,8,8] r)
    <float[16,16,1,1] w = {{0.1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("x")} {PAIR.format("w")} y = Conv(xd, wd) {PAIR.format("y")} r = Relu(xd)
    }}""")
    assert [note for note in notes_of(path, pack) if "output" in note] == [
        "the pair on the output 'yd' rounds what the model returns to 8 bits: take it out unless "
        "that is meant, as NVIDIA advises (TensorRT issue 2604)"
    ]


UNFIT = {
    "another axis than that of the scales": (
        "[v] v = DequantizeLinear(w, t, b)",
        "float[3] t = {1, 2, 3}, int8[3] b = {0, 0, 0}, int8[3,2,1,1] w = {1, 2, 3, 4, 5, 6}",
        "it has 3 scales for 2 channels of axis 1; set its attribute axis to 0",
    ),
    "scales in the shape of the weight": (
        "[v] v = DequantizeLinear<axis = 0>(w, t, b)",
        "float[3,1,1,1] t = {1, 2, 3}, int8[3,1,1,1] b = {0, 0, 0},"
        "int8[3,2,1,1] w = {1, 2, 3, 4, 5, 6}",
        "its scales have shape (3, 1, 1, 1), where one for each channel makes a list; reshape",
    ),
}


@pytest.mark.parametrize("pack", ["onnxruntime", "openvino"])
def test_scales_of_an_activation_along_another_axis_than_its_channels(save: Save, pack: str):
    """NNCF PR 1406: a depthwise Conv whose input has its scales along axis 0."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,2,8,8] x) => (float[1,2,8,8] y)
    <float[2,1,1,1] w = {1, 1}, float[2] t = {1, 2}, int8[2] b = {0, 0}> {
      a = Relu(x) [q] aq = QuantizeLinear<axis = 0>(a, t, b)
      [d] ad = DequantizeLinear<axis = 0>(aq, t, b) y = Conv<group = 2>(ad, w)
    }""")
    assert notes_of(path, pack)[0] == (
        "no engine runs this file as it is: node 'q' (QuantizeLinear) on 'a': it has 2 scales for "
        "1 channels of axis 0; give the activation one scale (and 1 more)"
    )
    with pytest.raises(Exception, match="scale must be 1D tensor with size 1"):
        ort.InferenceSession(path).run(None, {"x": np.zeros((1, 2, 8, 8), np.float32)})
    ov = pytest.importorskip("openvino")
    with pytest.raises(RuntimeError, match="OpConversionFailure"):
        ov.Core().compile_model(path, "CPU")


@pytest.mark.parametrize("pack", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", UNFIT)
def test_scales_that_no_engine_takes_are_told_first(save: Save, name: str, pack: str):
    """ONNX Runtime issue 17718 and PyTorch issue 154323."""
    body, constants, told = UNFIT[name]
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,2,8,8] x) => (float[1,3,8,8] y)
    <{constants}, float s = {{0.5}}, uint8 a = {{128}}> {{
      xq = QuantizeLinear(x, s, a) xd = DequantizeLinear(xq, s, a) {body} y = Conv(xd, v)
    }}""")
    first = notes_of(path, pack)[0]
    assert first.startswith("no engine runs this file as it is: node 'v' (DequantizeLinear) on 'w'")
    assert told in first
    with pytest.raises(Exception, match="DequantizeLinear node"):
        ort.InferenceSession(path).run(None, {"x": np.zeros((1, 2, 8, 8), np.float32)})
    ov = pytest.importorskip("openvino")
    with pytest.raises(RuntimeError, match="OpConversionFailure"):
        ov.Core().compile_model(path, "CPU")


@pytest.mark.parametrize(
    ("square", "base", "told"),
    [
        ("Pow(d, two)", "float16", True),
        ("Pow(d, three)", "float16", False),
        ("Pow(d, twos)", "float16", True),
        ("Pow(two, d)", "float16", False),
        ("Mul(d, d)", "float16", True),
        ("Pow(d, two)", "bfloat16", False),
        ("Mul(d, x)", "float16", False),
    ],
)
def test_squares_of_norms_in_half_precision_are_told(
    save: Save, square: str, base: str, told: bool
):
    """TensorRT issue 2781: "Running layernorm after self-attention in FP16 may cause overflow"."""
    path = save(f"""
    <ir_version: 8, opset_import: ["": 14]>
    g (float[1,32,64] x) => (float[1,32,64] y)
    <float two = {{2}}, float three = {{3}}, float[1] twos = {{2}}, float e = {{1e-5}}> {{
      m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) [square] p = {square}
      v = ReduceMean<axes = [-1]>(p) a = Add(v, e) s = Sqrt(a) y = Div(d, s)
    }}""")
    said = "squares of a norm may overflow in float16, as 256 squared does: 'square'; from opset 17"
    assert any(note.startswith(said) for note in notes_of(path, base=base)) == told
