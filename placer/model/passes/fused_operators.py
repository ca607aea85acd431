"""ONNX Runtime's fused operators as the standard nodes that they stand for.

Files that ONNX Runtime, or a tool on top of it, optimized hold operators of the domain
``com.microsoft``, which rules do not match and other engines do not know. Their definitions:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from placer.common.listed import listed
from placer.graph import Graph
from placer.graph.edit import (
    all_tensors,
    replace_nodes,
    standard_opset,
    without_large_tensors,
)
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.operators import MICROSOFT

_LAYER_NORM_OPSET = 17
# Before it Clip has attributes, and Erf, before opset 9, is missing.
_MIN_OPSET = 11
# What an activation's parameters, in order, are called in its own operator.
_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
_CONV = {
    "auto_pad": AttributeProto.STRING,
    "group": AttributeProto.INT,
    **dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"), AttributeProto.INTS),
}
_LEAST_INPUTS = {
    "FusedConv": 2,
    "FusedGemm": 2,
    "FusedMatMul": 2,
    "Gelu": 1,
    "BiasGelu": 2,
    "FastGelu": 1,
    "QuickGelu": 1,
    "SkipLayerNormalization": 3,
}
# Of the attributes that are read here or handed on.
_FLOAT, _INT = AttributeProto.FLOAT, AttributeProto.INT
_TYPES = {
    **_CONV,
    "activation": AttributeProto.STRING,
    "activation_params": AttributeProto.FLOATS,
    "activation_alpha": _FLOAT,
    "activation_beta": _FLOAT,
    "alpha": _FLOAT,
    "beta": _FLOAT,
    "epsilon": _FLOAT,
    **dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), _INT),
}

# Domains of operators that its optimizer makes for memory layouts of one processor.
_LAYOUTS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")

Infer = Callable[[ModelProto], Mapping[str, ValueInfoProto]]


def is_fused(node: NodeProto) -> bool:
    """Whether ``replace_fused`` knows standard operators for the operator of ``node``."""
    return node.domain == MICROSOFT and node.op_type in _PARTS


def note_on_layouts(graph: Graph) -> str | None:
    """What the user is told of nodes for one processor's memory layout; None if there is none."""
    nodes = [node for node in graph.nodes if node.proto.domain in _LAYOUTS]
    products = [node for node in nodes if not node.proto.op_type.startswith("Reorder")]
    if not products:
        return None
    shown = listed([f"'{node.name}' ({node.proto.domain}.{node.op})" for node in products], 1)
    return (
        f"ONNX Runtime's optimizer has fitted this file to one processor: {shown}, which no rule "
        "quantizes; give the model as it was before ONNX Runtime optimized it"
    )


def replace_fused(proto: ModelProto, infer: Infer) -> int:
    """Replace fused operators in the main graph of ``proto``; returns how many.

    FusedConv, FusedGemm, FusedMatMul, Gelu, BiasGelu, FastGelu, QuickGelu and
    SkipLayerNormalization, exactly but for rounding. ``infer``: ONNX's inference, which knows no
    type behind these operators. One that is used in a way that standard operators of the model's
    opset lack stays, and so do all in a model that holds other floats than float32.
    """
    operators = {node.op_type for node in proto.graph.node if node.domain == MICROSOFT}
    if (
        operators.isdisjoint(_PARTS)
        or standard_opset(proto) < _MIN_OPSET
        or _holds_other_floats(proto)
    ):
        return 0
    stub = without_large_tensors(proto)
    _replace(stub, None)
    known = {name: value.type.tensor_type for name, value in infer(stub).items()}
    ranks = {
        name: len(tensor_type.shape.dim)
        for name, tensor_type in known.items()
        if tensor_type.HasField("shape")
    }
    return _replace(proto, {**ranks, **{t.name: len(t.dims) for t in proto.graph.initializer}})


def _replace(proto: ModelProto, ranks: Mapping[str, int] | None) -> int:
    """``ranks``: of tensors as far as known; None where they are to be inferred of the result."""
    builder = _Builder(proto.graph, standard_opset(proto), ranks)
    taken = 0
    for node in list(proto.graph.node):
        parts = _PARTS.get(node.op_type) if _may_take_apart(node) else None
        if parts is not None and parts(_Fused(builder, node)):
            taken += 1
        else:
            builder.nodes.append(node)
    replace_nodes(proto.graph, builder.nodes)
    return taken


