"""Several scales of one constant: along which axis they lie, and the blocks that they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import NodeProto, TensorProto

from placer.graph.weights import WEIGHTED_OPS, channel_axis, is_depthwise
from placer.model.quantized.operators import DEQUANTIZE, integer
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.pair_graph import PairGraph


def check_axis(graph: PairGraph, node: NodeProto, count_of_scales: int) -> Iterator[Finding]:
    """Scales of a constant are to lie along the channels of the operator that reads it."""
    source = graph.source(node)
    constant = graph.constants.get(source)
    if count_of_scales == 1:
        return
    size = integer(node, "block_size", 0)
    shape = list(graph.constants[node.input[1]].dims)
    if len(shape) > 1 and not (size or _are_blocks(node, shape, constant)):
        reason = f"its scales have shape {tuple(shape)}, where one for each channel makes a list"
        yield finding(node, "refused", reason, f"reshape them to {(count_of_scales,)}")
        return
    if constant is None:
        yield from _check_activation(node, count_of_scales, graph.dims.get(source))
        return
    if size:
        yield from _check_blocks(graph, node, size, constant.dims)
        return
    axis, rank = integer(node, "axis", 1), len(constant.dims)
    place = axis % rank if -rank <= axis < rank else None
    reader, channels = _weighted(graph, node, constant.dims)
    if place is None or count_of_scales != constant.dims[place]:
        fits = channels is not None and count_of_scales == constant.dims[channels]
        fix = f"set its attribute axis to {channels}" if fits else "export it again"
        yield finding(node, "refused", _misplaced(count_of_scales, axis, constant.dims), fix)
    elif reader is not None and channels is not None and place != channels:
        in_float = ", so that TensorRT-RTX computes it in float"
        reason = (
            f"its scales lie along axis {place}, the output channels of {reader.op_type} "
            f"'{reader.name}' along axis {channels}{in_float * (reader.op_type == 'Conv')}"
        )
        # TensorRT issues 1694 and 2380, and NVIDIA's exporters for PyTorch; that for ONNX puts
        # them along the output channels.
        other = " (TensorRT 8 wants axis 0)" * (reader.op_type == "ConvTranspose")
        fix = f"quantize the weight along axis {channels}{other}"
        yield finding(node, "undocumented", reason, fix)


def _are_blocks(node: NodeProto, shape: Sequence[int], constant: TensorProto | None) -> bool:
    """Whether scales of ``shape`` are those of blocks along the axis of ``node``.

    TensorRT-RTX 1.7.1 infers the size of blocks.
    """
    if constant is None or len(shape) != len(constant.dims):
        return False
    axis = integer(node, "axis", 1) % len(shape)
    return all(
        size == whole
        for place, (size, whole) in enumerate(zip(shape, constant.dims, strict=True))
        if place != axis
    )


def _check_activation(
    node: NodeProto, count_of_scales: int, dims: Sequence[int | None] | None
) -> Iterator[Finding]:
    """Several scales of an activation of ``dims``, if they are known."""
    axis = integer(node, "axis", 1)
    if dims is None or integer(node, "block_size", 0):
        return
    is_axis = -len(dims) <= axis < len(dims)
    if not is_axis or dims[axis] not in {None, count_of_scales}:
        reason = _misplaced(count_of_scales, axis, dims)
        yield finding(node, "refused", reason, "give the activation one scale")


def _misplaced(count_of_scales: int, axis: int, dims: Sequence[int | None]) -> str:
    if not -len(dims) <= axis < len(dims):
        return f"its scales lie along axis {axis} of a tensor of {len(dims)} dimensions"
    return f"it has {count_of_scales} scales for {dims[axis]} channels of axis {axis}"


def _check_blocks(
    graph: PairGraph, node: NodeProto, size: int, dims: Sequence[int]
) -> Iterator[Finding]:
    """Scales of blocks have the shape of the constant, but for the axis that has the blocks."""
    scales, axis = list(graph.constants[node.input[1]].dims), integer(node, "axis", 1)
    shapes = {place: _blocked(dims, place, size) for place in range(len(dims))}
    wanted = shapes[axis % len(dims)] if -len(dims) <= axis < len(dims) else None
    if scales == wanted:
        return
    fitting = [place for place, shape in shapes.items() if shape == scales]
    fix = f"set its attribute axis to {fitting[0]}" if fitting else "export it again"
    takes = "has none" if wanted is None else f"takes {tuple(wanted)} in blocks of {size}"
    reason = (
        f"its scales have shape {tuple(scales)}, but axis {axis} of shape {tuple(dims)} {takes}"
    )
    yield finding(node, "refused", reason, fix)


def _blocked(dims: Sequence[int], axis: int, size: int) -> list[int]:
    """The shape of the scales of blocks of ``size`` along ``axis`` of a tensor of ``dims``."""
    return [-(-dim // size) if place == axis else dim for place, dim in enumerate(dims)]


def _weighted(
    graph: PairGraph, node: NodeProto, dims: Sequence[int]
) -> tuple[NodeProto | None, int | None]:
    """What reads the constant that ``node`` quantizes as a weight; the axis of its channels."""
    tensor = node.output[0]
    for reader in graph.readers(tensor):
        if reader.op_type in DEQUANTIZE:
            return _weighted(graph, reader, dims)
        if reader.op_type in WEIGHTED_OPS and list(reader.input[1:2]) == [tensor]:
            turned = bool(integer(reader, "transB", 0))
            is_single = is_depthwise(dims, integer(reader, "group", 1))
            if reader.op_type == "ConvTranspose" and is_single:
                return reader, 0
            return reader, channel_axis(reader.op_type, len(dims), transposed=turned)
    return None, None
