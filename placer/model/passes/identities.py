"""Remove nodes that hand on what they read: Identity, and Dropout outside of training."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import GraphProto, NodeProto, TensorProto

from placer.graph.edit import reads, rename_tensors, replace_nodes
from placer.graph.training import is_training


def remove_identities(graph: GraphProto) -> int:
    """Remove Identity nodes, and Dropout nodes whose mask is unused, by renaming tensors."""
    outputs = {value.name for value in graph.output}
    sources = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    sources |= {t.values.name for t in graph.sparse_initializer}
    constants = {t.name: t for t in graph.initializer}
    read = {tensor for node in graph.node for tensor in reads(node)} | outputs
    kept: list[NodeProto] = []
    new_name: dict[str, str] = {}

    def resolve(tensor: str) -> str:
        while tensor in new_name:
            tensor = new_name[tensor]
        return tensor

    for node in graph.node:
        if not _is_identity(node, read, constants):
            kept.append(node)
            continue
        source, target = resolve(node.input[0]), node.output[0]
        if target not in outputs:
            new_name[target] = source
        elif source in outputs or source in sources:
            kept.append(node)  # Two names that must both survive.
        else:
            new_name[source] = target
    for node in kept if new_name else ():
        rename_tensors(node, resolve)
    count = len(graph.node) - len(kept)
    if count:
        replace_nodes(graph, kept)
    return count


def _is_identity(
    node: NodeProto, read: Collection[str], constants: Mapping[str, TensorProto]
) -> bool:
    if node.domain:
        return False
    mask = len(node.output) > 1 and node.output[1] in read
    return node.op_type == "Identity" or (
        node.op_type == "Dropout" and not is_training(node, constants) and not mask
    )
