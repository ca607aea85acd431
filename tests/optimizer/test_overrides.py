"""Overrides: what is pinned is what candidates, placement.yaml and what is applied from it have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

import placer
from placer.calibration.methods import METHODS
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.calibrated import calibration_of, ranges_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import set_up
from placer.optimizer.worker import request_json
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.quantization import Placement, Range, Scheme
from placer.quantization.overrides import Override
from placer.quantization.placement_file import load_placement, placement_text
from placer.results.result import Result
from tests.conftest import Finished

Placer = Callable[..., Finished]

# Two Convs, the second with a bias, whose outputs a Concat joins.
NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,8,8] x) => (float[1,8,8,8] y)
<float[4,4,1,1] w = {1}, float[4,4,1,1] v = {1}, float[4] bias = {0.5}>
{
    [first] a = Conv(x, w)
    [second] b = Conv(a, v, bias)
    [join] c = Concat<axis = 1>(a, b)
    [last] y = Relu(c)
}
"""
UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    proto = parse_model(NETWORK)
    for tensor in proto.graph.initializer[:2]:
        values = rng.normal(size=tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, tmp_path / "m.onnx")
    # One value in a thousand is large, so that every method finds another range.
    drawn = rng.normal(size=(8, 4, 8, 8))
    drawn[rng.random(drawn.shape) < 1e-3] *= 20
    np.savez(tmp_path / "data.npz", x=drawn.astype(np.float32))
    return tmp_path


def task_of(net: Path, *overrides: dict[str, Any] | str, **changes: Any) -> Task:
    given = {"engine": "onnxruntime", "calibration": "minmax", "preset": "quick", **changes}
    request = Request(
        model=net / "m.onnx",
        data=str(net / "data.npz"),
        overrides=tuple(map(Override.of, overrides)),
        **given,
    )
    return prepare(request, QuietObserver())


def ranges(net: Path, *overrides: dict[str, Any] | str) -> dict[str, Range]:
    task = task_of(net, *overrides)
    data = calibration_of(task, QuietObserver())
    return dict(ranges_of(task, data.whole, "minmax"))


def scales_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """By the float name of what is dequantized."""
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    found = [n for n in proto.graph.node if n.op_type == "DequantizeLinear"]
    return {node.output[0].split("/")[0]: constants[node.input[1]] for node in found}


# --- activations ----------------------------------------------------------------------------


def test_methods_and_ranges_are_pinned_by_name_glob_and_node(net: Path):
    plain = ranges(net)
    by_name = ranges(net, {"tensor": "x", "method": "percentile"})
    assert by_name["x"].high < plain["x"].high
    assert by_name["a"] == plain["a"]
    assert ranges(net, {"node": "first", "method": "percentile"})["x"] == by_name["x"]
    assert ranges(net, {"tensor": "?", "range": [-1, 2]})["x"] == Range(-1, 2)


def test_a_later_override_counts(net: Path):
    found = ranges(net, {"tensor": "*", "range": [-1, 1]}, {"tensor": "x", "range": [0, 2]})
    assert (found["x"], found["a"]) == (Range(0, 2), Range(-1, 1))


def test_a_scale_is_what_quantization_then_has(net: Path):
    pinned = {"tensor": "x", "scale": 0.25, "zero_point": 100}
    task = task_of(net, pinned)
    candidate = Inserter(task.model, UINT8).insert(
        Placement.of([Edge("x", "first", 0)]), task.pins.ranges
    )
    assert scales_of(candidate)["x"] == 0.25
    points = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    assert points["x/zero_point"] == 100


@pytest.mark.parametrize("pattern", ["x", "*"])
def test_what_is_pinned_takes_no_part_in_the_choice_of_methods(net: Path, pattern: str):
    task = task_of(net, {"tensor": pattern, "range": [-1, 1]}, calibration="auto")
    setup = set_up(task, QuietObserver())
    assert setup.ranges["x"] == Range(-1, 1)
    assert (setup.ranges["a"] == Range(-1, 1)) == (pattern == "*")
    assert "x: range -1 to 1" in setup.calibration.pinned
    compared = [value for value in setup.calibration.sqnr_by_method.values() if value is not None]
    assert len(compared) == (0 if pattern == "*" else len(METHODS))


