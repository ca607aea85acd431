"""What each decision does to each output, on a network whose heads do not touch each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import placer
from placer.accuracy.metrics import decibels
from placer.engines.base import Compiled, Engine, Tensors
from placer.graph.text import parse_model
from placer.optimizer.setup import auto_engine
from placer.probing.noise_cache import NoiseCache
from placer.results.sensitivity import Sensitivity, SubjectPart, worst
from tests.conftest import Finished

Placer = Callable[..., Finished]

# `fine` and `coarse` have the same structure, so they are a group; `head` follows `coarse` alone.
TWO_HEADS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] left, float[1,2,8,8] right)
<float[4,4,1,1] w = {1}, float[4,4,1,1] v = {1}, float[2,4,1,1] u = {1}>
{
    [fine] left = Conv(x, w)
    [coarse] b = Conv(z, v)
    [head] right = Conv(b, u)
}
"""
FINE, COARSE, HEAD = (f"conv-act:{node}" for node in ("fine", "coarse", "head"))
# Whose default quantizes all of so small a network, whether that pays or not.
EAGER = """
name: eager
version: 1.0.0
engine: onnxruntime
engine_versions: ">=1.23"
extends: onnxruntime
behaviour: {gains: null}
licence: Apache-2.0
maintainers: [tests]
"""
ESTIMATED = ("--engine", "fusion-model", "--gpu", "l4", "--calibration", "minmax")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    proto = parse_model(TWO_HEADS)
    for tensor in proto.graph.initializer:
        values = rng.normal(size=tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "eager").mkdir()
    (tmp_path / "eager" / "pack.yaml").write_text(EAGER)
    drawn = {name: rng.normal(size=(8, 4, 8, 8)).astype(np.float32) for name in "xz"}
    np.savez(tmp_path / "data.npz", **drawn)
    return tmp_path


def probed(net: Path, **options: Any) -> Sensitivity:
    pack = str(net / "eager")
    given = {"engine": "onnxruntime", "pack": pack, "calibration": "minmax", "samples": 4} | options
    return placer.sensitivity(net / "m.onnx", data=net / "data.npz", **given)


@pytest.mark.slow
@pytest.mark.parametrize("faster", ["openvino", "onnxruntime"])
def test_auto_takes_the_engine_of_optimize_and_nothing_else_and_resumes_with_it(
    net: Path, monkeypatch: pytest.MonkeyPatch, faster: str
):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(net / "cache"))
    fastest = [faster]

    def measured(
        engine: Engine, models: Sequence[Compiled], inputs: Tensors, rounds: int
    ) -> np.ndarray:
        del inputs
        return np.full((rounds, len(models)), 1e-3 if engine.name in fastest else 2e-3)

    monkeypatch.setattr(auto_engine, "CPU_ENGINES", ("openvino", "onnxruntime"))
    monkeypatch.setattr(auto_engine, "measured_seconds", measured)
    by_name = probed(net, engine=faster, pack=None, by="rule", cache=False)
    first = probed(net, engine="auto", pack=None, by="rule")
    assert (first.engine, first.pack) == (faster, by_name.pack)
    assert (first.subjects, first.default) == (by_name.subjects, by_name.default)
    fastest[:] = {"openvino", "onnxruntime"} - {faster}  # As another comparison may find it.
    again = probed(net, engine="auto", pack=None, by="rule")
    assert (again.engine, again.known, again.probes) == (faster, first.probes, 0)
    other = probed(net, engine="auto", pack=None, by="rule", threads=2)
    assert [other.engine] == fastest  # Other options are compared anew.


def subject(found: Sensitivity, kind: str, name: str) -> SubjectPart:
    (one,) = (s for s in found.subjects if (s.kind, s.name) == (kind, name))
    return one


def test_noise_is_told_by_output_alone_and_taken_out(net: Path):
    found = probed(net, cache=False)
    fine, head = (subject(found, "site", name) for name in (FINE, HEAD))
    assert fine.nodes == ["fine"]
    # What one head quantizes, the other one does not see.
    assert fine.alone["left"] > 0 == fine.alone["right"]
    assert fine.without["left"] == 0 < fine.without["right"] == found.default["right"]
    assert head.alone["left"] == 0 < head.alone["right"]
    assert head.without["right"] < found.default["right"]
    # The two equal Convs are one group, and all three are sites of one rule.
    both = subject(found, "group", FINE)
    assert (both.sites, both.alone["left"]) == (2, fine.alone["left"])
    every = subject(found, "rule", "conv-act")
    assert (every.sites, every.alone, every.without) == (3, found.default, found.floats)
    assert set(found.floats.values()) == {0.0}
    rows = [s.worst_alone[0] for s in found.subjects if s.kind == "site"]
    assert rows == sorted(rows, reverse=True)


