"""Why a database failed, in words that are fit for one sentence."""

from __future__ import annotations

from optuna.exceptions import StorageInternalError
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError


def reason_of(error: Exception, url: URL | None = None) -> str:
    """What the database said, without SQL and without the password of ``url``."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else None
    reason: BaseException = cause or error
    if isinstance(reason, DBAPIError) and reason.orig is not None:
        reason = reason.orig  # SQLAlchemy adds the statement and its parameters.
    text = " ".join(str(reason).split()).split(" (Background on", 1)[0]
    secret = None if url is None else url.password
    return (text.replace(secret, "***") if secret else text)[:200]
