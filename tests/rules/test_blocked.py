"""What ONNX Runtime computes in blocks of channels, by the processor: predicted as it is built."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from placer.common.processor import PROCESSORS, UNKNOWN_PROCESSOR, Processor, this_processor
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack

TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,C,8,8] x) => (float[1,C,8,8] out)
<float[C,C,1,1] w = {0.1}, float[C] b = {0.5}, float[C,C,1,1] v = {0.2}, float[C,H,1,1] u = {0.3},
 float[H,C,1,1] k = {0.3}, float low = {0}, float high = {6}> {
  [conv0] c0 = Conv(x, w, b)
  [act0] a0 = Relu(c0)
  BODY
  [conv1] c1 = Conv(r, v, b)
  [add] s = Add(c1, r)
  [act] out = Relu(s)
}
"""
SUMS = "[conv2] c2 = Conv(a0, w, b) [add2] s2 = Add(c2, a0) [act2] r = Relu(s2)"
GELU = "[erf] e = Erf(a0) [mul] m = Mul(a0, e) [conv2] c2 = Conv(m, w, b) [add2] r = Add(c2, m)"
JOINED = "[half] h1 = Conv(a0, k) [more] h2 = Conv(c0, k) [cat] r = Concat<axis = 1>(h1, h2)"
GATED = (
    "[pool] p = GlobalAveragePool(a0) [squeeze] q = Conv(p, w, b) [gate] g2 = Sigmoid(q) "
    "[mul] r = Mul(a0, g2)"
)
CLIPPED = (
    "[conv3] c3 = Conv(x, v) [relu6] f = Relu(c3) [clip] g = Clip(f, low, high) "
    "[conv2] c2 = Conv(a0, w, b) [add2] r = Add(g, c2)"
)
BOUNDED = CLIPPED.replace("[clip]", "[top] t = ReduceMax<keepdims = 0>(x) [clip]").replace(
    "Clip(f, low, high)", "Clip(f, low, t)"
)
BOUNDED_ALONE = BOUNDED.replace("[relu6] f = Relu(c3)", "").replace("Clip(f,", "Clip(c3,")


def computed(plan: Plan) -> Counter[frozenset[str]]:
    return Counter(frozenset(layer.nodes) for layer in plan.of_kind("compute"))


def model_of(text: str, folder: Path) -> Model:
    path = folder / "net.onnx"
    onnx.save(parse_model(text), path)
    return load_model(path)


def predicted(model: Model, processor: Processor) -> Counter[frozenset[str]]:
    """By their nodes, the layers that are predicted for this ONNX Runtime on ``processor``."""
    target = replace(OnnxRuntimeEngine().target, processor=processor)
    predictor = make_predictor(model.graph, load_pack("onnxruntime"), target, "float")
    return computed(predictor.predict(EMPTY).plan)


def built(model: Model) -> Counter[frozenset[str]]:
    return computed(OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan())


@pytest.mark.parametrize("channels", [32, 24, 22, 12])
@pytest.mark.parametrize(
    "body",
    [SUMS, CLIPPED, BOUNDED, BOUNDED_ALONE, GELU, JOINED, GATED],
    ids=[
        *("sums", "a Clip", "a computed Clip behind a Relu", "a computed Clip"),
        *("a Gelu", "a Concat", "a gate"),
    ],
)
def test_residual_adds_are_predicted_as_they_are_built(tmp_path: Path, body: str, channels: int):
    text = TEXT.replace("BODY", body).replace("C,", f"{channels},").replace("[C]", f"[{channels}]")
    model = model_of(text.replace("H", str(channels // 2)), tmp_path)
    assert predicted(model, this_processor()) == built(model)


HEAD = '<ir_version: 9, opset_import: ["": 17]> g '
# A Conv adds what lies in blocks: that of a pool if its channels fill them.
POOL = (
    HEAD
    + """(float[1,C,8,8] x) => (float[1,C,8,8] out) <float[C,C,1,1] w = {0.1}> {
  [pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)
  [a] c = Conv(x, w)
  [b] s = Add(c, p)
  [end] out = Softmax(s)
}"""
)
# Joined halves lie in blocks if each fills them.
HALVES = (
    HEAD
    + """(float[1,C,8,8] x) => (float[1,C,8,8] out)
<float[C,C,1,1] w = {0.1}, float[H,C,1,1] u = {0.3}, float[H,C,1,1] v = {0.2}> {
  [one] h = Conv(x, u)
  [other] i = Conv(x, v)
  [join] j = Concat<axis = 1>(h, i)
  [a] c = Conv(j, w)
  [b] s = Add(c, j)
  [end] out = Softmax(s)
}"""
)
# A Conv of groups is one of blocks if the channels of a group fill them,
GROUPS = (
    HEAD
    + """(float[1,C,8,8] x) => (float[1,C,8,8] out) <float[C,H,1,1] w = {0.1}> {
  [a] c = Conv<group = 2>(x, w)
  [b] h = HardSwish(c)
  [end] out = Softmax(h)
}"""
)
# and one of all channels if they are fewer than a block or a multiple of four.
WHOLE = GROUPS.replace("<group = 2>", "").replace("[C,H,1,1]", "[C,C,1,1]")
# What reads blocks takes them from channels last as well.
LAST = (
    HEAD
    + """(float[1,8,8,C] x) => (float[1,C,8,8] out) <float[C,C,1,1] w = {0.1}> {
  [b] t = Transpose<perm = [0, 3, 1, 2]>(x)
  [a] c = READER
  [end] out = Softmax(c)
}"""
)
LAST_TO_CONV = LAST.replace("READER", "Conv(t, w)")
LAST_TO_POOL = LAST.replace("READER", "AveragePool<kernel_shape = [1, 1]>(t)")


@pytest.mark.parametrize(
    ("text", "channels", "with_avx2", "with_avx512"),
    [
        (POOL, 8, True, False),
        (POOL, 16, True, True),
        (POOL, 24, True, False),
        (POOL, 40, True, False),
        (POOL, 12, False, False),
        (HALVES, 16, True, False),
        (HALVES, 24, False, False),
        (HALVES, 32, True, True),
        (HALVES, 48, True, False),
        (GROUPS, 16, True, False),
        (GROUPS, 32, True, True),
        (GROUPS, 80, True, False),
        (WHOLE, 6, True, True),
        (WHOLE, 10, False, True),
        (WHOLE, 18, False, False),
        (WHOLE, 20, True, True),
        (LAST_TO_CONV, 4, False, False),
        (LAST_TO_CONV, 8, True, False),
        (LAST_TO_CONV, 16, True, True),
        (LAST_TO_POOL, 8, True, False),
        (LAST_TO_POOL, 24, True, False),
        (LAST_TO_POOL, 32, True, True),
    ],
)
def test_blocks_have_16_channels_with_avx512_and_8_without(
    tmp_path: Path, text: str, channels: int, with_avx2: bool, with_avx512: bool
):
    """Where there are blocks the node ``b`` is no layer: part of ``a``, or gone."""
    text = text.replace("C,", f"{channels},").replace("C]", f"{channels}]")
    model = model_of(text.replace("H,", f"{channels // 2},"), tmp_path)
    alone = frozenset({"b"})
    assert (alone not in predicted(model, PROCESSORS["avx2"])) == with_avx2
    assert (alone not in predicted(model, PROCESSORS["avx512"])) == with_avx512
    assert (alone not in predicted(model, UNKNOWN_PROCESSOR)) == with_avx512
    assert predicted(model, this_processor()) == built(model)
