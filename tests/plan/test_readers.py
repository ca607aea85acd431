"""Actual plans read from what engines write, told apart by content."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from placer.common.ort_session import create_session
from placer.errors import InputError
from placer.plan import Layer, Plan, Port
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.plan.readers.tensorrt_names import split_format
from tests.plan.conftest import INT8_32, LINEAR, Save, entry, read_layer

FP16_8 = "Channel major FP16 format where channel % 8 == 0"


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


# --- ONNX files ------------------------------------------------------------------------------


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
