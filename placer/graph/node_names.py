"""Names of nodes: what messages call them, and names where they have none or another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onnx import NodeProto


def node_title(node: NodeProto) -> str:
    """What a message calls ``node``: its name, or what it writes if it has none, and operator."""
    name = node.name or next((tensor for tensor in node.output if tensor), "")
    return f"node '{name}' ({node.op_type})"


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
