"""Layers that users of TensorRT published, as facts: nodes and types of each, conversions by kind.

How well they were predicted at first sight is in docs/benchmarks-plans.md.
"""

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from placer.engines.explanation import explain
from placer.graph import Edge, Graph
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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


@pytest.fixture
def topologies(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("topologies")


def test_resnet18_with_quantized_residuals_on_tensorrt_8_5(topologies: ModuleType, tmp_path: Path):
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


# A C3 block of YOLOv5s in FP16, TensorRT 8: two profiles that one user posted on GitHub have these
# layers in each of its eight C3 blocks; issue 17640 of ultralytics shows it of YOLO11 on 10.3.
C3_FP16 = [
    "cv1+cv2: float16, float16 -> float16, float16",
    "cv1_sigmoid+cv1_mul: float16, float16 -> float16",
    "cv2_sigmoid+cv2_mul: float16, float16 -> float16",
    "m_cv1+m_cv1_sigmoid+m_cv1_mul: float16 -> float16",
    "m_cv2: float16 -> float16",
    "m_cv2_sigmoid+m_cv2_mul+m_add: float16, float16, float16 -> float16",
    "cv3+cv3_sigmoid+cv3_mul: float16 -> float16",
]


def silu(conv: str, read: str, weight: str, attributes: str = "") -> str:
    return f"""
        [{conv}] {conv}_c = Conv{attributes}({read}, {weight})
        [{conv}_sigmoid] {conv}_s = Sigmoid({conv}_c)
        [{conv}_mul] {conv}_y = Mul({conv}_c, {conv}_s)"""


def test_convs_of_a_c3_block_that_read_one_tensor_are_one_layer(save: Callable[..., Path]):
    padded = "<pads = [1, 1, 1, 1]>"
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,64,40,40] image) => (float[1,64,40,40] out)
        <float[64,64,3,3] w0 = {{0.1}}, float[32,64,1,1] w1 = {{0.1}},
         float[32,64,1,1] w2 = {{0.1}}, float[32,32,1,1] w3 = {{0.1}},
         float[32,32,3,3] w4 = {{0.1}}, float[64,64,1,1] w5 = {{0.1}}> {{
          {silu("down", "image", "w0", padded)}
          {silu("cv1", "down_y", "w1")} {silu("m_cv1", "cv1_y", "w3")}
          {silu("m_cv2", "m_cv1_y", "w4", padded)}
          [m_add] m_y = Add(cv1_y, m_cv2_y)
          {silu("cv2", "down_y", "w2")}
          [concat] c = Concat<axis = 1>(m_y, cv2_y)
          {silu("cv3", "c", "w5")}
          [last] out = Relu(cv3_y)
        }}"""
    graph = load_model(save(model)).graph
    target = Target(engine_version="8.6", compute_capability="8.6", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    found = facts(predictor.predict(Placement.of(())).plan)
    block = [fact for fact in found if not fact.startswith(("reformat", "down", "last", "float"))]
    assert sorted(block) == sorted(C3_FP16)
