"""1x1 Convs of up to four channels, each of which is an operand of a generated kernel.

Channels are read where they lie in memory, so another kernel has written them. Evidence: layers
that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 90 small graphs: squeeze-and-excitation of
2 to 32 channels, Convs of what is computed, moved, joined or added, in FP16 and INT8.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from placer.graph import Graph
from placer.prediction.kernels.parts import CONVS, VIEWS, Unit

_IN_PARTS = ("LeakyRelu", "HardSwish")


def reads_channels(graph: Graph, unit: Unit) -> bool:
    """Whether it is such a Conv; one of a single channel is computed where that is read."""
    return _is_written_out(unit) and (graph.type_of(unit.node.inputs[0]).shape or (0, 0))[1] > 1


def reads_channels_of(graph: Graph, unit: Unit, kernels: Container[int]) -> bool:
    """Whether it is such a Conv that reads channels as one of ``kernels`` writes them.

    What a view mixes to other channels lies nowhere, and the Conv computes it itself.
    """
    if not reads_channels(graph, unit):
        return False
    writers = [w for _, w in unit.reads if w is not None and w.group in kernels]
    return not all(_mixes(graph, writer) for writer in writers)


def sums_channels(unit: Unit) -> bool:
    """Whether it sums the products of a Conv of few channels that are integers."""
    return unit.role == "reduce" and unit.node.op in CONVS


def sums_apart(kernel: Sequence[Unit], writer: Unit, unit: Unit) -> bool:
    """Whether another kernel than ``writer``'s, ``kernel``, sums the few channels that it writes.

    So it is behind an INT8 Conv with an activation that is computed in parts.
    """
    if not sums_channels(unit) or writer.node.op not in _IN_PARTS:
        return False
    return any(other.role == "pointwise" and not other.works for other in kernel)


def leaves_as_row(graph: Graph, kernel: Sequence[Unit], cast: Unit) -> bool:
    """Whether a map of one channel or one place that such a Conv made is cast apart.

    ``kernel``: the units of the kernel that makes it; ``cast``: what makes it a graph output.
    """
    shape = graph.type_of(cast.reads[0][0].tensor).shape or ()
    row = len(shape) == 4 and 1 in (shape[1], shape[2] * shape[3])
    sums = any(unit.role == "reduce" for unit in kernel)
    return row and not sums and any(map(_is_written_out, kernel))


def _is_written_out(unit: Unit) -> bool:
    return unit.role == "pointwise" and unit.works and unit.node.op in CONVS


def _mixes(graph: Graph, unit: Unit) -> bool:
    given, made = (
        (graph.type_of(tensor).shape or (0, 0))[:2]
        for tensor in (unit.node.inputs[0], unit.node.outputs[0])
    )
    return unit.node.op in VIEWS and given != made
