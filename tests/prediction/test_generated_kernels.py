"""Kernels that TensorRT 10 and later generate, as far as published names of them tell."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.graph import Edge
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.layers.predictor import Predictor
from placer.prediction.rule_tests import layer_line
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_published_layers import BERT, DINO, silu


def plan_of(path: Path, edges: list[str], version: str, capability: str, integer: str) -> Plan:
    """``edges``: ``tensor->node[index]``; strong typing, the rest in FP16."""
    graph = load_model(path).graph
    found = [
        Edge(node.inputs[i], node.name, i)
        for node in graph.nodes
        for i in range(len(node.inputs))
        if f"{node.inputs[i]}->{node.name}[{i}]" in edges
    ]
    assert len(found) == len(edges)
    target = Target(engine_version=version, compute_capability=capability, typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", integer)
    return predictor.predict(Placement.of(found)).plan


def quantized(*products: str) -> list[str]:
    """Both inputs of products of a tensor and a weight, given as ``name: tensor, weight``."""
    split = (line.replace(":", ",").split(",") for line in products)
    read = [(name.strip(), x.strip(), w.strip()) for name, x, w in split]
    return [e for n, x, w in read for e in (f"{x}->{n}_mm[0]", f"{w}->{n}_mm[1]")]


# Two ViTs in FP8 on a Jetson Thor, TensorRT 10.16: no Q and no DQ is a kernel. 23 of 24 Gelus are
# __myl_MulCastErfCastAddMulMulMulCast, whose last Cast is a Q, behind a product that writes FP16
# (f8_f8_f32_f16_f16) and has the bias, and norms end in MulCast, too.
@pytest.mark.parametrize("integer", ["float8e4m3fn", "int8"])
def test_norms_gelus_and_attention_quantize_what_they_write(
    save: Callable[..., Path], integer: str
):
    edges = quantized(
        "query: n, wq",
        "key: n, wk",
        "value: n, wv",
        "output: row, wo",
        "dense: n_1, w1",
        "ffn: gelu, w2",
    )
    plan = plan_of(save(DINO), edges, "10.16", "11.0", integer)
    lines = [layer_line(layer) for layer in plan.layers if layer.kind != "no-op"]
    q = integer
    assert lines[2:-2] == [
        f"first+norm: float16, float16 -> float16, {q}",
        f"query_mm+query_b+key_mm+key_b+value_mm+value_b: {q}, {q}, {q} -> "
        "float16, float16, float16",
        f"scale_q+scale_k+scores+softmax+mix: float16, float16, float16 -> {q}",
        f"back_t: {q} -> {q}",
        f"output_mm+output_b: {q} -> float16",
        f"ls1+residual+norm_1: float16, float16 -> float16, {q}",
        f"dense_mm+dense_b: {q} -> float16",
        f"div+erf+plus+mul+mul_1: float16, float16 -> {q}",
        f"ffn_mm+ffn_b: {q} -> float16",
        "ls2+residual_1+norm_2: float16, float16 -> float16, float16",
    ]


# The UNet of an SDXL in FP8 (10.16, RTX 4090) has 140 fused attentions, with pairs on their
# products and without; TensorRT issue 3243 says the same of INT8.
def test_attention_with_pairs_on_both_products_is_one_kernel(save: Callable[..., Path]):
    edges = ["query_t->scores[0]", "key_t->scores[1]", "p->mix[0]", "value_t->mix[1]"]
    plan = plan_of(save(BERT), edges, "10.16", "8.9", "float8e4m3fn")
    found = [layer_line(layer) for layer in plan.layers if "scores" in layer.nodes]
    read = "float8e4m3fn, float8e4m3fn, float16, float8e4m3fn"
    assert found == [f"scores+scale+masked+softmax+mix: {read} -> float16"]
    before = plan_of(save(BERT), edges, "9.2", "8.9", "int8")
    apart = [layer.name for layer in before.layers if {"scores", "mix"} & set(layer.nodes)]
    assert apart == ["scores", "mix"]


# On Blackwell too: YOLO26m with pairs on Convs takes 0.97 times its latency in FP16 (11.2) and 1.05
# times (10.13), YOLO26s as ModelOpt places pairs 1.03 times (ultralytics PRs 26167, 26223). Kernels
# of a YOLOv8n with implicit scales are named otherwise (10.16, RTX 5060).
@pytest.mark.parametrize("capability", ["12.0", "8.9"])
def test_silu_behind_an_int8_conv_is_part_of_it(save: Callable[..., Path], capability: str):
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,40,40] x) => (float[1,32,40,40] out)
        <float[32,32,1,1] w1 = {{0.1}}, float[32,32,1,1] w2 = {{0.1}}> {{
          {silu("conv1", "x", "w1")}
          [conv2] c = Conv(conv1_y, w2)
          [relu] out = Relu(c)
        }}"""
    edges = ["x->conv1[0]", "w1->conv1[1]", "conv1_y->conv2[0]", "w2->conv2[1]"]
    plan = plan_of(save(model), edges, "10.16", capability, "int8")
    assert [layer_line(layer) for layer in plan.layers if "conv" in layer.name] == [
        "conv1+conv1_sigmoid+conv1_mul: int8 -> int8",
        "conv2+relu: int8 -> float16",
    ]


# Element-wise kernels on Blackwell have names that quantize what they write (10.16).
@pytest.mark.parametrize(
    ("capability", "writes", "quantizes"),
    [
        ("12.0", ["float16, int8", "int8"], 1),
        ("8.9", ["float16", "float16"], 4),
    ],
)
def test_on_blackwell_what_is_element_wise_quantizes_what_it_writes(
    save: Callable[..., Path], capability: str, writes: list[str], quantizes: int
):
    model = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,40,40] x) => (float[1,32,40,40] out)
        <float[32,32,1,1] w1 = {{0.1}}, float[32,32,1,1] w2 = {{0.1}}> {{
          {silu("conv1", "x", "w1")}
          {silu("conv2", "conv1_y", "w1")}
          [add] sum = Add(conv1_y, conv2_y)
          {silu("conv3", "sum", "w1")}
          [add2] sum2 = Add(sum, conv3_y)
          [conv4] c = Conv(sum2, w2)
          [relu] out = Relu(c)
        }}"""
    read = {"conv1": "x", "conv2": "conv1_y", "conv3": "sum"}
    edges = [e for conv, x in read.items() for e in (f"{x}->{conv}[0]", f"w1->{conv}[1]")]
    edges += ["sum2->conv4[0]", "w2->conv4[1]"]
    plan = plan_of(save(model), edges, "11.2", capability, "int8")
    sums = [layer_line(layer) for layer in plan.layers if "add" in layer.name]
    assert sums == [
        f"conv{i}_sigmoid+conv{i}_mul+{add}: float16, float16, float16 -> {types}"
        for i, add, types in zip((2, 3), ("add", "add2"), writes, strict=True)
    ]
    assert len(plan.of_kind("quantize")) == quantizes
