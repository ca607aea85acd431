"""Text of unknown origin, made safe to show."""

import io
import sys

import pytest
from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from placer.common.display import printable, safe_output, sentence, with_short_names


def test_hidden_characters_are_shown_as_codes():
    assert printable("conv\u202erev\x07 \ud800") == "conv[U+202E]rev[U+0007] [U+D800]"
    assert printable("línea\n\tß 字") == "línea\n\tß 字"


def test_a_sentence_is_one_line_of_600_characters_and_keeps_its_end():
    assert sentence("a\nb\x1b[31m") == "a b[U+001B][31m"
    long = sentence("x" * 5000 + "; export it again")
    assert len(long) == 600
    assert long.endswith("; export it again")


def test_long_names_are_cut_in_the_middle_and_the_rest_stays():
    name = "model/" + "part;" * 30 + "Conv2D"
    shown = with_short_names(f"'{name}' is read in float by 'add', so its producer writes float")
    assert shown == (
        "'model/part;part;part;part;part;par...rt;part;part;part;part;part;Conv2D' is read in "
        "float by 'add', so its producer writes float"
    )
    assert with_short_names("x" * 70) == "x" * 70


def test_what_is_printed_is_safe(capsys: pytest.CaptureFixture[str]):
    with safe_output():
        print("name\u202e")
        Console().print("[b]bold[/b] \u2066", soft_wrap=True)
    print(end="")
    out = capsys.readouterr().out
    assert out == "name[U+202E]\nbold [U+2066]\n"


def test_an_encoding_that_lacks_characters_is_no_error(monkeypatch: pytest.MonkeyPatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with safe_output():
        table = Table("µs", box=HEAVY_HEAD)
        table.add_row("1")
        Console(width=20).print("· loading", table)
        print("línea")
        sys.stdout.flush()
    assert raw.getvalue().decode("ascii").splitlines() == [
        *("? loading", "+----+", "| ?s |", "|----|", "| 1  |", "+----+", "l?nea")
    ]
