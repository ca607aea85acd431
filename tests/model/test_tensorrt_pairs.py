"""The static check of Q/DQ pairs: what TensorRT refuses and why, held against NVIDIA's builder."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import placer
from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import load_quantized
from tests.model.paired import CONV, ONES, PAIR, REFUSED, TAKEN, Save, findings_of, text_of


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(save: Save, name: str):
    body, constants, expected = REFUSED[name]
    refused = [f for f in findings_of(save(text_of(body, constants))) if f.verdict == "refused"]
    assert (refused[0].node, refused[0].reason) == expected
    assert refused[0].fix


@pytest.mark.parametrize("name", REFUSED)
def test_the_builder_refuses_it_too(builder: Any, name: str):
    body, constants, _ = REFUSED[name]
    assert not check_model(builder, parse_model(text_of(body, constants)), "sm89").accepted


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("int32 that the network itself rounds", "quantize to int8"),
        ("a negative scale", "calibrate again: a scale is never negative"),
        (
            "negative scales of channels",
            "quantize channels 0, 2 of the constant again with positive scales",
        ),
        (
            "stored weights that are cast and scaled",
            "put a DequantizeLinear in the place of this node and of the Mul",
        ),
    ],
)
def test_the_fix_is_that_of_what_reads_the_values(save: Save, name: str, fix: str):
    body, constants, _ = REFUSED[name]
    refused = [f for f in findings_of(save(text_of(body, constants))) if f.verdict == "refused"]
    assert refused[0].fix == fix


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(save: Save, name: str):
    assert findings_of(save(text_of(TAKEN[name]))) == ()


@pytest.mark.parametrize("name", TAKEN)
def test_the_builder_takes_it_too(builder: Any, name: str):
    assert check_model(builder, parse_model(text_of(TAKEN[name])), "sm89").refusals == ()


def test_pairs_in_functions_are_found_at_each_call(save: Save):
    body = "[c1] a = loc.pair(x) [c2] d = loc.pair(a) " + CONV
    text = text_of(body).replace('"": 17', '"": 17, "loc": 1')
    called = f"""{text} <domain: "loc", opset_import: ["": 17]> pair (x) => (d) {{
      s = Constant<value = float {{0.05}}>() u3 = Constant<value = uint8 {{3}}>()
      {PAIR.format("u3")}
    }}"""
    found = findings_of(save(called))
    assert [finding.reason.split(",")[0] for finding in found] == ["its zero point is 3"] * 2
    assert len({finding.node for finding in found}) == 2


def test_a_fault_of_a_pair_is_said_once(save: Save):
    found = findings_of(save(text_of(PAIR.format("z3") + CONV, "int8 z3 = {3}")))
    assert [str(finding) for finding in found] == [
        "node 'q' (QuantizeLinear) on 'x': its zero point is 3, but TensorRT takes symmetric "
        "quantization only; quantize symmetrically"
    ]


@pytest.mark.parametrize("name", ["[quantize]", ""])
def test_names_that_pairs_repeat(save: Save, builder: Any, name: str):
    """As in a function that an exporter calls for each pair."""
    head, _, body = text_of("a = loc.pair(x) d = loc.pair(a) " + CONV).partition("g (")
    function = f"""
      <domain: "loc", opset_import: ["": 17]> pair (x) => (d) {{
        s = Constant<value = float {{0.05}}>() z = Constant<value = int8 {{0}}>()
        {name} q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
      }}"""
    text = head.replace('"": 17', '"": 17, "loc": 1') + "g (" + body + function
    first, *_ = placer.check(save(text), static=True).findings
    assert (first.node, first.verdict) == (name.strip("[]") or "node_of_q", "refused")
    assert first.imported
    assert first.reason == "2 nodes of pairs have its name, of which TensorRT takes one"
    assert not check_model(builder, parse_model(text), "sm89").accepted
    once = parse_model(text.replace("d = loc.pair(a)", "d = Identity(a)"))
    assert check_model(builder, once, "sm89").accepted


def test_overloads_of_a_function_have_pairs_of_their_own(save: Save):
    text = text_of("a = loc.pair:first(x) d = loc.pair:second(a) " + CONV)
    text = text.replace('"": 17', '"": 17, "loc": 1').replace("ir_version: 8", "ir_version: 10")
    for one in ("first", "second"):
        text += f"""
          <domain: "loc", overload: "{one}", opset_import: ["": 17]> pair (x) => (d) {{
            s = Constant<value = float {{0.05}}>() z = Constant<value = int8 {{0}}>()
            [{one}_q] q = QuantizeLinear(x, s, z) [{one}_dq] d = DequantizeLinear(q, s, z)
          }}"""
    assert placer.check(save(text), static=True).findings == ()


def test_halves_of_unequal_scales_are_named(save: Save):
    """NVIDIA's builder takes them, and what is read is twice what was written."""
    body = PAIR.format("z").replace("DequantizeLinear(q, s,", "DequantizeLinear(q, s2,") + CONV
    (finding,) = findings_of(save(text_of(body, "float s2 = {0.1}")))
    assert (finding.node, finding.verdict) == ("dq", "undocumented")
    assert finding.reason.endswith("of its QuantizeLinear 'q' 0.05, which multiplies by 2")


