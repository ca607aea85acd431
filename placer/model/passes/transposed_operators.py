"""What an operator is when all that it reads and writes has its axes in another order.

An order is that of a Transpose: the tensor as it is has ``axis`` where the transposed one has
``order[axis]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from placer.graph.external_data import is_external

Order = tuple[int, ...]
_Constants = Mapping[str, TensorProto]

_UNARY = frozenset(
    "Abs Cast Ceil Clip Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg "
    "Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Tanh ThresholdedRelu".split()
)
_BROADCAST = frozenset("Add Div Max Mean Min Mul PRelu Pow Sub Sum Where".split())
_ALONG_AXIS = {"Concat": 0, "Split": 0, "Softmax": -1, "LogSoftmax": -1, "Hardmax": -1}
_REDUCTIONS = frozenset(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare".split()
)
_PADS_AXES, _SLICE_AXES, _RESIZE_ROI = 3, 3, 1


@dataclass(frozen=True)
class Transposed:
    """``attributes`` and, by position, constant ``inputs`` that differ.

    ``data``: the positions of inputs that must be transposed. ``leaves``: what is written is as it
    was, since the axes that are left keep their order.
    """

    data: tuple[int, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[int, np.ndarray] = field(default_factory=dict)
    leaves: bool = False


def transposed(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    """``node`` in the order of its transposed inputs; None if it depends on the order as it is."""
    if node.domain or not node.input:
        return None
    if node.op_type in _UNARY:
        rest = [tensor for tensor in node.input[1:] if tensor]
        return Transposed((0,)) if all(_is_single(constants, tensor) for tensor in rest) else None
    if node.op_type in _BROADCAST:
        return _broadcast(node, order, constants)
    if node.op_type in _ALONG_AXIS:
        return _along_axis(node, order, constants)
    if node.op_type in _REDUCTIONS or node.op_type == "Squeeze":
        return _reduction(node, order, constants)
    reader = _READERS.get(node.op_type)
    return None if reader is None else reader(node, order, constants)


def _broadcast(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    data = tuple(i for i, tensor in enumerate(node.input) if tensor not in constants)
    changed: dict[int, np.ndarray] = {}
    for index, tensor in enumerate(node.input):
        if index in data:
            continue
        dims = constants[tensor].dims
        if len(dims) > len(order) or (is_external(constants[tensor]) and math.prod(dims) > 1):
            return None
        if math.prod(dims) > 1:
            changed[index] = _transposed_constant(numpy_helper.to_array(constants[tensor]), order)
    return Transposed(data, inputs=changed)


def _transposed_constant(array: np.ndarray, order: Order) -> np.ndarray:
    """``array``, which is broadcast to the rank of ``order``, without axes in front of 1."""
    whole = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    whole = np.transpose(whole, np.argsort(order))
    first = int(np.argmax(np.array(whole.shape) > 1))
    return np.ascontiguousarray(whole.reshape(whole.shape[first:]))


def _along_axis(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    axis = _attribute(node, "axis", _ALONG_AXIS[node.op_type])
    data = tuple(range(len(node.input))) if node.op_type == "Concat" else (0,)
    if not isinstance(axis, int) or any(node.input[index] in constants for index in data):
        return None
    return Transposed(data, {"axis": order[axis]})


def _reduction(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    keeps = node.op_type != "Squeeze" and bool(_attribute(node, "keepdims", 1))
    in_attribute = _attribute(node, "axes", None)
    given = in_attribute if len(node.input) < 2 else _values(constants, node.input[1])
    if not isinstance(given, list):
        return Transposed((0,)) if keeps and len(node.input) < 2 else None
    axes = {axis % len(order) for axis in given}
    left = [order[axis] for axis in range(len(order)) if axis not in axes]
    if not axes or not (keeps or left == sorted(left)):
        return None
    new = sorted(order[axis] for axis in axes)
    if in_attribute is not None:
        return Transposed((0,), {"axes": new}, leaves=not keeps)
    return Transposed((0,), inputs={1: np.array(new, np.int64)}, leaves=not keeps)


def _pad(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    pads = _values(constants, node.input[1]) if len(node.input) > 1 else None
    if pads is None:
        return None
    if len(node.input) > _PADS_AXES and node.input[_PADS_AXES]:
        return _on_axes(node, _PADS_AXES, order, constants)
    both = np.array(pads).reshape(2, -1)[:, np.argsort(order)]
    return Transposed((0,), inputs={1: both.reshape(-1)})


def _slice(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    if len(node.input) <= _SLICE_AXES or not node.input[_SLICE_AXES]:
        return None
    return _on_axes(node, _SLICE_AXES, order, constants)


def _on_axes(node: NodeProto, index: int, order: Order, constants: _Constants) -> Transposed | None:
    axes = _values(constants, node.input[index])
    if axes is None:
        return None
    return Transposed((0,), inputs={index: np.array([order[axis] for axis in axes], np.int64)})


def _resize(node: NodeProto, order: Order, constants: _Constants) -> Transposed | None:
    constant_inputs = [(i, tensor) for i, tensor in enumerate(node.input) if i and tensor]
    if any(
        tensor not in constants or is_external(constants[tensor]) for _, tensor in constant_inputs
    ):
        return None
    values = {i: numpy_helper.to_array(constants[tensor]) for i, tensor in constant_inputs}
    values = {index: array for index, array in values.items() if array.size}
    if _RESIZE_ROI in values or any(array.size != len(order) for array in values.values()):
        return None
    back = np.argsort(order)
    return Transposed((0,), inputs={index: array[back] for index, array in values.items()})


_READERS: Mapping[str, Callable[[NodeProto, Order, _Constants], Transposed | None]] = {
    "Pad": _pad,
    "Slice": _slice,
    "Resize": _resize,
}


def _attribute(node: NodeProto, name: str, default: object) -> object:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _is_single(constants: _Constants, tensor: str) -> bool:
    return tensor in constants and math.prod(constants[tensor].dims) == 1


def _values(constants: _Constants, tensor: str) -> Sequence[int] | None:
    if tensor not in constants or is_external(constants[tensor]):
        return None
    return [int(value) for value in numpy_helper.to_array(constants[tensor]).reshape(-1)]
