"""Actual plans read from what engines write, told apart by content."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.common.ort_session import create_session
from placer.errors import InputError
from placer.plan import Layer, Plan, Port
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.plan.readers.tensorrt_names import metadata_nodes, name_parts, split_format

INT8_32 = "Thirty-two wide channel vectorized row major Int8 format"
FP16_8 = "Channel major FP16 format where channel % 8 == 0"
LINEAR = "Row major linear FP32"

Save = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Save:
    """Write a JSON document or a text; returns its path."""

    def save(document: object) -> Path:
        path = tmp_path / f"file{len(list(tmp_path.iterdir()))}.json"
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text, encoding="utf-8")
        return path

    return save


def tensor(name: str, phrase: str) -> dict[str, object]:
    return {
        "Name": name,
        "Location": "Device",
        "Dimensions": [1, 64, 8, 8],
        "Format/Datatype": phrase,
    }


def entry(name: str, kind: str, source: str, target: str, **fields: object) -> dict[str, object]:
    """A layer that reads tensor ``in`` and writes ``out``."""
    ports = {"Inputs": [tensor("in", source)], "Outputs": [tensor("out", target)]}
    return {"Name": name, "LayerType": kind, **ports, **fields}


def read_layer(write: Save, **layer: object) -> Layer:
    (read,) = read_plan(write({"Layers": [layer], "Bindings": ["x", "y"]})).layers
    return read


# --- TensorRT's inspector -------------------------------------------------------------------


def test_a_fused_layer_of_tensorrt_8(write: Save):
    name = "layer1.0.conv2.weight + QuantizeLinear_32 + Conv_34 + Add_36 + Relu_37"
    path = write(
        {
            "Layers": [
                entry(name, "CaskConvolution", INT8_32, FP16_8, Activation="RELU", HasReLU=1)
            ],
            "Bindings": ["input.1", "422"],
        }
    )
    assert read_plan(path) == Plan(
        (
            Layer(
                name,
                "CaskConvolution",
                ("Conv_34", "Add_36", "Relu_37"),
                (Port("int8", "Thirty-two wide channel vectorized row major format", "in"),),
                (Port("float16", "Channel major format where channel % 8 == 0", "out"),),
                activation="RELU",
            ),
        ),
        "TensorRT 8 to 10 inspector",
    )


@pytest.mark.parametrize(
    ("name", "kind", "origin", "types", "expected"),
    [
        ("QuantizeLinear_2", "Reformat", "QDQ", (LINEAR, INT8_32), "quantize"),
        ("DequantizeLinear_291", "Reformat", "QDQ", (INT8_32, LINEAR), "dequantize"),
        ("QuantizeLinear_9", "Reformat", "QDQ", (INT8_32, INT8_32), "requantize"),
        ("QuantizeLinear_3_clone_0", "Reformat", "QDQ", (LINEAR, INT8_32), "quantize"),
        ("QuantLinearNode__838", "Reformat", "QDQ", (LINEAR, INT8_32), "quantize"),
        ("QuantLinearNode__838", "Scale", "", (LINEAR, INT8_32), "quantize"),
        ("DequantLinearNode__839", "Scale", "", ("N/A", "N/A"), "dequantize"),
        ("QuantizeLinear_/a/Conv_output_0_1", "Scale", "", (LINEAR, INT8_32), "quantize"),  # NNCF
        ("my first pair", "Reformat", "QDQ", (LINEAR, INT8_32), "quantize"),
        ("QuantizeLinear_2_quantize_scale_node", "Scale", "", (LINEAR, INT8_32), "quantize"),
        ("DequantizeLinear_4", "Scale", "", ("N/A", "N/A"), "dequantize"),
        ("Reformatting CopyNode for Input Tensor 0 to Conv_5 + Add_6", "Reformat", "REFORMAT",
         (LINEAR, FP16_8), "reformat"),
        ("Reformatting CopyNode for Input Tensor 0 to QuantizeLinear_3", "Reformat", "REFORMAT",
         (LINEAR, LINEAR), "reformat"),
        ("Reformatting CopyNode for Input Tensor 0 to Conv_0", "Reformat", "REFORMAT",
         (LINEAR, INT8_32), "quantize"),  # Of implicit scales.
        ("Reformatting CopyNode for Input Tensor 0 to Softmax_9", "Reformat", "REFORMAT",
         (INT8_32, LINEAR), "dequantize"),
        ("Reformatting CopyNode for Input Tensor 0 to Conv_3", "Reformat", "REFORMAT",
         (INT8_32, INT8_32), "reformat"),
        ("Reformatting CopyNode for Input Tensor 0 to Gemm_1", "NoOp", "", (INT8_32, INT8_32),
         "no-op"),
        ("fc.bias", "Constant", "", (LINEAR, LINEAR), "no-op"),
    ],
)  # fmt: skip
def test_layers_that_only_convert_or_do_nothing(
    write: Save, name: str, kind: str, origin: str, types: tuple[str, str], expected: str
):
    layer = read_layer(write, **entry(name, kind, *types, Origin=origin))
    assert (layer.kind, layer.nodes) == (expected, ())


def test_a_copy_that_a_slice_became_computes_the_slice(write: Save):
    layer = read_layer(write, **entry("Slice_895", "Reformat", INT8_32, INT8_32, Origin="SLICE"))
    assert (layer.kind, layer.nodes) == ("compute", ("Slice_895",))


@pytest.mark.parametrize(
    "name", ["onnx::Concat_135 copy", "Concat_737_1350_clone_0 copy", "/Reshape_copy_output"]
)
def test_a_copy_into_a_joined_tensor_is_a_reformat(write: Save, name: str):
    layer = read_layer(write, **entry(name, "Reformat", INT8_32, INT8_32, Origin="CONCAT"))
    assert (layer.kind, layer.nodes) == ("reformat", ())


def test_a_shuffle_that_moves_nothing_is_compute(write: Save):
    layer = read_layer(write, **entry("Flatten_47", "Shuffle", LINEAR, LINEAR))
    assert (layer.kind, layer.nodes) == ("compute", ("Flatten_47",))


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("fc/Constant_2_output_0 + fc/Conv + fc/Relu", ("fc/Conv", "fc/Relu")),
        ("const_fold_opt__9 + QuantLinearNode__8 + conv/Conv2D", ("conv/Conv2D",)),
    ],
)
def test_weights_and_their_pairs_are_no_nodes_of_a_layer(
    write: Save, name: str, nodes: tuple[str, ...]
):
    assert read_layer(write, **entry(name, "CaskConvolution", INT8_32, INT8_32)).nodes == nodes


def test_activations_of_convolutions_with_pooling(write: Save):
    name = "conv1.weight + QuantizeLinear_7 + Conv_9 + MaxPool_12"
    fields = {"ConvActivation": "RELU"}
    layer = read_layer(write, **entry(name, "ConvActPool", INT8_32, INT8_32, **fields))
    assert (layer.activation, layer.nodes) == ("RELU", ("Conv_9", "MaxPool_12"))
    fields = {"Activation": "NONE"}
    layer = read_layer(write, **entry("Conv_9", "CaskConvolution", INT8_32, INT8_32, **fields))
    assert layer.activation == ""


def test_metadata_goes_before_the_name(write: Save):
    pair = "[ONNX Layer: a/QuantizeLinear]"
    metadata = "[ONNX Layer: x/QuantizeLinear]\x1e[ONNX Layer: /conv/Conv]\x1f[ONNX Layer: /act]"
    text = json.dumps(
        {
            "Layers": [
                entry("__myl_ConvRelu_myl0_1", "kgen", "Int8", "Half", Metadata=metadata),
                entry("__myl_Quan_myl0_2", "kgen", "Half", "FP8", Metadata=pair),
                entry("__mye_wait", "wait", "Half", "Half"),
            ]
        }
    )
    # trtexec leaves the separators as they are, which strict JSON forbids.
    raw = text.replace("\\u001e", "\x1e").replace("\\u001f", "\x1f")
    fused, quantize, wait = read_plan(write(raw)).layers
    assert (fused.nodes, fused.input_types, fused.output_types) == (
        ("/conv/Conv", "/act"),
        ("int8",),
        ("float16",),
    )
    assert (quantize.kind, quantize.output_types) == ("quantize", ("float8e4m3fn",))
    assert wait.kind == "no-op"


def test_tensorrt_11_has_format_and_type_apart(write: Save):
    ports = [
        {"Name": "a", "Format": "Row major linear format (kLINEAR)", "Datatype": "BF16"},
        {"Name": "b", "Format": "LINEAR", "DataType": "Int64"},
    ]
    layer = {"Name": "Add_1", "LayerType": "kgen", "Inputs": ports, "Outputs": []}
    plan = read_plan(write({"Layers": [layer], "I/O Tensors": [{"Name": "a", "IOMode": "Input"}]}))
    assert plan.source == "TensorRT 11 inspector"
    assert plan.layers[0].inputs == (
        Port("bfloat16", "Row major linear format (kLINEAR)", "a"),
        Port("int64", "LINEAR", "b"),
    )


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("Row major linear FP32", ("float", "Row major linear")),
        ("Row major Int8 format", ("int8", "Row major format")),
        ("Row major linear BOOL", ("bool", "Row major linear")),
        (f"{INT8_32}.", ("int8", "Thirty-two wide channel vectorized row major format")),
        ("Half", ("float16", "")),
        ("N/A due to dynamic shapes", ("", "N/A due to dynamic shapes")),
    ],
)
def test_formats(phrase: str, expected: tuple[str, str]):
    assert split_format(phrase) == expected


# --- names ----------------------------------------------------------------------------------

GEMM = (
    "fc.weight + QuantizeLinear_255 + Gemm_257 + fc.bias + (Unnamed Layer* 306) [Shuffle] + "
    "unsqueeze_node_after_fc.bias + (Unnamed Layer* 306) [Shuffle]_(Unnamed Layer* 306) "
    "[Shuffle]_output + (Unnamed Layer* 307) [ElementWise]"
)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("Conv_0 + Relu_1", ("Conv_0", "Relu_1")),
        (GEMM, ("Gemm_257",)),
        ("onnx::Conv_193 + /a/conv/Conv", ("/a/conv/Conv",)),
        ("stem.weight_quantized + stem:0 Conv", ("stem:0 Conv",)),
        ("PWN(Sigmoid_3, Mul_4)", ("Sigmoid_3", "Mul_4")),
        ("PWN(PWN(PWN(/a/Sigmoid), /a/Mul), /b/Add)", ("/a/Sigmoid", "/a/Mul", "/b/Add")),
        ("Conv_1 + PWN(PWN(Sigmoid_2), Mul_3)", ("Conv_1", "Sigmoid_2", "Mul_3")),
        ("PWN(b.bias + (Unnamed Layer* 5) [Shuffle], Add_7)", ("Add_7",)),
        ("Conv_1 || Conv_2", ("Conv_1", "Conv_2")),
        ("{ForeignNode[/a/MatMul.../b/Add]}", ("/a/MatMul", "/b/Add")),
        ("{ForeignNode[onnx::MatMul_9 + (Unnamed Layer* 4) [Shuffle].../b/Add]}", ("/b/Add",)),
        ("reshape_after_Gemm_48", ()),
        ("__myl_MulAddRelu_myl0_2", ()),
    ],
)
def test_nodes_in_names(write: Save, name: str, nodes: tuple[str, ...]):
    assert read_layer(write, **entry(name, "Any", LINEAR, LINEAR)).nodes == nodes


@pytest.mark.parametrize(
    ("metadata", "nodes"),
    [
        ("", ()),
        ("[ONNX Layer: a]", ("a",)),
        ("[ONNX Layer: a[0]/Conv]\x1f[ONNX Layer: b]", ("a[0]/Conv", "b")),
        ("[ONNX Layer: a][ONNX Layer: b] [ONNX Layer: c]", ("a", "b", "c")),
        ("[ONNX Subgraph: s [ONNX Layer: a]]\x1e[ONNX Layer: b]", ("a", "b")),
    ],
)
def test_nodes_in_metadata(metadata: str, nodes: tuple[str, ...]):
    assert metadata_nodes(metadata) == nodes


WORD = st.text("abC_/.:0", min_size=1, max_size=6)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_joined_names_come_apart(names: list[str]):
    nested = names[0]
    for name in names[1:]:
        nested = f"PWN({nested}, {name})"
    assert name_parts(" + ".join(names)) == tuple(names)
    assert name_parts(nested) == tuple(names)
    assert metadata_nodes("\x1e".join(f"[ONNX Layer: {n}]" for n in names)) == tuple(names)


# --- trtexec's profile ----------------------------------------------------------------------

PROFILE = [
    {"count": 10},
    {"name": "QuantizeLinear_2", "timeMs": 0.5, "averageMs": 0.05, "percentage": 5.6},
    {"name": "Conv_1", "timeMs": 2, "averageMs": 0.2, "medianMs": 0.1875, "percentage": 18.4},
    {"name": "Conv_1", "timeMs": 1.25, "percentage": 11},
]


def test_a_profile_alone_gives_names_and_times(write: Save):
    assert read_plan(write(PROFILE)) == Plan(
        (
            Layer("QuantizeLinear_2", "", (), kind="quantize", time_us=50.0),
            Layer("Conv_1", "", ("Conv_1",), time_us=187.5),
            Layer("Conv_1", "", ("Conv_1",), time_us=125.0),
        ),
        "trtexec profile",
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("__myl_Cast_myl56_1", "reformat"), ("__myl_MulSum_myl0_0", "compute")]
)
def test_a_generated_kernel_in_a_profile_is_a_reformat_if_it_only_casts(
    write: Save, name: str, kind: str
):
    """The output of a ResNet50 in FP16 (10.14)."""
    (layer,) = read_plan(write([{"name": name, "averageMs": 0.004}])).layers
    assert (layer.kind, layer.nodes) == (kind, ())


def test_a_profile_gives_layers_their_times_in_order(write: Save):
    names = ["Conv_1", "QuantizeLinear_2", "Conv_1", "Relu_9"]
    layers = [entry(name, "Any", LINEAR, LINEAR) for name in names]
    plan = read_plan(write({"Layers": layers}), write(PROFILE))
    assert [layer.time_us for layer in plan.layers] == [187.5, 50.0, 125.0, None]


def test_a_profile_of_another_engine_is_refused(write: Save):
    info = write({"Layers": [entry("Gemm_1", "Any", LINEAR, LINEAR)]})
    with pytest.raises(InputError, match=r"times no layer of .*; profile the same engine"):
        read_plan(info, write(PROFILE))
    with pytest.raises(InputError, match="is not a profile; give the JSON of trtexec"):
        read_plan(info, info)


PRINTED_PROFILE = """\
[08/20/2024-19:32:01] [I] === Profile (74 iterations ) ===
{title}
[08/20/2024-19:32:01] [I] {first}
[08/20/2024-19:32:01] [I] {second}
[08/20/2024-19:32:01] [I] {total}
[08/20/2024-19:32:01] [I]
"""


@pytest.mark.parametrize(
    "columns",
    [
        {  # TensorRT 8.0: no medians.
            "title": "[08/20/2024-19:32:01] [I]      Layer   Time (ms)   Avg. Time (ms)   Time %",
            "first": "       QuantizeLinear_2_quantize_scale_node      54.94     0.0079      3.2",
            "second": "w + QuantizeLinear_7 + Conv_9 + (Unnamed Layer* 4) [Shuffle] "
            "  128.46   0.0143    4.8",
            "total": "                     Total     2689.67           0.3597      100.0",
        },
        {  # 8.5
            "title": "  Layer   Time (ms)   Avg. Time (ms)   Median Time (ms)   Time %",
            "first": "      QuantizeLinear_2_quantize_scale_node   85.71   0.0115    0.0079    3.2",
            "second": "w + QuantizeLinear_7 + Conv_9 + (Unnamed Layer* 4) [Shuffle] "
            "  128.46   0.0172   0.0143   4.8",
            "total": "                      Total     2689.67       0.3597     0.3074    100.0",
        },
        {  # 8.6 and later.
            "title": "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
            "first": "      85.71       0.0115       0.0079       3.2   "
            "QuantizeLinear_2_quantize_scale_node",
            "second": "     128.46       0.0172       0.0143       4.8   "
            "w + QuantizeLinear_7 + Conv_9 + (Unnamed Layer* 4) [Shuffle]",
            "total": "    2689.67       0.3597       0.3074     100.0   Total",
        },
    ],
    ids=["8.0", "8.5", "8.6"],
)
def test_a_profile_that_trtexec_printed(write: Save, columns: dict[str, str]):
    log = write(PRINTED_PROFILE.format(**columns))
    info = {
        "Layers": [
            "QuantizeLinear_2_quantize_scale_node",
            "w + QuantizeLinear_7 + Conv_9 + (Unnamed Layer* 4) [Shuffle]",
        ]
    }
    quantize, conv = read_plan(write(info), log).layers
    assert quantize.time_us == pytest.approx(7.9)
    assert conv.time_us == pytest.approx(14.3)


# --- logs and ONNX files --------------------------------------------------------------------


def test_a_printed_profile_without_layers_gives_names_and_times(write: Save):
    # As posted in TensorRT issue 1293, QAT on 8.0.
    title = f"{'Layer':>40}   Time (ms)   Avg. Time (ms)   Time %"
    first = f"{'QuantizeLinear_2_quantize_scale_node':>40}       10.46           0.0342      0.4"
    second = f"{'conv1.weight + Conv_9 + Relu_11':>40}       57.26           0.1871      2.2"
    total = f"{'Total':>40}     2592.61           8.4726    100.0"
    text = PRINTED_PROFILE.format(title=title, first=first, second=second, total=total)
    quantize, conv = read_plan(write(text)).layers
    assert (quantize.kind, quantize.time_us) == ("quantize", 34.2)
    assert (conv.nodes, conv.time_us) == (("Conv_9", "Relu_11"), 187.1)


# Two runs, of which the last counts; no kernel runs for what takes no time.
PYTHON_PROFILE = """\
/model.0/conv/Conv: 2.4ms
Reformatting CopyNode for Input Tensor 0 to PWN(/model.0/act/Mul): 0ms
/model.0/conv/Conv: 2.25ms
Reformatting CopyNode for Input Tensor 0 to PWN(/model.0/act/Mul): 0ms
PWN(PWN(/model.0/act/Sigmoid), /model.0/act/Mul): 0.5ms
"""


def test_what_tensorrts_python_profiler_prints(write: Save):
    layers = read_plan(write(PYTHON_PROFILE)).layers
    assert [(layer.kind, layer.time_us) for layer in layers] == [
        ("compute", 2250.0),
        ("no-op", 0.0),
        ("compute", 500.0),
    ]


def test_options_that_trtexec_logs_are_no_profile(write: Save):
    options = (
        "[08/20/2024-19:31:50] [I] Sleep time: 0ms\n[08/20/2024-19:31:50] [I] Idle time: 0ms\n"
    )
    with pytest.raises(InputError, match="is no"):
        read_plan(write(options))
    assert read_plan(write(options + SUMMARY_85)) == read_plan(write(SUMMARY_85))
    assert read_plan(write(SUMMARY_85 + "inference: 3.1ms\n")) == read_plan(write(SUMMARY_85))


def test_a_layer_of_which_a_profile_tells_no_time_is_a_no_op(write: Save):
    info = write({"Layers": ["Conv_1", "Reshape_2"]})
    times = [{"name": "Conv_1", "averageMs": 0.2}, {"name": "Reshape_2", "averageMs": 0}]
    plan = read_plan(info, write(times))
    assert [layer.kind for layer in plan.layers] == ["compute", "no-op"]


def test_a_build_log_of_tensorrt_rtx(write: Save):
    log = (
        "[11/21/2026-08:00:00] [V] [TRT] Layers:\n"
        "[11/21/2026-08:00:00] [V] [TRT] Name: conv_0, LayerType: correlation, Inputs: [ { Name: a,"
        " Datatype: Int8, Format: (NHWC) Channel major format }], Outputs: [ { Name: b, Datatype: "
        "Half }], TacticName: t, Metadata: [ONNX Layer: conv][ONNX Layer: a/DequantizeLinear]\n"
        "Name: q, LayerType: kgen, Inputs: [ { Name: b, Datatype: Half }], Outputs: [ { Name: c,"
        " Datatype: FP8 }], TacticName: t, Metadata: [ONNX Layer: c/QuantizeLinear]\n"
    )
    assert read_plan(write(log)) == Plan(
        (
            Layer(
                "conv_0",
                "correlation",
                ("conv",),
                (Port("int8", "(NHWC) Channel major format", "a"),),
                (Port("float16", "", "b"),),
            ),
            Layer(
                "q",
                "kgen",
                (),
                (Port("float16", "", "b"),),
                (Port("float8e4m3fn", "", "c"),),
                "quantize",
            ),
        ),
        "TensorRT-RTX build log",
    )


# As TensorRT 8.5.1 listed a quantized ResNet18 (github.com/lix19937/tensorrt-insight,
# qat/resnet18.log), in part; TensorRT 7 and 8.4 wrote tensors as name[Type(dims)].
SUMMARY_85 = """\
[08/20/2024-19:31:54] [V] [TRT] Engine Layer Information:
Layer(Reformat): QuantizeLinear_2, Tactic: 0x00000000000003ea, inputs.1 (Float[1,3,224,224]) \
-> 176 (Int8[1,3,224,224])
Layer(ConvActPool): conv1.weight + QuantizeLinear_7 + Conv_9 + MaxPool_12, Tactic: \
0x0000000000000461, 176 (Int8[1,3,224,224]) -> 191 (Int8[1,64:32,56,56])
Layer(CaskConvolution): layer1.0.conv2.weight + QuantizeLinear_32 + Conv_34 + Add_42 + \
Relu_43, Tactic: 0x9d0f90e0cec890bb, 205 (Int8[1,64:32,56,56]), 191 (Int8[1,64:32,56,56]) -> \
226 (Int8[1,64:32,56,56])
Layer(NoOp): copied_squeeze_after_(Unnamed Layer* 356) [ElementWise], Tactic: 0x0, a \
(Float[1,1000,1,1]) -> 527 (Float[1,1000])
Layer(Myelin): {ForeignNode[a...b]}, Tactic: 0x0000000000000000,  -> x (Float[2,12600]), \
(Unnamed Layer* 689) [Shuffle]_output (Half[1])
[08/20/2024-19:31:54] [I] [TRT] [MemUsageChange] TensorRT-managed allocation in building engine
"""
SUMMARY_7 = """\
[TensorRT] VERBOSE: Layer(ElementWise): Add_132, Tactic: 1, 451[Float(32,160,160)], Conv_142 \
+ Relu_149 || Conv_84 + Relu_91[Int8(32,160,160)] -> 478[Float(32,160,160)]
[TensorRT] VERBOSE: Layer(Reformat): 477 copy, Tactic: 0, Conv_142 + Relu_149 || \
Conv_84[Float(32,160,160)] -> 478[Float(32,160,160)]
"""  # Of TensorRT issue 1144.


def test_the_layers_that_a_verbose_build_lists(write: Save):
    plan = read_plan(write(SUMMARY_85))
    assert plan.source == "TensorRT log"
    assert [
        (layer.kind, layer.nodes, layer.input_types, layer.output_types) for layer in plan.layers
    ] == [
        ("quantize", (), ("float",), ("int8",)),
        ("compute", ("Conv_9", "MaxPool_12"), ("int8",), ("int8",)),
        ("compute", ("Conv_34", "Add_42", "Relu_43"), ("int8", "int8"), ("int8",)),
        ("no-op", (), ("float",), ("float",)),
        ("compute", ("a", "b"), (), ("float", "float16")),
    ]
    assert [port.tensor for port in plan.layers[2].inputs] == ["205", "191"]
    add, copy = read_plan(write(SUMMARY_7)).layers
    assert (add.nodes, add.input_types, add.output_types) == (
        ("Add_132",),
        ("float", "int8"),
        ("float",),
    )
    assert copy.kind == "reformat"


INFORMATION = """\
[08/20/2024-19:31:54] [I] Layers:
Name: QuantizeLinear_2, LayerType: Reformat, Inputs: [ { Name: inputs.1, Location: Device, \
Dimensions: [1,3,224,224], Format/Datatype: Row major linear FP32 }], Outputs: [ { Name: 176, \
Location: Device, Dimensions: [1,3,224,224], Format/Datatype: Row major Int8 format }], \
ParameterType: Reformat, Origin: QDQ, TacticValue: 0x00000000000003ea
Name: conv1.weight + QuantizeLinear_7 + Conv_9 + PWN(PWN(Sigmoid_3), Mul_4), LayerType: \
CaskConvolution, Inputs: [ { Name: 176, Location: Device, Dimensions: [1,3,224,224], \
Format/Datatype: Row major Int8 format }, { Name: Reformatted Output Tensor 0 to \
{ForeignNode[a]}, Location: Device, Dimensions: [1], Format/Datatype: Thirty-two wide channel \
vectorized row major Int8 format }], Outputs: [ { Name: 191, Location: Device, Dimensions: \
[1,64,56,56], Format/Datatype: Channel major FP16 format where channel % 8 == 0 }], \
ParameterType: Convolution, Weights: {"Type": "Int8", "Count": 9408}, Activation: RELU, \
TacticValue: 0x9ae0c0d2fb3a01e5
Name: node_linear [profile 0]_myl5_2, LayerType: gemm, Inputs: [ { Name: 191, Dimensions: \
[-1,3136], Format/Datatype: Half }], Outputs: [ { Name: y, Dimensions: [-1,10], \
Format/Datatype: Half }], TacticName: t, StreamId: 0, Metadata: [ONNX Layer: \
node_linear]\x1e[ONNX Layer: node_relu]
Name: __mye260_0_myl11_0, LayerType: shape_call, Inputs: [], Outputs: [], TacticName: , \
StreamId: 0, Metadata:
Name: QuantizeLinear_2 [profile 1], LayerType: Reformat, Inputs: [ { Name: inputs.1 [profile \
1], Location: Device, Dimensions: [1,3,224,224], Format/Datatype: Row major linear FP32 }], \
Outputs: [ { Name: 176 [profile 1], Location: Device, Dimensions: [1], Format/Datatype: Row \
major Int8 format }], ParameterType: Reformat, Origin: QDQ, TacticValue: 0x0
Name: __myl_Resh_myl11_1, LayerType: kgen, Inputs: [], Outputs: [], TacticName: t, StreamId: \
0, Metadata: [ONNX Layer: node_view]
"""


def test_layer_information_as_text(write: Save):
    """A verbose log of trtexec has both listings of an engine; the one that tells more counts."""
    quantize, conv, gemm, host = read_plan(write(SUMMARY_85 + INFORMATION)).layers
    assert (quantize.kind, quantize.input_types, quantize.output_types) == (
        "quantize",
        ("float",),
        ("int8",),
    )
    assert conv.nodes == ("Conv_9", "Sigmoid_3", "Mul_4")
    assert conv.input_types == ("int8", "int8")
    assert conv.inputs[1].tensor == "Reformatted Output Tensor 0 to {ForeignNode[a]}"
    assert (conv.output_types, conv.activation) == (("float16",), "RELU")
    assert gemm.nodes == ("node_linear", "node_relu")
    assert host.kind == "no-op"


def test_the_last_engine_of_a_log_is_read(write: Save):
    other = SUMMARY_85.replace("Conv_9", "Conv_8")
    layers = read_plan(write(other + SUMMARY_85)).layers
    assert layers[1].nodes == ("Conv_9", "MaxPool_12")


def test_what_polygraphy_shows_of_an_engine(write: Save):
    text = """\
