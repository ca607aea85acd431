"""If, Loop and Scan replaced by the nodes that run, where the model fixes which and how often.

Rules then see what was in their bodies. The nodes are the same and run in the same order, so
outputs stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from placer.graph.edit import every_node, reads, rename_tensors, replace_nodes
from placer.graph.external_data import is_external
from placer.graph.flat import body_of, entered_bodies
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.randomness import RANDOM_OPS
from placer.graph.scan_form import ScanForm
from placer.model.passes.constant_nodes import constants_to_initializers

# Copies that unrolling may add to a model. Each is calibrated and decided, and each builds time.
MAX_UNROLLED_NODES = 2000


def flatten_conditionals(graph: GraphProto) -> int:
    """Put the branch that runs in place of each If whose condition is constant; return how many."""
    constants, names = _constants(graph), UnusedNames(tensor_names(graph))
    nodes: list[NodeProto] = []
    count = 0
    for node in graph.node:
        if node.op_type != "If" or node.domain or node.input[0] not in constants:
            nodes.append(node)
            continue
        chosen = "then_branch" if constants[node.input[0]].item() else "else_branch"
        branch = body_of(node, chosen)
        if branch.sparse_initializer or len(branch.output) < len(node.output):
            nodes.append(node)
            continue
        copies = _Copies(graph, node, branch, names)
        results = copies.add({}, "")
        copies.write(results)
        nodes += copies.nodes
        count += 1
    if count:
        replace_nodes(graph, nodes)
    return count


def unroll(graph: GraphProto, types: Mapping[str, ValueInfoProto], room: int) -> tuple[int, int]:
    """Write out each Loop and Scan of a fixed trip count, as long as ``room`` nodes suffice.

    ``types``: inferred, for the lengths that Scan runs over. A Loop counts if its condition is
    never false: see https://onnx.ai/onnx/operators/onnx__Loop.html and onnx__Scan.html. Bodies
    that draw random numbers stay. Returns how many nodes were replaced, and by how many.
    """
    constants, names = _constants(graph), UnusedNames(tensor_names(graph))
    nodes: list[NodeProto] = []
    count = added = 0
    for node in graph.node:
        trips = _trips(node, constants, types)
        cost = trips * _nodes_a_trip(node) if trips else 0
        if not trips or added + cost > room:
            nodes.append(node)
            continue
        copies = _Copies(graph, node, body_of(node, "body"), names)
        (_write_loop if node.op_type == "Loop" else _write_scan)(copies, trips)
        nodes += copies.nodes
        count, added = count + 1, added + cost
    if count:
        replace_nodes(graph, nodes)
    return count, added


@dataclass
class _Copies:
    """Copies of the nodes of ``body``, for ``graph``, in place of ``owner``.

    Names that are local to the body get the owner's first output as prefix, and a number where
    ``names`` has them: two bodies may use the same names. Initializers, and nodes that depend on
    none of the body's inputs, are written once.
    """

    graph: GraphProto
    owner: NodeProto
    body: GraphProto
    names: UnusedNames
    nodes: list[NodeProto] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)
    varying: list[NodeProto] = field(default_factory=list)
    made: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        constants_to_initializers(self.body)
        for tensor in self.body.initializer:
            moved = self.graph.initializer.add()
            moved.CopyFrom(tensor)
            moved.name = self.shared[tensor.name] = self.local(tensor.name)
        depends = {value.name for value in self.body.input}
        for node in self.body.node:
            if depends.isdisjoint(reads(node)):
                self._copy(node, "", self.shared)
            else:
                self.varying.append(node)
                depends.update(tensor for tensor in node.output if tensor)

    def local(self, name: str) -> str:
        """A new name in the outer graph for something that the owner brings along."""
        first = next(tensor for tensor in self.owner.output if tensor)
        return self.names.unused(f"{first}/{name}")

    def add(self, inputs: Mapping[str, str], trip: str) -> list[str]:
        """Copy the nodes for one trip; ``inputs``: outer names. Returns those of the outputs."""
        names = {**self.shared, **inputs}
        for node in self.varying:
            self._copy(node, trip, names)
        return [names.get(value.name, value.name) for value in self.body.output]

    def write(self, tensors: Sequence[str]) -> None:
        """Give ``tensors`` the names of the owner's first outputs."""
        for tensor, output in zip(tensors, self.owner.output, strict=False):
            if output:
                self.nodes.append(helper.make_node("Identity", [tensor], [output]))

    def stack(self, tensors: Sequence[str], axis: int, output: str) -> None:
        """Write ``tensors``, one a trip, as one with another axis."""
        if not output:
            return
        axes = self.constant(axis, "axis", 1)
        parts = [self.names.unused(f"{output}/{trip}/part") for trip in range(len(tensors))]
        for tensor, part in zip(tensors, parts, strict=True):
            self.nodes.append(helper.make_node("Unsqueeze", [tensor, axes], [part]))
        self.nodes.append(helper.make_node("Concat", parts, [output], axis=axis))

    def constant(self, value: int | bool, what: str, dimensions: int = 0) -> str:
        """An initializer with one value, made once."""
        key = what, value, dimensions
        if key not in self.made:
            array = np.array(value).reshape([1] * dimensions)
            self.made[key] = self.local(f"{what}_{value}_{dimensions}")
            self.graph.initializer.append(numpy_helper.from_array(array, self.made[key]))
        return self.made[key]

    def _copy(self, node: NodeProto, trip: str, names: dict[str, str]) -> None:
        prefix = f"{trip}/" if trip else ""
        names.update({t: self.local(f"{prefix}{t}") for t in node.output if t})
        copy = NodeProto.FromString(node.SerializeToString())
        rename_tensors(copy, lambda tensor: names.get(tensor, tensor))
        if trip and node.name:
            copy.name = f"{self.owner.name}/{trip}/{node.name}"
        self.nodes.append(copy)


