"""placement.yaml: a placement and its ranges, portable between files of one model."""

from __future__ import annotations

from typing import Any

import yaml

from placer.graph import Edge
from placer.placement import Placement
from placer.ranges import Ranges, union
from placer.scheme import Scheme

FORMAT = "placer-placement/1"


def placement_text(
    placement: Placement,
    ranges: Ranges,
    scheme: Scheme,
    *,
    model: str,
    pack: str,
    calibrated: bool,
) -> str:
    """Return the YAML text of ``placement``.

    ``model`` is the model's fingerprint, ``pack`` the rule pack's name and version; ``calibrated``
    is false if the ranges come from random inputs. Each group
    lists its edges and the range that its scale represents; weights have no range, because
    their scales follow from their values.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "id": placement.id,
        "model": model,
        "pack": pack,
        "scheme": scheme.model_dump(),
        "calibrated": calibrated,
        "groups": [_group(edges, ranges) for edges in placement.sorted()],
    }
    return yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


def _group(edges: list[Edge], ranges: Ranges) -> dict[str, Any]:
    known = [ranges[tensor] for tensor in sorted({e.tensor for e in edges}) if tensor in ranges]
    group: dict[str, Any] = {}
    if known:
        low, high = union(known)
        group["range"] = [low, high]
    group["edges"] = [{"tensor": e.tensor, "node": e.node, "input": e.input_index} for e in edges]
    return group
