"""Pairs that TensorRT's parser takes, and for which a version of its builder had no kernel.

"Could not find any implementation for node", it says then. Each is known from one build, which the
finding names: other versions and GPUs may build the same file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnx import NodeProto, TensorProto

from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, input_at, integer
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.pair_graph import PairGraph

_FEW_CHANNELS = 4  # Of an image: kernels of their own read it.
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
    relu = _only_reader(graph, _only_reader(graph, node, DEQUANTIZE), {"Relu"})
    pair = _only_reader(graph, relu, QUANTIZE)
    pool = _only_reader(graph, _only_reader(graph, pair, DEQUANTIZE) or relu, {"MaxPool"})
    if relu is None or pool is None or not _is_fused(graph, pool):
        return
    reason = (
        f"it lies between Conv '{conv.name}' and Relu '{relu.name}', which TensorRT makes one "
        f"kernel with MaxPool '{pool.name}': 10.16 found no implementation of that on an RTX 3080"
    )
    yield finding(node, "reported", reason, "take this pair out")


def _wide_fp8(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """FP8 before a Conv of an image with a large window, as ResNets have (TensorRT issue 3987)."""
    if graph.quantized_type(node) != TensorProto.FLOAT8E4M3FN:
        return
    pair = _only_reader(graph, node, DEQUANTIZE)
    conv = _only_reader(graph, pair, {"Conv"})
    if pair is None or conv is None or conv.input[0] != pair.output[0]:
        return
    is_wide = math.prod(_weight(graph, conv)[2:]) > _LARGEST_WINDOW
    if is_wide and _reads_image(graph, conv):
        reason = (
            f"Conv '{conv.name}' reads an image in FP8 with a large window, for which TensorRT "
            "10.2 found no implementation on an H100"
        )
        yield finding(node, "reported", reason, "keep this Conv in float or INT8")


def _reads_image(graph: PairGraph, node: NodeProto) -> bool:
    """Whether ``node`` is a Conv of few channels with pairs on both of its operands."""
    if node.op_type != "Conv":
        return False
    writers = [graph.producer(tensor) for tensor in node.input[:2]]
    weight, group = _weight(graph, node), integer(node, "group", 1)
    is_image = len(weight) > 2 and weight[1] * group <= _FEW_CHANNELS
    return is_image and all(one is not None and one.op_type in DEQUANTIZE for one in writers)


def _weight(graph: PairGraph, conv: NodeProto) -> Sequence[int]:
    """Dimensions of the constant weight of ``conv`` behind its pair; none where it has none."""
    pair = graph.producer(input_at(conv, 1))
    constant = graph.constants.get(graph.source(pair)) if pair is not None else None
    return [] if constant is None else list(constant.dims)


def _is_fused(graph: PairGraph, pool: NodeProto) -> bool:
    """Whether ``pool`` is known to join a Conv: all of its readers are quantized."""
    window = next((list(a.ints) for a in pool.attribute if a.name == "kernel_shape"), [])
    read = {one.op_type for one in graph.readers(pool.output[0])}
    return window == _FUSED_WINDOW and bool(read) and read <= QUANTIZE


def _only_reader(
    graph: PairGraph, node: NodeProto | None, ops: frozenset[str] | set[str]
) -> NodeProto | None:
    """The reader of what ``node`` writes if it is the only one and of ``ops``."""
    readers = graph.readers(node.output[0]) if node is not None else []
    return readers[0] if len(readers) == 1 and readers[0].op_type in ops else None
