"""What `auto` stands for: every choice is measured, the fastest is taken, and a study keeps it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer.engines.base import Compiled, Engine, Tensors
from placer.errors import InputError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.optimizer.setup import auto_engine
from placer.optimizer.setup.auto_engine import Resolved, resolve_engine_and_base
from placer.optimizer.setup.study_settings import bases_begun
from tests.conftest import DIGITS, two_convs

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
HAS_BFLOAT16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")

Save = Callable[..., Path]
CHAIN = two_convs(channels=16, size=16, weight=1)


class Stages(QuietObserver):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def stage(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both engines of a CPU are compared, as outside of the tests."""
    monkeypatch.setattr(auto_engine, "CPU_ENGINES", ("openvino", "onnxruntime"))


@pytest.mark.slow
@pytest.mark.usefixtures("both")
def test_the_fastest_engine_is_named_with_the_reason_and_a_resumed_run_keeps_it(
    save: Save, tmp_path: Path
):
    request = Request(
        save(CHAIN),
        output=tmp_path / "out",
        gates=("sqnr>=5",),
        engine="auto",
        base="auto",
        preset="quick",
        budget=2,
    )
    observer = Stages()
    found = resolve_engine_and_base(request, observer)
    resolved, bases = found.request, found.bases
    # Which engine is faster depends on the CPU, and OpenVINO's bases on whether it has bfloat16.
    expected = {
        "onnxruntime": (None, set()),
        "openvino": ("auto", {"float", "bfloat16"}) if HAS_BFLOAT16 else ("float", set()),
    }
    assert (resolved.base, set(bases)) == expected[resolved.engine]
    assert observer.told[0] == "comparing openvino and onnxruntime"
    best, reason = observer.told[1].split(" is the fastest here ")
    assert best.split(" in ")[0] == resolved.engine
    told = re.findall(r"(onnxruntime|openvino in \w+) ([0-9.e-]+) ms", reason)
    times = {name: float(milliseconds) for name, milliseconds in told}
    assert times[best] == min(times.values())
    assert {name.split(" in ")[0] for name in times} == {"openvino", "onnxruntime"}

    begun = replace(request, engine="openvino", base="float")
    result = optimize(begun, QuietObserver())
    observer = Stages()
    assert resolve_engine_and_base(request, observer) == Resolved(begun)
    assert observer.told == []
    assert result.engine.device.endswith("float")


@pytest.mark.slow
@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ({"openvino": 2e-3, "onnxruntime": 1e-3}, "onnxruntime"),
        ({"openvino": 1e-3, "onnxruntime": 1e-3}, "openvino"),
    ],
)
def test_engines_take_turns_after_each_round_and_the_first_of_equals_is_taken(
    save: Save, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], taken: str
):
    turns: list[tuple[str, int]] = []

    def measured(
        engine: Engine, models: Sequence[Compiled], inputs: Tensors, rounds: int
    ) -> np.ndarray:
        del inputs
        turns.append((engine.name, rounds))
        return np.full((rounds, len(models)), seconds[engine.name])

    monkeypatch.setattr(auto_engine, "measured_seconds", measured)
    found = resolve_engine_and_base(
        Request(save(CHAIN), gates=("sqnr>=5",), engine="auto"), QuietObserver()
    )
    assert found.request.engine == taken
    assert turns == [("openvino", 1), ("onnxruntime", 1)] * 15


@pytest.mark.usefixtures("both")
def test_only_what_is_left_open_is_compared():
    request = Request(DIGITS / "digits.onnx")
    for named in (
        replace(request, engine="onnxruntime"),
        replace(request, engine="openvino", base="float"),
        replace(request, pack="onnxruntime"),
        replace(request, base="float"),
    ):
        assert resolve_engine_and_base(named, QuietObserver()) == Resolved(named)


def test_an_engine_without_a_choice_of_the_base_refuses_auto():
    request = Request(DIGITS / "digits.onnx", engine="onnxruntime", base="auto")
    with pytest.raises(
        InputError, match="`base` auto is for engines with a choice of it, such as openvino"
    ):
        resolve_engine_and_base(request, QuietObserver())


@pytest.mark.parametrize(
    ("settings", "bases"),
    [
        ({"base": "bfloat16 or float"}, ("bfloat16", "float")),
        ({"base": "bfloat16"}, ()),  # Nothing was left to decide.
        ({"base": "float16, keep"}, ()),
        (None, ()),
    ],
)
def test_a_study_tells_the_base_precisions_that_it_decides_between(
    settings: object, bases: tuple[str, ...]
):
    assert bases_begun(settings) == bases
