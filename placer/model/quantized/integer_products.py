"""Dynamic quantization: integer products become float ones where the scales are multiplied."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto, helper

from placer.model.quantized import dynamic
from placer.model.quantized.arithmetic import dequantize_nodes
from placer.model.quantized.channel_scales import (
    along_channels,
    broadcasting,
    reshaped,
    scale_of,
    shape_of,
)
from placer.model.quantized.constants import constant_info, dequantize_constant
from placer.model.quantized.dynamic import Bias, Factor, Product
from placer.model.quantized.operators import DEQUANTIZE, input_at
from placer.model.quantized.qoperator import Operand
from placer.model.quantized.quantized_tensors import BYTES, FLOATS, Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState
from placer.model.quantized.tables import rows_of_table, table_behind

_RESHAPES = ("Reshape", "Unsqueeze", "Squeeze")
_ROUNDS = ("Floor", "Round", "Cast")


def visit_run_time(state: ImportState, node: NodeProto) -> bool:
    """Take apart what belongs to a product whose scales come later; False for other nodes."""
    if node.op_type == "DynamicQuantizeLinear":
        _visit_dynamic(state, node)
        return True
    if node.op_type in dynamic.FLOAT_OPS:
        state.products[node.output[0]] = Product(node)
        return True
    is_product = any(t in state.products for t in node.input)
    is_bias = any(t in state.biases for t in node.input)
    is_bias_constant = any(t in state.draft.constants for t in node.input)
    if node.op_type == "Add" and is_product and (is_bias or is_bias_constant):
        _visit_sum(state, node)
        return True
    if is_bias or (node.op_type == "Div" and node.input[1] in state.factors):
        _visit_bias(state, node)
        return True
    return _visit_scaled(state, node) if is_product else _visit_factor(state, node)


def _visit_scaled(state: ImportState, node: NodeProto) -> bool:
    """Take apart what casts or scales a product of integers; False for other nodes."""
    if node.op_type == "Cast":
        state.products[node.output[0]] = state.products[node.input[0]]
    elif node.op_type == "Mul" or node.op_type in DEQUANTIZE:
        _visit_product(state, node)
    else:
        return _visit_factor(state, node)
    return True


def _visit_factor(state: ImportState, node: NodeProto) -> bool:
    """Take apart what multiplies or reshapes scales; False for other nodes."""
    if not any(t in state.factors for t in node.input):
        return False
    if node.op_type == "Mul":
        state.factors[node.output[0]] = _factor(state, node, 0).times(_factor(state, node, 1))
    elif node.op_type in _RESHAPES:
        state.factors[node.output[0]] = reshaped(state, node, _factor(state, node, 0))
    else:
        return False
    return True


def _visit_dynamic(state: ImportState, node: NodeProto) -> None:
    if not node.input or len(node.output) != 3:
        raise state.refuse(node, "has not the one input and three outputs that it must have")
    integers, scale, zero_point = node.output
    state.records.seen["dynamic"] += 1
    dtype, zero = TensorProto.UINT8, np.zeros((), np.int64)
    tensor = state.read(node.input[0], "", 0)
    info = Quantized(tensor, None, zero, 1, *limits_of(dtype), dtype, symbol=scale)
    state.quantized[integers] = info
    state.factors[scale] = Factor((scale,), np.ones(()))
    state.factors[zero_point] = Factor((zero_point,), np.ones(()))
    state.run_time_zeros[scale] = zero_point
    state.records.add_activation(info)


def _visit_bias(state: ImportState, node: NodeProto) -> None:
    """Follow a bias from its division by a scale to where it is added."""
    target = node.output[0]
    if node.op_type == "Div" and node.input[0] not in state.biases:
        source = state.read(node.input[0], node.name, 0)
        state.biases[target] = Bias(source, _factor(state, node, 1))
    elif node.op_type in _ROUNDS or _keeps_int32(state, node):
        state.biases[target] = state.biases[node.input[0]]
    elif node.op_type in _RESHAPES and node.input[0] in state.biases:
        bias = state.biases[node.input[0]]
        _refuse_spread(state, node, bias)
        scale = bias.scale and reshaped(state, node, bias.scale)
        made = NodeProto.FromString(node.SerializeToString())
        made.input[0] = bias.tensor
        made.output[0] = state.draft.names.unused(f"{bias.tensor}/reshaped")
        state.draft.append(made)
        state.biases[target] = Bias(made.output[0], scale)
    else:
        raise state.refuse(node, "reads a tensor divided by a scale, and is not the sum of a bias")


def _refuse_spread(state: ImportState, node: NodeProto, bias: Bias) -> None:
    """Raise InputError where ``node`` reshapes more values than the float bias has."""
    shape, given = shape_of(state, bias.tensor), state.shapes.get(node.input[0])
    is_single = bias.scale is None or bias.scale.value.size == 1
    if not is_single and None not in (shape, given) and shape != given:
        raise state.refuse(node, f"reshapes '{bias.tensor}', divided by scales of another shape")


def _keeps_int32(state: ImportState, node: NodeProto) -> bool:
    """Whether ``node`` is a Clip to what int32 holds, but for its very ends."""
    bounds = [input_at(node, index) for index in (1, 2)]
    if node.op_type != "Clip" or any(name not in state.draft.constants for name in bounds):
        return False
    lowest, highest = (state.draft.array(name).astype(np.float64) for name in bounds)
    if lowest.size != 1 or highest.size != 1:
        return False
    # As floats: bounds may be infinite, and 2**31 - 1 is none of float32.
    return lowest.item() <= -(2.0**31) + 1 and highest.item() >= 2.0**31 - 2


def _visit_sum(state: ImportState, node: NodeProto) -> None:
    """An Add of integers, which is a bias's."""
    index = 0 if node.input[0] in state.products else 1
    product, added = state.products[node.input[index]], node.input[1 - index]
    bias = state.biases.get(added)
    if bias is None and added in state.draft.constants:
        bias = Bias(added, None)
    if bias is None or product.bias is not None:
        raise state.refuse(node, "adds more than one bias to integers")
    state.products[node.output[0]] = Product(product.node, bias)


