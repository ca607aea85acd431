"""Dimensions that the model leaves open follow from the data, all but the batch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.data_shapes import shapes_of_data
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.results.result import Result
from tests.conftest import Finished, with_random_weights

IMAGE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[N, 4, H, W] image) => (float[N, 4, H, W] y)
<float[4, 4, 1, 1] w = {1.5, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1}> {
  c = Conv(image, w)
  y = Relu(c)
}
"""
PAIR = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2, T] a, float[B, 3] b) => (float[2, T] x, float[B, 3] y) {
  x = Relu(a)
  y = Relu(b)
}
"""


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        onnx.save(parse_model(text), tmp_path / "net.onnx")
        return tmp_path / "net.onnx"

    return write


def test_sizes_are_those_of_the_data_but_for_the_batch(save: Callable[[str], Path]):
    model = save(IMAGE)
    data = model.parent / "data.npz"
    np.savez(data, image=np.zeros((6, 4, 8, 10), "f"), labels=np.zeros(6))
    assert shapes_of_data(model, (), str(data)) == {"image": (1, 4, 8, 10)}
    assert shapes_of_data(model, ("image",), str(data)) == {}
    np.savez(data, image=np.zeros((3, 2, 4, 8, 10), "f"))  # Three samples, stacked.
    assert shapes_of_data(model, (), str(data)) == {"image": (2, 4, 8, 10)}


def test_an_npy_file_and_a_folder_of_them_will_do(save: Callable[[str], Path]):
    model = save(IMAGE)
    folder = model.parent / "data"
    folder.mkdir()
    np.save(folder / "0.npy", np.zeros((2, 4, 6, 6), "f"))
    assert shapes_of_data(model, (), str(folder)) == {"image": (1, 4, 6, 6)}
    assert shapes_of_data(model, (), str(folder / "0.npy")) == {"image": (1, 4, 6, 6)}


def test_a_folder_with_a_file_for_each_input_settles_all(save: Callable[[str], Path]):
    model = save(PAIR)
    folder = model.parent / "data"
    folder.mkdir()
    np.save(folder / "a.npy", np.zeros((5, 2, 7), "f"))
    np.save(folder / "b.npy", np.zeros((5, 4, 3), "f"))
    assert shapes_of_data(model, (), str(folder)) == {"a": (2, 7), "b": (4, 3)}


def test_a_fixed_input_needs_no_file_in_the_folder(save: Callable[[str], Path]):
    model = save(PAIR.replace("float[B, 3] b)", "float[B, 3] b, int64 sr)"))
    folder = model.parent / "data"
    folder.mkdir()
    np.save(folder / "a.npy", np.zeros((5, 2, 7), "f"))
    np.save(folder / "b.npy", np.zeros((5, 4, 3), "f"))
    # No input has the shape of another one's file.
    assert shapes_of_data(model, ("b",), str(folder)) == {}
    assert shapes_of_data(model, (), str(folder), ("sr",)) == {"a": (2, 7), "b": (4, 3)}
    np.save(folder / "sr.npy", np.ones(5, np.int64))
    assert shapes_of_data(model, (), str(folder), ("sr",)) == {"a": (2, 7), "b": (4, 3)}


def test_a_batch_that_the_model_fixes_stays(save: Callable[[str], Path]):
    model = save(PAIR)
    data = model.parent / "data.npz"
    np.savez(data, a=np.zeros((8, 5), "f"), b=np.zeros((4, 3), "f"))
    assert shapes_of_data(model, (), str(data)) == {"a": (2, 5)}  # Of b only the batch is open.


def test_samples_that_are_stacked_settle_the_only_open_size(save: Callable[[str], Path]):
    """Nodes of a graph, points or samples of a sound lead an input that has no batch."""
    model = save(PAIR)
    data = model.parent / "data.npz"
    np.savez(data, a=np.zeros((7, 2, 5), "f"), b=np.zeros((7, 4, 3), "f"))
    assert shapes_of_data(model, (), str(data)) == {"a": (2, 5), "b": (4, 3)}
    np.savez(data, a=np.zeros((7, 2, 5), "f"), b=np.zeros((7, 4, 2), "f"))
    assert shapes_of_data(model, (), str(data)) == {"a": (2, 5)}


def test_what_does_not_fit_is_left_to_the_reading_of_the_data(save: Callable[[str], Path]):
    model = save(IMAGE)
    data = model.parent / "data.npz"
    np.savez(data, image=np.zeros((6, 3, 8, 10), "f"))
    assert shapes_of_data(model, (), str(data)) == {}
    data.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"data.npz is damaged"):
        shapes_of_data(model, (), str(data))


@pytest.mark.slow
def test_a_run_needs_no_shapes_then(placer: Callable[..., Finished]):
    onnx.save(parse_model(IMAGE), "net.onnx")
    random = np.random.default_rng(0)
    np.savez("data.npz", image=random.standard_normal((6, 4, 8, 10), "f"))
    words = ("--data", "data.npz", "--engine", "onnxruntime", "--budget", 2, "--no-cache")
    finished = placer("optimize", "net.onnx", *words)
    assert finished.came_to_a_result, finished.err
    assert "· shape image=1x4x8x10, as the data has it\n" in finished.out
    assert Result.read(Path("net.placer")).model.input_shapes == {"image": [1, 4, 8, 10]}


QUANTIZED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[N,4,H,W] x) => (float[N,4,P,Q] y)
<float[4,4,3,3] w = {0.1}, float s = {0.05}, int8 z = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  [conv] c = Conv(d, w)
  y = Relu(c)
}
"""


def test_other_commands_take_shapes_from_the_data_too(placer: Callable[..., Finished]):
    onnx.save(with_random_weights(QUANTIZED), "net.onnx")
    np.savez("data.npz", x=np.random.default_rng(0).standard_normal((4, 4, 8, 10), "f"))
    data = ("--data", "data.npz")
    for command in (
        ("import", "net.onnx", "-o", "float.onnx"),
        ("apply", "float.placement.yaml", "float.onnx", "-o", "applied"),
        ("eval", "float.onnx", "applied/optimized.onnx"),
        ("bench", "float.onnx", "applied/optimized.onnx", "--engine", "onnxruntime"),
        ("extract", "float.onnx", "--outputs", "c", "-o", "part.onnx"),
    ):
        finished = placer(*command, *data)
        assert finished.code == 0, finished.err
    assert np.load("part.npz")["x"].shape == (4, 4, 8, 10)
    assert placer("eval", "float.onnx", "net.onnx", *data, "--shape", "x=1x4x9x9").code == 2


def samples() -> list[object]:
    """Batches as a user's function gives them."""
    return [{"image": np.zeros((2, 4, 5, 7), "f")}]


def single() -> list[object]:
    """A sample without an axis for the batch."""
    return [np.zeros((4, 5, 7), "f")]


def test_batches_of_a_function_settle_all_but_the_batch(save: Callable[[str], Path]):
    for name in ("samples", "single"):
        source = f"tests.calibration.test_data_shapes:{name}"
        assert shapes_of_data(save(IMAGE), (), source) == {"image": (1, 4, 5, 7)}
