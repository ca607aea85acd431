"""Attentions that are one kernel, and the matrix products of others.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of attentions with heads of 4
to 32 channels, with keys narrower than values, and with an odd number of tokens; and of 20 small
graphs that mask, add positions, repeat keys and replace what is no number.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence

from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.graph.weights import weight_input
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.views import readers_of

# A Softmax of old opsets is over all that follows its axis: exporters flatten before.
_FLAT = ("Flatten", "Reshape")
# What scales and masks scores, and adds what depends on positions.
MASKS = ("Mul", "Div", "Add", "Sub", "Where", "Max", "Min")
# What a number is multiplied by before it is multiplied, and what moves data in between.
_LINEAR = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "MatMul", "Gemm", "Conv", "LayerNormalization"}
    | {"BatchNormalization", "InstanceNormalization"}
)
_MOVED = frozenset(
    {"Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Concat", "Gather"}
    | {"Flatten", "Identity"}
)
# Channels of a head; those of other than a multiple of them are padded, and those of no more have
# no kernel (heads of 4 to 12 channels, TensorRT-RTX 1.7.1).
NARROW = 8
# Channels of heads, and tokens at most, for which attention in INT8 is one kernel: as TensorRT
# documents it (multi-head attention fusion) and TensorRT-RTX 1.7.1 builds it for sm86 and sm89
# (heads of 16 to 160 channels, 256 to 4096 tokens). In FP8 there is no such limit.
_INT8_HEADS, _INT8_TOKENS = (16, 32, 64), 512


def attentions(graph: Graph, float32: Container[str]) -> Mapping[str, tuple[Node, ...]]:
    """By name of their first MatMul: all nodes of each attention, the two products at the ends.

    Between them are scaling, masks, Softmax and what replaces rows that are no numbers, and keys
    and values that are repeated for several heads of queries. ``float32``: tensors that have that
    type in a narrower engine: what replaces rows of such scores is none of an attention.
    """
    found = _alike(graph, float32)
    return {
        name: nodes
        for name, nodes in found.items()
        if not (_adds_zeros(graph, nodes) or _splits_keys(graph, nodes))
    }


def _alike(graph: Graph, float32: Container[str]) -> Mapping[str, tuple[Node, ...]]:
    """Attentions, and those of which one kernel would be made but for what masks them."""
    nodes_of = {}
    for softmax in graph.nodes:
        if softmax.op != "Softmax" or _is_of_one_head(graph, softmax):
            continue
        if not _is_of_rows(graph, softmax):
            continue
        before = _scored(graph, softmax)
        behind = _weighted(graph, softmax, softmax.inputs[0] not in float32)
        if not before or behind[-1].op != "MatMul":
            continue
        scores, mix = before[0], behind[-1]
        if mix.inputs[0] not in behind[-2].outputs:  # Scores that weight columns.
            continue
        heads = all(_is_heads(graph, t) for t in (*scores.inputs, *mix.inputs))
        shared = any(share_heads(graph, product) for product in (scores, mix))
        if heads and not shared and _is_even(graph, scores, mix):
            masks = (mask for node in before[1:] for mask in _masks(graph, node))
            scales = _scales(graph, scores, masked=len(before) > 1)
            nodes_of[scores.name] = (
                *(scores, *scales, *repeated(graph, (scores, mix)), *masks),
                *(*before[1:], *behind),
            )
    return nodes_of


def _scales(graph: Graph, scores: Node, masked: bool) -> Iterator[Node]:
    """Numbers that queries and keys are multiplied by, unless other constants take them in.

    Those of what is added to or multiplied by, or of weights, do, also before data is moved; no
    function, maximum or mean does, nor a joint product's where scores are ``masked`` (30 graphs).
    """
    for tensor in scores.inputs:
        scale = graph.producer.get(tensor)
        if scale is None or number(graph, scale) is None or len(graph.edges_of(tensor)) > 1:
            continue
        made = _made_before(graph, scale)
        if made is None or made.op not in _LINEAR or (masked and _is_joint(graph, made)):
            yield scale


def _made_before(graph: Graph, scale: Node) -> Node | None:
    """What computes the elements that a node scales, wherever they were moved since."""
    given = next((t for t in scale.inputs if t not in graph.initializers), "")
    made = graph.producer.get(given)
    while made is not None and made.op in _MOVED:
        made = graph.producer.get(made.inputs[0])
    return made


def product_before(graph: Graph, scale: Node) -> Node | None:
    """The product of a weight whose elements a node scales, if it is one."""
    made = _made_before(graph, scale)
    weighted = made is not None and made.op == "MatMul" and weight_input(graph, made) is not None
    return made if weighted else None


def _is_joint(graph: Graph, product: Node) -> bool:
    """Whether it is one product with others of the same tensor, whose weights take nothing in."""
    if product.op != "MatMul" or weight_input(graph, product) is None:
        return False
    readers = readers_of(graph, product.inputs[0])
    return sum(n.op == "MatMul" and weight_input(graph, n) is not None for n in readers) > 1


def _masks(graph: Graph, node: Node) -> Iterator[Node]:
    """A Where of two numbers by what is repeated for all rows, which each attention does itself."""
    for tensor in node.inputs:
        mask = graph.producer.get(tensor)
        if node.op != "Add" or mask is None or mask.op != "Where":
            continue
        condition = graph.producer.get(mask.inputs[0])
        numbers = all(value in graph.initializers for value in mask.inputs[1:])
        if numbers and condition is not None and condition.op == "Expand":
            given = (graph.type_of(_without_true(graph, condition.inputs[0])).shape or (0, 0))[-2:]
            if given[:1] == (1,):
                yield mask


def _without_true(graph: Graph, tensor: str) -> str:
    """What makes ``tensor`` but for an And with what is always true."""
    both = graph.producer.get(tensor)
    if both is None or both.op != "And":
        return tensor
    constants = [t for t in both.inputs if t in graph.initializers]
    if len(constants) != 1 or not numpy_helper.to_array(graph.initializers[constants[0]]).all():
        return tensor
    return next(t for t in both.inputs if t not in constants)


def kept_apart(graph: Graph, float32: Container[str]) -> frozenset[str]:
    """Names of products that would be attentions but for their scores in FP32, or their masks.

    Numbers that scale their operands are not part of the products either.
    """
    return frozenset(_alike(graph, ()).keys() - attentions(graph, float32).keys())


def _scored(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The product that ``node`` reads and what is between them, in order; empty without one.

    Products of two activations that are added to each other are none of an attention; beside one
    of learned queries or positions it is the other one's.
    """
    chains: list[tuple[Node, ...]] = []
    for tensor in node.inputs:
        made = graph.producer.get(tensor)
        if made is None or len(graph.edges_of(tensor)) > 1:
            continue
        if made.op == "MatMul":
            chains.append((made,))
        elif made.op in (*_FLAT, *MASKS) and (before := _scored(graph, made)):
            chains.append((*before, made))
    of_two = [nodes for nodes in chains if weight_input(graph, nodes[0]) is None]
    chains = of_two or chains
    return chains[0] if len(chains) == 1 else ()


