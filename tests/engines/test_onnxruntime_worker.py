"""Engine ``onnxruntime`` in its worker process: what would end or hang a search is a failed trial.

Point 7 of the attacks: loops and tensors whose size only the data tells, and point 8: memory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from placer.engines.base import Engine
from placer.engines.isolation import IsolatedEngine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.onnxruntime.factory import IN_PROCESS
from placer.engines.select import select_engine
from placer.errors import InputError, RunError
from placer.graph.text import parse_model
from placer.results.result import Result

CONV = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,3,3] w = {0.1}> {
  c = Conv <pads = [1, 1, 1, 1]> (x, w)
  y = Relu(c)
}
"""
# How often the loop runs, and how large the tensor becomes, depends on the data.
LOOP = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x, int64[1] n) => (float[1,4] y) <bool yes = {1}> {
  z = Loop(n, yes, x) <body = b (int64 i, bool c, float[1,4] a) => (bool d, float[1,4] e) {
    d = Identity(c)
    e = Neg(a)
  }>
  y = Relu(z)
}
"""
EXPAND = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1] x, int64[1] n) => (float[1] y) {
  e = Expand(x, n)
  y = ReduceSum(e)
}
"""


def inputs(proto: onnx.ModelProto, n: int) -> dict[str, np.ndarray]:
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.ones(shape, np.float32), "n": np.array([n])}


def engine() -> Engine:
    return select_engine("onnxruntime", threads=1)[0]


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The engine as users have it, and its logs in a folder of the test's own."""
    monkeypatch.delenv(IN_PROCESS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PLACER_MAX_RUN_S", "1")
    yield


@pytest.mark.usefixtures("isolated")
def test_by_default_the_engine_lives_in_a_process_of_its_own_that_starts_with_a_model():
    made = engine()
    assert isinstance(made, IsolatedEngine)
    assert (made.device, made.clock) == (OnnxRuntimeEngine().device, OnnxRuntimeEngine().clock)
    assert not _children()


@pytest.mark.slow
@pytest.mark.usefixtures("isolated")
def test_bombs_in_candidates_end_in_a_sentence_and_the_engine_works_on():
    loop, expand = parse_model(LOOP), parse_model(EXPAND)
    made = engine()
    looping, expanding = made.compile(loop, Path()), made.compile(expand, Path())
    with pytest.raises(RunError, match=r"took more than 1 s; set PLACER_MAX_RUN_S=10 if"):
        looping.run(inputs(loop, 2**40))
    with pytest.raises(RunError, match=r"needs more than 2 GiB .* PLACER_MAX_RUN_BYTES=8589934592"):
        expanding.run(inputs(expand, 2**33))
    with pytest.raises(RunError, match="took more than 1 s"):
        made.measure([looping], inputs(loop, 2**40), 1)
    assert looping.run(inputs(loop, 3))["y"].tolist() == [[0.0] * 4]
    assert expanding.run(inputs(expand, 3))["y"].tolist() == [3.0]


@pytest.mark.slow
@pytest.mark.usefixtures("isolated")
def test_a_search_runs_in_the_worker_and_leaves_no_log(
    placer: Callable[..., Any], save: Callable[..., Path], tmp_path: Path
):
    model = save(CONV)
    options = ("--budget", 3, "--preset", "quick", "--gate", "sqnr>=5", "--no-cache")
    ended = placer("optimize", model, "--engine", "onnxruntime", *options, "-o", "out")
    assert ended.code == 0, ended.err
    assert Result.read("out").trials
    assert not list((tmp_path / "state").rglob("*.log"))


@pytest.mark.usefixtures("isolated")
def test_a_worker_that_dies_fails_one_run_at_most():
    made = engine()
    proto = parse_model(EXPAND)
    others = set(_children())
    compiled = made.compile(proto, Path())
    compiled.run(inputs(proto, 2))
    (child,) = set(_children()) - others
    os.kill(child, signal.SIGKILL)
    with suppress(RunError):  # Unless it was replaced before, this run says that it crashed.
        compiled.run(inputs(proto, 2))
    assert compiled.run(inputs(proto, 2))["y"].tolist() == [2.0]


def _children() -> list[int]:
    """Processes of ONNX Runtime's workers that this process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"placer.engines.isolation.server" in command:
            found.append(int(stat.parent.name))
    return found


def test_a_float_model_that_loops_for_ever_ends_the_run_in_one_sentence(
    placer: Callable[..., Any], save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLACER_MAX_RUN_S", "1")
    bomb = CONV.replace(
        "y = Relu(c)",
        """m = ReduceMax <keepdims = 0> (x)
  big = Mul(m, e30)
  n = Cast <to = 7> (big)
  y = Loop(n, yes, c) <body = b (int64 i, bool k, float[1,16,8,8] a)
    => (bool d, float[1,16,8,8] e) {
    d = Identity(k)
    e = Relu(a)
  }>""",
    ).replace("= {0.1}", "= {0.1}, float e30 = {1000000000000000.0}, bool yes = {1}")
    ended = placer("optimize", save(bomb), "--engine", "onnxruntime", "--budget", 2, "-o", "out")
    assert ended.code == 1
    assert "took more than 1 s; set PLACER_MAX_RUN_S=10 if that is meant" in ended.err
    assert not Path("out").exists()


@pytest.mark.parametrize("base", ["float16", "bfloat16"])
def test_onnx_runtime_takes_no_base(
    base: str, placer: Callable[..., Any], save: Callable[..., Path]
):
    ended = placer("optimize", save(CONV), "--engine", "onnxruntime", "--base", base, "-o", "out")
    assert ended.code == 2
    assert f"ONNX Runtime takes no --base, here {base}" in ended.err
    assert not Path("out").exists()
    with pytest.raises(InputError, match="takes no `base`"):
        select_engine("onnxruntime", threads=1, base=base)


def test_types_of_inputs_and_outputs_are_converted_by_a_base_only(
    placer: Callable[..., Any], save: Callable[..., Path]
):
    ended = placer("optimize", save(CONV), "--engine", "onnxruntime", "--io-type", "convert")
    assert ended.code == 2
    assert "--io-type convert" in ended.err
    on_gpu = ("--engine", "fusion-model", "--gpu", "a100", "--base", "float")
    assert placer("optimize", save(CONV), *on_gpu, "--io-type", "convert").code == 2
