"""Nodes that the compiler dissolves before it makes kernels, and a graph without them.

A product of rows that a Reshape flattens before and another one shapes again behind is one of all
dimensions; a Gemm is such a product and a sum then, as Hugging Face's GPT-2 and TensorFlow's dense
layers have them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of small graphs and of
transformers' models (benchmarks/networks/deployed.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onnx import helper

from placer.graph import Edge, Graph, Node
from placer.graph.index import TensorType, with_nodes
from placer.graph.weights import weight_input
from placer.prediction.kernels.einsums import with_products
from placer.prediction.kernels.fan_outs import takes_columns_apart
from placer.prediction.kernels.parts import PRODUCTS
from placer.prediction.kernels.views import only_reader
from placer.quantization import Placement

BIAS = "/bias"  # What the name of the node that adds a Gemm's bias ends in.


@dataclass(frozen=True)
class Dissolved:
    """``graph``: what is left; ``parts``: by name of a node that stands for a part, whose it is.

    It is nobody's if that is empty. ``flat``: names of products of rows that were flattened.
    """

    graph: Graph
    parts: Mapping[str, str]
    flat: frozenset[str] = frozenset()

    def names(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The nodes of the model that those of ``graph`` are."""
        named = dict.fromkeys(self.parts.get(name, name) for name in nodes)
        return tuple(name for name in named if name)


def moved(edge: Edge, graph: Graph) -> Edge:
    """The edge of ``graph`` at the same input of the same node; ``edge`` itself without one."""
    node = graph.by_name.get(edge.node)
    if node is None or not 0 <= edge.input_index < len(node.inputs):
        return edge
    tensor = node.inputs[edge.input_index]
    return edge if tensor == edge.tensor else edge._replace(tensor=tensor)


def moved_placement(placement: Placement, graph: Graph) -> Placement:
    """``placement`` on the edges of ``graph``."""
    groups = frozenset(
        group._replace(edges=frozenset(moved(edge, graph) for edge in group.edges))
        for group in placement.groups
    )
    per_tensor = frozenset(moved(edge, graph) for edge in placement.per_tensor)
    return Placement(groups, per_tensor, placement.base)


def dissolved(graph: Graph) -> Dissolved:
    """``graph`` with products of flattened rows as products of all dimensions, and of Einsums."""
    rows = _with_rows(graph)
    einsums = with_products(rows.graph)
    parts = {**rows.parts, **dict.fromkeys(einsums.unnamed, "")}
    return Dissolved(einsums.graph, parts, rows.flat)


def _with_rows(graph: Graph) -> Dissolved:
    parts: dict[str, str] = {}
    types: dict[str, TensorType] = {}
    flat: set[str] = set()
    done: set[str] = set()
    rest: list[Node] = []
    for node in graph.nodes:
        behind = _shaped_again(graph, node)
        if behind is not None:
            done.add(behind.name)
            flat.add(node.name)
            given = graph.producer[node.inputs[0]].inputs[0]
            rest += _as_sum(node, given, behind.outputs[0], parts, types, graph)
        elif _is_parted(graph, node):
            rest += _as_sum(node, node.inputs[0], node.outputs[0], parts, types, graph)
        elif node.name not in done:
            rest.append(node)
    if not (done or parts):
        return Dissolved(graph, {})
    read = {tensor for node in rest for tensor in node.inputs} | set(graph.outputs)
    rest = [n for n in rest if n.op != "Reshape" or n.outputs[0] in read]
    return Dissolved(with_nodes(graph, rest, types=types), parts, frozenset(flat))


def _shaped_again(graph: Graph, product: Node) -> Node | None:
    """The Reshape behind a product of flattened rows, if it gives them their dimensions again."""
    if product.op not in PRODUCTS:  # Others may have no inputs.
        return None
    before, behind = graph.producer.get(product.inputs[0]), only_reader(graph, product)
    if before is None or behind is None:
        return None
    if (before.op, behind.op) != ("Reshape", "Reshape") or not _is_plain(graph, product):
        return None
    tensors = (before.inputs[0], product.inputs[0], product.outputs[0], behind.outputs[0])
    given, rows, sums, made = (graph.type_of(tensor).shape or () for tensor in tensors)
    flat = len(rows) == len(sums) == 2 < len(given)
    return behind if flat and given[:-1] == made[:-1] and given[-1] == rows[-1] else None


def _is_plain(graph: Graph, product: Node) -> bool:
    """Whether it multiplies by a weight and adds a bias at most."""
    weight = weight_input(graph, product)
    factors = (product.attributes.get(name, 1.0) for name in ("alpha", "beta"))
    turned = product.attributes.get("transA", 0)
    return weight is not None and weight.index == 1 and not turned and set(factors) == {1.0}


def _is_parted(graph: Graph, product: Node) -> bool:
    """Whether it is a Gemm of several rows whose columns are taken apart.

    Each part adds its bias where it is read, as in a gated linear unit (12 small graphs).
    """
    if product.op != "Gemm" or not _is_plain(graph, product):
        return False
    rows = (graph.type_of(product.outputs[0]).shape or (1,))[0]
    return len(product.inputs) > 2 and rows > 1 and takes_columns_apart(graph, product.outputs[0])


def _as_sum(
    product: Node,
    given: str,
    made: str,
    parts: dict[str, str],
    types: dict[str, TensorType],
    graph: Graph,
) -> list[Node]:
    """A MatMul from ``given`` to ``made``, with the name of ``product``, and what adds a bias."""
    biased = len(product.inputs) > 2 and bool(product.inputs[2])
    written = f"{made}/product" if biased else made
    matmul = helper.make_node("MatMul", [given, product.inputs[1]], [written], product.name)
    multiplied = replace(
        product, op="MatMul", inputs=(given, product.inputs[1]), outputs=(written,), proto=matmul
    )
    if not biased:
        return [multiplied]
    name = f"{product.name}{BIAS}"
    parts[name] = product.name
    types[written] = graph.type_of(made)
    added = (written, product.inputs[2])
    proto = helper.make_node("Add", list(added), [made], name)
    return [
        multiplied,
        Node(name, "Add", "", added, (made,), product.index, proto),
    ]
