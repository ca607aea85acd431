"""Random valid models: operators of all kinds, control flow, odd attributes, shared weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import onnx.parser
import onnx.shape_inference
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.fuzz.operators import (
    FOR_ALL,
    FOR_RANK,
    FUNCTION_DOMAIN,
    FUNCTIONS,
    WEIGHTED,
    Builder,
)

_OPSETS = (13, 17, 17, 18, 19, 21)
_INPUTS = ((1, 4, 8, 8), (1, 3, 12, 12), (2, 4, 6, 6), (1, 6, 8), (2, 5, 8), (1, 16), (4, 8))


def random_model(random: Random, operators: int | None = None) -> ModelProto:
    """A valid float model of some ``operators`` (5 to 14 by default) applied one after another."""
    opset = random.choice(_OPSETS)
    b = Builder(random, opset, np.random.default_rng(random.randrange(2**32)))
    for _ in range(random.choice((1, 1, 2))):
        name = b.name("x")
        b.inputs[name] = b.shapes[name] = random.choice(_INPUTS)
    for number in range(operators or random.randrange(5, 15)):
        _grow(b, random, weighted=number < 2)
    return _finished(b, random)


def _grow(b: Builder, random: Random, *, weighted: bool) -> None:
    """Apply a random operator; one that does not fit leaves the graph as it was."""
    rank = len(b.shapes[list(b.shapes)[-1]])
    operators = FOR_RANK.get(rank, ()) if random.random() < 0.5 else ()
    if weighted:
        operators = WEIGHTED.get(rank, ())
    nodes, weights = len(b.nodes), len(b.weights)
    try:
        random.choice(operators or FOR_ALL)(b, random)
        found = _shapes(b)
    except (IndexError, ValueError, onnx.shape_inference.InferenceError, RuntimeError):
        found = {}
    made = {t for node in b.nodes[nodes:] for t in node.output}
    new = {t: s for t, s in found.items() if t in made}
    if not new or any(math.prod(s) > 20_000 for s in new.values()):
        del b.nodes[nodes:], b.weights[weights:]
        return
    b.shapes.update(new)


def _shapes(b: Builder) -> dict[str, tuple[int, ...]]:
    """Shapes of float tensors, as far as they are known, of two dimensions and more."""
    proto = _model(b, [])
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    found = {}
    for value in inferred.graph.value_info:
        tensor = value.type.tensor_type
        dims = tuple(d.dim_value for d in tensor.shape.dim)
        if tensor.elem_type == TensorProto.FLOAT and len(dims) > 1 and all(dims):
            found[value.name] = dims
    return found


def _model(b: Builder, outputs: Sequence[str]) -> ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in b.inputs.items()
    ]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, b.shapes.get(n, None)) for n in outputs
    ]
    graph = helper.make_graph(b.nodes, "net", inputs, values, b.weights)
    imports = [helper.make_opsetid("", b.opset)]
    used = {node.op_type for node in b.nodes if node.domain == FUNCTION_DOMAIN}
    functions = []
    if used:
        imports.append(helper.make_opsetid(FUNCTION_DOMAIN, 1))
        head = f'<opset_import: ["": {b.opset}], domain: "{FUNCTION_DOMAIN}">'
        functions = [
            onnx.parser.parse_function(f"{head} {name} {FUNCTIONS[name]}") for name in sorted(used)
        ]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def _finished(b: Builder, random: Random) -> ModelProto:
    """The model with some outputs and, at times, odd but valid parts of its interface."""
    made = [t for t in b.shapes if t not in b.inputs]
    if not made:
        made = [b.node("Relu", [next(iter(b.inputs))])]
        b.shapes[made[0]] = b.shapes[next(iter(b.inputs))]
    more = random.sample(made, min(len(made), random.choice((0, 0, 1, 2))))
    proto = _model(b, list(dict.fromkeys([made[-1], *more])))
    graph = proto.graph
    for value in graph.output:
        if random.random() < 0.02:
            value.type.tensor_type.ClearField("shape")
    if random.random() < 0.1 and graph.initializer:  # A weight with a default, as old files have.
        tensor = random.choice(graph.initializer)
        graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    if random.random() < 0.1:
        for value in graph.input:
            if value.name in b.inputs:
                value.type.tensor_type.shape.dim[0].dim_param = "N"
    if random.random() < 0.1 and graph.initializer:
        _as_constant_node(graph, random)
    return proto


def _as_constant_node(graph: GraphProto, random: Random) -> None:
    inputs = {value.name for value in graph.input}
    tensor = random.choice(graph.initializer)
    if tensor.name in inputs:
        return
    node = helper.make_node("Constant", [], [tensor.name], value=tensor)
    graph.initializer.remove(tensor)
    graph.node.insert(0, node)


def samples(proto: ModelProto, random: Random, count: int) -> dict[str, np.ndarray]:
    """``count`` batches of standard normal inputs for a random model, one after the other."""
    rng = np.random.default_rng(random.randrange(2**32))
    weights = {tensor.name for tensor in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        if value.name not in weights:
            dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            shape = (count * dims[0], *dims[1:])
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
    return found


def with_pairs(proto: ModelProto, random: Random) -> ModelProto:
    """A copy with Q/DQ pairs on some float tensors that nodes read, weights among them."""
    copy = ModelProto.FromString(proto.SerializeToString())
    graph = copy.graph
    floats = {t.name: t for t in graph.initializer if t.data_type == TensorProto.FLOAT and t.dims}
    nodes: list[NodeProto] = []
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    made = {
        value.name
        for value in (*inferred.value_info, *graph.input)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    for node in graph.node:
        for index, tensor in enumerate(node.input):
            quantizes = node.op_type in ("Conv", "MatMul", "Gemm", "Add", "Mul", "Concat", "Relu")
            chance = 0.8 if node.op_type in ("Conv", "MatMul", "Gemm") and index < 2 else 0.2
            known = tensor in made or (tensor in floats and index == 1)
            if quantizes and known and random.random() < chance:
                new, reading = _pair(graph, tensor, floats.get(tensor), random, len(nodes))
                nodes += new
                node.input[index] = reading
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return copy


def _pair(
    graph: GraphProto, tensor: str, weight: TensorProto | None, random: Random, number: int
) -> tuple[list[NodeProto], str]:
    """The nodes of a pair, and what a reader of it reads."""
    name = f"{tensor}/{number}"
    dtype = np.int8 if weight is not None or random.random() < 0.6 else np.uint8
    largest = 4.0
    if weight is not None:
        largest = float(np.abs(numpy_helper.to_array(weight)).max()) or 1.0
    zero = 0 if dtype == np.int8 else random.choice((128, 128, 100))
    constants = {
        f"{name}/scale": np.asarray(largest / 127, np.float32),
        f"{name}/zero": np.asarray(zero, dtype),
    }
    given = [f"{name}/scale", f"{name}/zero"]
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    read = helper.make_node("DequantizeLinear", [f"{name}/q", *given], [f"{name}/dq"], f"{name}/DQ")
    if weight is not None and random.random() < 0.5:
        integers = np.rint(numpy_helper.to_array(weight) / (largest / 127)).astype(np.int8)
        graph.initializer.append(numpy_helper.from_array(integers, f"{name}/q"))
        return [read], f"{name}/dq"
    write = helper.make_node("QuantizeLinear", [tensor, *given], [f"{name}/q"], f"{name}/Q")
    return [write, read], f"{name}/dq"
