"""Einsums of two tensors as the products that a compiler makes of them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 40 small graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.graph.index import TensorType, with_nodes


@dataclass(frozen=True)
class Equation:
    """What an Einsum of two tensors does to each dimension, which has a letter.

    ``batch``: in all three, ``rows``: of the first tensor, ``columns``: of the second, ``summed``.
    """

    first: str
    second: str
    made: str
    batch: str
    rows: str
    columns: str
    summed: str

    @staticmethod
    def of(text: str) -> Equation | None:
        """The equation of a product; None for sums of one tensor, diagonals and outer products."""
        given, arrow, made = text.replace(" ", "").partition("->")
        parts = [*given.split(","), made]
        if not arrow or len(parts) != 3 or any("." in p or len(set(p)) < len(p) for p in parts):
            return None
        first, second, _ = parts
        both = [letter for letter in first if letter in second]
        summed = "".join(letter for letter in both if letter not in made)
        batch = "".join(letter for letter in both if letter in made)
        alone = [letter for letter in made if letter not in both]
        rows = "".join(letter for letter in alone if letter in first)
        columns = "".join(letter for letter in alone if letter in second)
        if not summed or set(batch + rows + columns + summed) != set(first + second):
            return None
        return Equation(first, second, made, batch, rows, columns, summed)


@dataclass(frozen=True)
class EinsumProducts:
    """A graph with products for Einsums; ``unnamed``: nodes that stand for none of the model."""

    graph: Graph
    unnamed: frozenset[str] = frozenset()


def with_products(graph: Graph) -> EinsumProducts:
    """``graph`` with a MatMul of its name for each Einsum of two tensors, and what turns these."""
    writer = _Writer(graph)
    for node in graph.nodes:
        equation = _known(graph, node)
        if equation is None:
            writer.nodes.append(node)
        else:
            writer.add_product(node, equation)
    if not writer.changed:
        return EinsumProducts(graph)
    made = with_nodes(graph, writer.nodes, initializers=writer.constants, types=writer.types)
    return EinsumProducts(made, frozenset(writer.unnamed))


def _known(graph: Graph, node: Node) -> Equation | None:
    """The equation of an Einsum whose tensors have known shapes and fit without broadcasting."""
    if node.op != "Einsum" or len(node.inputs) != 2:
        return None
    equation = Equation.of(str(node.attributes.get("equation", "")))
    shapes = [graph.type_of(tensor).shape for tensor in node.inputs]
    if equation is None or any(
        tensor in graph.initializers and is_external(graph.initializers[tensor])
        for tensor in node.inputs
    ):
        return None
    sizes: dict[str, int] = {}
    for letters, shape in zip((equation.first, equation.second), shapes, strict=True):
        if shape is None or len(shape) != len(letters):
            return None
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    return equation


class _Writer:
    """Collects ``nodes``, and ``types`` and ``constants`` of what they read."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, TensorProto] = {}
        self.unnamed: set[str] = set()
        self.changed = False
        self._turned: dict[object, str] = {}  # Operands that several products read.

    def add_product(self, node: Node, equation: Equation) -> None:
        """The MatMul of ``node``, with Transposes and Reshapes before and behind where needed."""
        self.changed = True
        e, shapes = equation, [self._graph.type_of(tensor).shape or () for tensor in node.inputs]
        sizes = dict(zip(e.first + e.second, (*shapes[0], *shapes[1]), strict=True))
        operands = (
            self._operand(node, 0, e.first, (e.batch, e.rows, e.summed), sizes),
            self._operand(node, 1, e.second, (e.batch, e.summed, e.columns), sizes),
        )
        order, parts = e.batch + e.rows + e.columns, (e.batch, e.rows, e.columns)
        made = node.outputs[0]
        steps = []
        if len(e.rows) != 1 or len(e.columns) != 1:
            steps.append(("Reshape", [sizes[x] for x in order]))
        if order != e.made:
            steps.append(("Transpose", [order.index(x) for x in e.made]))
        dtype = self._graph.type_of(made).dtype
        written = f"{made}/product" if steps else made
        self.types[written] = TensorType(dtype, _matrix(parts, sizes))
        proto = helper.make_node("MatMul", list(operands), [written], node.name)
        self.nodes.append(
            replace(node, op="MatMul", inputs=operands, outputs=(written,), proto=proto)
        )
        shape = [sizes[x] for x in order]
        for index, (op, values) in enumerate(steps):
            target = made if index == len(steps) - 1 else f"{made}/{index}"
            if op == "Transpose":
                shape = [shape[axis] for axis in values]
            self.types[target] = TensorType(dtype, tuple(shape))
            self._add(node, f"{node.name}/made{index}", op, written, target, values)
            written = target

    def _operand(
        self,
        node: Node,
        index: int,
        letters: str,
        parts: Sequence[str],
        sizes: Mapping[str, int],
    ) -> str:
        """The tensor that the MatMul reads for ``letters``, in the order of ``parts``."""
        given, order, shape = node.inputs[index], "".join(parts), _matrix(parts, sizes)
        dtype = self._graph.type_of(given).dtype
        turns = [letters.index(x) for x in order]
        if given in self._graph.initializers:
            weight = numpy_helper.to_array(self._graph.initializers[given])
            name = f"{given}/{node.name}{index}"
            constant = np.ascontiguousarray(weight.transpose(turns).reshape(shape))
            self.constants[name] = numpy_helper.from_array(constant, name)
            return name
        known = (given, *turns, *shape)
        if known in self._turned:
            return self._turned[known]
        steps: list[tuple[str, Sequence[int], tuple[int, ...]]] = []
        if turns != sorted(turns):
            steps.append(("Transpose", turns, tuple(sizes[x] for x in order)))
        if any(len(part) != 1 for part in parts[1:]):
            steps.append(("Reshape", shape, shape))
        for number, (op, values, made_shape) in enumerate(steps):
            made = f"{node.inputs[index]}/{node.name}{index}{number}"
            self.types[made] = TensorType(dtype, made_shape)
            self._add(node, f"{node.name}/given{index}{number}", op, given, made, values)
            given = made
        self._turned[known] = given
        return given

    def _add(
        self, node: Node, name: str, op: str, given: str, made: str, values: Sequence[int]
    ) -> None:
        inputs = [given]
        if op == "Reshape":
            shape = f"{made}/shape"
            self.constants[shape] = numpy_helper.from_array(np.array(values, np.int64), shape)
            inputs.append(shape)
        proto = helper.make_node(op, inputs, [made], name)
        if op == "Transpose":
            proto.attribute.append(helper.make_attribute("perm", values))
        self.unnamed.add(name)
        self.nodes.append(Node(name, op, "", tuple(inputs), (made,), node.index, proto))


def _matrix(parts: Sequence[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of matrices whose rows and columns are all dimensions of a part."""
    batch, *matrix = parts
    return (*(sizes[x] for x in batch), *(math.prod(sizes[x] for x in part) for part in matrix))
