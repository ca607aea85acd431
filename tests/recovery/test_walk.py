"""A model run in pieces computes what it computes at once."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.graph.text import parse_model
from placer.model import load_model
from placer.recovery.walk import Walk, peak_bytes

NETWORK = parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2] x, float[1,2] z) => (float[1,2] y)
<float[1,2] one = {1, 1}, float[1,2] two = {2, 2}>
{
    [add] a = Add(x, one)
    [mul] b = Mul(a, two)
    [sum] c = Add(b, z)
    [skip] y = Add(c, a)
}
""")
SAMPLES = [{"x": np.full((1, 2), i, np.float32), "z": np.ones((1, 2), np.float32)} for i in (0, 1)]


def test_each_stop_has_the_values_of_every_sample():
    walk = Walk(NETWORK, Path(), {"y", "b"}, SAMPLES)
    seen = {stop: [value[0, 0] for value in walk.values(stop)] for stop in walk}
    assert seen == {"b": [2, 4], "y": [4, 7]}
    (y,) = OnnxRuntimeModel(NETWORK, Path(), 1).run(SAMPLES[1]).values()
    assert y[0, 0] == 7


def test_what_is_replaced_is_what_later_nodes_read():
    walk = Walk(NETWORK, Path(), ["b", "y"], SAMPLES)
    for stop in walk:
        if stop == "b":
            walk.replace("b", [value * 10 for value in walk.values("b")])
        else:
            assert [value[0, 0] for value in walk.values("y")] == [20 + 1 + 1, 40 + 1 + 2]


def test_what_samples_take_at_once_is_known_beforehand(tmp_path: Path):
    onnx.save(NETWORK, tmp_path / "m.onnx")
    # Two floats each: `a` is read again at the end, so there are z, a, and b before and behind it.
    assert peak_bytes(load_model(tmp_path / "m.onnx").graph) == 4 * 2 * 4


def test_a_branch_reads_tensors_from_outside():
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x, bool c) => (float[1] y)
    {
        a = Add(x, x)
        b = Add(a, x)
        y = If (c) <then_branch = t () => (float[1] r) { r = Mul(a, b) },
                    else_branch = e () => (float[1] s) { s = Identity(b) }>
    }
    """)
    samples = [{"x": np.array([2], np.float32), "c": np.array(True)}]
    walk = Walk(model, Path(), ["b", "y"], samples)
    assert {stop: walk.values(stop)[0].item() for stop in walk} == {"b": 6, "y": 24}


def test_a_sequence_between_two_pieces_is_refused():
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x, int64 i) => (float[1] y)
    {
        s = SequenceConstruct(x, x)
        a = Add(x, x)
        r = SequenceAt(s, i)
        y = Add(a, r)
    }
    """)
    samples = [{"x": np.array([2], np.float32), "i": np.array(0)}]
    with pytest.raises(RunError, match="'s' is a sequence, not a tensor"):
        list(Walk(model, Path(), ["a", "y"], samples))
