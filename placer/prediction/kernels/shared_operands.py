"""Products of activations that share an operand: one kernel multiplies it by all the others.

Linear attention has them (keys times keys, and queries times keys), and so have factorizations of
matrices. A kernel before joins the other operands.

What they share is made last, behind as many products as any other operand.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 80 small graphs of two or
three products in two to four dimensions, in FP16: operands made before the shared one, behind it,
or on demand; read by activations, sums, norms, views or nothing; and of 240 random ones. Products
of four dimensions are never joined, nor any if the operand of one is not yet there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.order import branches_last_first
from placer.prediction.kernels.parts import CONVS, PRODUCTS
from placer.prediction.kernels.views import only_reader

_RANK = 3
# A product's own kernel does these, or turns what it writes, and is not joined with others then.
_OWN = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Transpose"})


@dataclass(frozen=True)
class Joined:
    """``products``: those of one kernel, as the builder runs them; ``shared``: the operand's index.

    The first of them names what joins the other operands.
    """

    products: tuple[Node, ...]
    shared: int

    @property
    def joined(self) -> tuple[str, ...]:
        """The operands that are joined, in the order of ``products``."""
        return tuple(product.inputs[1 - self.shared] for product in self.products)


@kept
def joined_products(graph: Graph) -> Mapping[str, Joined]:
    """Those that are one kernel, by name of each product; nodes of ``graph`` are as listed."""
    found: dict[str, Joined] = {}
    products: dict[tuple[str, int], list[Node]] = {}
    for node in graph.nodes:
        if node.op == "MatMul" and _is_joinable(graph, node):
            for index, tensor in enumerate(node.inputs):
                products.setdefault((tensor, index), []).append(node)
    alike = {key: nodes for key, nodes in products.items() if len(nodes) > 1}
    places = branches_last_first(graph) if alike else {}
    for (_, shared), nodes in alike.items():
        left = [node for node in nodes if node.name not in found]
        ordered = sorted(left, key=lambda node: places[node.name])
        joined = _joined(graph, ordered, shared, places)
        if joined is not None and not _is_awaited(graph, joined):
            found.update(dict.fromkeys((node.name for node in joined.products), joined))
    return found


def _joined(
    graph: Graph, ordered: Sequence[Node], shared: int, places: Mapping[str, int]
) -> Joined | None:
    """All of them, if what they share is made after all that it is multiplied by."""
    if len(ordered) < 2:
        return None
    other = 1 - shared
    made = places[_source(graph, ordered[0].inputs[shared])]
    depths = _depths(graph)
    depth = depths[ordered[0].inputs[shared]]
    ready = all(
        places[_source(graph, node.inputs[other])] <= made
        and depths[node.inputs[other]] <= depth  # One kernel makes several element by element.
        for node in ordered
    )
    sizes = {_fixed(graph, node, shared) for node in ordered}
    operands = {node.inputs[other] for node in ordered}
    alike = len(sizes) == 1 and len(operands) == len(ordered)
    return Joined(tuple(ordered), shared) if ready and alike else None


@kept
def _depths(graph: Graph) -> Mapping[str, int]:
    """By tensor: how many products, at most, one behind the other, it is made of."""
    depths = dict.fromkeys(graph.inputs, 0)
    for node in graph.nodes:
        read = max((depths.get(edge.tensor, 0) for edge in graph.edges_into(node)), default=0)
        depths |= dict.fromkeys(node.outputs, read + (node.op in (*CONVS, *PRODUCTS)))
    return depths


def _is_awaited(graph: Graph, joined: Joined) -> bool:
    """Whether what else multiplies the shared operand, on either side, reads one of the results."""
    tensor = joined.products[0].inputs[joined.shared]
    made = {product.outputs[0] for product in joined.products}
    readers = (graph.by_name[edge.node] for edge in graph.edges_of(tensor) if edge.node)
    return any(node.op == "MatMul" and not made.isdisjoint(node.inputs) for node in readers)


def _fixed(graph: Graph, product: Node, shared: int) -> tuple[int, ...]:
    """All sizes of the operand that is not shared, but for the one along which it is joined."""
    shape = list(graph.type_of(product.inputs[1 - shared]).shape or ())
    del shape[-2 if shared else -1]
    return tuple(shape)


def _is_joinable(graph: Graph, product: Node) -> bool:
    """Whether it multiplies activations that are no vectors, of one batch, and does no more."""
    if any(tensor in graph.initializers for tensor in product.inputs):
        return False
    if reads_inputs(graph, product) or product.inputs[0] == product.inputs[1]:
        return False
    shapes = [graph.type_of(t).shape or () for t in (*product.inputs, *product.outputs)]
    first, second, _ = shapes
    if not 2 <= len(first) == len(second) <= _RANK or first[:-2] != second[:-2]:
        return False
    if any(size == 1 for shape in shapes for size in shape[-2:]) or first[-1] % 2 or second[-1] % 2:
        return False
    reader = only_reader(graph, product)
    return reader is None or reader.op not in _OWN


def reads_inputs(graph: Graph, product: Node) -> bool:
    """Whether an operand is a graph input: in which order the builder casts those is not known."""
    return any(_source(graph, tensor) in graph.inputs for tensor in product.inputs)


def _source(graph: Graph, tensor: str) -> str:
    """The node that makes ``tensor`` before it is turned, or the graph input that it is."""
    node = graph.producer.get(tensor)
    while node is not None and node.op == "Transpose":
        tensor = node.inputs[0]
        node = graph.producer.get(tensor)
    return tensor if node is None else node.name