[I] ==== TensorRT Engine ====
    ---- 2 Layer(s) Per Profile ----
    - Profile: 0
        Layer 0    | stem.weight + QuantizeLinear_7 + Conv_9 + Relu_10 [Op: CaskConvolution]
            {x [dtype=int8, shape=(1, 3, 8, 8), Format: Row major Int8 format],
             r [dtype=float16, shape=(1, 64, 8, 8), Format: Channel major FP16 format]}
             -> {y [dtype=float16, shape=(1, 64, 8, 8), Format: Channel major FP16 format]}
            ---- Attributes ----
            Origin = Unknown
        Layer 1    | node_linear_myl4_0 [Op: gemm]
            {y [shape=(1, 64, 8, 8)]}
             -> {z [dtype=float32, shape=(1, 10)]}
"""
    conv, gemm = read_plan(write(text)).layers
    assert (conv.op, conv.nodes, conv.input_types, conv.output_types) == (
        "CaskConvolution",
        ("Conv_9", "Relu_10"),
        ("int8", "float16"),
        ("float16",),
    )
    assert (gemm.nodes, gemm.input_types, gemm.output_types) == (
        ("node_linear",),
        ("",),
        ("float",),
    )


def test_which_layers_run_on_the_gpu(write: Save):
    """What every build logs; TensorRT 8.5 and later say the kind of layer before its name."""
    text = """\
