"""Functions that the user names as ``module:function``."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from traceback import extract_tb
from types import TracebackType
from typing import Any

from placer.errors import InputError, PlacerError

_END = object()
# Where files are that are not the user's: placer, what is installed, Python, code without a file.
_PATHS = sysconfig.get_paths()
_FOLDERS = {_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_OTHERS = ("<", *(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], *_FOLDERS)))


def load_function(text: str) -> Callable[..., Any]:
    """Import ``module:function``; the current folder counts as a place for modules.

    Raises InputError if the module cannot be imported or has no such function.
    """
    module_name, _, name = text.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with UserCode(f"importing module '{module_name}' of {text}", "correct or install it"):
        module = importlib.import_module(module_name)
    function = getattr(module, name, None)
    if function is None:
        raise InputError(f"module '{module_name}' has no function '{name}'; correct {text}")
    if not callable(function):
        raise InputError(
            f"'{name}' of module '{module_name}' has type {type(function).__name__}; make it a "
            "function"
        )
    loaded: Callable[..., Any] = function
    return loaded


def source_fingerprint(text: str) -> str:
    """SHA-256 of the file that ``module:function`` is in, ``built in`` without a file.

    Helpers that it calls often stand beside it, so its own lines would say too little.
    """
    function = load_function(text)
    try:
        source = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").read_bytes()
    except (OSError, TypeError):
        return "built in"
    return f"sha256:{hashlib.sha256(source).hexdigest()[:16]}"


class UserCode:
    """Turns whatever code that is not placer's raises into an error of placer that names it."""

    def __init__(self, what: str, fix: str, raises: type[PlacerError] = InputError) -> None:
        self._what = what
        self._fix = fix
        self._raises = raises

    def items(self, iterable: Callable[[], Iterable[object]]) -> Iterator[object]:
        """Yield the items of what ``iterable`` returns; what the caller does with them is its own.

        A ``with`` around a loop would blame the user's code for errors in the loop's body.
        """
        with self:
            iterator = iter(iterable())
        while True:
            with self:
                item = next(iterator, _END)
            if item is _END:
                return
            yield item

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What ends the program, as sys.exit does, would end this one with an exit code of its own.
        if isinstance(error, (Exception, SystemExit)) and not isinstance(error, PlacerError):
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            sentence = f"{self._what} failed with {reason}; {self._fix}{_place(traceback)}"
            raise self._raises(sentence) from error


def _place(traceback: TracebackType | None) -> str:
    """The last line of the user's own files that ran; empty if none did."""
    frames = [f for f in extract_tb(traceback) if not f.filename.startswith(_OTHERS)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
