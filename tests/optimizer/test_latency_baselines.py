"""``--beat``: not slower than the float model, or than the engine's own implicit quantization."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.accuracy.gates import GateResult
from placer.accuracy.latency_gates import parse_beats
from placer.common.statistics import Ratio
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.errors import InputError, RunError
from placer.optimizer.setup.latency_baselines import FLOAT, LatencyBaselines, implicit_engine
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, two_convs
from tests.few_digits import CALIBRATION

MODEL = DIGITS / "digits.onnx"
QUICK = ("--data", CALIBRATION, "--calibration", "minmax", "--preset", "quick")
PREDICT = ("--engine", "fusion-model", "--gpu", "l4")
SELF_QUANTIZING = EngineSpec("tests.engines.self_quantizing", "SelfQuantizingEngine")
# Quantizing the one small Gemm takes more launches than it saves.
TINY = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16] x) => (float[1,16] y) <float[16,16] w = {0.1}> { [gemm] y = Gemm(x, w) }
"""
# And here it saves more than it takes.
LARGE = two_convs(channels=256, size=14, batch=4, weight=0.02)

Placer = Callable[..., Finished]


@pytest.fixture
def session() -> OnnxRuntimeModel:
    return OnnxRuntimeModel(onnx.load(MODEL), MODEL.parent, threads=1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the engine ``self-quantizing`` as a plug-in."""
    info = tmp_path / "site" / "self_quantizing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: self-quantizing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[placer.engines]\nself-quantizing = tests.engines.self_quantizing:factory\n"
    )
    monkeypatch.syspath_prepend(str(info.parent))


def seconds(*columns: float) -> np.ndarray:
    """Ten rounds in which every model always takes the same time."""
    return np.tile(np.array(columns), (10, 1))


def test_beats_are_parsed_once_each():
    assert parse_beats(["implicit", "float", "implicit"]) == ("float", "implicit")
    with pytest.raises(InputError, match="unknown beat 'int8'; use one of: float, implicit"):
        parse_beats(["int8"])


def test_the_gates_are_ratios_of_the_same_rounds(session: OnnxRuntimeModel):
    latency_baselines = LatencyBaselines(("float", "implicit"), session)
    assert latency_baselines.measured == [session]
    against_float, against_implicit = latency_baselines.gates(seconds(4.0, 3.0, 2.0))
    where = "latency over that of float, 95% interval 0.750 to 0.750"
    assert against_float.result() == GateResult("float<=1", 0.75, where, -0.25)
    assert against_implicit.ratio == Ratio(1.5, 1.5, 1.5, 10)
    assert not against_implicit.passed
    assert against_implicit.violation == 0.5


def test_the_float_model_is_as_fast_as_itself(session: OnnxRuntimeModel):
    latency_baselines = LatencyBaselines(("float", "implicit"), session)
    found = [gate.ratio.median for gate in latency_baselines.gates(seconds(4.0, 3.0, 2.0), FLOAT)]
    assert found == [1.0, 2.0]


def test_without_beat_there_is_nothing_to_measure_or_to_meet():
    assert LatencyBaselines().measured == []
    assert LatencyBaselines().gates(seconds(4.0, 3.0)) == ()


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=40))
def test_a_gate_is_missed_only_outside_the_noise(ratios: list[float]):
    columns = np.stack([np.ones(len(ratios)), np.array(ratios)], axis=1)
    (gate,) = LatencyBaselines(("float",)).gates(columns)
    assert gate.passed == (gate.ratio.low <= 1)
    assert gate.passed or gate.ratio.median > 1


@pytest.mark.slow
def test_beating_float_is_a_gate_of_trials_and_result(placer: Placer, save: Callable[..., Path]):
    flags = (*PREDICT, "--preset", "quick", "--budget", 3, "--gate", "sqnr>=1")
    finished = placer("optimize", save(LARGE), *flags, "--beat", "float", "--no-cache")
    assert finished.code == 0, finished.err
    found = Result.model_validate_json(Path("model.placer/result.json").read_text())
    assert found.gates == ["sqnr>=1", "float<=1"]
    assert found.best.gates[-1].value == pytest.approx(1 / found.best.speedup)
    for trial in found.trials:
        gate = trial.gates[-1]
        assert (gate.gate, gate.value) == ("float<=1", trial.ratio_to_float)
        assert gate.passed == (trial.ratio_interval is not None and trial.ratio_interval[0] <= 1)


@pytest.mark.slow
def test_what_only_slows_a_model_down_misses_the_gate(placer: Placer, save: Callable[..., Path]):
    model = save(TINY)
    flags = (*PREDICT, "--preset", "quick", "--budget", 3, "--gate", "sqnr>=1")
    assert placer("optimize", model, *flags, "-o", "free").code == 0
    finished = placer("optimize", model, *flags, "--beat", "float", "-o", "gated")
    assert finished.code == 3
    assert "meets sqnr>=1, float<=1; the closest:" in finished.err
    assert not Path("gated/optimized.onnx").exists()


@pytest.mark.slow
def test_onnxruntime_measures_the_gate(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--budget", 3, "--beat", "float", "--json")
    assert finished.code in (0, 3), finished.err
    found = json.loads(Path("digits.placer/result.json").read_text())
    assert found["gates"][-1] == "float<=1"
    assert all(trial["gates"][-1]["gate"] == "float<=1" for trial in found["trials"])


@pytest.mark.parametrize("flags", [("--engine", "onnxruntime"), PREDICT])
def test_an_engine_without_implicit_quantization_says_so(placer: Placer, flags: tuple[str, ...]):
    finished = placer("optimize", MODEL, *QUICK, *flags, "--beat", "implicit")
    assert finished.code == 2
    assert (
        "has no implicit quantization, which TensorRT deprecated in 10.1 and which no longer "
        "exists in 11; use --beat float" in finished.err
    )
    assert not Path("digits.placer").exists()


@pytest.mark.slow
def test_a_study_goes_on_only_with_the_same_gates(placer: Placer):
    flags = ("optimize", MODEL, *QUICK, *PREDICT, "--budget", 2)
    assert placer(*flags).code == 0
    finished = placer(*flags, "--beat", "float")
    assert finished.code == 2
    assert "holds a study with other settings (gates: " in finished.err


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_an_implicit_engine_is_measured_in_the_same_rounds(placer: Placer):
    flags = ("--engine", "self-quantizing", "--budget", 2, "--beat", "implicit")
    finished = placer("optimize", MODEL, *QUICK, *flags)
    assert finished.code in (0, 3), finished.err
    found = Result.model_validate_json(Path("digits.placer/result.json").read_text())
    assert found.gates == ["sqnr>=15", "implicit<=1"]
    for trial in found.trials:
        gate = trial.gates[-1]
        assert gate.where.startswith("latency over that of implicit, 95% interval ")
        assert gate.value != trial.ratio_to_float


@pytest.mark.slow
def test_implicit_engines_and_saved_ones_live_in_the_worker(tmp_path: Path):
    proto = onnx.load(MODEL)
    rng = np.random.default_rng(0)
    shape = (1, 1, 32, 32)
    samples = [{"image": rng.random(shape, np.float32)} for _ in range(3)]
    with IsolatedEngine(SELF_QUANTIZING, Limits(), tmp_path / "logs") as engine:
        assert engine.target.compute_capability == "8.0"
        implicit = implicit_engine(engine).compile_implicit(proto, MODEL.parent, samples)
        own = engine.compile(proto, MODEL.parent)
        (expected,) = own.run(samples[0]).values()
        (actual,) = implicit.run(samples[0]).values()
        assert np.argmax(actual) == np.argmax(expected)
        assert not np.array_equal(actual, expected)
        assert engine.measure([own, implicit], samples[0], 3).shape == (3, 2)
        with pytest.raises(RunError, match="nothing to calibrate on"):
            engine.compile_implicit(proto, MODEL.parent, [])
        assert np.array_equal(own.run(samples[0])["logits"], expected)  # The worker lives on.


def test_a_worker_without_the_abilities_has_none(tmp_path: Path):
    spec = EngineSpec("placer.engines.onnxruntime", "OnnxRuntimeEngine")
    with IsolatedEngine(spec, Limits(), tmp_path) as engine:
        assert engine.abilities == frozenset()
        with pytest.raises(InputError, match=r"beat implicit: engine onnxruntime .* has no"):
            implicit_engine(engine)
    with pytest.raises(InputError, match="use `beats` float"):
        implicit_engine(OnnxRuntimeEngine())
