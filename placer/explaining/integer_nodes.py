"""Nodes whose layers read integers in a predicted plan."""

from __future__ import annotations

from collections.abc import Collection

from placer.plan import Plan
from placer.plan.dtypes import is_quantized


def integer_nodes(plan: Plan, dtypes: Collection[str] = ()) -> frozenset[str]:
    """Names of the nodes in layers of which an input has a quantized type, one of ``dtypes`` if any
    are given.
    """
    return frozenset(
        node
        for layer in plan.layers
        if any(t in dtypes if dtypes else is_quantized(t) for t in layer.input_types)
        for node in layer.nodes
    )
