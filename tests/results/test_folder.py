"""Folders of results: which files belong to a run."""

from pathlib import Path

import pytest

from placer.results.folder import OutputFolder

OF_THE_MODEL = (
    "optimized.onnx",
    "optimized.onnx.data",
    "placement.yaml",
    "optimized.xml",
    "optimized.bin",
    "result.json",
    "report.html",
)


@pytest.mark.parametrize("others", [(), ("notes.txt",)])
def test_a_model_is_removed_with_all_that_was_made_of_it(tmp_path: Path, others: tuple[str, ...]):
    folder = OutputFolder(tmp_path / "out")
    folder.path.mkdir()
    for name in (*OF_THE_MODEL, *others):
        (folder.path / name).touch()
    folder.remove_model()
    left = [path.name for path in folder.path.iterdir()] if folder.path.exists() else None
    assert left == (list(others) or None)
