"""Files that others quantized, on OpenVINO: what is explained is what it builds."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import placer
from placer.common.processor import this_processor
from placer.engines.openvino.engine import OpenVinoEngine
from placer.plan import Plan

# ONNX Runtime's quantizer puts a pair between a Conv and its activation where values are signed.
SIGNED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float s = {0.05}, float u = {0.06}, int8 z = {ZERO}, float t = {0.01}, int8 v = {0},
 float low = {0}, float high = {6}, float k = {0.7}> {
  [q] i = QuantizeLinear(x, s, z)
  [dq] d = DequantizeLinear(i, s, z)
  [weight] f = DequantizeLinear(w, t, v)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(d, f, bias)
  [q2] j = QuantizeLinear(c, s, z)
  [dq2] e = DequantizeLinear(j, s, z)
  ACT
  [q3] l = QuantizeLinear(r, u, z)
  [dq3] m = DequantizeLinear(l, u, z)
  [weight2] f2 = DequantizeLinear(w, t, v)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(m, f2)
}
"""


def computed(plan: Plan) -> Counter[tuple[frozenset[str], frozenset[str]]]:
    return Counter((frozenset(x.nodes), frozenset(x.output_types)) for x in plan.of_kind("compute"))


def built(path: Path) -> Plan:
    return OpenVinoEngine().compile(onnx.load(path), path.parent).plan()


def write_signed(act: str, zero: int, path: Path) -> None:
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(SIGNED.replace("ACT", act).replace("ZERO", str(zero)))
    for name, values in {
        "w": rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8),
        "bias": rng.normal(size=16).astype(np.float32),
    }.items():
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(proto, path)


@pytest.fixture(scope="module")
def without_signed_products() -> Iterator[Executor]:
    """A process in which OpenVINO takes the processor for one of AVX-512 VNNI without AMX."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")
            process.submit(int).result()
        yield process


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(
    "act",
    [
        "[act] r = Relu(e)",
        "[act] r = Sigmoid(e)",
        "[act] r = Add(e, k)",
        "[act] r = Mul(e, k)",
        "[gate] g = Sigmoid(e) [act] r = Mul(e, g)",
        "[join] r = Add(e, x)",  # Of int8 with a zero point it writes floats.
    ],
)
def test_activations_behind_a_pair(act: str, zero: int, tmp_path: Path, without_signed_products):
    path = tmp_path / "signed.onnx"
    write_signed(act, zero, path)
    here = built(path)
    assert computed(placer.explain(path, pack="openvino").explanation.plan) == computed(here)
    is_one = any({"conv", "act"} <= set(x.nodes) for x in here.layers)
    assert is_one == (zero == 0 and "[act]" in act)
    explained = placer.explain(path, pack="openvino", processor="avx512-vnni")
    there = without_signed_products.submit(built, path).result()
    assert computed(explained.explanation.plan) == computed(there)


PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,24,64] x, float[1,64,24] v) => (float[1,24,24] y)
<float s = {0.05}, float u = {0.03}, FIRST, SECOND> {
  [tanh] t = Tanh(x)
  [q0] t8 = QuantizeLinear(t, s, a)
  [dq0] td = DequantizeLinear(t8, s, a)
  [q1] v8 = QuantizeLinear(v, u, b)
  [dq1] vd = DequantizeLinear(v8, u, b)
  [product] y = MatMul(td, vd)
}
"""


# OpenVINO makes int8 of a second operand that is uint8, whose zero point then is 128 less.
@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        ("int8 a = {0}", "int8 b = {0}", "int8"),
        ("int8 a = {3}", "int8 b = {3}", "float"),
        ("int8 a = {0}", "uint8 b = {128}", "int8"),
        ("uint8 a = {0}", "int8 b = {0}", "uint8"),
        ("uint8 a = {0}", "uint8 b = {0}", "float"),
    ],
)
def test_a_product_of_activations_reads_integers_that_have_no_zero_point(
    first: str, second: str, written: str, tmp_path: Path
):
    path = tmp_path / "product.onnx"
    text = PRODUCT.replace("FIRST", first).replace("SECOND", second)
    onnx.save(onnx.parser.parse_model(text), path)
    plan = built(path)
    assert computed(placer.explain(path, pack="openvino").explanation.plan) == computed(plan)
    assert (frozenset({"tanh"}), frozenset({written})) in computed(plan)


