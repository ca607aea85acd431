"""What callers of the Python API give instead of what a function takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placer
from placer.errors import InputError


@pytest.mark.parametrize(
    "call",
    [
        lambda data: placer.bench("net.onnx", data=data),
        lambda data: placer.evaluate("net.onnx", "quantized.onnx", data=data),
        lambda data: placer.extract_region("net.onnx", "part.onnx", around="conv", data=data),
        lambda data: placer.import_model("quantized.onnx", data=data),
        lambda data: placer.init_project("net.onnx", data=data),
        lambda data: placer.sensitivity("net.onnx", data=data),
    ],
    ids=["bench", "evaluate", "extract_region", "import_model", "init_project", "sensitivity"],
)
@pytest.mark.usefixtures("here")
def test_arrays_are_told_from_paths(call: Callable[[Any], object]):
    with pytest.raises(InputError, match=r"`data` is of type dict, which only placer\.optimize"):
        call({"x": np.zeros((4, 3), np.float32)})


@pytest.mark.usefixtures("here")
def test_paths_may_be_texts():
    with pytest.raises(InputError, match=r"^nowhere is not a folder"):
        placer.write_report("nowhere", "page.html")
    with pytest.raises(InputError, match="nowhere"):
        placer.write_comparison(["nowhere", "elsewhere"], "page.html")
    assert not Path("page.html").exists()


@pytest.mark.usefixtures("here")
def test_an_output_without_a_name_is_refused():
    for output in ("", "/"):
        with pytest.raises(InputError, match="give the file to write"):
            placer.import_model("quantized.onnx", output)
