"""GPU conditions, throughput and memory on their way from an engine's worker to result.json.

The engine is ONNX Runtime in a worker process; it says of each measurement and model what an engine
on a GPU would say.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console

from placer.cli.console import print_result
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.conditions import Conditions, conditions_of, memory_of
from placer.engines.cuda.nvml import GpuState
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.engines.registry import EngineOptions
from placer.errors import RunError
from placer.optimizer.trials.result_parts import (
    conditions_part,
    throttling_warnings,
    throughput_part,
)
from placer.results.parts import LatencyPart, TrialPart
from placer.results.result import Result
from tests.conftest import Finished, two_convs

Save = Callable[..., Path]

IDLE = GpuState("NVIDIA L4", "570.1", 2040, 6251, 60.5, 48, ())
HOT = GpuState("NVIDIA L4", "570.1", 1500, 6251, 72.0, 85, ("SwThermalSlowdown",))
COOL_RUN = Conditions(IDLE, IDLE, (True, True), 0)
HOT_RUN = Conditions(IDLE, HOT, (True, False), 2)
BYTES_PER_NODE = 1000

CONVS = two_convs(channels=16, size=8, batch=4)
X = {"x": np.ones((4, 16, 8, 8), np.float32)}


class TellingModel(OnnxRuntimeModel):
    def __init__(self, model: onnx.ModelProto, base_dir: Path) -> None:
        super().__init__(model, base_dir, threads=1)
        self._nodes = len(model.graph.node)

    def memory_bytes(self, inputs: Tensors) -> int:
        if not inputs:
            raise RunError("the GPU has no memory left")
        return self._nodes * BYTES_PER_NODE + sum(value.nbytes for value in inputs.values())


class TellingEngine(OnnxRuntimeEngine):
    """The GPU throttles in the measurements from number ``hot`` on."""

    name = "telling"

    def __init__(self, hot: int) -> None:
        super().__init__()
        self._left = hot
        self.conditions: Conditions | None = None

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> TellingModel:
        return TellingModel(model, base_dir)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        self._left -= 1
        self.conditions = HOT_RUN if self._left < 0 else COOL_RUN
        return super().measure(models, inputs, rounds)


class Factory:
    """Makes the engine in a worker, as that of TensorRT does."""

    rules = "onnxruntime"

    def unavailable(self) -> str | None:
        return None

    def create(self, options: EngineOptions) -> Engine:
        return isolated(int(options.extra["hot"]), Path("logs"))


factory = Factory()


def isolated(hot: int, logs: Path) -> IsolatedEngine:
    spec = EngineSpec("tests.optimizer.test_result_parts", "TellingEngine", {"hot": hot})
    return IsolatedEngine(spec, Limits(), logs)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``--engine telling`` known, as a distribution of a plug-in does."""
    info = tmp_path / "site" / "telling-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: telling\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[placer.engines]\ntelling = tests.optimizer.test_result_parts:factory\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def optimize(placer: Callable[..., Finished], model: Path, hot: int) -> tuple[Result, str]:
    arguments = (
        "--engine",
        "telling",
        "--engine-option",
        f"hot={hot}",
        "--budget",
        3,
        "--no-cache",
    )
    finished = placer("optimize", model, *arguments, "--preset", "quick", "--gate", "sqnr>=1")
    assert finished.code == 0, finished.err
    folder = Path(f"{model.stem}.placer")
    return Result.model_validate_json((folder / "result.json").read_text()), finished.out


@pytest.mark.slow
def test_a_worker_passes_conditions_and_memory_on(save: Save, tmp_path: Path):
    proto = onnx.load(save(CONVS))
    with isolated(hot=1, logs=tmp_path / "logs") as engine:
        compiled = engine.compile(proto, tmp_path)
        assert conditions_of(engine) is None
        for expected in (COOL_RUN, HOT_RUN):
            engine.measure([compiled], X, 2)
            assert conditions_of(engine) == expected
        assert memory_of(compiled, X) == 3 * BYTES_PER_NODE + X["x"].nbytes


@pytest.mark.slow
def test_memory_is_not_known_if_the_engine_fails_to_tell(save: Save, tmp_path: Path):
    with isolated(hot=0, logs=tmp_path / "logs") as engine:
        compiled = engine.compile(onnx.load(save(CONVS)), tmp_path)
        assert memory_of(compiled, {}) is None


def test_engines_on_the_cpu_tell_neither(save: Save, tmp_path: Path):
    own = OnnxRuntimeEngine()
    spec = EngineSpec("placer.engines.onnxruntime", "OnnxRuntimeEngine", {"threads": 1})
    with IsolatedEngine(spec, Limits(), tmp_path / "logs") as worker:
        for engine in (own, worker):
            compiled = engine.compile(onnx.load(save(CONVS)), tmp_path)
            engine.measure([compiled], X, 2)
            assert conditions_of(engine) is None
            assert memory_of(compiled, X) is None


