"""placer's log messages in a file, as long as a run lasts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Lock

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Level:
    """The level of placer's logger, which is its own again once no run logs.

    Threads may make several runs at once.
    """

    def __init__(self) -> None:
        self._lock, self._runs, self._own = Lock(), 0, logging.NOTSET

    def lower(self, logger: logging.Logger) -> None:
        """Let messages of a run pass."""
        with self._lock:
            if not self._runs:
                self._own = logger.level
            self._runs += 1
            logger.setLevel(logging.INFO)

    def put_back(self, logger: logging.Logger) -> None:
        """End what ``lower`` began."""
        with self._lock:
            self._runs -= 1
            if not self._runs:
                logger.setLevel(self._own)


_LEVEL = _Level()
# The log of the run that a thread makes. placer's own threads copy it. None in threads of others,
# which do not know whose they are: their messages go to the logs of all runs.
_OWN: ContextVar[Path | None] = ContextVar("log", default=None)


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Keep placer's log messages in ``path``, without those of runs that other threads make."""
    logger = logging.getLogger("placer")
    # Opened with the first message: a run that is refused leaves no file.
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(lambda _: _OWN.get() in (None, path))
    logger.addHandler(handler)
    own = _OWN.set(path)
    _LEVEL.lower(logger)
    try:
        yield
    finally:
        _LEVEL.put_back(logger)
        _OWN.reset(own)
        logger.removeHandler(handler)
        handler.close()
