"""What a compiler that generates kernels sees through: views, fan-outs and split norms.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of small graphs and of
GPT-2, Swin, SegFormer and DETR (benchmarks/rtx_fidelity.py).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input

_CONVS = ("Conv", "ConvTranspose")
_SWAPPED = [0, 2, 1]
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_TO_MAP, _FROM_MAP = [0, 3, 1, 2], [0, 2, 3, 1]


@dataclass(frozen=True)
class FanOut:
    """Nodes behind a product that are done once for each reader of the last one's output.

    ``chain``: bias, reshaping and transposing; ``tails``: Gathers or Slices of one index each, or
    a Split.
    """

    chain: tuple[Node, ...]
    tails: tuple[Node, ...]


def free_nodes(graph: Graph, quantized: Container[Edge]) -> frozenset[str]:
    """Reshapes and Transposes between maps and tokens beside a Conv, which stores channels last.

    Tokens that nothing else reads, or that are ``quantized`` for the Conv, are transposed by the
    kernel that writes them; but those of a norm, as rows of a map, are read as they are.
    """
    found: set[str] = set()
    for node in graph.nodes:
        if _turns_to_map(graph, node) and _norm_before(graph, node) is not None:
            if not any(edge in quantized for edge in graph.edges_of(node.outputs[0])):
                found.add(node.name)
            continue
        if node.op != "Transpose" or list(node.attributes.get("perm", ())) != _SWAPPED:
            continue
        before = graph.producer.get(node.inputs[0])
        if before is not None and _flattens(graph, before) and _only_reader(graph, before) is node:
            found |= {before.name, node.name}
        after = _only_reader(graph, node)
        if after is None or after.op != "Reshape":
            continue
        if len(_readers(graph, node.inputs[0])) < 2 and not _adds_rows(graph, node.inputs[0]):
            continue
        read = graph.edges_of(after.outputs[0])
        if _are_convs(graph, after) and not any(edge in quantized for edge in read):
            found |= {node.name, after.name}
    return frozenset(found)


def _turns_to_map(graph: Graph, node: Node) -> bool:
    """Whether it makes a map, which Convs alone read, of rows of channels."""
    return turns_to_map(node) and _are_convs(graph, node)


def turns_to_map(node: Node) -> bool:
    """Whether it makes a map of rows of channels."""
    return node.op == "Transpose" and list(node.attributes.get("perm", ())) == _TO_MAP


def becomes_map(graph: Graph, node: Node) -> bool:
    """Whether it is a Reshape of tokens to rows of a map, which is all that is made of them."""
    after = _only_reader(graph, node) if node.op == "Reshape" else None
    return after is not None and _turns_to_map(graph, after)


def _norm_before(graph: Graph, node: Node) -> Node | None:
    """The norm whose rows ``node`` alone reads, as they are or reshaped."""
    before = graph.producer.get(node.inputs[0])
    while before is not None and before.op == "Reshape" and _only_reader(graph, before) is not None:
        before = graph.producer.get(before.inputs[0])
    norm = before is not None and before.op == "LayerNormalization"
    return before if norm and before is not None and _only_reader(graph, before) else None


def fan_outs(graph: Graph) -> dict[str, FanOut]:
    """By name of the product: joint queries, keys and values, taken apart behind it."""
    found = {}
    for node in graph.nodes:
        if node.op == "MatMul" and weight_input(graph, node) is not None:
            fan_out = _fan_out(graph, node)
            if fan_out is not None:
                found[node.name] = fan_out
    return found


def is_split_norm(graph: Graph, node: Node, free: frozenset[str]) -> bool:
    """Whether what follows a LayerNormalization moves or sums elements across its rows.

    One kernel then takes mean and variance, another scales and does what follows.
    """
    if node.op != "LayerNormalization":
        return False
    if _is_normed_again(graph, node):
        return True
    return any(moves_rows(graph, reader, free) for reader in _readers(graph, node.outputs[0]))


def _is_normed_again(graph: Graph, norm: Node) -> bool:
    """Whether it norms a Conv's map, channels last, and another norm is of its rows as tokens."""
    before, after = graph.producer.get(norm.inputs[0]), _only_reader(graph, norm)
    if before is None or before.op != "Transpose" or after is None or after.op != "Reshape":
        return False
    map_writer = graph.producer.get(before.inputs[0])
    if list(before.attributes.get("perm", ())) != _FROM_MAP or map_writer is None:
        return False
    readers = _readers(graph, after.outputs[0])
    return map_writer.op in _CONVS and any(r.op == "LayerNormalization" for r in readers)


def moves_rows(graph: Graph, node: Node, free: frozenset[str] = frozenset()) -> bool:
    """Whether it moves or sums elements across rows; ``free``: see ``free_nodes``."""
    if node.name in free:
        return False
    readers = _readers(graph, node.outputs[0])
    if node.op in _VIEWS or (keeps_all(graph, node) and not turns_to_map(node)):
        return any(moves_rows(graph, reader, free) for reader in readers)
    if node.op == "Transpose":  # A matrix product reads rows and columns alike.
        return not readers or any(reader.op != "MatMul" for reader in readers)
    return node.op in ("Slice", "Gather", "ReduceMean") or is_row_product(graph, node)


def keeps_all(graph: Graph, node: Node) -> bool:
    """Whether it leaves all elements where they are.

    A Pad or Slice of nothing, as exported where a size might need one, or a Transpose of dimensions
    of 1.
    """
    given, made = graph.type_of(node.inputs[0]).shape, graph.type_of(node.outputs[0]).shape
    if node.op == "Transpose" and given is not None:
        order = [axis for axis in node.attributes.get("perm", ()) if given[axis] != 1]
        return order == sorted(order) and bool(node.attributes.get("perm"))
    return node.op in ("Pad", "Slice") and given is not None and given == made


