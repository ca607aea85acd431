"""TensorRT's execution path on a stand-in of its Python module (``standin``).

With a GPU the stand-in launches real kernels; without one memory and kernels are the host's
(``standin_host``). It proves our side of the interface, not what TensorRT does.
"""

import enum
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from placer.checkup.networks import convolutions
from placer.engines.abilities import abilities_of
from placer.engines.cuda import api
from placer.engines.cuda.nvml import GpuState
from placer.engines.cuda.timing import Effort
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.engines.tensorrt import engine as trt_engine
from placer.engines.tensorrt.build import BuildSettings
from placer.engines.tensorrt.engine import TensorRtEngine, create, refuse_gpu
from placer.engines.tensorrt.execution import Execution
from placer.engines.tensorrt.library import Library
from placer.errors import RunError
from placer.fitting.networks import network_names, write_network
from placer.graph.shapes import ShapeRange
from placer.graph.text import parse_model
from tests.conftest import Finished
from tests.engines.conftest import RELU, X, batches, execution


def test_a_network_runs_as_onnx_runtime_runs_it(engine: TensorRtEngine, tmp_path: Path):
    model = onnx.load(convolutions(tmp_path))
    inputs = {"image": np.random.default_rng(0).normal(size=(1, 3, 64, 64)).astype(np.float32)}
    found = engine.compile(model, tmp_path).run(inputs)
    expected = OnnxRuntimeModel(model, tmp_path, 1).run(inputs)
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-3, atol=1e-4)
    assert abilities_of(engine) == {"shape-ranges", "saved-engines", "implicit"}