# --- weights --------------------------------------------------------------------------------


def test_weights_have_one_scale_where_that_is_pinned(net: Path):
    model = load_model(net / "m.onnx")
    edges = [Edge("x", "first", 0), Edge("w", "first", 1), Edge("a", "second", 0)]
    fine = Placement.of([*edges, Edge("v", "second", 1)])
    coarse = fine.with_weights(frozenset({Edge("v", "second", 1), Edge("v", "other", 1)}))
    assert coarse.per_tensor == {Edge("v", "second", 1)}
    assert coarse != fine
    assert coarse.id != fine.id
    inserter = Inserter(model, UINT8)
    given = {"x": Range(-1, 1), "a": Range(-1, 1)}
    for placement, shape in ((fine, (4,)), (coarse, ()), (fine, (4,))):
        found = scales_of(inserter.insert(placement, given))
        assert (found["w"].shape, found["v"].shape) == ((4,), shape)
        # The bias is added at the product of both scales.
        assert found["bias"].shape == (4,) if shape else found["bias"].size in (1, 4)
    largest = np.abs(numpy_helper.to_array(model.graph.initializers["v"])).max()
    found = scales_of(inserter.insert(coarse, given))
    assert found["v"] == pytest.approx(largest / 127)


def test_changes_of_a_placement_keep_its_weights():
    one, two = Edge("v", "second", 1), Edge("a", "second", 0)
    coarse = Placement.of([one]).with_weights(frozenset({one}))
    both = Placement.of([one, two]).with_weights(frozenset({one}))
    change = coarse.change_to(both)
    assert coarse.changed(change) == both
    assert coarse.id_after(change) == both.id


def test_per_channel_takes_back(net: Path):
    whole = {"node": "op:Conv", "weights": "per-tensor"}
    assert {e.node for e in task_of(net, whole).pins.per_tensor} == {"first", "second"}
    some = task_of(net, whole, {"tensor": "w", "weights": "per-channel"})
    assert {e.node for e in some.pins.per_tensor} == {"second"}
    every = some.space.placement(some.space.everything)
    assert every.per_tensor == some.pins.per_tensor


# --- files ----------------------------------------------------------------------------------


def test_placement_files_carry_pins(net: Path):
    graph = load_model(net / "m.onnx").graph
    edges = [Edge("x", "first", 0), Edge("w", "first", 1)]
    placement = Placement.of(edges).with_weights(frozenset(edges[1:]))
    text = placement_text(
        placement,
        {"x": Range(-1, 1)},
        UINT8,
        model="m",
        pack="p 1",
        calibrated=True,
        pinned={"x": "range"},
    )
    (net / "placement.yaml").write_text(text)
    assert load_placement(net / "placement.yaml", graph) == placement
    groups = yaml.safe_load(text)["groups"]
    assert [group.get("pinned") for group in groups] == [None, "range"]


@pytest.mark.slow
def test_a_project_file_pins_and_the_run_tells_it(request: pytest.FixtureRequest, net: Path):
    program: Placer = request.getfixturevalue("placer")
    Path("placer.yaml").write_text(
        f"model: {net / 'm.onnx'}\ndata: {net / 'data.npz'}\n"
        "engine: fusion-model\ngpu: l4\npreset: quick\nbudget: 2\ngates: sqnr>=1\n"
        "overrides:\n  - {tensor: x, range: [-3, 3]}\n  - {node: first, weights: per-tensor}\n"
    )
    finished = program("optimize", "--no-cache", "--output", "out")
    assert finished.came_to_a_result, finished.err
    found = Result.read(Path("out"))
    told = ["w: one scale for the weight", "x: range -3 to 3"]
    assert found.calibration.pinned == told
    assert "--override tensor=x,range=-3.0:3.0" in found.command
    assert "; ".join(told) in Path("out/report.html").read_text()
    changed = program(
        "optimize", "--no-cache", "--output", "out", "--override", "tensor=x,method=mse"
    )
    assert changed.code == 2
    assert "holds a study with other settings (overrides: " in changed.err


