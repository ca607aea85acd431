"""The ranges of a run: which method each tensor takes, and what a study keeps of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.graph.text import parse_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.calibrated import Calibrated
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.trial_setup import set_up
from placer.recovery.destroyed_outputs import DESTROYED_NOISE, intact_choices
from placer.search.space import Choices
from tests.conftest import DIGITS
from tests.recovery.test_methods import TWO_HEADS, heavy_tailed


@pytest.fixture
def request_of_two_heads(tmp_path: Path) -> Request:
    onnx.save(parse_model(TWO_HEADS), tmp_path / "m.onnx")
    data = {"a": heavy_tailed(64, 0), "b": heavy_tailed(64, 100)}
    np.savez(tmp_path / "data.npz", **data)
    return Request(
        model=tmp_path / "m.onnx",
        output=tmp_path / "out",
        data=str(tmp_path / "data.npz"),
        engine="onnxruntime",
        gates=("sqnr>=1",),
        force=("op:Conv",),
    )


def test_a_run_mixes_methods_and_a_study_keeps_the_ranges(request_of_two_heads: Request):
    task = prepare(request_of_two_heads, QuietObserver())
    calibrated = set_up(task, QuietObserver()).calibrated
    part = calibrated.part
    assert (part.method, part.requested_method) == ("mixed", "auto")
    assert sum(part.tensors_by_method.values()) == len(calibrated.ranges)
    mixed, single = part.held_back_sqnr
    assert mixed > single + 1  # dB
    assert Calibrated.from_json(calibrated.to_json()) == calibrated


# A MaxPool, which copies its scale, in a model that was quantized behind the pool only.
HALF_QUANTIZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,16,16,16] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {0.1}, float[16,16,1,1] v = {0.1}, float scale = {0.03}, uint8 zero = {0}>
{
    [conv1] a = Conv(x, w)
    [relu] b = Relu(a)
    [pool] c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
    q = QuantizeLinear(c, scale, zero)
    d = DequantizeLinear(q, scale, zero)
    [conv2] y = Conv(d, v)
}
"""


def test_a_scale_that_a_model_has_is_kept_where_another_tensor_shares_it(tmp_path: Path):
    onnx.save(parse_model(HALF_QUANTIZED), tmp_path / "m.onnx")
    x = np.random.default_rng(0).random((16, 16, 16, 16), np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    request = Request(
        model=tmp_path / "m.onnx",
        output=tmp_path / "out",
        data=str(tmp_path / "data.npz"),
        engine="onnxruntime",
        gates=("sqnr>=1",),
        force=("op:Conv",),
    )
    task = prepare(request, QuietObserver())
    default = task.space.placement(task.space.defaults)
    groups = [{edge.tensor for edge in group.edges} for group in default.groups]
    assert {"b", "c"} in groups
    kept = task.model.imported.ranges(task.pack.manifest.scheme)
    assert kept.keys() == {"c"}
    assert set_up(task, QuietObserver()).ranges["c"] == kept["c"]


def test_a_method_that_is_asked_for_serves_all_tensors(request_of_two_heads: Request):
    task = prepare(replace(request_of_two_heads, calibration="mse"), QuietObserver())
    part = set_up(task, QuietObserver()).calibration
    assert (part.method, part.tensors_by_method, part.held_back_sqnr) == ("mse", {}, None)


def test_a_dead_default_is_thinned_out_from_the_noisiest_group_on(tmp_path: Path):
    request = Request(model=DIGITS / "digits.onnx", output=tmp_path / "out", engine="onnxruntime")
    space = prepare(request, QuietObserver()).space
    names = [group.name for group in space.groups if group.default != space.floats[group.name]]
    assert len(names) >= 3
    alone = dict.fromkeys(names, 10 * DESTROYED_NOISE)
    alone[names[0]], alone[names[2]] = 0.1 * DESTROYED_NOISE, 0.3 * DESTROYED_NOISE

    def noise(choices: Choices) -> float:
        changed = [name for name in names if choices[name] != space.floats[name]]
        return sum(alone[name] for name in changed)

    found = intact_choices(space, noise)
    kept = {name for name in names if found[name] != space.floats[name]}
    assert kept == {names[0], names[2]}
