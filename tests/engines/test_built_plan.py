"""The engine whose plans NVIDIA's builder makes: real layers, and times that are estimates."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer.engines.estimated.built_plan import BuiltPlanEngine
from placer.engines.isolation import Limits
from placer.engines.registry import EngineOptions, Registry
from placer.engines.select import BUILT_IN
from placer.engines.tensorrt import plan_builder
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.offline_builder import check_model
from placer.engines.tensorrt.plan_builder import PlanBuilder
from placer.errors import InputError, RunError
from placer.graph.text import parse_model
from placer.plan.readers.read import read_plan
from placer.prediction.times.gpus import load_gpu
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from tests.conftest import DIGITS, Finished

PACK = load_pack("tensorrt-rtx")
OPTIONS = EngineOptions(pack=PACK, gpu="l4")
FACTORY = BUILT_IN["tensorrt-rtx-build"]
MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[N,16,8,8] x) => (float[N,16,8,8] y)
<float[16,16,3,3] w = {0.1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] y = Relu(c)
}
"""
NO_LIMITS = Limits()
FIXED = MODEL.replace("N,", "2,")


@pytest.fixture
def make(builder: Library, tmp_path: Path) -> Iterator[Callable[..., BuiltPlanEngine]]:
    """An engine for an L4 whose builds are kept in a folder of the test."""
    made = []

    def engine(limits: Limits = NO_LIMITS) -> BuiltPlanEngine:
        folders = tmp_path / "builds", tmp_path / "logs"
        shapes = {"x": (2, 16, 8, 8)}
        made.append(
            BuiltPlanEngine(builder, load_gpu("l4"), PACK, None, shapes, 1, limits, *folders)
        )
        return made[-1]

    yield engine
    for one in made:
        one.close()


def test_layers_are_those_of_the_builder_for_the_shapes_given_and_kept_by_content(
    make: Callable[..., BuiltPlanEngine], builder: Library, tmp_path: Path
):
    first = make().compile(parse_model(MODEL), tmp_path)
    expected = check_model(builder, parse_model(FIXED), "sm89").plan.layers
    assert [layer.nodes for layer in first.plan().layers] == [layer.nodes for layer in expected]
    assert all(layer.time_us for layer in first.plan().of_kind("compute"))
    assert first.run({"x": np.ones((2, 16, 8, 8), np.float32)})["y"].shape == (2, 16, 8, 8)
    # No process has time to build, and none has to.
    again = make(Limits(compile_s=0.0)).compile(parse_model(MODEL), tmp_path)
    assert again.plan() == first.plan()
    (kept,) = (tmp_path / "builds").iterdir()
    for damaged in (kept.read_bytes()[:-20], b""):
        kept.write_bytes(damaged)
        assert make().compile(parse_model(MODEL), tmp_path).plan() == first.plan()


@pytest.mark.slow
def test_a_candidate_that_is_refused_or_takes_too_long_ends_its_trial_only(
    make: Callable[..., BuiltPlanEngine], tmp_path: Path
):
    engine = make()
    odd = parse_model(FIXED)
    odd.graph.node[1].op_type = "NotAnOperator"
    with pytest.raises(RunError, match=r"refuses the candidate: node 'relu' \(NotAnOperator\)"):
        engine.compile(odd, tmp_path)
    assert engine.compile(parse_model(FIXED), tmp_path).plan().layers
    late = make(Limits(compile_s=0.01))
    other = parse_model(FIXED.replace("0.1", "0.2"))
    with pytest.raises(RunError, match=r"took more than 0\.01 s and was stopped while building"):
        late.compile(other, tmp_path)


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gpu": None}, "needs a GPU to build for and to estimate; give `gpu`"),
        (
            {"gpu": "h100-sxm"},
            r"does not build for h100-sxm \(sm90\), but for sm120, ",
        ),
        ({"build_for": "sm89"}, "leave out `device` and `build_for`"),
        ({"base": "int8"}, "unknown base 'int8'"),
        ({"extra": {"memory": "1"}}, "unknown engine option 'memory'"),
    ],
)
def test_options_that_it_does_not_take(changed: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        FACTORY.create(replace(OPTIONS, **changed))


def test_a_build_of_which_no_layer_can_be_read_is_refused_and_not_taken_for_the_fastest(
    builder: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report = replace(check_model(builder, parse_model(FIXED), "sm89"), logged=())
    monkeypatch.setattr(plan_builder, "check_file", lambda *_: report)
    with pytest.raises(RunError, match="logs no layers that placer can read"):
        PlanBuilder(builder, "sm89", {}).compile(parse_model(FIXED), tmp_path)


@pytest.mark.parametrize(
    ("engine", "title", "modules", "packages"),
    [
        (
            "tensorrt-rtx-build",
            "TensorRT-RTX",
            ("tensorrt_rtx", "tensorrt_rtx_bindings"),
            "'tensorrt-rtx-cu13-libs>=1.7' 'tensorrt-rtx-cu13-bindings>=1.7' 'cuda-python>=13'",
        ),
        ("tensorrt", "TensorRT", ("tensorrt",), "'tensorrt<12,>=10' 'cuda-python>=12.6'"),
    ],
)
def test_without_the_builder_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    title: str,
    modules: Sequence[str],
    packages: str,
):
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    install = f"{title} is not installed; install it with: pip install {packages}"
    with pytest.raises(RunError, match=re.escape(f"{engine} cannot run here: {install}")):
        Registry.installed(BUILT_IN).resolve(engine)


@pytest.mark.slow
@pytest.mark.usefixtures("builder")
def test_a_run_calls_its_plan_built_and_its_latency_an_estimate(placer: Callable[..., Finished]):
    data = ("--data", DIGITS / "calibration.npz", "--eval-data", DIGITS / "evaluation.npz")
    run = ("optimize", DIGITS / "digits.onnx", *data, "--preset", "quick", "--output", "out")
    engine = ("--engine", "tensorrt-rtx-build", "--gpu", "l4", "--budget")
    first = placer(*run, *engine, "3")
    assert first.code == 0, first.err
    assert "every latency is an estimate" in first.out + first.err
    result = Result.read(Path("out"))
    assert (result.engine.estimated, result.engine.built_plans) == (True, True)
    assert "layers that TensorRT-RTX" in result.engine.clock
    for name in ("plan.json", "plan_float.json"):
        plan = read_plan(Path("out") / name)
        assert (plan.estimated, plan.estimated_times) == (False, True)
        assert "times estimated for l4" in plan.source
    assert read_plan(Path("out/plan_predicted.json")).estimated
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "Plan: predicted and built" in page
    assert "of built layers, 80% interval" in page
    explained = placer("explain", "out/optimized.onnx", "--actual", "out/plan.json", "--all")
    assert "measured" not in explained.out
    placer("rules", "new", "old", "--engine", "tensorrt", "--extends", "tensorrt-rtx")
    manifest = Path("old/pack.yaml")
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(
        re.sub("engine_versions: .*", "engine_versions: <1", text), encoding="utf-8"
    )
    warned = placer(*run[:-1], "other", *engine, "1", "--pack", "./old")
    assert (
        "pack 'old' was made for tensorrt <1, this is tensorrt-rtx-build 1."
        in warned.out + warned.err
    )
    resumed = json.loads(placer(*run, *engine, "4", "--json").out)
    assert len(resumed["trials"]) == 4
    assert resumed["trials"][:3] == [trial.model_dump(mode="json") for trial in result.trials]
