"""Layers that users of TensorRT published, as facts: nodes and types of each, conversions by kind.

How well they were predicted at first sight is in docs/measured/plans-tensorrt.md.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from benchmarks.networks import topologies
from benchmarks.times.published_layers import mobilenet_pyramid
from placer.explaining.api import explain
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.layers.predictor import Predictor
from placer.prediction.rule_tests import layer_line
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target


def facts(plan: Plan, names: dict[str, str] | None = None) -> list[str]:
    """What runs as ``node+node: types -> types``, without Relus, which not all engines name."""
    found = []
    for layer in plan.layers:
        if layer.kind == "no-op":
            continue
        nodes = [(names or {}).get(node, node) for node in layer.nodes]
        name = "+".join(n for n in nodes if not n.startswith("Relu")) or layer.kind
        types = ", ".join(layer.input_types), ", ".join(layer.output_types)
        found.append(f"{name}: {types[0]} -> {types[1]}")
    return found


def counted(graph: Graph) -> dict[str, str]:
    """Nodes called after their operator and how many of it came before."""
    seen: Counter[str] = Counter()
    names = {}
    for node in graph.nodes:
        names[node.name] = f"{node.op}{seen[node.op]}"
        seen[node.op] += 1
    return names


# TensorRT 8.5.1, --best, torchvision's ResNet18 at batch 1, quantized by pytorch-quantization with
# the residual input of each Add: github.com/lix19937/tensorrt-insight, qat/resnet18.log.
RESNET18_851 = [
    "quantize: float -> int8",
    "Conv0+MaxPool0: int8 -> int8",
    "Conv1: int8 -> int8",
    "Conv2+Add0: int8, int8 -> int8",
    "Conv3: int8 -> int8",
    "Conv4+Add1: int8, int8 -> int8",
    "Conv5: int8 -> int8",
    "Conv7: int8 -> int8",
    "Conv6+Add2: int8, int8 -> int8",
    "Conv8: int8 -> int8",
    "Conv9+Add3: int8, int8 -> int8",
    "Conv10: int8 -> int8",
    "Conv12: int8 -> int8",
    "Conv11+Add4: int8, int8 -> int8",
    "Conv13: int8 -> int8",
    "Conv14+Add5: int8, int8 -> int8",
    "Conv15: int8 -> int8",
    "Conv17: int8 -> int8",
    "Conv16+Add6: int8, int8 -> int8",
    "Conv18: int8 -> int8",
    "Conv19+Add7: int8, int8 -> int8",
    "GlobalAveragePool0: int8 -> int8",
    "Gemm0: int8 -> float",
    "Softmax0: float -> float",
]


def test_resnet18_with_quantized_residuals_on_tensorrt_8_5(tmp_path: Path):
    proto = topologies.resnet(224, (2, 2, 2, 2), bottleneck=False, classes=1000)
    logits = proto.graph.output[0].name
    proto.graph.node.append(onnx.helper.make_node("Softmax", [logits], ["scores"], axis=1))
    proto.graph.output[0].name = "scores"
    onnx.save(proto, tmp_path / "resnet18.onnx")
    graph = load_model(tmp_path / "resnet18.onnx").graph
    read = {"Conv": (0, 1), "Gemm": (0, 1), "Add": (1,), "GlobalAveragePool": (0,)}
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.nodes for i in read.get(n.op, ())]
    target = Target(engine_version="8.5.1", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    predicted = predictor.predict(Placement.of(edges)).plan
    assert sorted(facts(predicted, counted(graph))) == sorted(RESNET18_851)


def linear(index: int, read: str, scale: str) -> str:
    """torch.nn.Linear with quantizers, as PyTorch exports it: weights are transposed behind DQ."""
    return f"""
        [fc{index}_wq] wq{index} = QuantizeLinear<axis = 0>(w{index}, ws{index}, wz{index})
        [fc{index}_wd] wd{index} = DequantizeLinear<axis = 0>(wq{index}, ws{index}, wz{index})
        [fc{index}_t] wt{index} = Transpose<perm = [1, 0]>(wd{index})
        [fc{index}] m{index} = MatMul({read}, wt{index})
        [q{index}] q{index} = QuantizeLinear(m{index}, {scale}, z)
        [d{index}] d{index} = DequantizeLinear(q{index}, {scale}, z)"""


# TensorRT 10, float32 file: github.com/Eternal-Raiden-Ying/i-vit-srtp, simple_test/layer_info.json.
MLP_10 = [
    "quantize: float -> int8",
    "fc1: int8 -> int8",
    "fc2: int8 -> int8",
    "fc3: int8 -> int8",
    "dequantize: int8 -> float",
]


def test_linear_layers_whose_weights_are_transposed_behind_dq_on_tensorrt_10(
    save: Callable[..., Path],
):
    sizes = ((16, 32), (32, 32), (32, 10))
    weights = ", ".join(
        f"float[{outputs},{inputs}] w{i} = {{0.1}}, "
        f"float[{outputs}] ws{i} = {{{_row('0.1', outputs)}}}, "
        f"int8[{outputs}] wz{i} = {{{_row('0', outputs)}}}"
        for i, (inputs, outputs) in enumerate(sizes, start=1)
    )
    body = linear(1, "d0", "s1") + linear(2, "d1", "s2")
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[4,16] x) => (float[4,10] d3)
        <{weights}, float s0 = {{0.1}}, float s1 = {{0.2}}, float s2 = {{0.3}}, float s3 = {{0.4}},
         int8 z = {{0}}> {{
          [q0] q0 = QuantizeLinear(x, s0, z)
          [d0] d0 = DequantizeLinear(q0, s0, z)
          {body}{linear(3, "d2", "s3")}
        }}"""
    found = explain(save(model), gpu="rtx-3060-laptop", base="float")
    assert facts(found.explanation.plan) == MLP_10


def _row(value: str, count: int) -> str:
    return ", ".join([value] * count)


# A C3 block of YOLOv5s in FP16: a profile that a user posted on GitHub (hhhhain/fileload4, the
# second one) has these layers in each of its C3 blocks; issue 17640 of ultralytics shows a YOLO11
# on an Orin with 10.3, whose Convs, SiLUs and Adds are apart too.
C3_APART = [
    "cv1+cv2: float16, float16 -> float16, float16",
    "cv1_sigmoid+cv1_mul: float16, float16 -> float16",
    "cv2_sigmoid+cv2_mul: float16, float16 -> float16",
    "m_cv1+m_cv1_sigmoid+m_cv1_mul: float16 -> float16",
    "m_cv2: float16 -> float16",
    "m_cv2_sigmoid+m_cv2_mul+m_add: float16, float16, float16 -> float16",
    "cv3+cv3_sigmoid+cv3_mul: float16 -> float16",
]
# The first profile in that file, of a newer TensorRT 8, and a YOLO26n (10.7, RTX 30): the residual
# is added by the Conv's kernel, which does not write into the joined tensor.
C3_FUSED = [
    *C3_APART[:4],
    "m_cv2+m_cv2_sigmoid+m_cv2_mul+m_add: float16, float16 -> float16",
    "reformat m_y: float16 -> float16",
    C3_APART[6],
]
# The YOLO26n in FP32, and ultralytics issue 6471: no Conv takes its SiLU along.
C3_FP32 = [
    "cv1+cv2: float, float -> float, float",
    "cv1_sigmoid+cv1_mul: float, float -> float",
    "cv2_sigmoid+cv2_mul: float, float -> float",
    "m_cv1: float -> float",
    "m_cv1_sigmoid+m_cv1_mul: float, float -> float",
    "m_cv2: float -> float",
    "m_cv2_sigmoid+m_cv2_mul+m_add: float, float, float -> float",
    "cv3: float -> float",
    "cv3_sigmoid+cv3_mul: float, float -> float",
]


