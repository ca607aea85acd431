"""Outputs that are not named stay apart for models of one name."""

from pathlib import Path

import pytest

from placer.common.default_outputs import default_output

MODEL, OTHER = Path("b/net.onnx"), Path("a/net.onnx")


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (MODEL, OTHER):
        path.parent.mkdir()
        path.touch()


def _note() -> str:
    """On an output of ``MODEL`` where there is one that is about ``OTHER``."""
    return default_output(MODEL, ".float.onnx", lambda _: OTHER)[1]


def test_an_output_is_apart_from_one_whose_source_cannot_be_looked_at(
    monkeypatch: pytest.MonkeyPatch,
):
    """As in a folder of another user, which ended the command."""
    expected = _note()
    assert expected.startswith("net.float.onnx is about a/net.onnx; this result is in net-")
    look = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> object:
        if path == OTHER:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    assert _note() == expected


def test_a_source_that_is_no_more_counts_for_nothing():
    OTHER.unlink()
    assert _note() == ""
    OTHER.parent.rmdir()
    OTHER.parent.touch()
    assert _note() == ""
