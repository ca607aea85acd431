"""Cores that a process may use."""

import os
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


def test_logical_cpus_of_one_core_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    missing = tmp_path / "missing"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4}, raising=False)
    assert usable_cores(missing, tmp_path) == 3  # Of the last CPU nothing is told.
    assert usable_cores(missing, missing) == 5
