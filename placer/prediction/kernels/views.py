"""Nodes that cost no kernel: views of tensors, and norms that are split.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of small graphs and of
GPT-2, Swin, SegFormer and DETR (benchmarks/plans/tensorrt_rtx.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.graph.transposes import order_of
from placer.prediction.kernels.line_rows import is_turned_as_written
from placer.prediction.kernels.norms import GroupNorm, group_norms
from placer.prediction.kernels.parts import (
    CONVS,
    MAP_RANK,
    POOLS,
    PRODUCTS,
    VIEWS,
    is_square,
    multiplies_weight,
    role_of,
)
from placer.prediction.kernels.reductions import is_map
from placer.prediction.layers.motion import Scale

SWAPPED = (0, 2, 1)
_MOVES_ROWS = ("Transpose", "Slice", "Gather", "ReduceMean")
_MATRIX_CHANNELS = 256
FEW = 16  # Tokens or channels up to which a kernel stores a map of tokens (30 small graphs).
TO_MAP, FROM_MAP = (0, 3, 1, 2), (0, 2, 3, 1)


def free_nodes(graph: Graph, quantized: Mapping[Edge, Scale]) -> frozenset[str]:
    """Reshapes and Transposes between maps and tokens beside a Conv, which stores channels last.

    Tokens that nothing else reads in float or in the Conv's scale, of those ``quantized``, are
    transposed by the kernel that writes them; but those of a norm, as rows of a map, are read as
    they are.
    """
    free: set[str] = set()
    norms = group_norms(graph)
    for node in graph.nodes:
        if _turns_to_map(graph, node, quantized):
            if _reads_rows(graph, node, quantized):
                free.add(node.name)
            if node.name in free or _norm_before(graph, node) is not None:
                continue
        free.update(_rows_of_map(graph, node, quantized, norms))
        if order_of(graph, node) != SWAPPED:
            continue
        if _turns_to_line(graph, node, quantized):
            free.add(node.name)
        elif not _turns_multiplied(graph, node):
            free.update(_turned_with(graph, node, quantized))
    return frozenset(free)


def _turns_multiplied(graph: Graph, turn: Node) -> bool:
    """Whether tokens of a flattened map are an operand of a product."""
    return _flattened_before(graph, turn) is not None and are_multiplied(graph, turn.outputs[0])


def _turned_with(graph: Graph, turn: Node, quantized: Mapping[Edge, Scale]) -> Iterator[str]:
    """``turn`` and the Reshape with which it makes tokens of a map or a Conv's map of tokens."""
    if (before := _flattened_before(graph, turn)) is not None:
        yield from (before.name, turn.name)
    after = only_reader(graph, turn)
    if after is None or after.op != "Reshape" or min(_tokens(graph, turn), default=0) <= FEW:
        return
    if turned_product(graph, turn.inputs[0]) is not None:
        return
    shared = len(readers_of(graph, turn.inputs[0])) > 1 or _adds_rows(graph, turn.inputs[0])
    if shared and _are_convs(graph, after) and _reads_alike(graph, turn, after, quantized):
        yield from (turn.name, after.name)


def _flattened_before(graph: Graph, turn: Node) -> Node | None:
    """The Reshape of a map that ``turn`` alone reads, to many tokens or to some only moved on."""
    before = graph.producer.get(turn.inputs[0])
    if before is None or not _flattens(graph, before) or only_reader(graph, before) is not turn:
        return None
    moved = all(role_of(reader) == "move" for reader in readers_of(graph, turn.outputs[0]))
    return before if moved or _tokens(graph, turn)[:1] > (FEW,) else None


def _tokens(graph: Graph, turn: Node) -> tuple[int, ...]:
    """How many there are, and how wide they are; empty if that is not known."""
    return (graph.type_of(turn.outputs[0]).shape or (0,))[1:]