# Each operator of the networks that ``placer fit`` makes; weights are filled at random.
OPERATORS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,6,6] m, float[3,2,8] t, float[3,2,8] u) => ()
  <float[6,8,3,3] w = {1}, float[8,4,3,3] w2 = {1}, float[8,1,3,3] w8 = {1}, float[6] b = {1},
   float[8,3,3,2] wt = {1}, float[4,2,3] ws = {1}, float[8] c = {1}, float[8,1,1] c1 = {1},
   float[8,2,3,3] wg = {1}, float[8,5] wm = {1}, float[5,8] wn = {1}, float[5] b5 = {1},
   float[1,20,8] gw = {1},
   float[1,20,5] gr = {1}, float[1,40] gb = {1}, float[2,15,8] zw = {1}, float[2,15,5] zr = {1},
   float low = {-0.5}, float high = {0.6}, float two = {2}, int64 one = {1}, int64[1] front = {0},
   int64[1] last = {1}, int64[2] from = {1, 0}, int64[2] to = {5, 2147483647},
   int64[2] axes = {2, 3}, int64[2] by = {1, 2}, int64[2] sizes = {3, 5},
   int64[8] edges = {0, 0, 1, 2, 0, 0, 0, 1}, int64[6] before = {0, 0, 2, 0, 0, 0},
   int64[4] rows = {2, 4, 3, 12}, int64[2] square = {6, 8}, int64[4] large = {1, 8, 9, 8},
   float[4] twice = {1, 1, 2, 2}> {
  relu = Relu (m)  leakyrelu = LeakyRelu <alpha = 0.2> (m)  prelu = PRelu (m, c1)
  clip = Clip (m, low, high)  hardsigmoid = HardSigmoid <alpha = 0.3> (m)  hardswish = HardSwish (m)
  sigmoid = Sigmoid (t)  tanh = Tanh (t)  erf = Erf (t)  exp = Exp (t)  neg = Neg (t)
  sqrt = Sqrt (u)  reciprocal = Reciprocal (u)
  add = Add (t, c)  sub = Sub (low, t)  mul = Mul (m, c1)  div = Div (t, u)  pow = Pow (u, two)
  max = Max (t, u)
  turned = Transpose <perm = [2, 0, 1]> (t)  slice = Slice (m, from, to, axes, by)
  first, second = Split <axis = 1> (m, sizes)  gather = Gather <axis = 0> (t, one)
  concat = Concat <axis = 1> (m, first, second)  reshape = Reshape (m, rows)
  row = Slice (t, front, last, front)  squeeze = Squeeze (row, front)
  flatten = Flatten (m)  depth = DepthToSpace <blocksize = 2> (m)
  columns = DepthToSpace <blocksize = 2, mode = "CRD"> (m)
  pad = Pad (t, before)  reflected = Pad <mode = "reflect"> (m, edges)
  conv = Conv <pads = [1, 0, 2, 1], strides = [2, 1], dilations = [1, 2]> (m, w, b)
  grouped = Conv <group = 2> (m, w2, c)  depthwise = Conv <group = 8> (m, w8)
  sequence = Conv <pads = [2, 0], dilations = [2]> (t, ws)
  transposed = ConvTranspose <strides = [2, 2], pads = [1, 0, 0, 1]> (m, wt)
  spread = ConvTranspose <group = 4, strides = [2, 2], pads = [1, 1, 1, 1],
                          output_padding = [1, 0]> (m, wg, c)
  maxpool = MaxPool <kernel_shape = [3, 2], pads = [1, 0, 1, 1], strides = [2, 1]> (m)
  averagepool = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (m)
  padded = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (m)
  average = GlobalAveragePool (m)  mean = ReduceMean <axes = [-1]> (t)
  channels = ReduceMean <axes = [1], keepdims = 0> (t)  norm = ReduceL2 <axes = [1, 2]> (m)
  total = ReduceSum <keepdims = 0> (t, last)
  matmul = MatMul (t, wm)  scores = MatMul (m, m)  flat = Reshape (t, square)
  gemm = Gemm <transB = 1> (flat, wn, b5)  straight = Gemm (flat, wm)
  softmax = Softmax (t)  attention = Softmax <axis = 1> (t)
  layernorm = LayerNormalization (t, c, c)  plain = LayerNormalization (t, c)
  instance = InstanceNormalization (m, c, c)
  positive = Exp (c)  batch = BatchNormalization <epsilon = 0.01> (m, c, c, c, positive)
  nearest = Resize <mode = "nearest"> (m, , twice)
  floored = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                    nearest_mode = "floor"> (m, , twice)
  linear = Resize <mode = "linear"> (m, , , large)
  aligned = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">
                    (m, , , large)
  cubic = Resize <mode = "cubic"> (m, , , large)
  lstm = LSTM <hidden_size = 5> (t, gw, gr, gb)
  gru = GRU <hidden_size = 5, direction = "bidirectional"> (t, zw, zr)
}
"""


def operators() -> onnx.ModelProto:
    """``OPERATORS`` with every tensor as an output."""
    model = parse_model(OPERATORS)
    generator = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) > 4:
            values = generator.normal(size=tensor.dims).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    model.graph.output.extend(onnx.shape_inference.infer_shapes(model).graph.value_info)
    return model


def test_each_operator_computes_what_onnx_runtime_computes(standin: Library, tmp_path: Path):
    model, generator = operators(), np.random.default_rng(1)
    inputs = {"m": generator.normal(size=(1, 8, 6, 6)), "t": generator.normal(size=(3, 2, 8))}
    inputs = {**inputs, "u": 0.1 + np.abs(inputs["t"])}
    inputs = {name: values.astype(np.float32) for name, values in inputs.items()}
    found = execution(standin, model).run(inputs)
    for name, expected in OnnxRuntimeModel(model, tmp_path, 1).run(inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", network_names(280)[::12])
def test_networks_of_a_fit_run_on_a_gpu(standin: Library, tmp_path: Path, name: str):
    model, generator = onnx.load(write_network(name, tmp_path)), np.random.default_rng(1)
    inputs = {
        value.name: generator.normal(
            size=[d.dim_value for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }
    found = execution(standin, model).run(inputs)
    for output, expected in OnnxRuntimeModel(model, tmp_path, 1).run(inputs).items():
        np.testing.assert_allclose(
            found[output], expected, atol=2e-3 * np.abs(expected).max(), rtol=0, err_msg=output
        )


def test_what_tensorrt_refuses_is_told(standin: Library):
    running = execution(standin, parse_model(RELU), batches(1, 2))
    running.prepare({"x": X})
    running._context.set_tensor_address("y", 0)
    with pytest.raises(RunError, match=r"failed to run the engine: .*address of y is not set"):
        running.launch(running._stream)
    with pytest.raises(RunError, match="not an engine of this library and version"):
        Execution(standin, b"something else")


def test_an_output_that_is_written_over_an_input_has_its_memory(standin: Library):
    """As that of a KV cache, which must be at one address."""
    model = parse_model(RELU.replace("batch", "1"))
    model.metadata_props.add(key="standin.aliased", value='{"y": "x"}')
    running = execution(standin, model)
    assert running.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    assert running.run({"x": -X})["y"].tolist() == [[1, 0, 3, 0]]
    running.close()


def test_saved_engines_that_cannot_be_given_arrays_are_refused(
    standin: Library, monkeypatch: pytest.MonkeyPatch
):
    engine = execution(standin, parse_model(RELU.replace("batch", "1")))._engine
    with monkeypatch.context() as padded:
        padded.setattr(type(engine), "get_tensor_vectorized_dim", lambda *_: 1)
        with pytest.raises(RunError, match="it has 'x' in the memory format CHW32; build it with"):
            Execution(standin, engine.serialize(), what="it")
    with monkeypatch.context() as last:
        hwc = enum.Enum("TensorFormat", ["HWC"]).HWC
        last.setattr(type(engine), "get_tensor_format", lambda *_: hwc)
        with pytest.raises(RunError, match="it has 'x' in the memory format HWC; build it with"):
            Execution(standin, engine.serialize(), what="it")
    with monkeypatch.context() as stripped:
        stripped.setattr(type(engine), "get_engine_stat", lambda *_: 16)
        with pytest.raises(RunError, match="it was saved without its weights; build it without"):
            Execution(standin, engine.serialize(), what="it")
    halves = '<ir_version: 10, opset_import: ["": 21]> g (int4[4] x) => (int4[4] y) {y=Identity(x)}'
    with pytest.raises(RunError, match="'x' has the type INT4, which placer cannot give"):
        _ = execution(standin, parse_model(halves)).inputs


@pytest.mark.slow
def test_a_build_that_breaks_the_gpu_costs_one_candidate(standin: Library, tmp_path: Path):
    """After a kernel with a bad address every call of its process fails, builds too."""
    model = parse_model(RELU.replace("batch", "1"))
    breaking = parse_model(RELU.replace("batch", "1"))
    breaking.graph.name = standin.module.BREAKS_THE_GPU
    spec = EngineSpec("placer.engines.tensorrt.engine", "create", {"kind": "tensorrt"})
    with IsolatedEngine(spec, Limits(), tmp_path) as engine:
        compiled, worker = engine.compile(model, tmp_path), engine.worker_pid
        with pytest.raises(RunError, match=r"refuses the candidate: .* illegal memory access"):
            engine.compile(breaking, tmp_path)
        assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
        assert engine.worker_pid != worker


def test_shapes_of_dynamic_kernels_are_compiled_before_they_are_timed(
    standin: Library, monkeypatch: pytest.MonkeyPatch
):
    """TensorRT-RTX would otherwise time general kernels until those of the shape are there."""
    strategies = enum.Enum("Strategies", ["LAZY", "EAGER"])
    name = "DynamicShapesKernelSpecializationStrategy"
    monkeypatch.setattr(standin.module, name, strategies, raising=False)
    running = execution(standin, parse_model(RELU), batches(1, 2))
    config = running._runtime_config()
    assert config.dynamic_shapes_kernel_specialization_strategy == strategies.EAGER


def test_an_unknown_operator_is_refused_with_its_node(engine: TensorRtEngine, tmp_path: Path):
    model = parse_model(RELU.replace("Identity", "Cos"))
    with pytest.raises(RunError, match=r"node 'two' \(Cos\): the stand-in has no operator Cos"):
        engine.compile(model, tmp_path)


PARTS = ["inspector", "profiler", "profiler removal", "timing cache", "memory", "graph"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_is_a_warning_and_the_trial_goes_on(
    engine: TensorRtEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
):
    monkeypatch.setenv("PLACER_STANDIN_FAILS", part)
    compiled = engine.compile(parse_model(RELU.replace("batch", "1")), tmp_path)
    assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    assert (engine.measure([compiled], {"x": X}, 2) > 0).all()
    plan = compiled.plan({"x": X})
    assert [layer.name for layer in plan.layers] == ([] if part == "inspector" else ["one", "two"])
    untimed = part in ("inspector", "profiler")
    assert all((layer.time_us is None) == untimed for layer in plan.layers)
    assert (compiled.memory_bytes({"x": X}) is None) == (part == "memory")
    on_gpu = not hasattr(api.runtime(), "ON_HOST")
    assert engine.conditions.captured == (on_gpu and part != "graph",)
    assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    if part != "graph":  # Which is tried in silence: some engines have none.
        assert any("going on without" in record.message for record in caplog.records)


def test_without_nvml_the_clocks_are_unknown(
    engine: TensorRtEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(index: int) -> None:
        raise OSError(f"no libnvidia-ml for GPU {index}")

    monkeypatch.setattr(trt_engine, "gpu_state", broken)
    compiled = engine.compile(parse_model(RELU.replace("batch", "1")), tmp_path)
    engine.measure([compiled], {"x": X}, 2)
    assert (engine.conditions.before, engine.conditions.throttled_by) == (None, ())


@pytest.mark.parametrize(
    ("reasons", "repeats"),
    [((), 0), (("SwPowerCap",), 0), (("SwPowerCap", "SwThermalSlowdown"), 2)],
)
def test_what_slows_the_gpu_and_may_pass_is_waited_for(
    engine: TensorRtEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reasons: tuple[str, ...],
    repeats: int,
):
    state = GpuState("", "", None, None, None, None, reasons)
    monkeypatch.setattr(trt_engine, "gpu_state", lambda _: state)
    compiled = engine.compile(parse_model(RELU.replace("batch", "1")), tmp_path)
    engine.measure([compiled], {"x": X}, 2)
    assert (engine.conditions.throttled_by, engine.conditions.repeats) == (reasons, repeats)


def test_a_runtime_cache_that_fails_is_left_out(standin: Library, caplog: pytest.LogCaptureFixture):
    class Broken:
        def attach(self, config: object) -> None:
            raise RuntimeError(f"no cache for a {type(config).__name__}")

    data = execution(standin, parse_model(RELU), batches(1, 2))._engine.serialize()
    running = Execution(standin, data, Broken())  # type: ignore[arg-type]
    assert running.run({"x": X})["y"].shape == (1, 4)
    assert "the runtime cache failed, going on without: no cache for a RuntimeConfig" in caplog.text


def test_kernels_compiled_at_run_time_are_kept_once_they_ran(standin: Library, tmp_path: Path):
    """As TensorRT-RTX compiles them; engines of one process share the cache."""
    module = ModuleType("tensorrt")
    vars(module).update(vars(standin.module), IRuntimeCache=object)
    settings = BuildSettings(timing_cache=tmp_path)
    engine = TensorRtEngine(Library("tensorrt", module), 0, settings, Effort())
    model = RELU.replace("batch", "1")
    first = engine.compile(parse_model(model), tmp_path)
    second = engine.compile(parse_model(model.replace("[two]", "[three]")), tmp_path)
    assert [path.read_bytes() for path in tmp_path.glob("*.runtime")] == []
    engine.measure([first], {"x": X}, 2)
    engine.measure([first, second], {"x": X}, 2)
    (cache,) = tmp_path.glob("*.runtime")
    assert cache.read_bytes() == b"one three two"
    again = TensorRtEngine(Library("tensorrt", module), 0, settings, Effort())
    model = model.replace("[two]", "[four]")
    again.measure([again.compile(parse_model(model), tmp_path)], {"x": X}, 2)
    assert cache.read_bytes() == b"four one three two"


def test_an_engine_is_saved_loaded_and_run(standin: Library, tmp_path: Path):
    assert standin.kind == "tensorrt"
    engine = create("tensorrt", shapes={"x": ShapeRange((1, 4), (2, 4), (3, 4))})
    compiled = engine.compile(parse_model(RELU), tmp_path)
    compiled.save(tmp_path / "saved.engine")
    loaded = engine.load(tmp_path / "saved.engine")
    assert loaded.inputs["x"].shape == (2, 4)
    assert loaded.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]


def test_each_gpu_has_a_timing_cache(
    standin: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if api.device_count() < 2:
        pytest.skip("one GPU only")
    assert standin.kind == "tensorrt"
    unknown = GpuState("", "", None, None, None, None, ())
    states = [replace(unknown, name="NVIDIA H100 PCIe"), replace(unknown, name="NVIDIA L4")]
    monkeypatch.setattr(trt_engine, "gpu_state", lambda index: states[index])
    for device in (1, 0):
        engine = create("tensorrt", device=device, timing_cache=tmp_path)
        engine.compile(parse_model(RELU.replace("batch", "1")), tmp_path)
    names = [path.name.removeprefix("tensorrt-10.13.0-") for path in tmp_path.glob("*.timing")]
    capabilities = [api.compute_capability(device).replace(".", "") for device in (0, 1)]
    assert sorted(names) == [
        f"NVIDIA-H100-PCIe-sm{capabilities[0]}.timing",
        f"NVIDIA-L4-sm{capabilities[1]}.timing",
    ]


def test_asking_whether_a_gpu_is_there_makes_no_context_on_it(standin: Library):
    if not hasattr(api.runtime(), "ON_HOST"):
        pytest.skip("the host tells which contexts there are")
    api.runtime().contexts.clear()
    refuse_gpu(standin, 0)
    assert api.runtime().contexts == set()
    with pytest.raises(RunError, match="there is no GPU 2; CUDA sees 2, counted from 0"):
        refuse_gpu(standin, 2)
    create("tensorrt", device=1)
    assert api.runtime().contexts == {1}


def test_an_implicit_engine_is_calibrated_from_device_memory(standin: Library, tmp_path: Path):
    folder = tmp_path / "timing"
    engine = create("tensorrt", timing_cache=folder)
    model = parse_model(RELU.replace("batch", "1"))
    built = engine.compile_implicit(model, tmp_path, [{"x": X}, {"x": 2 * X}, {"x": 3 * X}])
    assert built.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    (cache,) = folder.glob("*.calibration")
    assert cache.read_bytes() == b"3 batches"
    assert standin.has_implicit_quantization


SMALL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,3,3] v = {0.01}, float[16,16,1,1] w = {0.02}> {
  [first] c = Conv<pads = [1, 1, 1, 1]>(x, v) [act] r = Relu(c) [second] y = Conv(r, w)
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["nothing", *PARTS, "own plugins"])
def test_a_search_survives_each_part_that_fails(
    standin: Library,
    placer: Callable[..., Finished],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
):
    """The whole of ``placer optimize``, in a worker, with TensorRT's own quantization beside it."""
    assert standin.version
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("PLACER_STANDIN_FAILS", part)
    onnx.save(parse_model(SMALL), tmp_path / "small.onnx")
    finished = placer(
        *("optimize", tmp_path / "small.onnx", "-o", tmp_path / "out", "--engine", "tensorrt"),
        *("--engine-option", f"timing-cache={tmp_path / 'timing'}", "--preset", "quick"),
        *("--budget", 3, "--gate", "sqnr>=5", "--beat", "implicit"),
    )
    assert finished.code in (0, 3), finished.err  # 3: no faster than the implicit engine.
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [trial["error"] for trial in result["trials"]] == [None] * 3
    plan = json.loads((tmp_path / "out" / "plan_float.json").read_text())
    assert bool(plan["layers"]) == (part != "inspector")
    captured = {trial["conditions"]["cuda_graphs"] for trial in result["trials"]}
    on_gpu = not hasattr(api.runtime(), "ON_HOST")
    assert captured == {on_gpu and part != "graph"}


