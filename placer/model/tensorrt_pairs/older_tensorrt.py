"""What TensorRT 8 refuses of pairs that later versions take."""

from __future__ import annotations

import math

from onnx import ModelProto, TensorProto

from placer.common.listed import in_quotes
from placer.graph.edit import every_node
from placer.graph.weights import CONV_OPS, channel_axis, is_depthwise
from placer.model.passes.constant_nodes import constant_of
from placer.model.quantized.operators import DEQUANTIZE, input_at, integer
from placer.model.tensorrt_pairs.older_kernels import refused_kernels

_OP = "ConvTranspose"
_INTEGERS = (TensorProto.INT8, TensorProto.UINT8)


def refused_by_tensorrt_8(proto: ModelProto) -> str:
    """A sentence on the nodes of ``proto`` that TensorRT 8 refuses; empty without any."""
    return "; ".join(filter(None, (_along_outputs(proto), _shown(proto), refused_kernels(proto))))


def moved_by_identities(proto: ModelProto) -> str:
    """A sentence on Identities of integers in ``proto``, as it was read; empty without any.

    PyTorch shares zero points so. "Invalid weights type of Int8", says TensorRT 8.4 of such an
    Identity (issues 2163 and 2361, yolo_deepstream issue 64).
    """
    nodes = list(every_node(proto.graph.node))
    stored = {t.name for t in proto.graph.initializer if t.data_type in _INTEGERS}
    for node in nodes:
        constant = constant_of(node)
        if constant is not None and constant.data_type in _INTEGERS:
            stored.add(node.output[0])
    found = [n.name for n in nodes if n.op_type == "Identity" and n.input[0] in stored]
    if not found:
        return ""
    return (
        f"TensorRT 8.4 refuses {in_quotes(found)} (Identity), which read 8-bit constants, as where "
        "exporters share zero points: fold constants (polygraphy surgeon sanitize "
        "--fold-constants); placer import takes them out"
    )


def _shown(proto: ModelProto) -> str:
    """What is said of Convs whose quantized weight is a graph output, too.

    "Could not fuse 2nd input (kernel weights) of CONVOLUTION", says TensorRT 8.2 (issue 1864), and
    TensorRT-RTX 1.7.1 quantizes such a weight in every run.
    """
    nodes = list(every_node(proto.graph.node))
    producer = {tensor: node for node in nodes for tensor in node.output}
    outputs, found = {value.name for value in proto.graph.output}, []
    for node in nodes:
        pair = producer.get(input_at(node, 1)) if node.op_type in CONV_OPS else None
        if pair is None or pair.op_type not in DEQUANTIZE:
            continue
        if outputs.intersection((pair.output[0], pair.input[0])):
            found.append(str(node.name))
    if not found:
        return ""
    return (
        f"the quantized weights of {in_quotes(found)} are graph outputs, so TensorRT 8 cannot fuse "
        "them, and TensorRT-RTX quantizes them in every run: take them out of the outputs"
    )


def _along_outputs(proto: ModelProto) -> str:
    """What is said of a ConvTranspose whose scales lie along its output channels.

    TensorRT 8 wants them along axis 0, its input channels (TensorRT issues 1519, 1694 and 2380),
    and later ones along its output channels, as NVIDIA's exporter for ONNX. With one scale for all,
    neither matters.
    """
    sizes = {t.name: math.prod(t.dims) for t in proto.graph.initializer}
    dims = {t.name: list(t.dims) for t in proto.graph.initializer}
    nodes = list(every_node(proto.graph.node))
    producer = {tensor: node for node in nodes for tensor in node.output}
    found = []
    for node in nodes:
        pair = producer.get(node.input[1]) if node.op_type == _OP else None
        if pair is None or pair.op_type not in DEQUANTIZE:
            continue
        writer = producer.get(pair.input[0])
        source = pair.input[0] if writer is None else input_at(writer, 0)
        weight = dims.get(source, [])
        axis = integer(pair, "axis", 1)
        is_along = axis + len(weight) * (axis < 0) == channel_axis(_OP, len(weight))
        is_single = is_depthwise(weight, integer(node, "group", 1))
        if is_along and not is_single and sizes.get(pair.input[1], 1) > 1:
            found.append(str(node.name))
    if not found:
        return ""
    return (
        f"TensorRT 8 takes scales of a ConvTranspose along axis 0 alone, and {in_quotes(found)} "
        "has them along axis 1, as TensorRT 10 wants them: there, give the weight one scale"
    )
