"""The same manifest three times: new, unchanged, and with one model changed."""

import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import onnx
import pytest
from junitparser import JUnitXml

from placer.graph.text import parse_model
from placer.onboarding.junit import junit_xml
from placer.results.onboarding import ModelSummary, Summary, summary_schema
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, two_convs
from tests.few_digits import copy_few_digits
from tests.onboarding.nets import (
    STORY,
    run,
    save_net,
    summary_in,
)

WIDER = two_convs(channels=16, size=16, weight=0.2)
UNSUPPORTED = """
<ir_version: 9, opset_import: ["": 17, "acme": 1]>
g (float[1,4] x) => (float[1,4] y) { [act] y = acme.Relu(x) }
"""


@dataclass(frozen=True)
class Step:
    """One run of the same command: how it ended and what it left."""

    finished: Finished
    summary: dict[str, ModelSummary]
    junit: JUnitXml
    files: dict[str, tuple[int, int]]
    trials: dict[str, int]


@dataclass(frozen=True)
class Story:
    """A first run, one after which nothing changed, and one after which one model did."""

    output: Path
    first: Step
    second: Step
    third: Step


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("onboard")
    for name in ("a", "b", "strict"):
        save_net(folder / "nets" / f"{name}.onnx")
    copy_few_digits(folder)
    cut = (DIGITS / "digits.onnx").read_bytes()[:100_000]
    (folder / "corrupt.onnx").write_bytes(cut)
    onnx.save(parse_model(UNSUPPORTED), folder / "unsupported.onnx")
    manifest = folder / "models.yaml"
    manifest.write_text(STORY)
    output = folder / "models.placer"

    def step() -> Step:
        finished = run(manifest)
        summary = summary_in(output)
        files = {
            str(path.relative_to(output)): (path.stat().st_mtime_ns, path.stat().st_ino)
            for name in summary
            for path in (output / name).iterdir()
        }
        trials = {
            name: len(Result.read(output / model.result).trials)
            for name, model in summary.items()
            if model.result is not None
        }
        return Step(finished, summary, JUnitXml.fromfile(str(output / "junit.xml")), files, trials)

    first, second = step(), step()
    save_net(folder / "nets" / "b.onnx", WIDER)
    return Story(output, first, second, step())


GOOD = ("a", "b", "digits")
EXPECTED = {
    "digits": "faster",
    "a": "faster",
    "b": "faster",
    "strict": "gate not met",
    "corrupt": "bad input",
    "unsupported": "bad input",
}


@pytest.mark.slow
def test_every_model_ends_in_its_own_state(story: Story):
    found = {name: model.state for name, model in story.first.summary.items()}
    kept = {name: "faster" if state == "float kept" else state for name, state in found.items()}
    assert kept == EXPECTED
    assert next(iter(found)) == "digits"
    assert story.first.finished.code == 1
    assert story.first.finished.err == ""
    reasons = {name: model.reason for name, model in story.first.summary.items()}
    assert reasons["corrupt"].startswith("corrupt.onnx is not an ONNX file, or was cut short")
    assert "operator Relu of the unknown domain 'acme'" in reasons["unsupported"]
    assert "no quantized candidate of 1 meets sqnr>=200" in reasons["strict"]
    assert story.first.trials == dict.fromkeys((*GOOD, "strict"), 2)


@pytest.mark.slow
def test_the_table_and_the_files_say_what_is_an_estimate(story: Story):
    summary = story.first.summary
    assert {name: summary[name].estimated for name in GOOD} == {
        "a": True,
        "b": True,
        "digits": False,
    }
    assert story.first.finished.out.count("(estimate)") > 2
    properties = {suite.name: {p.name for p in suite.properties()} for suite in story.first.junit}
    assert "estimated speedup" in properties["a"]
    assert "speedup" in properties["digits"]
    low, high = summary["digits"].speedup_interval
    assert low <= summary["digits"].speedup <= high
    assert [gate.gate for gate in summary["digits"].gates] == ["top1_drop<=0.01"]


@pytest.mark.slow
def test_junit_tells_misses_from_failures(story: Story):
    (strict,) = next(suite for suite in story.first.junit if suite.name == "strict")
    assert [(type(r).__name__, r.type) for r in strict.result] == [("Failure", "gate not met")]
    for step in (story.first, story.second, story.third):
        suites = list(step.junit)
        assert [suite.name for suite in suites] == list(EXPECTED)
        assert [suite.name for suite in suites if suite.failures] == ["strict"]
        assert [suite.name for suite in suites if suite.errors] == ["corrupt", "unsupported"]


@pytest.mark.slow
def test_a_second_run_does_nothing_and_ends_the_same(story: Story):
    assert story.second.files == story.first.files
    assert story.second.trials == story.first.trials
    assert story.second.finished.code == story.first.finished.code
    assert not any(model.ran for model in story.second.summary.values())
    assert {model.why for model in story.second.summary.values()} == {"nothing changed"}
    assert "faster, up to date" in story.second.finished.out
    assert "gate not met, unchanged" in story.second.finished.out
    assert "bad input, unchanged" in story.second.finished.out


@pytest.mark.slow
def test_a_third_run_redoes_the_one_model_that_changed(story: Story):
    ran = {name: model.why for name, model in story.third.summary.items() if model.ran}
    assert ran == {"b": "model changed"}
    changed = {
        name.split("/")[0]
        for name, stamp in story.third.files.items()
        if story.second.files.get(name) != stamp
    }
    assert changed == {"b"}
    assert "b: redo: model changed" in story.third.finished.out
    before, after = (step.summary["b"].state for step in (story.second, story.third))
    assert {before, after} <= {"faster", "float kept"}
    assert not list(story.output.glob("*.new")) + list(story.output.glob(".*.old"))


@pytest.mark.slow
def test_a_summary_follows_its_schema(story: Story):
    jsonschema.validate(json.loads((story.output / "summary.json").read_text()), summary_schema())


@pytest.mark.slow
def test_junit_holds_any_reason(story: Story):
    odd = story.first.summary["corrupt"].model_copy(update={"reason": "<\x1b[31m> \ud800 & 名"})
    summary = Summary.model_validate_json((story.output / "summary.json").read_text())
    text = junit_xml(summary.model_copy(update={"models": [odd]}))
    (suite,) = JUnitXml.fromstring(text)
    (case,) = suite
    assert case.result[0].message == "<?[31m> ? & 名"