@pytest.mark.slow
def test_layer_costs_are_fitted(
    standin: Library,
    placer: Callable[..., Finished],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """``placer fit`` from the builds to estimates by its file."""
    assert standin.version
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (tmp_path / "models").mkdir()
    for size in (8, 16, 24, 32, 40):
        text = SMALL.replace("8,8", f"{size},{size}")
        onnx.save(parse_model(text), tmp_path / "models" / f"small-{size}.onnx")
    output = tmp_path / "fit.json"
    finished = placer(
        *("fit", "--engine", "tensorrt", "--models", tmp_path / "models", "-o", output),
        *("--networks", 0, "--placements", 1, "--rounds", 3),
        *("--engine-option", f"timing-cache={tmp_path / 'timing'}"),
    )
    assert finished.code == 0, finished.err
    fit = json.loads(output.read_text())
    engine = fit["engine"]
    assert (engine["pack"], engine["base"], engine["typing"]) == ("tensorrt", "float16", "strong")
    assert engine["engine_version"] == "10.13.0"
    assert {cost["name"] for cost in fit["costs"]} >= {"conv", "conv 1x1"}
    explained = placer("explain", tmp_path / "models" / "small-8.onnx", "--gpu", output)
    assert explained.code == 0, explained.err
    assert "base float16, pack tensorrt" in explained.out
