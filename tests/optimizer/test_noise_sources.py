"""Where the accuracy of a result went: measured after the search, kept with the study, reported."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import placer
from placer.graph.text import parse_model
from placer.optimizer.outcome.noise_sources import NoiseSources
from placer.results.result import Result

# Two heads of different structure: a rule of two groups.
TWO_HEADS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] left, float[1,32,16,16] right)
<float[16,16,3,3] w = {1}, float[32,16,1,1] v = {1}>
{
    [wide] left = Conv<pads = [1, 1, 1, 1]>(x, w)
    [point] right = Conv(x, v)
}
"""


def optimized(folder: Path, *, timeout: float | None = None, output: Path | None = None) -> Result:
    return placer.optimize(
        folder / "m.onnx",
        timeout=timeout,
        data=folder / "data.npz",
        engine="fusion-model",
        gpu="l4",
        calibration="minmax",
        gates="sqnr>=5",
        budget=3,
        cache=False,
        output=output or folder / "out",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(0)
    proto = parse_model(TWO_HEADS)
    for tensor in proto.graph.initializer:
        values = rng.normal(size=tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, folder / "m.onnx")
    np.savez(folder / "data.npz", x=rng.normal(size=(8, 16, 16, 16)).astype(np.float32))
    return optimized(folder)


def test_each_group_of_the_result_is_told_alone(run: Result):
    assert {source.rule for source in run.noise_sources} == {"conv-output"}
    by_name = {source.name.partition(":")[2]: source.noises for source in run.noise_sources}
    assert by_name.keys() == {"wide", "point"}
    # Each head is quantized alone: the other one has the noise of FP16 only.
    assert by_name["wide"]["left"] > 100 * by_name["wide"]["right"]
    assert by_name["point"]["right"] > 100 * by_name["point"]["left"]
    worst = [max(source.noises.values()) for source in run.noise_sources]
    assert worst == sorted(worst, reverse=True)


def test_the_report_tells_it(run: Result):
    page = (run.folder / "report.html").read_text()
    assert "Where the accuracy went" in page
    assert "each line alone with all else float" in page
    assert page.count("conv-output:point") > 0


def test_what_was_measured_is_kept_with_the_study_and_counted(run: Result):
    # The rule, whose sites together are the default placement, and its two groups.
    assert run.probes == 3
    again = optimized(Path(run.folder).parent)
    assert again.probes == 3
    assert again.noise_sources == run.noise_sources


@pytest.mark.slow
def test_a_time_limit_ends_it_with_what_is_known(run: Result, monkeypatch: pytest.MonkeyPatch):
    # Nothing may be measured any more, and everything is kept.
    monkeypatch.setattr("placer.optimizer.outcome.noise_sources.SHARE_OF_TIME", 0.0)
    folder = Path(run.folder).parent
    assert optimized(folder, timeout=600).noise_sources == run.noise_sources
    assert optimized(folder, timeout=600, output=folder / "new").noise_sources == []


def test_ctrl_c_ends_it_and_keeps_the_result(run: Result, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NoiseSources, "find", interrupted)
    folder = Path(run.folder)
    (folder / "result.json").unlink()
    again = optimized(folder.parent)
    assert again.noise_sources == []
    assert again.best == run.best
    assert Result.read(folder) == again