def _factor(state: ImportState, node: NodeProto, index: int) -> Factor:
    name = node.input[index]
    if name in state.factors:
        return state.factors[name]
    if name in state.draft.constants:
        return dynamic.known(state.draft.array(name))
    raise state.refuse(node, "multiplies a scale with something that is none")


def _visit_product(state: ImportState, node: NodeProto) -> None:
    """Write the float product where the scales of its operands are multiplied in."""
    if node.op_type in DEQUANTIZE:
        _refuse_zero_point(state, node)
    index = 0 if node.input[0] in state.products else 1
    made = state.products[node.input[index]]
    product, bias = made.node, made.bias
    if _is_rounded_by_the_network(state, product):
        reason = "reads integers that the network itself rounds, as with a scale for each row"
        raise state.refuse(product, reason)
    scale = along_channels(state, node, product, _factor(state, node, 1 - index))
    broadcast = broadcasting(state, product, scale)
    if bias is not None and not bias.has_scale(broadcast):
        why = "does not multiply with the scale that the bias is divided by"
        if bias.scale is None:
            why = (
                f"scales '{bias.tensor}', a constant of integers, by what is only known at run time"
            )
        raise state.refuse(node, why)
    inputs = _operands(state, product, node, scale)
    op = dynamic.FLOAT_OPS[product.op_type]
    target, dtype = _before_cast(state, product, node.output[0]), _float_type(state, product)
    output = target if bias is None else state.draft.names.unused(f"{target}/without_bias")
    written = helper.make_node(op, inputs, [output], product.name)
    written.attribute.extend(product.attribute)
    state.draft.append(written)
    if bias is not None:
        values = None if bias.scale else _float_bias(state, bias.tensor, broadcast, dtype)
        state.draft.emit("Add", f"{product.name}/bias", [output, values or bias.tensor], target)
    if target != node.output[0]:
        cast = helper.make_node("Cast", [target], [node.output[0]], f"{product.name}/cast")
        cast.attribute.append(helper.make_attribute("to", state.types[node.output[0]]))
        state.draft.append(cast)


def _refuse_zero_point(state: ImportState, node: NodeProto) -> None:
    """Raise InputError where a DequantizeLinear is more than a product with scales."""
    zero = input_at(node, 2)
    if zero and (zero not in state.draft.constants or state.draft.array(zero).any()):
        raise state.refuse(node, "has a zero point for a product of integers")


def _float_type(state: ImportState, product: NodeProto) -> int:
    """ONNX element type that the float product has: that of its left operand."""
    info = state.quantized.get(product.input[0])
    return info.float_type if info is not None and info.float_type in FLOATS else TensorProto.FLOAT


def _before_cast(state: ImportState, product: NodeProto, target: str) -> str:
    """Name of the float product, ``target`` unless that has another float type."""
    given = state.types.get(target, 0)
    if given not in FLOATS or given == _float_type(state, product):
        return target
    return state.draft.names.unused(f"{target}/before_cast")


def _float_bias(state: ImportState, integers: str, scale: Factor, dtype: int) -> str:
    """The float constant that ``integers`` are in steps of ``scale``, which broadcasts to them."""
    wide = state.draft.array(integers) * scale.value
    floats = wide.astype(helper.tensor_dtype_to_np_dtype(dtype))
    return state.draft.add_constant(f"{integers}/float", floats)


