"""Joint queries, keys and values: products of one weight that are taken apart behind it.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 45 small graphs of one
product whose parts are read by matrix products or anything else, in FP16 and INT8.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.graph.transposes import order_of
from placer.graph.weights import weight_input
from placer.prediction.kernels.gelus import gelus
from placer.prediction.kernels.reductions import product_shape
from placer.prediction.kernels.views import only_reader, readers_of

_CUTS = ("Slice", "Split")
_PARTED = ("MatMul", *_CUTS)
_MANY = 4  # Parts of columns of which the product's kernel adds the bias (six small graphs).
_VIEWS = ("Squeeze", "Reshape", "Transpose", "Unsqueeze")
_RANK = 4  # Of heads of samples; those of windows besides are cut out in one kernel.


@dataclass(frozen=True)
class FanOut:
    """Nodes behind a product that are done once for each reader of the last one's output.

    ``chain``: bias, reshaping and transposing; ``tails``: Gathers or Slices of one index each, or
    a Split.
    """

    chain: tuple[Node, ...]
    tails: tuple[Node, ...]


@kept
def fan_outs(graph: Graph) -> dict[str, FanOut]:
    """By name of the product: joint queries, keys and values, taken apart behind it."""
    fan_out_of = {}
    for node in graph.nodes:
        if node.op == "MatMul" and weight_input(graph, node) is not None:
            fan_out = _fan_out(graph, node)
            if fan_out is not None and not _is_row(graph, node, fan_out):
                fan_out_of[node.name] = fan_out
    return fan_out_of


def _is_row(graph: Graph, product: Node, fan: FanOut) -> bool:
    """Whether columns of a single row are taken apart, which is no matrix: see ``Waiting``."""
    row = math.prod(product_shape(graph, product)[:-1]) == 1
    return row and not any(node.op in _VIEWS for node in fan.chain)


def _fan_out(graph: Graph, product: Node) -> FanOut | None:
    chain: list[Node] = []
    node = product
    while True:
        readers = readers_of(graph, node.outputs[0])
        if node.outputs[0] in graph.outputs or not readers:
            return None
        if _takes_apart(graph, chain, readers):
            if not _are_columns(graph, chain, readers[0]) or _are_reshaped(graph, chain, readers):
                return None
            parts = [tensor for tail in readers for tensor in tail.outputs]
            if chain and len(parts) >= _MANY and not any(n.op in _VIEWS for n in chain):
                return None
            apart = all(_is_cut_out(graph, chain, tensor) for tensor in parts)
            return FanOut(tuple(chain), tuple(readers)) if apart else None
        if len(readers) > 1 or not _continues(graph, node, readers[0]):
            return None
        node = readers[0]
        chain.append(node)


def _takes_apart(graph: Graph, chain: Sequence[Node], readers: Sequence[Node]) -> bool:
    if len(readers) == 1:
        return readers[0].op == "Split"
    if all(r.op == "Gather" and r.inputs[1] in graph.initializers for r in readers):
        return True
    if len(readers) < 2:
        return False
    if not any(node.op in _VIEWS for node in chain) and _are_columns_of_all(graph, readers):
        return True
    return all(_is_of_one(graph, r, len(readers)) for r in readers)


def takes_columns_apart(graph: Graph, rows: str) -> bool:
    """Whether a Split, or Slices as of one, take the columns of ``rows`` apart and nothing else."""
    readers = readers_of(graph, rows)
    if rows in graph.outputs or not readers:
        return False
    if [reader.op for reader in readers] != ["Split"]:
        return len(readers) > 1 and _are_columns_of_all(graph, readers)
    rank = len(graph.type_of(rows).shape or ())
    return rank > 0 and readers[0].attributes.get("axis", 0) % rank == rank - 1


def _are_columns_of_all(graph: Graph, readers: Sequence[Node]) -> bool:
    """Whether they are Slices that cut columns into parts, as Split does."""
    if any(
        r.op != "Slice" or any(t not in graph.initializers for t in r.inputs[1:]) for r in readers
    ):
        return False
    given = graph.type_of(readers[0].inputs[0]).shape or ()
    made = [graph.type_of(r.outputs[0]).shape or () for r in readers]
    starts = {
        int(numpy_helper.to_array(graph.initializers[r.inputs[1]]).ravel()[0]) for r in readers
    }
    rows = all(shape and shape[:-1] == given[:-1] for shape in made)
    return rows and len(starts) == len(readers) and sum(m[-1] for m in made) == given[-1]


def has_views(fan: FanOut) -> bool:
    """Whether rows are shaped or turned before parts are taken, as for heads."""
    return any(node.op in _VIEWS for node in fan.chain)


@kept
def is_gated(graph: Graph, fan: FanOut) -> bool:
    """Whether parts of columns are computed with as they are, element by element."""
    if any(node.op in _VIEWS for node in fan.chain):
        return False
    return not any(node.op in (*_VIEWS, *_PARTED) for node in _readers(graph, fan))


def _readers(graph: Graph, fan: FanOut) -> list[Node]:
    return [n for tail in fan.tails for t in tail.outputs for n in readers_of(graph, t)]


def _is_computed(graph: Graph, fan: FanOut) -> bool:
    """Whether a part of columns is read as it is, or turned for a Conv or product alone."""
    if any(node.op in _VIEWS for node in fan.chain):
        return False
    return any(
        node.op not in (*_VIEWS, *_CUTS)
        or (
            node.op == "Transpose"
            and {r.op for r in readers_of(graph, node.outputs[0])} in ({"Conv"}, {"MatMul"})
        )
        for node in _readers(graph, fan)
    )


@kept
def is_sorted(graph: Graph, fan: FanOut) -> bool:
    """Whether a kernel sorts the columns of an INT8 weight by the parts.

    Not if any is computed with as it is (six small graphs), nor if some are wider, as queries of
    more heads than keys are (Phi-3): one kernel then scales the sums and takes them apart.
    """
    parts = {graph.type_of(tensor).shape for tail in fan.tails for tensor in tail.outputs}
    return len(parts) == 1 and not _is_computed(graph, fan)


def are_quantized_alike(graph: Graph, fan: FanOut, quantized: Container[Edge]) -> bool:
    """Whether matrix products read all parts as integers, or none.

    Others are cut out of what the product writes with its bias (16 graphs).
    """
    parts = [tensor for tail in fan.tails for tensor in tail.outputs]
    return len({is_quantized(graph, part, quantized) for part in parts}) == 1


def is_quantized_before(graph: Graph, fan: FanOut, given: Container[Edge]) -> bool:
    """Whether a pair lies before the parts are taken: one kernel makes all of them (36 graphs)."""
    return any(
        edge in given for node in (*fan.chain, *fan.tails) for edge in graph.edges_into(node)
    )


def is_quantized(graph: Graph, part: str, quantized: Container[Edge]) -> bool:
    """Whether a part is so before a product, which reads it behind views and a factor at most."""
    edges = graph.edges_of(part)
    if any(edge in quantized for edge in edges):
        return True
    return any(
        is_quantized(graph, reader.outputs[0], quantized)
        for reader in readers_of(graph, part)
        if reader.op in _VIEWS or _scales(graph, reader)
    )


@kept
def has_gelu(graph: Graph, fan: FanOut) -> bool:
    """Whether the product of such parts is two: a biased half with a GELU, and its factor."""
    parts = [tensor for tail in fan.tails for tensor in tail.outputs]
    if len(parts) != 2 or [node.op for node in fan.chain] != ["Add"] or not is_gated(graph, fan):
        return False
    made = {gelu.given: gelu.nodes[-1].outputs[0] for gelu in gelus(graph)}
    made |= {n.inputs[0]: n.outputs[0] for n in graph.nodes if n.op == "Gelu"}
    return any(
        [node.op for node in readers_of(graph, other)] == ["Mul"]
        and readers_of(graph, other) == readers_of(graph, made.get(part, ""))
        for part, other in (parts, reversed(parts))
    )


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
        axis = order_of(graph, turned)[axis]
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
            readers = list(readers_of(graph, tensor))
            for node in readers:
                if node.op == "Squeeze":
                    readers += readers_of(graph, node.outputs[0])
            if any(node.op == "Reshape" and _is_scaled(graph, node) for node in readers):
                return True
    return False


def _is_scaled(graph: Graph, node: Node) -> bool:
    """Whether what is reshaped is multiplied before a matrix product reads it."""
    reader: Node | None = node
    while reader is not None and reader.op in ("Reshape", "Transpose"):
        reader = only_reader(graph, reader)
    return reader is not None and reader.op != "MatMul"


def _is_cut_out(graph: Graph, chain: Sequence[Node], part: str) -> bool:
    """Whether a part may be cut out by itself, for which the product sorts its columns.

    Columns may as they are; those that are reshaped if they are transposed then, and those that
    are transposed before if a matrix product reads them.
    """
    if not any(node.op == "Reshape" for node in chain):
        return True
    if any(node.op == "Transpose" for node in chain):
        return _is_multiplied(graph, part)
    readers = readers_of(graph, part)
    if [node.op for node in readers] == ["Squeeze"]:
        readers = readers_of(graph, readers[0].outputs[0])
    return bool(readers) and all(node.op == "Transpose" for node in readers)


def _is_multiplied(graph: Graph, part: str) -> bool:
    """Whether one matrix product alone reads a part, which is scaled right before it at most.

    If anything else is computed of a part, as in a RoPE or a norm of the queries, all parts are
    cut out in one kernel.
    """
    scaled = False
    while True:
        readers = readers_of(graph, part)
        if len(readers) != 1 or part in graph.outputs:
            return False
        node = readers[0]
        if node.op == "MatMul":
            return len(graph.type_of(part).shape or ()) <= _RANK
        if scaled or not (node.op in _VIEWS or _scales(graph, node)):
            return False
        scaled = node.op == "Mul"
        part = node.outputs[0]


def _scales(graph: Graph, node: Node) -> bool:
    return node.op == "Mul" and any(tensor in graph.initializers for tensor in node.inputs)
