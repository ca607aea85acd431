"""What kinds of parts of layers cost: times of plans.

In a network with more weights than a size that the fit found, each layer takes a time besides, and
more for the weights that it reads, by the type of its input: all of it where there are twice as
many weights, less in between.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from placer.prediction.times.layer_parts import (
    EVERY_KIND,
    MANY_WEIGHTS,
    WEIGHTS,
    CostKey,
    Part,
    ancestors,
)

# How many times the most that was measured a part may have for its kind's own rates to hold.
# Rates of a kind that was measured in small parts alone are told from little, and off by tens of
# times in a large one; up to a few times the largest they are closer than those of like kinds.
_VALID = 4.0

# Up to which amount each rate holds, rising, and the rate in microseconds.
_Rates = tuple[tuple[float, float], ...]


class Document(BaseModel):
    """A part of a fit file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Cost(Document):
    """What a kind of part costs; see ``placer.prediction.times.layer_parts``.

    Microseconds: for each one, each million operations or elements, each 10**6 bytes that are read
    and each that are written. ``builds``: how many measured builds had such parts. ``most``: the
    most million operations, and 10**6 bytes read and written, that a measured part had, each maybe
    of another part; None: costs hold for parts of any size.
    """

    name: str
    dtype: str
    fixed_us: float = Field(ge=0)
    us_per_mop: float = Field(ge=0)
    us_per_mb_read: float = Field(ge=0)
    us_per_mb_written: float = Field(ge=0)
    builds: int = Field(ge=0)
    most: tuple[float, float, float] | None = None

    @cached_property
    def rates(self) -> tuple[float, float, float]:
        """Microseconds per million operations, and per 10**6 bytes read and written."""
        return self.us_per_mop, self.us_per_mb_read, self.us_per_mb_written

    @cached_property
    def valid_to(self) -> tuple[float, float, float]:
        """Up to where the rates hold, in the same units."""
        if self.most is None:
            return math.inf, math.inf, math.inf
        mops, read_mb, written_mb = self.most
        return _VALID * mops, _VALID * read_mb, _VALID * written_mb

    def part_us(self, part: Part) -> float:
        """The time of ``part`` in microseconds."""
        return (
            part.times * self.fixed_us
            + part.mops * self.us_per_mop
            + part.read_mb * self.us_per_mb_read
            + part.written_mb * self.us_per_mb_written
        )


def excess(weights_mb: float, many_weights_mb: float | None) -> float:
    """How far ``weights_mb`` are beyond ``many_weights_mb``: 1 from twice as many on; None: not."""
    return 0.0 if many_weights_mb is None else min(max(weights_mb / many_weights_mb - 1, 0.0), 1.0)


class CostTable:
    """Costs by kind; what was not measured has the cost of its nearest ancestor.

    What a part has beyond the most that was measured of its kind takes what it takes of the nearest
    ancestor that was measured so far; where none was, the rate that reaches furthest goes on.
    ``many_weights_mb``: from how many 10**6 bytes of weights on layers take more; None: none do.
    """

    def __init__(self, costs: Iterable[Cost], many_weights_mb: float | None = None) -> None:
        self.costs = tuple(costs)
        self.many_weights_mb = many_weights_mb
        self._costs = {CostKey(cost.name, cost.dtype): cost for cost in self.costs}
        self._rates: dict[CostKey, tuple[Cost, tuple[_Rates, ...]]] = {}

    def find(self, key: CostKey) -> Cost:
        """The cost of ``key``."""
        return self._rates_of(key)[0]

    def _rates_of(self, key: CostKey) -> tuple[Cost, tuple[_Rates, ...]]:
        """The cost of ``key``, and its rates by operations, megabytes read and written.

        ``EVERY_KIND`` stands for nothing but what was not measured at all: by it a large part would
        take as long in integers as in float.
        """
        found = self._rates.get(key)
        if found is None:
            kinds = (kind for kind in (key, *ancestors(key)) if kind in self._costs)
            costs = [self._costs[kind] for kind in kinds] or [self._costs[EVERY_KIND]]
            found = costs[0], tuple(_rates(costs, axis) for axis in range(3))
            self._rates[key] = found
        return found

    def layer_us(self, parts: Iterable[Part]) -> float:
        """The time of a layer in microseconds, in a network without many weights."""
        return sum(map(self._part_us, (part for part in parts if part.key != WEIGHTS)))

    def _part_us(self, part: Part) -> float:
        cost, rates = self._rates_of(part.key)
        amounts = part.mops, part.read_mb, part.written_mb
        if all(map(operator.le, amounts, cost.valid_to)):
            return cost.part_us(part)
        return part.times * cost.fixed_us + sum(map(_amount_us, amounts, rates))

    def plan_us(self, plan: Sequence[Sequence[Part]]) -> list[float]:
        """The times of all layers of a plan in microseconds."""
        beyond = plan_excess(plan, self.many_weights_mb)
        return [self.layer_us((*parts, *excess_part(parts, beyond))) for parts in plan]


def _rates(costs: Sequence[Cost], axis: int) -> _Rates:
    """Up to which amount each rate holds, and the rate, of the first cost and of like ones.

    Of these only such as hold further than those before them.
    """
    rates = [(costs[0].valid_to[axis], costs[0].rates[axis])]
    for cost in costs[1:]:
        if cost.valid_to[axis] > rates[-1][0]:
            rates.append((cost.valid_to[axis], cost.rates[axis]))
    return tuple(rates)


def _amount_us(amount: float, rates: _Rates) -> float:
    """Microseconds of ``amount``: by each rate up to where it holds, by the last what is left."""
    us = counted = 0.0
    for valid_to, rate in rates[:-1]:
        until = min(amount, valid_to)
        us += (until - counted) * rate
        counted = until
    return us + (amount - counted) * rates[-1][1]


def weights_mb(parts: Iterable[Part]) -> float:
    """10**6 bytes of weights that a layer reads."""
    return sum(part.read_mb for part in parts if part.key == WEIGHTS)


def plan_excess(plan: Iterable[Sequence[Part]], many_weights_mb: float | None) -> float:
    """How far a plan's weights are beyond ``many_weights_mb``; see ``excess``."""
    return excess(sum(map(weights_mb, plan)), many_weights_mb)


def excess_part(parts: Sequence[Part], beyond: float) -> tuple[Part, ...]:
    """What a layer of ``parts`` takes besides where a plan's excess of weights is ``beyond``.

    One part of the type that it reads; none of a no-op, and none without an excess.
    """
    if not parts or not beyond:
        return ()
    key = CostKey(MANY_WEIGHTS, parts[0].key.dtype)
    return (Part(key, beyond, 0.0, beyond * weights_mb(parts), 0.0),)
