"""Write the Relu or Clip that a zero point made needless.

Where quantization alone kept values from being negative, a float graph must say so.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from placer.model.quantized.constants import zero_point_and_type
from placer.model.quantized.operators import QUANTIZE
from placer.model.quantized.quantized_tensors import Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState

_BEFORE_RELU = frozenset(
    "Conv ConvTranspose Gemm MatMul Add Sub BatchNormalization InstanceNormalization "
    "GroupNormalization LayerNormalization".split()
)
# They hand values on; converters from TFLite write a Transpose between a Conv and its pair.
_MOVES_VALUES = frozenset("Transpose Reshape Flatten Squeeze Unsqueeze".split())


def stands_for_relu(state: ImportState, info: Quantized) -> bool:
    """Whether a Relu was there before the zero point made it needless.

    ONNX Runtime's quantizer removes Relu and Clip before a QuantizeLinear with the lowest zero
    point. A float graph without them would be another function. Behind other operators, such
    a zero point says no more than that the calibration data had nothing negative there.
    """
    writer = state.draft.writer.get(info.tensor)
    while writer is not None and writer.op_type in _MOVES_VALUES:
        writer = state.draft.writer.get(writer.input[0])
    is_linear = writer is not None and writer.op_type in _BEFORE_RELU
    return is_linear and info.clamps_at_zero and info.tensor not in state.draft.never_negative


def clamp(state: ImportState, source: str, info: Quantized) -> str:
    """Write the Relu; returns the tensor that it writes."""
    draft, inner = state.draft, info.tensor
    alone = source == inner and inner not in draft.outputs
    if alone and all(_is_clamping(state, reader) for reader in state.readers[source]):
        outer, inner = inner, draft.names.unused(f"{inner}/linear")
        draft.rename_output(outer, inner)
    else:
        outer = draft.names.unused(f"{inner}/relu")
    write_clamp(state, inner, outer, info)
    return outer


def _is_clamping(state: ImportState, reader: NodeProto) -> bool:
    if reader.op_type not in QUANTIZE:
        return False
    zero_point, dtype = zero_point_and_type(state, reader)
    return zero_point.size == 1 and float(zero_point.item()) == limits_of(dtype)[0]


def ends_at_six(highest: float) -> bool:
    """Whether a range from zero to ``highest`` is that of a ReLU6."""
    return abs(highest - 6) < 1e-5


def write_clamp(state: ImportState, inner: str, outer: str, info: Quantized) -> None:
    """Write the Relu, or Clip where the integers end at 6, from ``inner`` to ``outer``."""
    scale = np.ones(()) if info.scale is None else info.scale
    highest = (info.highest - info.lowest) * float(scale.item())
    op, inputs = "Relu", [inner]
    if ends_at_six(highest) and state.draft.opset >= 11:
        op = "Clip"
        for limit in (0, 6):
            value = np.array(limit, scale.dtype)
            inputs.append(state.draft.add_constant(f"{outer}/limit", value))
    state.draft.emit(op, f"{outer}/{op}", inputs, outer)
    state.draft.never_negative.add(outer)
    state.records.clamped.setdefault(op, []).append(inner)