def test_a_half_without_a_valid_scale_is_named_for_that_alone(save: Save):
    body = PAIR.format("z").replace("DequantizeLinear(q, s,", "DequantizeLinear(q, s2,") + CONV
    (finding,) = findings_of(save(text_of(body, "float s2 = {nan}")))
    assert finding.reason == "its scale is nan, but TensorRT takes positive ones only"


def test_a_dead_channels_scale_is_named(save: Save):
    body, constants, _ = REFUSED["a scale of zero of a dead channel"]
    (finding,) = findings_of(save(text_of(body, constants)))
    assert finding.fix == "give channel 1 of the constant any positive scale"


def without_data(path: Path) -> Path:
    """The model at ``path`` with its data in another file, which is not there."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:  # Raw data alone are written to another file.
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(proto, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    path.with_name("data.bin").unlink()
    return path


def test_a_scale_whose_file_is_missing_is_told_of_the_model(save: Save):
    path = without_data(save(text_of(PAIR.format("z") + CONV)))
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: external data file data.bin"):
        findings_of(path)


def test_a_weight_whose_file_is_missing_is_told_before_anything_is_built(save: Save):
    """The builder says of it that it "failed to import initializer" of "node -1"."""
    path = without_data(save(text_of("[conv] y = Conv(x, w)")))
    assert placer.check(path, static=True).is_float
    with pytest.raises(InputError, match=r"data\.bin of initializer 'w' is missing"):
        placer.check(path)


def test_the_axis_that_fits_is_named(save: Save):
    """ONNX Runtime issue 17718: DequantizeLinear's default axis is 1, a Conv's channels are 0."""
    body = "[v] v = DequantizeLinear(wq, s8, z8) [conv] y = Conv(x, v)"
    weight = f"int8[8,4,1,1] wq = {{{', '.join(['1'] * 32)}}}"
    eight = ", ".join(["1"] * 8)
    constants = f"float[8] s8 = {{{eight}}}, int8[8] z8 = {{{eight.replace('1', '0')}}}"
    text = text_of(body, constants).replace(f"int8[4,4,1,1] wq = {{{ONES}}}", weight)
    (finding,) = findings_of(save(text.replace("=> (float[1,4,8,8] y)", "=> (float[1,8,8,8] y)")))
    assert (finding.reason, finding.fix) == (
        "it has 8 scales for 4 channels of axis 1",
        "set its attribute axis to 0",
    )


@pytest.mark.parametrize(("axis", "is_said"), [(1, True), (-3, True), (0, False)])
def test_tensorrt_8_wants_scales_of_a_transposed_conv_elsewhere(
    save: Save, axis: int, is_said: bool
):
    """TensorRT issue 2380; later versions take them along the output channels."""
    body = (
        f"[i] i = QuantizeLinear<axis = {axis}>(w, ws, wz)"
        f"[v] v = DequantizeLinear<axis = {axis}>(i, ws, wz)"
        "[up] y = ConvTranspose(x, v)"
    )
    said = placer.check(save(text_of(body)), static=True).older
    assert ("TensorRT 8" in said and "'up'" in said) == is_said


@pytest.mark.parametrize(
    ("channels", "groups", "said"),
    [
        (6, 6, "TensorRT before 8.5 may have no INT8 kernel for 'grouped': a depthwise Conv"),
        (12, 6, "TensorRT 8 may have no INT8 kernel for 'grouped': a Conv with groups"),
        (8, 8, ""),
        (8, 2, ""),
    ],
)
def test_tensorrt_8_may_lack_kernels_for_small_groups(
    save: Save, channels: int, groups: int, said: str
):
    """TensorRT issues 1556 (8.5 builds depthwise ones of any number) and 1934 (groups of two)."""
    ones = ", ".join(["1"] * (channels * channels // groups))
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,{channels},8,8] x) => (float[1,{channels},8,8] y)
    <int8[{channels},{channels // groups},1,1] w = {{{ones}}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("z")} v = DequantizeLinear(w, s, z) [grouped] y = Conv<group = {groups}>(d, v)
    }}"""
    older = placer.check(save(text), static=True).older
    assert older.startswith(said)
    assert bool(older) == bool(said)


