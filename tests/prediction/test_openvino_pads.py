"""Padding before a Conv, as OpenVINO makes it the Conv's own."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_followers import agree

PADDED = """
g (float[1,16,8,8] x) => (float[1,16,HEIGHT,8] out)
<float[16,16,1,1] w = {1}, float[16,16,3,3] w1 = {1}, float[16,16,1,1] w2 = {1},
 int64[8] pads = {0, 0, TOP, 1, 0, 0, 1, 1}> {
  [conv] c = Conv(x, w)
  BEFORE
  [pad] p = Pad(a, pads)
  [conv1] d = Conv(p, w1)
  BEHIND
  [conv2] out = Conv(e, w2)
}
"""
BEFORE = {"signed": "[act] a = Tanh(c)", "not signed": "[act] a = Relu(c)"}
BEHIND = {"relu": "[act1] e = Relu(d)", "silu": "[gate] s = Sigmoid(d) [act1] e = Mul(d, s)"}
READ = (Edge("a", "pad", 0),), (Edge("w1", "conv1", 1),)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("pairs", [(), READ], ids=["float", "int8"])
def test_padding_with_zeros_is_part_of_the_conv(pairs, before, behind, tmp_path):
    text = PADDED.replace("BEFORE", BEFORE[before]).replace("BEHIND", BEHIND[behind])
    together = agree(text.replace("TOP", "1").replace("HEIGHT", "8"), pairs, tmp_path)
    assert any({"pad", "conv1"} <= set(names) for names in together)


@pytest.mark.parametrize("behind", BEHIND.values(), ids=list(BEHIND))
def test_a_pad_that_cuts_off_rows_is_a_layer(behind, tmp_path):
    text = PADDED.replace("BEFORE", BEFORE["signed"]).replace("BEHIND", behind)
    apart = agree(text.replace("TOP", "-1").replace("HEIGHT", "6"), (), tmp_path)
    assert frozenset({"pad"}) in apart
