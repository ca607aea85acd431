"""Sums of any number of operands, written as the Adds that they are.

Caffe2, MXNet and older exporters of PyTorch write Sum for residual connections. OpenVINO and
TensorRT read it as Adds; ONNX Runtime takes no Sum into a Conv or an integer layer.
"""

from __future__ import annotations

from onnx import GraphProto, NodeProto, helper

from placer.graph.edit import replace_nodes, subgraphs
from placer.graph.names import UnusedNames, tensor_names


def add_sums(graph: GraphProto) -> int:
    """Make Adds of each Sum, from left to right, in ``graph`` and its bodies; return how many.

    A Sum of one operand becomes an Identity.
    """
    if not _sums(graph):
        return 0
    return _rewrite(graph, UnusedNames(tensor_names(graph)))


def _sums(graph: GraphProto) -> int:
    bodies = (body for node in graph.node for body in subgraphs(node))
    return sum(map(_is_sum, graph.node)) + sum(map(_sums, bodies))


def _is_sum(node: NodeProto) -> bool:
    return node.op_type == "Sum" and not node.domain


def _rewrite(graph: GraphProto, names: UnusedNames) -> int:
    count, nodes = 0, list[NodeProto]()
    for node in graph.node:
        count += sum(_rewrite(body, names) for body in subgraphs(node))
        count += _is_sum(node)
        nodes.extend(_adds(node, names) if _is_sum(node) else [node])
    if count:
        replace_nodes(graph, nodes)
    return count


def _adds(node: NodeProto, names: UnusedNames) -> list[NodeProto]:
    first, *others = node.input
    if not others:
        return [helper.make_node("Identity", [first], node.output, name=node.name)]
    made = list[NodeProto]()
    for operand in others[:-1]:
        part = names.unused(f"{node.output[0]}/part")
        made.append(helper.make_node("Add", [first, operand], [part]))
        first = part
    last = helper.make_node("Add", [first, others[-1]], node.output, name=node.name)
    return [*made, last]
