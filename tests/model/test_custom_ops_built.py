"""A library of custom operators compiled here goes through every command that runs models.

ONNX Runtime's wheels bring no headers: they are looked for in the folder of the environment
variable ONNXRUNTIME_INCLUDE, and where Linux distributions put them.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.results.result import Result
from tests.conftest import Finished

Placer = Callable[..., Finished]

HEADER = "onnxruntime_c_api.h"
FOLDERS = ("/usr/include/onnxruntime", "/usr/local/include/onnxruntime")
SOURCE = Path(__file__).with_name("custom_op.cc")
NETWORK = """
<ir_version: 8, opset_import: ["": 17, "tests.ops": 1]>
g (float[N,4,8,8] x) => (float[N,4,8,8] y)
<float[4,4,1,1] w = {0.5}, float[4,4,1,1] v = {0.25}> {
  [first] a = Conv(x, w)
  [custom] b = tests.ops.SoftClip(a)
  [second] c = Conv(b, v)
  [sum] y = Add(c, a)
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folders = (os.environ.get("ONNXRUNTIME_INCLUDE", ""), *FOLDERS)
    include = next((f for f in folders if f and Path(f, HEADER).is_file()), None)
    compiler = shutil.which("g++")
    if include is None or compiler is None:
        pytest.skip(f"no {HEADER} (set ONNXRUNTIME_INCLUDE) or no g++")
    path = tmp_path / "libops.so"
    flags = ["-std=c++17", "-shared", "-fPIC", "-O1", f"-I{include}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(path)], check=True)
    return path


@pytest.mark.slow
def test_every_command_runs_a_model_with_the_operator(
    save: Callable[..., Path], library: Path, placer: Placer
):
    model, ops = save(NETWORK), ("--custom-ops", library)
    x = np.random.default_rng(0).standard_normal((16, 4, 8, 8)).astype(np.float32)
    np.savez("data.npz", x=x)
    data, engine = ("--data", "data.npz"), ("--engine", "onnxruntime")

    refused = placer("optimize", model, *data)
    assert refused.code == 2
    assert "operator SoftClip of the unknown domain 'tests.ops'" in refused.err

    def done(*words: object) -> Finished:
        finished = placer(*words, *ops)
        assert finished.code == 0, (words, finished.err)
        return finished

    done("optimize", model, *data, *engine, "--budget", 3, "-o", "out", "--no-cache")
    result = Result.read("out")
    (default,) = (trial for trial in result.trials if trial.kind == "default")
    assert default.state == "complete"
    assert [gate.passed for gate in default.gates] == [True]

    done("explain", model, "--pack", "onnxruntime")
    done("explain", model, "--gpu", "l4", "--improved", "all.yaml")
    done("apply", "all.yaml", model, *data, "--base", "float", "-o", "applied")
    quantized = Path("applied/optimized.onnx")
    ops_there = [node.op_type for node in onnx.load(quantized).graph.node]
    assert {"SoftClip", "QuantizeLinear"} <= set(ops_there)

    assert "sqnr" in done("eval", model, quantized, *data).out
    done("bench", model, quantized, "--rounds", 3, *engine)
    done("sensitivity", model, *data, *engine, "--by", "rule", "--samples", 2, "--no-cache")
    done("import", quantized, "-o", "float.onnx")
    assert "SoftClip" in [node.op_type for node in onnx.load("float.onnx").graph.node]
    done("export-qat", "applied/placement.yaml", model)
    done("extract", model, "--around", "custom", "-o", "region.onnx", *data)
    assert "SoftClip" in [node.op_type for node in onnx.load("region.onnx").graph.node]
