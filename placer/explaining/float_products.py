"""What an explanation says of products that read pairs and compute in float all the same."""

from __future__ import annotations

from collections.abc import Collection

from placer.common.listed import listed
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Edge, Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan


def float_products(
    graph: Graph, edges: Collection[Edge], plan: Plan, told: Collection[str] = ()
) -> str:
    """A sentence on products with weights that no layer of ``plan`` computes on integers.

    ``edges``: those with pairs in the file. ``told``: nodes of which the reason is said elsewhere.
    """
    of_integers = integer_nodes(plan).union(told)
    computed = {node for layer in plan.of_kind("compute") for node in layer.nodes}
    found = [
        node
        for node in graph.nodes
        if node.op in WEIGHTED_OPS
        and node.name in computed - of_integers
        and set(graph.edges_into(node)[:2]) <= set(edges)
        and node.inputs[1] in graph.initializers
    ]
    if not found:
        return ""
    shown = listed([f"'{node.name}' ({node.op})" for node in found])
    one = len(found) == 1
    return (
        f"{shown} compute{'s' * one} in float though {'its' if one else 'their'} operands have "
        "pairs, which gain no speed there"
    )
