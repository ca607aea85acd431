"""The engine that a request asks for, its pack, and what the two allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from placer.engines.abilities import abilities_of, converts_inputs
from placer.engines.base import Engine
from placer.engines.select import select_engine
from placer.errors import InputError
from placer.graph.shapes import optima
from placer.optimizer.options.request import AUTO, Base, Request
from placer.optimizer.setup.task import Schemes
from placer.rules.pack import Pack
from placer.rules.packaging.lock import check_lock


def engine_for(
    request: Request, device: str | None, bases: Sequence[Base] = (), schemes: Schemes = ()
) -> tuple[Engine, Pack, str]:
    """The engine that ``request`` asks for on ``device``, its pack and what to say of it.

    ``bases``, ``schemes``: see ``Task``. Where ``scheme`` auto is not settled, the pack's own.
    Raises InputError or RunError, see ``placer.engines.select.select_engine``.
    """
    asked = None if request.scheme == AUTO else request.scheme
    return select_engine(
        request.engine,
        threads=request.threads,
        pack=request.pack,
        gpu=request.gpu,
        base=None if request.base == AUTO and not bases else request.base,
        shapes=optima(request.shape_ranges),
        shape_ranges=request.shape_ranges,
        build_for=request.build_for,
        device=device,
        extra=request.engine_options,
        scheme=schemes[0] if schemes else asked,
        weight_range=request.weight_range,
        objective=request.objective,
    )


def first_device(request: Request) -> str | None:
    """The device that a run begins on."""
    return request.devices[0] if request.devices else request.device


def check_engine(request: Request, engine: Engine, pack: Pack, warn: Callable[[str], None]) -> None:
    """Raise InputError if ``engine`` cannot do what is asked, or ``pack`` is not for it."""
    _check_io_type(request, engine)
    _check_export(request, engine)
    check_lock(pack, Path())
    _check_pack(pack, engine, warn)


def _check_export(request: Request, engine: Engine) -> None:
    if request.export is not None and engine.rules != request.export:
        raise InputError(
            f"`export` writes what engine {request.export} has judged, but this run has engine "
            f"{engine.name}; choose `engine` {request.export} or leave out `export`"
        )


def _check_io_type(request: Request, engine: Engine) -> None:
    """Raise InputError if inputs and outputs are to be converted where nothing is."""
    if request.io_type == "convert" and (not converts_inputs(engine) or request.base == "float"):
        raise InputError(
            "`io_type` convert: nothing is converted on engine "
            f"{engine.name}{' with base float' if request.base == 'float' else ''}; leave it out"
        )


def _check_pack(pack: Pack, engine: Engine, warn: Callable[[str], None]) -> None:
    manifest = pack.manifest
    if manifest.engine != engine.rules:
        raise InputError(
            f"pack '{manifest.name}' is for engine {manifest.engine}, not {engine.rules}; "
            "choose another pack or engine"
        )
    if engine.estimated and "built-plans" not in abilities_of(engine):
        return  # Its version is placer's own.
    try:
        made_for = SpecifierSet(manifest.engine_versions).contains(engine.version, prereleases=True)
    except InvalidVersion:  # Since packaging 26 such a version is merely outside of every range.
        made_for = False
    if not made_for:
        warn(
            f"pack '{manifest.name}' was made for {manifest.engine} {manifest.engine_versions}, "
            f"this is {engine.name} {engine.version}"
        )
