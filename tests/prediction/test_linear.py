"""What explaining a model takes grows with the model and no faster; counted, not timed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import pytest

import placer
import placer.rules.matcher
from placer.common.processor import Processor
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.model import load_model
from placer.prediction.explanation import remedies
from placer.prediction.layers.conversions import TensorFormats
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.prediction_draft import StepsDraft
from placer.prediction.layers.predictor import Predictor
from placer.prediction.layers.steps import Step
from placer.quantization.placement import Change
from placer.rules.bind import Binder
from placer.rules.matcher import Matches
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place
from placer.rules.target import ANY_TARGET

PACK = load_pack("tensorrt")


def chain(blocks: int) -> str:
    """Residual blocks of Conv, Relu, Conv, Add, Sigmoid and Mul, one behind the other."""
    lines, tensor = [], "x"
    for i in range(blocks):
        lines.append(
            f"[c{i}] a{i} = Conv<pads = [1, 1, 1, 1]>({tensor}, w) [r{i}] b{i} = Relu(a{i}) "
            f"[d{i}] e{i} = Conv<pads = [1, 1, 1, 1]>(b{i}, w) [s{i}] f{i} = Add(e{i}, {tensor}) "
            f"[g{i}] h{i} = Sigmoid(f{i}) [m{i}] t{i} = Mul(f{i}, h{i})"
        )
        tensor = f"t{i}"
    shape = "float[1,4,8,8]"
    return f"""
        <ir_version: 9, opset_import: ["": 17]>
        g ({shape} x) => ({shape} {tensor}) <float[4,4,3,3] w = {{0.1}}> {{ {" ".join(lines)} }}
    """


def calls(work: Callable[[], object]) -> int:
    """How many Python functions ``work`` calls."""
    count = 0

    def on_event(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
def test_twice_the_chain_takes_twice_the_calls(save: Callable[..., Path]) -> None:
    placer.explain(save(chain(1)))  # What is imported and kept at first use.
    counts = []
    for blocks in (8, 16, 32):
        model = save(chain(blocks))
        counts.append(calls(lambda model=model: placer.explain(model)))  # type: ignore[misc]
    assert counts[2] - counts[1] < 2.2 * (counts[1] - counts[0])


def test_each_rule_is_matched_once(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    matched: Counter[str] = Counter()

    def binder(graph: Graph, rule: Rule, processor: Processor) -> Binder:
        matched[rule.id] += 1
        return Binder(graph, rule, processor)

    monkeypatch.setattr(placer.rules.matcher, "Binder", binder)
    placer.explain(save(chain(2)))
    assert matched
    assert set(matched.values()) == {1}


def test_matches_of_a_rule_stay_the_same_objects() -> None:
    matches = Matches(graph_of_text(chain(2)))
    found = [matches.of(rule, smaller) for rule in PACK.rules for smaller in (False, True)]
    assert any(found)
    assert found == [matches.of(r, smaller) for r in PACK.rules for smaller in (False, True)]


def test_a_change_is_judged_by_the_same_steps_however_long_the_chain(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    formats = StepsDraft.formats

    def counted(self: StepsDraft, candidate: LayerCandidate) -> tuple[TensorFormats | None, ...]:
        taken.append(candidate.position)
        return formats(self, candidate)

    monkeypatch.setattr(StepsDraft, "formats", counted)
    found = []
    for blocks in (2, 8):
        graph = load_model(save(chain(blocks))).graph
        predictor = Predictor(graph, PACK.rules, ANY_TARGET, "float16", "int8")
        near = predictor.predict(place(find_sites(graph, PACK.rules), {}))
        taken.clear()
        group = next(g for g in near.placement.groups if Edge("b0", "d0", 0) in g.edges)
        changed = predictor.vary(near, Change(frozenset({group}), frozenset()))
        found.append((list(taken), sorted(changed)))
    assert found[0] == found[1]
    assert found[0][1]


def fan(readers: int) -> str:
    """Convs that read one tensor, and the sum of what they write."""
    lines, tensor = ["[c0] a0 = Conv(x, w)"], "a0"
    for i in range(1, readers):
        lines.append(f"[c{i}] a{i} = Conv(x, w) [s{i}] t{i} = Add({tensor}, a{i})")
        tensor = f"t{i}"
    shape = "float[1,4,4,4]"
    return f"""
        <ir_version: 9, opset_import: ["": 17]>
        g ({shape} x) => ({shape} {tensor}) <float[4,4,1,1] w = {{0.1}}> {{ {" ".join(lines)} }}
    """


def test_more_readers_of_a_tensor_take_no_more_predictions(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prediction looks at all readers, so that all of them together took the square."""
    changes: list[Change] = []
    vary = Predictor.vary

    def counted(self: Predictor, near: Prediction, change: Change) -> Mapping[int, Step | None]:
        changes.append(change)
        return vary(self, near, change)

    monkeypatch.setattr(Predictor, "vary", counted)
    monkeypatch.setattr(remedies, "MOST_SITES", 4)
    found = []
    for readers in (8, 12):
        model = save(fan(readers))
        changes.clear()
        placer.explain(model)
        found.append(len(changes))
    assert found[0] == found[1] > 4
