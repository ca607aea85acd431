"""Which sequence of steps is kept, on steps of which it is known what each sequence does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.calibration.dataset import synthetic_dataset
from placer.errors import RunError
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.quantization import Placement, Range, Scheme
from placer.recovery.state import State, Step, Work
from placer.recovery.steps import Attempt, Noises, try_steps

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
NAMES = ("a", "b", "c", "d")
SUBSETS = [frozenset(s) for n in range(5) for s in combinations(NAMES, n)]
Scores = dict[frozenset[str], list[float]]  # In dB, of each batch, by the steps that were done.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) {y = Neg(x)}'
    path = tmp_path_factory.mktemp("steps") / "m.onnx"
    onnx.save(parse_model(text), path)
    return load_model(path)


def step(name: str) -> Step:
    """One that only notes that it was done."""

    def done(state: State, work: Work) -> tuple[State, int]:  # noqa: ARG001
        return replace(state, ranges={**state.ranges, name: Range(0, 1)}), 1

    return done


def tried(
    model: Model, scores: Scores, outputs: Scores | None = None
) -> tuple[frozenset[str], list[Attempt], list[frozenset[str]]]:
    """What was done in the result, what became of each step, and all that was judged."""
    work = Work(Placement.of([]), INT8, synthetic_dataset(model, 2, 0))
    judged = []

    def judge(state: State) -> Noises:
        judged.append(frozenset(state.ranges))
        return [{"y": 10 ** (-level / 10)} for level in scores[judged[-1]]]

    def judge_outputs(state: State) -> Noises:
        return [{"z": 10 ** (-level / 10)} for level in (outputs or {})[frozenset(state.ranges)]]

    steps = {name: step(name) for name in NAMES}
    own = None if outputs is None else judge_outputs
    first = State(model, model, {})
    state, attempts = try_steps(first, NAMES, work, judge, steps=steps, outputs=own)
    return frozenset(state.ranges), attempts, judged


def scores(levels: Mapping[str, float], spread: tuple[float, ...] = (0.0,) * 8) -> Scores:
    """``levels`` by the letters of the steps; what is not named is as bad as can be."""
    return {s: [levels.get("".join(sorted(s)), 0.0) + one for one in spread] for s in SUBSETS}


def test_a_step_that_helps_does_not_stand_in_the_way_of_one_that_helps_more(model: Model):
    kept, attempts, _ = tried(model, scores({"": 20, "a": 21, "b": 30, "ab": 25}))
    assert kept == {"b"}
    assert [(one.step, one.before, one.after) for one in attempts if one.kept] == [("b", 20, 30)]
    reasons = {one.step: one.reason for one in attempts}
    assert reasons["a"].startswith("on samples held back other steps help more")
    assert reasons["c"] == "it does not help on samples held back"


def test_two_steps_that_help_only_together_are_found(model: Model):
    kept, attempts, _ = tried(model, scores({"": 20, "a": 19, "b": 18, "ab": 30}))
    assert kept == {"a", "b"}
    assert [(one.before, one.after) for one in attempts if one.kept] == [(20, 19), (19, 30)]


def test_a_longer_sequence_that_may_be_better_by_luck_is_not_taken(model: Model):
    """Its mean is higher because of one of eight batches only."""
    found = scores({"": 20, "a": 30})
    found[frozenset("ab")] = [29.5] * 7 + [36.0]
    kept, _, _ = tried(model, found)
    assert kept == {"a"}
    found[frozenset("ab")] = [31.0] * 8
    assert tried(model, found)[0] == {"a", "b"}


def test_a_step_that_makes_outputs_worse_is_left_out_with_its_reason(model: Model):
    """Before the last Softmax it helps, but not on the samples that the network is not sure of."""
    before = scores({"": 20, "a": 30, "b": 25})
    kept, attempts, _ = tried(model, before, scores({"": 40, "a": 25, "b": 40}))
    assert kept == {"b"}
    assert {one.step: one.reason for one in attempts}["a"] == (
        "on samples held back it helps before the last Softmax, Sigmoid or Tanh, but makes the "
        "outputs worse"
    )


def test_a_step_whose_loss_at_the_outputs_may_be_luck_is_kept(model: Model):
    """One of eight samples carries the noise of the outputs: it is in 66% of bootstrap samples."""
    unsure = scores({})
    unsure[frozenset()] = [40.0] * 7 + [30.0]
    unsure[frozenset("a")] = [41.0] * 7 + [25.0]
    assert tried(model, scores({"": 20, "a": 30}), unsure)[0] == {"a"}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 60), min_size=16, max_size=16))
def test_the_result_is_no_worse_than_the_best_single_step(model: Model, levels: list[float]):
    found = {subset: [level] * 3 for subset, level in zip(SUBSETS, levels, strict=True)}
    kept, attempts, judged = tried(model, found)
    best = max(found[subset][0] for subset in SUBSETS if len(subset) < 2)
    assert found[kept][0] >= best - 1e-9
    assert len(judged) == len(set(judged)) <= 1 + 1 + 2 + 3 + 3
    assert [one.step for one in attempts] == list(NAMES)
    assert {one.step for one in attempts if one.kept} == kept


def test_a_state_that_cannot_be_run_is_the_reason_of_each_step(model: Model):
    work = Work(Placement.of([]), INT8, synthetic_dataset(model, 2, 0))

    def judge(_: State) -> Noises:
        raise RunError("no such engine")

    first = State(model, model, {})
    assert try_steps(first, ["weight-rounding"], work, judge) == (
        first,
        [Attempt("weight-rounding", reason="no such engine")],
    )
