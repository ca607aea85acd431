"""In which order models are measured within a round.

What runs before a model moves its time: the caches and clocks are as the other left them. Where the
order only rotates, a model follows the same other one in all rounds but one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice


def balanced_orders(rounds: int, models: int) -> Iterator[tuple[int, ...]]:
    """Yield the order of ``models``, counted from 0, in each of ``rounds``.

    Over any ``models`` rounds, or twice as many where their number is odd, each is at each place
    equally often, and follows each other one equally often. Source: E. J. Williams, Experimental
    designs balanced for the estimation of residual effects of treatments, 1949.
    """
    first = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(models)]
    square = [tuple((model + row) % models for model in first) for row in range(models)]
    if models % 2:
        square += [order[::-1] for order in square]
    return islice(cycle(square), rounds)
