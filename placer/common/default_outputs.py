"""Names of outputs that the user has not named, apart for models that are called the same."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from os import PathLike
from pathlib import Path


def own_output(model: Path, suffix: str) -> Path:
    """The output for ``model`` where the one of its name is about another file of that name."""
    mark = hashlib.sha256(str(model.resolve()).encode()).hexdigest()[:8]
    return Path(f"{model.stem}-{mark}{suffix}")


def default_output(
    model: Path,
    suffix: str,
    source_of: Callable[[Path], Path | None],
    given: str | PathLike[str] | None = None,
) -> tuple[Path, str]:
    """``given``, by default ``MODEL`` with ``suffix`` in the current folder, and a note on it.

    Where that is about another file of this name it is ``own_output``, and the note says so; else
    it is empty. ``source_of`` tells the model that an output is about, None if it does not tell.
    """
    if given is not None:
        return Path(given), ""
    output = Path(f"{model.stem}{suffix}")
    other = source_of(output)
    if other is None or not is_another_file(other, model):
        return output, ""
    own = own_output(model, suffix)
    return own, f"{output} is about {other}; this result is in {own}"


def is_another_file(other: Path, model: Path) -> bool:
    """Whether ``other``, which an output is about, is a file that is not ``model``.

    One that is no more, as one that was moved, is none. One in a folder that cannot be looked into,
    as another user's, is.
    """
    try:
        is_file = stat.S_ISREG(other.stat().st_mode)  # is_file() hides why, from Python 3.14 on.
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return is_file and other.resolve() != model.resolve()
