"""Number formats of Q and DQ that TensorRT refuses or reads differently, and zero points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from onnx import NodeProto, TensorProto

from placer.graph.weights import BIAS_INDEX, CONV_OPS, WEIGHTED_OPS
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, input_at, integer
from placer.model.quantized.scales import type_name
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.pair_graph import PairGraph
from placer.model.tensorrt_pairs.scales import MIXED

# Quantized types that the parser reads; of those of 4 bits, which only weights have, no uint4.
_TYPES = frozenset(
    {
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.INT4,
        TensorProto.FLOAT4E2M1,
    }
)
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
# What ONNX's Q reads.
_FLOATS = _HALVES | {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32}
# The opset from which QuantizeLinear and DequantizeLinear have a type.
_FIRST_OPSETS: Mapping[int, int] = {
    TensorProto.FLOAT8E4M3FN: 19,
    TensorProto.INT4: 21,
    TensorProto.FLOAT4E2M1: 23,
}
_FIRST_WITH_HALVES = 19
_FIRST_WITH_BLOCKS = 21


def check_opset(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """Types and blocks that ONNX had not yet: ONNX Runtime refuses such a file."""
    if node.domain:
        return
    dtype = graph.quantized_type(node)
    what, first = type_name(dtype), _FIRST_OPSETS.get(dtype, 0)
    scale = graph.constants.get(node.input[1])
    if scale is not None and scale.data_type in _HALVES and first < _FIRST_WITH_HALVES:
        what, first = f"a scale of {type_name(scale.data_type)}", _FIRST_WITH_HALVES
    if integer(node, "block_size", 0) and first < _FIRST_WITH_BLOCKS:
        what, first = "scales of blocks", _FIRST_WITH_BLOCKS
    if graph.opset < first:
        reason = f"it has {what}, which ONNX has from opset {first} on"
        fix = f"export the model with opset {first} or later"
        yield finding(node, "undocumented", reason, fix)


def check_dequantized(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """What a DQ reads."""
    source = node.input[0]
    constant = graph.constants.get(source)
    made, scale = graph.types.get(node.output[0], 0), graph.types.get(node.input[1], 0)
    if (made, scale) in MIXED:
        reason = f"it writes {type_name(made)} by a scale of {type_name(scale)}"
        # TensorRT issue 4832: it built such a file for Thor and not for Orin.
        fix = "give both one type, as TensorRT 10.16 builds this for some GPUs and not for others"
        yield finding(node, "undocumented", reason, fix)
    yield from _check_readers(graph, node, made)
    dtype = constant.data_type if constant is not None else graph.input_types.get(source)
    given, point = graph.types.get(source, 0), graph.types.get(input_at(node, 2), 0)
    if 0 not in (given, point) and given != point:
        reason = (
            f"it reads {type_name(given)} with a zero point of {type_name(point)}, which ONNX does "
            "not allow and ONNX Runtime refuses"
        )
        yield finding(node, "undocumented", reason, "give both one type")
    if graph.types.get(source) == TensorProto.INT32:
        writer = graph.producer(source)
        is_bias = constant is not None or _is_bias(graph, node.output[0])
        fix = "keep the bias float" if is_bias else "quantize to int8"
        if writer is not None and writer.op_type in QUANTIZE:
            # As PPQ writes biases. TensorRT-RTX 1.7 builds it, but with which steps is not known.
            reason = "it reads int32 of a Q, which ONNX does not allow and ONNX Runtime refuses"
            yield finding(node, "undocumented", reason, fix)
        else:
            yield finding(
                node, "refused", "it reads int32, which TensorRT does not dequantize", fix
            )
    elif dtype == TensorProto.UINT8:
        reason = "it reads uint8, which TensorRT does not take"
        yield finding(node, "refused", reason, "store int8 values")
    elif constant is not None and not constant.dims:
        reason = "it reads a quantized scalar, but TensorRT dequantizes tensors only"
        yield finding(node, "refused", reason, "keep the scalar float")


def _check_readers(graph: PairGraph, node: NodeProto, made: int) -> Iterator[Finding]:
    """Products of a DQ, which writes ``made``, and of another type (Model-Optimizer PR 2314).

    Said of a weight or bias, or of the first operand if no DQ writes the other one.
    """
    tensor = node.output[0]
    for reader in graph.readers(tensor):
        if not made or reader.op_type not in WEIGHTED_OPS:
            continue
        first, bias = reader.input[0], input_at(reader, BIAS_INDEX)
        others = [first] if first != tensor else list(filter(None, reader.input[1:]))
        plain = [t for t in others if t == first or not _is_dequantized(graph, t)]
        other = next((t for t in plain if graph.types.get(t, 0) not in {0, made}), "")
        if other:
            dtype = type_name(graph.types[other])
            does = "adds that to" if bias in (tensor, other) else "multiplies that by"
            reason = (
                f"it writes {type_name(made)}, as its scale is, and {reader.op_type} "
                f"'{reader.name}' {does} {dtype}"
            )
            fix = f"give its scale the type {dtype}"
            if other == bias:
                fix = f"give the bias '{bias}' the type {type_name(made)}"
            yield finding(node, "refused", reason, fix)
            return


def _is_dequantized(graph: PairGraph, tensor: str) -> bool:
    writer = graph.producer(tensor)
    return writer is not None and writer.op_type in DEQUANTIZE


def check_quantized(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """What a Q reads, which is to be floats."""
    writer = graph.producer(node.input[0])
    given = graph.types.get(node.input[0], 0)
    if writer is not None and writer.op_type in QUANTIZE:
        reason = f"it reads the integers that node '{writer.name}' writes"
    elif given not in {0, *_FLOATS}:
        reason = f"it reads {type_name(given)}, not floats"
    else:
        return
    yield finding(node, "refused", reason, "take this node out")


def check_format(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """The quantized type of a Q or DQ and its zero point."""
    zero_point = graph.array(node.input[2]) if len(node.input) > 2 else None
    dtype = graph.quantized_type(node)
    given = integer(node, "output_dtype", 0)
    if zero_point is None and input_at(node, 2):
        reason = "its zero point is computed at run time, but TensorRT takes constant zeros only"
        yield finding(node, "refused", reason, "give it a constant zero point of 0")
    if node.op_type in QUANTIZE and given not in {0, dtype}:
        reason = f"it writes {type_name(given)} by a zero point of {type_name(dtype)}"
        yield finding(node, "refused", reason, "give both one type")
    if dtype not in _TYPES and dtype != TensorProto.INT32:
        reason = f"TensorRT does not read {type_name(dtype)}"
        is_bias = _is_bias(graph, node.output[0])
        fix = "keep the bias float" if is_bias else "quantize to int8 or float8e4m3fn"
        yield finding(node, "refused", reason, fix)
    elif zero_point is not None and np.any(zero_point.astype(np.float32)):
        shown = int(zero_point.ravel()[np.abs(zero_point.ravel().astype(np.int64)).argmax()])
        reason = f"its zero point is {shown}, but TensorRT takes symmetric quantization only"
        yield finding(node, "refused", reason, "quantize symmetrically")
    elif dtype == TensorProto.UINT8 and node.op_type in QUANTIZE:
        reason = "TensorRT builds it as int8, so that values above 127 * scale saturate"
        fix = "quantize to int8 with the scale of the largest value"
        yield finding(node, "altered", reason, fix)


def check_float4(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """NVFP4 of what a Conv reads: the builder quantizes tensors of 2 or 3 dimensions alone.

    Model-Optimizer's issues 160 and 614. Of scales in half precision, TensorRT 10.13 says that they
    must be FP32 (Torch-TensorRT issue 4196), and TensorRT-RTX 1.7 takes them.
    """
    scale = graph.types.get(node.input[1], 0)
    if scale in _HALVES:
        reason = f"its scale is of type {type_name(scale)}, and TensorRT 10 takes float32 alone"
        yield finding(node, "undocumented", reason, "give it a scale of float32", imported=False)
    halves = [half for half in graph.readers(node.output[0]) if half.op_type in DEQUANTIZE]
    readers = [reader for half in halves for reader in graph.readers(half.output[0])]
    conv = next((reader for reader in readers if reader.op_type in CONV_OPS), None)
    if conv is not None:
        reason = f"{conv.op_type} '{conv.name}' reads it, and TensorRT has no Conv in FP4"
        yield finding(node, "refused", reason, "quantize Convs to FP8 or INT8", imported=False)


def check_cast(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """A Cast between Q and DQ that makes uint8."""
    makes_uint8 = node.op_type == "Cast" and integer(node, "to") == TensorProto.UINT8
    if makes_uint8 and graph.quantizer_behind(node):
        reason = "it makes uint8, which TensorRT does not take between Q and DQ"
        yield finding(node, "refused", reason, "remove the Cast and retype the zero points")


def _is_bias(graph: PairGraph, tensor: str) -> bool:
    """Whether ``tensor`` is the bias of all that reads it, behind a DQ too."""
    readers = graph.readers(tensor)
    return bool(readers) and all(
        _is_bias(graph, reader.output[0])
        if reader.op_type in DEQUANTIZE
        else reader.op_type in WEIGHTED_OPS and tensor in reader.input[2:3]
        for reader in readers
    )
