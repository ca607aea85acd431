"""Small models for a manifest, and the command line run on it."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import onnx
import pytest

from placer.cli.app import main
from placer.results.onboarding import ModelSummary, Summary
from tests.conftest import Finished, two_convs, with_random_weights

NET = two_convs(channels=16, size=16)

# An estimate takes a second, a measurement several.
ESTIMATE = "{preset: quick, budget: 2, cache: false, engine: fusion-model, gpu: a100}"


def save_net(path: Path, text: str = NET) -> None:
    path.parent.mkdir(exist_ok=True)
    onnx.save(with_random_weights(text), path)


def run(manifest: Path, *options: str) -> Finished:
    """Run the command line in this process; the models have processes of their own."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["placer", "onboard", str(manifest), *options])
        patch.delenv("COLUMNS", raising=False)  # Workers of pytest inherit it from readline.
        with pytest.raises(SystemExit) as ended:
            main()
    return Finished(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def summary_in(output: Path) -> dict[str, ModelSummary]:
    summary = Summary.model_validate_json((output / "summary.json").read_text())
    return {model.name: model for model in summary.models}


MANIFEST = """
defaults:
  {preset: quick, budget: 2, calibration: minmax, cache: false, engine: fusion-model, gpu: a100}
jobs: 2
models:
  - model: nets/*.onnx
  - model: nets/strict.onnx
    gates: sqnr>=200
  - model: digits.onnx
    data: calibration.npz
    eval_data: evaluation.npz
    engine: onnxruntime
    gpu: null
    priority: 1
  - model: corrupt.onnx
  - model: unsupported.onnx
"""
