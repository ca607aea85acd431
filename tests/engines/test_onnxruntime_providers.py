"""ONNX Runtime's other execution providers as targets of the engine ``onnxruntime``."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.onnxruntime.provider_engine import ProviderEngine, create
from placer.engines.onnxruntime.providers import (
    PROVIDERS,
    Provider,
    Settings,
    parse_provider,
    session_use,
    use_devices,
)
from placer.engines.select import select_engine
from placer.errors import InputError, RunError
from placer.model import load_model

Save = Callable[..., Path]
OPENVINO = "OpenVINOExecutionProvider"
ON_CPU = Settings(threads=1, base="float", device=0)
# The CPU's provider taken as another one: the same code, which runs everywhere.
PLAIN = Provider("CPUExecutionProvider", "onnxruntime", "onnxruntime", lambda _: {}, on_gpu=False)

TWO_CONVS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,1,1] w = {1}> { [first] c = Conv(x, w) [act] r = Relu(c) [second] y = Conv(r, w) }
"""
CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) { [sine] s = Sin(x) [root] r = Abs(s) [up] y = Exp(r) }
"""
INPUTS = {"x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 4, 8, 8)}


def select(provider: str, base: str | None = None, device: str | None = None) -> tuple[Engine, str]:
    extra = {"provider": provider}
    engine, pack, _ = select_engine("onnxruntime", threads=1, base=base, device=device, extra=extra)
    return engine, pack.manifest.name


@pytest.mark.parametrize("name", ["CPU", "cpuexecutionprovider", "CPUExecutionProvider"])
def test_the_cpu_provider_is_the_engine_as_it_is(name: str):
    engine, pack = select(name)
    assert (type(engine), pack) == (OnnxRuntimeEngine, "onnxruntime")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("TensorrtExecutionProvider", "onnxruntime-gpu"),
        ("NvTensorRTRTXExecutionProvider", "onnxruntime-ep-nv-tensorrt-rtx"),
        ("CUDAExecutionProvider", "onnxruntime-gpu"),
        ("OpenVINOExecutionProvider", "onnxruntime-openvino"),
    ],
)
def test_an_absent_provider_is_refused_with_the_package_that_has_it(name: str, package: str):
    if name in ort.get_available_providers():
        pytest.skip(f"{name} is here")
    with pytest.raises(RunError, match=rf"here has no {name}; .*pip install {package}"):
        select(name)


def test_an_unknown_provider_is_told_which_there_are():
    with pytest.raises(InputError, match="did you mean 'OpenVINOExecutionProvider'"):
        select("OpenVINExecutionProvider")


@pytest.mark.parametrize(
    ("name", "pack"),
    [("tensorrt", "tensorrt"), ("NvTensorRTRTX", "tensorrt-rtx"), ("openvino", "openvino"),
     ("CUDA", "onnxruntime")],
)  # fmt: skip
def test_the_pack_follows_the_provider(name: str, pack: str):
    assert parse_provider(name).pack == pack


def test_float16_becomes_tensorrts_own_option():
    options = PROVIDERS["TensorrtExecutionProvider"].options(Settings(1, "float16", 1))
    assert options == {"device_id": "1", "trt_int8_enable": "1", "trt_fp16_enable": "1"}


def test_a_base_that_the_provider_lacks_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ort, "get_available_providers", lambda: [OPENVINO])
    with pytest.raises(InputError, match="computes in float or bfloat16, not in base float16"):
        select(OPENVINO, base="float16")
    with pytest.raises(
        InputError, match="OpenVINOExecutionProvider measures on this machine's CPU"
    ):
        select(OPENVINO, device="1")


def test_options_of_workers_are_refused_for_the_cpu_provider():
    with pytest.raises(InputError, match="memory-gb is for other providers"):
        select_engine("onnxruntime", threads=1, extra={"memory-gb": "2"})


def test_a_provider_engine_runs_measures_and_tells_what_ran(save: Save):
    model = load_model(save(CHAIN))
    engine = ProviderEngine(PLAIN, ON_CPU)
    compiled = engine.compile(model.proto, model.base_dir)
    expected = OnnxRuntimeEngine().compile(model.proto, model.base_dir).run(INPUTS)
    np.testing.assert_allclose(compiled.run(INPUTS)["y"], expected["y"])
    assert engine.measure([compiled, compiled], INPUTS, 3).shape == (3, 2)
    layers = compiled.plan(INPUTS).layers
    assert [layer.nodes for layer in layers] == [("sine",), ("root",), ("up",)]
    assert {layer.kernel for layer in layers} == {"CPUExecutionProvider"}
    assert all(layer.time_us is not None for layer in layers)
    assert all(layer.time_us is None for layer in compiled.plan().layers)


def test_devices_of_a_plug_in_make_a_session(save: Save):
    devices = [d for d in ort.get_ep_devices() if d.ep_name == "CPUExecutionProvider"]
    options = ort.SessionOptions()
    assert use_devices("CPUExecutionProvider", devices, {})(options) == ()
    session = ort.InferenceSession(save(TWO_CONVS), options)
    assert session.run(None, INPUTS)[0].shape == (1, 4, 8, 8)


def test_a_plug_in_without_a_device_is_refused():
    with pytest.raises(RunError, match=f"plug-in with {OPENVINO} finds no device"):
        use_devices(OPENVINO, (), {})


def test_an_absent_provider_makes_no_session():
    absent = Provider("NoExecutionProvider", "onnxruntime", "no-such-package", lambda _: {})
    with pytest.raises(RunError, match="no-such-package"):
        session_use(absent, ON_CPU)


@pytest.fixture
def openvino() -> None:
    if OPENVINO not in ort.get_available_providers():
        pytest.skip("needs onnxruntime-openvino in the place of onnxruntime")


@pytest.mark.usefixtures("openvino")
def test_openvino_compiles_the_whole_graph_as_one_layer(save: Save):
    model = load_model(save(TWO_CONVS))
    engine = create(OPENVINO, threads=1, base="float", device=0)
    assert (engine.rules, engine.remainder) == ("openvino", "computed")
    assert engine.version.startswith("20")
    compiled = engine.compile(model.proto, model.base_dir)
    expected = OnnxRuntimeEngine().compile(model.proto, model.base_dir).run(INPUTS)
    np.testing.assert_allclose(compiled.run(INPUTS)["y"], expected["y"], atol=1e-5)
    (layer,) = compiled.plan(INPUTS).layers
    assert (set(layer.nodes), layer.kernel) == ({"first", "act", "second"}, OPENVINO)


@pytest.mark.usefixtures("openvino")
def test_a_provider_that_cannot_start_is_an_error_and_no_silent_change_to_the_cpu(save: Save):
    model = load_model(save(TWO_CONVS))
    broken = Provider(OPENVINO, "openvino", "x", lambda _: {"load_config": "/no.json"},
                      bases=("float",), on_gpu=False)  # fmt: skip
    with pytest.raises(RunError, match="OpenVINOExecutionProvider"):
        ProviderEngine(broken, ON_CPU).compile(model.proto, model.base_dir)