[11/20/2024-16:10:56] [TRT] [I] ---------- Layers Running on DLA ----------
[11/20/2024-16:10:56] [TRT] [I] ---------- Layers Running on GPU ----------
[11/20/2024-16:10:56] [TRT] [I] [GpuLayer] CONVOLUTION: /m.0/cv1/conv/Conv || /m.0/cv2/conv/Conv
[11/20/2024-16:10:56] [TRT] [I] [GpuLayer] POINTWISE: PWN(PWN(/m.0/act/Sigmoid), /m.0/act/Mul)
[11/20/2024-16:10:56] [TRT] [I] [GpuLayer] COPY: /m.0/Split_output_0 copy
[09/26/2022-09:52:14] [TRT] [I] [GpuLayer] Conv_52 + Add_53 + Relu_54
"""
    assert [(layer.kind, layer.nodes) for layer in read_plan(write(text)).layers] == [
        ("compute", ("/m.0/cv1/conv/Conv", "/m.0/cv2/conv/Conv")),
        ("compute", ("/m.0/act/Sigmoid", "/m.0/act/Mul")),
        ("reformat", ()),
        ("compute", ("Conv_52", "Add_53", "Relu_54")),
    ]


def test_layers_that_a_script_printed_one_by_one_or_in_a_list(write: Save):
    layers = [
        entry("Conv_1", "CaskConvolution", INT8_32, LINEAR),
        entry("Add_2", "kgen", LINEAR, LINEAR),
    ]
    expected = read_plan(write({"Layers": layers})).layers
    texts = [f"--- Layer {i} ---\n{json.dumps(layer)}\n" for i, layer in enumerate(layers)]
    assert read_plan(write("".join(texts))).layers == expected
    assert read_plan(write(layers)).layers == expected


def test_names_alone_tell_nodes_and_no_types(write: Save):
    """What trtexec writes without --profilingVerbosity=detailed."""
    names = [
        "QuantizeLinear_4_quantize_scale_node",
        "Conv_0 + Relu_1",
        "Reformatting CopyNode for Input Tensor 0 to MaxPool_2",
        "Conv_0 + Relu_1 [profile 1]",
    ]
    plan = read_plan(write({"Layers": names, "Bindings": ["x"]}))
    assert [(layer.kind, layer.nodes, layer.outputs) for layer in plan.layers] == [
        ("quantize", (), ()),
        ("compute", ("Conv_0", "Relu_1"), ()),
        ("reformat", (), ()),
    ]


def test_a_kernel_of_no_node_that_only_scales_a_sum_of_integers_is_a_conversion(write: Save):
    names = ("__myl_MulMoveCast_myl0_2", "__myl_MulRelu_myl0_2")
    plans = [
        read_plan(
            write(
                f"Name: {name}, LayerType: kgen, Inputs: [ {{ Name: a, Datatype: Float }}], "
                "Outputs: [ { Name: b, Datatype: Half }], TacticName: t, Metadata: \n"
            )
        )
        for name in names
    ]
    assert [plan.layers[0].kind for plan in plans] == ["reformat", "compute"]


def kernel(name: str, given: str, *made: str) -> str:
    """A line of TensorRT-RTX's log: a kernel of no node that reads and writes these types."""
    read = f"{{ Name: a, Datatype: {given}}}" if given else ""
    written = ", ".join(f"{{ Name: b{i}, Datatype: {dtype} }}" for i, dtype in enumerate(made))
    return (
        f"Name: __myl_{name}_myl0_2, LayerType: kgen, Inputs: [ {read}], Outputs: [ {written}], "
        "TacticName: t, Metadata: \n"
    )


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (kernel("MulMinMaxRounCast", "Half", "Int8"), "quantize"),
        (kernel("MulMinMaxRounCastCastMul", "Half", "Half"), "quantize"),
        (kernel("MaxRounCastCastMul", "Half", "Half", "Int8"), "quantize"),
        (kernel("CastMulMulMinMaxRounCast", "Int8", "Int8"), "requantize"),
        (kernel("CastMulConcConcCast", "", "Half"), "dequantize"),
        (kernel("MulMinMaxRounCastAdd", "Half", "Half"), "compute"),
        (kernel("AddResh", "Half", "Half"), "reformat"),
        (kernel("ReshTranResh", "Half", "Half"), "reformat"),
        (kernel("AddReluResh", "Half", "Half"), "compute"),
    ],
)
def test_kernels_of_no_node_that_only_round_or_store_are_conversions(
    write: Save, line: str, kind: str
):
    assert [layer.kind for layer in read_plan(write(line)).layers] == [kind]


