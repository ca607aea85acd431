"""What a trial can do without: a failure of it is a warning, and the plain way is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from placer.errors import InputError

log = logging.getLogger(__name__)
_Value = TypeVar("_Value")


def optional(what: str, do: Callable[[], _Value], otherwise: _Value) -> _Value:
    """What ``do`` returns; if it fails, ``otherwise``, with a warning that names ``what``.

    Bindings raise whatever C++ throws, so any exception counts but InputError, which is the user's
    to correct.
    """
    try:
        return do()
    except InputError:
        raise
    except Exception as error:  # See above.
        log.warning("%s failed, going on without: %s", what, " ".join(str(error).split()))
        return otherwise
