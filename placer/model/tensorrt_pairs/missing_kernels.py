"""Pairs that TensorRT's parser takes, and for which a version of its builder had no kernel.

"Could not find any implementation for node", it says then. Each is known from one build, which the
finding names: other versions and GPUs may build the same file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from onnx import NodeProto, TensorProto

from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, integer
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.pair_graph import PairGraph, reads_image

_FUSED_WINDOW = [3, 3]  # Of the pools that are known to be in the kernel of such a Conv.
_LARGEST_WINDOW = 32  # Places of a Conv's window for which there is an FP8 kernel.


def check_kernels(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """What is known of the Q ``node``; nothing of nodes that are none."""
    yield from _before_activation(graph, node)
    yield from _wide_fp8(graph, node)


def _before_activation(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """A pair between the Conv of an image and the Relu of the MaxPool that joins both.

    A ResNet50 with ONNX Runtime's symmetric pairs (TensorRT 10.16, RTX 3080; case D of
    experiments/stage3_tensorrt in yyshin-katech/embedded-ai-quantization-guide). With a pair behind
    the Relu alone there is such a kernel (11.1, RTX 5090; jcf94/TRT_ConvActPool_Reverse).
    """
    conv = graph.producer(node.input[0])
    if conv is not None and conv.op_type == "BatchNormalization":
        conv = graph.producer(conv.input[0])
    if conv is None or not _reads_image(graph, conv):
        return
    relu = _read_by(graph, _read_by(graph, node, DEQUANTIZE), {"Relu"})
    pair = _read_by(graph, relu, QUANTIZE)
    pool = _read_by(graph, _read_by(graph, pair, DEQUANTIZE) or relu, {"MaxPool"})
    if relu is None or pool is None or not _is_fused(graph, pool):
        return
    reason = (
        f"it stands between Conv '{conv.name}' and Relu '{relu.name}', which TensorRT fuses with "
        f"MaxPool '{pool.name}'; TensorRT 10.16 had no kernel for that on an RTX 3080"
    )
    yield finding(node, "reported", reason, "take this pair out")


def _wide_fp8(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """FP8 before a Conv of an image with a large window, as ResNets have (TensorRT issue 3987)."""
    if graph.quantized_type(node) != TensorProto.FLOAT8E4M3FN:
        return
    pair = _read_by(graph, node, DEQUANTIZE)
    conv = _read_by(graph, pair, {"Conv"})
    if pair is None or conv is None or conv.input[0] != pair.output[0]:
        return
    is_wide = math.prod(graph.quantized_weight(conv)[2:]) > _LARGEST_WINDOW
    if is_wide and _reads_image(graph, conv):
        reason = (
            f"Conv '{conv.name}' reads an image in FP8 and has a large window; TensorRT 10.2 had "
            "no kernel for that on an H100"
        )
        yield finding(node, "reported", reason, "keep this Conv in float or INT8")


def _reads_image(graph: PairGraph, node: NodeProto) -> bool:
    """Whether ``node`` is a Conv of an image with pairs on both of its operands."""
    if node.op_type != "Conv" or graph.written_by(node.input[0], DEQUANTIZE) is None:
        return False
    return reads_image(graph.quantized_weight(node), integer(node, "group", 1))


def _is_fused(graph: PairGraph, pool: NodeProto) -> bool:
    """Whether ``pool`` is known to join a Conv: all of its readers are quantized."""
    window = next((list(a.ints) for a in pool.attribute if a.name == "kernel_shape"), [])
    read = {one.op_type for one in graph.readers(pool.output[0])}
    return window == _FUSED_WINDOW and bool(read) and read <= QUANTIZE


def _read_by(graph: PairGraph, node: NodeProto | None, ops: Collection[str]) -> NodeProto | None:
    """The only reader of what ``node`` writes, if it is of ``ops``."""
    return None if node is None else graph.only_reader(node.output[0], ops)
