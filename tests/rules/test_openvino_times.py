"""What the times of the pack openvino leave in float, and what they count for one Conv."""

from collections.abc import Mapping

import pytest

from placer.common.processor import PROCESSORS
from placer.graph import Graph
from placer.graph.text import graph_of_text
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.gains import NO_CORRECTION
from placer.rules.packaging.load import load_pack
from placer.rules.sites import place
from placer.rules.target import Target

TOKENS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,28,28] image) => (float[1,784,256] out)
<float[128,32,3,3] w0 = {1}, float[128,256] w1 = {1}, float[256,256] w2 = {1},
 int64[3] shape = {1, 128, 784}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(image, w0)
  [act] a = Relu(c)
  [flat] f = Reshape(a, shape)
  [turn] t = Transpose<perm = [0, 2, 1]>(f)
  [fc1] h = MatMul(t, w1)
  [act1] r = Relu(h)
  [fc2] out = MatMul(r, w2)
}
"""


@pytest.mark.parametrize(
    ("kind", "expected"), [("avx2", {"conv"}), ("avx512-vnni", {"conv", "fc1", "fc2"})]
)
def test_openvino_multiplies_tokens_as_integers_only_with_vnni(kind: str, expected: set[str]):
    graph, target = graph_of_text(TOKENS), Target(processor=PROCESSORS[kind])
    edges = place(sites_with_defaults(graph, load_pack("openvino"), target), {}).edges
    weighted = {edge.node for edge in edges if edge.tensor in graph.initializers}
    assert weighted == expected


ROWS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,400] signal) => (float[1,32,a] out)
<float[32,32,3] w1 = {1}, float[32,32,3] w2 = {1}, float[32,32,3] w3 = {1}> {
  [plain] a = Conv(signal, w1)
  [leaky] b = LeakyRelu(a)
  [padded] c = Conv<pads = [1, 1]>(b, w2)
  [relu] d = Relu(c)
  [unsigned] out = Conv<pads = [1, 1]>(d, w3)
}
"""


@pytest.mark.parametrize(
    ("kind", "scheme", "expected"),
    [
        ("amx", None, {"plain", "unsigned"}),
        ("amx", "symmetric", {"plain", "padded", "unsigned"}),
        ("avx512-vnni", None, {"plain", "padded", "unsigned"}),
    ],
)
def test_with_amx_openvino_corrects_padded_rows_for_zero_points_which_takes_longer_than_floats(
    kind: str, scheme: str | None, expected: set[str]
):
    graph, target = graph_of_text(ROWS), Target(processor=PROCESSORS[kind])
    pack = load_pack("openvino")
    pack = pack if scheme is None else pack.with_scheme(scheme)
    edges = place(sites_with_defaults(graph, pack, target), {}).edges
    assert {edge.node for edge in edges if edge.tensor in graph.initializers} == expected


def taken_by(graph: Graph, without: Mapping[str, object]) -> float:
    """Microseconds that `conv` in integers loses with AMX to what ``without`` leaves out."""
    pack, target = load_pack("openvino"), Target(processor=PROCESSORS["amx"])
    times = pack.manifest.behaviour.gains_on(pack.target(target))
    assert times is not None
    conv, bare = graph.by_name["conv"], times.model_copy(update=without)
    return bare.saved_us(conv, graph) - times.saved_us(conv, graph)


@pytest.mark.parametrize(
    ("read", "written", "kernel", "pads", "taken"),
    [
        ("8,20,20", "8,20,20", "8,8,3,3", "1,1,1,1", 0.3 * 1.44 + 9.4 * 0.01152 + 0.13 * 3.2),
        ("8,20,20", "8,18,18", "8,8,3,3", "0,0,0,0", 0.0),
        ("8,400", "8,400", "8,8,3", "1,1", 0.3 * 9.6 + 9.4 * 0.0768),
    ],
)
def test_openvino_prices_the_correction_at_the_padding_of_maps_by_their_elements(
    read: str, written: str, kernel: str, pads: str, taken: float
):
    """With AMX, where a zero point is read; of a row the row alone counts."""
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,{read}] x) => (float[1,{written}] out) <float[{kernel}] w = {{1}}> {{
      [conv] out = Conv<pads = [{pads}]>(x, w)
    }}
    """)
    assert taken_by(graph, {"corrected": NO_CORRECTION}) == pytest.approx(taken)


SILU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,14,14] x, float[1,16,16,16] y) => (float[1,8,14,14] out, float[1,8,16,16] end)
<float[64,64,3,3] w1 = {1}, float[8,64,1,1] w2 = {1}, float[16,16,3,3] v1 = {1},
 float[8,16,1,1] v2 = {1}> {
  [large] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [gate] b = Sigmoid(a)
  [silu] c = Mul(a, b)
  [last] out = Conv(c, w2)
  [small] d = Conv<pads = [1, 1, 1, 1]>(y, v1)
  [gate2] e = Sigmoid(d)
  [silu2] f = Mul(d, e)
  [last2] end = Conv(f, v2)
}
"""


