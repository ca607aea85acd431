"""Repeat what a database server did not answer, as it restarts or its connections were cut."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)

from placer.search.study.database_errors import reason_of

T = TypeVar("T")
log = logging.getLogger(__name__)

# For how long a server is waited for, and seconds before the first and between the last attempts.
WAIT_S = 120.0
_FIRST_S, _LONGEST_S = 0.25, 8.0


@dataclass(frozen=True)
class DatabaseRetries:
    """Repeats what a server did not answer, for at most ``seconds``; 0 for a file."""

    seconds: float

    @staticmethod
    def of(storage: BaseStorage) -> DatabaseRetries:
        """Retries for ``storage``; none for a file, which will fail in a minute, too."""
        server = isinstance(storage, RDBStorage) and storage.engine.dialect.name != "sqlite"
        return DatabaseRetries(WAIT_S if server else 0.0)

    def __call__(self, operation: Callable[[], T]) -> T:
        """Return what ``operation`` returns, which must do no harm if it is done twice.

        Raises what it raises once the time is up, and at once what is no lost connection.
        """
        deadline, pause = time.monotonic() + self.seconds, _FIRST_S
        while True:
            try:
                return operation()
            except (SQLAlchemyError, StorageInternalError) as error:
                if not _is_lost(error) or time.monotonic() + pause > deadline:
                    raise
                log.warning("the database does not answer (%s); trying again", reason_of(error))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_S)


def _is_lost(error: Exception) -> bool:
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    # Optuna reads on in the transaction whose connection was cut; the next attempt has a new one.
    return isinstance(cause, OperationalError | InterfaceError | PendingRollbackError) or (
        isinstance(cause, DBAPIError) and cause.connection_invalidated
    )
