"""OpenVINO sends no telemetry from placer: point 15 of the attacks."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import placer.engines.openvino.engine
from openvino.tools.ovc import telemetry_utils
print(telemetry_utils.tm.__name__, "openvino_telemetry" in sys.modules)
"""


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("", "openvino.tools.ovc.telemetry_stub False"),
        pytest.param("1", "openvino_telemetry True", marks=pytest.mark.slow),
    ],
)
def test_the_package_that_sends_events_is_not_there(variable: str, expected: str):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    pytest.importorskip("openvino_telemetry", reason="OpenVINO comes without telemetry")
    environment = {**os.environ, "PLACER_OPENVINO_TELEMETRY": variable}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
