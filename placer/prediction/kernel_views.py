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
    kernel that writes them.
    """
    found: set[str] = set()
    for node in graph.nodes:
        if node.op != "Transpose" or list(node.attributes.get("perm", ())) != _SWAPPED:
            continue
        before = graph.producer.get(node.inputs[0])
        if before is not None and _flattens(graph, before) and _only_reader(graph, before) is node:
            found |= {before.name, node.name}
        after = _only_reader(graph, node)
        if after is None or after.op != "Reshape" or len(_readers(graph, node.inputs[0])) < 2:
            continue
        read = graph.edges_of(after.outputs[0])
        if _are_convs(graph, after) and not any(edge in quantized for edge in read):
            found |= {node.name, after.name}
    return frozenset(found)


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
    return any(moves_rows(graph, reader, free) for reader in _readers(graph, node.outputs[0]))


def moves_rows(graph: Graph, node: Node, free: frozenset[str] = frozenset()) -> bool:
    """Whether it moves or sums elements across rows; ``free``: see ``free_nodes``."""
    if node.name in free:
        return False
    readers = _readers(graph, node.outputs[0])
    if node.op == "Reshape":
        return any(moves_rows(graph, reader, free) for reader in readers)
    if node.op == "Transpose":  # A matrix product reads rows and columns alike.
        return not readers or any(reader.op != "MatMul" for reader in readers)
    return node.op in ("Slice", "Gather", "ReduceMean") or is_row_product(graph, node)


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
            columns = _are_columns(graph, chain, readers[0])
            return FanOut(tuple(chain), tuple(readers)) if columns else None
        if len(readers) > 1 or not _continues(graph, node, readers[0]):
            return None
        node = readers[0]
        chain.append(node)


def _are_columns(graph: Graph, chain: Sequence[Node], split: Node) -> bool:
    """Whether each part of a Split is made of columns of the weight that follow each other.

    Keys and values of each head in turn are not (LeViT); one kernel moves them all.
    """
    if split.op != "Split" or not chain or chain[-1].op != "Reshape":
        return True
    shape = graph.type_of(chain[-1].outputs[0]).shape or ()
    width = (graph.type_of(chain[-1].inputs[0]).shape or (0,))[-1]
    axis = split.attributes.get("axis", 0) % max(1, len(shape))
    return width > 0 and math.prod(shape[axis:]) == width


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
