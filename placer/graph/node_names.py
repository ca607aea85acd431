"""Names of nodes that have none, or that of another node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onnx import NodeProto


def unique_names(nodes: Sequence[NodeProto]) -> list[str]:
    """A name for each of ``nodes``, the same ones for the same nodes.

    It is the node's own, if it has one that no earlier node has; else it ends in the node's index.
    """
    names = [node.name for node in nodes]
    count = Counter(names)
    if len(count) == len(names) and "" not in count:
        return names
    taken, seen = set(count), set[str]()
    for index, node in enumerate(nodes):
        if not node.name or node.name in seen:
            names[index] = base = f"{node.name or node.op_type}_{index}"
            suffix = 0
            while names[index] in taken:
                suffix += 1
                names[index] = f"{base}_{suffix}"
            taken.add(names[index])
        seen.add(names[index])
    return names
