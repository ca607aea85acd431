"""Constant folding of what a network computes from the shapes of its inputs alone.

An engine is built for given shapes, so chains of Shape, Gather, Unsqueeze, Range or Expand are
constants in it, and a Shape node reads no data.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.graph.index import with_nodes
from placer.graph.operators import STANDARD_DOMAINS

_OPSET = 17
_MAX_ELEMENTS = 1 << 20
# What operators of ONNX's evaluator raise; it has no error of its own for all of them.
_EVALUATOR_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")


def with_shapes_folded(graph: Graph, keeps_open: bool = False) -> Graph:
    """``graph`` with all nodes that depend on shapes and constants alone as initializers.

    ``keeps_open``: the engine is built for the shapes that the model fixes, not for given ones.
    Nodes stay where a shape is not known, a tensor has more than 2**20 elements, leaves the graph,
    is in another file, or cannot be computed here. Nodes are numbered anew; their names and edges
    stay.
    """
    settled = _settled(graph, graph.open_tensors if keeps_open else ())
    if not settled:
        return graph
    values = _evaluate(graph, settled)
    gone = {n.name for n in settled if all(t in values for t in n.outputs if t)}
    rest = [node for node in graph.nodes if node.name not in gone]
    read = {t for node in rest for t in node.inputs}
    constants = {t: value for t, value in values.items() if t in read and t not in graph.outputs}
    return with_nodes(graph, rest, initializers=constants)


def cut_states(graph: Graph) -> frozenset[str]:
    """The names of Slices of floats that shapes and constants alone decide, known or not."""
    known, names = set(graph.initializers), set[str]()
    for node in graph.nodes:
        is_decided = _is_pure(node) and all(t in known for t in node.inputs if t)
        if node.op in ("Shape", "Size") or is_decided:
            known.update(node.outputs)
            if node.op == "Slice" and graph.type_of(node.outputs[0]).is_float:
                names.add(node.name)
    return frozenset(names)


def _settled(graph: Graph, not_known: Container[str]) -> list[Node]:
    known = {name for name, tensor in graph.initializers.items() if not is_external(tensor)}
    settled = []
    for node in graph.nodes:
        if node.op in ("Shape", "Size") and graph.type_of(node.inputs[0]).shape is not None:
            is_settled = node.inputs[0] not in not_known
        else:
            is_settled = _is_pure(node) and all(t in known for t in node.inputs if t)
        sizes = [math.prod(graph.type_of(t).shape or (0,)) for t in node.outputs if t]
        leaves = any(t in graph.outputs for t in node.outputs)
        if is_settled and not leaves and max(sizes, default=0) <= _MAX_ELEMENTS:
            known.update(node.outputs)
            settled.append(node)
    return settled


def _is_pure(node: Node) -> bool:
    subgraphs = any(a.type == onnx.AttributeProto.GRAPH for a in node.proto.attribute)
    random = node.op.startswith(_RANDOM)
    return not (subgraphs or random or node.domain not in STANDARD_DOMAINS) and bool(node.inputs)


def _evaluate(graph: Graph, settled: list[Node]) -> Mapping[str, TensorProto]:
    """Values of what the nodes write; nodes that ONNX's evaluator does not take are left out."""
    values: dict[str, np.ndarray] = {}
    for node in settled:
        try:
            results = _results(graph, node, values)
        except _EVALUATOR_ERRORS:  # The node stays a layer.
            continue
        values.update(zip(node.outputs, results, strict=False))
    return {name: numpy_helper.from_array(array, name) for name, array in values.items()}


def _results(graph: Graph, node: Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    if node.op in ("Shape", "Size"):
        shape = _shape(graph, node.inputs[0], values)
        if node.op == "Size":
            return [np.array(math.prod(shape), np.int64)]
        start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
        return [np.array(shape[start:end], np.int64)]
    inputs = {t: _value(graph, t, values) for t in dict.fromkeys(node.inputs) if t}
    infos = [
        helper.make_tensor_value_info(t, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for t, a in inputs.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(t) for t in node.outputs if t]
    model = helper.make_model(
        helper.make_graph([node.proto], "node", infos, outputs),
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, inputs)]


def _shape(graph: Graph, tensor: str, values: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """The shape of a tensor; inference leaves out that of what, say, a Range writes."""
    return values[tensor].shape if tensor in values else graph.type_of(tensor).shape or ()


def _value(graph: Graph, tensor: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    if tensor in values:
        return values[tensor]
    return numpy_helper.to_array(graph.initializers[tensor])
