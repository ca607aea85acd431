"""OpenVINO, imported so that it sends no telemetry."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

# If set, OpenVINO's own settings hold; see SECURITY.md.
KEEP_TELEMETRY = "PLACER_OPENVINO_TELEMETRY"
_PACKAGE = "openvino_telemetry"


def load_openvino() -> ModuleType:
    """The package ``openvino``.

    Without the package that sends telemetry, OpenVINO's tools take a stand-in of their own that
    sends nothing. So that one is made to look absent while they are imported.
    """
    if _PACKAGE in sys.modules or os.environ.get(KEEP_TELEMETRY):
        return importlib.import_module("openvino")
    sys.modules[_PACKAGE] = None  # type: ignore[assignment]  # As import's documentation has it.
    try:
        return importlib.import_module("openvino")
    finally:
        del sys.modules[_PACKAGE]
