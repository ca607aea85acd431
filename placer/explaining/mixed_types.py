"""What an explanation says of operators whose operands are integers of different types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from placer.common.listed import in_quotes
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Edge, Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.rules.pack import Pack


def mixed_types(
    graph: Graph, types: Mapping[Edge, str], plan: Plan, pack: Pack, told: Collection[str]
) -> Iterator[str]:
    """A sentence on each operator that the types of its pairs keep in float (ORT issue 12487).

    ``types``: what the pairs of the file quantize to, by edge. ONNX Runtime has kernels for
    operands of one type. It converts int8 activations to uint8, but constants only of products.
    ``told``: nodes of which the reason is said elsewhere.
    """
    if pack.manifest.behaviour.signed != "converted":
        return
    known = integer_nodes(plan).union(told)
    deciding = [rule for rule in pack.rules if rule.decides]
    ops = {op for rule in deciding for step in rule.pattern.values() for op in step.op}
    for node in graph.nodes:
        edges = graph.edges_into(node)
        has_pairs = types.keys() >= {*edges, *graph.edges_of(node.outputs[0])}
        if node.op in ops - WEIGHTED_OPS and node.name not in known and has_pairs:
            read = {types[edge] for edge in edges}
            if len(read) > 1:
                tensors = [edge.tensor for edge in edges if types[edge] != "uint8"]
                yield (
                    f"'{node.name}' ({node.op}) computes in float though all it reads and writes "
                    f"has pairs, because they are of {' and '.join(sorted(read))}: quantize "
                    f"{in_quotes(tensors)} to uint8, too"
                )
