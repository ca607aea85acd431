"""Sentences about what a predicted plan leaves out of the engine's."""

from __future__ import annotations

from collections.abc import Iterator

from placer.graph import Graph
from placer.rules.pack_manifest import Manifest

_RECURRENT = ("GRU", "LSTM", "RNN")


def unpredicted(graph: Graph, manifest: Manifest) -> Iterator[str]:
    """Sentences on nodes of ``graph`` whose layers the pack of ``manifest`` cannot tell."""
    if manifest.engine != "tensorrt":
        return
    foreign = sorted({f"{node.domain}.{node.op}" for node in graph.nodes if node.domain})
    if foreign:
        more = f" and {len(foreign) - 3} more operators" if len(foreign) > 3 else ""
        yield (
            f"TensorRT needs plugins for {', '.join(foreign[:3])}{more}, whose layers and times "
            "are not known"
        )
    recurrent = [op for op in _RECURRENT if any(node.op == op for node in graph.nodes)]
    if recurrent and manifest.behaviour.kernels == "generated":
        yield (
            f"TensorRT-RTX unrolls {' and '.join(recurrent)} into dozens of kernels that are not "
            "predicted: do not rely on these layers and times; build with placer check"
        )
