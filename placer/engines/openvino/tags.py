"""Names that let every layer of OpenVINO's runtime model be traced to nodes of the candidate.

A layer lists the friendly names of the operations that were fused into it. The ONNX reader makes
several operations of some nodes and gives the node's name to one of them, so all get a name here
that holds the node's number.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx

from placer.graph.equal_nodes import Call, equal_calls
from placer.graph.neutral import handed_on
from placer.graph.operators import OF_SHAPES

# The Transpose that a product's operand has is called after the product, but is none.
_TAG = re.compile(r"placer:(\d+):\d+(?!\d|/transpose_)")


@dataclass(frozen=True)
class Tags:
    """The candidate's nodes by the number in their tags, in the order of the graph.

    ``outputs``: the graph's outputs in OpenVINO's order. ``constants``: its initializers.
    ``scalars``: those of one element. ``no_ops``: nodes that hand on what they read, if OpenVINO
    takes these away. ``twins``: the first of nodes that compute the same, by those behind it, of
    which OpenVINO runs one.
    """

    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str] = frozenset()
    no_ops: frozenset[int] = frozenset()
    scalars: frozenset[str] = frozenset()
    twins: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def settled(self) -> frozenset[int]:
        """The nodes that read constants and shapes alone: computed before the model runs."""
        known, constant_nodes = {"", *self.constants}, set()
        for number, node in enumerate(self.nodes):
            if node.op_type in OF_SHAPES or (node.input and known.issuperset(node.input)):
                known.update(node.output)
                constant_nodes.add(number)
        return frozenset(constant_nodes)

    @cached_property
    def _numbers(self) -> dict[str, tuple[list[int], list[int]]]:
        """By tensor the numbers of the nodes that write and that read it."""
        numbers_of: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for number, node in enumerate(self.nodes):
            for tensor in filter(None, node.output):
                numbers_of[tensor][0].append(number)
            for tensor in filter(None, node.input):
                numbers_of[tensor][1].append(number)
        return numbers_of

    def sources(self, number: int) -> set[str]:
        """The tensors that a node reads, before no-ops."""
        tensors = set[str]()
        for tensor in filter(None, self.nodes[number].input):
            no_ops = self.no_ops.intersection(self._numbers[tensor][0])
            tensors |= {t for n in no_ops for t in self.sources(n)} if no_ops else {tensor}
        return tensors

    def producers(self, number: int) -> set[int]:
        """The nodes that write what a node reads, past no-ops."""
        return {n for tensor in self.sources(number) for n in self._numbers[tensor][0]}

    def readers(self, number: int) -> set[int]:
        """The nodes that read what a node writes, past no-ops."""
        reading = {n for tensor in self.nodes[number].output for n in self._numbers[tensor][1]}
        behind = {n for no_ops in reading & self.no_ops for n in self.readers(no_ops)}
        return reading - self.no_ops | behind

    def find(self, names: str) -> tuple[int, ...]:
        """The numbers of nodes that ``names``, separated by commas, speak of; each once."""
        return tuple(sorted({int(number) for number in _TAG.findall(names)}))


def tag_nodes(model: Any, graph: onnx.GraphProto) -> Tags:
    """Rename the operations of ``model``, which OpenVINO has read from ``graph``."""
    nodes = tuple(graph.node)
    ports = {name: port for op in model.get_ops() for port in op.outputs() for name in port.names}
    taken: dict[str, int] = {}
    for number, node in enumerate(nodes):
        border = {name for name in node.input if name}
        ends = [ports[name] for name in node.output if name in ports]
        for count, op in enumerate(_operations(ends, border, taken)):
            taken[op.get_name()] = number
            op.set_friendly_name(f"placer:{number}:{count}")
    declared = [value.name for value in graph.output]
    constants = {tensor.name: tensor for tensor in graph.initializer}
    types = {n: (port.get_partial_shape(), port.get_element_type()) for n, port in ports.items()}
    no_ops = dict(_no_ops(graph, types))
    scalars = frozenset(t.name for t in graph.initializer if math.prod(t.dims) == 1)
    twins = equal_calls(
        [
            Call(node.op_type, node.input, node.output, node.attribute, no_ops.get(number))
            for number, node in enumerate(nodes)
        ],
        constants,
    )
    outputs = _outputs(model, declared)
    return Tags(nodes, outputs, frozenset(constants), frozenset(no_ops), scalars, twins)


def _no_ops(graph: onnx.GraphProto, types: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The nodes that hand on what they read, and which input.

    ``types``: shape and element type by tensor.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for number, node in enumerate(graph.node):
        data = handed_on(node.op_type, node.input, constants)
        if data is not None and data in types and types[data] == types.get(node.output[0]):
            yield number, data


def _outputs(model: Any, declared: list[str]) -> tuple[str, ...]:
    """OpenVINO's outputs by the candidate's names; they are in the candidate's order."""
    ports = model.outputs
    if len(ports) != len(declared):
        raise RuntimeError(f"the model has {len(ports)} outputs instead of {len(declared)}")
    return tuple(declared)


def _operations(ends: list[Any], border: set[str], taken: Mapping[str, int]) -> list[Any]:
    """What lies between tensors called as in ``border`` and the output ports ``ends``."""
    waiting = [port.get_node() for port in ends]
    by_name: dict[str, Any] = {}
    while waiting:
        op = waiting.pop()
        name = op.get_name()
        if name in by_name or name in taken or op.get_type_name() in ("Parameter", "Constant"):
            continue
        by_name[name] = op
        for port in op.inputs():
            source = port.get_source_output()
            if border.isdisjoint(source.get_names()):
                waiting.append(source.get_node())
    return list(by_name.values())
