"""Metrics and gates: exact values, channel groups, labels, the user's own metrics."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.accuracy import ChannelGroup, GroupSums, channel_groups, finite
from placer.errors import InputError
from placer.gates import Evaluation, Evaluator, Gate, GateValue, default_gates
from placer.graph import Graph
from placer.rules.testing import graph_of_text

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Batch:
    """One batch of data."""

    inputs: Arrays
    labels: np.ndarray | None = None


CLASSIFIER = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] logits, int64[2] best) {
  logits = Relu(x)
  best = ArgMax<axis = 1, keepdims = 0>(logits)
}
"""

# The boxes span 0 to 320, the scores 0 to 1; a Transpose and a Concat stand behind the output.
DETECTOR = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,10] boxes, float[1,2,5] a, float[1,2,5] b) => (float[1,10,6] out) {
  scores = Concat<axis = 2>(a, b)
  probabilities = Sigmoid(scores)
  joined = Concat<axis = 1>(boxes, probabilities)
  out = Transpose<perm = [0, 2, 1]>(joined)
}
"""


def values(gate: GateValue) -> tuple[float, str, bool]:
    return gate.value, gate.where, gate.passed


def evaluate(
    gates: list[str],
    reference: list[Arrays],
    candidate: list[Arrays],
    *,
    graph: str = CLASSIFIER,
    labels: list[np.ndarray] | None = None,
) -> Evaluation:
    """Evaluate fixed outputs; the batch's number is its input."""
    batches = [
        Batch({"i": np.array(i)}, labels[i] if labels else None) for i in range(len(reference))
    ]
    evaluator = Evaluator(
        graph_of_text(graph),
        tuple(Gate.parse(text) for text in gates),
        batches,
        lambda inputs: reference[int(inputs["i"])],
    )
    return evaluator.evaluate(lambda inputs: candidate[int(inputs["i"])])


def logits(*rows: list[float]) -> Arrays:
    array = np.array(rows, np.float32)
    return {"logits": array, "best": array.argmax(axis=1)}


def test_exact_values():
    reference, candidate = logits([3, 0, 4], [0, 0, 0]), logits([3, 1, 4], [0, 0, 0])
    found = evaluate(
        ["sqnr>=10", "cosine>=0.99", "max_abs<=0.5", "argmax_agreement>=1"],
        [reference],
        [candidate],
    )
    sqnr, cosine, max_abs, agreement = found.gates
    assert sqnr.value == pytest.approx(10 * math.log10(25))
    assert cosine.value == pytest.approx(25 / math.sqrt(25 * 26))
    assert values(max_abs) == (1.0, "logits", False)
    assert values(agreement) == (1.0, "logits", True)
    assert not found.passed
    assert found.noise == pytest.approx(1 / 25)


def test_equal_outputs_have_infinite_sqnr_and_pass():
    (gate,) = evaluate(["sqnr>=100"], [logits([1, 2, 3])], [logits([1, 2, 3])]).gates
    assert values(gate) == (math.inf, "logits", True)
    assert gate.violation < 0
    assert math.isfinite(gate.violation)
    assert gate.to_json()["value"] is None


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_outputs_that_are_not_finite_fail_every_gate(broken: float):
    candidate = logits([1, broken, 3])
    gates = ["sqnr>=1", "cosine>=0.1", "max_abs<=1e6", "argmax_agreement>=0.1"]
    with np.errstate(invalid="ignore"):
        found = evaluate(gates, [logits([1, 2, 3])], [candidate])
    assert [gate.passed for gate in found.gates] == [False] * 4
    assert all(math.isfinite(gate.violation) for gate in found.gates)


def test_labels_count_the_drop_from_the_float_model():
    reference = logits([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0])
    candidate = logits([1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0])
    labels = np.array([0, 1, 2, 1])
    found = evaluate(["top1>=0.75", "top1_drop<=0.1"], [reference], [candidate], labels=[labels])
    assert [values(gate) for gate in found.gates] == [
        (0.75, "logits", True),
        (0.0, "logits", True),
    ]
    assert found.metrics["argmax_agreement logits"] == 0.5


def test_a_dead_score_head_passes_as_a_whole_and_fails_by_channel_group():
    rng = np.random.default_rng(0)
    out = np.concatenate([rng.uniform(0, 320, (1, 10, 4)), rng.uniform(0, 1, (1, 10, 2))], axis=2)
    dead = out.copy()
    dead[:, :, 4:] = 0
    (gate,) = evaluate(["sqnr>=15"], [{"out": out}], [{"out": dead}], graph=DETECTOR).gates
    whole = GroupSums()
    whole.add(out, dead)
    assert whole.sqnr > 40
    assert values(gate) == (0.0, "out[4:6, axis 2]", False)


