"""Engines that other distributions add: found by entry point, made from options, blamed by name."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from placer.common.processor import this_processor
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.registry import EngineFactory, EngineOptions, Registry
from placer.engines.select import BUILT_IN, select_engine
from placer.errors import InputError, RunError
from placer.rules.packaging.load import load_pack

RULES = Path(load_pack("onnxruntime").path)

# An engine of a third party: ONNX Runtime under another name, with a rule pack of its own.
ECHO = """
from pathlib import Path
from placer.engines.onnxruntime import OnnxRuntimeEngine

class EchoEngine(OnnxRuntimeEngine):
    name = "echo"
    rules = "echo"

class Factory:
    rules = str(Path(__file__).parent / "echo_pack")

    def unavailable(self):
        return None

    def create(self, options):
        options.check_extra("echo", ("volume", "pitch"))
        engine = EchoEngine(options.threads)
        engine.device = f"{options.device}, volume {options.extra.get('volume')}"
        engine.options = options
        return engine

factory = Factory()
"""

CONV = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,3,3] w = {0.1}> {
  [conv] y = Conv<pads = [1, 1, 1, 1]>(x, w)
}
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with one module that adds the engine ``name``."""

    def write(distribution: str, code: str, name: str = "echo") -> None:
        folder = tmp_path / f"site-{distribution}"
        module = f"module_of_{distribution.replace('-', '_')}"
        info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(
            f"[placer.engines]\n{name} = {module}:factory\n", encoding="utf-8"
        )
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
        pack = folder / "echo_pack"
        pack.mkdir()
        manifest = (RULES / "pack.yaml").read_text(encoding="utf-8")
        manifest = manifest.replace("engine: onnxruntime", "engine: echo")
        (pack / "pack.yaml").write_text(manifest, encoding="utf-8")
        shutil.copy(RULES / "conv-act.yaml", pack)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, module, raising=False)  # Of an earlier test.

    return write


def select(name: str, **options: Any) -> tuple[Engine, str]:
    given = {"threads": 1, "pack": None, "gpu": None, "base": None, "shapes": {}}
    engine, _, why = select_engine(name, **{**given, **options})
    return engine, why


class Here:
    """A built-in engine that runs here unless told why not."""

    rules = "onnxruntime"

    def __init__(self, reason: str | None = None) -> None:
        self._reason = reason

    def unavailable(self) -> str | None:
        return self._reason

    def create(self, options: EngineOptions) -> Engine:
        return OnnxRuntimeEngine(options.threads)


def auto(**built_in: EngineFactory) -> tuple[str, str]:
    named: Mapping[str, EngineFactory] = {k.replace("_", "-"): v for k, v in built_in.items()}
    name, _, why = Registry(named).resolve("auto")
    return name, why


def test_the_built_in_factories_are_factories():
    assert all(isinstance(factory, EngineFactory) for factory in BUILT_IN.values())


def test_auto_takes_the_first_of_a_fixed_order_and_says_what_it_passed_over():
    assert auto(onnxruntime=Here(), tensorrt=Here())[0] == "tensorrt"
    assert auto(
        onnxruntime=Here(), tensorrt=Here("no GPU"), tensorrt_rtx=Here("not installed")
    ) == (
        "onnxruntime",
        "the first that runs on this machine (placer doctor says why not tensorrt and "
        "tensorrt-rtx)",
    )
    with pytest.raises(RunError, match=r"no engine runs on this machine \(not onnxruntime: broken"):
        auto(onnxruntime=Here("broken"))


def test_an_engine_that_is_asked_for_but_cannot_run_here_says_why():
    with pytest.raises(RunError, match="engine tensorrt cannot run here: no GPU"):
        Registry({"tensorrt": Here("no GPU")}).resolve("tensorrt")


def test_a_plug_in_is_made_from_the_options(install: Install):
    install("placer-echo", ECHO)
    engine, why = select(
        "echo", threads=2, device="left", shapes={"x": (1, 2)}, extra={"volume": "11"}
    )
    assert (engine.name, engine.device) == ("echo", "left, volume 11")
    # With ONNX Runtime's rules.
    assert ("weights take a reduced range" in why) == (this_processor().exact_products is False)
    options: EngineOptions = engine.options  # type: ignore[attr-defined]
    assert (options.threads, options.shapes, options.pack.manifest.engine) == (
        2,
        {"x": (1, 2)},
        "echo",
    )


def test_a_plug_in_is_not_asked_for_an_objective_that_it_lacks(install: Install):
    install("placer-echo", f"{ECHO}\nfactory.objectives = frozenset({{'latency'}})")
    assert select("echo", objective="latency")[0].name == "echo"
    with pytest.raises(InputError, match="engine echo measures latency only"):
        select("echo", objective="throughput")


def test_an_unknown_engine_lists_plug_ins_with_their_distributions(install: Install):
    install("placer-echo", ECHO)
    with pytest.raises(InputError) as caught:
        select("ecko")
    assert str(caught.value).startswith("unknown engine 'ecko'; use one of: auto, ")
    assert "echo (of placer-echo 1.0)" in str(caught.value)


