"""Reductions and the views that restore the reduced axes, which some engines merge."""

from __future__ import annotations

from dataclasses import replace

from onnx import NodeProto, numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.external_data import is_external
from placer.graph.index import with_nodes
from placer.prediction.layers.no_ops import WithoutNoOps

_VIEWS = frozenset({"Unsqueeze", "Reshape"})


def with_kept_axes(left: WithoutNoOps) -> WithoutNoOps:
    """Merge each Reduce without ``keepdims`` with the view behind it that restores its axes as 1.

    The view is an Unsqueeze or Reshape, and nothing else reads the Reduce. A pair between both
    becomes one behind the view.
    """
    graph = left.graph
    view_of = {
        node.name: view
        for node in graph.nodes
        for view in [_view_behind(node, graph)]
        if view is not None
    }
    if not view_of:
        return left
    gone = {view.name for view in view_of.values()}
    twins, moved = dict(left.twins), dict[Edge, tuple[Edge, ...]]()
    nodes: list[Node] = []
    for node in graph.nodes:
        view = view_of.get(node.name)
        if view is not None:
            moved[Edge(node.outputs[0], view.name, 0)] = tuple(graph.edges_of(view.outputs[0]))
            twins[node.name] = (*twins.get(node.name, ()), view.name, *twins.get(view.name, ()))
            nodes.append(_keeping(node, view))
        elif node.name not in gone:
            nodes.append(node)
    earlier = {
        edge: tuple(end for e in ends for end in moved.get(e, (e,)))
        for edge, ends in left.moved.items()
    }
    return WithoutNoOps(with_nodes(graph, nodes), {**moved, **earlier}, twins)


def _view_behind(node: Node, graph: Graph) -> Node | None:
    """The view that restores the axes that a Reduce drops, if nothing else reads the Reduce."""
    if not node.op.startswith("Reduce") or node.attributes.get("keepdims", 1):
        return None
    edge = graph.sole_consumer(node.outputs[0])
    if edge is None or edge.input_index:
        return None
    view, given = graph.by_name[edge.node], graph.type_of(node.inputs[0]).shape
    axes = reduced_axes(node, graph)
    if view.op not in _VIEWS or given is None or axes is None:
        return None
    dropped = {axis % len(given) for axis in axes or range(len(given))}
    kept = tuple(1 if axis in dropped else dim for axis, dim in enumerate(given))
    return view if graph.type_of(view.outputs[0]).shape == kept else None


def reduced_axes(node: Node, graph: Graph) -> list[int] | None:
    """The axes of a Reduce, none for all of them; None if they are computed or it reduces none."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"])
    is_idle = node.attributes.get("noop_with_empty_axes", 0)  # Where there are no axes.
    if len(node.inputs) < 2 or not node.inputs[1]:
        return None if is_idle else []
    constant = graph.initializers.get(node.inputs[1])
    if constant is None or is_external(constant):
        return None
    axes: list[int] = numpy_helper.to_array(constant).ravel().tolist()
    return None if is_idle and not axes else axes


def _keeping(node: Node, view: Node) -> Node:
    """``node`` with the axes that ``view`` restores."""
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    (keeps,) = (attribute for attribute in proto.attribute if attribute.name == "keepdims")
    keeps.i = 1
    return replace(node, outputs=view.outputs, proto=proto)
