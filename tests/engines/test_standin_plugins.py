"""Libraries of plugins on the stand-in for TensorRT."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from placer.engines.tensorrt.engine import TensorRtEngine, create
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.plugins import load_plugins
from placer.errors import InputError
from tests.conftest import Finished
from tests.engines.conftest import RELU, X


def with_plugin(operator: str) -> onnx.ModelProto:
    """The operator is not ONNX's, so the model is not checked."""
    return onnx.parser.parse_model(RELU.replace("Identity", operator).replace("batch", "1"))


def test_a_plugin_library_serves_every_build(standin: Library, tmp_path: Path):
    """TensorRT refuses a library whose plugins it has; engines of one process share them."""
    assert standin.kind == "tensorrt"
    path = tmp_path / "own.so"
    path.write_text("FirstPlugin SecondPlugin")
    for _ in range(2):
        engine = create("tensorrt", plugins=(path,))
        for plugin in ("FirstPlugin", "SecondPlugin"):
            compiled = engine.compile(with_plugin(plugin), tmp_path)
            assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    other = tmp_path / "other.so"
    other.write_text("SecondPlugin")
    with pytest.raises(InputError, match=r"cannot load plugin library .*other\.so"):
        create("tensorrt", plugins=(other,))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_that_registers_its_plugins_itself_is_loaded(standin: Library, tmp_path: Path):
    """As ``REGISTER_TENSORRT_PLUGIN`` does, and as trtexec's ``--staticPlugins`` takes them."""
    path, source = tmp_path / "plugins.so", tmp_path / "plugins.c"
    source.write_text('const char *standin_operators = "StaticPlugin";')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    assert standin.kind == "tensorrt"
    compiled = create("tensorrt", plugins=(path,)).compile(with_plugin("StaticPlugin"), tmp_path)
    assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]
    empty = tmp_path / "empty.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", empty, "-x", "c", "/dev/null"], check=True)
    with pytest.raises(InputError, match=r"cannot load plugin library .*empty\.so"):
        create("tensorrt", plugins=(empty,))


def test_plugins_of_tensorrt_itself_need_no_option(engine: TensorRtEngine, tmp_path: Path):
    compiled = engine.compile(with_plugin("StandinPlugin_TRT"), tmp_path)
    assert compiled.run({"x": X})["y"].tolist() == [[0, 2, 0, 4]]


def test_plugins_of_tensorrt_itself_that_fail_are_left_out(
    standin: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("PLACER_STANDIN_FAILS", "own plugins")
    module = ModuleType("tensorrt")  # As in a process that has not registered them.
    vars(module).update(vars(standin.module))
    load_plugins(Library("tensorrt", module), ())
    assert "registering TensorRT's own plugins failed, going on without" in caplog.text


@pytest.mark.slow
def test_saved_engines_get_the_plugins(
    standin: Library,
    placer: Callable[..., Finished],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    assert standin.kind == "tensorrt"
    library = tmp_path / "saved.so"
    library.write_text("SavedPlugin")
    engine = create("tensorrt", plugins=(library,))
    engine.compile(with_plugin("SavedPlugin"), tmp_path).save(tmp_path / "saved.engine")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    bench = ("bench", tmp_path / "saved.engine", "--engine", "tensorrt", "--rounds", 3)
    finished = placer(*bench, "--engine-option", f"plugins={library}")
    assert finished.code == 0, finished.err
    finished = placer(*bench)
    assert finished.code == 1
    assert "Cannot find plugin: SavedPlugin" in finished.err
