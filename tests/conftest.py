"""Fixtures that several test modules use."""

import gc
import math
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from hypothesis import settings
from sqlalchemy import event
from sqlalchemy.engine import Engine

from placer.cli.app import main
from placer.common import statistics
from placer.engines import rounds
from placer.engines.cuda import api
from placer.engines.onnxruntime.factory import IN_PROCESS
from placer.engines.tensorrt.library import Library, load_library
from placer.engines.tensorrt.offline_builder import import_builder
from placer.errors import RunError
from placer.graph.text import parse_model
from placer.optimizer.setup import auto_engine

# Fixtures of things that not every machine has, and the marker of the tests that ask for them.
MARKER_OF_FIXTURE = {
    "builder": "builder",
    "library": "builder",
    "gpu": "gpu",
    "chromium": "browser",
}
WIDEST = (statistics.WIDEST_INTERVAL, statistics.WIDEST_SPREAD)
DIGITS = Path(__file__).parent.parent / "examples" / "digits"


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def came_to_a_result(self) -> bool:
        """Whether a run ended with result.json."""
        return self.code in (0, 3)


def pytest_configure() -> None:
    """Let property tests draw 50 examples unless they say otherwise, however long one takes."""
    settings.register_profile("short", max_examples=50, deadline=None)
    settings.load_profile("short")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector, which would take a quarter of the time.

    What is made stays as long as the process, so later collections leave it out.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need what ``MARKER_OF_FIXTURE`` names, so that none is forgotten."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKER_OF_FIXTURE:
                item.add_marker(MARKER_OF_FIXTURE[fixture])


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    """NVIDIA's builder, TensorRT-RTX, which needs no GPU."""
    try:
        return import_builder()
    except RunError as error:
        pytest.skip(f"NVIDIA's builder: {error}")


@pytest.fixture(scope="session")
def library() -> Library:
    """TensorRT-RTX, with what this version of it can do."""
    try:
        return load_library("tensorrt-rtx")
    except RunError as error:
        pytest.skip(f"NVIDIA's builder: {error}")


@pytest.fixture(scope="session")
def gpu() -> None:
    """The first NVIDIA GPU."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    if api.device_count() == 0:
        pytest.skip("CUDA sees no GPU here")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what runs remember out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_cpu_engine() -> Iterator[None]:
    """`auto` compares engines where OpenVINO is installed; tests that do not ask for it do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_engine, "CPU_ENGINES", ("onnxruntime",))
        yield


@pytest.fixture(scope="session", autouse=True)
def in_process() -> Iterator[None]:
    """Spare the tests that are not about it the second that the engine's own process takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(IN_PROCESS, "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def any_rounds() -> Iterator[None]:
    """Take rounds however much they disagree: a busy machine leaves no run inconclusive.

    Tests about that ask for ``quiet_rounds``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "WIDEST_INTERVAL", math.inf)
        patch.setattr(statistics, "WIDEST_SPREAD", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_warm_up() -> Iterator[None]:
    """Spare measurements the warm-up, half of a short run's time: no test asserts how fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "WARM_UP_S", 0.002)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Leave files to the operating system, which no test ends: a commit else waits for the disk."""

    def set_pragma(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        event.listen(Engine, "connect", set_pragma)
        yield
        event.remove(Engine, "connect", set_pragma)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Let the Python processes that tests start keep their bytecode: else each compiles placer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
def quiet_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a run inconclusive where its rounds disagree, as it is for users."""
    interval, spread = WIDEST
    monkeypatch.setattr(statistics, "WIDEST_INTERVAL", interval)
    monkeypatch.setattr(statistics, "WIDEST_SPREAD", spread)


@pytest.fixture
def placer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Finished]:
    """Run the command line in this process, in an empty folder; returns how it ended."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)  # Workers of pytest inherit it from readline.

    def run(*arguments: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["placer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Finished(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write an ONNX text model ``with_random_weights``; returns its path."""

    def write(text: str, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        onnx.save(with_random_weights(text), path)
        return path

    return write


def two_convs(channels: int, size: int, batch: int = 1, weight: float = 0.1) -> str:
    """The text of a network of two 3x3 convolutions with a Relu between them."""
    image, kernel = f"{batch},{channels},{size},{size}", f"{channels},{channels},3,3"
    return f"""
<ir_version: 9, opset_import: ["": 17]>
net (float[{image}] x) => (float[{image}] y)
<float[{kernel}] w1 = {{{weight}}}, float[{kernel}] w2 = {{{weight}}}> {{
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r = Relu(c)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(r, w2)
}}
"""


def with_random_weights(text: str) -> onnx.ModelProto:
    """An ONNX text model with seeded random weights.

    Weights (rank 2 and up) that the text fills with one value become random, of that magnitude.
    """
    proto = parse_model(text)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim > 1 and np.ptp(values) == 0:
            scaled = (values * rng.standard_normal(values.shape)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, tensor.name))
    return proto