def _reads_rows(graph: Graph, turn: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether what reads the map that ``turn`` makes takes the rows as they are.

    Of a norm in float, and Convs of any rows that products read as well.
    """
    floats = not any(edge in scales for edge in graph.edges_of(turn.outputs[0]))
    if floats and _norm_before(graph, turn) is not None:
        return True
    others = [r for r in readers_of(graph, turn.inputs[0]) if r is not turn]
    multiplied = bool(others) and not any(r.op in _MOVES_ROWS for r in others)
    return multiplied and _are_convs(graph, turn) and _reads_alike(graph, turn, turn, scales)


def _turns_to_line(graph: Graph, turn: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether Convs alone read the line that ``turn`` makes of rows, which others read, too.

    Their kernels read the rows as they are and are called after the Transpose (18 small graphs of
    three kinds of Convs). What nothing else reads is turned as it is written; see ``line_rows``.
    """
    others = [reader for reader in readers_of(graph, turn.inputs[0]) if reader is not turn]
    if not others or is_turned_as_written(graph, turn):
        return False
    return _are_convs(graph, turn) and _reads_alike(graph, turn, turn, scales)


def _reads_alike(graph: Graph, turn: Node, last: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether all that reads the map that ``last`` makes reads what others read of the tokens.

    In float, or integers of one scale: otherwise the tokens are turned as they are written.
    """
    read = {scales.get(edge) for edge in graph.edges_of(last.outputs[0])}
    others = [e for e in graph.edges_of(turn.inputs[0]) if e.node != turn.name]
    return len(read) == 1 and ({scales.get(edge) for edge in others} or {None}) >= read


def _rows_of_map(
    graph: Graph, node: Node, quantized: Container[Edge], norms: Mapping[str, GroupNorm]
) -> Iterator[str]:
    """Names of what makes rows of a map, which are products' operands, and costs nothing.

    Channels of maps are stored last. Of a GroupNorm over flattened places the kernel that scales
    turns them.
    """
    writer = graph.producer.get(node.inputs[0]) if node.inputs else None
    if writer is None or node.op != "Transpose":
        return
    norm, last, order = norms.get(writer.name), node, order_of(graph, node)
    if order == FROM_MAP and (norm is not None or is_map(graph, node.inputs[0])):
        after = only_reader(graph, node)
        last = after if after is not None and after.op == "Reshape" else node
    elif order != SWAPPED or norm is None or only_reader(graph, norm.nodes[-1]) is not node:
        return
    read = graph.edges_of(last.outputs[0])
    normed = norm is not None and order == FROM_MAP  # Also in INT8, where another kernel quantizes.
    if are_multiplied(graph, last.outputs[0]) and (normed or not any(e in quantized for e in read)):
        yield from {node.name, last.name}


@kept
def are_multiplied(graph: Graph, tensor: str) -> bool:
    """Whether nothing but products with weights reads rows."""
    readers = () if tensor in graph.outputs else readers_of(graph, tensor)
    return bool(readers) and all(multiplies_weight(graph, reader) for reader in readers)


@kept
def is_powered(graph: Graph, product: Node) -> bool:
    """Whether a power or a square is computed of it: in float it is not one with others.

    So it is for rows that are normed (OLMo), and for the gate of a GELU by its tanh form.
    """
    return any(is_square(reader) for reader in readers_of(graph, product.outputs[0]))


def _turns_to_map(graph: Graph, node: Node, quantized: Container[Edge]) -> bool:
    """Whether it makes a map, which prepared kernels of Convs and pools alone read, of rows.

    A Conv that is a matrix product reads rows that another kernel has turned.
    """
    if not turns_to_map(graph, node) or node.outputs[0] in graph.outputs:
        return False
    readers = readers_of(graph, node.outputs[0])
    return bool(readers) and all(_reads_map(graph, reader, quantized) for reader in readers)


def _reads_map(graph: Graph, node: Node, quantized: Container[Edge]) -> bool:
    if node.op == "Add":
        return any(_is_of_conv(graph, tensor, quantized) for tensor in node.inputs)
    if node.op in CONVS:
        return not is_matrix_conv(graph, node) or Edge(node.inputs[0], node.name, 0) in quantized
    return node.op in POOLS


def _is_of_conv(graph: Graph, tensor: str, quantized: Container[Edge]) -> bool:
    """Whether a float Conv computes it, with what is done to its output alone."""
    node = graph.producer.get(tensor)
    while node is not None and node.op not in CONVS:
        made = [graph.producer[t] for t in node.inputs if t in graph.producer]
        node = made[0] if len(made) == 1 and node.op in ("Mul", "Add", "Relu") else None
    if node is None:
        return False
    return not any(Edge(t, node.name, i) in quantized for i, t in enumerate(node.inputs))


@kept
def is_matrix_conv(graph: Graph, node: Node) -> bool:
    """Whether a 1x1 Conv in float is computed as a matrix product, as one of many channels is.

    Seen for 256 channels and more on both sides, not for 240 or 224 on either (114 Convs of 14
    networks, maps of 4 to 240 places).
    """
    weight = graph.type_of(node.inputs[1]).shape
    if node.op != "Conv" or not weight:
        return False
    plain = {*weight[2:], *node.attributes.get("strides", ()), node.attributes.get("group", 1)}
    return plain == {1} and min(weight[:2]) >= _MATRIX_CHANNELS


def turns_to_map(graph: Graph, node: Node) -> bool:
    """Whether it makes a map of rows of channels."""
    return order_of(graph, node) == TO_MAP


@kept
def shapes_map(graph: Graph, node: Node) -> bool:
    """Whether it makes a map for Convs and pools of what has other channels, places or ranks.

    Channels of maps are stored last, so a kernel moves all elements of what a product of matrices
    wrote, and of a map whose channels change. Not if there is a single place (30 small graphs).
    """
    readers = readers_of(graph, node.outputs[0]) if node.op in VIEWS else ()
    made = graph.type_of(node.outputs[0]).shape or ()
    read = bool(readers) and all(reader.op in (*CONVS, *POOLS) for reader in readers)
    return read and len(made) == MAP_RANK and set(made[2:]) != {1}


@kept
def becomes_map(graph: Graph, node: Node) -> bool:
    """Whether it is a Reshape of tokens to rows of a map, which is all that is made of them.

    Convs read it, or one node that computes element by element or resizes it.
    """
    after = only_reader(graph, node) if node.op == "Reshape" else None
    if after is None or not turns_to_map(graph, after):
        return False
    behind = only_reader(graph, after)
    if behind is not None and (behind.op == "Resize" or role_of(behind) == "pointwise"):
        return True
    return _are_convs(graph, after)


def _norm_before(graph: Graph, node: Node) -> Node | None:
    """The norm whose rows ``node`` reads as they are, or alone reads reshaped or cut off.

    Or what is computed of them element by element. What else reads the rows takes them as they are.
    """
    before, chain = graph.producer.get(node.inputs[0]), [node]
    while (
        before is not None
        and before.op in ("Reshape", "Slice")
        and only_reader(graph, before) is not None
    ):
        chain.append(before)
        before = graph.producer.get(before.inputs[0])
    norm = None if before is None else _normed(graph, before)
    if before is None or norm is None:
        return None
    others = [r for r in readers_of(graph, before.outputs[0]) if r not in chain]
    if before.outputs[0] not in node.inputs and others:
        return None
    return norm if not any(r.op in _MOVES_ROWS for r in others) else None


def _normed(graph: Graph, last: Node) -> Node | None:
    """The norm of which ``last`` is computed element by element, if it is not that itself.

    Of graph inputs nothing is (20 small graphs of activations, residuals and modulated rows).
    """
    waiting, seen, found, entered = [last], {last.name}, list[Node](), list[Node]()
    while waiting:
        node = waiting.pop()
        if node.op == "LayerNormalization":
            found.append(node)
        elif role_of(node) == "pointwise" and node.op not in (*CONVS, *PRODUCTS):
            entered += [node] if any(t in graph.inputs for t in node.inputs) else []
            made = [graph.producer[t] for t in node.inputs if t in graph.producer]
            waiting += [before for before in made if before.name not in seen]
            seen.update(before.name for before in made)
    if len(found) != 1 or any(node.index > found[0].index for node in entered):
        return None
    return found[0]


@kept
def keeps_all(graph: Graph, node: Node) -> bool:
    """Whether it leaves all elements where they are.

    A Pad or Slice of nothing, as exported where a size might need one, or a Transpose of dimensions
    of 1.
    """
    given, made = graph.type_of(node.inputs[0]).shape, graph.type_of(node.outputs[0]).shape
    if node.op == "Transpose" and given is not None:
        order = [axis for axis in order_of(graph, node) if given[axis] != 1]
        return order == sorted(order)
    return node.op in ("Pad", "Slice", "Resize") and given is not None and given == made


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
        and writer.op in CONVS
        and len(readers_of(graph, node.inputs[0])) == 1
    )


@kept
def turned_product(graph: Graph, tensor: str) -> Node | None:
    """The product whose bias and other rows are added to ``tensor``, if a map for Convs is made.

    A generated kernel adds both and turns the sum then. But the product's does if a prepared kernel
    of another product wrote the other rows, or if a product reads the sum (20 small graphs).
    """
    node = graph.producer.get(tensor)
    if node is None or node.op != "Add" or (graph.type_of(tensor).shape or (0,))[0] != 1:
        return None
    biased = [t for t in node.inputs if _biased(graph, t) is not None]
    others = [t for t in node.inputs if t not in biased[:1] and t not in graph.initializers]
    if not biased or len(others) != 1 or _is_prepared(graph, others[0]):
        return None
    readers = readers_of(graph, tensor)
    turns = [reader for reader in readers if order_of(graph, reader) == SWAPPED]
    maps = [after for turn in turns if (after := only_reader(graph, turn)) is not None]
    read = any(_are_convs(graph, after) and shapes_map(graph, after) for after in maps)
    known = read and not any(multiplies_weight(graph, reader) for reader in readers)
    return _biased(graph, biased[0]) if known else None


def _biased(graph: Graph, tensor: str) -> Node | None:
    """The product with a weight whose sums ``tensor`` is, with a constant added."""
    node = graph.producer.get(tensor)
    if node is None or node.op != "Add" or len(readers_of(graph, tensor)) > 1:
        return None
    made = [graph.producer[t] for t in node.inputs if t in graph.producer]
    constant = any(t in graph.initializers for t in node.inputs)
    known = constant and len(made) == 1 and multiplies_weight(graph, made[0])
    return made[0] if known else None


def _is_prepared(graph: Graph, tensor: str) -> bool:
    """Whether a product with a weight writes it as it is, or behind a Relu."""
    node = graph.producer.get(tensor)
    if node is not None and node.op == "Relu":
        node = graph.producer.get(node.inputs[0])
    return node is not None and multiplies_weight(graph, node)


def _adds_rows(graph: Graph, tensor: str) -> bool:
    """Whether a product's kernel writes the sum of its single matrix and other rows."""
    node = graph.producer.get(tensor)
    if node is None or node.op != "Add" or (graph.type_of(tensor).shape or (0,))[0] != 1:
        return False
    made = [graph.producer[t] for t in node.inputs if t in graph.producer]
    return len(made) == 2 and not any(n.op in ("Transpose", "Reshape") for n in made)


def _are_convs(graph: Graph, node: Node) -> bool:
    readers = readers_of(graph, node.outputs[0])
    return bool(readers) and all(reader.op in CONVS for reader in readers)


@kept
def leaves_turned(graph: Graph, product: Node) -> bool:
    """Whether a product of rows writes them as channels of a map, element by element at most.

    It reads rows that another kernel has stored then, of heads too (16 small graphs of attentions
    on maps, as in networks for diffusion).
    """
    node: Node | None = product
    while node is not None and (node is product or role_of(node) == "pointwise"):
        node = only_reader(graph, node)
    return node is not None and order_of(graph, node) == SWAPPED


@kept
def only_reader(graph: Graph, node: Node) -> Node | None:
    """The one node that reads what ``node`` writes; None if several do, or the graph returns it."""
    readers = list(readers_of(graph, node.outputs[0]))
    known = node.outputs[0] not in graph.outputs and len(readers) == 1
    return readers[0] if known else None


@kept
def readers_of(graph: Graph, tensor: str) -> tuple[Node, ...]:
    """The nodes that read ``tensor``, each once."""
    return tuple(_unique(graph, tensor))


def _unique(graph: Graph, tensor: str) -> Iterator[Node]:
    seen: set[str] = set()
    for edge in graph.edges_of(tensor):
        if edge.node and edge.node not in seen:
            seen.add(edge.node)
            yield graph.by_name[edge.node]
