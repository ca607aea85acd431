"""The log of a run beside those of others in the same process."""

import logging
from pathlib import Path
from threading import Barrier, Thread

from placer.optimizer.run_log import log_to


def test_runs_in_several_threads_log_their_own_messages_until_each_ends(tmp_path: Path):
    logger = logging.getLogger("placer")
    before = logger.level, list(logger.handlers)
    both_run, first_ends = Barrier(2), Barrier(2)

    def first() -> None:
        with log_to(tmp_path / "first.log"):
            both_run.wait()
            logger.info("of the first run")
        first_ends.wait()

    def second() -> None:
        with log_to(tmp_path / "second.log"):
            both_run.wait()
            first_ends.wait()
            worker = Thread(target=logger.info, args=["of a worker"])
            worker.start()
            worker.join()
            logger.info("of the second run")

    runs = [Thread(target=first), Thread(target=second)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert (logger.level, logger.handlers) == before
    texts = {log.stem: log.read_text(encoding="utf-8") for log in tmp_path.glob("*.log")}
    assert [line.rsplit(": ")[-1] for line in texts["first"].splitlines()] == ["of the first run"]
    lines = [line.rsplit(": ")[-1] for line in texts["second"].splitlines()]
    assert lines == ["of a worker", "of the second run"]
