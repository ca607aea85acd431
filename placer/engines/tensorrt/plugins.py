"""Plugins: operators of TensorRT's own plugin library and of the user's.

TensorRT keeps them in one registry per process, which refuses a library whose plugins it holds
already (``IPluginRegistry.load_library`` then returns None), so each is loaded once per process.
Parsing a model needs them, and so does loading a saved engine.

It takes libraries that export ``getCreators``, trtexec's ``--dynamicPlugins``. Those that register
their plugins while they are loaded (``REGISTER_TENSORRT_PLUGIN``), trtexec's ``--staticPlugins``,
need no more than that.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.log import BuildLog
from placer.engines.tensorrt.optional import optional
from placer.errors import InputError, RunError

log = logging.getLogger(__name__)


def load_plugins(library: Library, paths: Iterable[Path]) -> None:
    """Register TensorRT's own plugins, with a warning if that fails, and those in ``paths``.

    Raises InputError for a path that is no file or no plugin library.
    """
    _own_plugins(library)
    for path in paths:
        if not path.is_file():
            raise InputError(f"plugin library {path} does not exist; give the path of a .so file")
        _loaded(library, path.resolve())


@cache
def _own_plugins(library: Library) -> Any:
    """The logger that TensorRT's plugins write to as long as the process lives."""
    logger = BuildLog().attach(library.module)
    optional("registering TensorRT's own plugins", partial(_register, library, logger), None)
    return logger


def _register(library: Library, logger: Any) -> None:
    if not library.module.init_libnvinfer_plugins(logger, ""):
        raise RunError("init_libnvinfer_plugins returned False")


@cache
def _loaded(library: Library, path: Path) -> Any:
    """The handle of the library at ``path``; a failure is raised and not remembered."""
    written = BuildLog()
    logger = written.attach(library.module)
    runtime = library.module.Runtime(logger)  # While there is one, the registry logs there, too.
    registry = library.module.get_plugin_registry()
    handle = registry.load_library(str(path))
    if handle is None:
        handle = _registering_itself(registry, path)
    del runtime
    if handle is None:
        raise InputError(f"{library.title} cannot load plugin library {path}: {written.reason()}")
    return handle


def _registering_itself(registry: Any, path: Path) -> Any:
    """The library at ``path`` if it registers plugins while it is loaded; None if it does not."""
    known = len(registry.all_creators)
    try:
        handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        log.info("%s is not a library that registers its plugins itself: %s", path, error)
        return None
    return handle if len(registry.all_creators) > known else None
