"""Plans read from profiles, logs and what scripts print of TensorRT's engines."""

import json

import pytest

from placer.errors import InputError
from placer.plan import Layer, Plan, Port
from placer.plan.readers.read import read_plan
from tests.plan.conftest import INT8_32, LINEAR, Save, entry

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
