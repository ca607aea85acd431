"""``scheme`` auto: measured here, compared with ONNX Runtime, and judged once more at the end."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from placer.errors import InputError
from placer.optimizer import run
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.outcome import winner
from placer.optimizer.outcome.finals import Final, Rejected
from placer.optimizer.outcome.written import Written, write_and_judge
from placer.optimizer.run import optimize
from placer.optimizer.setup import auto_engine, auto_scheme
from placer.optimizer.setup.auto_scheme import resolve_schemes, schemes_of_defaults
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import open_study
from placer.optimizer.setup.task import Task
from placer.optimizer.time_limit import TimeLimit
from placer.quantization.overrides import Override
from placer.quantization.placement_file import read_placement
from tests.conftest import DIGITS, two_convs

pytest.importorskip("openvino", reason="OpenVINO is not installed")

Save = Callable[..., Path]
CHAIN = two_convs(channels=16, size=16, weight=1)


class Stages(QuietObserver):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.warned: list[str] = []

    def stage(self, text: str) -> None:
        self.told.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


def request_of(path: Path, output: Path, gate: str = "sqnr>=5") -> Request:
    return Request(
        path,
        output=output,
        gates=(gate,),
        engine="openvino",
        scheme="auto",
        preset="quick",
        budget=2,
    )


def activations(path: Path) -> set[tuple[str, int]]:
    """Types and zero points of the activations' QuantizeLinear nodes."""
    model = onnx.load(path)
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    points = [constants[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    return {(str(point.dtype), int(point)) for point in points}


@pytest.mark.slow
def test_all_schemes_that_compute_correctly_are_kept_the_fastest_first(save: Save, tmp_path: Path):
    observer = Stages()
    request = request_of(save(CHAIN), tmp_path / "out")
    assert sorted(resolve_schemes(request, observer), key=str) == [None, "symmetric"]
    assert observer.told[0] == "comparing number formats: the pack's own and symmetric"
    assert "of the time that it takes in " in observer.told[1]
    assert resolve_schemes(replace(request, scheme="symmetric"), observer) == ()


LEAKY = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,8,8] x) => (float[1,32,16,16] y)
<float[32,32,1,1] w1 = {1}, float[32,32,2,2] w2 = {1}> {
  [conv] a = Conv(x, w1)
  [act] b = LeakyRelu(a)
  [up] y = ConvTranspose<strides = [2, 2]>(b, w2)
}
"""


@pytest.mark.slow
def test_schemes_are_compared_unasked_where_one_of_them_quantizes_more_by_default(
    save: Save, tmp_path: Path
):
    """A ConvTranspose reads integers without zero point only."""
    observer = Stages()
    request = replace(request_of(save(LEAKY), tmp_path / "out"), scheme=None)
    found = schemes_of_defaults(prepare(request, QuietObserver()), observer)
    assert sorted(found, key=str) == [None, "symmetric"]
    assert observer.told[0] == "comparing number formats: the pack's own and symmetric"
    chain = replace(request_of(save(CHAIN), tmp_path / "out"), scheme=None)
    for named in (chain, replace(request, scheme="symmetric")):
        assert schemes_of_defaults(prepare(named, QuietObserver()), observer) == ()
    assert len(observer.told) == 2


@pytest.mark.slow
def test_engines_and_schemes_are_compared_in_one_go(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The scheme in which an engine was the fastest one is that of the search."""
    monkeypatch.setattr(auto_engine, "CPU_ENGINES", ("openvino", "onnxruntime"))
    monkeypatch.setattr(auto_engine, "_ROUNDS", 1)
    observer, output = Stages(), tmp_path / "out"
    request = replace(request_of(save(LEAKY), output), scheme=None, engine="auto", budget=2)
    optimize(request, observer)
    assert sum(text.startswith("comparing number formats") for text in observer.told) == 1


def test_without_time_schemes_are_not_compared(save: Save, tmp_path: Path):
    observer = Stages()
    request = replace(request_of(save(LEAKY), tmp_path / "out"), scheme=None)
    late = TimeLimit(time.monotonic() - 20, 100.0)
    task = prepare(request, QuietObserver(), limit=late)
    assert schemes_of_defaults(task, observer) == ()
    assert observer.warned == ["the time limit left no time to compare number format symmetric"]


