"""Scales that TensorRT refuses: their values, number and types, and those of Q and DQ."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto

from placer.common.listed import listed
from placer.model.passes.early_axes import FIRST_WITH_AXIS
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE
from placer.model.quantized.scales import type_name
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.pair_graph import FP4_QUANTIZER, PairGraph
from placer.model.tensorrt_pairs.scale_axes import check_axis

_EQUAL = 1e-3  # Scales of two halves that differ by less are written with other digits.
_SCALES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
# What Q reads and its scale, which the builder takes for INT8 and not for FP8; what DQ writes.
MIXED = {(TensorProto.FLOAT, half) for half in (TensorProto.FLOAT16, TensorProto.BFLOAT16)}


def check_scale(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """The scales of a Q or DQ."""
    scale = graph.array(node.input[1])
    if scale is None and _is_scaled_scale(graph, node):
        return
    if scale is None:
        reason = "its scale is computed at run time, but TensorRT documents only constant ones"
        yield finding(node, "undocumented", reason, "calibrate a scale")
        return
    yield from _check_values(graph, node, scale)
    if scale.size > 1 and graph.opset < FIRST_WITH_AXIS and not node.domain:
        reason = f"it has {scale.size} scales, which ONNX has from opset {FIRST_WITH_AXIS} on"
        fix = f"export the model with opset {FIRST_WITH_AXIS} or later"
        yield finding(node, "undocumented", reason, fix)
    yield from _check_type(graph, node)
    yield from check_axis(graph, node, scale.size)
    if scale.size > 1 and not graph.is_constant(node.input[0]):
        reason = f"it has {scale.size} scales, which TensorRT documents for constants only"
        yield finding(node, "undocumented", reason, "give the activation one scale")


def check_halves(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """A DQ with another scale than its Q: it writes a multiple of what that reads."""
    quantizer = graph.producer(node.input[0])
    if quantizer is None or quantizer.op_type not in QUANTIZE:
        return
    scales = graph.array(quantizer.input[1]), graph.array(node.input[1])
    if any(scale is None or scale.size != 1 for scale in scales):
        return
    given, taken = (float(scale.item()) for scale in scales if scale is not None)
    are_scales = all(0 < scale < math.inf for scale in (given, taken))
    if are_scales and not math.isclose(given, taken, rel_tol=_EQUAL):
        reason = (
            f"its scale is {taken:g}, that of its QuantizeLinear '{quantizer.name}' {given:g}, "
            f"which multiplies by {taken / given:g}"
        )
        yield finding(node, "undocumented", reason, "give both one scale")


def _check_values(graph: PairGraph, node: NodeProto, scale: np.ndarray) -> Iterator[Finding]:
    values = scale.astype(np.float32)
    if np.isposinf(values).any():
        reason = "its scale is infinite, which makes NaN of every value"
        yield finding(node, "altered", reason, "calibrate again with other data")
    elif not (values > 0).all():
        reason = f"its scale is {float(scale.min()):g}, but TensorRT takes positive ones only"
        yield finding(node, "refused", reason, _fix_of_values(graph, node, values))


def _fix_of_values(graph: PairGraph, node: NodeProto, values: np.ndarray) -> str:
    """Calibration gives scales of activations; those of a constant come from the constant."""
    is_negative = bool((values < 0).any())
    if graph.is_constant(node.input[0]):
        where = _channels_without_scale(values)
        if is_negative:
            return f"quantize {where} again with positive scales"
        return f"give {where} any positive scale"
    return f"calibrate again{': a scale is never negative' if is_negative else ' with other data'}"


def _channels_without_scale(scale: np.ndarray) -> str:
    """In words; such a channel of a pruned or dead filter holds zeros only."""
    channels = np.flatnonzero(~(scale.ravel() > 0)).tolist()
    if scale.size == 1:
        return "the constant"
    return f"channel{'s' if len(channels) > 1 else ''} {listed(channels)} of the constant"


def _check_type(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """FP8 of float32 by scales of half precision (Model-Optimizer issue 118); MX scales."""
    given = graph.types.get(node.input[0])
    scale = graph.constants[node.input[1]].data_type
    is_float8 = graph.quantized_type(node) == TensorProto.FLOAT8E4M3FN
    if scale not in _SCALES:
        reason = f"its scale is of type {type_name(scale)}, which TensorRT does not read"
        fix = "give it scales of float32 or float16"
        if scale == TensorProto.FLOAT8E8M0:
            fix = "export it with TRT_MXFP8DequantizeLinear, which reads such scales"
        yield finding(node, "refused", reason, fix)
    elif node.op_type in QUANTIZE and is_float8 and (given, scale) in MIXED:
        reason = f"it quantizes float to FP8 with a scale of {type_name(scale)}"
        yield finding(node, "refused", reason, "give the scale the type of the tensor")


def _is_scaled_scale(graph: PairGraph, node: NodeProto) -> bool:
    """Whether the scales of ``node`` have a scale themselves, as FP4's do.

    So NVIDIA's exporter writes NVFP4: a scale in FP8 for each block, and one for the tensor.
    Those of weights are constants, those of activations TRT_FP4DynamicQuantize computes.
    """
    writer = graph.producer(node.input[1])
    return (
        _is_float4(graph, node)
        and writer is not None
        and writer.op_type in DEQUANTIZE
        and all(_is_given(graph, tensor) for tensor in writer.input if tensor)
    )


def _is_float4(graph: PairGraph, node: NodeProto) -> bool:
    quantizer = graph.producer(node.input[0])
    is_dynamic = quantizer is not None and quantizer.op_type == FP4_QUANTIZER
    return is_dynamic or graph.quantized_type(node) == TensorProto.FLOAT4E2M1


def _is_given(graph: PairGraph, tensor: str) -> bool:
    """Whether ``tensor`` is a constant, or a scale that NVFP4's quantizer computes."""
    writer = graph.producer(tensor)
    is_computed = writer is not None and writer.op_type == FP4_QUANTIZER
    return tensor in graph.constants or is_computed
