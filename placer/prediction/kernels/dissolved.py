"""Nodes that the compiler dissolves before it makes kernels, and a graph without them.

A product of rows that a Reshape flattens before and another one shapes again behind is one of all
dimensions; a Gemm is such a product and a sum then, as Hugging Face's GPT-2 and TensorFlow's dense
layers have them. Rows may stay flat through several products, as onnxsim and onnxslim leave them,
and be flattened by what joins heads. The last product is one of all dimensions then, and the others
read what was flattened.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of small graphs (28 of
several products and of heads) and of transformers' models
(benchmarks/networks/pytorch/deployed.py).
"""

from __future__ import annotations

import math
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

# What computes each number by itself, between products of rows.
_EACH = frozenset(
    {"Add", "Clip", "Div", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul"}
    | {"Neg", "Pow", "Relu", "Sigmoid", "Softplus", "Sub", "Tanh"}
)
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
    within = {
        product.name: graph.type_of(behind.outputs[0])
        for node in graph.nodes
        if (behind := _shaped_again(graph, node)) is not None
        for product in _products_before(graph, node)
    }
    for node in graph.nodes:
        behind = _shaped_again(graph, node)
        if behind is not None:
            done.add(behind.name)
            flat.add(node.name)
            given = _whole(graph, node.inputs[0], graph.type_of(behind.outputs[0]))
            rest += _as_sum(node, given, behind.outputs[0], parts, types, graph)
        elif whole := _before_heads(graph, node):
            types[node.outputs[0]] = whole
            given = _whole(graph, node.inputs[0], whole)
            rest += _as_sum(node, given, node.outputs[0], parts, types, graph)
        elif node.name in within:
            rest.append(_reading(node, _whole(graph, node.inputs[0], within[node.name])))
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
    """The Reshape behind a product of rows that gives them their dimensions again."""
    behind = only_reader(graph, product) if product.op in PRODUCTS else None
    if behind is None or behind.op != "Reshape" or not _is_plain(graph, product):
        return None
    rows, sums, made = (
        graph.type_of(tensor).shape or ()
        for tensor in (product.inputs[0], product.outputs[0], behind.outputs[0])
    )
    shaped = len(rows) == len(sums) == 2 < len(made) and made[-1] == sums[-1]
    if not shaped:
        return None
    before = graph.producer.get(product.inputs[0])
    if before is not None and before.op == "Reshape":
        return behind
    return behind if _products_before(graph, product) else None


def _before_heads(graph: Graph, product: Node) -> TensorType | None:
    """What a Gemm of flattened rows writes with their dimensions, if its columns become heads.

    The parts of joint queries, keys and values add its bias then, as behind a MatMul.
    """
    behind = only_reader(graph, product) if product.op == "Gemm" else None
    if behind is None or behind.op != "Reshape" or len(product.inputs) < 3:
        return None
    before, sums = graph.producer.get(product.inputs[0]), graph.type_of(product.outputs[0])
    made, flat = graph.type_of(behind.outputs[0]).shape or (), sums.shape or (0, 0)
    count = next((n for n in range(2, len(made) - 1) if math.prod(made[:n]) == flat[0]), 0)
    if not count or not _is_plain(graph, product) or before is None:
        return None
    whole = sums._replace(shape=(*made[:count], flat[1]))
    if before.op == "Reshape":
        known = _whole(graph, product.inputs[0], whole) != product.inputs[0]
    else:
        known = bool(_products_before(graph, product))
    return whole if known else None


def _products_before(graph: Graph, product: Node) -> tuple[Node, ...]:
    """Products whose rows ``product`` reads, through what computes each number by itself.

    All of rows that a Reshape flattened; none if others are read, too.
    """
    found: dict[str, Node] = {}
    rest = [product.inputs[0]]
    while rest:
        writer = graph.producer.get(rest.pop())
        if writer is None:
            return ()
        if writer.name in found:
            continue
        found[writer.name] = writer
        if writer.op in PRODUCTS and _is_plain(graph, writer):
            before = graph.producer.get(writer.inputs[0])
            if before is None or before.op != "Reshape":
                rest.append(writer.inputs[0])
        elif writer.op in _EACH:
            rest += [t for t in writer.inputs if t and t not in graph.initializers]
        else:
            return ()
    return tuple(node for node in found.values() if node.op in PRODUCTS)


def _whole(graph: Graph, rows: str, shaped: TensorType) -> str:
    """What is flattened to ``rows``, if it has the dimensions of ``shaped``; else ``rows``."""
    before = graph.producer.get(rows)
    if before is None or before.op != "Reshape":
        return rows
    given, flat = (graph.type_of(tensor).shape or () for tensor in (before.inputs[0], rows))
    return before.inputs[0] if given == (*(shaped.shape or ())[:-1], flat[-1]) else rows


def _reading(product: Node, given: str) -> Node:
    return replace(product, inputs=(given, *product.inputs[1:]))


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
    types[written] = types.get(made, graph.type_of(made))
    added = (written, product.inputs[2])
    proto = helper.make_node("Add", list(added), [made], name)
    return [
        multiplied,
        Node(name, "Add", "", added, (made,), product.index, proto),
    ]