def test_engines_that_read_candidates_find_the_weights(net: Path):
    model = load_model(net / "m.onnx")
    edges = [Edge("x", "first", 0), Edge("w", "first", 1)]
    placement = Placement.of(edges).with_weights(frozenset(edges))
    candidate = Inserter(model, UINT8).insert(placement, {"x": Range(-1, 1)})
    assert extract_placement(candidate).placement.edges == set(edges)


def test_apply_keeps_what_is_pinned(net: Path):
    graph = load_model(net / "m.onnx").graph
    edges = [Edge("x", "first", 0), Edge("w", "first", 1), Edge("a", "second", 0)]
    placement = Placement.of(edges).with_weights(frozenset(edges[1:2]))
    text = placement_text(
        placement,
        {"x": Range(-3, 3), "a": Range(-1, 1)},
        UINT8,
        model="m",
        pack="onnxruntime 1",
        calibrated=True,
        graph=graph,
        pinned={"x": "range"},
    )
    (net / "placement.yaml").write_text(text)
    found = placer.apply_placement(
        net / "placement.yaml",
        net / "m.onnx",
        data=net / "data.npz",
        output=net / "applied",
        cache=False,
    )
    assert found.scales.ranges["x"] == Range(-3, 3)
    assert found.scales.ranges["a"] != Range(-1, 1)
    assert scales_of(onnx.load(net / "applied" / "optimized.onnx"))["w"].shape == ()
    again = yaml.safe_load((net / "applied" / "placement.yaml").read_text())
    assert {group.get("pinned") for group in again["groups"]} == {None, "range"}
    explained = placer.explain(net / "m.onnx", net / "applied" / "placement.yaml")
    assert sorted(explained.pinned) == ["w: one scale for the weight", "x: range -3 to 3"]


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("tensor=xx,method=minmax", "'tensor xx', field 'tensor': no rule quantizes such a tensor"),
        ("node=nothing,method=minmax", "'nothing' selects no node of the model"),
        ("tensor=w,method=minmax", "field 'method': it is about a quantized activation"),
        ("tensor=x,weights=per-tensor", "field 'weights': it is about a quantized weight"),
        ("tensor=x,range=1:2", "range [1, 2] does not hold zero"),
        ("tensor=x,range=2:-2", "range [2, -2] does not hold zero"),
        ("tensor=x,scale=-1", "scale: Input should be greater than 0"),
        ("tensor=x,scale=0.1", "field 'zero_point': with a scale give one of 0 to 255"),
        ("tensor=x,range=-1:1,method=mse", "method and range exclude each other"),
        ("tensor=x", "nothing is pinned; give method, range, scale or weights"),
        ("tensor=x,node=first,method=mse", "give either tensor or node"),
        ("method=mse", "give either tensor or node"),
        ("x", "'x' is not KEY=VALUE"),
        ("conv1=minmax", "unknown key 'conv1'; use one of: tensor, node, method, range, scale, z"),
        ("metod=mse,tensor=x", "zero_point, weights; did you mean 'method'?"),
        ("tensor=a,range=-1:1", "tensor 'a' shares its scale with 'b'; pin both alike"),
    ],
)
def test_what_cannot_be_pinned_is_refused_in_a_sentence(net: Path, override: str, expected: str):
    with pytest.raises(InputError) as error:
        task_of(net, override)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_joined_tensors_are_pinned_alike(net: Path):
    task = task_of(net, {"tensor": "[abc]", "range": [-1, 1]})
    assert set(task.pins.ranges) >= {"a", "b"}


def test_symmetric_packs_need_no_zero_point(net: Path):
    changes = {"engine": "fusion-model", "gpu": "l4"}
    task = task_of(net, "tensor=x,scale=0.5", **changes)
    assert task.pins.ranges["x"] == Range(-63.5, 63.5)
    with pytest.raises(InputError, match="field 'zero_point': this pack's activations have"):
        task_of(net, "tensor=x,scale=0.5,zero_point=0", **changes)


def test_texts_and_json_hold_everything(net: Path):
    text = "tensor=a,b*,range=-1.5:2.0"
    assert str(Override.of(text)) == text
    task = task_of(net, "node=op:Conv,weights=per-tensor")
    (kept,) = json.loads(json.dumps(request_json(task.request)))["overrides"]
    assert Override.of(kept) == task.request.overrides[0]
    assert set(METHODS) == {"minmax", "percentile", "entropy", "mse"}