@pytest.mark.parametrize("stored", ["", "c = Constant<value = int8 {0}>() "])
def test_tensorrt_8_refuses_identities_of_integers(save: Save, stored: str):
    """TensorRT issue 2163: pytorch-quantization's export shares zero points in this way."""
    body = f"{stored}[shared] i = Identity({'c' if stored else 'z'}) {PAIR.format('i')}{CONV}"
    report = placer.check(save(text_of(body)), static=True)
    assert report.findings == ()
    assert "TensorRT 8.4 refuses 'shared': Identities of 8-bit constants" in report.older


@pytest.mark.parametrize(
    ("first", "second", "is_said"),
    [
        ("int64 i = {0}", "int64 j = {1}", True),
        ("int64 i = {0}", "int64 j = {0}", False),  # A class token, e.g., and what reads it, too.
        ("int64[1] i = {0}", "int64[1] j = {1}", False),
    ],
)
def test_parts_of_a_quantized_tensor_are_named_for_tensorrt_8(
    save: Save, first: str, second: str, is_said: bool
):
    """TensorRT issue 2323: queries, keys and values of a DeiT, taken out of one tensor."""
    path = save(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[3,4,8,8] x) => (float y, float w)
    <float s = {{0.05}}, int8 z = {{0}}, {first}, {second}> {{
      {PAIR.format("z")} t = Transpose<perm = [0, 2, 1, 3]>(d)
      [part] p = Gather(t, i) y = ReduceSum<keepdims = 0>(p)
      [other] o = Gather(t, j) w = ReduceSum<keepdims = 0>(o)
    }}""")
    said = placer.check(path, static=True).older
    assert ("TensorRT 8.4 may refuse 'part', 'other'" in said) == is_said


@pytest.mark.parametrize(
    ("scores", "is_said"),
    [
        ("m = MatMul(d, d) t = Mul(m, k)", True),
        ("m = MatMul(d, d) t = Mul(k, m)", True),
        ("u = Transpose<perm = [0, 2, 1]>(d) m = MatMul(d, u) a = Add(m, x) t = Div(a, k)", True),
        ("m = MatMul(d, x) t = Mul(m, k)", False),
        ("i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z) t = MatMul(d, v)", False),
    ],
    ids=["pairs on both operands", "a factor first", "turned and shifted", "float", "a weight"],
)
def test_a_mask_of_an_attention_with_pairs_is_named_for_tensorrt_8(
    save: Save, scores: str, is_said: bool
):
    """TensorRT issue 2616: 8.5.1 stopped at part of an attention, 8.5.3 and 8.6 built it."""
    path = save(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,8,8] x, bool[1,8,8] seen) => (float[2,8,8] y)
    <float s = {{0.05}}, int8 z = {{0}}, float low = {{-1e9}}, float k = {{0.25}},
     float[8,8] w = {{0.5}}> {{
      {PAIR.format("z")} {scores}
      [mask] o = Where(seen, t, low) y = Softmax(o)
    }}""")
    assert placer.check(path, static=True).older.startswith("TensorRT 8.5.1 may stop") == is_said


