"""The method of each tensor, on networks of which it is known what each method does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from placer.accuracy.evaluator import Evaluator
from placer.calibration.collect import METHODS, calibrate
from placer.calibration.dataset import Dataset, load_dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from placer.recovery.crossfit import CrossFit, Fold, score
from placer.recovery.halves import calibrate_halves
from placer.recovery.methods import Effort, choose, noisiest_of, rank
from placer.recovery.simulation import Simulation

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")
# Two heads: rare large values of `a` reach `whole`, those of `b` are cut off before `bounded`.
TWO_HEADS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,32,32] a, float[1,2,32,32] b) => (float[1,4,32,32] whole, float[1,4,32,32] bounded)
<float[4,2,1,1] w = {1, 0.5, -1, 0.25, 0.75, 1, 0.5, -0.5}, float[4] bias = {0, 0.1, 0.2, 0},
 float low = {-1}, float high = {1}>
{
    [conv_a] whole = Conv(a, w, bias)
    [conv_b] y = Conv(b, w, bias)
    [clip] bounded = Clip(y, low, high)
}
"""


def network(folder: Path, text: str = TWO_HEADS) -> Model:
    onnx.save(parse_model(text), folder / "m.onnx")
    return load_model(folder / "m.onnx")


def heavy_tailed(samples: int, seed: int) -> np.ndarray:
    """Small values, one in two hundred of them thirty times as large."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.3, (samples, 2, 32, 32))
    return np.where(rng.random(values.shape) < 5e-3, 30 * values, values).astype(np.float32)


def data_of(model: Model, folder: Path, samples: int, seed: int = 0) -> Dataset:
    path = folder / f"data{seed}.npz"
    np.savez(path, a=heavy_tailed(samples, seed), b=heavy_tailed(samples, seed + 100))
    return load_dataset(str(path), model)


def everything(model: Model) -> Placement:
    """All inputs of weighted nodes."""
    reads = [model.graph.edges_into(node) for node in model.graph.by_op["Conv"]]
    return Placement.of(edge for edges in reads for edge in edges[:2])


def crossfit(model: Model, data: Dataset, scheme: Scheme, batches: int = 8) -> CrossFit:
    split = calibrate_halves(model, ["a", "b"], data, data, batches)
    reference = OnnxRuntimeModel(model.proto, model.base_dir, 1).run
    folds = [
        Fold(
            {name: half.calibration.ranges(name, scheme) for name in METHODS},
            {},
            [Evaluator(model.graph, (), batch, reference) for batch in half.batches],
        )
        for half in split.halves
    ]
    inserter, placement = Inserter(model, scheme), everything(model)
    ranges = split.whole.ranges("minmax", scheme)
    alone = Placement.of(edge for edge in placement.edges if not inserter.is_weight(edge))
    single = Simulation(inserter, alone, ranges, switched=True)
    return CrossFit(Simulation(inserter, placement, ranges), single, folds)


@pytest.mark.parametrize("scheme", [INT8, UINT8], ids=["int8", "uint8"])
@pytest.mark.parametrize("switched", [False, True], ids=["plain", "switched"])
def test_a_simulation_computes_what_the_candidate_does(
    tmp_path: Path, scheme: Scheme, switched: bool
):
    model = network(tmp_path)
    inserter, placement = Inserter(model, scheme), everything(model)
    start = {"a": Range(-9, 9), "b": Range(-9, 9)}
    simulation = Simulation(inserter, placement, start, switched=switched)
    assert "_session" not in vars(simulation)  # It holds all weights: not before it runs.
    ranges = {"a": Range(-1.5, 2.0), "b": Range(0.0, 0.7)}
    (sample,) = data_of(model, tmp_path, 1)
    candidate = inserter.insert(placement, ranges)
    expected = OnnxRuntimeModel(candidate, model.base_dir, 1, optimized=False).run(sample.inputs)
    for name, values in simulation.run(ranges)(sample.inputs).items():
        np.testing.assert_allclose(
            values, expected[name], atol=2e-4
        )  # An int32 bias keeps its scale.


@pytest.mark.parametrize("name", ["a/scale/on", "a/scale_1", "simulation:on", "simulation:0"])
def test_no_name_of_the_network_disturbs_a_simulation(tmp_path: Path, name: str):
    model = network(tmp_path, TWO_HEADS.replace(" y", f' "{name}"').replace("(y", f'("{name}"'))
    assert name in model.graph.producer
    ranges = {"a": Range(-1.5, 2.0), "b": Range(0.0, 0.7)}
    alone = Placement.of([Edge("a", "conv_a", 0), Edge("b", "conv_b", 0)])
    simulation = Simulation(Inserter(model, INT8), alone, ranges, switched=True)
    (sample,) = data_of(model, tmp_path, 1)
    float_outputs = OnnxRuntimeModel(model.proto, model.base_dir, 1).run(sample.inputs)
    outputs = simulation.run(ranges, only=["b"])(sample.inputs)
    np.testing.assert_array_equal(outputs["whole"], float_outputs["whole"])
    assert (outputs["bounded"] != float_outputs["bounded"]).any()


def test_a_batch_is_run_once_with_the_same_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 8), INT8)
    minmax, runs = fit.everywhere("minmax"), []
    run = Simulation._run

    def counted(self: Simulation, *given: Any) -> dict[str, np.ndarray]:
        runs.append(self)
        return run(self, *given)

    monkeypatch.setattr(Simulation, "_run", counted)
    first = fit.noises_alone(minmax, [0], ["a"])
    assert len(runs) == len(fit.folds)
    # The ranges of tensors that stay float change nothing.
    assert fit.noises_alone({**minmax, "b": "mse"}, [0], ["a"]) == first
    assert len(runs) == len(fit.folds)
    for tensors, batch in ((["b"], 0), (["a"], 1)):
        assert fit.noises_alone(minmax, [batch], tensors) != first
    assert len(runs) == 3 * len(fit.folds)
    assert fit.noises(minmax, [0]) != first
    assert len(runs) == 4 * len(fit.folds)


def test_groups_beyond_one_split_have_ranges_of_their_own(tmp_path: Path):
    nodes = "".join(f"[relu{i}] t{i + 1} = LeakyRelu(t{i}) " for i in range(40))
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,4] t0) => (float[1,4] t40) {{ {nodes} }}
    """
    model = network(tmp_path, text)
    placement = Placement.of(Edge(f"t{i}", f"relu{i}", 0) for i in range(40))
    wide = {f"t{i}": Range(0.0, 100.0) for i in range(40)}
    simulation = Simulation(Inserter(model, INT8), placement, wide)
    x = {"t0": np.array([[1, 2, 3, 4]], np.float32)}
    for cut in (0, 31, 32, 39):
        outputs = simulation.run({**wide, f"t{cut}": Range(0.0, 2.0)})(x)
        assert outputs["t40"].max() == pytest.approx(2, abs=0.5)


