"""Which Q/DQ pairs TensorRT's parser refuses, and why, without TensorRT.

Each reason was seen on NVIDIA's builder (TensorRT-RTX 1.7) or is documented in NvInfer.h 11; the
tests hold them against that builder.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx.defs
from onnx import ModelProto, NodeProto, TensorProto

from placer.common.listed import listed
from placer.graph.edit import reads, standard_opset
from placer.graph.external_data import check_tensors, read_tensor
from placer.graph.flat import flatten
from placer.graph.operators import MICROSOFT
from placer.graph.weights import WEIGHTED_OPS, channel_axis, is_depthwise
from placer.model.check_operators import is_foreign_quantizer, is_plugin
from placer.model.normalize import infer_values, tidy_quantized
from placer.model.passes.constant_folding import fold_constants
from placer.model.passes.constant_nodes import constants_to_initializers
from placer.model.passes.early_axes import FIRST_WITH_AXIS
from placer.model.passes.fused_operators import is_fused
from placer.model.quantized.operators import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    QUANTIZE,
    integer,
    is_fake_quantize,
    is_of_amd,
)
from placer.model.quantized.restored_pairs import arithmetic_pairs
from placer.model.quantized.scales import type_name

Verdict = Literal["refused", "altered", "undocumented", "float"]

_UNKNOWN_OPERATORS = re.compile(
    r"QLinear\w+|QGemm|DynamicQuantize(Linear|MatMul|LSTM)|(MatMul|Conv)Integer|MatMulIntegerToFloat"
)
_EQUAL = 1e-3  # Scales of two halves that differ by less are written with other digits.
# Of ONNX Runtime's optimizer at its highest level.
_OF_ONE_PROCESSOR = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
# ONNX Runtime's operators that hold weights of few bits themselves.
_PACKED_WEIGHTS = re.compile(r"MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized")
# Quantized types that the parser reads, beside those of 4 bits, which only weights have. It reads
# no uint4.
_TYPES = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT8E4M3FN})
_INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8})
_SCALES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
# What Q reads and its scale, which the builder takes for INT8 and not for FP8.
_MIXED = {(TensorProto.FLOAT, half) for half in (TensorProto.FLOAT16, TensorProto.BFLOAT16)}
_FLOATS = frozenset({*_SCALES, TensorProto.DOUBLE, TensorProto.INT32})  # What ONNX's Q reads.
_SMALL_TYPES = frozenset({TensorProto.INT4, TensorProto.FLOAT4E2M1})
# Quantized constants, which the builder takes before DQ and plugins alone (TensorRT-Edge-LLM 217).
_STORED = frozenset({TensorProto.INT8, TensorProto.FLOAT8E4M3FN}) | _SMALL_TYPES
_FP4_QUANTIZER = "TRT_FP4DynamicQuantize"
# What moves the values of a constant.
_MOVES = frozenset("Clip Reshape Transpose Gather Slice Flatten Squeeze Unsqueeze Identity".split())
# The opset from which QuantizeLinear and DequantizeLinear have a type.
_FIRST_OPSETS: Mapping[int, int] = {
    TensorProto.FLOAT8E4M3FN: 19,
    TensorProto.INT4: 21,
    TensorProto.FLOAT4E2M1: 23,
}
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_FIRST_WITH_HALVES = 19
_FIRST_WITH_BLOCKS = 21


@dataclass(frozen=True)
class Finding:
    """What TensorRT makes of one Q or DQ.

    ``verdict``: ``refused``: no engine is built; ``altered``: an engine is built that computes
    something else; ``undocumented``: TensorRT's documentation rules it out, the builder seen does
    not refuse it; ``float``: no pair, so that an engine computes it in float. ``fix``: what to do.
    ``imported``: whether ``placer import`` takes it out of the file.
    """

    node: str
    op: str
    tensor: str
    verdict: Verdict
    reason: str
    fix: str
    imported: bool = True

    def __str__(self) -> str:
        """Return one sentence."""
        return f"node '{self.node}' ({self.op}) on '{self.tensor}': {self.reason}; {self.fix}"


def check_pairs(proto: ModelProto, base_dir: Path, path: Path) -> tuple[Finding, ...]:
    """Look at every node of ``proto`` that quantizes or dequantizes; uses ``proto`` up.

    Nodes in bodies of If, Loop and Scan are nodes like any other. ``base_dir`` is where external
    data lies, ``path`` is for messages.
    """
    tidy_quantized(proto)
    if flatten(proto.graph):
        constants_to_initializers(proto.graph)
    before = list(_Check(proto, base_dir, path).readers_of_constants())  # Folding removes them.
    before.extend(_arithmetic(proto, base_dir))
    values = infer_values(proto, {}, path)
    types = {name: value.type.tensor_type.elem_type for name, value in values.items()}
    fold_constants(proto, values, keep=QUANTIZE | DEQUANTIZE | FAKE_QUANTIZE)
    return (*before, *_Check(proto, base_dir, path, types).findings())


def _arithmetic(proto: ModelProto, base_dir: Path) -> Iterator[Finding]:
    reason = "Round, Clip and Mul quantize it, which TensorRT computes in float"
    for node, source in arithmetic_pairs(proto, base_dir):
        yield Finding(node.name, node.op_type, source, "float", reason, "export Q/DQ pairs")


class _Check:
    def __init__(
        self,
        proto: ModelProto,
        base_dir: Path,
        path: Path,
        types: Mapping[str, int] | None = None,
    ) -> None:
        self._nodes = list(proto.graph.node)
        self._opset = standard_opset(proto)
        self._base_dir, self._path = base_dir, path
        self._constants: Mapping[str, TensorProto] = {t.name: t for t in proto.graph.initializer}
        self._inputs = {v.name: v.type.tensor_type.elem_type for v in proto.graph.input}
        constants = {name: tensor.data_type for name, tensor in self._constants.items()}
        self._types = {**(types or {}), **self._inputs, **constants}
        self._producer = {t: node for node in self._nodes for t in node.output}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self._nodes:
            for tensor in reads(node):
                self._readers[tensor].append(node)
        halves = (node for node in self._nodes if node.op_type in DEQUANTIZE)
        self._dequantized = {node.input[0] for node in halves}

    def findings(self) -> Iterator[Finding]:
        """All findings in node order; what is wrong with Q and DQ alike is said of Q."""
        said: set[tuple[str, str]] = set()
        for node in self._nodes:
            behind = self._quantized_by(node)
            for finding in self._check(node):
                if (behind, finding.reason) not in said:
                    said.add((node.name, finding.reason))
                    yield finding

    def _check(self, node: NodeProto) -> Iterator[Finding]:
        if is_of_amd(node):
            reason = f"TensorRT has no operator of domain '{node.domain}'"
            yield self._finding(node, "refused", reason, "export Q/DQ pairs")
        elif node.op_type in QUANTIZE | DEQUANTIZE:
            yield from self._check_half(node)
        elif _UNKNOWN_OPERATORS.fullmatch(node.op_type):
            yield self._finding(node, "refused", "TensorRT has no such operator", "use Q/DQ pairs")
        elif _holds_weights(node):
            reason = "TensorRT has no such operator, which is ONNX Runtime's"
            fix = "store the weight as int4 before a DequantizeLinear with block_size (opset 21)"
            yield self._finding(node, "refused", reason, fix)
        elif node.domain in _OF_ONE_PROCESSOR:
            reason = "TensorRT has no such operator, which is ONNX Runtime's for one processor"
            fix = "give the model that was not optimized"
            yield self._finding(node, "refused", reason, fix)
        elif _is_of_ort(node):
            reason = "TensorRT has no such operator, which is ONNX Runtime's"
            fix = "export the model without ONNX Runtime's fusions"
            yield replace(self._finding(node, "refused", reason, fix), imported=is_fused(node))
        elif is_fake_quantize(node) or is_foreign_quantizer(node):
            of = f"operator of domain '{node.domain}'" if node.domain else "such operator"
            reason = f"TensorRT has no {of}"
            yield self._finding(node, "refused", reason, "export Q/DQ pairs")
        else:
            yield from self._check_between(node)

    def _finding(self, node: NodeProto, verdict: Verdict, reason: str, fix: str) -> Finding:
        return Finding(node.name, node.op_type, node.input[0], verdict, reason, fix)

    def _check_half(self, node: NodeProto) -> Iterator[Finding]:
        yield from self._check_scale(node)
        yield from self._check_opset(node)
        zero_point = self._array(node.input[2]) if len(node.input) > 2 else None
        if node.op_type in DEQUANTIZE:
            yield from self._check_source(node)
            yield from self._check_halves(node)
        elif (before := self._quantizes_integers(node)) is not None:
            yield self._finding(node, "refused", before, "take this node out")
        dtype = self._quantized_type(node)
        given = integer(node, "output_dtype", 0)
        if node.op_type in QUANTIZE and given not in {0, dtype}:
            reason = f"it writes {type_name(given)} by a zero point of {type_name(dtype)}"
            yield self._finding(node, "refused", reason, "give both one type")
        if dtype not in _TYPES | _SMALL_TYPES and dtype != TensorProto.INT32:
            reason = f"TensorRT does not read {type_name(dtype)}"
            fix = "quantize to int8 or float8e4m3fn"
            if self._is_bias(node.output[0]):
                fix = "keep the bias float"
            yield self._finding(node, "refused", reason, fix)
        elif zero_point is not None and np.any(zero_point.astype(np.float32)):
            shown = int(zero_point.ravel()[np.abs(zero_point.ravel().astype(np.int64)).argmax()])
            reason = f"its zero point is {shown}, but TensorRT takes symmetric quantization only"
            yield self._finding(node, "refused", reason, "quantize symmetrically")
        elif dtype == TensorProto.UINT8 and node.op_type in QUANTIZE:
            reason = "TensorRT builds it as int8, so that values above 127 * scale saturate"
            fix = "quantize to int8 with the scale of the largest value"
            yield self._finding(node, "altered", reason, fix)

    def _quantizes_integers(self, node: NodeProto) -> str | None:
        """Why ``node`` cannot quantize what it reads; None if that may be floats."""
        writer = self._producer.get(node.input[0])
        if writer is not None and writer.op_type in QUANTIZE:
            return f"it reads the integers that node '{writer.name}' writes"
        given = self._types.get(node.input[0], 0)
        return f"it reads {type_name(given)}, not floats" if given not in {0, *_FLOATS} else None

    def _check_scale(self, node: NodeProto) -> Iterator[Finding]:
        scale = self._array(node.input[1])
        if scale is None and self._is_scaled_scale(node):
            return
        if scale is None:
            reason = "its scale is computed at run time, but TensorRT documents only constant ones"
            yield self._finding(node, "undocumented", reason, "calibrate a scale")
            return
        if np.isposinf(scale.astype(np.float32)).any():
            reason = "its scale is infinite, which makes NaN of every value"
            yield self._finding(node, "altered", reason, "calibrate again with other data")
        elif not (scale.astype(np.float32) > 0).all():
            reason = f"its scale is {float(scale.min()):g}, but TensorRT takes positive ones only"
            fix = "calibrate again with other data"
            if self._is_constant(node.input[0]):
                fix = f"give {_channels_without_scale(scale)} any positive scale"
            yield self._finding(node, "refused", reason, fix)
        if scale.size > 1 and self._opset < FIRST_WITH_AXIS and not node.domain:
            reason = f"it has {scale.size} scales, which ONNX has from opset {FIRST_WITH_AXIS} on"
            fix = f"export the model with opset {FIRST_WITH_AXIS} or later"
            yield self._finding(node, "undocumented", reason, fix)
        yield from self._check_scale_type(node)
        yield from self._check_axis(node, scale.size)
        if scale.size > 1 and not self._is_constant(node.input[0]):
            reason = f"it has {scale.size} scales, which TensorRT documents for constants only"
            fix = "give the activation one scale"
            yield self._finding(node, "undocumented", reason, fix)

    def _is_scaled_scale(self, node: NodeProto) -> bool:
        """Whether the scales of ``node`` have a scale themselves, as FP4's do.

        So NVIDIA's exporter writes NVFP4: a scale in FP8 for each block, and one for the tensor.
        Those of weights are constants, those of activations TRT_FP4DynamicQuantize computes.
        """
        writer = self._producer.get(node.input[1])
        return (
            self._is_float4(node)
            and writer is not None
            and writer.op_type in DEQUANTIZE
            and all(map(self._is_given, filter(None, writer.input)))
        )

    def _is_float4(self, node: NodeProto) -> bool:
        quantizer = self._producer.get(node.input[0])
        is_dynamic = quantizer is not None and quantizer.op_type == _FP4_QUANTIZER
        return is_dynamic or self._quantized_type(node) == TensorProto.FLOAT4E2M1

    def _is_given(self, tensor: str) -> bool:
        """Whether ``tensor`` is a constant, or a scale that NVFP4's quantizer computes."""
        writer = self._producer.get(tensor)
        return tensor in self._constants or (
            writer is not None and writer.op_type == _FP4_QUANTIZER
        )

    def _check_opset(self, node: NodeProto) -> Iterator[Finding]:
        """Types and blocks that ONNX had not yet: ONNX Runtime refuses such a file."""
        if node.domain:
            return
        dtype = self._quantized_type(node)
        what, first = type_name(dtype), _FIRST_OPSETS.get(dtype, 0)
        scale = self._constants.get(node.input[1])
        if scale is not None and scale.data_type in _HALVES and first < _FIRST_WITH_HALVES:
            what, first = f"a scale of {type_name(scale.data_type)}", _FIRST_WITH_HALVES
        if integer(node, "block_size", 0) and first < _FIRST_WITH_BLOCKS:
            what, first = "scales of blocks", _FIRST_WITH_BLOCKS
        if self._opset < first:
            reason = f"it has {what}, which ONNX has from opset {first} on"
            fix = f"export the model with opset {first} or later"
            yield self._finding(node, "undocumented", reason, fix)

    def _check_scale_type(self, node: NodeProto) -> Iterator[Finding]:
        """FP8 of float32 by scales of half precision (Model-Optimizer issue 118); MX scales."""
        given = self._types.get(node.input[0])
        scale = self._constants[node.input[1]].data_type
        is_float8 = self._quantized_type(node) == TensorProto.FLOAT8E4M3FN
        if scale not in _SCALES:
            reason = f"its scale is of type {type_name(scale)}, which TensorRT does not read"
            fix = "give it scales of float32 or float16"
            if scale == TensorProto.FLOAT8E8M0:
                fix = "export it with TRT_MXFP8DequantizeLinear, which reads such scales"
            yield self._finding(node, "refused", reason, fix)
        elif node.op_type in QUANTIZE and is_float8 and (given, scale) in _MIXED:
            reason = f"it quantizes float to FP8 with a scale of {type_name(scale)}"
            yield self._finding(node, "refused", reason, "give the scale the type of the tensor")

    def _check_axis(self, node: NodeProto, count_of_scales: int) -> Iterator[Finding]:
        """Scales of a constant are to lie along the channels of the operator that reads it."""
        constant = self._constants.get(self._source(node))
        if constant is None or count_of_scales == 1:
            return
        if size := integer(node, "block_size", 0):
            yield from self._check_blocks(node, size, constant.dims)
            return
        axis, rank = integer(node, "axis", 1), len(constant.dims)
        place = axis % rank if -rank <= axis < rank else None
        reader, channels = self._weighted(node, constant.dims)
        if place is None or count_of_scales != constant.dims[place]:
            count = 0 if place is None else constant.dims[place]
            fits = channels is not None and count_of_scales == constant.dims[channels]
            fix = f"set its attribute axis to {channels}" if fits else "export it again"
            reason = f"it has {count_of_scales} scales for {count} channels of axis {axis}"
            yield self._finding(node, "refused", reason, fix)
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
            yield self._finding(node, "undocumented", reason, fix)

    def _check_blocks(self, node: NodeProto, size: int, dims: Sequence[int]) -> Iterator[Finding]:
        """Scales of blocks have the shape of the constant, but for the axis that has the blocks."""
        scales, axis = list(self._constants[node.input[1]].dims), integer(node, "axis", 1)
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
        yield self._finding(node, "refused", reason, fix)

    def _is_bias(self, tensor: str) -> bool:
        """Whether ``tensor`` is the bias of all that reads it, behind a DQ too."""
        readers = self._readers[tensor]
        return bool(readers) and all(
            self._is_bias(reader.output[0])
            if reader.op_type in DEQUANTIZE
            else reader.op_type in WEIGHTED_OPS and tensor in reader.input[2:3]
            for reader in readers
        )

    def _source(self, node: NodeProto) -> str:
        """What ``node`` reads, or the Q before it if it is a DQ: both have the same shape."""
        writer = self._producer.get(node.input[0])
        if node.op_type in DEQUANTIZE and writer is not None and writer.op_type in QUANTIZE:
            return str(writer.input[0])
        return str(node.input[0])

    def _weighted(
        self, node: NodeProto, dims: Sequence[int]
    ) -> tuple[NodeProto | None, int | None]:
        """What reads the constant that ``node`` quantizes as a weight; the axis of its channels."""
        tensor = node.output[0]
        for reader in self._readers[tensor]:
            if reader.op_type in DEQUANTIZE:
                return self._weighted(reader, dims)
            if reader.op_type in WEIGHTED_OPS and list(reader.input[1:2]) == [tensor]:
                turned = bool(integer(reader, "transB", 0))
                if reader.op_type == "ConvTranspose" and is_depthwise(
                    dims, integer(reader, "group", 1)
                ):
                    return reader, 0
                return reader, channel_axis(reader.op_type, len(dims), transposed=turned)
        return None, None

    def _check_source(self, node: NodeProto) -> Iterator[Finding]:
        source = node.input[0]
        constant = self._constants.get(source)
        dtype = constant.data_type if constant is not None else self._inputs.get(source)
        if self._types.get(source) == TensorProto.INT32:
            reason = "it reads int32, which TensorRT does not dequantize"
            fix = "keep the bias float" if constant is not None else "quantize to int8"
            yield self._finding(node, "refused", reason, fix)
        elif dtype == TensorProto.UINT8:
            reason = "it reads uint8, which TensorRT does not take"
            yield self._finding(node, "refused", reason, "store int8 values")
        elif constant is not None and not constant.dims:
            reason = "it reads a quantized scalar, but TensorRT dequantizes tensors only"
            yield self._finding(node, "refused", reason, "keep the scalar float")

    def _check_halves(self, node: NodeProto) -> Iterator[Finding]:
        """A DQ with another scale than its Q: it writes a multiple of what that reads."""
        quantizer = self._producer.get(node.input[0])
        if quantizer is None or quantizer.op_type not in QUANTIZE:
            return
        scales = self._array(quantizer.input[1]), self._array(node.input[1])
        if any(scale is None or scale.size != 1 for scale in scales):
            return
        given, taken = (float(scale.item()) for scale in scales if scale is not None)
        are_scales = all(0 < scale < math.inf for scale in (given, taken))
        if are_scales and not math.isclose(given, taken, rel_tol=_EQUAL):
            reason = (
                f"its scale is {taken:g}, that of its QuantizeLinear '{quantizer.name}' {given:g}, "
                f"which multiplies by {taken / given:g}"
            )
            yield self._finding(node, "undocumented", reason, "give both one scale")

    def _check_between(self, node: NodeProto) -> Iterator[Finding]:
        """A node of another kind that reads quantized values."""
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        if node.op_type == "Cast" and to == TensorProto.UINT8 and self._quantized_by(node):
            reason = "it makes uint8, which TensorRT does not take between Q and DQ"
            fix = "remove the Cast and retype the zero points"
            yield self._finding(node, "refused", reason, fix)

    def readers_of_constants(self) -> Iterator[Finding]:
        """Nodes other than DQ that read a quantized constant, or one of uint8 before a DQ.

        The builder takes such constants before DQ and plugins alone, whatever the node computes.
        """
        for node in self._nodes:
            is_pair = node.op_type in QUANTIZE | DEQUANTIZE
            # Plugins may read them (before 10.1 those of version 3 may not: TensorRT issue 3919).
            is_unknown = _UNKNOWN_OPERATORS.fullmatch(node.op_type) or _is_of_ort(node)
            if is_pair or is_plugin(node) or is_unknown or _holds_weights(node):
                continue
            is_dequantized = not self._dequantized.isdisjoint(node.output)
            refused = _STORED | _INTEGERS if is_dequantized else _STORED
            first = node.op_type in ("Clip", "CastLike")  # Not their bounds, not what has the type.
            for tensor in node.input[:1] if first else node.input:
                constant = self._constants.get(tensor)
                if constant is not None and constant.data_type in refused:
                    reason = f"it reads the quantized constant '{tensor}', which only a DQ may"
                    fix = "do this to the float constant"
                    # It would be no DQ of uint8 either, and bounds of a Clip are integers.
                    is_uint8 = constant.data_type == TensorProto.UINT8
                    if is_dequantized and node.op_type in _MOVES - {"Clip"} and not is_uint8:
                        fix = "put the DequantizeLinear before this node"
                    elif self._is_scaled(node):
                        fix = "put a DequantizeLinear in the place of this node and of the Mul"
                    yield self._finding(node, "refused", reason, fix)

    def _is_scaled(self, node: NodeProto) -> bool:
        """Whether ``node`` makes floats, and a Mul alone reads them, as torchao exports weights."""
        readers = [reader.op_type for reader in self._readers[node.output[0]]]
        return node.op_type == "Cast" and readers == ["Mul"]

    def _quantized_type(self, node: NodeProto) -> int:
        name = node.input[2] if len(node.input) > 2 else ""
        if name in self._constants:
            return int(self._constants[name].data_type)
        if node.op_type in DEQUANTIZE:
            source = node.input[0]
            if source in self._constants:
                return int(self._constants[source].data_type)
            return int(self._inputs.get(source, TensorProto.INT8))
        if "FP8" in node.op_type:
            return int(TensorProto.FLOAT8E4M3FN)
        given = next((int(a.i) for a in node.attribute if a.name == "output_dtype"), 0)
        return given or int(TensorProto.INT8 if node.domain == "trt" else TensorProto.UINT8)

    def _array(self, name: str) -> np.ndarray | None:
        if name not in self._constants:
            return None
        check_tensors([self._constants[name]], self._base_dir, self._path)
        return read_tensor(self._constants[name], self._base_dir)

    def _is_constant(self, tensor: str) -> bool:
        passed = QUANTIZE | DEQUANTIZE | _MOVES
        while tensor in self._producer and self._producer[tensor].op_type in passed:
            tensor = self._producer[tensor].input[0]
        return tensor in self._constants

    def _quantized_by(self, node: NodeProto) -> str:
        """Name of the QuantizeLinear behind ``node``, through first inputs; empty if none is."""
        while node.input and node.input[0] in self._producer:
            node = self._producer[node.input[0]]
            if node.op_type in QUANTIZE:
                return str(node.name)
            if node.op_type in DEQUANTIZE:
                return ""
        return ""


def _is_of_ort(node: NodeProto) -> bool:
    """Whether ``node`` is an operator that ONNX Runtime alone has."""
    return node.domain == MICROSOFT and not onnx.defs.has(node.op_type)


def _blocked(dims: Sequence[int], axis: int, size: int) -> list[int]:
    """The shape of the scales of blocks of ``size`` along ``axis`` of a tensor of ``dims``."""
    return [-(-dim // size) if place == axis else dim for place, dim in enumerate(dims)]


def _holds_weights(node: NodeProto) -> bool:
    return bool(node.domain) and _PACKED_WEIGHTS.fullmatch(node.op_type) is not None


def _channels_without_scale(scale: np.ndarray) -> str:
    """In words; such a channel of a pruned or dead filter holds zeros only."""
    channels = np.flatnonzero(~(scale.astype(np.float32).ravel() > 0)).tolist()
    if scale.size == 1:
        return "the constant"
    return f"channel{'s' if len(channels) > 1 else ''} {listed(channels)} of the constant"
