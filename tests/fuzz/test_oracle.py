"""The oracle of the fuzz tests finds what is wrong with a result that looks right."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.fuzz import oracle
from tests.fuzz.oracle import verdict
from tests.fuzz.outcome import Case, Outcome
from tests.fuzz.processes import MEMORY_BYTES, Ended, in_child
from tests.fuzz.runs import finished

SUCCESS = Outcome("success", "", 0.0, 0)
Change = Callable[[Path], None]


def written(folder: Path) -> Case:
    """A finished run on disk."""
    case = finished("fusion-model")
    for name, data in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return case


def in_result(change: Callable[[dict], None]) -> Change:
    def spoil(folder: Path) -> None:
        document = json.loads((folder / "out/result.json").read_text())
        change(document)
        (folder / "out/result.json").write_text(json.dumps(document))

    return spoil


def in_model(change: Callable[[onnx.ModelProto], None]) -> Change:
    def spoil(folder: Path) -> None:
        proto = onnx.load(folder / "out/optimized.onnx")
        change(proto)
        onnx.save(proto, folder / "out/optimized.onnx")

    return spoil


def scaled(proto: onnx.ModelProto) -> None:
    """All scales a little larger."""
    for tensor in proto.graph.initializer:
        if tensor.name.endswith("/scale"):
            values = numpy_helper.to_array(tensor) * np.float32(1.1)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def a_bit_off(proto: onnx.ModelProto) -> None:
    """A float weight a millionth larger, which no metric tells."""
    tensor = next(t for t in proto.graph.initializer if t.name == "g")
    values = numpy_helper.to_array(tensor) * np.float32(1 + 2e-6)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def better_told(document: dict) -> None:
    document["best"]["gates"][0]["value"] += 1


def missed(document: dict) -> None:
    document["best"]["gates"][0]["passed"] = False


def another_placement(document: dict) -> None:
    document["best"]["placement"] = "0123456789ab"


def without_gates(document: dict) -> None:
    document["best"]["gates"] = []


def output_renamed(proto: onnx.ModelProto) -> None:
    proto.graph.node[-1].output[0] = proto.graph.output[0].name = "other"


def node_refused(proto: onnx.ModelProto) -> None:
    proto.graph.node[-1].op_type = "NoSuchOperator"


@pytest.mark.slow
def test_a_finished_run_is_as_told(tmp_path: Path):
    case = written(tmp_path)
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["best"]["quantized_edges"] > 0
    outcome = verdict(case, SUCCESS, tmp_path)
    assert (outcome.kind, outcome.judged) == ("success", "yes")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (in_model(scaled), "recomputed it is"),
        (in_model(a_bit_off), "weight 'g' is another one"),
        (in_model(output_renamed), "output 'y' has another type or shape"),
        (in_model(node_refused), "what was written does not"),
        (in_result(better_told), "recomputed it is"),
        (in_result(missed), "are told to be missed"),
        (in_result(another_placement), "are of placements"),
        (in_result(without_gates), "was not judged"),
        (lambda folder: (folder / "out/optimized.onnx").unlink(), "is missing"),
    ],
)
def test_what_is_not_as_told_is_a_false_success(tmp_path: Path, change: Change, told: str):
    case = written(tmp_path)
    change(tmp_path)
    outcome = verdict(case, SUCCESS, tmp_path)
    assert outcome.kind == "false success"
    assert told in outcome.text


def test_a_fault_of_the_oracle_is_told_and_taken_for_no_check(tmp_path: Path):
    case = written(tmp_path)
    (tmp_path / "out/result.json").write_text("{}")
    outcome = verdict(case, SUCCESS, tmp_path)
    assert outcome.kind == "false success"
    assert "the oracle failed: Traceback" in outcome.text
    assert "KeyError" in outcome.text


def test_a_process_that_ends_before_the_oracle_begins_is_no_fault_of_the_fuzzer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(oracle, "in_child", lambda *_: Ended(99 << 8, 0.0, 0))
    outcome = verdict(written(tmp_path), SUCCESS, tmp_path)
    assert (outcome.kind, outcome.text) == ("false success", "\nthe oracle failed: ")


def test_what_takes_too_much_is_killed():
    assert in_child(lambda: 7).code == 7
    endless = in_child(_forever, seconds=0.2)
    assert endless.code is None
    assert endless.is_over_limits
    assert Ended(0, 1.0, MEMORY_BYTES + 1).is_over_limits


def _forever() -> int:
    while True:
        pass
