"""The final table of ``placer onboard`` in terminals of any width."""

import io

import pytest
from rich.console import Console

from placer.cli.onboard import markdown_of, print_summary
from placer.cli.terminal import output_console
from placer.results.onboarding import ModelSummary, Summary
from placer.results.parts import GatePart

FIELDS = dict.fromkeys(ModelSummary.model_fields)
SHARED = {"ran": True, "why": "new", "gates": [], "trials": 4, "seconds": 12.25}
FASTER = {
    "name": "mobilenet_v2",
    "state": "faster",
    "reason": "meets the gates",
    "float_ms": 12.345,
    "best_ms": 6.25,
    "speedup": 1.975,
    "speedup_interval": [1.875, 2.125],
}
BROKEN = {"name": "broken", "state": "bad input", "reason": "broken.onnx is not an ONNX file"}


def told(width: int, **more: object) -> list[str]:
    models = [
        ModelSummary.model_construct(**{**FIELDS, **SHARED, **one})
        for one in ({**FASTER, **more}, BROKEN)
    ]
    console = Console(width=width, file=io.StringIO())
    print_summary(console, Summary.model_construct(models=models))
    return console.file.getvalue().splitlines()


def test_eighty_columns_hold_the_table_and_reasons_stand_below():
    assert told(80) == [
        "┏━━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓",
        "┃ model        ┃ state     ┃ float, ms ┃ best, ms ┃ speed-up (interval) ┃",
        "┡━━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩",
        "│ mobilenet_v2 │ faster    │ 12.3      │ 6.25     │ 1.975               │",
        "│              │           │           │          │ (1.875 to 2.125)    │",
        "│ broken       │ bad input │           │          │                     │",
        "└──────────────┴───────────┴───────────┴──────────┴─────────────────────┘",
        "broken: broken.onnx is not an ONNX file",
    ]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_longer_than_the_terminal(width: int):
    doubt = {"state": "cannot tell", "reason": "its gain is within the error of estimates"}
    found = told(width, estimated=True, speedup_interval=[0.875, 2.125], **doubt)
    assert max(map(len, found)) <= width
    assert "within the error of estimates" in " ".join(found)


def test_values_that_are_not_finite_are_exact_where_they_meet_the_gate():
    gates = [
        GatePart(gate="sqnr>=90", value=None, where="y", passed=passed) for passed in (True, False)
    ]
    found = " ".join(told(200, gates=gates))
    assert "sqnr>=90: exact ok" in found
    assert "sqnr>=90: not finite missed" in found


def test_names_are_no_markup():
    named = {"name": "net[red]", "of": "net[red]", "target": "t4[b]"}
    for width in (80, 160):
        found = " ".join(told(width, **named))
        assert "net[red]" in found
        assert "t4[b]" in found
    models = [ModelSummary.model_construct(**{**FIELDS, **SHARED, **FASTER, **named})]
    found = markdown_of(Summary.model_construct(models=models))
    assert "| net\\[red\\] |" in found
    assert "| speed-up | t4\\[b\\] |" in found


def test_a_log_is_wide_unless_its_width_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output_console(160).width == 160
    monkeypatch.setenv("COLUMNS", "100")
    assert output_console(160).width == 100
