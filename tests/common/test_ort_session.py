"""ONNX Runtime as every process of placer uses it."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import onnxruntime
onnxruntime.disable_telemetry_events = lambda: print("off")
import placer.model, placer.engines.onnxruntime, placer.engines.isolation.server
"""


@pytest.mark.parametrize(("variable", "expected"), [("", "off"), ("1", "")])
def test_telemetry_is_off_before_any_session(variable: str, expected: str):
    environment = {**os.environ, "PLACER_ONNXRUNTIME_TELEMETRY": variable}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