def test_unknown_options_are_refused():
    with pytest.raises(
        InputError, match="engine onnxruntime: unknown engine option 'x'; use one of: provider, "
    ):
        select("onnxruntime", extra={"x": "1"})
    with pytest.raises(InputError, match="`device` chooses a GPU; ONNX Runtime's CPU"):
        select("onnxruntime", device="0")
    with pytest.raises(InputError, match="fusion-model predicts for the one of `gpu`"):
        select("fusion-model", gpu="a100", device="0")


def test_a_plug_in_names_the_options_that_it_takes(install: Install):
    install("placer-echo", ECHO)
    with pytest.raises(InputError, match="unknown engine option 'tone'; use one of: volume, pitch"):
        select("echo", extra={"tone": "high"})


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "import no_such_library",
            "importing module_of_placer_echo:factory failed with ModuleNotFoundError: No module "
            "named 'no_such_library'",
        ),
        (
            ECHO.replace("return None", "raise OSError('no driver')"),
            r"unavailable\(\) failed with OSError: no driver",
        ),
        (
            ECHO.replace("engine.options = options", "1 / 0"),
            r"create\(\) failed with ZeroDivisionError: division by zero",
        ),
        (
            ECHO.replace("return engine", "return 7"),
            r"create\(\) returned a int, which has no clock, compile, device, estimated, measure",
        ),
        (ECHO.replace("def create", "def make"), "is broken: .* has no rules, unavailable"),
    ],
)
def test_a_plug_in_that_fails_is_named_with_its_distribution(
    install: Install, code: str, sentence: str
):
    install("placer-echo", code)
    with pytest.raises(RunError, match=rf"^engine echo \(of placer-echo 1\.0\).*{sentence}"):
        select("echo")


def test_two_plug_ins_of_one_name(install: Install):
    install("placer-echo", ECHO)
    install("other-echo", ECHO)
    with pytest.raises(
        InputError, match=r"'echo' comes with other-echo 1\.0 and placer-echo 1\.0; uninstall"
    ):
        select("echo")


def test_a_plug_in_does_not_replace_a_built_in_engine(install: Install):
    install("placer-echo", ECHO, name="onnxruntime")
    assert type(select("onnxruntime")[0]) is OnnxRuntimeEngine


def test_optimize_runs_on_a_plug_in(install: Install, save: Callable[..., Path], placer: Any):
    install("placer-echo", ECHO)
    model = save(CONV)
    chosen = ("--engine", "echo", "--device", "left", "--engine-option", "volume=11")
    ended = placer("optimize", model, *chosen, "--budget", 2, "--preset", "quick", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["engine"]["device"] == "left, volume 11"


def test_the_traceback_of_a_plug_in_is_shown_with_debug_only(
    install: Install, save: Callable[..., Path], placer: Any
):
    install("placer-echo", "import no_such_library")
    model = save(CONV)
    brief = placer("optimize", model, "--engine", "echo")
    assert brief.code == 1
    assert len(brief.err.splitlines()) == 1
    assert "Traceback" in placer("optimize", model, "--engine", "echo", "--debug").err


def test_the_module_in_the_documentation_is_an_engine(
    install: Install, save: Callable[..., Path], placer: Any
):
    page = (Path(__file__).parents[2] / "docs" / "engine-plugins.md").read_text(encoding="utf-8")
    (code,) = (text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "import" in text)
    install("placer-reference", code, "reference")
    wide = CONV.replace("16", "64")  # Its default placement quantizes the Conv.
    model = save(wide.replace('"": 17', '"": 19'))  # Its DequantizeLinear begins there.
    ended = placer("optimize", model, "--engine", "reference", "--budget", 2, "--preset", "quick")
    assert "engine reference" in ended.out
    assert " default " in ended.out
    assert ended.code in (0, 3), ended.err  # Faster or not, its trials ran.


def test_a_plug_in_that_fails_at_work_is_named(
    install: Install, save: Callable[..., Path], placer: Any
):
    measure = "    def measure(self, models, inputs, rounds):\n        return {}['clock']\n\n"
    install("placer-echo", ECHO.replace("class Factory", f"{measure}class Factory"))
    ended = placer("optimize", save(CONV), "--engine", "echo", "--preset", "quick")
    assert ended.code == 1
    assert "engine echo (of placer-echo 1.0) fails (traceback in" in ended.err
    assert "KeyError: 'clock'; report it to its authors" in ended.err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["volume"], "--engine-option 'volume' is not KEY=VALUE; write e.g. target=cuda"),
        (["=11"], "--engine-option '=11' is not KEY=VALUE; write e.g. target=cuda"),
        (["volume=1", "volume=2"], "--engine-option names 'volume' twice; give it once"),
    ],
)
def test_engine_options_that_cannot_be_read(
    save: Callable[..., Path], placer: Any, given: list[str], sentence: str
):
    flags = [part for text in given for part in ("--engine-option", text)]
    ended = placer("optimize", save(CONV), *flags)
    assert (ended.code, ended.err) == (2, f"placer: error: {sentence}\n")


@pytest.mark.slow
def test_an_engine_whose_version_is_no_version_is_outside_of_the_packs_range(
    install: Install, save: Callable[..., Path], placer: Any
):
    renamed = ECHO.replace("engine.options = options", "engine.version = 'nightly'")
    install("placer-echo", renamed)
    ended = placer("optimize", save(CONV), "--engine", "echo", "--budget", 2, "--preset", "quick")
    assert "this is echo nightly" in ended.out + ended.err