def _is_rounded_by_the_network(state: ImportState, product: NodeProto) -> bool:
    """Whether no quantizer made the integers that ``product`` multiplies, nor are they stored."""
    data = product.input[0]
    is_known = data in state.quantized or data in state.draft.constants or _is_given(state, data)
    return not is_known and table_behind(state, data) is None


def _is_given(state: ImportState, tensor: str) -> bool:
    """Whether ``tensor`` is an input of the graph of 8 bits, as an image is."""
    return tensor in state.draft.inputs and state.types.get(tensor, 0) in BYTES


def _operands(state: ImportState, product: NodeProto, node: NodeProto, factor: Factor) -> list[str]:
    """Float tensors that ``product`` multiplies; ``node`` multiplies it with ``factor``."""
    known = [state.quantized.get(product.input[i]) for i in (0, 1)]
    for position, info in enumerate(known):
        if info is not None and not _has_zero_point(state, info, input_at(product, 2 + position)):
            why = f"takes another zero point off '{product.input[position]}' than it is quantized"
            raise state.refuse(product, f"{why} with; write that one at input {2 + position}")
    known[0] = known[0] or _moved_constant(state, product) or _given_integers(state, product)
    for position, info in enumerate(known):
        if info is None:
            continue
        rest = factor.over(scale_of(state, product, position, info))
        if rest is None:
            raise state.refuse(node, "does not multiply with the scales of its operands")
        factor = rest
    if known[0] is None or factor.symbols:
        raise state.refuse(node, "multiplies with the scale of another tensor")
    dtype = helper.tensor_dtype_to_np_dtype(_float_type(state, product))
    right = known[1] or _integer_weight(state, product, factor.value.astype(dtype))
    if known[1] is not None and not np.allclose(factor.value, 1, rtol=1e-6, atol=0):
        raise state.refuse(node, "multiplies with more than the scales")
    for position, info in enumerate((known[0], right)):
        state.draft.mark(info, product.name, position)
    return [known[0].tensor, right.tensor]


def _has_zero_point(state: ImportState, info: Quantized, name: str) -> bool:
    """Whether ``name``, empty for zero, is the zero point of ``info``, as far as that is known."""
    if info.symbol in state.run_time_zeros:
        factor = state.factors.get(name)
        return factor is not None and factor.symbols == (state.run_time_zeros[info.symbol],)
    if name and name not in state.draft.constants:
        return True
    return bool((state.draft.array_or_zero(name) == info.zero_point).all())


def _moved_constant(state: ImportState, product: NodeProto) -> Quantized | None:
    """Rows of a quantized table that ``product`` reads; None where it reads something else.

    ONNX Runtime's dynamic quantization hands what Gather takes of an embedding to the product as it
    is. The scale of the table is the one that this quantizer names like it, else 1: what is
    multiplied in behind the product then is the weight's.
    """
    draft, tensor = state.draft, product.input[0]
    table = table_behind(state, tensor)
    if table is None:
        return None
    named = f"{table.removesuffix('_quantized')}_scale"
    scale = draft.array(named) if named in draft.constants else np.ones((), np.float32)
    return rows_of_table(state, product, tensor, scale, input_at(product, 2))


def _given_integers(state: ImportState, product: NodeProto) -> Quantized | None:
    """The values of a graph input of integers, whose scale is 1; None where it reads no such one.

    What is multiplied in behind the product is the weight's scale then, whatever part of it the
    file means for the input.
    """
    draft, source, zero = state.draft, product.input[0], input_at(product, 2)
    if not _is_given(state, source):
        return None
    zero_point = draft.array_or_zero(zero)
    if zero_point.size != 1 or (zero and zero not in draft.constants):
        raise state.refuse(product, "has a zero point that is no single constant")
    known = (source, "1", str(zero_point.item()))
    if known not in state.rows:
        scale, values = np.ones((), np.float32), state.name_of_float(source)
        draft.extend(dequantize_nodes(source, values, scale, zero_point, draft.names))
        limits = limits_of(state.types[source])
        info = Quantized(values, scale, zero_point, 0, *limits, state.types[source])
        state.records.add_activation(info)
        state.rows[known] = info
    return state.rows[known]


def _integer_weight(state: ImportState, product: NodeProto, scale: np.ndarray) -> Quantized:
    data = product.input[1]
    if data not in state.draft.constants:
        raise state.refuse(product, f"reads '{data}', which is not quantized here")
    axis = 0 if product.op_type == "ConvInteger" else -1
    operand = Operand(data, "", input_at(product, 3), axis)
    key = (data, str(scale.dtype), *map(str, scale.ravel().tolist()))
    if key not in state.dequantized:
        flat = scale.reshape(()) if scale.size == 1 else scale.ravel()
        weight = dequantize_constant(state, product, operand, flat)
        state.dequantized[key] = weight
    return constant_info(state, state.dequantized[key], operand)