def test_probes_are_kept(net: Path):
    first, again = probed(net), probed(net)
    # Three sites and a pair of them, alone and taken out, and the default and the float placement;
    # without the pair is the third alone, and without the third the pair.
    assert (first.probes, first.known) == (8, 0)
    assert (again.probes, again.known) == (0, 8)
    assert again.subjects == first.subjects


def test_excluded_nodes_are_not_probed(net: Path):
    without = probed(net, exclude="head", cache=False)
    assert {s.name for s in without.subjects if s.kind == "site"} == {FINE, COARSE}


def test_damaged_lines_are_measured_again(tmp_path: Path):
    kept = NoiseCache(tmp_path, ["context"])
    kept.add("one", {"y": 0.5, "z": None})
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text() + '["two", {"y": 0.2\n')
    again = NoiseCache(tmp_path, ["context"])
    assert again.get("one") == {"y": 0.5, "z": None}
    assert again.get("two") is None
    assert NoiseCache(tmp_path, ["another"]).get("one") is None


def test_a_cache_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("no folder")
    kept = NoiseCache(tmp_path / "file", ["context"])
    kept.add("one", {"y": 1.5})
    kept.add("two", {"y": None})
    (told,) = caplog.messages
    assert told.startswith("what is measured is not kept: cannot write ")
    assert (kept.get("one"), kept.get("two")) == ({"y": 1.5}, {"y": None})


def test_the_table_fits_80_columns_and_the_page_needs_nothing_else(
    placer: Placer, net: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    words = (net / "m.onnx", "--data", net / "data.npz", *ESTIMATED)
    shown = placer("sensitivity", *words, "--figure", "page.html", "--by", "site")
    assert shown.code == 0, shown.err
    table = shown.out.partition("\n┏")[2]
    assert max(map(len, table.splitlines())) <= 80
    assert "(estimate)" in shown.out
    page = Path("page.html").read_text()
    assert "SQNR with one site quantized" in page
    assert "What accuracy buys" in page
    assert "Content-Security-Policy" in page

    found = json.loads(placer("sensitivity", *words, "--json").out)
    noise, part = worst(found["default"])
    assert f"Default placement: {decibels(noise):.1f};" in " ".join(shown.out.split())
    assert part in ("left", "right")
    saved = [subject["saves"] for subject in found["subjects"] if subject["default"]]
    assert saved
    assert all(saved)


def test_what_sites_save_is_measured_where_that_is_asked_for(net: Path):
    assert subject(probed(net, by="group"), "group", FINE).saves is None
    saved = subject(probed(net, by="group", measure=True, preset="quick"), "group", FINE).saves
    assert saved.interval[0] <= saved.microseconds <= saved.interval[1]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"by": "node"}, "unknown `by` 'node'; use one of: rule, group, site"),
        ({"samples": 0}, "`samples` is 0; give 1 or more"),
        ({"only": "nothing"}, "'nothing' selects no node of the model"),
    ],
)
def test_refusals(net: Path, wrong: dict[str, Any], expected: str):
    with pytest.raises(placer.InputError) as error:
        probed(net, **wrong)
    assert expected in str(error.value)


@pytest.mark.slow
def test_a_scheme_that_is_left_open_is_settled_first(net: Path):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    asked = {"engine": "openvino", "pack": None}
    found = probed(net, **asked, scheme="auto")
    named = [probed(net, **asked, scheme=name) for name in (None, "symmetric")]
    assert [subject.kind for subject in found.subjects]
    assert found.subjects in [other.subjects for other in named]


def test_sites_that_leave_little_are_named_with_what_to_do(placer: Placer, tmp_path: Path):
    """Boxes and scores joined by one Concat, whose pair rounds the scores away."""
    onnx.save(
        parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,64] x) => (float[1,128] y) <float many = {600}> {
          p = Sigmoid(x) b = Mul(p, many) [join] y = Concat<axis = 1>(b, p)
        }"""),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(4, 64)).astype("float32"))
    words = (tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--engine", "onnxruntime")
    said = " ".join(placer("sensitivity", *words, "--by", "site", "--no-cache").out.split())
    assert "quantized alone, 'join' (0.0 dB) leaves little: the default placement leaves it" in said
