"""Names of outputs that the user has not named, apart for models that are called the same."""

from __future__ import annotations

import hashlib
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
    it is empty. ``source_of`` tells the model that an output is about, None if it does not tell. A
    model that is no more, as one that was moved, counts for nothing.
    """
    if given is not None:
        return Path(given), ""
    output = Path(f"{model.stem}{suffix}")
    other = source_of(output)
    if other is None or not other.is_file() or other.resolve() == model.resolve():
        return output, ""
    own = own_output(model, suffix)
    return own, f"{output} is about {other}; this result is in {own}"
