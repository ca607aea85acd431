"""What failed trials say of layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.search.landscape.landscape import Landscape, State
from placer.search.records import TrialRecord

# What a layout costs that only failed trials had, shared by the suspects of a trial.
FAILED = 0.5


def costs_of_failures(
    landscape: Landscape, states: Sequence[State], trials: Sequence[TrialRecord], best: State
) -> np.ndarray:
    """The cost of layouts that only failed trials have, shape (sites, most layouts of any site).

    Where a failed trial has none, two sites near each other may be what fails together: the layouts
    of two that no other trial has. Of these the one that ``best``, a placement that did not fail,
    does not have costs more, or both, half each.
    """
    costs = np.zeros(landscape.edge_shares.shape)
    has_failed = np.array([trial.error is not None for trial in trials], dtype=bool)
    if not has_failed.any():
        return costs
    layouts = np.array(states, dtype=int)
    sites = np.arange(layouts.shape[1])
    worked = np.zeros(costs.shape, dtype=bool)
    worked[np.tile(sites, (~has_failed).sum()), layouts[~has_failed].ravel()] = True
    for failed in layouts[has_failed]:
        suspects = sites[~worked[sites, failed]]
        if len(suspects):
            costs[suspects, failed[suspects]] += FAILED / len(suspects)
        elif not landscape.is_vast:
            _add_pairs(costs, landscape, failed, layouts[~has_failed], np.array(best))
    return costs


def _add_pairs(
    costs: np.ndarray,
    landscape: Landscape,
    failed: np.ndarray,
    worked: np.ndarray,
    best: np.ndarray,
) -> None:
    """Add what the layouts of two sites cost that ``failed`` has, and nothing that ``worked``."""
    first, second = landscape.neighbouring_sites
    together = np.zeros(len(first), dtype=bool)
    for had in worked == failed:
        together |= had[first] & had[second]
    first, second = first[~together], second[~together]
    lacks = np.stack([best[first] != failed[first], best[second] != failed[second]])
    shares = FAILED / max(1, len(first)) * lacks / np.maximum(1, lacks.sum(axis=0))
    np.add.at(costs, (first, failed[first]), shares[0])
    np.add.at(costs, (second, failed[second]), shares[1])