def is_row_product(graph: Graph, node: Node) -> bool:
    """Whether it multiplies a single row by a weight."""
    if node.op not in ("MatMul", "Gemm") or weight_input(graph, node) is None:
        return False
    shape = graph.type_of(node.outputs[0]).shape or (0, 0)
    return math.prod(shape[:-1]) == 1


def _fan_out(graph: Graph, product: Node) -> FanOut | None:
    chain: list[Node] = []
    node = product
    while True:
        readers = _readers(graph, node.outputs[0])
        if node.outputs[0] in graph.outputs or not readers:
            return None
        if _takes_apart(graph, readers):
            if not _are_columns(graph, chain, readers[0]) or _are_reshaped(graph, chain, readers):
                return None
            return FanOut(tuple(chain), tuple(readers))
        if len(readers) > 1 or not _continues(graph, node, readers[0]):
            return None
        node = readers[0]
        chain.append(node)


def _are_columns(graph: Graph, chain: Sequence[Node], split: Node) -> bool:
    """Whether each part of a Split is made of columns of the weight that follow each other.

    Keys and values of each head in turn are not (LeViT); one kernel moves them all.
    """
    if split.op != "Split" or not chain:
        return True
    rank = len(graph.type_of(split.inputs[0]).shape or ())
    axis = split.attributes.get("axis", 0) % max(1, rank)
    turned = chain[-1] if chain[-1].op == "Transpose" else None
    if turned is not None:
        axis = list(turned.attributes.get("perm", range(rank)))[axis]
    shaped = chain[-1] if turned is None else chain[-2] if len(chain) > 1 else None
    if shaped is None or shaped.op != "Reshape":
        return True
    shape = graph.type_of(shaped.outputs[0]).shape or ()
    width = (graph.type_of(shaped.inputs[0]).shape or (0,))[-1]
    return width > 0 and math.prod(shape[axis:]) == width


def _are_reshaped(graph: Graph, chain: Sequence[Node], tails: Sequence[Node]) -> bool:
    """Whether a part of heads is reshaped and scaled, as PyTorch's dynamo exporter does to keys."""
    if not any(node.op == "Transpose" for node in chain):
        return False
    for tail in tails:
        for tensor in tail.outputs:
            readers = list(_readers(graph, tensor))
            for node in readers:
                if node.op == "Squeeze":
                    readers += _readers(graph, node.outputs[0])
            if any(node.op == "Reshape" and _is_scaled(graph, node) for node in readers):
                return True
    return False


def _is_scaled(graph: Graph, node: Node) -> bool:
    """Whether what is reshaped is multiplied before a matrix product reads it."""
    reader: Node | None = node
    while reader is not None and reader.op in ("Reshape", "Transpose"):
        reader = _only_reader(graph, reader)
    return reader is not None and reader.op != "MatMul"


def _takes_apart(graph: Graph, readers: Sequence[Node]) -> bool:
    if len(readers) == 1:
        return readers[0].op == "Split"
    if all(r.op == "Gather" and r.inputs[1] in graph.initializers for r in readers):
        return True
    return len(readers) > 1 and all(_is_of_one(graph, r, len(readers)) for r in readers)


def _is_of_one(graph: Graph, node: Node, count: int) -> bool:
    """Whether it is a Slice of one of ``count`` parts, as a Gather of one index is."""
    if node.op != "Slice" or any(t not in graph.initializers for t in node.inputs[1:]):
        return False
    given, made = (graph.type_of(t).shape or () for t in (node.inputs[0], node.outputs[0]))
    cut = [(a, b) for a, b in zip(given, made, strict=False) if a != b]
    return cut == [(count, 1)]


def _continues(graph: Graph, node: Node, reader: Node) -> bool:
    if reader.op == "Add":
        return all(t in graph.initializers for t in reader.inputs if t not in node.outputs)
    return reader.op in ("Reshape", "Transpose")


def _flattens(graph: Graph, node: Node) -> bool:
    """Whether it makes tokens of the map that a Conv writes."""
    given, made = (graph.type_of(t).shape for t in (node.inputs[0], node.outputs[0]))
    writer = graph.producer.get(node.inputs[0])
    return (
        node.op == "Reshape"
        and given is not None
        and made is not None
        and (len(given), len(made)) == (4, 3)
        and given[:2] == made[:2]
        and writer is not None
        and writer.op in _CONVS
        and len(_readers(graph, node.inputs[0])) == 1
    )


def _adds_rows(graph: Graph, tensor: str) -> bool:
    """Whether a product's kernel writes the sum of its single matrix and other rows."""
    node = graph.producer.get(tensor)
    if node is None or node.op != "Add" or (graph.type_of(tensor).shape or (0,))[0] != 1:
        return False
    made = [graph.producer[t] for t in node.inputs if t in graph.producer]
    return len(made) == 2 and not any(n.op in ("Transpose", "Reshape") for n in made)


def _are_convs(graph: Graph, node: Node) -> bool:
    readers = _readers(graph, node.outputs[0])
    return bool(readers) and all(reader.op in _CONVS for reader in readers)


def _only_reader(graph: Graph, node: Node) -> Node | None:
    readers = list(_readers(graph, node.outputs[0]))
    known = node.outputs[0] not in graph.outputs and len(readers) == 1
    return readers[0] if known else None


def _readers(graph: Graph, tensor: str) -> tuple[Node, ...]:
    return tuple(_unique(graph, tensor))


def _unique(graph: Graph, tensor: str) -> Iterator[Node]:
    seen: set[str] = set()
    for edge in graph.edges_of(tensor):
        if edge.node and edge.node not in seen:
            seen.add(edge.node)
            yield graph.by_name[edge.node]
