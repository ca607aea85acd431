"""Write QOperator nodes as float nodes whose inputs are marked as quantized edges."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto, helper

from placer.model.quantized import qoperator
from placer.model.quantized.clamping import stands_for_relu, write_clamp
from placer.model.quantized.constants import constant_operand
from placer.model.quantized.expansion import expand_dequantize
from placer.model.quantized.qoperator import Decomposed, Operand
from placer.model.quantized.quantized_tensors import Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState


def visit_qoperator(state: ImportState, node: NodeProto, made: Decomposed) -> None:
    """Write the float node of ``made``, which is ``node`` taken apart."""
    state.records.seen["QOperator"] += 1
    inputs = [_operand(state, node, i, operand) for i, operand in enumerate(made.operands)]
    if made.bias:
        inputs.append(_bias(state, node, made))
    target = node.output[0]
    if not made.scale:
        _write_float_product(state, node, made, inputs)
        return
    output = state.name_of_float(target)
    state.draft.append(qoperator.float_node(made, node.name, inputs, output))
    info = _output_info(state, node, output, made.scale, made.zero_point)
    if stands_for_relu(state, info):
        inner = state.draft.names.unused(f"{output}/linear")
        state.draft.rename_output(output, inner)
        write_clamp(state, inner, output, info)
    state.records.add_activation(info)
    state.quantized[target] = info


def _write_float_product(
    state: ImportState, node: NodeProto, made: Decomposed, inputs: list[str]
) -> None:
    target = node.output[0]
    output = state.draft.names.unused(f"{target}/product") if made.added else target
    state.draft.append(qoperator.float_node(made, node.name, inputs, output))
    if made.added:
        added = state.read(made.added, "", 0)
        state.draft.emit("Add", f"{node.name}/Add", [output, added], target)


def _operand(state: ImportState, node: NodeProto, index: int, operand: Operand) -> str:
    """Float tensor behind one input, marked as quantized edge of ``node``."""
    if not operand.scale:
        return state.read(operand.data, node.name, index)
    if operand.data in state.quantized:
        info = state.quantized[operand.data]
    elif operand.data in state.draft.constants:
        info = constant_operand(state, node, operand)
    else:
        info = _from_integers(state, node, operand)
    state.draft.mark(info, node.name, index)
    return info.tensor


def _from_integers(state: ImportState, node: NodeProto, operand: Operand) -> Quantized:
    """Integers that come from elsewhere, a graph input for example, as float tensor."""
    name = state.draft.names.of_float(operand.data)
    inputs = [t for t in operand[:3] if t]
    made = helper.make_node("DequantizeLinear", inputs, [name], node.name)
    expand_dequantize(state, made)
    info = _output_info(state, node, name, operand.scale, operand.zero_point)
    state.records.add_activation(info)
    state.quantized[operand.data] = info
    return info


def _output_info(
    state: ImportState, node: NodeProto, tensor: str, scale: str, zero_point: str
) -> Quantized:
    draft = state.draft
    if scale not in draft.constants:
        raise state.refuse(node, f"computes the scale of '{tensor}'")
    known = zero_point in draft.constants
    dtype = draft.constants[zero_point].data_type if known else TensorProto.UINT8
    point = draft.array_or_zero(zero_point)
    return Quantized(tensor, draft.array(scale), point, 1, *limits_of(dtype), dtype)


def _bias(state: ImportState, node: NodeProto, made: Decomposed) -> str:
    draft = state.draft
    if made.bias not in draft.constants:
        raise state.refuse(node, "computes its bias")
    left, right = (draft.array(operand.scale) for operand in made.operands[:2])
    product = np.multiply(left.ravel(), right.ravel(), dtype=np.float64) * made.bias_factor
    integers = draft.array(made.bias)
    floats = (integers.astype(np.float64) * product).astype(left.dtype)
    state.records.seen["int32 biases"] += 1
    name = draft.set_constant(draft.names.of_float(made.bias), floats)
    state.records.check_bias(name, integers)
    return name