QUANTIZED = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,3,3] w = {1}, float s = {0.1}, uint8 z = {0}, float[4] ws = {1, 1, 1, 1},
 int8[4] wz = {0, 0, 0, 0}>
{
  [xq] a = QuantizeLinear(x, s, z)
  [xd] b = DequantizeLinear(a, s, z)
  [wq] v = QuantizeLinear<axis=0>(w, ws, wz)
  [wd] u = DequantizeLinear<axis=0>(v, ws, wz)
  [conv1] c = Conv<pads=[1,1,1,1]>(b, u)
  [relu1] r = Relu(c)
  [rq] d = QuantizeLinear(r, s, z)
  [rd] e = DequantizeLinear(d, s, z)
  [pool] p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(e)
  [conv2] f = Conv<pads=[1,1,1,1]>(p, w)
  [relu2] y = Relu(f)
}"""


def test_onnx_runtimes_optimized_graph(save: Callable[..., Path], tmp_path: Path):
    optimized = tmp_path / "optimized.onnx"
    create_session(
        save(QUANTIZED).read_bytes(),
        tmp_path,
        threads=1,
        level=ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        optimized_path=optimized,
    )
    plan = read_plan(optimized)
    assert plan.source == "ONNX Runtime's optimized graph"
    rows = [
        (layer.op, layer.kind, layer.nodes, layer.output_types, layer.activation)
        for layer in plan.layers
        if layer.input_types  # Weights are quantized ahead or by a layer of constants.
    ]
    assert rows == [
        ("QuantizeLinear", "quantize", (), ("uint8",), ""),
        ("QLinearConv", "compute", ("conv1",), ("uint8",), ""),
        ("MaxPool", "compute", ("pool",), ("uint8",), ""),
        ("DequantizeLinear", "dequantize", (), ("float",), ""),
        ("FusedConv", "compute", ("conv2",), ("float",), "Relu"),
    ]


def test_types_behind_operators_of_onnx_runtime(tmp_path: Path):
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1, "com.microsoft.nchwc": 1]>
        g (float[1,4,8,8] x, uint8[1,4] q) => (y, i)
        <float s = {0.1}, uint8 z = {0}, float[4,4,3,3] w = {1}>
        {
          [r1] a = com.microsoft.nchwc.ReorderInput(x)
          [conv_output_0_nchwc] b = com.microsoft.nchwc.Conv(a, w)
          y = com.microsoft.nchwc.ReorderOutput(b)
          [cat] c = com.microsoft.QLinearConcat(s, z, q, s, z, q, s, z)
          [sig] d = com.microsoft.QLinearSigmoid(c, s, z, s, z)
          [top] i = ArgMax(d)
        }"""
    )
    path = tmp_path / "layers.onnx"
    onnx.save(model, path)
    layers = read_plan(path).layers
    assert [(layer.kind, layer.nodes, layer.output_types) for layer in layers] == [
        ("reformat", (), ("float",)),
        ("compute", ("conv",), ("float",)),
        ("reformat", (), ("float",)),
        ("compute", ("cat",), ("uint8",)),
        ("compute", ("sig",), ("uint8",)),
        ("compute", ("top",), ("int64",)),
    ]
    assert layers[2].name == "ReorderOutput_2"


