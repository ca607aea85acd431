"""Maps of ConvTransposes, whose kernels compute multiples of eight channels.

Others are padded before, by a kernel that is named after what it is for, and cut behind, where what
reads the map is generated with it. Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for
sm89, of 50 small graphs of 2 to 16 channels with nodes of twelve kinds behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Edge, Graph, Node
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import Unit, is_padded


class CutMaps:
    """Adds the units that cut channels off, of the kernels of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups, self._made, self._graph = groups, groups.made, groups.made.graph

    def add(self) -> None:
        """Let what reads a padded map in another kernel read what is cut out of it."""
        ordered: list[Unit] = []
        for unit in list(self._groups.units):
            ordered.append(unit)
            kernel = self._groups.of(unit)
            if any(is_padded(self._graph, other) for other in kernel):
                for tensor in unit.outputs:
                    ordered += self._cut(tensor, unit, kernel)
        self._groups.reorder(ordered)

    def _cut(self, tensor: str, unit: Unit, kernel: Sequence[Unit]) -> list[Unit]:
        readers = [
            (edge, reader)
            for edge, reader in unit.readers
            if edge.tensor == tensor
            and reader not in kernel
            and not any(u.node.op == "ConvTranspose" for u in self._groups.of(reader) if u.works)
        ]
        if not readers:
            return []
        leaves = len(readers) == 1 and readers[0][1].role == "cast"
        if leaves and len(_named(kernel)) == len(
            kernel
        ):  # Another kernel cuts it, see ``KernelLayers``.
            self._groups.merge(unit.group, readers[0][1].group)
            return []
        cut = Unit(0, unit.node, "move", False, (tensor,), names=_named(kernel))
        self._groups.start(cut)
        for edge, reader in readers:
            self._made.relink(reader, edge, cut)
        (padded,) = self._made.padded((tensor,))
        unit.outputs = tuple(padded if made == tensor else made for made in unit.outputs)
        self._made.link(Edge(padded, unit.node.name, -2), unit, cut)
        return [cut]


def _named(kernel: Sequence[Unit]) -> tuple[Node, ...]:
    """What the cut is named after: the kernel, or what it adds to another map and what follows."""
    ordered = sorted(kernel, key=lambda unit: unit.index)
    added = [i for i, unit in enumerate(ordered) if len(unit.reads) > 1]
    return tuple(unit.node for unit in ordered[max(added, default=0) :])


def adds_padded(graph: Graph, unit: Unit, region: Sequence[Unit]) -> bool:
    """Whether the kernel of a ConvTranspose of padded channels, ``region``, ends with ``unit``.

    It adds another map then, or multiplies by it.
    """
    others = any(writer not in region for _, writer in unit.reads)
    return unit is not region[0] and others and is_padded(graph, region[0])


def is_of_padded(graph: Graph, unit: Unit) -> bool:
    """Whether it is a ConvTranspose of padded channels, or computed of one alone."""
    while unit.role == "pointwise" and len(unit.reads) == 1:
        ((_, writer),) = unit.reads
        if writer is None:
            return False
        unit = writer
    return is_padded(graph, unit)
