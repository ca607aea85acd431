"""The report of an onboarding, from its summary.json."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.report import write_report
from placer.results.onboarding import ModelSummary, Summary
from placer.results.parts import GatePart
from tests.conftest import Finished
from tests.report.test_report import HOSTILE, Text


def model(name: str, **more: object) -> ModelSummary:
    nothing = dict.fromkeys(
        ("result", "engine", "pack", "device", "estimated", "float_ms", "best_ms", "speedup")
    )
    common = {
        "model": f"{name}.onnx",
        "ran": True,
        "why": "new",
        "reason": "",
        "folder": name,
        "speedup_interval": None,
        "gates": [],
        "trials": None,
        "seconds": None,
    }
    return ModelSummary(name=name, **{**nothing, **common, **more})


def summary_of_three() -> Summary:
    """One model that got faster, one that misses its gate, one that cannot be read."""
    times = {"float_ms": 2.0, "best_ms": 1.0, "speedup": 2.0, "speedup_interval": [1.9, 2.1]}
    gate = GatePart(gate="sqnr>=20", value=12.5, where="boxes", passed=False)
    return Summary(
        manifest="models.yaml",
        exit_code=1,
        started="2026-01-01T00:00:00+00:00",
        seconds=61.5,
        versions={"placer": "0.1.0"},
        warnings=["two models at once disturb one another"],
        models=[
            model("classifier", state="faster", trials=20, engine="onnxruntime", **times),
            model("detector", state="gate not met", gates=[gate], reason="no candidate meets it"),
            model(HOSTILE, state="bad input", reason=f"{HOSTILE} is no ONNX model"),
        ],
    )


def test_all_models_with_states_times_and_links_to_their_reports(
    placer: Callable[..., Finished], tmp_path: Path
):
    folder = tmp_path / "models.placer"
    (folder / "classifier").mkdir(parents=True)
    (folder / "classifier" / "report.html").write_text("its own")
    summary_of_three().write(folder / "summary.json")
    finished = placer("report", folder)
    assert finished.code == 0, finished.err
    source = (folder / "report.html").read_text()
    text = Text(source).text
    assert "1 of 3 models have a result that meets its gates" in text
    assert "classifier faster 2.000 1.000 2.00 (1.90 to 2.10) 20 onnxruntime" in text
    assert "sqnr>=20: 12.5" in text
    assert "two models at once disturb one another" in text
    table = source[source.index("<h2>Models") : source.index("</table>")]
    assert re.findall(r'<a href="([^"]*)"', table) == ["./classifier/report.html"]


def test_names_and_reasons_are_text(tmp_path: Path):
    summary_of_three().write(tmp_path / "summary.json")
    found = Text(write_report(tmp_path).read_text())
    assert "is no ONNX model" in found.text
    assert not any("alert(1)" in script for script in found.scripts)


def test_a_damaged_summary_is_named(placer: Callable[..., Finished], tmp_path: Path):
    (tmp_path / "summary.json").write_text("{}")
    finished = placer("report", tmp_path)
    assert finished.code == 2
    assert "summary.json is no summary of this version of placer: field 'manifest'" in finished.err


@pytest.mark.slow
def test_an_onboarding_ends_with_its_report(placer: Callable[..., Finished]):
    Path("broken.onnx").write_text("no model")
    Path("models.yaml").write_text("models: [{model: broken.onnx}]")
    assert placer("onboard", "models.yaml", "--output", "out").code == 1
    text = Text(Path("out/report.html").read_text()).text
    assert "0 of 1 models have a result that meets its gates" in text
    assert "broken bad input" in text