def test_one_group_alone_leaves_the_other_head_float(tmp_path: Path):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 4), INT8)
    noises = fit.noises_alone(fit.everywhere("minmax"), [0], ["b"])
    assert noises["whole"] == 0
    assert noises["bounded"] > 1e-3


@pytest.mark.parametrize("threshold", [1e9, 11.2], ids=["always", "in-most-samples"])
def test_an_output_that_is_zero_leaves_the_others_to_decide(tmp_path: Path, threshold: float):
    silent = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,32,32] a, float[1,2,32,32] b) => (float[1,4,32,32] y, float[1,4,32,32] boxes)
    <float[4,2,1,1] w = {{1, 0.5, -1, 0.25, 0.75, 1, 0.5, -0.5}}, float above = {{{threshold}}}>
    {{
        [conv_a] y = Conv(a, w)
        [conv_b] x = Conv(b, w)
        [sub] far = Sub(x, above)
        [relu] boxes = Relu(far)
    }}
    """
    model = network(tmp_path, silent)
    fit = crossfit(model, data_of(model, tmp_path, 16), INT8)
    single = [batch for fold in fit.folds for batch in fold.batches]
    assert any(batch.signals["boxes"] == 0 for batch in single)
    for method in METHODS:
        noises = fit.noises(fit.everywhere(method), range(fit.batches))
        assert ("boxes" in noises) == (threshold < 1e9)
        assert all(0 < noise < math.inf for noise in noises.values())
    assert choose(fit, Effort(alone=2, held_back=2, groups=2)).methods["a"] in METHODS


def test_each_tensor_takes_the_method_that_its_head_needs(tmp_path: Path):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 32), INT8, batches=16)
    choice = choose(fit, Effort(alone=4, held_back=8, groups=2))
    assert choice.methods["a"] in ("minmax", "mse")  # What `whole` shows must not be cut off.
    assert choice.methods["b"] == "entropy"  # What is clipped anyway costs steps.
    mixed, single = choice.held_back
    assert mixed >= single


def test_all_runs_are_told_up_to_the_last(tmp_path: Path):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 16), INT8)
    ranked: list[tuple[int, int]] = []
    ranking = rank(fit, lambda done, total: ranked.append((done, total)))
    assert ranked == [(done, 32) for done in range(1, 33)]  # Four methods, eight batches.
    told: list[tuple[int, int]] = []
    effort = Effort(alone=2, held_back=2, groups=1)
    choose(fit, effort, ranking, lambda done, total: told.append((done, total)))
    assert told == [(1, 10), (2, 10), (10, 10)]  # Two groups; four methods, two batches of one.


def test_the_mixture_is_better_than_any_single_method_on_other_data(tmp_path: Path):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 32), INT8, batches=16)
    choice = choose(fit, Effort(alone=4, held_back=8, groups=2))
    reference = OnnxRuntimeModel(model.proto, model.base_dir, 1).run
    unseen = Evaluator(model.graph, (), data_of(model, tmp_path, 16, seed=1), reference)

    def scored(methods: dict[str, str]) -> float:
        ranges = fit.folds[0].of(methods)
        return score(unseen.evaluate(fit.simulation.run(ranges)).noises)

    singles = [scored(fit.everywhere(name)) for name in METHODS]
    assert scored(dict(choice.methods)) > max(singles) + 2  # dB


def test_without_samples_to_hold_back_one_method_serves_all(tmp_path: Path):
    model = network(tmp_path)
    fit = crossfit(model, data_of(model, tmp_path, 3), INT8)
    choice = choose(fit, Effort(alone=2, held_back=4, groups=2))
    assert len(set(choice.methods.values())) == 1
    assert choice.held_back is None


def test_halves_merge_into_what_one_pass_finds(tmp_path: Path):
    model = network(tmp_path)
    data = data_of(model, tmp_path, 9)
    split = calibrate_halves(model, ["a", "b"], data, data, 3)
    for name, once in calibrate(model, ["a", "b"], data).statistics.items():
        found = split.whole.statistics[name]
        assert (found.low, found.high, found.count) == (once.low, once.high, once.count)
        np.testing.assert_array_equal(found.histogram, once.histogram)
    assert [len(half.batches) for half in split.halves] == [3, 3]


def test_a_dead_part_stops_neither_the_score_nor_the_rest():
    assert score({"dead": math.inf, "alive": 0.01}) > score({"dead": math.inf, "alive": 0.1})


def test_of_many_groups_runs_without_noise_are_not_taken_apart():
    groups = [(f"t{index}",) for index in range(64)]
    noise = {"t9": 5.0, "t40": 3.0, "t41": 4.0}
    measured: list[tuple[str, ...]] = []

    def noise_of(tensors: tuple[str, ...]) -> dict[str, float]:
        measured.append(tensors)
        return {"y": sum(noise.get(tensor, 0.001) for tensor in tensors)}

    noisiest, others = noisiest_of(groups, 3, noise_of)
    assert noisiest == [("t9",), ("t41",), ("t40",)]
    assert sorted(t for group in others for t in group) == sorted(
        f"t{index}" for index in range(64) if index not in (9, 40, 41)
    )
    assert len(measured) == 13 + 2 * 5  # 13 runs of 5 neighbours, two of them taken apart.


def test_runs_of_two_groups_are_taken_apart():
    noise = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 0.5, "e": 2.0}
    noisiest, others = noisiest_of(
        [(tensor,) for tensor in noise], 1, lambda run: {"y": sum(noise[t] for t in run)}
    )
    assert noisiest == [("b",)]
    assert sorted(others) == [("a",), ("c", "d"), ("e",)]


def test_of_few_groups_each_is_measured_alone():
    groups = [("a",), ("b", "c"), ("d",)]
    noise = {("a",): 1.0, ("b", "c"): 3.0, ("d",): 1.0}
    found = noisiest_of(groups, 2, lambda tensors: {"y": noise[tensors]})
    assert found == ([("b", "c"), ("a",)], [("d",)])
