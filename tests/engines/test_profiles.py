"""Times of layers: measured by ONNX Runtime's profiler, estimated by the fusion model."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.base import Compiled, Engine
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import RunError
from placer.model import load_model
from placer.plan import Layer, Plan
from placer.plan.json_format import parse_plan
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.conftest import Finished

Save = Callable[..., Path]

PACK = load_pack("onnxruntime")
X = {"x": np.random.default_rng(0).standard_normal((1, 16, 32, 32)).astype(np.float32)}
# ONNX Runtime fuses each Conv with its Relu, moves floats into blocks of channels for them (nchwc)
# and uint8 behind the others (nhwc), and back for Softmax.
NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,32,32] x) => (float[1,16,16,16] y)
<float[16,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}> {
  [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r1 = Relu(c1)
  [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
  [relu2] r2 = Relu(c2)
  [pool1] p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r2)
  [softmax1] y = Softmax<axis = 1>(p1)
}
"""


def compiled(engine: Engine, path: Path, quantized: bool) -> Compiled:
    """The float model at ``path``, or its candidate of the pack's default placement."""
    model = load_model(path)
    if not quantized:
        return engine.compile(model.proto, model.base_dir)
    placement = place(find_sites(model.graph, PACK.rules), {})
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    scheme = PACK.manifest.scheme
    ranges = calibrate(model, tensors, synthetic_dataset(model, 4, 0)).ranges("minmax", scheme)
    return engine.compile(Inserter(model, scheme).insert(placement, ranges), model.base_dir)


def without_times(plan: Plan) -> Plan:
    layers = (dataclasses.replace(layer, time_us=None) for layer in plan.layers)
    return dataclasses.replace(plan, layers=tuple(layers))


def by_nodes(plan: Plan) -> dict[tuple[str, ...], Layer]:
    return {layer.nodes: layer for layer in plan.layers if layer.nodes}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("quantized", [False, True])
def test_every_layer_that_onnx_runtime_runs_has_a_time(
    save: Save, temporary: Path, quantized: bool
):
    model = compiled(OnnxRuntimeEngine(), save(NET), quantized)
    plan = model.plan(X)
    assert [layer.name for layer in plan.layers if layer.time_us is None] == []
    covered = {node for layer in plan.layers for node in layer.nodes}
    assert covered == {"conv1", "relu1", "conv2", "relu2", "pool1", "softmax1"}
    # The profiler counts whole microseconds, and two convolutions take many.
    convolutions = by_nodes(plan)["conv1", "relu1"], by_nodes(plan)["conv2", "relu2"]
    assert all(layer.time_us > 0 for layer in convolutions)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("quantized", [False, True])
def test_profiling_changes_nothing_but_times(save: Save, quantized: bool):
    model = compiled(OnnxRuntimeEngine(), save(NET), quantized)
    plain = model.plan()
    assert {layer.time_us for layer in plain.layers} == {None}
    assert without_times(model.plan(X)) == plain


def test_layers_that_only_move_data_have_times_and_are_called_after_tensors(save: Save):
    plan = compiled(OnnxRuntimeEngine(), save(NET), quantized=False).plan(X)
    moves = plan.of_kind("reformat")
    assert [(layer.name, layer.input_types) for layer in moves] == [
        ("ReorderInput of x", ("float",)),
        ("ReorderOutput to p1", ("float",)),
    ]
    assert None not in {layer.time_us for layer in moves}


def test_times_come_back_from_a_worker(save: Save, tmp_path: Path):
    spec = EngineSpec("placer.engines.onnxruntime", "OnnxRuntimeEngine", {"threads": 1})
    path = save(NET)
    with IsolatedEngine(spec, Limits(), tmp_path / "logs") as engine:
        model = compiled(engine, path, quantized=True)
        plan = model.plan(X)
        assert [layer.name for layer in plan.layers if layer.time_us is None] == []
        assert without_times(plan) == model.plan()


def test_inputs_of_another_shape_are_a_run_error(save: Save, temporary: Path):
    model = compiled(OnnxRuntimeEngine(), save(NET), quantized=False)
    with pytest.raises(RunError, match=r"ONNX Runtime failed to run the model: .*Got: 8 Expected"):
        model.plan({"x": X["x"][:, :8]})
    assert list(temporary.iterdir()) == []


def test_names_that_break_the_profile_of_older_versions_do_not_break_the_plan(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,32,32] x) => (float[1,16,32,32] y) { [tanh1] y = Tanh(x) }
        """
    )
    proto.graph.node[0].name = 'the "tanh"'  # ONNX Runtime 1.23 writes no valid JSON then.
    plan = OnnxRuntimeEngine().compile(proto, tmp_path).plan(X)
    assert [layer.nodes for layer in plan.layers] == [('the "tanh"',)]


@pytest.mark.slow
def test_a_run_writes_the_plans_of_its_result_and_of_the_float_model(
    save: Save, placer: Callable[..., Finished]
):
    model = save(NET)
    arguments = ("--engine", "onnxruntime", "--budget", 3, "--preset", "quick", "--gate", "sqnr>=1")
    finished = placer("optimize", model, *arguments, "--output", "out")
    assert finished.code == 0, finished.err
    written = {
        name: parse_plan(json.loads(Path("out", name).read_text()), name)
        for name in ("plan.json", "plan_float.json")
    }
    for plan in written.values():
        assert not plan.estimated
        assert [layer.name for layer in plan.layers if layer.time_us is None] == []
    floats = compiled(OnnxRuntimeEngine(), model, quantized=False)
    assert without_times(written["plan_float.json"]) == floats.plan()
    best = OnnxRuntimeEngine().compile(onnx.load("out/optimized.onnx"), Path("out"))
    assert without_times(written["plan.json"]) == best.plan()


@pytest.mark.slow
def test_explain_shows_what_was_measured(save: Save, placer: Callable[..., Finished]):
    model = save(NET)
    arguments = ("--engine", "onnxruntime", "--budget", 3, "--preset", "quick", "--gate", "sqnr>=1")
    assert placer("optimize", model, *arguments, "--output", "out").code == 0
    shown = ("--placement", "out/placement.yaml", "--pack", "onnxruntime", "--all")
    explained = placer("explain", model, *shown, "--actual", "out/plan.json")
    assert explained.code == 0, explained.err
    plan = parse_plan(json.loads(Path("out/plan.json").read_text()), "plan.json")
    for layer in plan.of_kind("quantize", "dequantize", "reformat"):
        assert f"- {layer.name}: {layer.time_us:.1f} us measured" in explained.out


@pytest.mark.slow
def test_an_engine_that_predicts_writes_no_plan_as_if_it_had_run_one(
    save: Save, placer: Callable[..., Finished]
):
    arguments = ("--engine", "fusion-model", "--gpu", "a100", "--budget", 2, "--preset", "quick")
    finished = placer("optimize", save(NET), *arguments, "--gate", "sqnr>=1", "--output", "out")
    assert finished.code == 0, finished.err
    written = {path.name for path in Path("out").glob("plan*.json")}
    assert written == {"plan_predicted.json", "plan_float_predicted.json"}
