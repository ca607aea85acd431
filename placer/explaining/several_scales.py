"""What an explanation says of activations that are quantized in several scales."""

from __future__ import annotations

from collections.abc import Collection

from placer.common.listed import in_quotes, listed
from placer.graph import Graph
from placer.graph.weights import WEIGHTED_OPS
from placer.quantization import Placement
from placer.rules.pack import Pack


def scales_by_channel(tensors: Collection[str], pack: Pack) -> str:
    """A sentence on ``tensors``, activations whose pairs have a scale for each channel.

    No QLinear operator takes them, but ONNX Runtime 1.32 makes one of a Conv before (issue 24518)
    or behind such a pair, and MatMulIntegerToFloat of a MatMul behind one; they fail when they run.
    TensorRT-RTX 1.7.1 computes what reads them in float.
    """
    behaviour = pack.manifest.behaviour
    if tensors and behaviour.pairs == "symmetric":
        return (
            f"pairs on {in_quotes(tuple(tensors))} have a scale for each channel, which TensorRT "
            "documents for constants only; what reads them is taken to compute in float: give "
            "each activation one scale"
        )
    if not tensors or behaviour.signed != "converted":
        return ""
    return (
        f"pairs on {in_quotes(tuple(tensors))} have a scale for each channel, which no integer "
        "kernel takes; beside a Conv or before a MatMul ONNX Runtime may refuse to run the file: "
        "give each activation one scale"
    )


def scales_by_reader(graph: Graph, placement: Placement | None, pack: Pack) -> str:
    """A sentence on activations that products read through pairs of several scales.

    So quantizers write files that belong to layers rather than to tensors (those of queries, keys
    and values). ``placement``: that of the file.
    """
    if placement is None:
        return ""
    group_of = {edge: group for group in placement.groups for edge in group.edges}
    shown = []
    for tensor in dict.fromkeys(edge.tensor for edge in sorted(group_of)):
        read = [e for e in graph.edges_of(tensor) if e in group_of and e.node and not e.input_index]
        products = [edge for edge in read if graph.by_name[edge.node].op in WEIGHTED_OPS]
        if len({group_of[edge] for edge in products}) > 1:
            names = in_quotes([edge.node for edge in products])
            shown.append(f"'{tensor}' (by {names})")
    if not shown:
        return ""
    is_joined = pack.manifest.behaviour.pairs == "symmetric"
    joined = ", and TensorRT can join these products in one layer" if is_joined else ""
    return (
        f"products read {listed(shown)} through pairs of several scales, each a quantization of "
        f"its own: with one scale the tensor is quantized once{joined}"
    )
