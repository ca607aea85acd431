"""Where a Relu or Clip keeps ONNX Runtime from making a layer of integers: qdq_selectors.cc.

Its selectors look past a Relu or Clip that alone reads a node. Where Q behind it does the same, the
layer takes it along; where it does not, or no Q is there, the node stays in float with its pairs,
even one whose kernel of integers could write float.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.motion import RELU, Bounds, Exceeds, NormalForm, Passage, Scale

CLAMPS = ("Relu", "Clip")


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
    edges = [e for t in node.outputs for e in graph.edges_of(t) if not e.is_graph_output]
    return _clamp_at(edges[0], graph) if len(edges) == 1 else None


def _clamp_at(edge: Edge, graph: Graph) -> Node | None:
    reader = graph.by_name.get(edge.node)
    return reader if reader is not None and reader.op in CLAMPS else None


# Which clamps a product takes along in float before the others behind it are taken out.
_ACTIVATED = {"Conv": frozenset(CLAMPS), "Gemm": frozenset({"Relu"})}


def clamp_passages(graph: Graph) -> Iterator[Passage]:
    """Each Relu and Clip that Q passes where it does what they do, in node order.

    It must alone read what it does. A Clip of a graph input stays, and so does the second of three
    and more behind a Conv or Gemm, which takes the first along. Relus before a Clip are part of it.
    Optimized graphs of ONNX Runtime 1.32.0; relu_clip_fusion.cc, relu_quant_fusion.cc,
    clip_quant_fusion.cc.
    """
    for node in graph.nodes:
        bounds = bounds_of(node, graph)
        if bounds is None or len(graph.edges_of(node.inputs[0])) != 1:
            continue
        if _reads_input(node, graph) or _is_second_of_many(node, graph):
            continue
        before = graph.edges_of(node.inputs[0])
        yield Passage(tuple(before), tuple(graph.edges_of(node.outputs[0])), clamps=bounds)


def _reads_input(node: Node, graph: Graph) -> bool:
    """Whether a Clip, and a Relu that becomes part of it, reads a graph input."""
    clamp: Node | None = node
    if node.op == "Relu":
        clamp = clamp_behind(node, graph)
    else:
        before = graph.producer.get(node.inputs[0])
        node = before if before is not None and before.op == "Relu" else node
    return clamp is not None and clamp.op == "Clip" and node.inputs[0] in graph.inputs


def _is_second_of_many(node: Node, graph: Graph) -> bool:
    """Whether it follows a clamp that a product takes along in float, and others follow it."""
    first = _before_row(node, graph)
    if first is None or first.op not in CLAMPS or clamp_behind(node, graph) is None:
        return False
    product = _before_row(first, graph)
    return (
        product is not None
        and first.op in _ACTIVATED.get(product.op, ())
        and not _joins_clip(node, graph)
    )


def _before_row(node: Node, graph: Graph) -> Node | None:
    """What a clamp reads, past the Relus that are one with it."""
    before = graph.producer.get(node.inputs[0])
    while before is not None and _joins_clip(before, graph):
        before = graph.producer.get(before.inputs[0])
    return before


def _joins_clip(node: Node, graph: Graph) -> bool:
    """Whether it is a Relu that becomes part of a Clip, behind other Relus or none."""
    behind: Node | None = node
    while behind is not None and behind.op == "Relu":
        behind = clamp_behind(behind, graph)
    return node.op == "Relu" and behind is not None


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
    edges = graph.edges_of(clamp.outputs[0])
    scales = {form.scales.get(edge) for edge in edges}
    if scales == {None}:
        return len(edges) == 1 and not edges[0].is_graph_output
    return len(scales) == 1  # The selectors look past what one node reads, such as a Q.


def _scale_of_dropped(edge: Edge, graph: Graph, form: NormalForm, exceeds: Exceeds) -> Scale | None:
    """The scale of Q behind a Relu or Clip at ``edge`` that it makes redundant."""
    clamp = _clamp_at(edge, graph)
    if clamp is None or edge in form.scales:
        return None
    scales = {form.scales.get(behind) for behind in graph.edges_of(clamp.outputs[0])}
    scale, bounds = scales.pop() if len(scales) == 1 else None, bounds_of(clamp, graph)
    return None if scale is None or bounds is None or exceeds(scale, bounds) else scale