def silu(conv: str, read: str, weight: str, attributes: str = "") -> str:
    return f"""
        [{conv}] {conv}_c = Conv{attributes}({read}, {weight})
        [{conv}_sigmoid] {conv}_s = Sigmoid({conv}_c)
        [{conv}_mul] {conv}_y = Mul({conv}_c, {conv}_s)"""


PADDED = "<pads = [1, 1, 1, 1]>"


@pytest.mark.parametrize(
    ("version", "capability", "base", "layers"),
    [
        ("8.4", "8.6", "float16", C3_APART),
        ("10.3", "8.7", "float16", C3_APART),
        ("8.6", "8.6", "float16", C3_FUSED),
        ("10.7", "8.6", "float16", C3_FUSED),
        ("11.2", "12.0", "float16", C3_FUSED),  # TensorRT issue 4854.
        ("10.7", "8.6", "float", C3_FP32),
    ],
)
def test_a_c3_block(
    save: Callable[..., Path], version: str, capability: str, base: str, layers: list[str]
):
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,40,40] image) => (float[1,64,40,40] out)
        <float[64,64,3,3] w0 = {{0.1}}, float[32,64,1,1] w1 = {{0.1}},
         float[32,64,1,1] w2 = {{0.1}}, float[32,32,1,1] w3 = {{0.1}},
         float[32,32,3,3] w4 = {{0.1}}, float[64,64,1,1] w5 = {{0.1}}> {{
          {silu("down", "image", "w0", PADDED)}
          {silu("cv1", "down_y", "w1")} {silu("m_cv1", "cv1_y", "w3")}
          {silu("m_cv2", "m_cv1_y", "w4", PADDED)}
          [m_add] m_y = Add(cv1_y, m_cv2_y)
          {silu("cv2", "down_y", "w2")}
          [concat] c = Concat<axis = 1>(m_y, cv2_y)
          {silu("cv3", "c", "w5")}
          [last] out = Relu(cv3_y)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version=version, compute_capability=capability, typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, base, "int8")
    found = predictor.predict(Placement.of(())).plan.layers
    inside = (layer for layer in found if layer.kind != "no-op" and "down" not in layer.name)
    block = [layer_line(layer) for layer in inside if layer.name not in OUTSIDE]
    assert sorted(block) == sorted(layers)


OUTSIDE = ("reformat image", "last", "reformat out")


# Bottlenecks of a YOLO26n (10.7, RTX 30, github.com/Minjea31/yolo26_TensorRT). In FP16 a Conv's
# kernel reads no part of a tensor to add it, so that part is cut out; the pointwise layer of FP32
# reads it where it lies.
@pytest.mark.parametrize(
    ("base", "layers"),
    [
        (
            "float16",
            [
                "reformat image: float -> float16",
                "cv1+cv1_sigmoid+cv1_mul: float16 -> float16",
                "m_cv1+m_cv1_sigmoid+m_cv1_mul: float16 -> float16",
                "split: float16 -> float16",
                "m_cv2+m_cv2_sigmoid+m_cv2_mul+m_add: float16, float16 -> float16",
                "reformat left: float16 -> float16",
                "reformat right: float16 -> float16",
                "reformat m_y: float16 -> float16",
                "cv2+cv2_sigmoid+cv2_mul: float16 -> float16",
            ],
        ),
        (
            "float",
            [
                "cv1: float -> float",
                "cv1_sigmoid+cv1_mul: float, float -> float",
                "m_cv1: float -> float",
                "m_cv1_sigmoid+m_cv1_mul: float, float -> float",
                "m_cv2: float -> float",
                "m_cv2_sigmoid+m_cv2_mul+m_add: float, float, float -> float",
                "reformat left: float -> float",
                "reformat right: float -> float",
                "cv2: float -> float",
                "cv2_sigmoid+cv2_mul: float, float -> float",
            ],
        ),
    ],
)
def test_a_bottleneck_that_adds_a_part_of_a_split(
    save: Callable[..., Path], base: str, layers: list[str]
):
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,80,80] image) => (float[1,32,80,80] out)
        <float[32,16,1,1] w1 = {{0.1}}, float[8,16,3,3] w2 = {{0.1}},
         float[16,8,3,3] w3 = {{0.1}}, float[32,48,1,1] w4 = {{0.1}}> {{
          {silu("cv1", "image", "w1")}
          [split] left, right = Split<axis = 1>(cv1_y)
          {silu("m_cv1", "right", "w2", PADDED)} {silu("m_cv2", "m_cv1_y", "w3", PADDED)}
          [m_add] m_y = Add(right, m_cv2_y)
          [concat] c = Concat<axis = 1>(left, right, m_y)
          {silu("cv2", "c", "w4")}
          [last] out = Relu(cv2_y)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="10.7", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, base, "int8")
    found = predictor.predict(Placement.of(())).plan.layers
    built = [la for la in found if la.kind != "no-op" and la.name not in ("last", "reformat out")]
    assert [layer_line(layer) for layer in built] == layers


# What follows the Convs of a YOLOv8m in FP16 (8.5.2, Orin, yolov8m_profiling in
# github.com/Topaz-wei/deployment_learning). One reformat more stands in front of the Softmax there,
# which is not predicted. The part of a YOLOv8 with four heads that another user's profile shows is
# alike (8.6).
YOLOV8_HEAD = [
    "reformat level0: float16 -> float16",
    "reformat level1: float16 -> float16",
    "reformat rows0: float16 -> float16",
    "reformat rows1: float16 -> float16",
    "by_bin: float16 -> float16",
    "softmax: float16 -> float16",
    "by_side: float16 -> float16",
    "distance: float16 -> float16",
    "left_top: float16 -> float16",
    "right_bottom: float16 -> float16",
    "twice+centre: float16, float16 -> float16",
    "size: float16, float16 -> float16",
    "stride: float16 -> float16",
    "sigmoid: float16 -> float16",
]


def test_the_head_of_a_yolov8_on_tensorrt_8_5(save: Callable[..., Path]):
    levels = [
        f"""[conv{i}] c{i} = Conv(image{i}, w0) [class{i}] d{i} = Conv(other{i}, w1)
            [concat{i}] level{i} = Concat<axis = 1>(c{i}, d{i})
            [reshape{i}] rows{i} = Reshape(level{i}, rows)"""
        for i in range(2)
    ]
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,8,8] image0, float[1,32,4,4] image1, float[1,32,8,8] other0,
           float[1,32,4,4] other1) => (float[1,24,80] out)
        <float[64,32,1,1] w0 = {{0.1}}, float[20,32,1,1] w1 = {{0.1}}, float[1,16,1,1] bins = {{1}},
         float[1,2,80] anchors = {{1}}, float two = {{2}}, float[1,80] strides = {{8}},
         int64[3] rows = {{1, 84, -1}}, int64[4] sides = {{1, 4, 16, 80}},
         int64[3] boxes = {{1, 4, 80}}, int64[2] parts = {{64, 20}}, int64[1] zero = {{0}},
         int64[1] half = {{2}}, int64[1] all = {{4}}, int64[1] axis = {{1}}> {{
          {levels[0]} {levels[1]}
          [join] joined = Concat<axis = 2>(rows0, rows1)
          [split] box, classes = Split<axis = 1>(joined, parts)
          [by_side_too] s = Reshape(box, sides)
          [by_bin] t = Transpose<perm = [0, 3, 1, 2]>(s)
          [softmax] p = Softmax<axis = 3>(t)
          [by_side] u = Transpose<perm = [0, 3, 2, 1]>(p)
          [distance] d = Conv(u, bins)
          [box] b = Reshape(d, boxes)
          [first] lt = Slice(b, zero, half, axis)
          [second] rb = Slice(b, half, all, axis)
          [left_top] x1 = Sub(anchors, lt)
          [right_bottom] x2 = Add(anchors, rb)
          [twice] x12 = Add(x1, x2)
          [centre] xy = Div(x12, two)
          [size] wh = Sub(x2, x1)
          [xywh] xywh = Concat<axis = 1>(xy, wh)
          [stride] scaled = Mul(xywh, strides)
          [sigmoid] scores = Sigmoid(classes)
          [last] out = Concat<axis = 1>(scaled, scores)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="8.5.2", compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = predictor.predict(Placement.of(())).plan.layers
    inputs = ("conv", "class", "reformat image", "reformat other", "reformat out")
    lines = [
        layer_line(layer)
        for layer in found
        if layer.kind != "no-op" and not layer.name.startswith(inputs)
    ]
    assert sorted(lines) == sorted(YOLOV8_HEAD)


# An encoder layer of a BERT in FP16 on TensorRT 10: NVIDIA/TensorRT issue 4397 lists seven kernels,
# with the nodes of each. The RTX builder joins the same ones but for biases and Transposes.
BERT_10 = [
    "key_mm+key_b+query_mm+query_b+value_mm+value_b",
    "scores+scale+masked+softmax+mix",
    "output_mm+output_b",
    "residual+norm",
    "dense_mm+dense_b+div+erf+plus+mul+mul_1",
    "ffn_mm+ffn_b",
    "residual_1+norm_1",
]


def product(name: str, read: str, weight: str, bias: str = "b") -> str:
    return f"""
        [{name}_mm] {name}_m = MatMul({read}, {weight})
        [{name}_b] {name}_y = Add({name}_m, {bias})"""


def heads(name: str, order: str) -> str:
    return f"""
        [{name}_r] {name}_h = Reshape({name}_y, split)
        [{name}_t] {name}_t = Transpose<perm = [{order}]>({name}_h)"""


BERT = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,40,32] x, float[1,1,40,40] mask) => (float[1,40,32] out)
    <float[32,32] wq = {{0.1}}, float[32,32] wk = {{0.1}}, float[32,32] wv = {{0.1}},
     float[32,32] wo = {{0.1}}, float[32] b = {{0.1}}, float[32] gain = {{1}},
     float[32,128] w1 = {{0.1}}, float[128] b1 = {{0.1}}, float[128,32] w2 = {{0.1}},
     int64[4] split = {{1, 40, 2, 16}}, int64[3] rows = {{1, 40, 32}}, float four = {{4}},
     float root = {{1.414}}, float one = {{1}}, float half = {{0.5}}> {{
      {product("key", "x", "wk")} {product("query", "x", "wq")} {product("value", "x", "wv")}
      {heads("query", "0, 2, 1, 3")} {heads("key", "0, 2, 3, 1")} {heads("value", "0, 2, 1, 3")}
      [scores] s = MatMul(query_t, key_t)
      [scale] scaled = Div(s, four)
      [masked] seen = Add(scaled, mask)
      [softmax] p = Softmax<axis = -1>(seen)
      [mix] c = MatMul(p, value_t)
      [back_t] back = Transpose<perm = [0, 2, 1, 3]>(c)
      [back_r] row = Reshape(back, rows)
      {product("output", "row", "wo")}
      [residual] sum = Add(output_y, x)
      [norm] n = LayerNormalization<axis = -1>(sum, gain, b)
      {product("dense", "n", "w1", "b1")}
      [div] d = Div(dense_y, root)
      [erf] e = Erf(d)
      [plus] f = Add(e, one)
      [mul] h = Mul(dense_y, f)
      [mul_1] gelu = Mul(h, half)
      {product("ffn", "gelu", "w2")}
      [residual_1] sum_1 = Add(ffn_y, n)
      [norm_1] out = LayerNormalization<axis = -1>(sum_1, gain, b)
    }}"""


def test_an_encoder_layer_on_tensorrt_10(save: Callable[..., Path]):
    graph = load_model(save(BERT)).graph
    target = Target(engine_version="10.7", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert [layer.name for layer in plan.of_kind("compute")] == BERT_10


# The vision part of a Qwen3-VL on TensorRT 10.11: _gemm_mha_v2 in FP16; in FP32 MatMul,
# __myl_MaxrSubExpSumDivMul and MatMul, and Add and LayerNormalization still one kernel.
def test_an_encoder_layer_in_fp32_on_tensorrt_10(save: Callable[..., Path]):
    graph = load_model(save(BERT)).graph
    target = Target(engine_version="10.11", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float", "int8")
    plan = predictor.predict(Placement.of(())).plan
    apart = ["scores", "scale+masked+softmax", "mix"]
    turned = [f"{name}_t" for name in ("query", "key", "value", "back")]
    found = [layer.name for layer in plan.of_kind("compute") if layer.name not in turned]
    assert found == [BERT_10[0], *apart, *BERT_10[2:]]


def test_mish_is_a_convs_epilogue_from_8_5_1_on(save: Callable[..., Path]):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,40,40] x) => (float[1,8,40,40] out)
        <float[8,8,1,1] w = {0.1}> {
          [conv] c = Conv(x, w)
          [softplus] p = Softplus(c)
          [tanh] t = Tanh(p)
          [mul] out = Mul(c, t)
        }"""
    graph = load_model(save(model)).graph
    found = []
    for version in ("8.2.5", "8.5.1"):  # TensorRT issue 2572.
        target = Target(engine_version=version, compute_capability="8.0", typing="weak")
        predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
        plan = predictor.predict(Placement.of(())).plan
        found.append([layer.name for layer in plan.of_kind("compute")])
    assert found == [["conv", "softplus+tanh+mul"], ["conv+softplus+tanh+mul"]]


