"""What an explanation says of Convs whose channels INT8 kernels pad."""

from __future__ import annotations

from placer.common.listed import listed
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Graph
from placer.plan import Plan
from placer.rules.pack import Pack

# Channels that one step of a kernel sums.
_IN_INT8, _IN_HALF = 32, 8
_FEW = 16  # Convs of so few wait for memory, and those of an image have kernels of their own.
_LEAST_FACTOR = 1.25


def padded_channels(graph: Graph, plan: Plan, pack: Pack) -> str:
    """A sentence on dense Convs that INT8 pads clearly more than FP16; empty if there are none.

    TensorRT issue 1310: tensor cores sum 32 channels of INT8, so that Convs of 18 and 36 gain
    little. Of packs that take grouped Convs to be no faster than in half precision.
    """
    if pack.manifest.behaviour.grouped_convs != "half":
        return ""
    on_integers = integer_nodes(plan, dtypes=("int8", "uint8"))
    found = []
    for node in graph.by_op.get("Conv", ()):
        shape = graph.type_of(node.inputs[0]).shape or ()
        channels = int(shape[1] or 0) if len(shape) > 1 else 0
        is_dense = int(node.attributes.get("group", 1)) == 1
        if is_dense and node.name in on_integers and channels > _FEW:
            padded = _up(channels, _IN_INT8)
            if padded / _up(channels, _IN_HALF) >= _LEAST_FACTOR:
                found.append(f"'{node.name}' ({channels} as {padded})")
    if not found:
        return ""
    return (
        f"INT8 kernels pad input channels to multiples of {_IN_INT8} (says NVIDIA in TensorRT "
        f"issue 1310), so {listed(found)} may gain little over FP16, which the estimates ignore"
    )


def _up(channels: int, step: int) -> int:
    return -(-channels // step) * step
