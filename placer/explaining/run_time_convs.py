"""What an explanation says of products that a file quantizes at run time."""

from __future__ import annotations

from placer.common.listed import in_quotes
from placer.common.names import engine_title
from placer.graph import Graph
from placer.rules.pack import Pack


def run_time_convs(graph: Graph, pack: Pack) -> str:
    """A sentence on every ConvInteger of ``graph``; empty if there is none.

    Of MatMulInteger, too, in OpenVINO 2026.4.1, whose plans have a float product for each.

    onnxruntime issue 12854. On an Intel Xeon with VNNI, ONNX Runtime 1.32, one thread, three Convs
    of 64 channels, 56x56, took 4.6 ms in float, 7.3 ms so and 1.5 ms with calibrated pairs.
    """
    behaviour = pack.manifest.behaviour
    is_float = behaviour.signed != "converted" and behaviour.pairs != "symmetric"
    ops = ("ConvInteger", "MatMulInteger") if is_float else ("ConvInteger",)
    found = [node.name for node in graph.nodes if node.op in ops]
    if not found:
        return ""
    if is_float:
        return (
            f"{engine_title(pack.manifest.engine)} computes {in_quotes(found)} in float, behind "
            "kernels that quantize the input in each run and gain no speed: placer optimize "
            "replaces these products and places pairs with calibrated ranges"
        )
    return (
        f"ConvInteger ({in_quotes(found)}) has its input quantized in each run, writes int32, and "
        "fuses with neither bias nor activation, so it may be slower than float: placer optimize "
        "replaces it and places pairs with calibrated ranges"
    )