def _may_take_apart(node: NodeProto) -> bool:
    """Whether inputs, output and attributes are there and of their types; ONNX has no schemas."""
    if node.domain != MICROSOFT or not (node.output and node.output[0]):
        return False
    least = _LEAST_INPUTS.get(node.op_type, 0)
    return (
        len(node.input) >= least
        and all(node.input[:least])
        and all(a.type == _TYPES.get(a.name, a.type) for a in node.attribute)
        and not any(a.ref_attr_name for a in node.attribute)
    )


def _holds_other_floats(proto: ModelProto) -> bool:
    types = {tensor.data_type for tensor in all_tensors(proto.graph)}
    types |= {value.type.tensor_type.elem_type for value in proto.graph.input}
    return not types.isdisjoint((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))


class _Builder:
    """The nodes of the new graph, and names that are free in it."""

    def __init__(self, graph: GraphProto, opset: int, ranks: Mapping[str, int] | None) -> None:
        self.nodes: list[NodeProto] = []
        self.opset, self.ranks = opset, ranks
        self._graph = graph
        names = {node.name for node in graph.node}
        self.names = UnusedNames(tensor_names(graph) | names)

    def constant(self, values: Any, near: str) -> str:
        """Name of a new float32 initializer."""
        name = self.names.unused(f"{near}_constant")
        tensor = numpy_helper.from_array(np.asarray(values, np.float32), name)
        self._graph.initializer.append(tensor)
        return name


class _Fused:
    """A fused node; the standard nodes that are made for it are appended to the builder's."""

    def __init__(self, builder: _Builder, node: NodeProto) -> None:
        self._builder, self._node = builder, node
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.opset, self.ranks = builder.opset, builder.ranks
        self.output = node.output[0]

    def input(self, index: int) -> str:
        """Name of an input; "" if it is omitted."""
        return self._node.input[index] if index < len(self._node.input) else ""

    def output_at(self, index: int) -> str:
        """Name of an output; "" if it is omitted."""
        return self._node.output[index] if index < len(self._node.output) else ""

    def number(self, name: str, default: float) -> float:
        """The value of an attribute."""
        return float(self.attributes.get(name, default))

    def constant(self, values: Any) -> str:
        """Name of a new float32 initializer."""
        return self._builder.constant(values, self.output)

    def add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Append a node, by default with a new output; return the output."""
        output = output or self._builder.names.unused(f"{self.output}_{op}")
        name = self._builder.names.unused(f"{self._node.name or self.output}_{op}")
        node = helper.make_node(op, inputs, [output], name=name, **attributes)
        self._builder.nodes.append(node)
        return output


def _conv(fused: _Fused) -> bool:
    """activation(Conv(X, W, B) + Z)."""
    name = _activation(fused)
    if name is None:
        return False
    attributes = {
        key: value for key, value in fused.attributes.items() if key in _CONV and value != []
    }
    inputs = [fused.input(0), fused.input(1), *filter(None, [fused.input(2)])]
    residual = fused.input(3)
    value = fused.add("Conv", inputs, "" if name or residual else fused.output, **attributes)
    if residual:
        value = fused.add("Add", [value, residual], "" if name else fused.output)
    if name:
        _activate(fused, name, value, list(fused.attributes.get("activation_params", ())))
    return True


def _gemm(fused: _Fused) -> bool:
    """activation(alpha * A' B' + beta * C)."""
    name = _activation(fused)
    if name is None:
        return False
    attributes = {
        k: v for k, v in fused.attributes.items() if k in ("alpha", "beta", "transA", "transB")
    }
    inputs = [fused.input(0), fused.input(1), *filter(None, [fused.input(2)])]
    value = fused.add("Gemm", inputs, "" if name else fused.output, **attributes)
    if name:
        keys = ("activation_alpha", "activation_beta")
        _activate(fused, name, value, [fused.number(k, 0) for k in keys if k in fused.attributes])
    return True


def _activation(fused: _Fused) -> str | None:
    """The activation that ``fused`` names, "" for none; None if its parameters are not known."""
    name = fused.attributes.get("activation", b"").decode("utf-8", "replace")
    if not name:
        return ""
    given = len(fused.attributes.get("activation_params", ())) or sum(
        key in fused.attributes for key in ("activation_alpha", "activation_beta")
    )
    return name if name in _ACTIVATIONS and given in (0, len(_ACTIVATIONS[name])) else None


def _activate(fused: _Fused, name: str, value: str, parameters: Sequence[float]) -> None:
    """End ``fused`` with an activation; without ``parameters`` with its operator's defaults."""
    if name == "Clip":
        fused.add(name, [value, *map(fused.constant, parameters)], fused.output)
    else:
        attributes = dict(zip(_ACTIVATIONS[name], parameters, strict=False))
        fused.add(name, [value], fused.output, **attributes)


