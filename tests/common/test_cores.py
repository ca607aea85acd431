"""Cores that a process may use."""

from pathlib import Path

import pytest

from placer.common.cores import usable_cores


@pytest.mark.parametrize("text", ["max 100000", "nonsense", "100000000 100000"])
def test_without_a_limit_of_its_group_a_process_has_the_schedulers_cores(tmp_path: Path, text: str):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == usable_cores(tmp_path / "missing") >= 1


@pytest.mark.parametrize("text", ["100000 100000", "50000 100000", "199999 100000"])
def test_a_container_with_less_than_two_cores_has_one(tmp_path: Path, text: str):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == 1
