"""How wide the output is: whole lines for programs, the terminal's width for people."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from placer.cli.terminal import output_console, table_of
from placer.graph.text import parse_model
from tests.conftest import Finished

LONG = "model/backbone/stage_3/block_11/attention/projection/with/a/name/of/an/exporter"
NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,2] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }
"""


def test_names_are_in_one_piece_where_no_terminal_reads_them(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    proto = parse_model(NET)
    proto.graph.node[0].name = LONG
    onnx.save(proto, Path("net.onnx"))
    monkeypatch.delenv("COLUMNS", raising=False)
    explained = placer("explain", "net.onnx", "--gpu", "t4", "--all")
    assert explained.code == 0, explained.err
    rows = [line for line in explained.out.splitlines() if line.startswith("│")]
    assert any(LONG in row for row in rows)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = placer("explain", "net.onnx", "--gpu", "t4", "--all")
    assert max(len(line) for line in narrow.out.splitlines() if line.startswith(("│", "┃"))) <= 60


def test_names_in_heads_and_titles_of_tables_are_no_markup(capsys: pytest.CaptureFixture[str]):
    table = table_of("net[red]", title="[b]x.onnx", caption="of [/]")
    output_console().print(table)
    title, _, head, *_, caption = map(str.strip, capsys.readouterr().out.splitlines())
    assert (title, head.strip("┃ "), caption) == ("[b]x.onnx", "net[red]", "of [/]")
