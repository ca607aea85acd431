"""What kinds of parts of layers cost, and what memory takes to bring weights: times of plans.

What a layer computes and what memory brings it overlap, but not in full: where weights come from
memory, it takes the root of the sum of both squares, a smooth form of the longer one that rooflines
take (Williams, Waterman & Patterson 2009). Weights of a network stay in a cache from one inference
to the next if they fit into what the fit found that it keeps. Beyond that they are missing, all of
them where there are twice as many: they are read in turn, and each pushes out what is read next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from placer.prediction.times.layer_parts import EVERY_KIND, WEIGHTS, CostKey, Part, ancestors


class Document(BaseModel):
    """A part of a fit file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Cost(Document):
    """What a kind of part costs; see ``placer.prediction.times.layer_parts``.

    Microseconds: for each one, each million operations or elements, each 10**6 bytes that are read
    and each that are written. ``builds``: how many measured builds had such parts.
    """

    name: str
    dtype: str
    fixed_us: float = Field(ge=0)
    us_per_mop: float = Field(ge=0)
    us_per_mb_read: float = Field(ge=0)
    us_per_mb_written: float = Field(ge=0)
    builds: int = Field(ge=0)

    def part_us(self, part: Part) -> float:
        """The time of ``part`` in microseconds."""
        return (
            part.times * self.fixed_us
            + part.mops * self.us_per_mop
            + part.read_mb * self.us_per_mb_read
            + part.written_mb * self.us_per_mb_written
        )


class Memory(Document):
    """Weights that do not stay in a cache: 10**6 bytes take ``us_per_mb`` microseconds.

    ``kept_mb``: how many of a network stay from one inference to the next.
    """

    kept_mb: float = Field(gt=0)
    us_per_mb: float = Field(ge=0)

    def missing(self, weights_mb: float) -> float:
        """The share of ``weights_mb``, those of a whole plan, that memory brings each time."""
        return share_missing(weights_mb, self.kept_mb) if self.us_per_mb else 0.0


def share_missing(weights_mb: float, kept_mb: float) -> float:
    """The share of ``weights_mb`` that is not in a cache that keeps ``kept_mb`` of them."""
    return min(max(weights_mb / kept_mb - 1, 0.0), 1.0)


FAST_MEMORY = Memory(kept_mb=1, us_per_mb=0)  # Nothing waits for it.


class CostTable:
    """Costs by kind; what was not measured has the cost of its nearest ancestor."""

    def __init__(self, costs: Iterable[Cost], memory: Memory = FAST_MEMORY) -> None:
        self.costs = tuple(costs)
        self.memory = memory
        self._costs = {CostKey(cost.name, cost.dtype): cost for cost in self.costs}

    def find(self, key: CostKey) -> Cost:
        """The cost of ``key``."""
        known = self._costs.get(key)
        if known is None:
            near = (self._costs[k] for k in (*ancestors(key), EVERY_KIND) if k in self._costs)
            known = self._costs[key] = next(near)
        return known

    def layer_us(self, parts: Iterable[Part]) -> float:
        """The time of a layer in microseconds, whose weights are in a cache."""
        return sum(self.find(part.key).part_us(part) for part in parts if part.key != WEIGHTS)

    def wait_us(self, parts: Sequence[Part]) -> float:
        """Microseconds that a layer takes longer where memory brings its weights."""
        us = self.layer_us(parts)
        return math.hypot(us, weights_mb(parts) * self.memory.us_per_mb) - us

    def missing(self, plan: Iterable[Sequence[Part]]) -> float:
        """The share of a plan's weights that memory brings in each inference."""
        return self.memory.missing(sum(map(weights_mb, plan)))

    def plan_us(self, plan: Sequence[Sequence[Part]]) -> list[float]:
        """The times of all layers of a plan in microseconds."""
        missing = self.missing(plan)
        if not missing:
            return list(map(self.layer_us, plan))
        return [self.layer_us(parts) + missing * self.wait_us(parts) for parts in plan]


def weights_mb(parts: Iterable[Part]) -> float:
    """10**6 bytes of weights that a layer reads."""
    return sum(part.read_mb for part in parts if part.key == WEIGHTS)