def _write_loop(copies: _Copies, trips: int) -> None:
    names = [value.name for value in copies.body.input]
    # Bodies may declare the trip and the condition as tensors of one dimension, too.
    ranks = [len(value.type.tensor_type.shape.dim) for value in copies.body.input[:2]]
    carried = list(copies.owner.input[2:])
    stacks: list[list[str]] = [[] for _ in copies.body.output[1 + len(carried) :]]
    for trip in range(trips):
        count = copies.constant(trip, "trip", ranks[0])
        go = copies.constant(True, "condition", ranks[1])
        results = copies.add(dict(zip(names, [count, go, *carried], strict=True)), str(trip))
        carried = results[1 : 1 + len(carried)]
        for stack, tensor in zip(stacks, results[1 + len(carried) :], strict=True):
            stack.append(tensor)
    copies.write(carried)
    outputs = copies.owner.output[len(carried) :]
    for stack, output in zip(stacks, outputs, strict=False):
        copies.stack(stack, 0, output)


def _write_scan(copies: _Copies, trips: int) -> None:
    form = ScanForm.of(copies.owner)
    names = [value.name for value in copies.body.input]
    states, scanned = list(copies.owner.input[: form.states]), copies.owner.input[form.states :]
    stacks: list[list[str]] = [[] for _ in copies.body.output[form.states :]]
    for trip in range(trips):
        slices = []
        for position, tensor in enumerate(scanned):
            index = trips - 1 - trip if form.is_reversed("input", position) else trip
            slices.append(copies.local(f"{trip}/slice_{position}"))
            given = [tensor, copies.constant(index, "index")]
            axis = form.axis("input", position)
            copies.nodes.append(helper.make_node("Gather", given, slices[-1:], axis=axis))
        results = copies.add(dict(zip(names, [*states, *slices], strict=True)), str(trip))
        states = results[: form.states]
        for stack, tensor in zip(stacks, results[form.states :], strict=True):
            stack.append(tensor)
    copies.write(states)
    outputs = copies.owner.output[form.states :]
    for position, (stack, output) in enumerate(zip(stacks, outputs, strict=False)):
        ordered = stack[::-1] if form.is_reversed("output", position) else stack
        copies.stack(ordered, form.axis("output", position), output)


def _trips(
    node: NodeProto, constants: Mapping[str, np.ndarray], types: Mapping[str, ValueInfoProto]
) -> int:
    """How often the body of a Loop or Scan runs; 0 if that is not fixed or it must stay."""
    if node.domain or node.op_type not in ("Loop", "Scan"):
        return 0
    body = body_of(node, "body")
    if not entered_bodies(node) or any(n.op_type in RANDOM_OPS for n in every_node(body.node)):
        return 0
    if node.op_type == "Scan":
        form = ScanForm.of(node)
        scanned = [types.get(name) for name in node.input[form.states :]]
        lengths = {
            _length(value, form.axis("input", position))
            for position, value in enumerate(scanned)
            if value is not None
        } - {0}
        return lengths.pop() if len(lengths) == 1 else 0
    count = constants.get(node.input[0])
    if count is None or count.dtype != np.int64 or not _always_true(node, body, constants):
        return 0
    return max(0, int(count.item()))


def _nodes_a_trip(node: NodeProto) -> int:
    """How many nodes a trip writes, with those that take slices and stack results; at least 1."""
    body = body_of(node, "body")
    if node.op_type == "Loop":
        around = len(body.output) - 1 - len(node.input[2:])
    else:
        states = ScanForm.of(node).states
        around = len(node.input) + len(body.output) - 2 * states
    return max(1, len(body.node) + around)


def _length(value: ValueInfoProto, axis: int) -> int:
    dims = value.type.tensor_type.shape.dim
    return max(0, dims[axis].dim_value) if -len(dims) <= axis < len(dims) else 0


def _always_true(node: NodeProto, body: GraphProto, constants: Mapping[str, np.ndarray]) -> bool:
    """Whether the condition of a Loop is true at the start, and what the body makes of it too."""
    start = node.input[1] if len(node.input) > 1 else ""
    if start and not (start in constants and constants[start].item()):
        return False
    producer = {tensor: inner for inner in body.node for tensor in inner.output}
    name = body.output[0].name
    while name in producer and producer[name].op_type == "Identity":
        name = producer[name].input[0]
    if name == body.input[1].name:
        return True
    known = {**constants, **_constants(body)}
    return name in known and bool(known[name].item())


def _constants(graph: GraphProto) -> dict[str, np.ndarray]:
    """Constants of one value."""
    tensors: list[tuple[str, TensorProto]] = [(t.name, t) for t in graph.initializer]
    for node in graph.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].HasField("t")
        ):
            tensors.append((node.output[0], node.attribute[0].t))
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in tensors
        if not is_external(tensor) and np.prod(tensor.dims, dtype=float) == 1
    }