def test_what_slowed_the_gpu_at_either_end_counts_once():
    assert Conditions(HOT, HOT, (True,), 0).throttled_by == ("SwThermalSlowdown",)
    assert Conditions(None, HOT, (True,), 0).throttled_by == ("SwThermalSlowdown",)
    assert Conditions(None, None, (True,), 0).throttled_by == ()


def test_conditions_in_result_json():
    assert conditions_part(HOT_RUN).model_dump() == {
        "before": {
            "sm_clock_mhz": 2040,
            "memory_clock_mhz": 6251,
            "power_w": 60.5,
            "temperature_c": 48,
        },
        "after": {
            "sm_clock_mhz": 1500,
            "memory_clock_mhz": 6251,
            "power_w": 72.0,
            "temperature_c": 85,
        },
        "cuda_graphs": False,
        "repeats": 2,
        "throttled_by": ["SwThermalSlowdown"],
    }
    assert conditions_part(None) is None


@pytest.mark.parametrize(
    ("inputs", "samples"),
    [(X, 2000.0), ({"s": np.float32(1), "x": X["x"]}, 500.0), ({"x": np.ones((3, 2))}, 1500.0)],
)
def test_throughput_is_that_of_the_median_and_of_the_first_inputs_batch(
    inputs: Tensors, samples: float
):
    latency = LatencyPart(median_ms=2.0, p10_ms=1.0, p90_ms=4.0, rounds=9)
    part = throughput_part(latency, {name: np.asarray(value) for name, value in inputs.items()})
    assert (part.batches_per_s, part.samples_per_s) == (500.0, samples)


@pytest.mark.slow
@pytest.mark.usefixtures("install")
def test_a_run_while_the_gpu_throttles_is_marked(save: Save, placer: Callable[..., Finished]):
    result, printed = optimize(placer, save(CONVS), hot=1)
    told = [trial.conditions.throttled_by for trial in result.trials if trial.conditions]
    assert told == [[], ["SwThermalSlowdown"], ["SwThermalSlowdown"]]
    assert result.confirmation == conditions_part(HOT_RUN)
    confirmed, trials = result.warnings[-2:]
    assert confirmed == (
        "the GPU throttled (SwThermalSlowdown) while the result was confirmed, so its speed-up may "
        "be off; lock the clocks, or let the GPU cool, and run it again"
    )
    assert trials.startswith("the GPU throttled while 2 of 3 trials were measured (1, 2); lock")
    # Indented, as the end of a wrapped line about the device is not.
    rows = re.findall(r"^ +[012] .*$", printed, re.MULTILINE)
    assert ["throttled" in row for row in rows] == [False, True, True]
    assert f"warning: {confirmed}" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("install")
def test_throughput_and_memory_of_the_result(save: Save, placer: Callable[..., Finished]):
    result, _ = optimize(placer, save(CONVS), hot=99)
    console = Console(width=80, file=io.StringIO())
    print_result(console, result, "model.placer")
    printed = console.file.getvalue()
    # Whether integers are faster is up to the processor.
    said = f"placed for {result.engine.name}; another engine may run it slower" in printed
    assert said == bool(result.best.quantized_edges)

    def row(name: str) -> str:
        return next(line for line in printed.splitlines() if line.startswith(f"│ {name} "))

    for part in (result.baseline, result.best):
        per_second = 1e3 / part.latency.median_ms
        assert part.throughput.batches_per_s == pytest.approx(per_second)
        assert part.throughput.samples_per_s == pytest.approx(4 * per_second)
        assert f"{part.throughput.samples_per_s:.1f} " in row("samples/s")
        assert f"{part.memory_bytes / 1e6:.1f} " in row("MB on the device")
    assert result.baseline.memory_bytes == 3 * BYTES_PER_NODE + X["x"].nbytes
    assert result.best.memory_bytes >= result.baseline.memory_bytes
    assert not [text for text in result.warnings if "throttled" in text]
    assert result.confirmation.throttled_by == []


@pytest.mark.slow
def test_a_run_on_the_cpu_has_throughput_and_no_conditions(
    save: Save, placer: Callable[..., Finished]
):
    arguments = ("--engine", "onnxruntime", "--budget", 2, "--preset", "quick", "--gate", "sqnr>=1")
    assert placer("optimize", save(CONVS), *arguments).code == 0
    result = json.loads(Path("model.placer/result.json").read_text())
    assert result["confirmation"] is None
    assert {trial["conditions"] for trial in result["trials"]} == {None}
    assert result["best"]["memory_bytes"] is None
    assert result["best"]["throughput"]["samples_per_s"] > 0


def test_only_the_first_few_of_many_throttled_trials_are_named():
    part = conditions_part(HOT_RUN)
    trials = [TrialPart.model_construct(number=number, conditions=part) for number in range(10)]
    (sentence,) = throttling_warnings(trials, None)
    assert "10 of 10 trials were measured (0, 1, 2, 3, 4, 5, 6, 7 and 2 more)" in sentence
