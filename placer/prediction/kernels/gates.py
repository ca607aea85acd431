"""Products whose kernels have an activation built in, which gates what another product makes.

Such a product is not one with others of the same tensor. SiLU and Sigmoid are not built in.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 28 small graphs of gated
products (GEGLU, SwiGLU and the like), and a T5.
"""

from __future__ import annotations

from placer.graph import Graph
from placer.prediction.kernels.gelus import gelus
from placer.prediction.kernels.parts import Unit


class Gates:
    """The gates of one graph; ``functions``: GELUs in parts, by name of each part."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.functions = {n.name: gelu for gelu in gelus(graph) for n in gelu.nodes}

    def are(self, product: Unit) -> bool:
        """Whether a product is one: with a Relu, or with a GELU behind a bias."""
        return bool(self._activated(product))

    def end_before(self, product: Unit, unit: Unit) -> bool:
        """Whether a gate's kernel leaves ``unit`` to the other product: it adds a bias itself."""
        made = self._activated(product)
        return bool(made) and _bias(product) is not None and made in unit.node.inputs

    def _activated(self, product: Unit) -> str:
        """What a gate's activation makes, which is all that is read of it; empty for others."""
        bias = _bias(product)
        last = bias or product
        readers = [reader.node for _, reader in last.readers]
        gelu = self.functions.get(readers[0].name) if readers else None
        made = ""
        if gelu is not None and bias is not None and gelu.given in last.outputs:
            names = {node.name for node in gelu.nodes}
            made = gelu.nodes[-1].outputs[0] if names.issuperset(r.name for r in readers) else ""
        elif len(readers) == 1 and (readers[0].op == "Relu" or (bias and readers[0].op == "Gelu")):
            made = readers[0].outputs[0]
        return made if made and self._is_multiplied(made) else ""

    def _is_multiplied(self, tensor: str) -> bool:
        """Whether another activation is multiplied by it, which is all that reads it."""
        edges, constants = self._graph.edges_of(tensor), self._graph.initializers
        nodes = [self._graph.by_name[edge.node] for edge in edges if edge.node]
        if len(edges) != 1 or len(nodes) != 1 or nodes[0].op != "Mul":
            return False
        return not any(other in constants for other in nodes[0].inputs)


def _bias(product: Unit) -> Unit | None:
    """What alone reads a product and adds a constant."""
    readers = [reader for _, reader in product.readers]
    known = len(readers) == 1 and readers[0].node.op == "Add" and len(readers[0].reads) == 1
    return readers[0] if known else None
