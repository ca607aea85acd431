"""Gates: the language, values and where they were taken, labels, the user's own metrics."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placer.accuracy.evaluation import Evaluation
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.gate_labels import note_on_few_labels
from placer.accuracy.gates import METRICS, Gate, GateValue, default_gates
from placer.accuracy.metrics import GroupSums
from placer.errors import InputError
from placer.graph.text import graph_of_text, parse_model

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Batch:
    """One batch of data."""

    inputs: Arrays
    labels: np.ndarray | None = None
    origin: str = "here"


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
g (float[1,4,10] boxes, float[1,2,10] scores) => (float[1,10,6] out) {
  probabilities = Sigmoid(scores)
  joined = Concat<axis = 1>(boxes, probabilities)
  out = Transpose<perm = [0, 2, 1]>(joined)
}
"""


def values(gate: GateValue) -> tuple[float, str, bool]:
    return gate.value, gate.where, gate.passed


def on_onnx_runtime(model: onnx.ModelProto) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """A function that runs the model's batches."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


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
    assert gate.result().value is None


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_outputs_that_are_not_finite_fail_every_gate(broken: float):
    candidate = logits([1, broken, 3])
    gates = ["sqnr>=1", "cosine>=0.1", "max_abs<=1e6", "argmax_agreement>=0.1"]
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


@pytest.mark.parametrize("text", ["sqnr>=15", "top1_drop<=0.01", "cosine>=0.99@logits", "a.b:c<=3"])
def test_gates_are_written_as_they_are_read(text: str):
    assert Gate.parse(text).text() == text


# Thresholds that tell models apart.
THRESHOLDS = {
    "sqnr": st.floats(allow_nan=False, allow_infinity=False),
    "cosine": st.floats(-1, 1, exclude_min=True),
    "max_abs": st.floats(0, allow_infinity=False),
    "argmax_agreement": st.floats(0, 1, exclude_min=True),
    "top1": st.floats(0, 1, exclude_min=True),
    "top1_drop": st.floats(-1, 1, exclude_max=True),
    "a.b:c": st.floats(allow_nan=False, allow_infinity=False),
}


@settings(max_examples=50)
@given(
    st.sampled_from(sorted(THRESHOLDS)).flatmap(
        lambda metric: st.tuples(st.just(metric), THRESHOLDS[metric])
    )
)
@example(("sqnr", 21.812345678))
@example(("top1", 1.0))
@example(("cosine", 1.0))
@example(("max_abs", 0.0))
@example(("top1_drop", -1.0))
def test_every_gate_reads_back_the_same(chosen: tuple[str, float]):
    metric, threshold = chosen
    output = "out" if metric in METRICS else None
    gate = Gate(metric, METRICS.get(metric, "<="), threshold, output)
    assert Gate.parse(gate.text()) == gate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqnr", "is not a condition; write e.g. sqnr>=15"),
        ("snr>=15", "unknown metric 'snr'; use one of: sqnr, cosine, max_abs"),
        ("sqnr<=15", "points the wrong way; write sqnr>=15"),
        ("top1_drop>=0.1", "points the wrong way; write top1_drop<=0.1"),
        ("sqnr>=high", "'high' is not a number"),
        ("sqnr>=nan", "must be finite"),
        ("a.b:c>=1@out", "a function gets all outputs; leave out @out"),
        (
            "top1_drop<=1",
            "top1_drop is at most 1, so every model meets it; for 1% write top1_drop<=0.01",
        ),
        ("top1>=80@a", "is at most 1, so every model misses it; for 80% write top1>=0.8@a"),
        ("argmax_agreement>=101", "every model misses it; give at most 1"),
        ("cosine>=1.5", "cosine is at most 1, so every model misses it; give at most 1"),
        ("top1_drop<=200", "top1_drop is at most 1, so every model meets it; give less than 1"),
        ("top1>=99.9", "for 99.9% write top1>=0.999$"),
        ("top1>=0", "top1 is at least 0, so every model meets it; give more than 0"),
        ("argmax_agreement>=-1", "argmax_agreement is at least 0, so every model meets it"),
        ("cosine>=-1", "cosine is at least -1, so every model meets it; give more than -1"),
        ("top1_drop<=-2", "top1_drop is at least -1, so every model misses it; give at least -1"),
        ("max_abs<=-1", "max_abs is at least 0, so every model misses it; give at least 0"),
    ],
)
def test_gates_that_make_no_sense(text: str, expected: str):
    with pytest.raises(InputError, match=expected):
        Gate.parse(text)


def test_defaults():
    assert [gate.text() for gate in default_gates(has_labels=True)] == ["top1_drop<=0.01"]
    assert [gate.text() for gate in default_gates(has_labels=False)] == ["sqnr>=15"]
    (gate,) = default_gates(has_labels=False, has_floats=False)
    assert gate.text() == "argmax_agreement>=0.99"


def test_gates_that_the_data_or_the_model_cannot_serve():
    one = [logits([1, 2, 3])]
    with pytest.raises(InputError, match="needs labels; add an array named 'labels'"):
        evaluate(["top1>=0.9"], one, one)
    with pytest.raises(InputError, match=r"unknown output .*; use one of: logits, best"):
        evaluate(["sqnr>=9@scores"], one, one)
    with pytest.raises(InputError, match="labels fit no output"):
        evaluate(["top1>=0.9"], one, one, labels=[np.array([1, 2, 3])])


def test_one_scale_for_boxes_and_scores_is_caught_on_onnx_runtime():
    float_model = parse_model(DETECTOR)
    # What a shared scale of the Concat does: 320 / 255 rounds most scores to zero.
    one_scale = parse_model(
        DETECTOR.replace("{", "<float s = {1.2549}, uint8 z = {0}> {", 1)
        .replace("joined =", "j =")
        .replace(
            "  out =",
            "  q = QuantizeLinear(j, s, z)\n  joined = DequantizeLinear(q, s, z)\n  out =",
        )
    )
    rng = np.random.default_rng(0)
    data = [
        Batch(
            {
                "boxes": rng.uniform(0, 320, (1, 4, 10)).astype(np.float32),
                "scores": rng.normal(-1, 1, (1, 2, 10)).astype(np.float32),
            }
        )
        for _ in range(3)
    ]
    evaluator = Evaluator(
        graph_of_text(DETECTOR), (Gate.parse("sqnr>=15"),), data, on_onnx_runtime(float_model)
    )
    found = evaluator.evaluate(on_onnx_runtime(one_scale))
    assert found.metrics["sqnr out"] > 40
    assert found.metrics["sqnr out[4:6, axis 2]"] < 5
    assert found.gates[0].where == "out[4:6, axis 2]"
    assert not found.passed


def test_a_drop_of_one_sample_in_a_hundred_meets_its_gate():
    labels = np.zeros(100, np.int64)
    reference = np.tile(np.float32([1, 0, 0]), (100, 1))
    reference[0] = [0, 1, 0]
    candidate = reference.copy()
    candidate[1] = [0, 1, 0]
    (drop,) = evaluate(
        ["top1_drop<=0.01"], [logits(*reference)], [logits(*candidate)], labels=[labels]
    ).gates
    assert values(drop) == (0.01, "logits", True)  # 0.99 - 0.98 would be 0.010000000000000009


TWO_HEADS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] logits, float[2,3] features) {
  logits = Relu(x)
  features = Sigmoid(x)
}
"""