def _adds_zeros(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a mask that masks nothing is added to scores that are shaped for it and back.

    The builder takes the mask and both Reshapes out, but later than it looks for attentions (20
    small graphs; networks like DETR whose images are not padded).
    """
    for before, mask, after in zip(nodes, nodes[1:], nodes[2:], strict=False):
        constants = [graph.initializers[t] for t in mask.inputs if t in graph.initializers]
        shaped = mask.op == "Add" and before.op in _FLAT and after.op in _FLAT
        if shaped and constants and not numpy_helper.to_array(constants[0]).any():
            return True
    return False


def _splits_keys(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether scores are shaped so that keys have two dimensions, as positions in a map do (SAM).

    What is added for each of them makes a generated kernel of all between the products.
    """
    softmax = next(node for node in nodes if node.op == "Softmax")
    shapes = [graph.type_of(node.outputs[0]).shape for node in _scored(graph, softmax)]
    return len({shape[-1] for shape in shapes if shape}) > 1


def _weighted(graph: Graph, softmax: Node, cleans: bool) -> list[Node]:
    """``softmax``, what views and ``cleans`` what it makes, and the product that reads that."""
    chain = [softmax]
    while chain[-1].op != "MatMul":
        readers = readers_of(graph, chain[-1].outputs[0])
        cleaned = _cleaned(graph, readers) if cleans else []
        if cleaned:
            chain += cleaned
        elif len(readers) == 1 and readers[0].op in (*_FLAT, "MatMul"):
            chain.append(readers[0])
        else:
            break
    return chain


def _cleaned(graph: Graph, readers: Sequence[Node]) -> list[Node]:
    """IsNaN and Where, which PyTorch puts behind a Softmax of rows that may be masked whole."""
    looks = [node for node in readers if node.op == "IsNaN"]
    if len(readers) != 2 or len(looks) != 1:
        return []
    (where,) = (node for node in readers if node is not looks[0])
    known = where.op == "Where" and readers_of(graph, looks[0].outputs[0]) == (where,)
    return [looks[0], where] if known else []


def _repeated(graph: Graph, tensor: str) -> tuple[Node, ...]:
    """Nodes that repeat the heads of keys or values for groups of queries, and turn them."""
    nodes: list[Node] = []
    for op in ("Transpose", "Reshape", "Expand", "Unsqueeze"):
        made = graph.producer.get(tensor)
        if made is None or len(readers_of(graph, tensor)) > 1:
            return ()
        if made.op == op or (op == "Unsqueeze" and _unsqueezes(graph, made)):
            nodes.insert(0, made)
            tensor = made.inputs[0]
        elif op != "Transpose":
            return ()
    return tuple(nodes)


def repeated(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Those of an attention's ``nodes`` that repeat keys or values."""
    first, last = nodes[0], nodes[-1]
    return (*_repeated(graph, first.inputs[1]), *_repeated(graph, last.inputs[1]))


def _unsqueezes(graph: Graph, node: Node) -> bool:
    """Whether a Reshape only makes a dimension of 1 more."""
    given, made = (graph.type_of(t).shape or () for t in (node.inputs[0], node.outputs[0]))
    longer = node.op == "Reshape" and len(made) == len(given) + 1
    return longer and any((*given[:i], 1, *given[i:]) == made for i in range(len(made)))


def _is_of_one_head(graph: Graph, softmax: Node) -> bool:
    """Whether it is of a single head of a single sample, whose products are single matrices."""
    return math.prod((graph.type_of(softmax.outputs[0]).shape or (0,))[:-2]) == 1


def _is_of_rows(graph: Graph, softmax: Node) -> bool:
    """Whether it works along the last axis: one of columns is none of an attention."""
    rank = len(graph.type_of(softmax.outputs[0]).shape or ())
    return softmax.attributes.get("axis", -1) in (-1, rank - 1)


def _is_heads(graph: Graph, tensor: str) -> bool:
    """Whether an attention may read it: an activation, or learned queries of several heads."""
    return tensor in graph.producer or len(graph.type_of(tensor).shape or ()) > 2


@kept
def share_heads(graph: Graph, product: Node) -> bool:
    """Whether heads share what they are multiplied by, without a node that repeats it.

    So do multi-query attentions, which are no single kernel (six small graphs).
    """
    if product.op != "MatMul" or weight_input(graph, product) is not None:
        return False
    left, right = (graph.type_of(tensor).shape or () for tensor in product.inputs[:2])
    return len(left) == len(right) > len(left[-2:]) and left[:-2] != right[:-2]


def scale_behind(graph: Graph, product: Node) -> tuple[Node, ...]:
    """The number that alone reads, and scales, what a product of shared heads makes."""
    readers = readers_of(graph, product.outputs[0])
    alone = len(readers) == 1 and number(graph, readers[0]) is not None
    return readers if alone and share_heads(graph, product) else ()


def _is_even(graph: Graph, scores: Node, mix: Node) -> bool:
    """Whether keys and values are as wide, and wide enough for a kernel."""
    wide = head_width(graph, scores)
    values = (graph.type_of(mix.outputs[0]).shape or (0,))[-1]
    return wide == values > NARROW


def head_width(graph: Graph, scores: Node) -> int:
    """How many channels a head has; 0 if that is not known."""
    return (graph.type_of(scores.inputs[0]).shape or (0,))[-1]


def has_int8_kernel(graph: Graph, scores: Node) -> bool:
    """Whether there is one kernel for the attention in INT8 that begins with ``scores``."""
    tokens = (graph.type_of(scores.outputs[0]).shape or ())[-2:]
    is_short = all(isinstance(n, int) and n <= _INT8_TOKENS for n in tokens)
    return is_short and head_width(graph, scores) in _INT8_HEADS


def is_padded(graph: Graph, scores: Node) -> bool:
    """Whether queries, keys and values get channels of zeros before, taken off behind."""
    return head_width(graph, scores) % NARROW != 0
