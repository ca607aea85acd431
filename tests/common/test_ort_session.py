"""ONNX Runtime as every process of placer uses it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

from placer.common.ort_session import create_session, run_once
from placer.errors import RunError

SCRIPT = """
import os
import placer
print(os.environ.get("ORT_DISABLE_TELEMETRY", "on"))
import onnxruntime
onnxruntime.disable_telemetry_events = lambda: print("off")
import placer.model, placer.engines.onnxruntime, placer.engines.isolation.server
"""


@pytest.mark.parametrize(("variable", "expected"), [("", "1\noff"), ("1", "on")])
def test_telemetry_is_off_before_any_session(variable: str, expected: str):
    environment = {**os.environ, "PLACER_ONNXRUNTIME_TELEMETRY": variable}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


OVERFLOW = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1] x) => (float[a] y) <int64[1] size = {4611686018427387904}> { y = Expand (x, size) }
"""


IN_BFLOAT16 = """
<ir_version: 9, opset_import: ["": 17]>
g (bfloat16[1,2] x) => (bfloat16[1,2] y) <bfloat16[2,2] w = {1}> { [fc] y = Gemm (x, w) }
"""


def test_what_has_no_kernel_for_its_types_is_told_with_a_type_that_has_one():
    model = onnx.parser.parse_model(IN_BFLOAT16).SerializeToString()
    plain = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.raises(RunError, match=r"'fc', for it has none .*; export the model in float32"):
        create_session(model, Path(), threads=1, level=plain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "g (float[2] x) => (float16[2] y) { [r] y = RandomUniformLike <dtype=10> (x) }",
            r"RandomUniformLike\(1\) node with name 'r', for it has none for tensors of these "
            r"types, only for output in double or float; export the model in float32",
        ),
        (
            "g (uint8[a] x) => (uint8[b,c,d] y) { [r] y = ImageDecoder (x) }",
            "'r', for it has none of ImageDecoder for any type; replace the node by other",
        ),
    ],
)
def test_what_onnxruntime_has_of_an_operator_is_told(text: str, expected: str):
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    plain = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.raises(RunError, match=expected):
        create_session(model.SerializeToString(), Path(), threads=1, level=plain)


SIGNED_BY_UNSIGNED = """
<ir_version: 8, opset_import: ["": 17]>
g (int8[1,2,4,4] x, float s, int8 z, uint8[2,2,1,1] w, uint8 u) => (int8[1,2,4,4] y)
{ [conv] y = QLinearConv (x, s, z, w, s, u, s, z) }
"""


def test_quantized_types_without_a_kernel_are_told_to_be_quantized_anew():
    """ONNX Runtime issue 17330."""
    model = onnx.parser.parse_model(SIGNED_BY_UNSIGNED).SerializeToString()
    plain = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.raises(RunError, match=r"'conv', for it has none .*; quantize its float model"):
        create_session(model, Path(), threads=1, level=plain)


def test_errors_are_raised_and_not_printed(capfd: pytest.CaptureFixture[str]):
    model = onnx.parser.parse_model(OVERFLOW).SerializeToString()
    session = create_session(
        model, Path(), threads=1, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    with pytest.raises(RunError, match="ONNX Runtime failed to run the model"):
        run_once(session, None, {"x": np.ones(1, np.float32)})
    assert capfd.readouterr().err == ""


def test_errors_do_not_tell_where_in_onnxruntimes_sources_they_are_raised(tmp_path: Path):
    """Nor which file, which is a temporary one."""
    model = onnx.parser.parse_model(
        '<ir_version: 99, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    )
    with pytest.raises(RunError, match=r"FAIL : Unsupported model IR version: 99, max"):
        level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        create_session(model.SerializeToString(), Path(), threads=1, level=level)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(RunError, match=r"FAIL : Unsupported model IR version: 99, max"):
        create_session(tmp_path / "m.onnx", tmp_path, threads=1, level=level)
    product = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[a,b] x, float[c,d] z) => (float[a,d] y) { y = MatMul(x, z) }""")
    session = create_session(product.SerializeToString(), Path(), threads=1, level=level)
    inputs = {"x": np.ones((1, 5), np.float32), "z": np.ones((4, 5), np.float32)}
    with pytest.raises(RunError, match="Status Message: MatMul dimension mismatch"):
        run_once(session, None, inputs)