def test_channel_groups_are_found_behind_transposes_and_in_nested_concats():
    assert channel_groups(graph_of_text(DETECTOR)) == (
        ChannelGroup("out"),
        ChannelGroup("out", 2, 0, 4),
        ChannelGroup("out", 2, 4, 6),
    )
    nested = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,2,4] a, float[1,3,4] b, float[1,1,4] c) => (float[1,6,4] out, float[1,6,4] r) {
      ab = Concat<axis = 1>(a, b)
      out = Concat<axis = -2>(ab, c)
      o = Concat<axis = 1>(a, b, c)
      s = Add(o, o)
      r = Relu(s)
    }
    """
    assert channel_groups(graph_of_text(nested)) == (
        ChannelGroup("out"),
        ChannelGroup("out", 1, 0, 2),
        ChannelGroup("out", 1, 2, 5),
        ChannelGroup("out", 1, 5, 6),
        ChannelGroup("r"),
    )


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 1000))
def test_batches_add_up_to_the_whole(sizes: list[int], seed: int):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((sum(sizes), 3))
    candidate = reference + rng.normal(0, 0.1, reference.shape)
    parts, whole = GroupSums(), GroupSums()
    whole.add(reference, candidate)
    start = 0
    for size in sizes:
        parts.add(reference[start : start + size], candidate[start : start + size])
        start += size
    assert parts.sqnr == pytest.approx(whole.sqnr)
    assert parts.cosine == pytest.approx(whole.cosine)
    assert parts.max_abs == whole.max_abs


@pytest.mark.parametrize("text", ["sqnr>=15", "top1_drop<=0.01", "cosine>=0.99@logits", "a.b:c<=3"])
def test_gates_are_written_as_they_are_read(text: str):
    assert Gate.parse(text).text() == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqnr", "is no condition; write e.g. sqnr>=15"),
        ("snr>=15", "unknown metric 'snr'; use one of sqnr, cosine, max_abs"),
        ("sqnr<=15", "points the wrong way; write sqnr>=15"),
        ("top1_drop>=0.1", "points the wrong way; write top1_drop<=0.1"),
        ("sqnr>=high", "'high' is no number"),
        ("sqnr>=nan", "must be finite"),
    ],
)
def test_gates_that_make_no_sense(text: str, expected: str):
    with pytest.raises(InputError, match=expected):
        Gate.parse(text)


def test_defaults():
    assert [gate.text() for gate in default_gates(has_labels=True)] == ["top1_drop<=0.01"]
    assert [gate.text() for gate in default_gates(has_labels=False)] == ["sqnr>=15"]


def test_gates_that_the_data_or_the_model_cannot_serve():
    one = [logits([1, 2, 3])]
    with pytest.raises(InputError, match="needs labels; add an array named 'labels'"):
        evaluate(["top1>=0.9"], one, one)
    with pytest.raises(InputError, match="no such output; it has: logits, best"):
        evaluate(["sqnr>=9@scores"], one, one)
    with pytest.raises(InputError, match="labels fit no output"):
        evaluate(["top1>=0.9"], one, one, labels=[np.array([1, 2, 3])])


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the current folder; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        name = f"metrics_{abs(hash((text, str(tmp_path))))}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_a_function_of_the_user_is_averaged_over_batches(user_module: Callable[[str], str]):
    module = user_module("def third(outputs, batch): return outputs['logits'][0, 2]\n")
    batches = [logits([1, 2, 3]), logits([1, 2, 5])]
    (gate,) = evaluate([f"{module}:third>=4"], batches, batches).gates
    assert values(gate) == (4.0, "all outputs", True)


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ("def f(o, b): raise ValueError('no boxes')", "f", "failed with ValueError: no boxes"),
        ("def f(o, b): return None", "f", "make it return a number"),
        ("f = 3", "f", "make it a function"),
        ("f = 3", "g", "has no function 'g'"),
        ("import nowhere_at_all", "f", "failed with ModuleNotFoundError"),
    ],
)
def test_functions_that_cannot_be_used(
    user_module: Callable[[str], str], body: str, name: str, expected: str
):
    module = user_module(body + "\n")
    with pytest.raises(InputError, match=expected):
        evaluate([f"{module}:{name}>=4"], [logits([1, 2, 3])], [logits([1, 2, 3])])


def test_json_has_no_infinity():
    assert [finite(v) for v in (1.5, math.inf, -math.inf, math.nan)] == [1.5, None, None, None]


def test_outputs_of_integers_are_left_out():
    graph: Graph = graph_of_text(CLASSIFIER)
    evaluator = Evaluator(graph, (), [Batch({})], lambda _: logits([1, 2, 3]))
    found = evaluator.evaluate(lambda _: logits([1, 2, 3]))
    assert {name.split()[1] for name in found.metrics} == {"logits"}