def test_placers_own_plan(write: Save):
    plan = Plan((Layer("a", "Conv", ("a",), time_us=1.5),), "fusion-model", estimated=True)
    assert read_plan(write(plan_json(plan))) == plan


# --- wrong input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"Layers": [{"LayerType": "NoOp"}]}, r"Layers\[0\] has no 'Name'"),
        ({"Layers": [{"Name": "a", "Inputs": "x"}]}, "layer 'a': 'Inputs' does not list tensors"),
        ({"layers": []}, "has no field 'Layers'; give a TensorRT layer info JSON"),
        ([{"percentage": 3}], "entry 0 has no name and time; give trtexec's --exportProfile JSON"),
        ([1], "entry 0 has no name and time"),
        ('{"Layers": [', "is not valid JSON .*line 1.*; export it again"),
        # A time alone is no profile.
        ("Inference time: 0.53ms\n" * 2, "is not a plan; give a TensorRT layer info JSON"),
        ("hello", "is not a plan; give a TensorRT layer info JSON"),
        ("", "is not a plan; give a TensorRT layer info JSON"),
        ({"format": "placer-placement/1"}, "format: Input should be 'placer-plan/1'"),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(write: Save, document: object, message: str):
    path = write(document)
    with pytest.raises(InputError, match=message) as refused:
        read_plan(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_none(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist; give a TensorRT layer info JSON"):
        read_plan(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="is a folder"):
        read_plan(tmp_path)
    binary = tmp_path / "model.engine"
    binary.write_bytes(b"ftrt\xff\xfe\x00\x01" * 9)
    with pytest.raises(InputError, match="is not a plan"):
        read_plan(binary)


# --- published engines ----------------------------------------------------------------------


@pytest.fixture
def engines() -> Path:
    default = Path(__file__).parents[3] / "shared" / "reference-engines"
    folder = Path(os.environ.get("PLACER_REFERENCE_ENGINES", default)) / "resnet18-a100"
    if not folder.is_dir():
        pytest.skip("no reference engines; name their folder in PLACER_REFERENCE_ENGINES")
    return folder


@pytest.mark.parametrize(
    ("build", "layers", "compute", "quantize", "dequantize", "reformat", "no_op"),
    [
        ("fp32", 32, 23, 0, 0, 1, 8),
        ("fp16", 36, 23, 0, 0, 2, 11),
        ("qat", 37, 23, 10, 0, 2, 2),
        ("qat-residual", 26, 22, 2, 1, 0, 1),
        ("qat-residual-qgap", 24, 22, 1, 0, 0, 1),
    ],
)
def test_published_engines_of_resnet18(
    engines: Path,
    build: str,
    layers: int,
    compute: int,
    quantize: int,
    dequantize: int,
    reformat: int,
    no_op: int,
):
    plan = read_plan(engines / build / "graph.json", engines / build / "profile.json")
    counts = [
        len(plan.of_kind(kind))
        for kind in ("compute", "quantize", "dequantize", "reformat", "no-op")
    ]
    assert len(plan.layers) == layers
    assert counts == [compute, quantize, dequantize, reformat, no_op]
    timed = [layer.time_us is not None for layer in plan.layers if layer.kind != "no-op"]
    assert all(timed)
    nodes = [node for layer in plan.of_kind("compute") for node in layer.nodes]
    convolutions = [node for node in nodes if node.startswith("Conv_")]
    assert (len(convolutions), len(set(nodes))) == (20, len(nodes))
    types = {port.dtype for layer in plan.layers for port in (*layer.inputs, *layer.outputs)}
    assert types <= {"float", "float16", "int8"}
