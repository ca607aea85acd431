"""The log of a run beside those of others in the same process."""

import logging
from pathlib import Path

from placer.optimizer.run_log import log_to


def test_runs_in_several_threads_log_until_each_ends(tmp_path: Path):
    logger = logging.getLogger("placer")
    before = logger.level, list(logger.handlers)
    first, second = log_to(tmp_path / "first.log"), log_to(tmp_path / "second.log")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    logger.info("of the second run")
    second.__exit__(None, None, None)
    assert (logger.level, logger.handlers) == before
    assert "of the second run" in (tmp_path / "second.log").read_text()
    assert not (tmp_path / "first.log").exists()
