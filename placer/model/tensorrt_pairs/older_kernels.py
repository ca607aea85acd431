"""Quantized convolutions for which builders of TensorRT 8 had no kernel, by users' reports.

"Could not find any implementation for node", they said of what later versions build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from placer.common.listed import in_quotes
from placer.graph.weights import CONV_OPS, is_depthwise
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, integer
from placer.model.tensorrt_pairs.pair_graph import PairGraph, reads_image

_LEAST_IN_GROUP = 4  # Output channels of a ConvTranspose, "at least 4 times groups number".
_MULTIPLE = 4  # Of the channels in each group of a Conv.
_LARGE_WINDOW = 16  # Places along a side, of the patches of a ViT.
_RANK_3D = 5


@dataclass(frozen=True)
class _Conv:
    """A convolution with pairs on both operands: ``dims`` of its weight, ``output``: behind BN."""

    graph: PairGraph
    node: NodeProto
    dims: Sequence[int]
    group: int
    output: str


def refused_kernels(graph: PairGraph) -> str:
    """Sentences on the convolutions of ``graph`` without a kernel in TensorRT 8; else empty."""
    convs = [conv for node in graph.nodes if (conv := _quantized(graph, node)) is not None]
    said = []
    for is_refused, sentence in _REPORTED:
        names = [str(conv.node.name) for conv in convs if is_refused(conv)]
        if names:
            said.append(sentence.format(in_quotes(names)))
    return ". ".join(said)


def _quantized(graph: PairGraph, node: NodeProto) -> _Conv | None:
    if node.op_type not in CONV_OPS or graph.written_by(node.input[0], DEQUANTIZE) is None:
        return None
    dims = graph.quantized_weight(node)
    if not dims:
        return None
    output = str(node.output[0])
    norm = graph.only_reader(output, {"BatchNormalization"})
    if norm is not None:
        output = str(norm.output[0])
    return _Conv(graph, node, dims, integer(node, "group", 1), output)


def _adds(conv: _Conv) -> bool:
    """A depthwise Conv that adds a float branch, which no Conv writes that could add it instead.

    Model-Optimizer issue 50 (8.6.1, a YOLOv10; fixed in 10) and TensorRT issue 3579 (the last Conv
    of MobileNeXt's blocks; a MobileNetV2, whose depthwise Convs add nothing, was built).
    """
    add = conv.graph.only_reader(conv.output, {"Add"})
    if not is_depthwise(conv.dims, conv.group) or add is None:
        return False
    other = next((tensor for tensor in add.input if tensor != conv.output), "")
    behind = conv.graph.written_by(other, {"BatchNormalization"})
    source = other if behind is None else behind.input[0]
    is_float = conv.graph.written_by(source, CONV_OPS | DEQUANTIZE) is None
    return is_float and conv.graph.producer(source) is not None


def _few_in_group(conv: _Conv) -> bool:
    """TensorRT issues 1934 (8.0, 8.4), 1556 and 2280 (8.2, 8.4; built by 8.5)."""
    is_up = conv.node.op_type == "ConvTranspose"
    return is_up and conv.group > 1 and conv.dims[1] < _LEAST_IN_GROUP


def _of_odd_depth(conv: _Conv) -> bool:
    """Depthwise, with channels that are not a multiple of 4 (TensorRT issue 1556, fixed in 8.5)."""
    is_single = conv.node.op_type == "Conv" and is_depthwise(conv.dims, conv.group)
    return is_single and conv.group % _MULTIPLE > 0


def _in_small_groups(conv: _Conv) -> bool:
    """NvInfer.h asks for groups of a multiple of 4 channels in INT8 (setNbGroups).

    Of depthwise Convs TensorRT has kernels of their own.
    """
    is_single = conv.group == 1 or is_depthwise(conv.dims, conv.group)
    if conv.node.op_type != "Conv" or is_single:
        return False
    return any(count % _MULTIPLE for count in (conv.dims[1], conv.dims[0] // conv.group))


def _in_3d(conv: _Conv) -> bool:
    """TensorRT issues 1726 (8.2.2) and 2125 (8.2.5)."""
    return conv.node.op_type == "Conv" and len(conv.dims) == _RANK_3D


def _of_patches(conv: _Conv) -> bool:
    """TensorRT issue 3139 (8.6.1, patches of 16) and Torch-TensorRT issue 2101 (patches of 32)."""
    is_image = conv.node.op_type == "Conv" and reads_image(conv.dims, conv.group)
    read = {node.op_type for node in conv.graph.readers(conv.output)}
    return is_image and min(conv.dims[2:], default=0) >= _LARGE_WINDOW and not read & QUANTIZE


def _before_pool(conv: _Conv) -> bool:
    """With its BatchNormalization right before a MaxPool (TensorRT issue 2030, 8.2.2)."""
    is_normalized = conv.output != conv.node.output[0]
    return is_normalized and conv.graph.only_reader(conv.output, {"MaxPool"}) is not None


_REPORTED: Sequence[tuple[Callable[[_Conv], bool], str]] = (
    (
        _adds,
        "TensorRT 8.6 cannot build {}: a depthwise Conv with pairs to which a float branch is "
        "added. For that version, quantize the branch, too, or keep the Conv in float",
    ),
    (
        _few_in_group,
        "TensorRT before 8.5 cannot build {}: a ConvTranspose with pairs and fewer than 4 output "
        "channels in each group. For these versions, keep it in float",
    ),
    (
        _of_odd_depth,
        "TensorRT before 8.5 may have no INT8 kernel for {}: a depthwise Conv whose number of "
        "channels is not a multiple of 4. Keep it in float if the build fails",
    ),
    (
        _in_small_groups,
        "TensorRT 8 may have no INT8 kernel for {}: a Conv with groups whose number of channels is "
        "not a multiple of 4. Keep it in float if the build fails",
    ),
    (
        _in_3d,
        "TensorRT 8.2 cannot build {}: a 3-D Conv with pairs. For that version, keep it in float",
    ),
    (
        _of_patches,
        "TensorRT 8.6 cannot build {}: a Conv with pairs that cuts an image into large patches and "
        "writes float. For that version, keep it in float",
    ),
    (
        _before_pool,
        "TensorRT 8.2 may fail in an assertion (isPolymorphic) over {}: a Conv with pairs whose "
        "BatchNormalization a MaxPool reads as it is. For that version, put a pair before the "
        "MaxPool, as NVIDIA advises",
    ),
)
