"""A case as a rule's inline test has it: short names, and weights of a single value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, printer

from placer.graph import Edge
from placer.learning.case import Case
from placer.quantization import Placement
from placer.quantization.placement import ScaleGroup

_FEW = 4  # Values that are written out; more are one value repeated.
_WEIGHT = 0.1
_TYPES: Mapping[int, str] = {
    TensorProto.FLOAT: "float",
    TensorProto.INT64: "int64",
    TensorProto.INT32: "int32",
    TensorProto.BOOL: "bool",
}


def with_short_names(case: Case) -> Case:
    """``case`` with nodes called after their operators, and tensors ``x1``, ``w1``, ``t1``."""
    proto = ModelProto()
    proto.CopyFrom(case.model.proto)
    graph = proto.graph
    del graph.value_info[:]
    nodes, tensors = _node_names(graph), _tensor_names(graph)
    _rename(proto, nodes, tensors)
    groups = (
        ScaleGroup(
            frozenset(
                Edge(tensors[e.tensor], nodes.get(e.node, e.node), e.input_index)
                for e in group.edges
            ),
            group.format,
        )
        for group in case.placement.groups
    )
    return Case.of(proto, Placement(frozenset(groups)))


def _node_names(graph: GraphProto) -> dict[str, str]:
    names, count = {}, Counter[str]()
    for node in graph.node:
        # Layers of Casts are told by the name alone (placer.plan.readers.rtx_log).
        stem = "Cast_" if node.op_type == "Cast" else node.op_type.lower()
        count[stem] += 1
        names[node.name] = f"{stem}{count[stem]}"
    return names


def _tensor_names(graph: GraphProto) -> dict[str, str]:
    constants = [tensor.name for tensor in graph.initializer]
    names = {tensor: f"w{n}" for n, tensor in enumerate(constants, 1)}
    given = [value.name for value in graph.input if value.name not in names]
    names |= {tensor: f"x{n}" for n, tensor in enumerate(given, 1)}
    returned = [value.name for value in graph.output if value.name not in names]
    names |= {tensor: f"y{n}" for n, tensor in enumerate(returned, 1)}
    made = (tensor for node in graph.node for tensor in node.output)
    between = [tensor for tensor in made if tensor and tensor not in names]
    return names | {tensor: f"t{n}" for n, tensor in enumerate(between, 1)}


def _rename(proto: ModelProto, nodes: Mapping[str, str], tensors: Mapping[str, str]) -> None:
    graph = proto.graph
    for node in graph.node:
        node.name = nodes[node.name]
        node.doc_string = ""
        del node.metadata_props[:]
        node.input[:] = [tensors.get(t, t) for t in node.input]
        node.output[:] = [tensors.get(t, t) for t in node.output]
    for value in (*graph.input, *graph.output):
        value.name = tensors[value.name]
    for constant in graph.initializer:
        constant.name = tensors[constant.name]


def model_text(case: Case) -> str:
    """ONNX text that ``placer.graph.text.parse_model`` reads; larger weights are one value.

    Raises ValueError for a constant of a type that the text cannot hold, e.g. FP16.
    """
    proto = case.model.proto
    bare = helper.make_model(
        helper.make_graph(proto.graph.node, "g", proto.graph.input, proto.graph.output),
        opset_imports=proto.opset_import,
        ir_version=proto.ir_version,
    )
    constants = {t.name: t for t in proto.graph.initializer}
    for index in reversed(range(len(bare.graph.input))):
        if bare.graph.input[index].name in constants:
            del bare.graph.input[index]
    head, brace, body = printer.to_text(bare).partition("{\n")
    start, _, interface = head.rpartition(">\n")
    # Lines of the header are joined: `<ir_version: 9, opset_import: ["": 17]>`.
    header = " ".join(line.strip() for line in start.splitlines()) + ">"
    weights = ", ".join(_constant(t) for t in constants.values())
    between = f"{interface.rstrip()}\n<{weights}> " if weights else f"{interface.rstrip()} "
    return f"{header}\n{between}{brace}{body}".replace("< ir", "<ir")


def _constant(tensor: TensorProto) -> str:
    if tensor.data_type not in _TYPES:
        kind = TensorProto.DataType.Name(tensor.data_type)
        raise ValueError(f"constant '{tensor.name}' is of type {kind}")
    values = numpy_helper.to_array(tensor).ravel().tolist()
    if tensor.data_type == TensorProto.FLOAT:
        values = [_WEIGHT] if len(values) > _FEW else values
    elif tensor.data_type == TensorProto.BOOL:
        values = [int(value) for value in values]
    dims = f"[{','.join(map(str, tensor.dims))}]" if tensor.dims else ""
    return f"{_TYPES[tensor.data_type]}{dims} {tensor.name} = {{{', '.join(map(_number, values))}}}"


def _number(value: float | int) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
