"""Files of ONNX Runtime's quantizer in types that its kernels do not read, explained as built."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from placer.engines.explanation import explain
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph.text import parse_model
from tests.prediction.test_onnxruntime_plans import varied
from tests.prediction.test_openvino_plans import layers

TEXT = """
<ir_version: 9, opset_import: ["": OPSET]>
g (float[1,8,8,8] x) => (float[1,10] y)
<float[16,8,3,3] w = {1}, float[16] b = {1}, float[16,10] f = {1}, int64[2] flat = {1, 16}> {
  [conv] c = Conv(x, w, b)
  [sig] s = Sigmoid(c)
  [pool] p = GlobalAveragePool(s)
  [view] v = Reshape(p, flat)
  [fc] y = MatMul(v, f)
}
"""
WIDE = {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt8}
NARROW = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt4}
FINE = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt16}


class _Images(CalibrationDataReader):
    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self._left: Iterator[dict[str, np.ndarray]] = iter(
            [{"x": draw.normal(size=(1, 8, 8, 8)).astype(np.float32)}]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


@pytest.mark.parametrize(
    ("options", "opset", "integers"),
    [
        (WIDE, 17, {"uint16": {"view"}}),
        (WIDE, 21, {"uint16": {"view"}}),
        (NARROW, 21, {"uint8": {"sig", "pool", "view"}}),
        (FINE, 21, {"uint8": {"sig", "pool", "view"}}),
    ],
    ids=["ONNX Runtime's own pairs of 16 bits", "16 bits", "weights of 4 bits", "of 16 bits"],
)
def test_what_kernels_do_not_read_is_read_in_float(
    options: Mapping[str, QuantType], opset: int, integers: Mapping[str, set[str]], tmp_path: Path
):
    path = tmp_path / "model.onnx"
    onnx.save(varied(parse_model(TEXT.replace("OPSET", str(opset)))), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", path, _Images(), **options)
    built = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).plan()
    predicted = explain(path, pack="onnxruntime").explanation.plan
    assert layers(predicted) == layers(built)
    for dtype, nodes in integers.items():
        found = [x.nodes for x in predicted.of_kind("compute") if x.output_types == (dtype,)]
        assert {name for names in found for name in names} == nodes
