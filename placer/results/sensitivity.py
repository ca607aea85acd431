"""What ``placer sensitivity`` found, as typed data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from placer.results.parts import Part

Kind = Literal["rule", "group", "site"]
# Error power over signal power by part of an output; null where it was not finite.
Noises = dict[str, float | None]


class SavedPart(Part):
    """What quantizing saves in the default placement, in microseconds.

    Of a measurement the 95% bootstrap interval over rounds; of an estimate there is none.
    """

    microseconds: float
    interval: list[float] | None = None


class SubjectPart(Part):
    """A site, a group of sites of equal structure, or all sites of a rule."""

    kind: Kind
    name: str
    rule: str
    sites: int
    nodes: list[str] = Field(description="of a site: what its rule matched, else none")
    default: bool = Field(description="whether the default placement quantizes any of it")
    alone: Noises | None = Field(
        description="noise with all else float; null where it quantizes nothing by itself"
    )
    without: Noises | None = Field(
        description="noise of the default placement with this left float; null if it is float there"
    )
    saves: SavedPart | None = Field(
        default=None, description="null where nothing was measured or estimated"
    )
    error: str | None = Field(default=None, description="why the engine refused a candidate")

    @property
    def worst_alone(self) -> tuple[float, str]:
        """The noisiest part of the outputs with all else float: noise power and name."""
        return worst(self.alone or {})


class Sensitivity(Part):
    """Everything that ``placer sensitivity`` found; subjects are sorted, the worst first."""

    format: Literal["placer-sensitivity/1"] = "placer-sensitivity/1"
    model: str
    engine: str
    version: str
    estimated: bool = Field(description="what quantizing saves is an estimate")
    pack: str
    calibrated: bool = Field(description="false: ranges and noise rest on random inputs")
    samples: int = Field(description="of the evaluation data, on which noise was measured")
    probes: int = Field(description="placements that were measured for this")
    known: int = Field(description="placements that earlier runs had measured")
    floats: Noises = Field(description="noise with as little quantized as the rules allow")
    default: Noises = Field(description="noise of the pack's default placement")
    subjects: list[SubjectPart]
    warnings: list[str] = Field(default=[])


def worst(noises: Mapping[str, float | None]) -> tuple[float, str]:
    """The noisiest part, with noise that is not finite as infinity; (0, "") without any."""
    known = [(math.inf if noise is None else noise, part) for part, noise in noises.items()]
    return max(known, key=lambda one: one[0], default=(0.0, ""))
