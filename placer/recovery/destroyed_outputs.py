"""The part of a placement that destroys no output: on one that is mere noise, methods all tie."""

from __future__ import annotations

from collections.abc import Callable

from placer.search.space import Choices, Space

# Error power over signal power: 3 dB. Noisier outputs differ by chance alone.
DESTROYED_NOISE = 0.5


def intact_choices(space: Space, noise: Callable[[Choices], float]) -> Choices:
    """The default choices without the noisiest groups, for a default that destroys an output.

    ``noise``: the worst part's error power over signal power. Groups are quantized one by one, each
    alone, and added up from the quietest on while their sum stays below ``DESTROYED_NOISE``: errors
    of different tensors are nearly independent, so their powers add.
    """
    alone = {
        group.name: noise({**space.floats, group.name: group.default}) for group in space.groups
    }
    choices, total = dict(space.floats), 0.0
    for group in sorted(space.groups, key=lambda group: alone[group.name]):
        total += alone[group.name]
        if total >= DESTROYED_NOISE:
            break
        choices[group.name] = group.default
    return choices
