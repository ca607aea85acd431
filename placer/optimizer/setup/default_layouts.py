"""The layouts that make the default placement, as the pack's times or estimates say."""

from __future__ import annotations

from collections.abc import Sequence

from placer.engines.abilities import HasDefaultBase, target_of
from placer.engines.base import Engine
from placer.optimizer.observer import Observer
from placer.optimizer.options.request import AUTO, Request
from placer.prediction.defaults_by_estimates import are_left_float, with_defaults_on_device
from placer.prediction.times.devices import Device, device_like, load_device
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.sites import Site


def default_layouts(
    matches: Matches,
    sites: Sequence[Site],
    pack: Pack,
    engine: Engine,
    request: Request,
    observer: Observer,
) -> tuple[Site, ...]:
    """``sites`` with the defaults that make the pack's default placement on ``engine``.

    Where a GPU's estimates decide, they are of the one that is named, else of the engine's.
    """
    target = target_of(engine)
    if request.gpu is not None:
        device: Device | None = load_device(request.gpu)
    else:
        device = device_like(engine.device.partition(" (")[0], target, pack)
    base: str | None = request.base
    if base is None or base == AUTO:
        base = engine.default_base if isinstance(engine, HasDefaultBase) else "float16"
    decided = with_defaults_on_device(matches, sites, pack, target, base, device)
    if are_left_float(decided):
        estimated = device is not None and pack.manifest.behaviour.gains is None
        observer.stage(
            "by default nothing is quantized: the float model is estimated to be faster"
            + (f" on {device.name}" if device and estimated else "")
        )
    return decided