def test_a_gate_finer_than_one_label_is_told_of():
    """Half a percent of 100 labels is less than one; a hundredth of them is just one."""
    samples = [Batch({}, np.zeros(4, np.int64))] * 25
    fine, coarse = Gate.parse("top1_drop<=0.005"), Gate.parse("top1_drop<=0.01")
    assert note_on_few_labels((coarse,), samples) is None
    assert note_on_few_labels((coarse, fine), samples) == (
        "100 labels are too few for top1_drop<=0.005: one more wrong answer is a drop of 0.01; "
        "give 200 or more"
    )


def test_labels_are_counted_only_for_a_gate_that_needs_them():
    def unread() -> Iterator[Batch]:
        raise AssertionError("samples are read")
        yield Batch({})

    assert note_on_few_labels((Gate.parse("sqnr>=15"),), unread()) is None


def test_labels_belong_to_one_output():
    right, wrong = np.float32([[1, 0, 0], [0, 1, 0]]), np.float32([[0, 0, 1], [0, 0, 1]])
    heads = [{"logits": right, "features": wrong}]
    labels = [np.array([0, 1])]
    (gate,) = evaluate(["top1>=1@logits"], heads, heads, graph=TWO_HEADS, labels=labels).gates
    assert values(gate) == (1.0, "logits", True)
    with pytest.raises(InputError, match=r"several outputs \(logits, features\); name one"):
        evaluate(["top1>=1"], heads, heads, graph=TWO_HEADS, labels=labels)


