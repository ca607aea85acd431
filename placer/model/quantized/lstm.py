"""DynamicQuantizeLSTM: an LSTM whose weights are quantized and stored transposed.

Inputs as in ONNX Runtime's contrib operator reference (docs/ContribOperators.md of its repository):
those of LSTM, then scale and zero point of W and of R. W has shape (directions, inputs, 4 * hidden)
where LSTM has (directions, 4 * hidden, inputs), and R likewise; a scale has shape (directions,) or
(directions, 4 * hidden).
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from placer.model.quantized.operators import input_at
from placer.model.quantized.state import ImportState

OPERATOR = "DynamicQuantizeLSTM"
_OF_LSTM = 8  # inputs that LSTM has, too


def visit_lstm(state: ImportState, node: NodeProto) -> None:
    """Write the float LSTM; the scales of its weights are not kept, since no engine here takes any.

    Raises InputError where weights or their scales are computed.
    """
    inputs = [state.read(t, node.name, i) if t else "" for i, t in enumerate(node.input[:_OF_LSTM])]
    for index, first in ((1, _OF_LSTM), (2, _OF_LSTM + 2)):
        inputs[index] = _weight(state, node, index, first)
    while not inputs[-1]:
        inputs.pop()
    made = helper.make_node("LSTM", inputs, list(node.output), node.name)
    made.attribute.extend(node.attribute)
    state.draft.append(made)
    state.records.seen["dynamic LSTM"] += 1
    state.records.notes.append(
        f"weights of LSTM '{node.name}' are float; their scales are not kept"
    )


def _weight(state: ImportState, node: NodeProto, index: int, first: int) -> str:
    """The float weight at input ``index``, whose scale and zero point begin at ``first``."""
    draft = state.draft
    names = [input_at(node, i) for i in (index, first, first + 1)]
    for name in names[:2]:
        if name not in draft.constants:
            raise state.refuse(node, f"computes '{name}', its quantized weight or the scale of it")
    integers, scale = draft.array(names[0]), draft.array(names[1])
    if integers.ndim != 3 or scale.size not in (
        1,
        scale.shape[0],
        integers.shape[0] * integers.shape[2],
    ):
        raise state.refuse(node, f"has weights of shape {integers.shape}, scales of {scale.shape}")
    zero_point = np.broadcast_to(draft.array_or_zero(names[2]), scale.shape)
    shape = (*scale.shape, 1, 1) if scale.ndim == 1 else (scale.shape[0], 1, -1)
    steps = integers.astype(np.float64) - zero_point.astype(np.float64).reshape(shape)
    floats = (steps * scale.astype(np.float64).reshape(shape)).astype(np.float32)
    return draft.set_constant(draft.names.of_float(names[0], ""), floats.transpose(0, 2, 1).copy())
