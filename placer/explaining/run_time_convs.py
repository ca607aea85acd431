"""What an explanation says of Convs that a file quantizes at run time."""

from __future__ import annotations

from placer.common.listed import in_quotes
from placer.graph import Graph


def run_time_convs(graph: Graph) -> str:
    """A sentence on every ConvInteger of ``graph``; empty if there is none.

    onnxruntime issue 12854. On an Intel Xeon with VNNI, ONNX Runtime 1.32, one thread, three Convs
    of 64 channels, 56x56, took 4.6 ms in float, 7.3 ms so and 1.5 ms with calibrated pairs.
    """
    found = [node.name for node in graph.nodes if node.op == "ConvInteger"]
    if not found:
        return ""
    return (
        f"ConvInteger ({in_quotes(found)}) has its input quantized in each run, writes int32, and "
        "fuses with neither bias nor activation, so it may be slower than float: placer optimize "
        "replaces it and places pairs with calibrated ranges"
    )
