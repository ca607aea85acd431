"""Files that were placed for another engine than they are run on."""

from __future__ import annotations

from collections.abc import Sequence

from placer.common.names import engine_title
from placer.engines.base import Engine
from placer.engines.registry import Registry
from placer.engines.select import BUILT_IN
from placer.model import Model
from placer.qdq.origin import named_pack
from placer.rules.packaging.load import is_builtin, load_pack


def placed_for_others(
    models: Sequence[Model], engine: Engine, done: str, otherwise: str
) -> list[str]:
    """A sentence for each file that was placed by a built-in pack of another engine.

    ``done``: what happens on ``engine``, e.g. "measured". ``otherwise``: what users can do where
    the other engine does not run on this machine.
    """
    notes = []
    for model in models:
        pack = (named_pack(model.proto) or "").partition(" ")[0]
        if is_builtin(pack) and (placed_for := load_pack(pack).manifest.engine) != engine.rules:
            title = engine_title(placed_for)
            runs_here = Registry.installed(BUILT_IN).factory(placed_for).unavailable() is None
            advice = (
                f"`engine` {placed_for} runs it there"
                if runs_here
                else f"{title} does not run here (placer doctor says why), {otherwise}"
            )
            notes.append(
                f"{model.path} was placed for {title} and is {done} on "
                f"{engine_title(engine.name)}; {advice}"
            )
    return notes
