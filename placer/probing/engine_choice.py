"""``auto``: the engine that ``placer.optimize`` would take, kept so that a command resumes with it.

Engines that are about equally fast change places from one comparison to the next, and all that is
measured belongs to one of them.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from placer.common.custom_ops import libraries_held
from placer.common.files import write_bytes
from placer.engines.registry import Registry
from placer.engines.select import BUILT_IN
from placer.errors import PlacerError
from placer.optimizer.observer import Observer, QuietObserver
from placer.optimizer.options.request import AUTO, BaseOption, Request
from placer.optimizer.setup.auto_engine import CPU_ENGINES, leaves_open, resolve_engine_and_base
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Schemes
from placer.version import __version__

log = logging.getLogger(__name__)


class _Choice(NamedTuple):
    engine: str
    base: BaseOption | None


_CHOICE = TypeAdapter(_Choice)


def on_chosen_engine(request: Request, observer: Observer, schemes: Schemes) -> Request:
    """``request`` on the engine that ``placer.optimize`` would take with its default gates.

    Where ``base`` is auto, in that of the float model. Nothing else is changed. What was chosen
    before for the same model, data and options is taken again. Raises what
    ``resolve_engine_and_base`` raises.
    """
    if not leaves_open(request):
        return request
    path = _path(request, schemes)
    kept = _kept(path)
    choice = _compared(request, observer, schemes) if kept is None else kept
    before = "" if kept is None else ", as in an earlier run"
    base = "" if choice.base is None else f" in {choice.base}"
    observer.stage(f"engine {choice.engine}{base}, by the comparison of placer optimize{before}")
    if path is not None and kept is None:
        with suppress(PlacerError):  # A disk that cannot be written costs time only.
            write_bytes(path, _CHOICE.dump_json(choice))
    return replace(request, engine=choice.engine, base=choice.base)


def _compared(request: Request, observer: Observer, schemes: Schemes) -> _Choice:
    observer.stage("comparing engines")
    resolved = resolve_engine_and_base(request, QuietObserver(), schemes)
    found = resolved.request
    return _Choice(found.engine, resolved.bases[0] if resolved.bases else found.base)


def _path(request: Request, schemes: Schemes) -> Path | None:
    """The file of the choice for this model, data and options, with the engines that run here."""
    if request.cache_dir is None:
        return None
    base = None if request.base == AUTO else request.base
    try:
        task = prepare(replace(request, base=base), QuietObserver(), schemes=schemes)
    except PlacerError:  # Another engine may take it; the comparison says why if none does.
        return None
    registry = Registry.installed(BUILT_IN)
    context = [
        __version__,
        [name for name in CPU_ENGINES if registry.factory(name).unavailable() is None],
        [task.engine.name, task.engine.version, task.engine.device],
        task.model.fingerprint,
        task.calibration_data.fingerprint,
        task.evaluation_data.fingerprint,
        libraries_held(),
        replace(request, model=Path(), data=None, evaluation_data=None, cache_dir=None),
    ]
    key = hashlib.sha256(repr(context).encode()).hexdigest()
    return request.cache_dir / f"engine-1-{key}.json"


def _kept(path: Path | None) -> _Choice | None:
    try:
        if path is not None and path.is_file():
            return _CHOICE.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("%s is not used: %s", path, error)
    return None
