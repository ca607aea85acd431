"""Padding before a Conv, as OpenVINO makes it the Conv's own."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_followers import agree

PADDED = """
g (float[1,16,8,8] x) => (float[1,16,HEIGHT,8] out)
<float[16,16,1,1] w = {1}, float[16,CHANNELS,3,3] w1 = {1}, float[16,16,1,1] w2 = {1},
 int64[8] pads = {0, FRONT, TOP, 1, 0, 0, 1, 1}> {
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
    together = agree(padded(before, behind), pairs, tmp_path)
    assert any({"pad", "conv1"} <= set(names) for names in together)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize(("front", "top"), [(0, -1), (2, 1)], ids=["cuts", "adds channels"])
def test_other_pads_are_layers(front, top, behind, tmp_path):
    """One that cuts off rows, and one that adds channels."""
    apart = agree(padded("signed", behind, front, top), (), tmp_path)
    assert frozenset({"pad"}) in apart


def padded(before: str, behind: str, front: int = 0, top: int = 1) -> str:
    """``front``: how many channels are added; ``top``: how many rows."""
    text = PADDED.replace("BEFORE", BEFORE[before]).replace("BEHIND", BEHIND[behind])
    text = text.replace("CHANNELS", str(16 + front)).replace("HEIGHT", str(7 + top))
    return text.replace("FRONT", str(front)).replace("TOP", str(top))
