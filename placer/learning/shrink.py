"""Make a case smaller for as long as the plans still differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx.shape_inference
from onnx import ModelProto, NodeProto, TensorProto, helper

from placer.errors import PlacerError
from placer.graph import Edge, Graph
from placer.learning.case import Case
from placer.quantization import Placement

_MOST_TRIALS = 60


def shrink(case: Case, still_differs: Callable[[Case], bool], trials: int = _MOST_TRIALS) -> Case:
    """A case of fewer nodes and pairs of which the plans differ, too.

    In turn: the part of the graph in front of a tensor, the part behind it, without a node, with
    fewer pairs; until nothing helps or ``trials`` cases were judged. The same for the same case.
    """
    seen = {case.id}
    left = trials
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in _smaller(case):
            if candidate.id in seen or left <= 0:
                continue
            seen.add(candidate.id)
            left -= 1
            if still_differs(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for proto in _cut(case.model.proto):
        try:
            yield Case.of(proto, case.placement)
        except (PlacerError, onnx.shape_inference.InferenceError):
            continue
    graph, placement = case.model.graph, case.placement
    edges = sorted(placement.edges)
    cuts = [frozenset(e for e in edges if e.tensor == t) for t in sorted({e.tensor for e in edges})]
    for cut in [*cuts, *(frozenset({edge}) for edge in edges)]:
        yield Case(case.model, with_whole_products(placement.without(cut), graph))


def _cut(proto: ModelProto) -> Iterator[ModelProto]:
    """Smaller graphs, those that lose most first; all fit in types and shapes."""
    made = [t for node in proto.graph.node for t in node.output if t]
    types = {value.name: value for value in _inferred(proto).graph.value_info}
    outputs = [value.name for value in proto.graph.output]
    for tensor in made:
        if [tensor] != outputs:
            yield _part(proto, [tensor], {})
    for tensor in reversed(made):
        if tensor in types and types[tensor].type.tensor_type.elem_type == TensorProto.FLOAT:
            yield _part(proto, outputs, {tensor: types[tensor]})
    for output in outputs if len(outputs) > 1 else ():
        yield _part(proto, [other for other in outputs if other != output], {})
    yield from _without_node(proto)


def _part(
    proto: ModelProto, outputs: list[str], given: dict[str, onnx.ValueInfoProto]
) -> ModelProto:
    """What ``outputs`` need, with the tensors of ``given`` as inputs."""
    needed = set(outputs)
    nodes: list[NodeProto] = []
    for node in reversed(proto.graph.node):
        if not all(t in given for t in node.output) and needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    inputs = [v for v in proto.graph.input if v.name in needed]
    inputs += [v for name, v in given.items() if name in needed]
    values = [helper.make_tensor_value_info(t, TensorProto.FLOAT, None) for t in outputs]
    weights = [t for t in proto.graph.initializer if t.name in needed]
    graph = helper.make_graph(nodes, proto.graph.name, inputs, values, weights)
    made = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    return _inferred(made)


def _without_node(proto: ModelProto) -> Iterator[ModelProto]:
    """The graph without one node, whose readers read one of its inputs of the same shape."""
    inferred = _inferred(proto).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    shapes = {v.name: v.type.SerializeToString() for v in values}
    left = {value.name for value in proto.graph.output}
    for index, node in enumerate(proto.graph.node):
        alike = (t for t in node.input if t in shapes and shapes[t] == shapes.get(node.output[0]))
        source = next(alike, None)
        if source is None or len(node.output) > 1 or node.output[0] in left:
            continue
        changed = ModelProto()
        changed.CopyFrom(proto)
        del changed.graph.node[index]
        for other in changed.graph.node:
            for position, tensor in enumerate(other.input):
                if tensor == node.output[0]:
                    other.input[position] = source
        yield _part(changed, [value.name for value in proto.graph.output], {})


def _inferred(proto: ModelProto) -> ModelProto:
    return onnx.shape_inference.infer_shapes(proto, data_prop=True)


def with_whole_products(placement: Placement, graph: Graph) -> Placement:
    """``placement`` without pairs on one operand only of a convolution or matrix product.

    No layout of a rule has them, and what an engine makes of them tells nothing of those that do.
    """
    edges = placement.edges
    halves = {
        edge
        for node in graph.nodes
        if node.op in ("Conv", "ConvTranspose", "MatMul", "Gemm")
        for operands in [[Edge(node.inputs[i], node.name, i) for i in (0, 1)]]
        if sum(edge in edges for edge in operands) == 1
        for edge in operands
    }
    return placement.without(halves)
