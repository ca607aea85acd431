"""What TensorRT 8 refuses of pairs that later versions take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from placer.common.listed import in_quotes
from placer.graph.edit import every_node
from placer.graph.weights import CONV_OPS, channel_axis, is_depthwise
from placer.model.passes.constant_nodes import constant_of
from placer.model.quantized.operators import DEQUANTIZE, input_at, integer
from placer.model.tensorrt_pairs.older_kernels import refused_kernels
from placer.model.tensorrt_pairs.pair_graph import MOVES, PairGraph

_OP = "ConvTranspose"
# What stands between the product of an attention and its mask.
_SCALES = frozenset({"Mul", "Div", "Add", "Sub"})
_INTEGERS = (TensorProto.INT8, TensorProto.UINT8)


def refused_by_tensorrt_8(proto: ModelProto, path: Path) -> str:
    """Sentences on the nodes of ``proto`` that TensorRT 8 refuses; empty without any.

    ``proto``: flat, without Constant nodes, as ``check_pairs`` leaves it; ``path``: its file.
    """
    graph = PairGraph(proto, path.parent, path)
    said = (
        _along_outputs(graph),
        _shown(graph),
        refused_kernels(graph),
        _taken_apart(graph),
        _masked(graph),
    )
    return ". ".join(filter(None, said))


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
        f"TensorRT 8.4 refuses {in_quotes(found)}: Identities of 8-bit constants, as exporters "
        "write them for shared zero points. Fold constants (polygraphy surgeon sanitize "
        "--fold-constants), or use placer import, which takes them out"
    )


def _shown(graph: PairGraph) -> str:
    """What is said of Convs whose quantized weight is a graph output, too.

    "Could not fuse 2nd input (kernel weights) of CONVOLUTION", says TensorRT 8.2 (issue 1864), and
    TensorRT-RTX 1.7.1 quantizes such a weight in every run.
    """
    found = []
    for node in graph.nodes:
        is_conv = node.op_type in CONV_OPS
        pair = graph.written_by(input_at(node, 1), DEQUANTIZE) if is_conv else None
        if pair is not None and graph.outputs.intersection((pair.output[0], pair.input[0])):
            found.append(str(node.name))
    if not found:
        return ""
    return (
        f"The quantized weights of {in_quotes(found)} are graph outputs, so TensorRT 8 cannot fuse "
        "them, and TensorRT-RTX quantizes them in every run. Take them out of the outputs"
    )


def _taken_apart(graph: PairGraph) -> str:
    """What is said of Gathers that take queries, keys and values out of one quantized tensor.

    A DeiT's builder found Q and DQ that do not belong together (TensorRT issue 2323, 8.4); with
    three products in the place of one it did not.
    """
    parts: dict[tuple[str, int], list[NodeProto]] = {}
    for node in graph.nodes:
        if node.op_type == "Gather" and _is_part(graph, node):
            parts.setdefault((node.input[0], integer(node, "axis")), []).append(node)
    several = [some for some in parts.values() if _takes_several(graph, some)]
    found = [str(node.name) for some in several for node in some]
    if not found:
        return ""
    return (
        f"TensorRT 8.4 may refuse {in_quotes(found)}: Gathers that take parts, such as queries, "
        "keys and values, out of a quantized tensor. For that version, take out the pair before "
        "them and put pairs before what reads the parts"
    )


def _masked(graph: PairGraph) -> str:
    """What is said of Wheres that mask an attention whose first product has pairs (issue 2616)."""
    found = [
        str(node.name)
        for node in graph.nodes
        if node.op_type == "Where"
        and graph.only_reader(node.output[0], {"Softmax"}) is not None
        and any(_is_scored_by_pairs(graph, tensor) for tensor in node.input[1:])
    ]
    if not found:
        return ""
    return (
        f"TensorRT 8.5.1 may stop at {in_quotes(found)}: a Where that masks an attention with "
        'pairs ("DCHECK(opnd->is_data()) failed"). 8.5.3 and 8.6 build it'
    )


def _is_scored_by_pairs(graph: PairGraph, tensor: str) -> bool:
    """Whether ``tensor`` is a product of two tensors that DQs write, scaled and shifted or not."""
    waiting, seen = [tensor], set[str]()
    while waiting:
        name = waiting.pop()
        writer = graph.producer(name)
        if writer is None or name in seen:
            continue
        seen.add(name)
        if writer.op_type == "MatMul" and all(_is_paired(graph, read) for read in writer.input):
            return True
        if writer.op_type in _SCALES:
            waiting += writer.input
    return False


def _is_paired(graph: PairGraph, tensor: str) -> bool:
    """Whether a DQ writes ``tensor``, as it is or moved, of what is no constant."""
    writer = graph.producer(tensor)
    while writer is not None and writer.op_type in MOVES:
        writer = graph.producer(writer.input[0])
    is_paired = writer is not None and writer.op_type in DEQUANTIZE
    return is_paired and not graph.is_constant(tensor)


def _takes_several(graph: PairGraph, gathers: Sequence[NodeProto]) -> bool:
    """Whether ``gathers`` take several slices of one tensor; one alone is a class token or so."""
    indices = [graph.array(node.input[1]) for node in gathers]
    return len({int(index) for index in indices if index is not None}) > 1


def _is_part(graph: PairGraph, node: NodeProto) -> bool:
    """Whether the Gather ``node`` takes one slice of what a DQ writes, as it is or moved."""
    index = graph.constants.get(node.input[1])
    return index is not None and not index.dims and _is_paired(graph, node.input[0])


def _along_outputs(graph: PairGraph) -> str:
    """What is said of a ConvTranspose whose scales lie along its output channels.

    TensorRT 8 wants them along axis 0, its input channels (TensorRT issues 1519, 1694 and 2380),
    and later ones along its output channels, as NVIDIA's exporter for ONNX. With one scale for all,
    neither matters.
    """
    found = []
    for node in graph.nodes:
        pair = graph.written_by(input_at(node, 1), DEQUANTIZE) if node.op_type == _OP else None
        if pair is None:
            continue
        weight = graph.quantized_weight(node)
        scales = graph.constants.get(pair.input[1])
        axis = integer(pair, "axis", 1)
        is_along = axis + len(weight) * (axis < 0) == channel_axis(_OP, len(weight))
        is_single = is_depthwise(weight, integer(node, "group", 1))
        if is_along and not is_single and scales is not None and math.prod(scales.dims) > 1:
            found.append(str(node.name))
    if not found:
        return ""
    return (
        "TensorRT 8 takes scales of a ConvTranspose along axis 0 alone; those of "
        f"{in_quotes(found)} lie along axis 1, where TensorRT 10 wants them. For TensorRT 8, give "
        "the weight one scale"
    )
