"""What is said of an engine whose library does not start."""

from pathlib import Path

import pytest

from placer.engines.doctor import _start_failure


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "it ends the process (exit code 3)"),
        ("import os; os._exit(0)", "it ends the process (exit code 0)"),
        (
            "raise ImportError('libopenvino.so:\\nno such file')",
            "ImportError: libopenvino.so: no such file",
        ),
    ],
)
def test_a_library_that_does_not_start_is_named_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, reason: str
):
    (tmp_path / "openvino.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert _start_failure("openvino") == f"its library does not start: {reason}; install it again"
