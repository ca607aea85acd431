"""What an explanation says of FP8 pairs whose layers have no FP8 kernels."""

from __future__ import annotations

from collections.abc import Iterator

from placer.explaining.placed_model import PlacedModel
from placer.graph import Node
from placer.prediction.times.devices import Device
from placer.prediction.times.gpus import Gpu
from placer.quantization import FLOAT8

_SHOWN = 3


def float8_sentences(placed: PlacedModel, device: Device | None) -> Iterator[str]:
    """A GPU without FP8 tensor cores; Convs with groups (TensorRT 10.12 release notes, 4524)."""
    formats = {} if placed.placement is None else placed.placement.formats
    edges = [edge for edge, chosen in formats.items() if chosen == FLOAT8]
    if not edges or not isinstance(device, Gpu):
        return
    if device.peak.float8 is None:
        capability = device.compute_capability
        yield (
            f"{device.name} (compute capability {capability}) has no FP8 tensor cores, so no "
            "engine gains by these pairs there: use INT8"
        )
    nodes = {edge.node: placed.graph.by_name.get(edge.node) for edge in edges}
    grouped = [name for name, node in nodes.items() if node is not None and _has_groups(node)]
    if grouped:
        shown = ", ".join(f"'{name}'" for name in sorted(grouped)[:_SHOWN])
        more = f" and {len(grouped) - _SHOWN} more" if len(grouped) > _SHOWN else ""
        yield (
            f"TensorRT has no optimized FP8 kernels for Convs with groups, such as {shown}{more}, "
            "whose times are underestimated here: leave them in float, or use INT8"
        )


def _has_groups(node: Node) -> bool:
    groups = next((a.i for a in node.proto.attribute if a.name == "group"), 1)
    return node.op == "Conv" and groups > 1
