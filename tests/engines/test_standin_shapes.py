"""Shapes that change, are values, or follow from the data, on the stand-in for TensorRT."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from placer.engines.cuda.api import CudaError
from placer.engines.tensorrt import chosen_outputs
from placer.engines.tensorrt.engine import TensorRtEngine, create
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.profile import parse_shape_values
from placer.errors import InputError, RunError
from placer.graph.text import parse_model
from tests.engines.conftest import RELU, X, batches, execution


def test_shapes_may_change_within_the_range_and_not_beyond(standin: Library):
    running = execution(standin, parse_model(RELU), batches(1, 3))
    for batch in (1, 3, 2, 1):
        assert running.run({"x": np.repeat(X, batch, 0)})["y"].tolist() == [[0, 2, 0, 4]] * batch
    with pytest.raises(InputError, match="not built for shape 4x4 of input 'x'"):
        running.run({"x": np.repeat(X, 4, 0)})
    assert running.run({"x": X})["y"].shape == (1, 4)
    with pytest.raises(InputError, match="needs input 'x'"):
        running.run({})


def test_the_profile_that_holds_the_shapes_is_taken(standin: Library):
    running = execution(standin, parse_model(RELU), batches(1, 2), batches(8, 16))
    for batch in (1, 16, 2, 8):
        assert running.run({"x": np.repeat(X, batch, 0)})["y"].shape == (batch, 4)
    with pytest.raises(InputError, match="not built for shape 4x4"):
        running.run({"x": np.repeat(X, 4, 0)})


def test_empty_tensors_run(standin: Library):
    running = execution(standin, parse_model(RELU), batches(0, 2))
    assert running.run({"x": X[:0]})["y"].shape == (0, 4)
    assert running.run({"x": X})["y"].shape == (1, 4)


def reshaping() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "to"], ["y"], name="reshape")],
        "g",
        [value("x", TensorProto.FLOAT, [1, 4]), value("to", TensorProto.INT64, [2])],
        [value("y", TensorProto.FLOAT, ["a", "b"])],
    )
    return helper.make_model(graph)


def test_an_input_whose_values_are_a_shape_stays_in_host_memory(standin: Library):
    running = execution(standin, reshaping(), {}, values={"to": ((1, 1), (2, 2), (4, 4))})
    for shape in ((4, 1), (2, 2), (1, 4)):  # Other values, the same shapes of inputs.
        found = running.run({"x": X, "to": np.array(shape, np.int64)})["y"]
        assert found.tolist() == X.reshape(shape).tolist()


def test_values_that_are_a_shape_have_a_range(standin: Library, tmp_path: Path):
    assert standin.kind == "tensorrt"
    values = parse_shape_values("to=1,1:2,2:2,4")
    compiled = create("tensorrt", shape_values=values).compile(reshaping(), tmp_path)
    for shape in ((2, 2), (1, 4)):
        found = compiled.run({"x": X, "to": np.array(shape, np.int64)})["y"]
        assert found.tolist() == X.reshape(shape).tolist()
    with pytest.raises(RunError, match=r"values \[4, 1\] of to are outside of the profile"):
        compiled.run({"x": X, "to": np.array((4, 1), np.int64)})
    with pytest.raises(RunError, match="its 2 as engine option shape-values=to=MIN:OPT:MAX"):
        create("tensorrt").compile(reshaping(), tmp_path)


def test_an_output_that_is_a_shape_is_written_to_host_memory(standin: Library):
    text = RELU.replace("(float[batch,4] y)", "(float[batch,4] y, int64[2] s)")
    running = execution(
        standin, parse_model(text.replace("{ [one]", "{ [size] s = Shape(x) [one]")), batches(1, 3)
    )
    for batch in (1, 3):
        found = running.run({"x": np.repeat(X, batch, 0)})
        assert (found["s"].tolist(), found["y"].shape) == ([batch, 4], (batch, 4))


CHOOSING = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8] x) => (int64[2,n] found, float[1,8] y) {
  [relu] y = Relu(x) [where] found = NonZero(y)
}
"""


def test_memory_of_outputs_whose_shape_the_data_decide_grows(standin: Library):
    running = execution(standin, parse_model(CHOOSING))
    for kept in (2, 0, 8, 3):
        x = np.array([[1] * kept + [-1] * (8 - kept)], np.float32)
        found = running.run({"x": x})
        assert found["found"].tolist() == [[0] * kept, list(range(kept))]
        assert found["y"].sum() == kept
    assert running._chosen_outputs.size == 2 * 8 * 8
    running.close()


def test_memory_that_is_not_there_for_such_an_output_is_told(
    standin: Library, monkeypatch: pytest.MonkeyPatch
):
    running = execution(standin, parse_model(CHOOSING))
    running.prepare({"x": np.ones((1, 8), np.float32)})

    def full(size: int) -> None:
        raise CudaError("cudaErrorMemoryAllocation", f"cudaMalloc({size})")

    monkeypatch.setattr(chosen_outputs, "DeviceBuffer", full)
    told = r"failed to run the engine: CUDA call cudaMalloc\(128\) failed"
    with pytest.raises(RunError, match=told):
        running.launch(running._stream)


def test_engines_that_choose_are_measured_and_told_apart(engine: TensorRtEngine, tmp_path: Path):
    compiled = engine.compile(parse_model(CHOOSING), tmp_path)
    x = {"x": np.array([[1, -1, 1, -1, 1, -1, 1, -1]], np.float32)}
    assert (engine.measure([compiled, compiled], x, 3) > 0).all()
    assert engine.conditions.captured == (False, False)  # Each launch waits for the GPU.
    assert compiled.memory_bytes(x) >= 2 * 4 * 8
    assert compiled.run(x)["found"].tolist() == [[0, 0, 0, 0], [0, 2, 4, 6]]


def test_the_profile_that_holds_the_values_is_taken(standin: Library):
    given = {"to": ((1, 4), (1, 4), (1, 4))}, {"to": ((2, 1), (2, 2), (4, 2))}
    running = execution(standin, reshaping(), {}, {}, values=given)
    for shape in ((1, 4), (4, 1), (2, 2)):
        found = running.run({"x": X, "to": np.array(shape, np.int64)})["y"]
        assert found.tolist() == X.reshape(shape).tolist()
    with pytest.raises(InputError, match=r"was not built for values \[8, 1\] of input 'to'"):
        running.run({"x": X, "to": np.array((8, 1), np.int64)})