def test_labels_must_be_class_indices_of_every_batch():
    two = [logits([1, 2, 3]), logits([3, 2, 1])]
    with pytest.raises(InputError, match="2 labels lie outside 0 to 2, the classes of output"):
        evaluate(["top1_drop<=0"], two, two, labels=[np.array([3]), np.array([-1])])
    with pytest.raises(InputError, match="labels fit no output"):
        evaluate(["top1_drop<=0"], two, two, labels=[np.array([2]), np.array([0, 1])])
    with pytest.raises(InputError, match="labels do not fit logits; give one class index"):
        evaluate(["top1>=1@logits"], two, two, labels=[np.array([0, 1]), np.array([0, 1])])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([0.0, math.nan]), "labels hold nan, which is not a class index"),
        (np.array([0.0, 1.5]), "labels hold 1.5, which is not a class index"),
        (np.array([0.0, math.inf]), "labels hold inf, which is not a class index"),
        (np.array([True, False]), "labels have type bool; give class indices as integers"),
        (np.array([0j, 1j]), "labels have type complex128; give class indices as integers"),
        (np.array(["0", "1"]), "labels have type <U1; give class indices as integers"),
    ],
)
def test_labels_must_be_integers(labels: np.ndarray, expected: str):
    one = [logits([3, 2, 1], [1, 3, 2])]
    with pytest.raises(InputError, match=expected):
        evaluate(["top1_drop<=0.01"], one, one, labels=[labels])
    # Other gates may have use for them: a function of the user's, for example.
    assert evaluate(["sqnr>=1@logits"], one, one, labels=[labels]).passed


def test_labels_may_be_whole_numbers_of_a_float_type():
    one = [logits([3, 2, 1], [1, 3, 2])]
    (gate,) = evaluate(["top1>=1@logits"], one, one, labels=[np.array([0.0, 1.0])]).gates
    assert values(gate) == (1.0, "logits", True)


def scored(correct: int, of: int, classes: int) -> tuple[Arrays, np.ndarray]:
    """Outputs that meet so many labels and miss the others by one."""
    labels = np.arange(of) % classes
    best = np.where(np.arange(of) < correct, labels, (labels + 1) % classes)
    return {"logits": np.eye(classes, dtype=np.float32)[best], "best": best}, labels


@pytest.mark.parametrize(
    ("correct", "of", "classes"),
    [
        (0, 1, 1000),  # No candidate can lose what the float model does not have.
        (0, 20, 10),
        (2, 20, 10),
        (1, 2, 2),
        (40, 400, 10),  # What guessing reaches.
        (47, 400, 10),  # Guessing reaches 47 or more in 14% of cases.
        (55, 100, 2),
    ],
)
def test_a_float_model_that_meets_labels_no_better_than_guessing_is_refused(
    correct: int, of: int, classes: int
):
    outputs, labels = scored(correct, of, classes)
    for gate in ("top1_drop<=0.01@logits", "top1>=0.01@logits"):
        with pytest.raises(
            InputError,
            match=f"the float model meets {correct} of {of} labels of 'logits', no better than "
            f"guessing among {classes} classes; correct the labels or their order",
        ):
            evaluate([gate], [outputs], [outputs], labels=[labels])


@pytest.mark.parametrize(
    ("correct", "of", "classes"),
    [
        (4, 20, 1000),  # A hard task.
        (5, 12, 10),
        (55, 400, 10),
        (9, 10, 2),
        (3, 4, 3),  # So few labels that guessing reaches most scores.
        (2, 2, 2),
        (7, 10, 2),
    ],
)
def test_hard_tasks_and_few_labels_are_not_refused(correct: int, of: int, classes: int):
    outputs, labels = scored(correct, of, classes)
    assert evaluate(["top1_drop<=0.01@logits"], [outputs], [outputs], labels=[labels]).passed


def test_a_float_model_whose_scores_are_not_finite_meets_no_label():
    broken = [{"logits": np.full((4, 3), math.nan), "best": np.zeros(4, np.int64)}]
    with pytest.raises(InputError, match="the float model meets 0 of 4 labels of 'logits'"):
        evaluate(["top1_drop<=0.01@logits"], broken, broken, labels=[np.zeros(4, np.int64)])


def test_the_float_model_itself_is_scored_on_labels():
    outputs = logits([1, 0, 0], [0, 1, 0])
    evaluator = Evaluator(
        graph_of_text(CLASSIFIER), (), [Batch({}, np.array([0, 2]))], lambda _: outputs
    )
    assert evaluator.reference_metrics() == {"top1 logits": 0.5, "top1 best": 0.5}


