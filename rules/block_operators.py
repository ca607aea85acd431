"""Operators that ONNX Runtime computes in blocks of channels: nchwc_transformer.cc.

``block``: the number of channels in a block, which depends on the processor.
"""

from __future__ import annotations

from placer.common.processor import Processor
from placer.graph import Edge, Graph, Node
from placer.graph.operators import STANDARD_DOMAINS

GLOBAL_POOLS = frozenset({"GlobalMaxPool", "GlobalAveragePool"})
POOLS = frozenset({"MaxPool", "AveragePool"})
JOINS = frozenset({"Add", "Mul", "Concat"})
_KEEPS = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid", "Gelu", "BatchNormalization"})
_OF_CONVS = frozenset({"Clip", "LeakyRelu", "HardSwish"})  # Conv applies them; alone they do not.
_OF_AVX512, _OF_OTHERS = 16, 8  # Channels of a block.
_ALIGNED = 4  # Channels, of which kernels take multiples and fill up the last block.


def block_of(processor: Processor) -> int:
    """The channels of a block on an x86 ``processor`` (MlasNchwcGetBlockSize).

    One of which nothing is known is taken to have AVX-512.
    """
    return _OF_OTHERS if processor.avx512 is False else _OF_AVX512


def edges_in_blocks(node: Node, graph: Graph, block: int) -> tuple[Edge, ...] | None:
    """What must lie in blocks, or be a Conv's float weight, for the node to write blocks.

    None: it never does. Whether shapes are equal, as those of what a Mul reads must be, is not
    looked at.
    """
    if node.domain not in STANDARD_DOMAINS:
        return None
    edges = tuple(e for e in graph.edges_into(node) if e.input_index < len(node.inputs))
    if node.op == "Conv":
        return edges[1:2] if is_conv_of_blocks(node, graph, block) else None
    if node.op in POOLS or node.op in GLOBAL_POOLS:
        # A MaxPool of blocks writes no indices.
        alone = len(node.outputs) == 1
        return () if alone and _fills_blocks(node.inputs[0], graph, block) else None
    if node.op in _KEEPS or (node.op == "Resize" and node.attributes.get("mode") != "cubic"):
        return edges[:1]
    if node.op in _OF_CONVS:
        return edges[:1] if _is_behind_conv(node, graph) else None
    if node.op == "Concat":
        whole = all(_fills_blocks(tensor, graph, block) for tensor in node.inputs)
        return edges if whole and node.attributes.get("axis") == 1 else None
    gelu = _gelu_edges(node, graph)
    return edges if gelu is None and node.op in JOINS else gelu


def _is_behind_conv(node: Node, graph: Graph) -> bool:
    """Whether ``node`` alone reads what a Conv writes; Relus before a Clip become part of it.

    A Conv takes no Clip whose bounds are computed (conv_activation_fusion.cc).
    """
    if node.op == "Clip" and any(t and t not in graph.initializers for t in node.inputs[1:]):
        return False
    tensor = node.inputs[0]
    while len(graph.edges_of(tensor)) == 1 and (before := graph.producer.get(tensor)) is not None:
        if before.op == "Conv":
            return True
        if (node.op, before.op) != ("Clip", "Relu"):
            return False
        tensor = before.inputs[0]
    return False


def _gelu_edges(node: Node, graph: Graph) -> tuple[Edge, ...] | None:
    """The two edges of what a Gelu reads whose last node, a Mul, is ``node``; None if it is none.

    Source: gelu_fusion.cc, whose layer nchwc_transformer.cc takes for an activation.
    """
    product = _before(node, "Mul", graph)
    total = None if product is None else _before(product, "Add", graph)
    erf = None if total is None else _before(total, "Erf", graph)
    root = None if erf is None else graph.producer.get(erf.inputs[0])
    if node.op != "Mul" or product is None or root is None or root.op not in ("Div", "Mul"):
        return None
    into = (*graph.edges_into(root), *graph.edges_into(product))
    read = tuple(edge for edge in into if edge.tensor == root.inputs[0])
    return read if len(read) == 2 else None


def _before(node: Node, op: str, graph: Graph) -> Node | None:
    """The node of operator ``op`` that writes what ``node`` reads."""
    found = (graph.producer.get(tensor) for tensor in node.inputs)
    return next((one for one in found if one is not None and one.op == op), None)


def _fills_blocks(image: str, graph: Graph, block: int) -> bool:
    """Whether the channels of a tensor, which is an image, are whole blocks."""
    shape = graph.type_of(image).shape
    return shape is not None and len(shape) == 4 and shape[1] % block == 0


def is_conv_of_blocks(conv: Node, graph: Graph, block: int) -> bool:
    """Whether the Conv, in float, has a kernel that writes blocks.

    Its weight must be an initializer of four dimensions.
    """
    weight = graph.initializers.get(conv.inputs[1])
    if weight is None or len(weight.dims) != 4:
        return False
    written, read, group = weight.dims[0], weight.dims[1], conv.attributes.get("group", 1)
    if group > 1:
        depthwise = read == 1 and written == group
        whole = read % block == 0 and (written // group) % block == 0
        return bool(written % _ALIGNED == 0 and (depthwise or whole))
    return bool(read < block or read % _ALIGNED == 0)


def reads_blocks(node: Node, graph: Graph, block: int) -> bool:
    """Whether a float Conv or pool has what it reads in blocks, however that was written.

    A Conv of fewer channels than a block, such as those of an image, reads them row by row.
    """
    if node.op == "Conv":
        grouped = node.attributes.get("group", 1) != 1
        return is_conv_of_blocks(node, graph, block) and (
            grouped or graph.initializers[node.inputs[1]].dims[1] >= block
        )
    pools = node.op in POOLS and len(node.outputs) == 1
    return pools and _fills_blocks(node.inputs[0], graph, block)
