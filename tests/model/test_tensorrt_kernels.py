"""Pairs for which some version of TensorRT had no kernel, by what users reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from placer.engines.tensorrt.check import check
from placer.engines.tensorrt.offline_builder import check_model
from tests.conftest import Finished

Save = Callable[..., Path]
ONES = "1, 1, 1, 1, 1, 1, 1, 1"


def pair(source: str, target: str) -> str:
    """Lines that quantize ``source`` and dequantize it as ``target``."""
    return (
        f"[q_{target}] i_{target} = QuantizeLinear({source}, s, z) "
        f"{target} = DequantizeLinear(i_{target}, s, z) "
    )


def stem(*lines: str, channels: int = 3, window: int = 7) -> str:
    """A quantized Conv of an image, ``lines`` up to ``m``, and a quantized Conv that reads it."""
    return f"""
    <ir_version: 9, opset_import: ["": 19]>
    g (float[1,{channels},32,32] x) => (float[1,8,H,W] y)
    <float[8,{channels},{window},{window}] w = {{0.5}}, float[8,8,1,1] w2 = {{0.5}},
     float s = {{0.05}}, int8 z = {{0}}, float[8] one = {{{ONES}}}> {{
      {pair("x", "d")} {pair("w", "v")}
      [conv] c = Conv<pads = [{", ".join([str(window // 2)] * 4)}]>(d, v)
      {" ".join(lines)}
      {pair("m", "e")} {pair("w2", "v2")}
      [next] y = Conv(e, v2)
    }}"""


POOL = "[pool] m = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>"
RELU = "[relu] a = Relu"
NORM = "[norm] n = BatchNormalization(c, one, one, one, one)"
REPORTED = {
    "pairs on both sides of the Relu, as ONNX Runtime places them": stem(
        pair("c", "p"), f"{RELU}(p)", pair("a", "r"), f"{POOL}(r)"
    ),
    "a pair before the Relu alone": stem(pair("c", "p"), f"{RELU}(p)", f"{POOL}(a)"),
    "a pair behind a BatchNormalization": stem(NORM, pair("n", "p"), f"{RELU}(p)", f"{POOL}(a)"),
}
NOT_REPORTED = {
    "a pair behind the Relu alone": stem(f"{RELU}(c)", pair("a", "r"), f"{POOL}(r)"),
    "no pair before the pool": stem(f"{RELU}(c)", f"{POOL}(a)"),
    "a Conv of more channels than an image has": stem(
        pair("c", "p"), f"{RELU}(p)", f"{POOL}(a)", channels=8
    ),
    "a pool of another window, which is a layer": stem(
        pair("c", "p"),
        f"{RELU}(p)",
        "[pool] m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)",
    ),
    "a Relu that others read": stem(
        pair("c", "p"), f"{RELU}(p)", f"{POOL}(a)", "other = Sigmoid(a)"
    ),
    "a Relu whose result is an output, too": stem(
        pair("c", "p"), f"{RELU}(p)", f"{POOL}(a)"
    ).replace("[1,8,H,W] y)", "[1,8,H,W] y, float[1,8,32,32] a)"),
    "no Relu": stem(pair("c", "p"), f"{POOL}(p)"),
}


@pytest.mark.parametrize("name", REPORTED)
def test_a_pair_between_a_first_conv_and_the_relu_of_its_pool(save: Save, builder: Any, name: str):
    """10.16 did not build a ResNet50 with such a pair; TensorRT-RTX builds it."""
    path = save(REPORTED[name])
    report = check(path, static=True)
    (finding,) = report.findings
    assert (finding.node, finding.verdict) == ("q_p", "reported")
    assert "Relu 'relu'" in finding.reason
    assert "10.16" in finding.reason
    assert (finding.fix, finding.imported) == ("take this pair out", True)
    assert report.refusal is None
    assert check_model(builder, onnx.load(path), "sm89").accepted


@pytest.mark.parametrize("name", NOT_REPORTED)
def test_pairs_around_other_stems_are_not_reported(save: Save, name: str):
    assert check(save(NOT_REPORTED[name]), static=True).findings == ()


def test_what_was_reported_is_no_failure(save: Save, placer: Callable[..., Finished]):
    path = save(REPORTED["a pair before the Relu alone"])
    done = placer("check", path, "--static")
    assert done.code == 0
    assert "reported: node 'q_p' (QuantizeLinear) on 'c'" in done.out


@pytest.mark.parametrize(
    ("window", "channels", "is_reported"), [(7, 3, True), (3, 3, False), (7, 8, False)]
)
def test_fp8_of_an_image_with_a_large_window(
    save: Save, window: int, channels: int, is_reported: bool
):
    """TensorRT issue 3987: 10.2 on an H100, the first Conv of a ResNet."""
    path = save(stem(f"{RELU}(c)", f"{POOL}(a)", channels=channels, window=window))
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name == "z":
            tensor.CopyFrom(onnx.helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    onnx.save(proto, path)
    found = check(path, static=True).findings
    assert [(one.node, one.verdict) for one in found] == [("q_d", "reported")] * is_reported


def block(body: str, weight: str, channels: int = 8, rank: int = 4) -> str:
    """``body`` around a quantized ``d`` and a quantized weight ``v`` of dimensions ``weight``."""
    sides = ", ".join(["32"] * (rank - 2))
    return f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,{channels},{sides}] x) => (float[N,C,{"H,W" if rank == 4 else "D,H,W"}] y)
    <float[{weight}] w = {{0.5}}, float s = {{0.05}}, int8 z = {{0}},
     float[8] one = {{{ONES}}}> {{
      {pair("x", "d")} {pair("w", "v")} {body}
    }}"""


DEPTHWISE = "[dw] c = Conv<group = 8, pads = [1, 1, 1, 1]>(d, v)"
NORM = "n = BatchNormalization(c, one, one, one, one)"
OLDER = {
    "TensorRT 8.6 cannot build 'dw': a depthwise Conv": [
        block(f"o = Relu(d) {DEPTHWISE} y = Add(o, c)", "8,1,3,3"),  # Model-Optimizer issue 50.
        block(
            f"o = Relu(d) {DEPTHWISE} {NORM} y = Add(n, o)",
            "8,1,3,3",
        ),
    ],
    "TensorRT before 8.5 cannot build 'dw': a ConvTranspose": [
        # TensorRT issues 1556, 1934 and 2280.
        block("[dw] y = ConvTranspose<group = 8, strides = [2, 2]>(d, v)", "8,1,2,2"),
        block("[dw] y = ConvTranspose<group = 4, strides = [2, 2]>(d, v)", "8,2,2,2"),
    ],
    "TensorRT 8.2 cannot build 'dw': a 3-D Conv": [  # TensorRT issues 1726 and 2125.
        block("[dw] y = Conv(d, v)", "8,8,3,3,3", rank=5),
        block(
            "n = ReduceSum<keepdims = 0>(d) t = Greater(n, s) y = If(t) <"
            "then_branch = yes () => (float[N,C,D,H,W] a) { [dw] a = Conv(d, v) },"
            "else_branch = no () => (float[N,C,D,H,W] b) { b = Identity(d) }>",
            "8,8,3,3,3",
            rank=5,
        ),
    ],
    "TensorRT 8.6 cannot build 'dw': a Conv with pairs that cuts": [  # Issue 3139.
        block("[dw] y = Conv<strides = [16, 16]>(d, v)", "8,3,16,16", channels=3),
    ],
    "TensorRT 8.2 may fail in an assertion (isPolymorphic) over 'dw': a Conv": [  # Issue 2030.
        block(f"[dw] c = Conv(d, v) {NORM} {POOL}(n) y = Relu(m)", "8,8,3,3"),
    ],
}
NOTHING_OF = {
    "another Conv that may take the Add": block(
        f"o = Conv(d, k) {DEPTHWISE} y = Add(o, c)", "8,1,3,3"
    ).replace("float s =", "float[8,8,1,1] k = {0.5}, float s ="),
    "a branch that is quantized, too": block(f"{DEPTHWISE} y = Add(d, c)", "8,1,3,3"),
    "a pair between the Conv and the Add": block(
        f"o = Relu(d) {DEPTHWISE} {pair('c', 'p')} y = Add(o, p)", "8,1,3,3"
    ),
    "an Add of a constant": block(f"{DEPTHWISE} y = Add(c, s)", "8,1,3,3"),
    "a Conv of all channels that adds": block(
        "o = Relu(d) [dw] c = Conv(d, v) y = Add(o, c)", "8,8,1,1"
    ),
    "a ConvTranspose with four channels in a group": block(
        "[dw] y = ConvTranspose<group = 2, strides = [2, 2]>(d, v)", "8,4,2,2"
    ),
    "patches that are quantized again": block(
        f"c = Conv<strides = [16, 16]>(d, v) {pair('c', 'y')}", "8,3,16,16", channels=3
    ),
    "a pair between a BatchNormalization and a MaxPool": block(
        f"[dw] c = Conv(d, v) {NORM} {pair('n', 'p')} {POOL}(p) y = Relu(m)", "8,8,3,3"
    ),
    "a Relu between them": block(
        f"[dw] c = Conv(d, v) {NORM} r = Relu(n) {POOL}(r) y = Relu(m)", "8,8,3,3"
    ),
    "float weights": block("[dw] y = Conv<strides = [16, 16]>(d, w)", "8,3,16,16", channels=3),
}


@pytest.mark.parametrize("start", OLDER)
def test_convs_without_a_kernel_in_tensorrt_8(save: Save, start: str):
    for text in OLDER[start]:
        report = check(save(text), static=True)
        assert report.older.startswith(start)
        assert "'dw'" in report.older
        assert report.findings == ()


@pytest.mark.parametrize("name", NOTHING_OF)
def test_convs_that_no_report_is_about(save: Save, name: str):
    assert check(save(NOTHING_OF[name]), static=True).older == ""
