"""What an explanation says of constants with pairs that no kernel reads as integers."""

from __future__ import annotations

from collections.abc import Collection

from placer.common.listed import listed
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Edge, Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.quantization import Placement
from placer.rules.pack import Pack

# What reads floats besides its data, also where it moves integers or is part of such a layer.
_PARAMETRIC = frozenset({"Clip", "Pad"})


def idle_constants(
    graph: Graph, placement: Placement | None, shared: Collection[str], plan: Plan, pack: Pack
) -> str:
    """A sentence on pairs of constants that only round these; empty if there are none.

    As of tables of embeddings, which TensorRT folds to floats, and of bounds of a Clip, which no
    kernel reads as integers (PPQ quantizes them: TensorRT issue 1897). Of products something else
    is said, and of operators of other domains, such as ONNX Runtime's FusedConv, it is not known.
    Pairs that products read, too, as of a table that is the last product's weight, are left out,
    and so are those of ``shared`` constants, which a Transpose reads in front of one.
    """
    if placement is None or pack.manifest.behaviour.pairs != "symmetric":
        return ""
    on_integers = integer_nodes(plan)

    def is_of_use(edge: Edge) -> bool:
        node = graph.by_name[edge.node]
        if node.op in _PARAMETRIC and edge.input_index:
            return False
        return node.name in on_integers or node.op in WEIGHTED_OPS or bool(node.domain)

    read = [e for e in sorted(placement.edges) if e.tensor in graph.initializers and e.node]
    kept = {edge.tensor for edge in read if is_of_use(edge)}.union(shared)
    edges = [edge for edge in read if edge.tensor not in kept]
    if not edges:
        return ""
    shown = listed([f"'{e.tensor}' ({graph.by_name[e.node].op} '{e.node}')" for e in edges])
    one = len(edges) == 1
    constants, them = ("a constant", "it") if one else ("constants", "them")
    they = "it is" if one else "they are"
    return (
        f"pairs on {constants}, {shown}, round {them} and gain no speed, because {they} read in "
        "float: take these pairs out"
    )
