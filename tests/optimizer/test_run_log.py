"""The log of a run beside those of others in the same process."""

import logging
from pathlib import Path
from threading import Barrier, Thread

from placer.common.run_limits import Runner
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


def test_calls_within_limits_log_to_the_run_that_makes_them_alone(tmp_path: Path):
    logger = logging.getLogger("placer")
    runner = Runner()  # One thread makes the calls of both.

    with log_to(tmp_path / "first.log"):
        runner.run(lambda: logger.info("of the first run"), 60, lambda: None)
        other = Thread(target=_log_in_run_of_its_own, args=[tmp_path / "second.log", runner])
        other.start()
        other.join()
    texts = {log.stem: log.read_text(encoding="utf-8") for log in tmp_path.glob("*.log")}
    found = {name: text.rstrip().rsplit(": ")[-1] for name, text in texts.items()}
    assert found == {"first": "of the first run", "second": "of the second run"}
    assert all(len(text.splitlines()) == 1 for text in texts.values())


def _log_in_run_of_its_own(path: Path, runner: Runner) -> None:
    with log_to(path):
        call = logging.getLogger("placer").info
        runner.run(lambda: call("of the second run"), 60, lambda: None)
