"""The pack of ARM against ONNX Runtime told to optimize as it does there.

Graphs that the aarch64 wheel optimized in an emulator were the same: docs/measured.
"""

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

import placer
from placer.engines.onnxruntime.factory import OnnxRuntimeFactory
from placer.engines.onnxruntime.layers import layers_plan
from placer.graph.text import parse_model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from tests.engines.test_signed_pairs import HEAD as SIGNED_HEAD
from tests.engines.test_signed_pairs import RELU, saved
from tests.prediction.test_openvino_plans import layers, varied

LEVELS = ort.GraphOptimizationLevel
HEAD = '<ir_version: 9, opset_import: ["": 22]>'
# What blocks of channels would fuse: a HardSwish, and a sum of what a pool and a Conv write.
NETS = {
    "hard swish": """
        g (float[1,16,8,8] x) => (float[1,16,8,8] y)
        <float[16,16,1,1] w = {1}, float[16] b = {1}, float[16,16,1,1] v = {1}> {
          [conv1] c = Conv(x, w, b)
          [swish] h = HardSwish(c)
          [conv2] y = Conv(h, v)
        }""",
    "sum": """
        g (float[1,16,8,8] x) => (float[1,16,8,8] y)
        <float[16,16,1,1] w = {1}, float[16] b = {1}> {
          [tanh] t = Tanh(x)
          [conv1] c = Conv(x, w, b)
          [add] a = Add(c, t)
          [relu] y = Relu(a)
        }""",
    "transpose": """
        g (float[1,8,8,16] x) => (float[1,8,8,16] y)
        <float[16,16,1,1] w = {1}, float[16] b = {1}> {
          [there] t = Transpose<perm = [0, 3, 1, 2]>(x)
          [conv1] c = Conv(t, w, b)
          [back] y = Transpose<perm = [0, 2, 3, 1]>(c)
        }""",
}


def as_on_arm(path: Path, level: LEVELS) -> onnx.ModelProto:
    """The optimized graph without blocks of channels, with kernels that read int8."""
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(path.with_suffix(".optimized"))
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    given = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["NchwcTransformer"]}
    ort.InferenceSession(path, options, **given)
    return onnx.load(options.optimized_model_filepath)


def built(path: Path) -> Plan:
    graphs = [as_on_arm(path, x) for x in (LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL)]
    return layers_plan(onnx.load(path), *graphs, {}, "")


def predicted(path: Path, pack: str) -> Plan:
    return placer.explain(path, pack=pack).explanation.plan


@pytest.mark.parametrize("name", NETS)
def test_float_layers_are_those_without_blocks(name: str, tmp_path: Path):
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(HEAD + NETS[name])), path)
    assert layers(predicted(path, "onnxruntime-arm")) == layers(built(path))
    assert layers(predicted(path, "onnxruntime")) != layers(built(path))


def test_kernels_read_int8(tmp_path: Path):
    path = saved(tmp_path, SIGNED_HEAD, RELU, -128)
    assert diff_plans(predicted(path, "onnxruntime-arm"), built(path)).exact.f1 == 1
    (conv,) = (x for x in built(path).layers if x.nodes[:1] == ("conv",))
    assert conv.output_types == ("int8",)


@pytest.mark.parametrize(
    ("machine", "pack"),
    [("aarch64", "onnxruntime-arm"), ("arm64", "onnxruntime-arm"), ("x86_64", "onnxruntime")],
)
def test_a_processor_has_its_pack(machine: str, pack: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert OnnxRuntimeFactory().rules_for({}) == pack
