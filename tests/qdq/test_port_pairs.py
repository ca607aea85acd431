"""Models whose inputs and outputs are integers of a pair: imported, placed, written, judged."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime as ort
import pytest

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.gates import Gate
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph.port_arithmetic import integer_ports
from placer.graph.text import parse_model
from placer.importing.source_model import Source
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range, Scheme
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from tests.accuracy.test_gates import Batch

SCHEME = load_pack("onnxruntime").manifest.scheme
SYMMETRIC = Scheme(activation="int8", symmetric=True, bias="float")
# As TFLite's models are by tf2onnx, or ONNX Runtime's without the Q and DQ at their edges.
TEXT = """
<ir_version: 9, opset_import: ["": 17]>
g (TYPE[2,4,8,8] x) => (TYPE[2,4,8,8] y)
<float s = {0.05}, TYPE z = {ZERO}, float t = {0.1}, TYPE v = {ZERO}, float[4,4,1,1] w = {0.5}> {
  [dq] d = DequantizeLinear(x, s, z)
  BODY
  [q] y = QuantizeLinear(r, t, v)
}
"""
CONV = "[conv] r = Conv(d, w)"
Make = Callable[..., Model]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Loads ``TEXT`` with a body, a type and a zero point."""

    def make(body: str = CONV, dtype: str = "uint8", zero: int = 120) -> Model:
        text = TEXT.replace("BODY", body).replace("TYPE", dtype).replace("ZERO", str(zero))
        path = tmp_path / "quantized.onnx"
        onnx.save(parse_model(text), path)
        return load_model(path)

    return make


def candidate(model: Model, placement: Placement | None = None, scheme: Scheme = SCHEME):
    """A candidate of the imported placement, or of another one, checked."""
    imported = model.imported
    assert imported is not None
    chosen = imported.placement if placement is None else placement
    proto = Inserter(model, scheme).insert(chosen, imported.ranges(scheme))
    onnx.checker.check_model(proto, full_check=True)
    names = {name for node in proto.graph.node for name in node.input}
    assert {tensor.name for tensor in proto.graph.initializer} <= names
    return proto


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def run(proto: onnx.ModelProto, values: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": values})
    return found


def image(dtype: str = "uint8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max + 1, (2, 4, 8, 8)).astype(dtype)


def test_the_imported_placement_reads_and_writes_integers_as_the_file_does(made: Make):
    model = made()
    proto = candidate(model)
    assert operators(proto) == ["DequantizeLinear", "Conv", "QuantizeLinear"]
    assert proto.graph.node[0].input[0] == "x"
    assert proto.graph.node[-1].output[0] == "y"
    np.testing.assert_array_equal(run(proto, image()), run(onnx.load(model.path), image()))
    plan = OnnxRuntimeEngine().compile(candidate(made(CONV, zero=128)), model.base_dir).plan()
    assert {port for layer in plan.layers for port in layer.output_types} == {"uint8"}


def test_integers_are_dequantized_by_one_node_for_readers_in_float(made: Make):
    proto = candidate(made(), EMPTY)
    assert operators(proto) == ["DequantizeLinear", "Conv", "QuantizeLinear"]
    np.testing.assert_array_equal(run(proto, image()), run(onnx.load(made().path), image()))


def test_what_is_read_inside_as_well_is_quantized_once(made: Make):
    model = made(
        "[conv] c = Conv(d, w) [q1] i = QuantizeLinear(c, t, v) [d1] e = DequantizeLinear(i, t, v) "
        "[pool] r = MaxPool<kernel_shape = [1, 1]>(e)"
    )
    proto = candidate(model)
    written = [n.output[0] for n in proto.graph.node if n.op_type == "QuantizeLinear"]
    assert len(written) == 2 and written[-1] == "y"
    np.testing.assert_array_equal(run(proto, image()), run(onnx.load(model.path), image()))


def test_symmetric_schemes_get_no_pair_with_a_zero_point(made: Make):
    """TensorRT takes int8 with zero point 0 alone."""
    left = operators(candidate(made(), EMPTY, SYMMETRIC))
    assert "QuantizeLinear" not in left and "DequantizeLinear" not in left
    model = made(CONV, "int8", 0)
    proto = candidate(model, None, SYMMETRIC)
    assert operators(proto) == ["DequantizeLinear", "Conv", "QuantizeLinear"]
    np.testing.assert_array_equal(
        run(proto, image("int8")), run(onnx.load(model.path), image("int8"))
    )


def test_arithmetic_with_a_pair_inside_stays(made: Make):
    model = made()
    port = next(port for port in integer_ports(model.graph) if port.is_input)
    inside = model.graph.edges_of(port.nodes[0].outputs[0])
    ranges = {inside[0].tensor: Range(-120.0, 135.0)}
    proto = Inserter(model, SCHEME).insert(Placement.of(inside), ranges)
    onnx.checker.check_model(proto, full_check=True)
    assert operators(proto)[:3] == ["Cast", "QuantizeLinear", "DequantizeLinear"]


def test_no_site_is_in_the_arithmetic(made: Make):
    sites = find_sites(made().graph, load_pack("onnxruntime").rules)
    assert [site.match.anchor.name for site in sites] == ["conv"]


def test_quantized_outputs_are_compared_by_what_they_stand_for(made: Make):
    """One step away everywhere is noise of a size, not 0% agreement."""
    model = made()
    batches = [Batch({"x": image()})]
    reference = {"y": np.full((2, 4, 8, 8), 130, np.uint8)}
    judge = Evaluator(model.graph, (Gate.parse("sqnr>=15"),), batches, lambda _: reference)
    found = judge.evaluate(lambda _: {"y": reference["y"] + np.uint8(1)})
    assert found.gates[0].value == pytest.approx(20.0, abs=1e-4)
    assert found.metrics["max_abs y"] == pytest.approx(0.1)


def test_a_file_without_float_outputs_is_compared_with_its_float_model(made: Make):
    model = made()
    source = Source.of(model)
    float_model = ort.InferenceSession(model.proto.SerializeToString())
    names = [value.name for value in model.proto.graph.output]
    compared = source.compared(
        lambda inputs: dict(zip(names, float_model.run(names, dict(inputs)), strict=True)),
        [{"x": image()}],
    )
    assert compared is not None and compared.sqnr > 30


def test_symmetric_int8_that_is_never_negative_begins_at_zero(made: Make):
    """Its zero point is the lowest value then, without which ONNX Runtime keeps a Relu apart."""
    body = (
        "[conv] c = Conv(d, w) [relu] a = Relu(c) [q1] i = QuantizeLinear(a, t, v) "
        "[d1] e = DequantizeLinear(i, t, v) [conv2] r = Conv(e, w)"
    )
    imported = made(body, "int8", 0).imported
    assert imported is not None
    assert imported.ranges(SCHEME)["a"] == pytest.approx((0.0, 12.7))
    assert imported.ranges(SYMMETRIC)["a"] == pytest.approx((-12.7, 12.7))