def _matmul(fused: _Fused) -> bool:
    """alpha * A' B', each transposed in its last two dimensions where asked for."""
    if fused.number("transBatchA", 0) or fused.number("transBatchB", 0):
        return False
    turned = [bool(fused.number(key, 0)) for key in ("transA", "transB")]
    inputs, alpha = [fused.input(0), fused.input(1)], fused.number("alpha", 1)
    output = fused.output if alpha == 1 else ""
    if any(turned) and fused.ranks is None:
        # The same product, of tensors whose number of dimensions is not known yet.
        left, right = ("ji" if turned[0] else "ij"), ("kj" if turned[1] else "jk")
        equation = f"...{left},...{right}->...ik"
        value = fused.add("Einsum", inputs, output, equation=equation)
    else:
        orders = [_turn(fused, name) for name in inputs]
        if any(turned) and None in orders:  # Beside a vector ONNX Runtime has rules of its own.
            return False
        for index, asked in enumerate(turned):
            if asked:
                inputs[index] = fused.add("Transpose", [inputs[index]], perm=orders[index])
        value = fused.add("MatMul", inputs, output)
    if alpha != 1:
        fused.add("Mul", [value, fused.constant(alpha)], fused.output)
    return True


def _turn(fused: _Fused, tensor: str) -> list[int] | None:
    """The order that exchanges the last two dimensions; None if there are none, or unknown."""
    rank = (fused.ranks or {}).get(tensor, 0)
    return [*range(rank - 2), rank - 1, rank - 2] if rank >= 2 else None


def _gelu(fused: _Fused) -> bool:
    """x * 0.5 * (1 + erf(x / sqrt(2))), as PyTorch exports it; of x + bias where there is one."""
    bias = fused.input(1)
    x = fused.add("Add", [fused.input(0), bias]) if bias else fused.input(0)
    scaled = fused.add("Div", [x, fused.constant(math.sqrt(2))])
    one = fused.add("Add", [fused.add("Erf", [scaled]), fused.constant(1)])
    fused.add("Mul", [fused.add("Mul", [x, one]), fused.constant(0.5)], fused.output)
    return True


def _fast_gelu(fused: _Fused) -> bool:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) of x + bias."""
    bias = fused.input(1)
    x = fused.add("Add", [fused.input(0), bias]) if bias else fused.input(0)
    cube = fused.add("Mul", [fused.add("Pow", [x, fused.constant(3)]), fused.constant(0.044715)])
    inner = fused.add("Mul", [fused.add("Add", [x, cube]), fused.constant(math.sqrt(2 / math.pi))])
    one = fused.add("Add", [fused.add("Tanh", [inner]), fused.constant(1)])
    fused.add("Mul", [fused.add("Mul", [x, fused.constant(0.5)]), one], fused.output)
    return True


def _quick_gelu(fused: _Fused) -> bool:
    """x * sigmoid(alpha * x); with alpha 1 it is SiLU."""
    x, alpha = fused.input(0), fused.number("alpha", 1.702)
    scaled = x if alpha == 1 else fused.add("Mul", [x, fused.constant(alpha)])
    fused.add("Mul", [x, fused.add("Sigmoid", [scaled])], fused.output)
    return True


def _skip_layer_norm(fused: _Fused) -> bool:
    """LayerNormalization of input + skip + bias over the last dimension; the sum is an output."""
    if fused.output_at(1) or fused.output_at(2) or fused.opset < _LAYER_NORM_OPSET:
        return False
    bias, total = fused.input(4), fused.output_at(3)
    first = [fused.input(0), fused.input(1)]
    value = fused.add("Add", first, "" if bias else total)
    if bias:
        value = fused.add("Add", [value, bias], total)
    scale = [fused.input(2), *filter(None, [fused.input(3)])]
    epsilon = fused.number("epsilon", 1e-12)
    fused.add("LayerNormalization", [value, *scale], fused.output, axis=-1, epsilon=epsilon)
    return True


_PARTS: Mapping[str, Callable[[_Fused], bool]] = {
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_norm,
}