@pytest.mark.parametrize("shown", [True, False])
def test_a_quantized_weight_that_is_an_output_is_named(save: Save, builder: Any, shown: bool):
    """TensorRT issue 1864; the builder has a layer without inputs that makes the weight."""
    other = "float[4,4,1,1] v" if shown else "float[1,4,8,8] d"
    path = save(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y, {other})
    <float[4,4,1,1] w = {{0.5}}, float s = {{0.05}}, int8 z = {{0}}> {{
      {PAIR.format("z")}
      i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z) [conv] y = Conv(d, v)
    }}""")
    said = placer.check(path, static=True).older
    assert said.startswith("The quantized weights of 'conv' are graph outputs") == shown
    built = check_model(builder, onnx.load(path), "sm89").plan
    assert any(not layer.inputs for layer in built.of_kind("compute", "quantize")) == shown


def test_weights_that_a_plugin_makes_of_nothing_have_scales_along_an_axis_too(save: Save):
    body = "i = aimet.customop.cpu.Stored() v = DequantizeLinear(i, ws, wz)"
    said = placer.check(save(text_of(f"{body} [up] y = ConvTranspose(x, v)")), static=True).older
    assert "TensorRT 8" in said and "'up'" in said


def test_scales_of_half_precision_are_of_opset_19(save: Save):
    body = "d = QuantizeLinear(x, h, z) y = DequantizeLinear(d, h, z)"
    text = text_of(body, "float16 h = {14336}").replace("float[1,4,8,8]", "float16[1,4,8,8]")
    path = save(text.replace('"": 17', '"": 19'))
    assert findings_of(path) == ()
    proto = onnx.load(path)
    proto.opset_import[0].version = 17
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert finding.verdict == "undocumented"
    assert finding.reason == "it has a scale of float16, which ONNX has from opset 19 on"


@pytest.mark.parametrize(
    ("op", "dims"), [("Conv", "8,8,1,1"), ("MatMul", "8,8")], ids=["Conv", "MatMul"]
)
def test_a_weight_of_another_type_than_the_input_is_refused(
    save: Save, builder: Any, op: str, dims: str
):
    """Model-Optimizer pull request 2314: scales of weights stayed float16 in a bfloat16 network."""
    ones = ", ".join(["1"] * 64)
    path = save(f"""
    <ir_version: 8, opset_import: ["": 21]>
    g (float[1,8,8,8] x) => (float[1,8,8,8] y)
    <int8[{dims}] w = {{{ones}}}, float s = {{0.5}}, float h = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("z")} [v] v = DequantizeLinear(w, h, z) [product] y = {op}(d, v)
    }}""")
    assert findings_of(path) == ()
    proto = onnx.load(path)
    (scale,) = (t for t in proto.graph.initializer if t.name == "h")
    scale.CopyFrom(numpy_helper.from_array(np.array(0.5, np.float16), "h"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert (finding.node, finding.verdict) == ("v", "refused")
    assert finding.reason == (
        f"it writes float16, as its scale is, and {op} 'product' multiplies that by float32"
    )
    assert finding.fix == "give its scale the type float32"
    assert not check_model(builder, proto, "sm89").accepted


def test_a_bias_of_another_type_than_the_input_is_refused(save: Save, builder: Any):
    body = f"{PAIR.format('z')} v = DequantizeLinear(w, s, z) [product] y = Conv(d, v, b)"
    ones = ", ".join(["1"] * 64)
    path = save(f"""
    <ir_version: 8, opset_import: ["": 21]>
    g (float[1,8,8,8] x) => (float[1,8,8,8] y)
    <int8[8,8,1,1] w = {{{ones}}}, float[8] b = {{1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {body}
    }}""")
    proto = onnx.load(path)
    (bias,) = (t for t in proto.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(np.ones(8, np.float16), "b"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert finding.reason == (
        "it writes float32, as its scale is, and Conv 'product' adds that to float16"
    )
    assert finding.fix == "give the bias 'b' the type float32"
    assert not check_model(builder, proto, "sm89").accepted


@pytest.mark.parametrize("size", [-1, 0])
def test_exporters_write_open_dimensions_as_numbers_too(save: Save, size: int):
    body = "q = QuantizeLinear<axis = 1>(x, ws, wz) d = DequantizeLinear<axis = 1>(q, ws, wz)"
    path = save(text_of(body + CONV))
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = size
    onnx.save(proto, path)
    assert {finding.verdict for finding in findings_of(path)} == {"undocumented"}


def test_a_scale_without_end_makes_no_numbers(save: Save):
    path = save(text_of(PAIR.format("z") + CONV))
    proto = onnx.load(path)
    (scale,) = (t for t in proto.graph.initializer if t.name == "s")
    scale.CopyFrom(numpy_helper.from_array(np.array(np.inf, np.float32), "s"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert (finding.verdict, finding.node) == ("altered", "q")
    assert finding.reason == "its scale is infinite, which makes NaN of every value"


def test_plugins_may_read_quantized_constants(save: Save):
    """TensorRT issue 3919; whether there is such a plugin is for the builder to say."""
    path = save(text_of("[plugin] y = qonnx.custom_op.general.VectorQuantizer(x, wq)"))
    assert findings_of(path) == ()


def test_several_scales_before_opset_13_lie_along_axis_0(save: Save, builder: Any):
    """TensorRT issue 1406: a Conv of pytorch-quantization, exported with opset 10."""
    body = (
        "[q] q = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(q, s, z)"
        "[i] i = QuantizeLinear(w8, s8, z8) [v] v = DequantizeLinear(i, s8, z8)"
        "[conv] y = Conv(d, v)"
    )
    eight = ", ".join(["1"] * 8)
    constants = (
        f"float[8,4,1,1] w8 = {{{', '.join(['0.5'] * 32)}}}, float[8] s8 = {{{eight}}}, "
        f"int8[8] z8 = {{{eight.replace('1', '0')}}}"
    )
    text = text_of(body, constants).replace('"": 17', '"": 10')
    path = save(text.replace("=> (float[1,4,8,8] y)", "=> (float[1,8,8,8] y)"))
    (finding,) = findings_of(path)
    assert (finding.verdict, finding.node, finding.fix) == (
        "undocumented",
        "i",
        "export the model with opset 13 or later",
    )
    assert check_model(builder, onnx.load(path), "sm89").accepted
    assert load_quantized(path).graph.node[2].attribute[0].i == 0