def test_int8_products_of_one_tensor_are_one_kernel_on_tensorrt_10(save: Callable[..., Path]):
    # A language model with pairs on TensorRT 10: q, k and v in one kernel, __myl_FcMulAdd.
    graph = load_model(save(BERT)).graph
    target = Target(engine_version="10.3", compute_capability="8.7", typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    names = ("key", "query", "value")
    reads = [Edge("x", f"{name}_mm", 0) for name in names]
    weights = [Edge(f"w{name[0]}", f"{name}_mm", 1) for name in names]
    plan = predictor.predict(Placement.of([*reads, *weights])).plan
    products = [layer for layer in plan.of_kind("compute") if "int8" in layer.input_types]
    assert [layer.name for layer in products] == BERT_10[:1]


# A block of the DINOv2 of an RF-DETR in FP16 on TensorRT 10: seven kernels. PyTorch's exporter
# scales queries and keys by one number each; LayerScale is the Mul ahead of an Add.
DINO = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,40,32] x, float[1,40,32] y) => (float[1,40,32] out)
    <float[32,32] wq = {{0.1}}, float[32,32] wk = {{0.1}}, float[32,32] wv = {{0.1}},
     float[32,32] wo = {{0.1}}, float[32] b = {{0.1}}, float[32] gain = {{1}},
     float[32,128] w1 = {{0.1}}, float[128] b1 = {{0.1}}, float[128,32] w2 = {{0.1}},
     int64[4] split = {{1, 40, 2, 16}}, int64[3] rows = {{1, 40, 32}}, float root = {{1.414}},
     float one = {{1}}, float half = {{0.5}}> {{
      [first] a = Add(x, y)
      [norm] n = LayerNormalization<axis = -1>(a, gain, b)
      {product("query", "n", "wq")} {product("key", "n", "wk")} {product("value", "n", "wv")}
      {heads("query", "0, 2, 1, 3")} {heads("key", "0, 2, 3, 1")} {heads("value", "0, 2, 1, 3")}
      [scale_q] q = Mul(query_t, half)
      [scale_k] k = Mul(key_t, half)
      [scores] s = MatMul(q, k)
      [softmax] p = Softmax<axis = -1>(s)
      [mix] c = MatMul(p, value_t)
      [back_t] back = Transpose<perm = [0, 2, 1, 3]>(c)
      [back_r] row = Reshape(back, rows)
      {product("output", "row", "wo")}
      [ls1] scaled = Mul(output_y, gain)
      [residual] sum = Add(scaled, a)
      [norm_1] n_1 = LayerNormalization<axis = -1>(sum, gain, b)
      {product("dense", "n_1", "w1", "b1")}
      [div] d = Div(dense_y, root)
      [erf] e = Erf(d)
      [plus] f = Add(e, one)
      [mul] h = Mul(dense_y, f)
      [mul_1] gelu = Mul(h, half)
      {product("ffn", "gelu", "w2")}
      [ls2] scaled_1 = Mul(ffn_y, gain)
      [residual_1] sum_1 = Add(scaled_1, sum)
      [norm_2] n_2 = LayerNormalization<axis = -1>(sum_1, gain, b)
      [last] out = Add(n_2, sum_1)
    }}"""

DINO_10 = [
    "query_mm+query_b+key_mm+key_b+value_mm+value_b",
    "scale_q+scale_k+scores+softmax+mix",
    "output_mm+output_b",
    "ls1+residual+norm_1",
    "dense_mm+dense_b+div+erf+plus+mul+mul_1",
    "ffn_mm+ffn_b",
    "ls2+residual_1+norm_2",
]


def test_a_block_whose_norms_come_first_on_tensorrt_10(save: Callable[..., Path]):
    graph = load_model(save(DINO)).graph
    target = Target(engine_version="10.3", compute_capability="7.5", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert [layer.name for layer in plan.of_kind("compute")][1:-1] == DINO_10


# Stems whose Convs are quantized, on TensorRT 11.1 and an RTX 5090: github.com/jcf94,
# TRT_ConvActPool_Reverse. Of three placements the layers of two are as predicted.
@pytest.mark.parametrize(
    ("pool", "layers"),
    [
        (
            True,
            [
                "quantize x: float -> int8",
                "conv+relu+pool: int8 -> int8",
                "dequantize y: int8 -> float",
            ],
        ),
        (
            False,
            [
                "quantize x: float -> int8",
                "conv+relu: int8 -> int8",
                "dequantize y: int8 -> float",
            ],
        ),
    ],
)
def test_quantized_stems_on_tensorrt_11(save: Callable[..., Path], pool: bool, layers: list[str]):
    relu, last = ("r", "[pool] y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(r)")
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,3,224,224] x) => (float[1,64,h,w] y) <float[64,3,7,7] k = {{0.1}}> {{
          [conv] c = Conv<strides = [2, 2], pads = [3, 3, 3, 3]>(x, k)
          [relu] {relu if pool else "y"} = Relu(c)
          {last if pool else ""}
        }}"""
    graph = load_model(save(model)).graph
    edges = [Edge("x", "conv", 0), Edge("k", "conv", 1), Edge("y", "", 0)]
    edges += [Edge("r", "pool", 0)] if pool else []
    target = Target(engine_version="11.1", compute_capability="12.0", typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float", "int8")
    found = predictor.predict(Placement.of(edges)).plan.layers
    assert [layer_line(layer) for layer in found if layer.kind != "no-op"] == layers


# The first block of a YOLOv7 with a pair on the input of each Conv and scales of their own, drawn
# by NVIDIA (TensorRT 8, NVIDIA-AI-IOT/yolo_deepstream, yolov7_qat/doc): a SiLU with readers of two
# scales is apart from its Conv, FP16 between and behind, and each scale has a Q that is a layer.
def test_a_silu_that_two_scales_read_is_apart_from_its_int8_conv(save: Callable[..., Path]):
    weights = ", ".join(
        f"float[64,{inputs},{size},{size}] w{i} = {{0.1}}"
        for i, (inputs, size) in enumerate([(128, 1), (128, 1), *[(64, 3)] * 4, (256, 1)])
    )
    reads = ["x", "x", "y1", "y2", "y3", "y4"]
    blocks = " ".join(
        f"[conv{i}] c{i} = Conv<pads = {[int(i > 1)] * 4}>({read}, w{i}) "
        f"[s{i}] s{i} = Sigmoid(c{i}) [m{i}] y{i} = Mul(c{i}, s{i})"
        for i, read in enumerate(reads)
    )
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,128,16,16] x) => (float[1,64,16,16] out) <{weights}> {{
          {blocks}
          [cat] y = Concat<axis = 1>(y5, y3, y1, y0)
          [conv6] out = Conv(y, w6)
        }}"""
    graph = load_model(save(model)).graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.nodes if n.op == "Conv" for i in (0, 1)]
    target = Target(engine_version="8.4.1", compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = Counter(facts(predictor.predict(Placement.of(edges)).plan))
    fused = [f"conv{i}+s{i}+m{i}: int8 -> int8" for i in (0, 2, 4, 5)]
    apart = [f"conv{i}: int8 -> float16" for i in (1, 3)]
    alone = [f"s{i}+m{i}: float16, float16 -> float16" for i in (1, 3)]
    assert set(fused + apart + alone) < set(found)
    assert found["quantize: float16 -> int8"] == 4


# Kernels of a YOLOv8n on Blackwell by name, and of FP8 by latencies alone; see the rule silu.
@pytest.mark.parametrize(
    ("capability", "integer", "layers"),
    [
        ("8.9", "int8", ["-> float16", "quantize y: float16 -> int8"]),
        ("8.9", "float8e4m3fn", ["-> float16, float8e4m3fn"]),
        ("12.0", "int8", ["-> float16, int8"]),
    ],
)
def test_a_silu_beside_fp8_and_on_blackwell_writes_what_each_reader_needs(
    save: Callable[..., Path], capability: str, integer: str, layers: list[str]
):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,8,8] x) => (float[1,32,8,8] a, float[1,32,8,8] b)
        <float[32,32,1,1] w = {1}> {
            [sigmoid] s = Sigmoid(x)
            [mul] y = Mul(x, s)
            [conv] a = Conv(y, w)
            [lrn] b = LRN<size = 3>(y)
        }
    """
    graph = load_model(save(model)).graph
    target = Target(engine_version="11.1", compute_capability=capability, typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", integer)
    placement = Placement.of([Edge("y", "conv", 0), Edge("w", "conv", 1)])
    assert [layer_line(layer) for layer in predictor.predict(placement).plan.layers] == [
        "reformat x: float -> float16",
        f"sigmoid+mul: float16, float16 {layers[0]}",
        *layers[1:],
        f"conv: {integer} -> float16",
        "lrn: float16 -> float16",
        "reformat a: float16 -> float",
        "reformat b: float16 -> float",
    ]


# A block of a RAPIDFlow (TensorRT 8, github.com/hmorimitsu/ptlflow issue 65), whose norm is nine
# operators: `[GpuLayer] PWN(PWN(PWN(PWN(eps, sqrt), div), gain), shift)`, and four layers before.
# The encoder of a DETR has the same five (8.6.2, NVIDIA/TensorRT issue 3679).
RAPIDFLOW_8 = [
    "first",
    "depthwise",
    "turn",
    "mean",
    "center",
    "square",
    "variance",
    "eps+sqrt+div+gain+shift",
    "back",
    "fc1+root+erf+one+mul+half",
    "fc2+residual",
]


def test_a_norm_of_nine_operators_before_tensorrt_10():
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,40,40] image) => (float[1,32,40,40] out)
        <float[32,32,1,1] w = {0.1}, float[32,1,7,7] wd = {0.1}, float[128,32,1,1] w1 = {0.1},
         float[32,128,1,1] w2 = {0.1}, float two = {2}, float tiny = {0.00001},
         float[32] gains = {1.1}, float[32] shifts = {0.1}, float rt = {1.414}, float o = {1},
         float h = {0.5}> {
          [first] x = Conv(image, w)
          [depthwise] d = Conv<group = 32, pads = [3, 3, 3, 3]>(x, wd)
          [turn] t = Transpose<perm = [0, 2, 3, 1]>(d)
          [mean] m = ReduceMean<axes = [-1]>(t)
          [center] c = Sub(t, m)
          [square] q = Pow(c, two)
          [variance] v = ReduceMean<axes = [-1]>(q)
          [eps] e = Add(v, tiny)
          [sqrt] s = Sqrt(e)
          [div] n = Div(c, s)
          [gain] g1 = Mul(n, gains)
          [shift] y = Add(g1, shifts)
          [back] y1 = Transpose<perm = [0, 3, 1, 2]>(y)
          [fc1] f = Conv(y1, w1)
          [root] f1 = Div(f, rt)
          [erf] f2 = Erf(f1)
          [one] f3 = Add(f2, o)
          [mul] f4 = Mul(f, f3)
          [half] f5 = Mul(f4, h)
          [fc2] f6 = Conv(f5, w2)
          [residual] out = Add(x, f6)
        }"""
    graph = graph_of_text(model)
    target = Target(engine_version="8.6", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert [layer.name for layer in plan.of_kind("compute")] == RAPIDFLOW_8


# A pre-activation ResNet SSD from Caffe (NVIDIA developer forum, topic 288714) has a layer of norm,
# scale and Relu; a YOLOv8 trained with quantization (8.4.12, zmurder's build log) has each norm and
# Relu in one layer before its Conv takes both.
def test_a_norm_before_a_conv_takes_its_relu_along(save: Callable[..., Path]):
    norm = "(c, one, zero, zero, one)"
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,16,16] x) => (float[1,8,16,16] out, float[1,8,16,16] sum)
        <float[8,8,1,1] w = {{0.1}}, float[8] one = {{1}}, float[8] zero = {{0}}> {{
          [stem] c = Conv(x, w)
          [norm] n = BatchNormalization{norm}
          [relu] r = Relu(n)
          [conv] out = Conv(r, w)
          [add] sum = Add(out, c)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="8.6", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert [layer.name for layer in plan.of_kind("compute")][:2] == ["stem", "norm+relu"]


# An Inception block of a GoogLeNet in INT8 on Jetsons (github.com/shafikahdarwis/jetson-trtexec; a
# log in dusty-nv/jetson-inference issue 1630): "Generating copy for 1x1 || 3x3_reduce ||
# 5x5_reduce to output because input is not movable. Retargeting 3x3 to output".
def test_convs_that_are_one_write_into_no_joined_tensor(save: Callable[..., Path]):
    convs = [("a", "x", "w1"), ("b", "x", "w1"), ("c", "b_y", "w3"), ("d", "x", "w3")]
    body = "".join(
        f"""[{n}] {n}_c = Conv{PADDED if w == "w3" else ""}({x}, {w}) [{n}_relu] {n}_y = Relu({n}_c)
        """
        for n, x, w in convs
    )
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,14,14] image) => (float[1,64,14,14] out)
        <float[64,64,1,1] w0 = {{0.1}}, float[64,64,1,1] w1 = {{0.1}},
         float[64,64,3,3] w3 = {{0.1}}, float[64,192,1,1] w4 = {{0.1}}> {{
          [first] x = Conv(image, w0)
          {body}
          [join] j = Concat<axis = 1>(a_y, c_y, d_y)
          [last] out = Conv(j, w4)
        }}"""
    graph = load_model(save(model)).graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.by_op["Conv"] for i in (0, 1)]
    target = Target(engine_version="8.5", compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = predictor.predict(Placement.of(edges)).plan.layers
    inside = [layer_line(la) for la in found if la.kind != "no-op" and "image" not in la.name]
    assert inside[1:-1] == [
        "a+a_relu+b+b_relu: int8, int8 -> int8, int8",
        "c+c_relu: int8 -> int8",
        "d+d_relu: int8 -> int8",
        "reformat a_y: int8 -> int8",
    ]


# A MobileNetV2 with a dilated encoder in INT8 on an Orin (8.4, implicit scales, so every tensor is
# INT8; github.com/zmurder/zmurder.github.io), the layers that are listed: a Conv takes its Clip or
# Relu, the last one of a block the residual, and an Add behind a Relu is a layer of its own.
MOBILENET_84 = """
    Conv0+Clip0 Conv1+Clip1 Conv2 Conv3+Clip2 Conv4+Clip3 Conv5 Conv6+Clip4 Conv7+Clip5 Conv8+Add0
    Conv9+Clip6 Conv10+Clip7 Conv11 Conv12+Clip8 Conv13+Clip9 Conv14+Add1 Conv15+Clip10
    Conv16+Clip11 Conv17+Add2 Conv18+Clip12 Conv19+Clip13 Conv20 Conv21+Clip14 Conv22+Clip15
    Conv23+Add3 Conv24+Clip16 Conv25+Clip17 Conv26+Add4 Conv27+Clip18 Conv28+Clip19 Conv29+Add5
    Conv30+Clip20 Conv31+Clip21 Conv32 Conv33+Clip22 Conv34+Clip23 Conv35+Add6 Conv36+Clip24
    Conv37+Clip25 Conv38+Add7 Conv39 Conv40 Conv41 Conv42 Conv43 Add8 Conv44 Conv45
""".split()


def test_a_mobilenet_with_an_encoder_in_int8_on_tensorrt_8_4(tmp_path: Path):
    onnx.save(mobilenet_pyramid(), tmp_path / "mobilenet.onnx")
    graph = load_model(tmp_path / "mobilenet.onnx").graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.by_op["Conv"] for i in (0, 1)]
    for add in graph.by_op["Add"]:
        behind_relu = any(graph.producer[tensor].op == "Relu" for tensor in add.inputs)
        edges += [Edge(add.inputs[i], add.name, i) for i in ((0, 1) if behind_relu else (0,))]
    target = Target(engine_version="8.4", compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = facts(predictor.predict(Placement.of(edges)).plan, counted(graph))
    quantize, *layers = found[: 1 + len(MOBILENET_84)]
    assert quantize == "quantize: float -> int8"
    reads = ("int8, int8" if "Add" in name else "int8" for name in MOBILENET_84)
    assert layers == [f"{n}: {r} -> int8" for n, r in zip(MOBILENET_84, reads, strict=True)]


# ResNet50 of a DETR in INT8 on TensorRT 10 (github.com/farabimahmud/detr-logs-trtexec, implicit
# scales): a BatchNormalization that is written as Mul and Add is part of the Conv's layer, with the
# MaxPool in the first one.
def test_a_batch_norm_that_is_written_as_mul_and_add_is_part_of_its_conv(
    save: Callable[..., Path],
):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,3,64,64] image) => (float[1,32,16,16] out)
        <float[32,3,7,7] w0 = {0.1}, float[32,32,1,1] w1 = {0.1}, float[1,32,1,1] gain = {2},
         float[1,32,1,1] shift = {0.5}> {
          [stem] c = Conv<pads = [3, 3, 3, 3], strides = [2, 2]>(image, w0)
          [stem_mul] m = Mul(c, gain) [stem_add] a = Add(m, shift) [stem_relu] r = Relu(a)
          [pool] p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(r)
          [conv] d = Conv(p, w1)
          [conv_mul] n = Mul(d, gain) [conv_add] b = Add(n, shift) [conv_relu] y = Relu(b)
          [last] out = Conv(y, w1)
        }"""
    graph = load_model(save(model)).graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.by_op["Conv"] for i in (0, 1)]
    target = Target(engine_version="10.3", compute_capability="8.0", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(edges)).plan
    names = [layer.name for layer in plan.of_kind("compute")]
    assert names == ["stem+stem_relu+pool", "conv+conv_relu", "last"]


# Two heads of that MobileNetV2 in FP16 end in a Conv and a Sigmoid, which are layers of their own
# (8.4); a YOLOX-s on an Orin has them in one (8.5).
@pytest.mark.parametrize(
    ("version", "layers"),
    [("8.4", ["first", "score", "sigmoid"]), ("8.5", ["first", "score+sigmoid"])],
)
def test_a_sigmoid_is_a_convs_epilogue_in_fp16_from_8_5_on(
    save: Callable[..., Path], version: str, layers: list[str]
):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,16,16] x) => (float[1,1,16,16] out)
        <float[8,8,3,3] w = {0.1}, float[1,8,1,1] v = {0.1}> {
          [first] a = Conv<pads = [1, 1, 1, 1]>(x, w)
          [score] b = Conv(a, v)
          [sigmoid] out = Sigmoid(b)
        }"""
    graph = load_model(save(model)).graph
    target = Target(engine_version=version, compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert [layer.name for layer in plan.of_kind("compute")] == layers


# TensorRT 10.14.1, torchvision's ResNet50 at batch 1 in FP16 on an RTX 4050 Laptop:
# github.com/Techn08055/tensorrt-precision-lab, profiling/layer_profile_fp16.txt. The Conv that sums
# fewer products takes the residual Add: the shortcut's in the first stage, whose two sum as many,
# and the block's last one in the others.
@pytest.mark.slow
def test_the_residuals_of_a_resnet50_on_tensorrt_10(tmp_path: Path):
    proto = topologies.resnet(224, (3, 4, 6, 3), bottleneck=True, classes=1000)
    onnx.save(proto, tmp_path / "resnet50.onnx")
    graph = load_model(tmp_path / "resnet50.onnx").graph
    target = Target(engine_version="10.14.1", compute_capability="8.9", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = facts(predictor.predict(Placement.of(())).plan, counted(graph))
    image, *layers, last = found
    assert (image, last) == ("reformat: float -> float16", "reformat: float16 -> float")
    built, conv, add = ["Conv0", "MaxPool0"], 1, 0
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            alone = [] if block else [conv + 2 if stage == 0 else conv + 3]
            adds = conv + 3 if (stage, block) == (0, 0) else conv + 2
            built += [f"Conv{i}" for i in (conv, conv + 1, *alone)] + [f"Conv{adds}+Add{add}"]
            conv, add = conv + (3 if block else 4), add + 1
    reads = ("float16, float16" if "Add" in name else "float16" for name in built)
    expected = [f"{n}: {r} -> float16" for n, r in zip(built, reads, strict=True)]
    assert layers == [
        *expected,
        *(f"{n}: float16 -> float16" for n in ("GlobalAveragePool0", "Gemm0")),
    ]


# TensorRT 10.0.1, a block of an RT-DETRv2 on a GTX 1650 Ti: NVIDIA/TensorRT issue 4048. Both
# branches end in a SiLU; one Conv takes both and the Add of their results. (That engine, of INT8
# and FP16, has conv1 and conv2 apart, which in FP16 are predicted to be one.)
def test_a_block_whose_branches_end_in_silus_on_tensorrt_10(save: Callable[..., Path]):
    def conv(name: str, read: str, weights: str) -> str:
        pads = PADDED if weights == "w3" else ""
        return f"""
          [{name}] {name}_c = Conv{pads}({read}, {weights})
          [{name}_sigmoid] {name}_s = Sigmoid({name}_c)
          [{name}_mul] {name} = Mul({name}_c, {name}_s)"""

    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,40,40] x) => (float[1,64,40,40] out)
        <float[64,64,3,3] w3 = {{0.1}}, float[64,64,1,1] w1 = {{0.1}},
         float[64,64,1,1] v1 = {{0.1}}> {{
          {conv("down", "x", "w3")}{conv("conv1", "down", "w1")}{conv("first", "conv1", "w3")}
          {conv("last", "first", "w3")}{conv("conv2", "down", "v1")}
          [add] sum = Add(last, conv2)
          {conv("conv3", "sum", "w1")}
          [relu] out = Relu(conv3)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="10.0.1", compute_capability="7.5", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    sums = next(layer for layer in plan.layers if "add" in layer.nodes)
    assert [node for node in sums.nodes if "_" not in node] == ["last", "add"]
    assert {port.tensor for port in sums.inputs} == {"conv2_c", "first"}


# TensorRT 8, a YOLOv3 on a ResNet18 with trained pairs on inputs and weights of all Convs, INT8 and
# FP32: NVIDIA/TensorRT at 8e449266, tools/experimental/trt-engine-explorer,
# notebooks/layer_info.json. Resize runs in INT8 and is copied into the joined tensor, which the
# other branch's Q writes by itself.
def test_a_pyramid_of_a_yolov3_with_trained_pairs_on_tensorrt_8(save: Callable[..., Path]):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,32,32] image) => (float[1,32,16,16] out, float[1,32,8,8] low_out)
        <float[32,32,3,3] w = {0.1}, float[32,32,1,1] v = {0.1}, float[32,64,1,1] u = {0.1},
         float[4] sizes = {1, 1, 2, 2}> {
          [high] a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(image, w)
          [high_relu] b = Relu(a)
          [low] c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(b, w)
          [low_relu] d = Relu(c)
          [head] low_out = Conv(d, v)
          [up] e = Conv(d, v) [up_relu] f = LeakyRelu<alpha = 0.1>(e)
          [resize] g0 = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                               nearest_mode = "floor">(f, , sizes)
          [join] h = Concat<axis = 1>(g0, b)
          [last] out = Conv(h, u)
        }"""
    graph = load_model(save(model)).graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.by_op["Conv"] for i in (0, 1)]
    target = Target(engine_version="8.6", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float", "int8")
    found = facts(predictor.predict(Placement.of(edges)).plan)
    assert found == [
        "quantize: float -> int8",
        "high+high_relu: int8 -> float",
        "quantize: float -> int8",
        "low+low_relu: int8 -> int8",
        "head: int8 -> float",
        "up+up_relu: int8 -> int8",
        "resize: int8 -> int8",
        "quantize: float -> int8",
        "reformat: int8 -> int8",
        "last: int8 -> float",
    ]


# TensorRT 8.6.1, EfficientViT-B0 in FP32 on a GPU without TF32: the linear attention of a block in
# the list of the repository EdgeSeg-EfficientViT. Products read turned matrices, and element-wise
# layers and Pad rows of them, where they lie; nothing changes a memory format.
def test_a_linear_attention_in_fp32_on_tensorrt_8(save: Callable[..., Path]):
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,32,32] x) => (float[1,256,32,32] out)
        <float[192,64,1,1] wq = {0.1}, float[192,1,5,5] wd = {0.1}, float[192,16,1,1] wg = {0.1},
         float[64,128,1,1] wp = {0.1}, float[256,64,1,1] wi = {0.1}, float one = {1},
         int64[4] heads = {1, 8, 48, 1024}, int64[4] maps = {1, 128, 32, 32}, int64[1] a0 = {0},
         int64[1] a1 = {16}, int64[1] a2 = {32}, int64[1] a3 = {48}, int64[1] rows = {2},
         int64[8] pads = {0, 0, 0, 0, 0, 0, 1, 0}, int64[1] last = {-1}, int64[1] end = {99},
         float eps = {0.1}> {
          [qkv] a = Conv(x, wq)
          [depthwise] b = Conv<group = 192, pads = [2, 2, 2, 2]>(a, wd)
          [grouped] c = Conv<group = 12>(b, wg)
          [join] d = Concat<axis = 1>(a, c)
          [heads] e = Reshape(d, heads)
          [queries] q0 = Slice(e, a0, a1, rows) [keys] k0 = Slice(e, a1, a2, rows)
          [values] v0 = Slice(e, a2, a3, rows)
          [relu_q] q = Relu(q0) [relu_k] k = Relu(k0)
          [turn] kt = Transpose<perm = [0, 1, 3, 2]>(k)
          [pad] v = Pad(v0, pads, one)
          [product] vk = MatMul(v, kt) [attended] o = MatMul(vk, q)
          [sums] n = Slice(o, a0, last, rows) [norm] m = Slice(o, last, end, rows)
          [add] m_eps = Add(m, eps) [divide] r = Div(n, m_eps)
          [maps] s = Reshape(r, maps)
          [project] p = Conv(s, wp) [residual] y = Add(p, x)
          [expand] i = Conv(y, wi) [act] out = HardSwish(i)
        }"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="8.6.1", compute_capability="7.5", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float", "int8")
    plan = predictor.predict(Placement.of(())).plan
    assert ["+".join(layer.nodes) for layer in plan.layers if layer.kind != "no-op"] == [
        *("qkv", "depthwise", "grouped", "relu_q", "relu_k", "pad", "product", "attended"),
        *("add+divide", "project+residual", "expand", "act"),
    ]


# TensorRT 10.16, implicit scales, a keyword spotter on an RTX 4060 Laptop: each MaxPool of two
# places is a layer of its own, also behind the Conv on the spectrogram's one channel.
def test_pools_of_two_places_stay_apart_in_int8(save: Callable[..., Path]):
    pool = "MaxPool<kernel_shape = [2, 2], strides = [2, 2]>"
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,1,40,96] image) => (float[1,64,10,24] out)
        <float[32,1,3,3] v = {{0.1}}, float[64,32,3,3] w = {{0.1}},
         float[64,64,1,1] u = {{0.1}}> {{
          [conv0] a = Conv{PADDED}(image, v) [relu0] b = Relu(a) [pool0] c = {pool}(b)
          [conv1] d = Conv{PADDED}(c, w) [relu1] e = Relu(d) [pool1] f = {pool}(e)
          [last] out = Conv(f, u)
        }}"""
    graph = load_model(save(model)).graph
    edges = [Edge(n.inputs[i], n.name, i) for n in graph.by_op["Conv"] for i in (0, 1)]
    target = Target(engine_version="10.16", compute_capability="8.9", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float", "int8")
    found = facts(predictor.predict(Placement.of(edges)).plan)
    layers = ("conv0+relu0", "pool0", "conv1+relu1", "pool1")
    built = ["quantize: float -> int8", *(f"{name}: int8 -> int8" for name in layers)]
    assert found == [*built, "last: int8 -> float"]


# TensorRT 8.6.1, CUDA-PointPillars in FP16 on an RTX 3080: ConvTranspose takes its normalization
# and writes into the joined tensor; the heads are one Conv, whose parts are transposed as they are.
def test_a_neck_and_heads_of_pointpillars_on_tensorrt_8():
    weights = ", ".join(f"float[64] {name} = {{0.1}}" for name in ("gain", "bias", "mean", "var"))

    def up(name: str, read: str, weight: str, stride: int) -> str:
        return f"""
          [{name}] {name}_c = ConvTranspose<strides = [{stride}, {stride}]>({read}, {weight})
          [{name}_bn] {name}_n = BatchNormalization({name}_c, gain, bias, mean, var)
          [{name}_relu] {name} = Relu({name}_n)"""

    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,32,32] x) => (float[1,32,32,18] scores, float[1,32,32,42] boxes)
        <float[64,64,3,3] w = {{0.1}}, float[64,64,1,1] u1 = {{0.1}}, float[64,64,2,2] u2 = {{0.1}},
         float[18,128,1,1] ws = {{0.1}}, float[42,128,1,1] wb = {{0.1}}, {weights}> {{
          [high] h = Conv{PADDED}(x, w) [high_relu] a = Relu(h)
          [low] l = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(a, w) [low_relu] b = Relu(l)
          {up("first", "a", "u1", 1)}{up("second", "b", "u2", 2)}
          [join] j = Concat<axis = 1>(first, second)
          [score] s = Conv(j, ws) [score_turn] scores = Transpose<perm = [0, 2, 3, 1]>(s)
          [box] r = Conv(j, wb) [box_turn] boxes = Transpose<perm = [0, 2, 3, 1]>(r)
        }}"""
    graph = graph_of_text(model)
    target = Target(engine_version="8.6.1", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    names = ["+".join(layer.nodes) or layer.name for layer in plan.layers if layer.kind != "no-op"]
    assert sorted(names) == [
        "box_turn",
        "first+first_bn+first_relu",
        "high+high_relu",
        "low+low_relu",
        "reformat boxes",
        "reformat scores",
        "reformat x",
        "score+box",
        "score_turn",
        "second+second_bn+second_relu",
    ]


# TensorRT 8.2.3, the heads of a CenterPoint in FP16 on an A100 (github.com/NVIDIA-AI-IOT/
# Lidar_AI_Solution, CUDA-CenterPoint/model/rpn_centerhead_sim.8503.log): Convs of one tensor are
# one layer by eights, and maps of one channel, too, are reformatted for the graph's outputs.
def test_ten_heads_of_one_tensor_on_tensorrt_8():
    heads = range(10)
    nodes = "\n".join(
        f"[wide{i}] w{i} = Conv(x, v) [relu{i}] r{i} = Relu(w{i}) [narrow{i}] y{i} = Conv(r{i}, u)"
        for i in heads
    )
    outputs = ", ".join(f"float16[1,1,16,16] y{i}" for i in heads)
    ones = ", ".join("1" * 64)
    weights = f"float16[8,8,1,1] v = {{{ones}}}, float16[1,8,1,1] u = {{{ones[: 3 * 8 - 2]}}}"
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float16[1,8,16,16] x) => ({outputs}) <{weights}> {{ {nodes} }}"""
    target = Target(engine_version="8.4", compute_capability="8.0", typing="weak")
    rules = load_pack("tensorrt").rules
    predictor = Predictor(graph_of_text(model), rules, target, "float16", "int8")
    names = ["+".join(x.nodes) or x.name for x in predictor.predict(Placement.of(())).plan.layers]
    wide = [f"wide{i}+relu{i}" for i in heads]
    maps = [f"reformat y{i}" for i in heads]
    built = ["reformat x", "+".join(wide[:8]), "+".join(wide[8:]), *(f"narrow{i}" for i in heads)]
    assert sorted(names) == sorted([*built, *maps])