@pytest.mark.slow
def test_a_scheme_that_the_engine_computes_wrongly_is_refused_and_said(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As if it had to be 1000 dB better than ONNX Runtime: real faults depend on the CPU."""
    monkeypatch.setattr(auto_scheme, "WRONG_DB", -1000.0)
    observer = Stages()
    assert resolve_schemes(request_of(save(CHAIN), tmp_path / "out"), observer) == (None,)
    assert "number format symmetric is left out: openvino computes" in observer.told[2]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [None, "symmetric"])
def test_the_file_that_is_written_is_in_the_scheme_that_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str | None
):
    """Trials are made in one scheme; the other one meets the gates, too, and races."""
    other = "symmetric" if scheme is None else None
    monkeypatch.setattr(run, "resolve_schemes", lambda *_: (scheme, other))
    observer, output = Stages(), tmp_path / "out"
    request = replace(request_of(DIGITS / "digits.onnx", output, "sqnr>=8"), budget=4)
    result = optimize(request, observer)
    assert any("meets the gates in " in text for text in observer.told)
    written = read_placement(output / "placement.yaml")
    assert written.scheme == result.scheme
    points = activations(output / "optimized.onnx")
    if result.scheme.activation == "int8-or-uint8":
        assert points <= {("int8", 0), ("uint8", 0)}
    else:
        assert {kind for kind, _ in points} <= {"uint8"}


@pytest.mark.slow
def test_where_the_accuracy_went_is_told_of_the_scheme_of_the_result(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As if what is in the other scheme were always the fastest: here that depends on the CPU."""
    monkeypatch.setattr(run, "resolve_schemes", lambda *_: (None, "symmetric"))
    monkeypatch.setattr(winner, "race", lambda _, finalists, *__: finalists[-1])
    monkeypatch.setattr(Final, "is_faster", True)
    request = replace(
        request_of(save(CHAIN), tmp_path / "auto"), preset="default", calibration="minmax"
    )
    found = optimize(request, QuietObserver())
    assert found.scheme.activation == "int8-or-uint8"
    monkeypatch.setattr(run, "resolve_schemes", resolve_schemes)
    named = replace(request, scheme="symmetric", output=tmp_path / "named")
    expected = optimize(named, QuietObserver()).noise_sources
    assert expected
    assert found.noise_sources == expected


@pytest.mark.slow
def test_a_trial_whose_file_is_refused_in_another_scheme_races_on_in_its_own(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As if a disk fault hit the first file that is written."""

    def refused_elsewhere(task: Task, *others: Any) -> Written | Rejected:
        if task.pack.manifest.scheme.symmetric:
            return Rejected("as it was written it cannot be run")
        return write_and_judge(task, *others)

    monkeypatch.setattr(run, "resolve_schemes", lambda *_: (None, "symmetric"))
    monkeypatch.setattr(winner, "race", lambda _, finalists, *__: finalists[-1])
    monkeypatch.setattr(winner, "write_and_judge", refused_elsewhere)
    monkeypatch.setattr(Final, "is_faster", True)
    observer = Stages()
    result = optimize(request_of(save(CHAIN), tmp_path / "out"), observer)
    assert result.best is not None
    assert (result.best.trial, result.scheme.activation) == (1, "uint8")
    assert observer.warned[-1] == (
        "trial 1 met the gates in number format symmetric, but as it was written it cannot be run, "
        "so it is no result"
    )


@pytest.mark.slow
def test_scales_of_a_quantized_model_stay_in_another_scheme(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pair = "> { q = QuantizeLinear(x, s, p) d = DequantizeLinear(q, s, p)"
    constants = ", float s = {0.0625}, int8 p = {0}"
    quantized = CHAIN.replace("(x, w1)", "(d, w1)").replace("> {", constants + pair)
    monkeypatch.setattr(run, "resolve_schemes", lambda *_: (None, "symmetric"))
    monkeypatch.setattr(winner, "race", lambda _, finalists, *__: finalists[-1])
    monkeypatch.setattr(Final, "is_faster", True)
    result = optimize(request_of(save(quantized), tmp_path / "out"), QuietObserver())
    assert result.scheme.activation == "int8-or-uint8"
    model = onnx.load(tmp_path / "out" / "optimized.onnx")
    values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    (kept,) = (n for n in model.graph.node if n.op_type == "QuantizeLinear" and "x" in n.input)
    assert (values[kept.input[1]], values[kept.input[2]]) == (0.0625, 0)


@pytest.mark.slow
@pytest.mark.parametrize("study", [None, "mine"])
def test_a_study_in_a_storage_keeps_its_schemes_with_and_without_a_name(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: str | None
):
    request = replace(
        request_of(save(CHAIN), tmp_path / "out"),
        storage=f"sqlite:///{tmp_path / 'shared.db'}",
        study=study,
    )
    with monkeypatch.context() as begun:
        begun.setattr(run, "resolve_schemes", lambda *_: ("symmetric", None))
        optimize(request, QuietObserver())
    observer = Stages()
    assert resolve_schemes(request, observer) == ("symmetric", None)
    assert observer.told == []  # Nothing is measured: another time the order may be another.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begun", "now", "told"),
    [
        (None, "auto", "none, now the pack's own"),
        ("auto", "symmetric", "symmetric or the pack's own, now none"),
    ],
)
def test_a_study_of_another_scheme_is_refused_by_its_name(
    save: Save,
    tmp_path: Path,
    begun: str | None,
    now: str,
    told: str,
):
    request = replace(request_of(save(CHAIN), tmp_path / "out"), budget=2, calibration="minmax")
    found = ("symmetric", None) if begun == "auto" else ()
    task = prepare(replace(request, scheme=begun), QuietObserver(), schemes=found)
    (tmp_path / "out").mkdir()
    open_study(task)
    with pytest.raises(InputError, match=rf"holds a study with other settings \(scheme: {told}\)"):
        optimize(replace(request, scheme=now), QuietObserver())


def test_schemes_of_an_open_engine_are_refused(tmp_path: Path):
    request = request_of(DIGITS / "digits.onnx", tmp_path / "out")
    with pytest.raises(InputError, match="name the `engine`"):
        resolve_schemes(replace(request, engine="auto"), QuietObserver())
    with pytest.raises(InputError, match="with engine onnxruntime name the scheme"):
        resolve_schemes(replace(request, engine="onnxruntime"), QuietObserver())


def test_a_pinned_scale_is_of_one_scheme(tmp_path: Path):
    """Ranges stay in another scheme, and give another scale there than the user's."""
    request = request_of(DIGITS / "digits.onnx", tmp_path / "out")
    pinned = Override(tensor="image", scale=0.05, zero_point=3)
    with pytest.raises(InputError, match="a scale belongs to one scheme"):
        resolve_schemes(replace(request, overrides=(pinned,)), QuietObserver())
