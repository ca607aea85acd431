"""Saved engines: what the library says of a file that it cannot load, in one sentence."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.engines.bench import described
from placer.engines.cuda import api
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.tensorrt.build import BuildSettings, build
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.log import BuildLog
from placer.engines.tensorrt.saved import deserialize, load_failure
from placer.errors import InputError, RunError
from placer.graph.shapes import InputType, ShapeRange
from tests.conftest import DIGITS, Finished

MODEL = DIGITS / "digits.onnx"
SELF_QUANTIZING = EngineSpec("tests.engines.self_quantizing", "SelfQuantizingEngine")
RELU = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }
"""

Load = Callable[[bytes], object]


@pytest.fixture(scope="module")
def engine(library: Library) -> bytes:
    proto = onnx.parser.parse_model(RELU)
    report = build(library, proto.SerializeToString(), BuildSettings(gpu="sm89"))
    assert report.accepted
    return report.engine


@pytest.fixture
def load(library: Library) -> Load:
    def load(data: bytes) -> object:
        log = BuildLog()
        runtime = library.module.Runtime(log.attach(library.module))
        return deserialize(library, runtime, log, data, "model.engine")

    return load


@pytest.mark.parametrize("data", [b"", b"no engine", b"no engine" * 1000])
def test_what_is_no_engine_is_not_loaded(load: Load, data: bytes):
    with pytest.raises(RunError, match=r"^TensorRT-RTX 1\..* cannot load model\.engine: "):
        load(data)


def test_the_header_is_read_before_a_gpu_is_looked_for(load: Load, engine: bytes):
    other = b"ftrt" + engine[4:]
    with pytest.raises(RunError, match="it is not an engine of this library and version; build it"):
        load(other)
    with pytest.raises(RunError, match="it is not an engine of this library and version; build it"):
        load(engine[:200])


@pytest.mark.skipif(api.device_count() > 0, reason="for machines without a GPU")
def test_loading_needs_a_gpu(load: Load, engine: bytes):
    with pytest.raises(RunError, match=r"cannot load model\.engine: CUDA does not work here \("):
        load(engine)


@pytest.mark.parametrize(
    ("logged", "meaning"),
    [
        # Of TensorRT, from github.com/yuvraj108c/ComfyUI-Dwpose-Tensorrt/issues/5 and
        # github.com/LizhenWangT/StyleAvatar/issues/10.
        (
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
            "stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: "
            "Current Version: 237, Serialized Engine Version: 239)",
            "it is not an engine of this library and version; build it with the installed ones",
        ),
        (
            "INVALID_CONFIG: The engine plan file is generated on an incompatible device, "
            "expecting compute 8.9 got compute 8.6, please rebuild",
            "it was built for another GPU; build it on one like this",
        ),
        # From github.com/laugh12321/TensorRT-YOLO/issues/118 and NVIDIA/TensorRT/issues/1913.
        (
            "IPluginRegistry::getPluginCreator: Error Code 4: API Usage Error (Cannot find plugin: "
            "EfficientIdxNMS_TRT, version: 1, namespace:.)",
            "it has a plugin that is not registered; give its library",
        ),
        (
            "Serialization assertion creator failed.Cannot deserialize plugin since corresponding "
            "IPluginCreator not found in Plugin Registry",
            "it has a plugin that is not registered; give its library",
        ),
        ("out of memory", "out of memory"),
    ],
)
def test_what_the_library_logs_is_told_in_words(logged: str, meaning: str):
    assert load_failure([logged]).startswith(meaning)


# The inputs of saved engines, which have no ONNX model to tell them.


def test_data_is_made_for_the_shapes_of_a_saved_engine(tmp_path: Path):
    inputs = {"x": InputType((2, 3), "float32"), "i": InputType((4,), "int64")}
    model = described(tmp_path / "a.engine", inputs, {})
    (sample,) = synthetic_dataset(model, 1, 0)
    found = {name: (value.shape, value.dtype.name) for name, value in sample.inputs.items()}
    assert found == {"x": ((2, 3), "float32"), "i": ((4,), "int64")}
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3), np.float32), i=np.ones(4, np.int64))
    (given,) = load_dataset(str(tmp_path / "data.npz"), model)
    assert given.inputs["x"].sum() == 6


def test_shapes_that_are_given_come_first(tmp_path: Path):
    inputs = {"x": InputType((2, 3), "float32")}
    model = described(tmp_path / "a.engine", inputs, {"x": ShapeRange.fixed((5, 3))})
    (sample,) = synthetic_dataset(model, 1, 0)
    assert sample.inputs["x"].shape == (5, 3)
    with pytest.raises(InputError, match=r"a\.engine, shapes: unknown input 'z'; use one of: x"):
        described(tmp_path / "a.engine", inputs, {"z": ShapeRange.fixed((1,))})


# Through the worker, with an engine that takes an ONNX file for a saved one.


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[IsolatedEngine]:
    with IsolatedEngine(SELF_QUANTIZING, Limits(), tmp_path / "logs") as made:
        yield made


def test_a_saved_engine_is_loaded_in_the_worker(isolated: IsolatedEngine, tmp_path: Path):
    path = tmp_path / "digits.engine"
    path.write_bytes(MODEL.read_bytes())
    saved = isolated.load(path)
    assert saved.inputs == {"image": InputType((1, 1, 32, 32), "float32")}
    own = isolated.compile(onnx.load(MODEL), MODEL.parent)
    inputs = {"image": np.ones((1, 1, 32, 32), np.float32)}
    assert np.array_equal(saved.run(inputs)["logits"], own.run(inputs)["logits"])
    assert isolated.measure([own, saved], inputs, 3).shape == (3, 2)
    del saved
    isolated.compile(onnx.load(MODEL), MODEL.parent)  # Forgets what is held no more.
    assert path.exists()


def test_a_damaged_one_leaves_the_worker_alone(isolated: IsolatedEngine, tmp_path: Path):
    path = tmp_path / "damaged.engine"
    path.write_bytes(b"damaged")
    own = isolated.compile(onnx.load(MODEL), MODEL.parent)
    before = len(list((tmp_path / "logs").iterdir()))
    with pytest.raises(RunError, match=r"damaged\.engine is damaged"):
        isolated.load(path)
    own.run({"image": np.ones((1, 1, 32, 32), np.float32)})
    assert len(list((tmp_path / "logs").iterdir())) == before


@pytest.mark.parametrize("name", ["a.engine", "b.plan", "c.trt"])
def test_other_engines_do_not_take_saved_ones(placer: Callable[..., Finished], name: str):
    Path(name).write_bytes(b"anything")
    finished = placer("bench", MODEL, name, "--engine", "onnxruntime")
    assert finished.code == 2
    assert (
        f"{name} is a saved TensorRT engine, which engine onnxruntime cannot load; "
        "give an ONNX model or choose engine tensorrt" in finished.err
    )


def test_a_saved_engine_that_is_not_there(placer: Callable[..., Finished]):
    finished = placer("bench", "nowhere.engine")
    assert finished.code == 2
    assert "nowhere.engine does not exist; give the path of a saved engine" in finished.err
