"""The GitHub Action: what it runs, what it writes into the job's summary and what it comments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from placer.cli.onboard import markdown_of
from placer.results.onboarding import ModelSummary, Summary

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "onboard"
# Stands for GitHub's program: keeps what it was asked, and answers with the comment's number.
GH = """#!/bin/sh
echo "$*" >> "$LOG"
for word in "$@"; do
  case "$word" in body=@*) cat "${word#body=@}" > "$LOG.body";; esac
done
case "$*" in *--paginate*) printf "$EARLIER"; exit "$REFUSED";; esac
"""


def test_the_table_is_markdown():
    bad = {
        "state": "bad input",
        "reason": "a|b [c]: no file",
        "name": "net_1",
        "ran": True,
        "why": "new",
        "seconds": 1.25,
        "gates": [],
    }
    model = ModelSummary.model_construct(**{**dict.fromkeys(ModelSummary.model_fields), **bad})
    text = markdown_of(Summary.model_construct(models=[model]))
    assert text == (
        "**placer onboard**: 1 bad input\n\n"
        "| model | state | float, ms | best, ms | speed-up (interval) | gates | trials | time, s | "
        "reason |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| net\\_1 | bad input |  |  |  |  |  | 1.2 | a\\|b \\[c\\]: no file |\n"
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With `placer` and a `gh` on the path, and a manifest of a file that is no model."""
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    (tmp_path / "net.onnx").write_text("no model")
    (tmp_path / "models.yaml").write_text("models:\n  - model: net.onnx\n")
    path = os.pathsep.join([str(gh.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {
        "PATH": path,
        "LOG": str(tmp_path / "gh.log"),
        "EARLIER": "",
        "REFUSED": "0",
        "MANIFEST": "models.yaml",
        "OUTPUT": "out",
        "JOBS": "",
        "PULL_REQUEST": "7",
        "GITHUB_REPOSITORY": "us/models",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    return {**os.environ, **own}


def run(folder: Path, environment: dict[str, str]) -> int:
    script = ["bash", str(ACTION / "onboard.sh")]
    return subprocess.run(script, cwd=folder, env=environment, check=False, timeout=120).returncode


@pytest.mark.slow
def test_a_comment_is_made_and_rewritten(tmp_path: Path, environment: dict[str, str]):
    assert run(tmp_path, environment) == 1  # As `placer onboard` has it.
    table = (tmp_path / "out" / "summary.md").read_text()
    assert "| net | bad input |" in table
    assert (tmp_path / "summary.md").read_text() == table
    assert (tmp_path / "gh.log.body").read_text() == f"<!-- placer onboard -->\n{table}"
    comments = "repos/us/models/issues/7/comments"
    asked = (tmp_path / "gh.log").read_text().splitlines()
    assert asked[-1].startswith(f"api --method POST {comments} -F body=@")

    assert run(tmp_path, {**environment, "EARLIER": "12\\n34\\n"}) == 1
    asked = (tmp_path / "gh.log").read_text().splitlines()
    assert asked[-1].startswith("api --method PATCH repos/us/models/issues/comments/12 -F body=@")

    (tmp_path / "gh.log").unlink()
    assert run(tmp_path, {**environment, "PULL_REQUEST": ""}) == 1
    assert not (tmp_path / "gh.log").exists()


def test_a_token_that_may_not_comment_fails_no_job(tmp_path: Path, environment: dict[str, str]):
    placer = tmp_path / "bin" / "placer"
    placer.write_text("#!/bin/sh\nmkdir -p out && echo a table > out/summary.md\n")
    placer.chmod(0o755)
    assert run(tmp_path, {**environment, "REFUSED": "1"}) == 0
    assert (tmp_path / "summary.md").read_text() == "a table\n"


@pytest.mark.slow
def test_a_wrong_manifest_is_the_end(tmp_path: Path, environment: dict[str, str]):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.md").write_text("an earlier run's table")
    (tmp_path / "models.yaml").write_text("model: net.onnx\n")
    assert run(tmp_path, environment) == 2
    assert not (tmp_path / "summary.md").exists()
    assert not (tmp_path / "gh.log").exists()


def test_the_action_gives_the_script_what_it_reads():
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    (step,) = [one for one in action["runs"]["steps"] if "onboard.sh" in one.get("run", "")]
    assert step["env"].keys() == {"MANIFEST", "OUTPUT", "JOBS", "PULL_REQUEST", "GH_TOKEN"}
    (kept,) = [one for one in action["runs"]["steps"] if "cache/save" in one.get("uses", "")]
    assert kept["if"] == "always()"  # A missed gate fails the job, and its trials are kept.
    for one in action["runs"]["steps"]:  # What users write reaches a shell as variables only.
        assert "${{" not in one.get("run", "")
