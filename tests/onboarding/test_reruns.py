"""The same manifest three times: new, unchanged, and with one model changed."""

import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import onnx
import pytest
from junitparser import JUnitXml

from placer.graph.text import parse_model
from placer.onboarding.api import plan_onboarding
from placer.onboarding.junit import junit_xml
from placer.results.onboarding import ModelSummary, Summary
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, two_convs
from tests.few_digits import copy_few_digits
from tests.onboarding.nets import (
    MANIFEST,
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
class Reruns:
    """A first run, one after which nothing changed, and one after which one model did."""

    output: Path
    first: Step
    second: Step
    third: Step


@pytest.fixture(scope="session")
def reruns(tmp_path_factory: pytest.TempPathFactory) -> Reruns:
    folder = tmp_path_factory.mktemp("onboard")
    for name in ("a", "b", "strict"):
        save_net(folder / "nets" / f"{name}.onnx")
    copy_few_digits(folder)
    cut = (DIGITS / "digits.onnx").read_bytes()[:100_000]
    (folder / "corrupt.onnx").write_bytes(cut)
    onnx.save(parse_model(UNSUPPORTED), folder / "unsupported.onnx")
    manifest = folder / "models.yaml"
    manifest.write_text(MANIFEST)
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
    return Reruns(output, first, second, step())


GOOD = ("a", "b", "digits")
EXPECTED = {
    "digits": "faster",
    "a": "cannot tell",
    "b": "cannot tell",
    "strict": "gate not met",
    "corrupt": "bad input",
    "unsupported": "bad input",
}


@pytest.mark.slow
def test_every_model_ends_in_its_own_state(reruns: Reruns):
    found = {name: model.state for name, model in reruns.first.summary.items()}
    kept = {name: "faster" if state == "float kept" else state for name, state in found.items()}
    assert kept == EXPECTED
    assert next(iter(found)) == "digits"
    assert reruns.first.finished.code == 1
    assert reruns.first.finished.err == ""
    reasons = {name: model.reason for name, model in reruns.first.summary.items()}
    assert reasons["corrupt"].startswith("corrupt.onnx is not an ONNX file, or was cut short")
    assert "operator Relu of the unknown domain 'acme'" in reasons["unsupported"]
    assert "no quantized candidate of 1 meets sqnr>=200" in reasons["strict"]
    assert reruns.first.trials == dict.fromkeys((*GOOD, "strict"), 2)


@pytest.mark.slow
def test_the_table_and_the_files_say_what_is_an_estimate(reruns: Reruns):
    summary = reruns.first.summary
    assert {name: summary[name].estimated for name in GOOD} == {
        "a": True,
        "b": True,
        "digits": False,
    }
    assert reruns.first.finished.out.count("(estimate)") > 2
    properties = {suite.name: {p.name for p in suite.properties()} for suite in reruns.first.junit}
    assert "estimated speedup" in properties["a"]
    assert "speedup" in properties["digits"]
    low, high = summary["digits"].speedup_interval
    assert low <= summary["digits"].speedup <= high
    assert [gate.gate for gate in summary["digits"].gates] == ["top1_drop<=0.01"]


@pytest.mark.slow
def test_junit_tells_misses_from_failures(reruns: Reruns):
    (strict,) = next(suite for suite in reruns.first.junit if suite.name == "strict")
    assert [(type(r).__name__, r.type) for r in strict.result] == [("Failure", "gate not met")]
    for step in (reruns.first, reruns.second, reruns.third):
        suites = list(step.junit)
        assert [suite.name for suite in suites] == list(EXPECTED)
        assert [suite.name for suite in suites if suite.failures] == ["strict"]
        assert [suite.name for suite in suites if suite.errors] == ["corrupt", "unsupported"]


@pytest.mark.slow
def test_a_second_run_does_nothing_and_ends_the_same(reruns: Reruns):
    assert reruns.second.files == reruns.first.files
    assert reruns.second.trials == reruns.first.trials
    assert reruns.second.finished.code == reruns.first.finished.code
    assert not any(model.ran for model in reruns.second.summary.values())
    assert {model.why for model in reruns.second.summary.values()} == {"nothing changed"}
    assert "faster, up to date" in reruns.second.finished.out
    assert "gate not met, unchanged" in reruns.second.finished.out
    assert "bad input, unchanged" in reruns.second.finished.out


@pytest.mark.slow
def test_a_third_run_redoes_the_one_model_that_changed(reruns: Reruns):
    ran = {name: model.why for name, model in reruns.third.summary.items() if model.ran}
    assert ran == {"b": "model changed"}
    changed = {
        name.split("/")[0]
        for name, stamp in reruns.third.files.items()
        if reruns.second.files.get(name) != stamp
    }
    assert changed == {"b"}
    assert "b: redo: model changed" in reruns.third.finished.out
    assert reruns.third.summary["b"].state == "cannot tell"
    assert not list(reruns.output.glob("*.new")) + list(reruns.output.glob(".*.old"))


@pytest.mark.slow
def test_a_model_that_the_run_did_not_write_is_made_again(reruns: Reruns):
    path = reruns.output / "a" / "optimized.onnx"
    before = path.read_bytes()
    path.write_bytes((reruns.output / "b" / "optimized.onnx").read_bytes())
    planned = plan_onboarding(reruns.output.with_suffix(".yaml")).planned
    path.write_bytes(before)
    assert {one.job.name: one.why for one in planned if one.action != "nothing"} == {
        "a": "its results are incomplete or were changed"
    }


@pytest.mark.slow
def test_a_model_whose_external_data_are_gone_is_made_again(reruns: Reruns):
    path = reruns.output / "a" / "result.json"
    before = path.read_text()
    document = json.loads(before)
    document["best"]["data_sha256"] = "0" * 64
    path.write_text(json.dumps(document))
    planned = plan_onboarding(reruns.output.with_suffix(".yaml")).planned
    path.write_text(before)
    assert [one.job.name for one in planned if one.action == "redo"] == ["a"]


@pytest.mark.slow
def test_a_summary_follows_its_schema(reruns: Reruns):
    schema = Path(__file__).parents[2] / "configs" / "onboarding.summary.schema.json"
    summary = json.loads((reruns.output / "summary.json").read_text())
    jsonschema.validate(summary, json.loads(schema.read_text()))


@pytest.mark.slow
def test_junit_holds_any_reason(reruns: Reruns):
    odd = reruns.first.summary["corrupt"].model_copy(update={"reason": "<\x1b[31m> \ud800 & 名"})
    summary = Summary.model_validate_json((reruns.output / "summary.json").read_text())
    text = junit_xml(summary.model_copy(update={"models": [odd]}))
    (suite,) = JUnitXml.fromstring(text)
    (case,) = suite
    assert case.result[0].message == "<?[31m> ? & 名"
