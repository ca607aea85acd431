"""Parts that are cut out of what a product writes.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 28 small graphs as blocks
of YOLOv8, each with random pairs.
"""

from __future__ import annotations

from placer.graph import Graph
from placer.prediction.kernels.parts import Unit
from placer.prediction.layers.motion import NormalForm


def is_cut_in_float(unit: Unit, form: NormalForm) -> bool:
    """Whether Slices alone read it and anything reads one of these in float.

    Those that are quantized then are cut out where they are read.
    """
    cuts = [reader for _, reader in unit.readers]
    floats = [cut for edge, cut in unit.readers if edge not in form.scales]
    read = [edge for cut in floats for edge, _ in cut.readers]
    sliced = all(cut.node.op == "Slice" for cut in cuts)
    return sliced and any(edge not in form.scales for edge in read)


def is_quantized_in_parts(unit: Unit, graph: Graph, form: NormalForm) -> bool:
    """Whether only a Split reads it, and whatever reads the parts quantizes them."""
    parts = [reader for _, reader in unit.readers]
    edges = [edge for part in parts for tensor in part.outputs for edge in graph.edges_of(tensor)]
    splits = bool(parts) and all(part.node.op == "Split" for part in parts)
    return splits and all(edge in form.scales for edge in edges)
