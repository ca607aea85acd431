"""Predicates on the shapes and types of tensors and on what nodes do with axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import ge

from onnx import TensorProto, numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.graph.transposes import order_of
from placer.rules.check import Check, Nodes, Tensors, within
from placer.rules.predicate_schema import DimIs, ElementsAre, ProductsAre, RankIs, TypeIs

Shape = tuple[int, ...] | None


def is_scalar(tensor: str, graph: Graph) -> bool:
    """Whether the tensor has one element, of whatever rank."""
    shape = graph.type_of(tensor).shape
    return shape is not None and all(dim == 1 for dim in shape)


def rank_is(condition: RankIs) -> Check:
    """The check that the rank of each tensor is one of those given."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(s is not None and len(s) in condition.one_of for s in shapes)

    return check


def type_is(condition: TypeIs) -> Check:
    """The check that the element type of each tensor is one of those given."""
    allowed = {TensorProto.DataType.Value(name.upper()) for name in condition.one_of}

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        found = [graph.type_of(tensor).dtype for tensor in tensors.get(condition.tensor, ())]
        return bool(found) and all(dtype in allowed for dtype in found)

    return check


def dim_is(condition: DimIs) -> Check:
    """The check that one dimension of each tensor is within limits and a multiple of a number."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(_dim_within(condition, shape) for shape in shapes)

    return check


def _dim_within(condition: DimIs, shape: Shape) -> bool:
    if shape is None or not -len(shape) <= condition.axis < len(shape):
        return False
    dim = shape[condition.axis]
    if not within(dim, condition.at_least, condition.at_most):
        return False
    return condition.multiple_of is None or dim % condition.multiple_of == 0


def elements_are(condition: ElementsAre) -> Check:
    """The check that each tensor has as many elements, from an axis on, as limits allow."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(_elements_within(condition, shape) for shape in shapes)

    return check


def _elements_within(condition: ElementsAre, shape: Shape) -> bool:
    # A scalar has an element, though no axis to count from.
    if shape is None or condition.from_axis >= max(len(shape), 1):
        return False
    count = math.prod(shape[condition.from_axis :])
    return within(count, condition.at_least, condition.at_most)


def same_shape(names: Sequence[str]) -> Check:
    """The check that the shapes of all tensors are known and equal."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = {shape for name in names for shape in _shapes(name, tensors, graph)}
        return len(shapes) == 1 and None not in shapes

    return check


def equal_in_model(names: Sequence[str]) -> Check:
    """The check that the model itself has the dimensions of all tensors equal, in size or name."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        bound = [tensor for name in names for tensor in tensors.get(name, ())]
        first, *others = [graph.dimensions_of(tensor) for tensor in bound] or [()]
        known = bool(first) and None not in first
        return known and all(dimensions == first for dimensions in others)

    return check


def _shapes(name: str, tensors: Tensors, graph: Graph) -> Iterator[Shape]:
    return (graph.type_of(tensor).shape for tensor in tensors.get(name, ()))


def products_are(condition: ProductsAre) -> Check:
    """The check of how many products a MatMul or Gemm takes, whose first operand is not turned."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(condition.node)
        if node is None or node.attributes.get("transA", 0):
            return False
        read = graph.type_of(node.inputs[0]).shape
        written = graph.type_of(node.outputs[0]).shape
        if not read or written is None:
            return False
        products = math.prod(written) * read[-1]
        return within(products, condition.at_least, condition.at_most)

    return check


def depthwise(name: str) -> Check:
    """The check that a Conv has one group for each channel, and more than one."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        if node is None:
            return False
        groups: int = node.attributes.get("group", 1)
        shape = graph.type_of(node.inputs[0]).shape
        return groups > 1 and shape is not None and len(shape) > 1 and shape[1] == groups

    return check


def kernel_covers_strides(name: str) -> Check:
    """The check that a kernel is as long as its stride, or longer, along each axis."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        if node is None or node.op not in ("Conv", "ConvTranspose"):
            return False
        shape = graph.type_of(node.inputs[1]).shape
        strides = node.attributes.get("strides", ())  # None stands for 1 along each axis.
        return shape is not None and all(map(ge, shape[2:], strides))

    return check


def keeps_order(name: str) -> Check:
    """The check that a Transpose moves no elements: only axes of length 1 change places."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        if node is None or node.op != "Transpose":
            return False
        shape = graph.type_of(node.inputs[0]).shape
        if shape is None:
            return False
        moved = [axis for axis in order_of(graph, node) if shape[axis] != 1]
        return moved == sorted(moved)

    return check


def is_square(tensor: str, graph: Graph) -> bool:
    """Whether the last two dimensions are equal."""
    shape = graph.type_of(tensor).shape
    return shape is not None and len(shape) > 1 and shape[-1] == shape[-2]


def is_turned(tensor: str, graph: Graph) -> bool:
    """Whether a Transpose wrote the tensor that swaps the last two axes and no others."""
    node = graph.producer.get(tensor)
    shape = graph.type_of(tensor).shape
    if node is None or node.op != "Transpose" or shape is None or len(shape) < 2:
        return False
    rank = len(shape)
    return order_of(graph, node) == (*range(rank - 2), rank - 1, rank - 2)


def batched_product(name: str) -> Check:
    """The check that a MatMul, or an Einsum that does the same, multiplies matrices."""

    def check(nodes: Nodes, _: Tensors, __: Graph) -> bool:
        node = nodes.get(name)
        if node is None or node.op == "MatMul":
            return node is not None
        return node.op == "Einsum" and _multiplies(str(node.attributes.get("equation", "")))

    return check


def _multiplies(equation: str) -> bool:
    """Whether ``equation`` is that of matrices in the last two axes: ...ik,...kj (or jk)->...ij."""
    given, _, result = equation.replace(" ", "").partition("->")
    first, _, second = given.partition(",")
    if min(len(first), len(second), len(result)) < 2 or "," in second:
        return False
    outer, row, inner, column = first[:-2], first[-2], first[-1], result[-1]
    turned = second in (f"{outer}{inner}{column}", f"{outer}{column}{inner}")
    return turned and result == f"{outer}{row}{column}" and len({row, inner, column}) == 3


def over_last_axis(name: str) -> Check:
    """The check that a Softmax, Reduce operator or Slice works along the last axis alone."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        shape = None if node is None else graph.type_of(node.inputs[0]).shape
        if node is None or not shape:
            return False
        return [axis % len(shape) for axis in _axes(node, graph)] == [len(shape) - 1]

    return check


def over_one_axis(names: Sequence[str]) -> Check:
    """The check that Softmax or Reduce operators work along one axis, the same for all."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        found = set[int]()
        for name in names:
            node = nodes.get(name)
            shape = None if node is None else graph.type_of(node.inputs[0]).shape
            axes = [] if node is None else _axes(node, graph)
            if not shape or len(axes) != 1:
                return False
            found.add(axes[0] % len(shape))
        return len(found) == 1

    return check


def _axes(node: Node, graph: Graph) -> list[int]:
    """The axes of a Softmax, Reduce operator or Slice; [] where none are given, as for all."""
    if node.op in ("Softmax", "LogSoftmax"):
        return [int(node.attributes.get("axis", -1))]
    has_axes = node.op == "Slice" or node.op.startswith("Reduce")  # A pattern may match Min.
    told = node.inputs[3 if node.op == "Slice" else 1 :] if has_axes else ()
    given = graph.initializers.get(told[0]) if told else None
    if given is not None and not is_external(given):
        return [int(axis) for axis in numpy_helper.to_array(given).ravel()]
    return [int(axis) for axis in node.attributes.get("axes", ())]
