"""Products whose constants ONNX Runtime quantizes by itself (weight_bias_quantization.cc)."""

from __future__ import annotations

from placer.graph import Edge, Graph, Node

STORED = frozenset({"Conv", "ConvTranspose", "Gemm"})
_CLAMPS = ("Relu", "Clip")


def behind_clamp(node: Node, graph: Graph) -> tuple[Edge, ...]:
    """The edges of what a Relu or Clip writes that alone reads a product of ``STORED``."""
    reader = graph.sole_reader(node.outputs[0]) if node.op in STORED else None
    if reader is None or reader.op not in _CLAMPS:
        return ()
    return tuple(graph.edges_of(reader.outputs[0]))


def is_vector(bias: Edge, graph: Graph) -> bool:
    """Whether ``bias`` has one dimension: no other is quantized (issue 24815)."""
    return len(graph.type_of(bias.tensor).shape or ()) == 1