def test_integer_outputs_hold_classes_and_have_no_sqnr():
    reference = logits([1, 2, 3], [3, 2, 1])
    candidate = {**reference, "best": np.array([2, 1])}
    found = evaluate(["sqnr>=100", "max_abs<=0", "argmax_agreement>=1"], [reference], [candidate])
    assert [values(gate) for gate in found.gates] == [
        (math.inf, "logits", True),
        (1.0, "best", False),
        (0.5, "best", False),
    ]
    with pytest.raises(InputError, match="needs a float output, which best is not"):
        evaluate(["sqnr>=9@best"], [reference], [candidate])


def test_a_model_that_gives_only_classes_can_be_gated_on_labels():
    graph = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[2,3] x) => (int64[2] best) { best = ArgMax<axis = 1, keepdims = 0>(x) }
    """
    reference, candidate = [{"best": np.array([0, 1])}], [{"best": np.array([0, 2])}]
    labels = [np.array([0, 1])]
    (gate,) = evaluate(["top1>=1"], reference, candidate, graph=graph, labels=labels).gates
    assert values(gate) == (0.5, "best", False)
    with pytest.raises(InputError, match="needs a float output, which the model does not have"):
        evaluate(["sqnr>=9"], reference, candidate, graph=graph)


def test_a_part_that_is_zero_throughout_has_no_sqnr_but_an_error():
    out = np.ones((1, 10, 6))
    out[:, :, 4:] = 0
    noisy = out + 0.01
    found = evaluate(["sqnr>=35", "max_abs<=1"], [{"out": out}], [{"out": noisy}], graph=DETECTOR)
    assert found.gates[0].where == "out"
    assert found.gates[0].value == pytest.approx(10 * math.log10(4 / 6 * 1e4))
    assert "sqnr out[4:6, axis 2]" not in found.metrics
    assert found.metrics["max_abs out[4:6, axis 2]"] == pytest.approx(0.01)


def test_a_candidate_with_another_number_of_detections_fails():
    graph = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[N,3] x) => (float[N,3] logits) { logits = Relu(x) }
    """
    three, two = np.eye(3, dtype=np.float32), np.eye(2, 3, dtype=np.float32)
    gates = ["sqnr>=1", "cosine>=0.1", "max_abs<=1e6", "argmax_agreement>=0.1"]
    found = evaluate(gates, [{"logits": three}], [{"logits": two}], graph=graph)
    assert [gate.passed for gate in found.gates] == [False] * 4


def test_a_float_model_that_overflows_is_no_reference():
    broken = [logits([1, math.inf, 3])]
    for gate in ["sqnr>=1", "cosine>=0.9", "max_abs<=1", "argmax_agreement>=0.5"]:
        with pytest.raises(InputError, match="the float model's own logits holds NaN or Inf"):
            evaluate([gate], broken, broken)


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


def test_a_function_that_computes_in_place_leaves_others_what_the_candidate_computed(
    user_module: Callable[[str], str],
):
    module = user_module(
        "def doubled(outputs, batch):\n"
        "    outputs['logits'] *= 2\n"
        "    batch['labels'] += 5\n"
        "    batch['i'] += 7\n"
        "    return outputs['logits'][0, 2]\n"
        "def all_of(outputs, batch):\n"
        "    return outputs['logits'][0, 2] + 100 * batch['labels'][0] + 1000 * batch['i']\n"
    )
    batches, labels = [logits([1, 2, 3])], [np.array([2])]
    gates = [f"{module}:doubled>=6", f"{module}:all_of>=4"]
    doubled, all_of = evaluate(gates, batches, batches, labels=labels).gates
    assert (doubled.value, all_of.value) == (6.0, 203.0)
    assert batches[0]["logits"].tolist() == [[1, 2, 3]]


def test_an_array_of_one_number_is_a_number(user_module: Callable[[str], str]):
    module = user_module("def third(outputs, batch): return outputs['logits'][:1, 2]\n")
    batches = [logits([1, 2, 3])]
    (gate,) = evaluate([f"{module}:third>=4"], batches, batches).gates
    assert gate.value == 3.0


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ("def f(o, b): return o['logits']", "f", "make it return a number"),
        (
            "def f(o, b):\n  raise ValueError('no boxes')",
            "f",
            r"failed with ValueError: no boxes; make it return a number \(.*\.py, line 2\)",
        ),
        ("import sys\ndef f(o, b): sys.exit(3)", "f", "failed with SystemExit: 3"),
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
