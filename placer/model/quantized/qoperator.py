"""What operators on quantized tensors compute, in terms of float operators.

Positions of inputs follow the ONNX operator reference (QLinearConv, QLinearMatMul) and ONNX
Runtime's contrib operator reference (docs/ContribOperators.md of its repository) for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from onnx import AttributeProto, NodeProto, helper

from placer.errors import InputError
from placer.model.quantized.operators import input_at, integer


class Operand(NamedTuple):
    """An input: ``data`` with ``scale`` and ``zero_point``, or float where ``scale`` is empty.

    ``axis``: of a scale with several values.
    """

    data: str
    scale: str = ""
    zero_point: str = ""
    axis: int = 0


@dataclass(frozen=True)
class Decomposed:
    """A quantized node as float node: its operator, inputs and attributes, and its output's scale.

    ``bias``: name of an int32 bias whose scale is the product of those of the first two operands.
    ``added``: name of a float bias that is added behind. ``scale``: empty where the output is
    float.
    """

    op: str
    operands: tuple[Operand, ...]
    scale: str
    zero_point: str
    attributes: tuple[AttributeProto, ...]
    bias: str = ""
    bias_factor: float = 1.0
    added: str = ""


def decompose(node: NodeProto, opset: int) -> Decomposed | None:
    """Take ``node`` apart; None if it is no operator of this kind.

    Raises InputError for a layout (channels_last) that no float operator has.
    """
    make = _OPERATORS.get(node.op_type)
    if make is None:
        return None
    if integer(node, "channels_last"):
        raise InputError(
            "its channels are last, which no float operator has; "
            "give the model that was not optimized for one processor"
        )
    return make(node, opset)


def _operand(node: NodeProto, index: int, axis: int = 0) -> Operand:
    return Operand(
        input_at(node, index), input_at(node, index + 1), input_at(node, index + 2), axis
    )


def _attributes(node: NodeProto, *dropped: str) -> tuple[AttributeProto, ...]:
    return tuple(a for a in node.attribute if a.name not in ("channels_last", *dropped))


def _conv(node: NodeProto, _: int) -> Decomposed:
    operands = (_operand(node, 0), _operand(node, 3))
    scale, zero_point, bias = input_at(node, 6), input_at(node, 7), input_at(node, 8)
    return Decomposed("Conv", operands, scale, zero_point, _attributes(node), bias)


def _matmul(node: NodeProto, _: int) -> Decomposed:
    operands = (_operand(node, 0), _operand(node, 3, -1))
    return Decomposed("MatMul", operands, input_at(node, 6), input_at(node, 7), ())


def _gemm(node: NodeProto, _: int) -> Decomposed:
    transposed = integer(node, "transB")
    operands = (_operand(node, 0), _operand(node, 3, 0 if transposed else 1))
    alpha = next((float(a.f) for a in node.attribute if a.name == "alpha"), 1.0)
    scale, zero_point = input_at(node, 7), input_at(node, 8)
    return Decomposed(
        "Gemm", operands, scale, zero_point, _attributes(node), input_at(node, 6), bias_factor=alpha
    )


def _binary(node: NodeProto, _: int) -> Decomposed:
    operands = (_operand(node, 0), _operand(node, 3))
    op = node.op_type.removeprefix("QLinear")
    return Decomposed(op, operands, input_at(node, 6), input_at(node, 7), _attributes(node))


def _unary(node: NodeProto, _: int) -> Decomposed:
    op = node.op_type.removeprefix("QLinear")
    attributes = _attributes(node, "opset")
    return Decomposed(op, (_operand(node, 0),), input_at(node, 3), input_at(node, 4), attributes)


def _reduce_mean(node: NodeProto, opset: int) -> Decomposed:
    if opset >= 18 and any(a.name == "axes" for a in node.attribute):
        raise InputError(
            f"it has axes as attribute, which opset {opset} "
            "does not know; quantize a model of opset 17 or earlier"
        )
    return _unary(node, opset)


def _concat(node: NodeProto, _: int) -> Decomposed:
    operands = tuple(_operand(node, index) for index in range(2, len(node.input), 3))
    return Decomposed("Concat", operands, input_at(node, 0), input_at(node, 1), _attributes(node))


def _where(node: NodeProto, _: int) -> Decomposed:
    operands = (Operand(input_at(node, 0)), _operand(node, 1), _operand(node, 4))
    return Decomposed("Where", operands, input_at(node, 7), input_at(node, 8), ())


def _matmul_to_float(node: NodeProto, _: int) -> Decomposed:
    left = Operand(input_at(node, 0), input_at(node, 2), input_at(node, 4))
    right = Operand(input_at(node, 1), input_at(node, 3), input_at(node, 5), -1)
    return Decomposed("MatMul", (left, right), "", "", (), added=input_at(node, 6))


def _dynamic_matmul(node: NodeProto, _: int) -> Decomposed:
    right = Operand(input_at(node, 1), input_at(node, 2), input_at(node, 3), -1)
    return Decomposed(
        "MatMul", (Operand(input_at(node, 0)), right), "", "", (), added=input_at(node, 4)
    )


_OPERATORS: Mapping[str, Callable[[NodeProto, int], Decomposed]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary,
    "QLinearMul": _binary,
    "QLinearSigmoid": _unary,
    "QLinearLeakyRelu": _unary,
    "QLinearSoftmax": _unary,
    "QLinearAveragePool": _unary,
    "QLinearGlobalAveragePool": _unary,
    "QLinearReduceMean": _reduce_mean,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "MatMulIntegerToFloat": _matmul_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
}


def float_node(made: Decomposed, name: str, inputs: list[str], output: str) -> NodeProto:
    """The float node that ``made`` describes."""
    node: NodeProto = helper.make_node(made.op, inputs, [output], name)
    node.attribute.extend(made.attributes)
    return node
