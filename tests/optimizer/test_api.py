"""placer.optimize: the keywords of the command line, in memory, and the guide's code."""

import importlib
import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer

import placer
from placer.cli.app import app
from placer.errors import InputError
from placer.optimizer.api import optimize
from placer.results.objective import Objective
from placer.results.result import Result
from placer.search.records import TrialRecord
from tests.conftest import DIGITS, Finished

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"
NET = """
<ir_version: 9, opset_import: ["": 17]>
net (float[4,16,16,16] image) => (float[4,16,16,16] out)
<float[16,16,3,3] w1 = {0.1}, float[16,16,3,3] w2 = {0.1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(image, w1)
  [relu1] b = Relu(a)
  [conv2] out = Conv<pads = [1, 1, 1, 1]>(b, w2)
}
"""
QUICK = {
    **{"engine": "fusion-model", "gpu": "a100", "preset": "quick", "budget": 3, "cache": False},
    "calibration": "minmax",
}


def mean_of_output(outputs: dict[str, np.ndarray], _batch: dict[str, np.ndarray]) -> float:
    return float(outputs["out"].mean())


class Listener:
    """Keeps what it is told; not derived from ``placer.Observer``, it has all methods itself."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.trials: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def warn(self, text: str) -> None:
        self.stages.append(text)

    def search(
        self,
        budget: int | None,
        done: int,
        best: float | None,
        estimated: bool,
        objective: Objective,
    ) -> None:
        self.stages.append(f"{budget} {done} {best} {estimated} {objective}")

    def trial(self, record: TrialRecord) -> None:
        self.trials.append(record.kind)

    def probe(self, done: int) -> None:
        self.stages.append(f"noise {done}")

    def progress(self, done: int, total: int) -> None:
        self.stages.append(f"{done}/{total}")


def test_keywords_and_defaults_are_those_of_the_command_line():
    plural = {"gate": "gates", "beat": "beats", "shape": "shapes", "warm_start": "warm_starts"}
    plural |= {"engine_option": "engine_options", "override": "overrides"}
    of_the_terminal = {"project", "profile", "quiet", "as_json", "debug"}
    options = {
        plural.get(option.name, option.name): option.default
        for option in typer.main.get_command(app).commands["optimize"].load().params
        if option.name not in of_the_terminal
    }
    keywords = {
        name: keyword.default
        for name, keyword in inspect.signature(placer.optimize).parameters.items()
        if name != "observer"
    }
    assert keywords.keys() == options.keys()
    for name, default in keywords.items():
        if default is inspect.Parameter.empty:
            assert name == "model"
        else:
            assert (default or None) == (options[name] or None), name


@pytest.mark.slow
def test_the_code_of_the_guide_runs(tmp_path: Path):
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "guide.py").write_text("\n".join(blocks))
    (tmp_path / "examples").symlink_to(DIGITS.parent)
    done = subprocess.run(
        [sys.executable, "guide.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^faster\n\d\.\d\d times as fast, in digits.placer/optimized", done.stdout)
    assert re.search(r"^0 none complete \d", done.stdout, re.MULTILINE)
    assert (tmp_path / "in-memory" / "optimized.onnx").exists()


def test_the_functions_that_the_guide_lists_exist():
    table = GUIDE.read_text().partition("## What else there is")[2]
    names = re.findall(r"`(placer(?:\.\w+)+)`", table)
    assert len(names) > 10
    for name in names:
        module, _, function = name.rpartition(".")
        if module != "placer":
            assert callable(getattr(importlib.import_module(module), function)), name


def test_what_is_given_in_memory_is_what_files_say(here: Path, save: Callable[..., Path]):
    path = save(NET, "net.onnx")
    images = np.random.default_rng(0).normal(size=(16, 16, 16, 16)).astype(np.float32)
    np.savez(here / "calib.npz", image=images)
    by_file = optimize(path, data=here / "calib.npz", gates="sqnr>=5", **QUICK)
    proto = onnx.load(path)
    arrays = {"image": images}
    in_memory = optimize(proto, data=arrays, gates=["sqnr>=5"], output="memory", **QUICK)
    assert by_file.calibrated
    assert by_file.folder == Path("net.placer")
    assert in_memory.optimized_model == Path("memory/optimized.onnx")
    assert in_memory.best == by_file.best
    assert [t.placement for t in in_memory.trials] == [t.placement for t in by_file.trials]
    files = {path.name for path in Path("memory").iterdir()}
    assert {"model.onnx", "data.npz", "optimized.onnx", "placement.yaml"} <= files


def contents(folder: str) -> dict[str, bytes]:
    """What is in ``folder``, without the log."""
    files = (path for path in Path(folder).iterdir() if path.is_file() and path.suffix != ".log")
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.usefixtures("here")
def test_what_a_run_was_given_in_memory_stays(save: Callable[..., Path]):
    """The same call goes on; another model or other data are refused and leave all as it is."""
    proto, other = onnx.load(save(NET)), onnx.load(save(NET.replace("0.1", "0.2"), "other.onnx"))
    images = np.random.default_rng(0).normal(size=(16, 16, 16, 16)).astype(np.float32)
    first = {"data": {"image": images}, "output": "memory", **QUICK}
    found = optimize(proto, **first)
    assert len(optimize(proto, **first).trials) == len(found.trials)
    before = contents("memory")
    for model, given, name in [(other, images, "model.onnx"), (proto, 2 * images, "data.npz")]:
        words = f"another model or other data, since memory/{name} is not what was given"
        with pytest.raises(InputError, match=f"memory holds a run of {words}; choose another"):
            optimize(model, **{**first, "data": {"image": given}})
    with pytest.raises(InputError, match="a study with other settings"):
        optimize(proto, **first, eval_data={"image": 2 * images})
    assert contents("memory") == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["model.onnx", "data.npz"])
def test_a_file_of_the_user_is_not_written_over(save: Callable[..., Path], name: str):
    Path("mine").mkdir()
    Path("mine", name).write_text("the only copy")
    images = np.zeros((4, 16, 16, 16), np.float32)
    with pytest.raises(InputError, match=f"mine/{name} is there and no run of placer wrote it"):
        optimize(onnx.load(save(NET)), data={"image": images}, output="mine", **QUICK)
    assert contents("mine") == {name: b"the only copy"}


@pytest.mark.usefixtures("here")
def test_a_run_that_does_not_begin_leaves_nothing_in_the_way(save: Callable[..., Path]):
    proto = onnx.load(save(NET))
    images = np.random.default_rng(0).normal(size=(16, 16, 16, 16)).astype(np.float32)
    with pytest.raises(InputError, match="image"):
        optimize(proto, data={"image": images[:, :3]}, output="memory", **QUICK)
    assert not Path("memory").exists()
    assert optimize(proto, data={"image": images}, output="memory", **QUICK).trials


@pytest.mark.usefixtures("here")
def test_an_input_may_have_any_name(save: Callable[..., Path]):
    path = save(NET.replace("image", "file"), "net.onnx")
    images = np.random.default_rng(0).random((8, 16, 16, 16), np.float32)
    result = optimize(path, data={"file": images}, **QUICK)
    assert result.calibration.data == str(Path("net.placer/data.npz"))


def test_the_result_can_be_read_back(here: Path, save: Callable[..., Path]):
    found = optimize(save(NET, "net.onnx"), **QUICK)
    read = Result.read("net.placer")
    assert read == found
    assert read.speedup == read.best.speedup
    assert read.placement_file.exists()
    (here / "other.json").write_text('{"format": "placer-result/1"}')
    with pytest.raises(InputError, match=r"other\.json is no result of this version"):
        Result.read("other.json")
    with pytest.raises(InputError, match="nowhere does not exist; give the output folder"):
        Result.read("nowhere")


@pytest.mark.usefixtures("here")
def test_a_gate_that_nothing_meets_is_an_error_that_leaves_the_result(save: Callable[..., Path]):
    with pytest.raises(placer.GateError, match=r"no quantized candidate of \d+ meets sqnr>=200"):
        placer.optimize(save(NET, "net.onnx"), gates="sqnr>=200", **QUICK)
    result = placer.Result.read("net.placer")
    assert (result.verdict, result.speedup) == ("gate not met", 1.0)
    with pytest.raises(placer.RunError, match=r"there is no optimized\.onnx: no candidate meets"):
        print(result.optimized_model)


@pytest.mark.usefixtures("here")
def test_a_function_can_be_a_gate(save: Callable[..., Path]):
    gate = placer.function_gate(mean_of_output, at_most=1e6)
    assert gate == "tests.optimizer.test_api:mean_of_output<=1000000"
    result = placer.optimize(save(NET, "net.onnx"), gates=gate, **QUICK)
    assert result.gates == [gate]
    assert all(found.passed for found in result.best.gates)
    with pytest.raises(InputError, match="<lambda>' is not at the top level of a module"):
        placer.function_gate(lambda _outputs, _batch: 0.0, at_least=0)
    with pytest.raises(InputError, match="needs one limit; give at_least or at_most"):
        placer.function_gate(mean_of_output)


@pytest.mark.usefixtures("here")
def test_wrong_input_is_one_sentence(save: Callable[..., Path]):
    with pytest.raises(InputError, match="a model in memory has no file name"):
        optimize(onnx.load(save(NET)), **QUICK)
    with pytest.raises(InputError, match=r"nowhere\.onnx does not exist"):
        optimize("nowhere.onnx", **QUICK)
    with pytest.raises(InputError, match="array 'image' holds Python objects"):
        optimize(save(NET), data={"image": np.array([None])}, **QUICK)
    with pytest.raises(InputError, match="the model is of type bytes; give the path of"):
        optimize(save(NET).read_bytes(), **QUICK)
    quick = {key: value for key, value in QUICK.items() if key != "gates"}
    with pytest.raises(InputError, match="gate '15' is not a condition"):
        optimize(save(NET), gates=15, **quick)
    with pytest.raises(InputError, match=r"`gates` is or holds .*; .* placer\.function_gate"):
        optimize(save(NET), gates=max, **quick)


@pytest.mark.usefixtures("here")
def test_an_observer_lacks_no_method(save: Callable[..., Path]):
    class Half:
        def stage(self, text: str) -> None: ...

    class Warned(placer.Observer):
        def warn(self, text: str) -> None: ...

    path = save(NET, "net.onnx")
    with pytest.raises(InputError, match=r"no method 'warn'; derive .* placer\.Observer"):
        optimize(path, observer=Half(), **QUICK)
    with pytest.raises(InputError, match="no method 'stage'"):
        placer.sensitivity(path, observer="loud")
    with pytest.raises(InputError, match=r"is the class Warned; give an object .* `Warned\(\)`"):
        optimize(path, observer=Warned, **QUICK)
    assert optimize(path, observer=Warned(), **QUICK).trials


@pytest.mark.usefixtures("here")
def test_an_observer_is_told_and_nothing_is_printed(
    save: Callable[..., Path], capsys: pytest.CaptureFixture[str]
):
    listener = Listener()
    level = logging.getLogger("placer").level
    result = optimize(save(NET, "net.onnx"), observer=listener, **QUICK)
    assert listener.trials == [trial.kind for trial in result.trials]
    assert "3 0 None True latency" in listener.stages
    optimize("net.onnx", observer=listener, **QUICK)
    best = min(trial.ratio_to_float for trial in result.trials)
    assert f"3 3 {best} True latency" in listener.stages
    assert capsys.readouterr().out == ""
    assert logging.getLogger("placer").level == level


def test_importing_placer_imports_little():
    code = "import sys, placer; print(placer.__version__, 'onnx' in sys.modules, dir(placer))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, has_onnx, names = done.stdout.split(maxsplit=2)
    assert (version, has_onnx) == (placer.__version__, "False")
    assert "'optimize'" in names
    assert all(hasattr(placer, name) for name in placer.__all__)
    assert placer.Result is Result
    with pytest.raises(AttributeError, match="module 'placer' has no attribute 'optimise'"):
        getattr(placer, "optimise")  # noqa: B009 - a name that does not exist


def test_the_command_line_passes_every_option_on(placer: Callable[..., Finished], save):
    """Values that differ from the defaults arrive in the study and the result."""
    path = save(NET, "net.onnx")
    flags = "--engine fusion-model --gpu t4 --preset quick --budget 2 --seed 3 --sampler random"
    more = "--gate sqnr>=3 --gate cosine>=0.5 --shape image=4x16x16x16 --calibration minmax"
    finished = placer("optimize", path, *flags.split(), *more.split(), "-o", "out", "--no-cache")
    assert finished.code == 0, finished.err
    result = Result.read("out")
    assert result.gates == ["sqnr>=3", "cosine>=0.5"]
    assert (result.seed, result.sampler, result.budget.trials) == (3, "random", 2)
    assert result.calibration.requested_method == "minmax"
    assert "t4" in result.engine.device
