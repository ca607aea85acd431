"""OpenVINO crashes with a pair between a Concat and what the next Q takes along; no run does."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target

pytest.importorskip("openvino", reason="OpenVINO is not installed")
from placer.engines.openvino.crashes import crashing_nodes
from placer.engines.openvino.engine import OpenVinoEngine
from placer.errors import RunError

PACK = load_pack("openvino")
TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,4,4] x, float[1,8,4,4] z) => (float[1,16,4,4] y OUT)
<float[8,8,1,1] v = {1}, float[16,16,1,1] w = {1}, float low = {0}, float high = {6},
 int64[1] none = {0}, int64[1] all = {4}, int64[1] last = {3},
 int64[8] pads = {0, 0, 0, 0, 0, 0, 0, 0},
 float factor = {3}, float[16] gain = {1}, float[16] shift = {0.5}> {
  BRANCHES
  [join] c = Concat<axis = 1>(a, b)
  [act] d = ACT
  [conv] y = Conv(d, w) OTHER
}
"""
PLAIN = "[one] a = Neg(x) [two] b = Neg(z)"
# The first branch is read twice, and nothing is below zero: the pack pairs what reads the Concat.
SHARED = "[one] f = Conv(x, v) [left] a = Relu(f) [two] e = Conv(a, v) [right] b = Relu(e)"
TAKEN = [
    "Relu(c)",
    "Clip(c, low, high)",
    "Mul(c, factor)",
    "Sub(c, factor)",
    "BatchNormalization(c, gain, shift, shift, gain)",
]
REMOVED = [
    "Cast<to = 1>(c)",
    "Transpose<perm = [0, 1, 2, 3]>(c)",
    "Max(c)",
    "Slice(c, none, all, last)",
    "Pad(c, pads)",
]
COMPILE = "import openvino, sys; openvino.Core().compile_model(sys.argv[1], 'CPU')"


def loaded(folder: Path, act: str, branches: str = PLAIN, other: str = "", out: str = "") -> Model:
    text = TEXT.replace("ACT", act).replace("BRANCHES", branches)
    path = folder / "model.onnx"
    onnx.save(parse_model(text.replace("OTHER", other).replace("OUT", out)), path)
    return load_model(path)


def candidate(model: Model, placement: Placement) -> onnx.ModelProto:
    scheme = PACK.manifest.scheme
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    return Inserter(model, scheme).insert(placement, ranges)


def crashes(proto: onnx.ModelProto, folder: Path) -> bool:
    """Whether OpenVINO does, in a process of its own."""
    path = folder / "candidate.onnx"
    onnx.save(proto, path)
    command = [sys.executable, "-c", COMPILE, str(path)]
    return subprocess.run(command, check=False, timeout=120, capture_output=True).returncode < 0


BOTH = Placement.of_groups([(Edge("c", "act", 0),), (Edge("d", "conv", 0),)])


@pytest.mark.slow
@pytest.mark.parametrize("act", [*TAKEN, *REMOVED])
def test_openvino_crashes_and_is_not_asked(act, tmp_path):
    proto = candidate(loaded(tmp_path, act), BOTH)
    assert crashes(proto, tmp_path), "OpenVINO is repaired: crashes.py can go"
    with pytest.raises(RunError, match="crashes with a pair between 'join' and 'act'"):
        OpenVinoEngine().compile(proto, tmp_path)


@pytest.mark.parametrize(
    ("act", "other", "out", "groups"),
    [
        ("Sigmoid(c)", "", "", BOTH.groups),  # No Q takes it along.
        ("Relu(c)", "", "", [g for g in BOTH.groups if "d" in {e.tensor for e in g.edges}]),
        ("Relu(c)", "[more] o = Tanh(c)", ", float[1,16,4,4] o", BOTH.groups),
        ("Relu(c)", "[more] o = Tanh(d)", ", float[1,16,4,4] o", BOTH.groups),
    ],
)
def test_it_compiles_what_is_only_like_it(act, other, out, groups, tmp_path):
    model = loaded(tmp_path, act, other=other, out=out)
    proto = candidate(model, Placement(frozenset(groups)))
    assert crashing_nodes(proto.graph) is None
    OpenVinoEngine().compile(proto, tmp_path)


def test_nodes_without_names_are_told_apart(tmp_path):
    """The Reshape hands on what it reads; the Transpose has no name, either, and does not."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,8,8,8] y, float[1,4,8,8] other)
    <float s = {0.1}, uint8 p = {10}, int64[4] shape = {1, 4, 8, 8}> {
      same = Reshape(x, shape)
      other = Relu(same)
      c = Concat<axis = 1>(x, z)
      q = QuantizeLinear(c, s, p)
      d = DequantizeLinear(q, s, p)
      t = Transpose<perm = [0, 1, 3, 2]>(d)
      r = QuantizeLinear(t, s, p)
      y = DequantizeLinear(r, s, p)
    }
    """
    OpenVinoEngine().compile(parse_model(text), tmp_path)


@pytest.mark.parametrize("act", TAKEN)
@pytest.mark.parametrize("branches", [PLAIN, SHARED])
def test_no_default_placement_has_it(act, branches, tmp_path):
    model = loaded(tmp_path, act, branches)
    placement = place(find_sites(model.graph, PACK.rules, Target()), {})
    is_paired = Edge("c", "act", 0) in placement.edges
    assert is_paired is (branches == SHARED)
    proto = candidate(model, placement)
    assert crashing_nodes(proto.graph) is None  # The zero point of what is not negative is 0.
    OpenVinoEngine().compile(proto, tmp_path)
