"""Throughput as the objective: requests in flight on OpenVINO, and no word of latency."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rich.console import Console

import placer
from placer.cli.console import print_result
from placer.engines.openvino.factory import OpenVinoFactory
from placer.engines.registry import EngineOptions
from placer.errors import InputError
from placer.results.onboarding import Summary
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from tests.conftest import Finished, two_convs

pytest.importorskip("openvino", reason="OpenVINO is not installed")
from placer.engines.openvino.engine import OpenVinoEngine

Save = Callable[..., Path]

NET = two_convs(channels=32, size=16)
RUN: dict[str, Any] = {
    "objective": "throughput",
    "threads": 2,
    "gates": "sqnr>=5",
    "preset": "quick",
    "budget": 3,
    "cache": False,
    "output": "out",
}


# The engine.


def test_several_requests_are_in_flight_and_outputs_are_the_same(save: Save, tmp_path: Path):
    proto = onnx.load(save(NET))
    inputs = {"x": np.random.default_rng(0).random((1, 32, 16, 16), np.float32)}
    loaded = OpenVinoEngine(threads=2, objective="throughput")
    model = loaded.compile(proto, tmp_path)
    single = OpenVinoEngine(threads=2).compile(proto, tmp_path)
    assert model.burst(inputs).size == 16  # Eight for each of two requests.
    assert single.burst(inputs).size == 8  # One stream has one.
    np.testing.assert_array_equal(model.run(inputs)["y"], single.run(inputs)["y"])
    seconds = loaded.measure([model, model], inputs, 3)
    assert seconds.shape == (3, 2)
    assert (seconds > 0).all()


def test_what_is_measured_is_the_time_of_one_inference_of_a_burst(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A clock that ticks once per reading: each interval takes one second, of many bursts."""
    engine = OpenVinoEngine(threads=2, objective="throughput")
    model = engine.compile(onnx.load(save(NET)), tmp_path)
    inputs = {"x": np.ones((1, 32, 16, 16), np.float32)}
    ticks = iter(range(1000))
    monkeypatch.setattr(engine, "_now", lambda: float(next(ticks)))
    bursts = 1 / (engine.measure([model], inputs, 1) * model.burst(inputs).size)
    assert bursts == pytest.approx(np.round(bursts))  # A whole number of them.
    assert bursts >= 1


# What is refused, each in one sentence.


def test_one_thread_is_refused():
    options = EngineOptions(load_pack("openvino"), objective="throughput")
    with pytest.raises(InputError, match=r"throughput needs several `threads`, .* this run has 1"):
        OpenVinoFactory().create(options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "onnxruntime"}, "engine onnxruntime measures latency only; choose `engine`"),
        ({"engine": "fusion-model", "gpu": "a100"}, "engine fusion-model measures latency only"),
        ({"beats": "float"}, "`beats` are gates on latency; leave them out with `objective`"),
    ],
)
def test_what_measures_latency_is_refused(
    save: Save, here: Path, options: dict[str, Any], sentence: str
):
    model = save(NET)
    before = list(here.iterdir())
    with pytest.raises(InputError, match=sentence):
        placer.optimize(model, **{**RUN, **options})
    assert list(here.iterdir()) == before


# Whole runs.


@pytest.mark.slow
def test_a_run_says_inferences_per_second_and_no_latency(
    save: Save, placer: Callable[..., Finished]
):
    """Whatever the verdict: on a busy machine wall time may be inconclusive."""
    model = save(NET)
    words = ["--objective", "throughput", "--threads", 2, "--gate", "sqnr>=5"]
    words += ["--preset", "quick", "--budget", 3, "--no-cache", "--output", "out"]
    finished = placer("optimize", model, *words)
    assert finished.code == 0 or "disagree" in finished.err
    assert "engine openvino" in finished.out  # What auto stands for.
    assert re.search(r"^trial +inferences/s +speed-up", finished.out, re.MULTILINE)
    assert len(re.findall(r"^ +\d  +[\d.]+ +x\d", finished.out, re.MULTILINE)) == 3
    assert_no_latency(finished.out)

    result = Result.read(Path("out"))
    assert result.objective == "throughput"
    assert result.command is not None and "--objective throughput" in result.command
    for part in (result.baseline, result.best):
        assert part.latency is None
        low, high = part.throughput.batches_per_s_interval or (0, 0)
        assert 0 < low <= part.throughput.batches_per_s <= high
        assert part.throughput.rounds
    for trial in result.trials:
        assert trial.latency is trial.latency_ms is None
        assert trial.throughput is not None and trial.throughput.batches_per_s > 0

    console = Console(record=True, width=200, file=StringIO())
    print_result(console, result, "out")
    printed = console.export_text()
    assert "inferences per second" in printed
    assert "(p10 to p90)" in printed
    assert "throughput is inferences per second of wall time" in printed
    assert_no_latency(printed)

    page = Path("out/report.html").read_text()
    assert "inferences/s" in page
    assert "throughput is</dt>" in page
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    assert_no_latency(re.sub(r"<[^>]*>", " ", body))

    other = [*words[2:], "--engine", "openvino", "--objective", "latency"]
    refused = placer("optimize", model, *other)
    assert refused.code == 2
    assert "holds a study with other settings (objective: throughput, now latency)" in refused.err


def assert_no_latency(text: str) -> None:
    assert "latency" not in text.lower()
    assert not re.search(r"\d ms\b", text)
    assert not re.search(r", ms\b", text)


@pytest.mark.slow
def test_the_front_and_an_onboarding_say_it_too(save: Save, placer: Callable[..., Finished]):
    model = save(NET)
    Path("models.yaml").write_text(
        "defaults: {objective: throughput, threads: 2, gates: 'sqnr>=5', preset: quick,"
        f" budget: 4, front: 2, cache: false}}\nmodels: [{{model: '{model}'}}]\n"
    )
    finished = placer("onboard", "models.yaml")
    assert finished.code in (0, 1)  # As before.
    out = Path("models.placer")
    summary = Summary.model_validate_json((out / "summary.json").read_text())
    (one,) = summary.models
    assert one.float_ms is one.best_ms is None
    assert one.float_per_second
    assert one.best_per_second
    result = Result.read(out / one.folder)
    assert all(point.latency is None and point.throughput for point in result.front)
    junit = (out / "junit.xml").read_text()
    assert "float inferences per second" in junit
    assert "latenc" not in junit
