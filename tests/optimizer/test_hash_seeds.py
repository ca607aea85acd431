"""A study is the same in every process, whatever order Python's sets and hashes have there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from placer.results.result import Result
from tests.conftest import DIGITS
from tests.optimizer.test_optimize import MODEL


@pytest.mark.slow
def test_a_study_does_not_depend_on_the_seed_of_hashes(tmp_path: Path):
    options = ["--engine", "fusion-model", "--gpu", "l4", "--preset", "quick", "--budget", "8"]
    options += ["--data", str(DIGITS / "calibration.npz"), "--gate", "sqnr>=25", "--no-cache"]
    studies = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "placer", "optimize", str(MODEL), *options, "-o", str(folder)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        trials = Result.read(folder).trials
        told = [(t.number, t.kind, t.placement, t.noise, t.ratio_to_float) for t in trials]
        studies.append((told, (folder / "placement.yaml").read_bytes()))
    assert studies[0] == studies[1]
    assert len(studies[0][0]) == 8
