"""Clips between Q and DQ, by which Brevitas and PyTorch write fewer integers than the type has.

TensorRT-RTX 1.7.1 computes such a Clip where it quantizes, and that of a weight when it builds: the
layers are those of the file without it, and DQ fuses with what reads it. ONNX Runtime 1.32 clips a
weight when it loads the file; between activations the Clip is a layer of integers, which is not
predicted, and DQ fuses, too. OpenVINO 2026.4.1 computes the Clip of an activation where it
quantizes, and that of a weight in every run, so that what reads the weight computes in float.
"""

from __future__ import annotations

from onnx import GraphProto

from placer.graph.edit import reads
from placer.graph.operators import PAIR_OPS


def without_narrowing(graph: GraphProto, *, of_constants: bool = True) -> None:
    """Take out the Clips that only DQs read, of fixed bounds, behind Q or integer constants.

    ``of_constants``: those of weights too, which the engine then clips once.
    """
    constants = {tensor.name for tensor in graph.initializer}
    computed = set(constants)  # From nothing but constants.
    for node in graph.node:
        if computed.issuperset(reads(node)):
            computed.update(node.output)
    quantized = constants | {n.output[0] for n in graph.node if n.op_type == PAIR_OPS[0]}
    if not of_constants:
        quantized -= computed
    kept = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type != PAIR_OPS[1]:
            kept.update(reads(node))
    clips = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Clip"
        and node.input[0] in quantized
        and node.output[0] not in kept
        and all(not name or name in constants for name in node.input[1:])
    }
    others = [node for node in graph.node if node.output[0] not in clips]
    for node in others:
        for index, tensor in enumerate(node.input):
            node.input[index] = clips.get(tensor, tensor)
    del graph.node[:]
    graph.node.extend(others)
