"""Where a Relu or Clip keeps ONNX Runtime from making a layer of integers: qdq_selectors.cc.

Its selectors look past a Relu or Clip that alone reads a node. Where Q behind it does the same, the
layer takes it along; where it does not, or no Q is there, the node stays in float with its pairs,
even one whose kernel of integers could write float. What the graph or a body returns is no reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.motion import NormalForm, Scale

CLAMPS = ("Relu", "Clip")


class Bounds(NamedTuple):
    """Between which numbers a Relu or Clip leaves what it reads."""

    low: float = -math.inf
    high: float = math.inf


# Whether Q of a scale covers numbers outside of the bounds, so that it does not clamp to them.
Exceeds = Callable[[Scale, Bounds], bool]
RELU = Bounds(low=0.0)


def bounds_of(node: Node | None, graph: Graph) -> Bounds | None:
    """Those of a Relu, or a Clip with constants; None: it is no such node."""
    if node is None or node.op not in CLAMPS:
        return None
    if node.op == "Relu":
        return RELU
    given = [_number(node, index, name, graph) for index, name in ((1, "min"), (2, "max"))]
    low, high = given
    if low is None or high is None:
        return None
    return Bounds(low, high)


def _number(node: Node, index: int, name: str, graph: Graph) -> float | None:
    """A bound of a Clip, without end where there is none; None where it is computed."""
    if index >= len(node.inputs) or not node.inputs[index]:
        value = node.attributes.get(name)
        endless = -math.inf if index == 1 else math.inf
        return float(value) if isinstance(value, int | float) else endless
    constant = graph.initializers.get(node.inputs[index])
    return None if constant is None else float(numpy_helper.to_array(constant).item())


def clamp_behind(node: Node, graph: Graph) -> Node | None:
    """The Relu or Clip that alone reads what ``node`` writes."""
    edges = [e for t in node.outputs for e in graph.edges_of(t) if not _is_returned(e, node, graph)]
    return _clamp_at(edges[0], graph) if len(edges) == 1 else None


def _is_returned(edge: Edge, writer: Node, graph: Graph) -> bool:
    """Whether ``edge`` is what the graph, or the body with ``writer``, returns."""
    scope = graph.scopes.get(writer.name, ())
    return edge.is_graph_output or (bool(scope) and edge.node == scope[-1].owner)


def _clamp_at(edge: Edge, graph: Graph) -> Node | None:
    reader = graph.by_name.get(edge.node)
    return reader if reader is not None and reader.op in CLAMPS else None


def edges_behind_clamps(node: Node, graph: Graph) -> tuple[Edge, ...]:
    """The edges of what each Relu or Clip that reads ``node`` writes."""
    clamps = (_clamp_at(edge, graph) for t in node.outputs for edge in graph.edges_of(t))
    return tuple(e for clamp in clamps if clamp for e in graph.edges_of(clamp.outputs[0]))


def is_held_back(node: Node, graph: Graph, form: NormalForm, exceeds: Exceeds) -> bool:
    """Whether ``node`` is no layer of integers for the Relu or Clip that reads it."""
    readers = [edge for tensor in node.outputs for edge in graph.edges_of(tensor)]
    behind = {edge: _scale_of_dropped(edge, graph, form, exceeds) for edge in readers}
    if any(behind.values()):  # Q reads the node then, as others that read it do not.
        return len({behind[edge] or form.scales.get(edge) for edge in readers}) > 1
    clamp = clamp_behind(node, graph)
    if clamp is None or any(edge in form.scales for edge in readers):
        return False
    summed = reshaped_gemm(clamp, graph)
    if summed is not None and summed not in form.scales:
        return False  # A Reshape stands between.
    edges = graph.edges_of(clamp.outputs[0])
    scales = {form.scales.get(edge) for edge in edges}
    if scales == {None}:
        return len(edges) == 1 and not _is_returned(edges[0], clamp, graph)
    return len(scales) == 1  # The selectors look past what one node reads, such as a Q.


def _scale_of_dropped(edge: Edge, graph: Graph, form: NormalForm, exceeds: Exceeds) -> Scale | None:
    """The scale of Q behind a Relu or Clip at ``edge`` that it makes redundant."""
    clamp = _clamp_at(edge, graph)
    if clamp is None or edge in form.scales:
        return None
    scales = {form.scales.get(behind) for behind in graph.edges_of(clamp.outputs[0])}
    scale, bounds = scales.pop() if len(scales) == 1 else None, bounds_of(clamp, graph)
    return None if scale is None or bounds is None or exceeds(scale, bounds) else scale


def reshaped_gemm(node: Node, graph: Graph) -> Edge | None:
    """The edge to the sum where a clamp reads a product and a bias that become a Gemm on rows.

    ONNX Runtime puts a Reshape before and behind it, and looks for a Q there while the clamp is
    still behind (MatMulAddFusion).
    """
    add = graph.producer.get(node.inputs[0])
    if add is None or add.op != "Add":
        return None
    biases = [t for t in add.inputs if t in graph.initializers]
    edges = [edge for edge in graph.edges_into(add) if edge.tensor not in graph.initializers]
    if len(edges) != 1 or not biases or len(graph.initializers[biases[0]].dims) != 1:
        return None
    product = graph.producer.get(edges[0].tensor)
    return edges[0] if product is not None and _is_gemm_on_rows(product, graph) else None


def _is_gemm_on_rows(product: Node, graph: Graph) -> bool:
    """Whether it multiplies rows of known sizes in several dimensions with a constant matrix."""
    if product.op != "MatMul" or product.inputs[1] not in graph.initializers:
        return False
    rows, matrix = (graph.type_of(t).shape or () for t in product.inputs)
    is_open = product.inputs[0] in graph.open_tensors
    return len(rows) >= 3 and len(matrix) == 2 and not is_open