@pytest.mark.parametrize(
    ("kind", "scheme", "expected"),
    [
        ("amx", None, {"x->large", "a->gate", "a->silu", "c->last"}),
        ("amx", "symmetric", {"x->large", "c->last"}),
        ("avx512-vnni", None, {"x->large", "c->last", "y->small", "f->last2"}),
    ],
)
def test_with_amx_openvino_computes_a_silu_apart_or_in_float(
    kind: str, scheme: str | None, expected: set[str]
):
    """A kernel of integers takes longer for it than one of floats; a zero point keeps it apart."""
    graph, target = graph_of_text(SILU), Target(processor=PROCESSORS[kind])
    pack = load_pack("openvino")
    pack = pack if scheme is None else pack.with_scheme(scheme)
    edges = place(sites_with_defaults(graph, pack, pack.target(target)), {}).edges
    assert {
        f"{e.tensor}->{e.node}" for e in edges if e.tensor not in graph.initializers
    } == expected


GATED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,14,14] x) => (float[1,64,14,14] out, float[1,64,14,14] KEPT)
<float[64,64,3,3] w = {1}> {
  [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  z = Relu(x)
  BEHIND
}
"""


@pytest.mark.parametrize(
    ("behind", "kept", "taken"),
    [
        ("out = Tanh(a)", "z", 6 + 2.5 * 12.544),
        ("out = Elu(a)", "z", 6 + 2.5 * 12.544),
        ("out = Sigmoid(a)", "z", 6 + 2.5 * 12.544),
        ("out = Sigmoid(a)", "a", 0.0),
        ("b = Sigmoid(a) out = Mul(x, b)", "z", 6 + 2.5 * 12.544),
        ("b = Sigmoid(a) out = Mul(a, b)", "z", 6 + 0.4 * 12.544),
        ("b = Sigmoid(a) out = Mul(b, a)", "z", 6 + 0.4 * 12.544),
        ("b = Sigmoid(a) out = Mul(a, b)", "a", 0.0),
        ("b = Sigmoid(a) out = Mul(a, b)", "b", 0.0),
        ("b = Sigmoid(a) c = Mul(a, b) out = Add(c, a)", "z", 0.0),
        ("b = Sigmoid(a) out = Add(a, b)", "z", 0.0),
    ],
)
def test_openvino_prices_an_activation_that_can_be_in_the_kernel_and_a_silu_apart(
    behind: str, kept: str, taken: float
):
    """With AMX; a rule keeps a SiLU from the kernel, but no other activation."""
    graph = graph_of_text(GATED.replace("BEHIND", behind).replace("KEPT", kept))
    assert taken_by(graph, {"activated": []}) == pytest.approx(taken)


@pytest.mark.parametrize(
    ("kernel", "pads", "width", "remainder"),
    [(3, 1, 14, True), (3, 1, 16, False), (3, 1, 32, False), (1, 0, 14, False)],
)
def test_openvino_prices_activations_more_where_rows_are_no_multiple_of_a_tile(
    kernel: int, pads: int, width: int, remainder: bool
):
    """A Conv of 1x1 has one row of all pixels."""
    shape = f"float[1,8,10,{width}]"
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g ({shape} x) => ({shape} out) <float[8,8,{kernel},{kernel}] w = {{1}}> {{
      [conv] a = Conv<pads = [{pads}, {pads}, {pads}, {pads}]>(x, w)
      out = Tanh(a)
    }}
    """)
    taken = taken_by(graph, {"activated": []})
    assert taken == pytest.approx(6 + (2.5 if remainder else 0.4) * 0.08 * width)


TANH = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,12,12] image) => (float[1,32,N,N] out)
<float[32,32,3,3] w = {1}, float[32,32,3,3] v = {1},
 int64[8] sizes = {0, 0, 1, 1, 0, 0, 1, 1}> {
  [first] c = Conv(image, w)
  [gate] d = Tanh(c)
  BEHIND
}
"""


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("[last] out = Conv(d, v)", {"last"}),
        ("out = Sqrt(d)", {"first"}),
        (
            "[last] e = Conv(d, v) f = Pad(e, sizes) g = Sqrt(d) out = Mul(f, g)",
            {"first", "last"},
        ),
    ],
)
def test_with_amx_an_activation_takes_longer_only_where_the_kernel_writes_integers(
    behind: str, expected: set[str]
):
    """Not where some reader wants floats."""
    graph = graph_of_text(TANH.replace("BEHIND", behind))
    target = Target(processor=PROCESSORS["amx"])
    edges = place(sites_with_defaults(graph, load_pack("openvino"), target), {}).edges
    assert {edge.node for edge in edges if edge.tensor in graph.initializers} == expected
