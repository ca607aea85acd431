"""Nodes that the float graph has as they are, and those that it does without."""

from __future__ import annotations

from onnx import NodeProto

from placer.graph.edit import rename_tensors, subgraphs
from placer.model.quantized.operators import integer
from placer.model.quantized.state import ImportState


def copy_node(state: ImportState, node: NodeProto) -> None:
    """Write ``node`` so that it reads float tensors, in subgraphs too."""
    copy = NodeProto.FromString(node.SerializeToString())
    for index, tensor in enumerate(node.input):
        copy.input[index] = state.read(tensor, node.name, index)
    for graph in subgraphs(copy):
        for inner in graph.node:
            rename_tensors(inner, lambda tensor: state.alias.get(tensor, tensor))
        for value in graph.output:  # A body may return what a DQ writes.
            value.name = state.alias.get(value.name, value.name)
    state.draft.append(copy)


def skip_node(state: ImportState, node: NodeProto) -> None:
    """Let what reads the output of ``node`` read its input."""
    source, target = node.input[0], node.output[0]
    state.alias[target] = state.read(source, "", 0)
    if source in state.pairs:
        state.pairs[target] = state.pairs[source]


def casts_to_same_type(state: ImportState, node: NodeProto) -> bool:
    """ModelOpt's exporter writes a Cast before Q and behind DQ, whatever the type."""
    known = node.op_type == "Cast" and node.output[0] not in state.draft.outputs
    return known and state.types.get(node.input[0]) == integer(node, "to", 0)
