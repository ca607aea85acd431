"""A worker runs no code that its own command line does not name."""

import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from placer.optimizer.options.request import Request
from placer.optimizer.worker import request_json
from tests.conftest import DIGITS, Finished

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
HOSTILE = "open('it-ran', 'w').close()\ndef run(*_): return 1.0\n"


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (Request(model=MODEL, data="hostile_data:run"), ()),
        (Request(model=MODEL, evaluation_data="hostile_data:run"), ("--data", MODEL)),
        (
            Request(model=MODEL, gates=("hostile_data:run>=1",), preset="quick", budget=2),
            ("--function", "other:run"),
        ),
    ],
    ids=["data", "evaluation data", "gate"],
)
def test_functions_that_a_study_names_are_not_even_imported(
    placer: Placer,
    request_: Request,
    named: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
):
    Path("hostile_data.py").write_text(HOSTILE)
    monkeypatch.delitem(sys.modules, "hostile_data", raising=False)
    monkeypatch.syspath_prepend(Path.cwd())
    url = "sqlite:///shared.db"
    study = optuna.create_study(storage=url, study_name="s")
    study.set_user_attr("request", request_json(request_))
    finished = placer("worker", "--study", "s", "--storage", url, *named)
    assert finished.code == 2
    assert "names the function 'hostile_data:run', which this worker's command line" in finished.err
    assert "if you trust it, add --function hostile_data:run" in finished.err
    assert not Path("it-ran").exists()
    placer("worker", "--study", "s", "--storage", url, "--function", "hostile_data:run")
    assert Path("it-ran").exists()
