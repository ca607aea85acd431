"""Clips between Q and DQ, by which Brevitas and PyTorch write fewer integers than the type has.

TensorRT-RTX 1.7.1 computes such a Clip where it quantizes, and that of a weight when it builds: the
layers are those of the file without it, and DQ fuses with what reads it. ONNX Runtime 1.32 clips a
weight when it loads the file; between activations the Clip is a layer of integers, which is not
predicted, and DQ fuses, too. OpenVINO 2026.4.1 computes the Clip of an activation where it
quantizes, and that of a weight in every run, so that what reads the weight computes in float.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto

from placer.graph.edit import reads, replace_nodes
from placer.graph.operators import PAIR_OPS


def without_narrowing(graph: GraphProto, *, of_constants: bool = True) -> None:
    """Take out the Clips that only DQs read, of fixed bounds, behind Q or integer constants.

    ``of_constants``: those of weights too, which the engine then clips once.
    """
    clips = _clips(graph, of_constants)
    if not clips:
        return
    others = [node for node in graph.node if node.output[0] not in clips]
    for node in others:
        for index, tensor in enumerate(node.input):
            node.input[index] = clips.get(tensor, tensor)
    replace_nodes(graph, others)


def _clips(graph: GraphProto, of_constants: bool) -> dict[str, str]:
    """What such Clips read, by what they write."""
    constants = {tensor.name for tensor in graph.initializer}
    quantized = {node.output[0] for node in graph.node if node.op_type == PAIR_OPS[0]}
    narrowed = quantized | constants if of_constants else quantized - _computed(graph, constants)
    kept = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type != PAIR_OPS[1]:
            kept.update(reads(node))
    return {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Clip"
        and node.input[0] in narrowed
        and node.output[0] not in kept
        and all(not name or name in constants for name in node.input[1:])
    }


def _computed(graph: GraphProto, constants: Iterable[str]) -> set[str]:
    """``constants``, and what is computed of nothing else."""
    computed = set(constants)
    for node in graph.node:
        if computed.issuperset(reads(node)):
            computed.update(node.output)
    return computed