# TensorRT 10.7, the attention of a YOLO26n in FP16 on an RTX 30: the Add of the position's Conv is
# in a generated kernel, which writes rows; the depthwise Conv reads rows.
def test_the_attention_of_channels_of_a_yolo26_on_tensorrt_10(save: Callable[..., Path]):
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,16,16] x) => (float[1,64,16,16] out)
        <float[64,64,3,3] w = {{0.1}}, float[128,64,1,1] wq = {{0.1}}, float[64,1,3,3] wd = {{0.1}},
         float[64,64,1,1] wp = {{0.1}}, float scale = {{0.1}}, int64[3] parts = {{16, 16, 32}},
         int64[4] heads = {{1, 2, 64, 256}}, int64[4] maps = {{1, 64, 16, 16}}> {{
          [first] a = Conv{PADDED}(x, w) [qkv] b = Conv(a, wq)
          [heads] c = Reshape(b, heads) [cut] q, k, v = Split<axis = 2>(c, parts)
          [turn] t = Transpose<perm = [0, 1, 3, 2]>(q) [scores] s = MatMul(t, k)
          [scale] u = Mul(s, scale) [softmax] p = Softmax(u)
          [turn_back] r = Transpose<perm = [0, 1, 3, 2]>(p) [mix] m = MatMul(v, r)
          [mixed] n = Reshape(m, maps) [values] o = Reshape(v, maps)
          [place] d = Conv<pads = [1, 1, 1, 1], group = 64>(o, wd)
          [add] e = Add(n, d)
          [project] f = Conv(e, wp) [residual] out = Add(f, a)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="10.7", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    plan = predictor.predict(Placement.of(())).plan
    names = ["+".join(layer.nodes) for layer in plan.of_kind("compute")]
    assert {"cut+turn", "place", "mixed+add", "project+residual"} <= set(names)
    reformats = [layer.name for layer in plan.of_kind("reformat")]
    assert reformats == ["reformat x", "reformat b", "reformat e", "reformat out"]


# TensorRT 10, an MLP with a written-out integer Softmax (github.com/Eternal-Raiden-Ying/i-vit-srtp,
# layer_info.json): its operators, whole rows' maxima and sums included, are one kernel.
def test_a_written_out_integer_softmax_is_one_kernel_on_tensorrt_10():
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[8,16] read) => (float[8,32] out)
        <float[16,64] w = {0.1}, float[64,32] v = {0.1}, float c1 = {1.1}, float c2 = {2.1},
         float c3 = {3.1}, float two = {2}, int64[1] last = {-1}> {
          [up] x = MatMul(read, w)
          [most] m = ReduceMax<axes = [-1], keepdims = 1>(x) [less] a = Sub(x, m)
          [scale] b = Div(a, c1) [whole] c = Floor(b) [sum] d = Add(a, c) [bound] e = Max(d, c2)
          [parts] f = Div(e, c3) [times] h = Floor(f) [back] i = Mul(h, c3) [rest] j = Sub(e, i)
          [power] k = Pow(two, h) [shift] l = Mul(j, k) [int] n = Floor(l)
          [total] o = ReduceSum<keepdims = 1>(n, last) [over] p = Reciprocal(o)
          [shares] q = Mul(n, p) [rounded] r = Floor(q)
          [down] out = MatMul(r, v)
        }"""
    target = Target(engine_version="10.3", compute_capability="8.6", typing="strong")
    rules = load_pack("tensorrt").rules
    predictor = Predictor(graph_of_text(model), rules, target, "float", "int8")
    built = [layer.nodes for layer in predictor.predict(Placement.of(())).plan.of_kind("compute")]
    assert [len(nodes) for nodes in built] == [1, 17, 1]


# TensorRT 11.3, a YOLOv8n of eight classes in FP32: a generated kernel has a Conv's SiLU, and the
# Add of a bottleneck behind it, too; the two heads' Convs of one tensor are one layer.
def test_silus_of_a_yolov8_in_fp32_on_tensorrt_11():
    weights = "float[64,64,3,3] w = {0.1}, float[8,64,1,1] u = {0.1}, float[64,64,1,1] t = {0.1}"

    def conv(name: str, read: str) -> str:
        return f"""
          [{name}] {name}_c = Conv{PADDED}({read}, w) [{name}_sig] {name}_s = Sigmoid({name}_c)
          [{name}_mul] {name}_y = Mul({name}_c, {name}_s)"""

    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,20,20] x) => (float[1,8,20,20] classes, float[1,64,20,20] boxes)
        <{weights}> {{
          {conv("a", "x")}{conv("b", "a_y")} [add] y = Add(a_y, b_y)
          {conv("c", "y")}{conv("d", "y")}
          [score] classes = Conv(c_y, u) [box] boxes = Conv(d_y, t)
        }}"""
    target = Target(engine_version="11.3", compute_capability="8.9", typing="strong")
    rules = load_pack("tensorrt").rules
    predictor = Predictor(graph_of_text(model), rules, target, "float", "int8")
    built = predictor.predict(Placement.of(())).plan.of_kind("compute")
    names = {"+".join(layer.nodes) for layer in built}
    assert {"a", "a_sig+a_mul", "b", "b_sig+b_mul+add", "c+d", "c_sig+c_mul", "d_sig+d_mul"} < names


# The projector of an RF-DETR in FP16 (TensorRT 10, T4, a user's list of its kernels): between two
# Convs are TranCastMeanSubMulMean and AddSqrtDivMulCastMulAddTranSilu, and no reformat.
def test_a_norm_over_the_channels_of_maps_and_its_silu_are_two_kernels_on_tensorrt_10():
    model = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,24,24] x) => (float[1,64,24,24] out)
        <float[64,64,3,3] w = {0.1}, float[64] gain = {1}, float[64] shift = {0.1}> {
          [one] a = Conv<pads = [1, 1, 1, 1]>(x, w)
          [turn] t = Transpose<perm = [0, 2, 3, 1]>(a)
          [norm] n = LayerNormalization(t, gain, shift)
          [back] b = Transpose<perm = [0, 3, 1, 2]>(n)
          [gate] s = Sigmoid(b)
          [silu] y = Mul(b, s)
          [two] c = Conv<pads = [1, 1, 1, 1]>(y, w)
          [last] out = Relu(c)
        }"""
    target = Target(engine_version="10.3", compute_capability="7.5", typing="weak")
    predictor = Predictor(
        graph_of_text(model), load_pack("tensorrt").rules, target, "float16", "int8"
    )
    found = predictor.predict(Placement.of(())).plan.layers
    assert [layer.name for layer in found if layer.name not in ("reformat x", "reformat out")] == [
        "one",
        "turn+norm",
        "back+gate+silu",
        "two+last",
    ]
