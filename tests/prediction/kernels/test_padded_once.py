"""Convs that read the same padded channels, as NVIDIA's builder makes them."""

from pathlib import Path

from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
    text_of,
)


def heads(channels: int, group: int) -> str:
    """Two heads of a detector, each with a Conv of ``group`` groups and one behind."""
    window = f"[{channels},{channels // group},3,3]"
    return f"""
    (float[1,32,8,8] x) => (float[1,16,8,8] out, float[1,16,8,8] other)
    <float[{channels},32,1,1] w = {{1}}, float[{channels}] b = {{1}}, float{window} v1 = {{1}},
     float{window} v2 = {{1}}, float[16,{channels},1,1] u = {{1}}> {{
      [conv0] c = Conv(x, w, b)
      [relu0] r = Relu(c)
      [conv1] d = Conv<pads = [1, 1, 1, 1], group = {group}>(r, v1)
      [relu1] e = Relu(d)
      [last1] out = Conv(e, u)
      [conv2] f = Conv<pads = [1, 1, 1, 1], group = {group}>(r, v2)
      [relu2] g = Relu(f)
      [last2] other = Conv(g, u)
    }}"""


PAIRS = "x->conv0 w->conv0 r->conv1 v1->conv1 r->conv2 v2->conv2"
GRAPHS = {
    "depthwise Convs of integers": (PAIRS, heads(32, 32)),
    "Convs of integers of uneven channels": (PAIRS, heads(30, 1)),
    "Convs of uneven channels": ("", heads(31, 1)),
}


def test_what_two_convs_read_is_padded_once_and_named_after_the_second(tmp_path: Path):
    model = model_of(text_of(heads(32, 32), 17), tmp_path)
    plan = predicted(model.graph, placement_of(model.graph, tuple(PAIRS.split())))

    assert [layer.nodes for layer in plan.of_kind("compute")][:3] == [
        ("conv0",),
        ("conv0", "conv2", "relu0"),
        ("conv1",),
    ]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
