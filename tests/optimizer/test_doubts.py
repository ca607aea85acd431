"""What speaks against a result is told in the terminal and in result.json."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.model import load_model
from placer.optimizer.setup.decisions import note_on_half_precision
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from tests.conftest import with_random_weights
from tests.optimizer.test_optimize import Placer

# The Relu lets nothing through where the bias is low, as in a network fed with values of 0 to 1
# instead of 0 to 255.
NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,16,16] x) => (float[1,8,16,16] y)
<float[8,3,3,3] w1 = {0.2}, float[8] b = {BIAS}, float[8,8,1,1] w2 = {0.2}, float[8] c = {1}> {
  [conv] a = Conv<pads = [1,1,1,1]>(x, w1, b)
  [relu] r = Relu(a)
  [head] y = Conv(r, w2, c)
}
"""
ASKED = ("--engine", "fusion-model", "--gpu", "a100", "--budget", 2, "--preset", "quick")
CONSTANT = (
    "the float model's outputs are the same on all 10 samples of x.npy, so they would say nothing "
    "about accuracy; check the data, how it is scaled, and the model"
)


@pytest.mark.parametrize(("bias", "code"), [("-1000", 2), ("1", 0)])
def test_outputs_that_do_not_depend_on_the_data_are_refused(placer: Placer, bias: str, code: int):
    onnx.save(with_random_weights(NET.replace("BIAS", bias)), "net.onnx")
    np.save("x.npy", np.random.default_rng(0).random((20, 3, 16, 16)).astype(np.float32))
    finished = placer("optimize", "net.onnx", "--data", "x.npy", *ASKED, "--no-cache", "-o", "out")
    assert finished.code == code, finished.err
    assert (CONSTANT in finished.err) == (code == 2)
    assert Path("out/optimized.onnx").exists() == (code == 0)


@pytest.mark.parametrize(
    "command",
    ["sensitivity net.onnx --data x.npy --no-cache", "eval net.onnx net.onnx --data x.npy"],
)
def test_other_commands_that_judge_accuracy_refuse_such_data_too(placer: Placer, command: str):
    onnx.save(with_random_weights(NET.replace("BIAS", "-1000")), "net.onnx")
    images = np.random.default_rng(0).random((20, 3, 16, 16), np.float32)
    for samples, said in (
        (images, "samples of x.npy, so they would say nothing about accuracy"),
        (0 * images, "all 20 samples of x.npy are the same, so they would say nothing of other"),
    ):
        np.save("x.npy", samples)
        words = command.split()
        estimated = ASKED[:4] if words[0] == "sensitivity" else ()
        finished = placer(*words, *estimated)
        assert finished.code == 2
        assert said in finished.err


@pytest.mark.parametrize("command", ["optimize", "bench", "sensitivity"])
def test_an_unknown_gpu_is_told_before_the_model_is_read(placer: Placer, command: str):
    Path("net.onnx").write_text("no model")
    finished = placer(command, "net.onnx", "--engine", "fusion-model", "--gpu", "l5")
    assert finished.code == 2
    assert finished.err.startswith("placer: error: unknown GPU 'l5'; use one of: a10, ")
    finished = placer(command, "net.onnx", "--gpu", "l4")
    assert "; engine auto measures them on this machine" in finished.err


def test_what_makes_the_accuracy_look_better_is_repeated_in_the_end(placer: Placer):
    """A conversion to float32 is told once."""
    onnx.save(with_random_weights(NET.replace("BIAS", "1")), "net.onnx")
    images = np.random.default_rng(0).random((20, 3, 16, 16))
    np.save("x.npy", images)
    np.save("y.npy", images[10:])
    data = ("--data", "x.npy", "--eval-data", "y.npy")
    finished = placer("optimize", "net.onnx", *data, *ASKED, "--no-cache", "-o", "out")
    assert finished.code == 0, finished.err
    assert "is float64 and was converted to float32" in " ".join(finished.out.split())
    (note,) = Result.read(Path("out")).evaluation.notes
    assert note.endswith("share 10 identical samples; the accuracy may look better than it is")
    summary = " ".join(finished.out[finished.out.index("on fusion-model") :].split())
    assert summary.count("data: ") == 1
    assert f"data: {note}" in summary


def test_a_model_that_no_run_wrote_is_not_overwritten(placer: Placer):
    onnx.save(with_random_weights(NET.replace("BIAS", "1")), "net.onnx")
    mine = Path("mine/optimized.onnx")
    mine.parent.mkdir()
    mine.write_bytes(b"of the user")
    finished = placer("optimize", "net.onnx", *ASKED, "--no-cache", "-o", "mine")
    assert finished.code == 2
    assert f"{mine} is there and no run of placer wrote it; move" in finished.err
    assert [path.read_bytes() for path in mine.parent.iterdir()] == [b"of the user"]


HALF_NET = """
    <ir_version: 9, opset_import: ["": 17]>
    g (TYPE[1,32] x, TYPE[32,32] w) => (TYPE[1,32] y) { y = MatMul(x, w) }
"""


@pytest.mark.parametrize(
    ("pack_name", "dtype", "told"),
    [
        ("onnxruntime", "float16", True),
        ("onnxruntime", "float", False),
        ("openvino", "float16", False),
    ],
    ids=["float16", "float", "OpenVINO"],
)
def test_half_precision_on_onnx_runtime_is_told(
    save: Callable[..., Path], pack_name: str, dtype: str, told: bool
):
    model = load_model(save(HALF_NET.replace("TYPE", dtype)))
    sites = find_sites(model.graph, load_pack("onnxruntime").rules)
    sentence = note_on_half_precision(sites, model, load_pack(pack_name))
    assert (sentence is not None and "give the float32 export" in sentence) is told
