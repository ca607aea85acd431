"""Pads of zeros that become part of the Convs that read them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 60 small graphs as Keras,
tf2onnx and PyTorch write them. Pads of maps of one dimension stay kernels, and so do those whose
results are cast, as Keras does on PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.transposes import order_of
from placer.prediction.kernels.parts import MAP_RANK


def folded_pads(graph: Graph) -> frozenset[str]:
    """The names of Pads that the builder takes out; ``graph``: with its Casts."""
    return frozenset(node.name for node in graph.nodes if node.op == "Pad" and _folds(graph, node))


def _folds(graph: Graph, pad: Node) -> bool:
    given, made = (graph.type_of(tensor) for tensor in (pad.inputs[0], pad.outputs[0]))
    rank = len(given.shape or ())
    if rank < MAP_RANK or not made.is_float or pad.attributes.get("mode", "constant") != "constant":
        return False
    ends = _ends(graph, pad, rank)
    if len(ends) != 2 * rank:
        return False
    padded = {axis % rank for axis, size in enumerate(ends) if size}
    value = pad.inputs[2] if len(pad.inputs) > 2 else ""
    zero = not value or (value in graph.initializers and not _values(graph, value).any())
    return zero and min(ends) >= 0 and _pads_convs(graph, pad.outputs[0], padded)


def _ends(graph: Graph, pad: Node, rank: int) -> Sequence[int]:
    """What is added at the start of each dimension, and then at its end; empty if not known."""
    if len(pad.inputs) < 2 or pad.inputs[1] not in graph.initializers:
        return ()
    sizes = [int(size) for size in _values(graph, pad.inputs[1]).ravel()]
    if len(pad.inputs) < 4 or not pad.inputs[3]:
        return sizes
    if pad.inputs[3] not in graph.initializers:
        return ()
    ends = [0] * (2 * rank)
    axes = [int(axis) % rank for axis in _values(graph, pad.inputs[3]).ravel()]
    for place, axis in enumerate(axes):
        ends[axis], ends[rank + axis] = sizes[place], sizes[len(axes) + place]
    return ends


def _pads_convs(graph: Graph, tensor: str, padded: set[int]) -> bool:
    """Whether Convs alone read it, transposed at most, and only places of their maps are padded."""
    edges = graph.edges_of(tensor)
    for edge in edges:
        reader = graph.by_name.get(edge.node)
        if reader is None or edge.is_graph_output or edge.input_index:
            return False
        if reader.op == "Transpose":
            order = order_of(graph, reader)
            turned = {place for place, axis in enumerate(order) if axis in padded}
            if not order or not _pads_convs(graph, reader.outputs[0], turned):
                return False
        elif reader.op != "Conv" or padded & {0, 1} or _names_pads(reader):
            return False
    return bool(edges)


def _names_pads(conv: Node) -> bool:
    """Whether its pads are said by name, be it that there are none."""
    return bool(conv.attributes.get("auto_pad", "NOTSET") != "NOTSET")


def _values(graph: Graph, tensor: str) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return numpy_helper.to_array(graph.initializers[tensor])
