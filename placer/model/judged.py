"""What accuracy is judged by where a model's outputs cannot be compared by position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import onnx.shape_inference
from onnx import ModelProto, TensorProto, ValueInfoProto

from placer.graph import Graph, index_nodes
from placer.graph.chosen_rows import ChosenRows, chosen_rows
from placer.model.load import Model


@dataclass(frozen=True, eq=False)
class Judged:
    """``graph`` has what is judged for outputs, ``model`` has it beside its own outputs.

    ``rows``: outputs that are not judged, as their rows are chosen by value, and what is judged
    instead; None where the model's own outputs are all judged, and ``model`` is as it was given.
    """

    model: Model
    graph: Graph
    rows: ChosenRows | None = None

    def told(self) -> str | None:
        """What the user is told of ``rows``, in one sentence."""
        if self.rows is None:
            return None
        outputs, operators, sources = map(
            ", ".join, (self.rows.outputs, self.rows.operators, self.rows.sources)
        )
        return (
            f"{operators} chooses the rows of {outputs}, which cannot be compared one by one; "
            f"accuracy is judged by what it chooses from: {sources}"
        )


def judged_by(model: Model, named: Collection[str] = ()) -> Judged:
    """What ``model`` is judged by.

    ``named``: outputs that are judged in any case, as a gate names them.
    """
    graph, rows = model.graph, chosen_rows(model.graph)
    if rows is None or not rows.sources:
        return Judged(model, graph)
    left = {*rows.outputs} - {*named}
    kept = [name for name in graph.outputs if name not in left]
    outputs = tuple(dict.fromkeys((*kept, *rows.sources)))
    return Judged(with_outputs(model, outputs), with_graph_outputs(graph, outputs), rows)


def with_outputs(model: Model, names: Sequence[str]) -> Model:
    """``model`` with those of ``names`` for further outputs that are none yet."""
    graph = model.graph
    new = [name for name in names if name not in graph.outputs]
    if not new:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    for name in new:
        dtype = graph.type_of(name).dtype
        value = ValueInfoProto(name=name)
        if dtype is not None:
            value.type.tensor_type.elem_type = dtype
        proto.graph.output.append(value)
    return replace(model, proto=proto, graph=with_graph_outputs(graph, (*graph.outputs, *new)))


def has_tensors(proto: ModelProto, names: Iterable[str]) -> bool:
    """Whether nodes of ``proto`` itself, not of their bodies, write all tensors of ``names``."""
    written = {output for node in proto.graph.node for output in node.output}
    return written.issuperset(names)


def add_outputs(proto: ModelProto, names: Iterable[str]) -> None:
    """Make those of ``names`` further outputs of ``proto`` that are none yet; its types are kept.

    ``proto`` may lack the data of its tensors.
    """
    present = {value.name for value in proto.graph.output}
    new = [name for name in names if name not in present]
    if not new:
        return
    inferred = onnx.shape_inference.infer_shapes(proto).graph.value_info
    types = {value.name: value.type.tensor_type.elem_type for value in inferred}
    for name in new:
        value = proto.graph.output.add(name=name)
        value.type.tensor_type.elem_type = types.get(name, TensorProto.FLOAT)


def with_graph_outputs(graph: Graph, outputs: tuple[str, ...]) -> Graph:
    """``graph`` with ``outputs`` for its own."""
    return index_nodes(
        graph.nodes,
        graph.initializers,
        graph.inputs,
        outputs,
        graph.types,
        graph.scopes,
        graph.open_tensors,
    )
