"""What a fit says of each network that was measured: its builds, measured and estimated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from placer.fitting.builds import features
from placer.fitting.leave_out import LeftOut
from placer.fitting.predicted import PredictedNetwork
from placer.prediction.times.fitted import BuildEvidence, NetworkEvidence
from placer.prediction.times.layer_parts import CostKey

GIVEN = "model "  # What records call networks that the user gave, before the name of the file.


def evidence(
    networks: Iterable[PredictedNetwork], left: LeftOut, names: bool
) -> Iterator[NetworkEvidence]:
    """Of each network what was measured, beside estimates by a fit without it.

    ``names``: given networks keep the names of their files; else they are numbered.
    """
    given = 0
    for network in networks:
        name = network.record.network
        if name.startswith(GIVEN) and not names:
            given += 1
            name = f"{GIVEN}{given}"
        builds = tuple(_builds(network, left))
        yield NetworkEvidence(name=name, noise=network.noise, builds=builds)


def _builds(network: PredictedNetwork, left: LeftOut) -> Iterator[BuildEvidence]:
    estimates = left.estimates[network.costs.name]
    builds = zip(network.costs.builds, network.ratios, estimates, strict=True)
    for build, ratio, estimated_us in builds:
        kinds = features(build.parts)
        yield BuildEvidence(
            label=build.label,
            measured_us=build.us,
            estimated_us=estimated_us,
            ratio=ratio.median,
            ratio_interval=(ratio.low, ratio.high),
            estimated_ratio=estimated_us / estimates[0],
            kinds=tuple(_kind(key, kinds[key]) for key in sorted(kinds)),
        )


def _kind(key: CostKey, amounts: np.ndarray) -> tuple[str, str, float, float, float, float]:
    """Amounts to six digits, as in the costs."""
    times, mops, read_mb, written_mb = (float(f"{amount:.6g}") for amount in amounts)
    return key.name, key.dtype, times, mops, read_mb, written_mb
