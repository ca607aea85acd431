"""What accuracy is judged by where a model's outputs cannot be compared by position."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import onnx.shape_inference
from onnx import ModelProto, TensorProto, ValueInfoProto

from placer.graph import Graph, index_nodes
from placer.graph.chosen_rows import MOVING, ChosenRows, chosen_rows, floats_before
from placer.graph.port_arithmetic import numeric_outputs
from placer.model.load import Model

# An enlarged map says no more than the map itself.
_AS_GOOD = MOVING | {"Resize"}
# Elements of what noise is measured at, for it is kept for each sample: 8 MiB.
_MAX_ELEMENTS = 2**21


@dataclass(frozen=True, eq=False)
class Judged:
    """``graph`` has what is judged for outputs, ``model`` has it beside its own outputs.

    ``rows``: outputs that are not judged, as their rows are chosen by value, and what is judged
    instead; None where the model's own outputs are all judged. ``scores``: outputs of ``graph``
    that noise is measured at and no gate is on; see ``with_scores``.
    """

    model: Model
    graph: Graph
    rows: ChosenRows | None = None
    scores: tuple[str, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether ``model`` has outputs that it was given without."""
        return self.rows is not None or bool(self.scores)

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


def with_scores(judged: Judged) -> Judged:
    """``judged`` with the floats that its outputs are computed from, where these are all integers.

    As the scores before the ArgMax that a segmentation network ends in: integers tell which
    candidates meet a gate, but not how much noise the others have too much.
    """
    graph = judged.graph
    if numeric_outputs(graph):
        return judged
    scores = tuple(floats_before(graph, graph.outputs, _AS_GOOD))
    shapes = [graph.type_of(name).shape for name in scores]
    in_body = any(graph.producer[name].name in graph.scopes for name in scores)
    if in_body or None in shapes or sum(math.prod(s) for s in shapes if s) > _MAX_ELEMENTS:
        return judged
    more = with_graph_outputs(graph, (*graph.outputs, *scores))
    return replace(judged, model=with_outputs(judged.model, scores), graph=more, scores=scores)


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
