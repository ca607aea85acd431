"""Nodes whose layers read integers in a predicted plan."""

from __future__ import annotations

from placer.plan import Plan
from placer.plan.dtypes import is_quantized


def integer_nodes(plan: Plan) -> frozenset[str]:
    """Names of the nodes in layers of which an input has a quantized type."""
    return frozenset(
        node
        for layer in plan.layers
        if any(map(is_quantized, layer.input_types))
        for node in layer.nodes
    )
