"""What an explanation says of constants with pairs that no kernel reads as integers."""

from __future__ import annotations

from placer.common.listed import listed
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.quantization import Placement
from placer.rules.pack import Pack


def idle_constants(graph: Graph, placement: Placement | None, plan: Plan, pack: Pack) -> str:
    """A sentence on pairs of constants that only round these; empty if there are none.

    As of tables of embeddings, which TensorRT folds to floats. Of products something else is said,
    and of operators of other domains, such as ONNX Runtime's FusedConv, it is not known.
    """
    if placement is None or pack.manifest.behaviour.pairs != "symmetric":
        return ""
    on_integers = integer_nodes(plan)
    edges = [
        edge
        for edge in sorted(placement.edges)
        if edge.tensor in graph.initializers
        and edge.node
        and edge.node not in on_integers
        and graph.by_name[edge.node].op not in WEIGHTED_OPS
        and not graph.by_name[edge.node].domain
    ]
    if not edges:
        return ""
    shown = listed([f"'{e.tensor}' ({graph.by_name[e.node].op} '{e.node}')" for e in edges])
    one = len(edges) == 1
    constants, them = ("a constant", "it") if one else ("constants", "them")
    return (
        f"pairs on {constants}, {shown}, round {them} and gain no speed, as what reads {them} "
        "computes in float: take these pairs out"
    )
