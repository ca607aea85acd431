"""Norms over maps that prepared kernels compute: GroupNorm and InstanceNorm.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 70 small graphs with 12 to
640 channels in 1 to 128 groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.kept import kept

# Channels of a group that the kernels read at once; beyond eight any even number will do.
_SMALL_GROUPS = (1, 2, 4, 8)
_WIDE, _GROUPS = 64, 8
_VIEWS = ("Unsqueeze", "Reshape")
_MAP_RANKS = (4, 5)  # Lines, and maps that were flattened before, have no kernel for all of it.


@dataclass(frozen=True)
class GroupNorm:
    """Reshape, InstanceNormalization, Reshape, Mul and Add, as PyTorch exports a GroupNorm.

    ``whole``: one kernel does it all; otherwise one does the InstanceNormalization, and what is
    before and behind it is generated. ``viewed``: it is of a line that was made a map for it.
    """

    nodes: tuple[Node, ...]
    whole: bool
    viewed: bool


@kept
def group_norms(graph: Graph) -> Mapping[str, GroupNorm]:
    """The GroupNorms that the builder knows as such, by name of each node."""
    norm_of: dict[str, GroupNorm] = {}
    for node in graph.nodes:
        if node.op == "InstanceNormalization":
            norm = _group_norm(graph, node)
            if norm is not None:
                norm_of |= dict.fromkeys((n.name for n in norm.nodes), norm)
    return norm_of


@kept
def is_of_groups(graph: Graph, node: Node) -> bool:
    """Whether an InstanceNormalization is over groups of channels, not over each channel."""
    before = graph.producer.get(node.inputs[0])
    if before is None or before.op != "Reshape":
        return False
    given, made = (graph.type_of(t).shape or () for t in (before.inputs[0], before.outputs[0]))
    return given[:2] != made[:2]


@kept
def normalizes_groups(graph: Graph, node: Node) -> bool:
    """Whether an InstanceNormalization is over several groups of channels."""
    if node.op != "InstanceNormalization" or not is_of_groups(graph, node):
        return False
    return (graph.type_of(node.inputs[0]).shape or (0, 0))[1] > 1


def _group_norm(graph: Graph, norm: Node) -> GroupNorm | None:
    chain = _group_norm_nodes(graph, norm)
    if chain is None:
        return None
    first, _, reshape, *_ = chain
    shapes = [graph.type_of(t).shape or () for t in (first.inputs[0], reshape.outputs[0])]
    groups = (graph.type_of(first.outputs[0]).shape or (0, 0))[1]
    if shapes[0] != shapes[1] or len(shapes[0]) < 3 or groups < 2 or shapes[0][1] % 16:
        return None
    channels = shapes[0][1]
    each = channels // groups
    if each not in _SMALL_GROUPS and (each < max(_SMALL_GROUPS) or each % 2):
        return None
    narrow = groups == _GROUPS and each < groups and math.log2(channels).is_integer()
    viewed = len(shapes[0]) == _MAP_RANKS[0] and _is_line(graph, first.inputs[0])
    map_like = len(shapes[0]) in _MAP_RANKS and not viewed
    return GroupNorm(chain, map_like and (channels % _WIDE == 0 or narrow), viewed)


def _group_norm_nodes(graph: Graph, norm: Node) -> tuple[Node, ...] | None:
    """The nodes of a group norm in order, of which ``norm`` normalizes; None if it is none."""
    first = graph.producer.get(norm.inputs[0])
    if first is None or first.op != "Reshape" or len(graph.edges_of(first.outputs[0])) != 1:
        return None
    if not (_are_all(graph, norm.inputs[1], 1) and _are_all(graph, norm.inputs[2], 0)):
        return None
    chain = [first, norm]
    for op in ("Reshape", "Mul", "Add"):
        node = graph.sole_reader(chain[-1].outputs[0])
        if node is None or node.op != op:
            return None
        if op != "Reshape" and graph.initializers.keys().isdisjoint(node.inputs):
            return None
        chain.append(node)
    return tuple(chain)


def _is_line(graph: Graph, tensor: str) -> bool:
    """Whether a map is a view of what has one dimension of places."""
    made = graph.producer.get(tensor)
    if made is None or made.op not in _VIEWS:
        return False
    return len(graph.type_of(made.inputs[0]).shape or ()) == _MAP_RANKS[0] - 1


def _are_all(graph: Graph, tensor: str, value: float) -> bool:
    """Whether a constant holds nothing but ``value``: PyTorch's own scale and bias come later."""
    weight = graph.initializers.get(tensor)
    return weight is not None and bool((numpy_helper.to_array(weight) == value).all())