# A table of words that is quantized, and a mask that two others make.
WORDS = """
<ir_version: 8, opset_import: ["": 17]>
g (int64[1,24] words, bool[1,24,1] one, bool[1,24,1] two) => (float[1,24,32] y)
<float s = {0.02}, int8 z = {0}, float low = {-1}> {
  [table] t = DequantizeLinear(words_table, s, z)
  [gather] e = Gather(t, words)
  [q] i = QuantizeLinear(e, s, z)
  [dq] d = DequantizeLinear(i, s, z)
  [weight] f = DequantizeLinear(w, s, z)
  [product] p = MatMul(d, f)
  [both] m = And(one, two)
  [choice] c = Where(m, p, low)
  [softmax] y = Softmax(c)
}
"""


# Attention behind a norm, with pairs on what the norm and both products read.
ATTENTION = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,24,64] x, float[1,24,4,16] v) => (float[1,24,4,16] y)
<float s = {0.05}, float u = {0.03}, int8 z = {ZERO}, float p = {0.0078},
 int64[4] shape = {1, 24, 4, 16}> {
  [add] a = Add(x, x)
  [q0] a8 = QuantizeLinear(a, s, z)
  [dq0] ad = DequantizeLinear(a8, s, z)
  [norm] n = LayerNormalization(ad, gain, shift)
  [heads] h = Reshape(n, shape)
  [q1] h8 = QuantizeLinear(h, u, z)
  [dq1] hd = DequantizeLinear(h8, u, z)
  [query] qs = Transpose<perm = [0, 2, 1, 3]>(hd)
  [key] ks = Transpose<perm = [0, 2, 3, 1]>(hd)
  [q3] v8 = QuantizeLinear(v, s, z)
  [dq3] vd = DequantizeLinear(v8, s, z)
  [value] vs = Transpose<perm = [0, 2, 1, 3]>(vd)
  [scores] m = MatMul(qs, ks)
  [softmax] w = Softmax(m)
  [q2] w8 = QuantizeLinear(w, p, z)
  [dq2] wd = DequantizeLinear(w8, p, z)
  [mix] o = MatMul(wd, vs)
  [back] y = Transpose<perm = [0, 2, 1, 3]>(o)
}
"""


def test_norms_and_attention_read_integers_that_have_no_zero_point(tmp_path: Path):
    for zero, is_whole in ((0, True), (3, False)):
        path = tmp_path / f"attention-{zero}.onnx"
        proto = onnx.parser.parse_model(ATTENTION.replace("ZERO", str(zero)))
        for name in ("gain", "shift"):
            values = np.linspace(0.5, 2, 64, dtype=np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(values, name))
        onnx.save(proto, path)
        plan = built(path)
        assert computed(placer.explain(path, pack="openvino").explanation.plan) == computed(plan)
        assert ((frozenset({"add"}), frozenset({"int8"})) in computed(plan)) == is_whole
        is_one = any({"query", "scores", "mix"} <= set(x.nodes) for x in plan.layers)
        assert is_one == (is_whole and this_processor().exact_products)


def test_words_and_masks_are_narrower_than_in_the_file(tmp_path: Path):
    path, rng = tmp_path / "words.onnx", np.random.default_rng(0)
    proto = onnx.parser.parse_model(WORDS)
    for name, shape in {"words_table": (64, 32), "w": (32, 32)}.items():
        values = rng.integers(-127, 128, shape).astype(np.int8)
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(proto, path)
    predicted = placer.explain(path, pack="openvino").explanation.plan
    plan = built(path)
    assert computed(predicted) == computed(plan)
    assert (frozenset({"gather"}), frozenset({"int8"})) in computed(plan)
    assert any({"both", "choice"} <= set(layer.nodes) for layer in plan.layers)


# NNCF quantizes what depthwise Convs read with a scale for each channel.
DEPTHWISE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,2,8,8] x) => (float[1,2,8,8] y)
<float[2] s = {0.05, 0.03}, int8[2] z = {0, 0}, int8[2,1,1,1] w = {3, 4}> {
  [tanh] t = Tanh(x)
  [q] i = QuantizeLinear<axis = 1>(t, s, z)
  [dq] d = DequantizeLinear<axis = 1>(i, s, z)
  [weight] f = DequantizeLinear<axis = 0>(w, s, z)
  [conv] y = Conv<group = 2>(d, f)
}
"""


def test_pairs_with_a_scale_for_each_channel_have_the_type_of_the_file(tmp_path: Path):
    path = tmp_path / "depthwise.onnx"
    onnx.save(onnx.parser.parse_model(DEPTHWISE), path)
    assert computed(placer.explain(path, pack="openvino").explanation.plan) == computed(built(path))
    written = "int8" if this_processor().signed_products else "uint8"  # See rule conv-unsigned.
    assert (frozenset({"tanh"}), frozenset({written})) in computed(built(path))
