"""Why a database failed, in words that are fit for one sentence."""

from __future__ import annotations

from optuna.exceptions import StorageInternalError
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, PendingRollbackError


def reason_of(error: Exception, url: URL | None = None) -> str:
    """What the database said, without SQL and without the password of ``url``."""
    reason: BaseException = error
    while isinstance(reason, StorageInternalError | PendingRollbackError) and reason.__cause__:
        reason = reason.__cause__
    if isinstance(reason, DBAPIError) and reason.orig is not None:
        reason = reason.orig  # SQLAlchemy adds the statement and its parameters.
    text = " ".join(str(reason).split()).split(" (Background on", 1)[0]
    secret = None if url is None else url.password
    return (text.replace(secret, "***") if secret else text)[:200]
