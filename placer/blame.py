"""From a node that an engine refuses to the rules that put a pair there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from placer.placement import Placement
from placer.rules.sites import Site

# Names of the nodes of a pair, as placer.qdq gives them.
_PAIR = re.compile(r"'(?P<tensor>[^']+)/(?:Quantize|Dequantize)Linear(?:_\d+)?'")


def blame(message: str, placement: Placement, sites: Sequence[Site]) -> str:
    """``message`` with the rules behind the pair that it names, if it names one."""
    match = _PAIR.search(message)
    if match is None:
        return message
    tensor = match["tensor"]
    edges = {edge for edge in placement.edges if edge.tensor == tensor}
    found = {
        f"{site.match.rule.id} at '{site.match.anchor.name}'": None
        for site in sites
        if any(layout.quantize & edges for layout in site.layouts.values())
    }
    if not found:
        return message
    return f"{message}; the pair is there by rule {' and '.join(found)}"
