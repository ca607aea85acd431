"""What accuracy is judged by where a model's outputs cannot be compared by position."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import onnx.shape_inference
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from placer.graph import Graph, index_graph, index_nodes
from placer.graph.chosen_rows import (
    MOVING,
    ChosenRows,
    chosen_rows,
    floats_before,
    layers_in_bodies,
)
from placer.graph.edit import reads, rename_tensors, standard_opset, without_initializers
from placer.graph.flat import nest
from placer.graph.float_choices import COPY, add_copy, graft
from placer.graph.index import with_nodes
from placer.graph.port_arithmetic import numeric_outputs
from placer.model.load import Model

# An enlarged map says no more than the map itself.
_AS_GOOD = MOVING | {"Resize"}
# Elements of what noise is measured at, for it is kept for each sample: 8 MiB.
_MAX_ELEMENTS = 2**21


@dataclass(frozen=True, eq=False)
class Judged:
    """``graph`` has what is judged for outputs, ``model`` has it beside its own outputs.

    ``source``: the model as it was given. ``rows``: outputs that are not judged, as their rows are
    chosen by value, and what is judged instead; None where the model's own outputs are all judged.
    Where layers work on chosen rows, ``model`` has a float copy of what chooses them
    (``placer.graph.float_choices``). ``scores``: outputs of ``graph`` that noise is measured at and
    no gate is on; see ``with_scores``.
    """

    model: Model
    graph: Graph
    source: Model
    rows: ChosenRows | None = None
    scores: tuple[str, ...] = ()

    @property
    def swapped(self) -> frozenset[str]:
        """Judged outputs that say something only where the same rows are chosen."""
        return frozenset(self.rows.outputs if self.rows else ()).intersection(self.graph.outputs)

    @property
    def has_more(self) -> bool:
        """Whether ``model`` has outputs that it was given without."""
        return self.rows is not None or bool(self.scores)

    def note(self) -> str | None:
        """What the user is told of ``rows``, in one sentence."""
        if self.rows is None:
            return None
        outputs, operators, sources = map(
            ", ".join, (self.rows.outputs, self.rows.operators, self.rows.sources)
        )
        names = ", ".join(COMPARED.format(name) for name in self.rows.comparable)
        besides = f"{names}, and by " if names else ""
        how = (
            f", with the float model's choices, by {besides}"
            if self.rows.reference_choices
            else " by "
        )
        if self.rows.decide_lengths:
            chosen, source = "decides the lengths of", "rounds"
        else:
            chosen, source = "chooses the rows of", "chooses from"
        return (
            f"{operators} {chosen} {outputs}, which cannot be compared one by one; "
            f"accuracy is judged{how}what it {source}: {sources}"
        )

    def of(self, model: Model) -> Model:
        """``model``, which has the layers of the one given, with what is judged beside its outputs.

        Other constants change no choice: the float copy has those of the model that was given.
        """
        if self.rows is not None and self.rows.reference_choices:
            model = _with_float_choices(model, self.source, self.rows)
        return with_outputs(model, self.graph.outputs)

    def fits(self, proto: ModelProto) -> bool:
        """Whether ``add_to`` can add to ``proto``, a model made of the one given by any tool."""
        if self.rows is None:
            return True
        nodes = {node.name for node in proto.graph.node}
        can_choose = not self.rows.reference_choices or (
            nodes.issuperset(self.rows.reference_choices)
            and standard_opset(proto) == standard_opset(self.model.proto)
        )
        return can_choose and has_tensors(proto, self.rows.sources)

    def add_to(self, proto: ModelProto, twin: Model | None = None) -> None:
        """Add what is judged to ``proto``, see ``fits``; it may lack the data of its tensors.

        ``twin``: ``model`` in the opset of ``proto`` where that is another.
        """
        if self.rows is not None and self.rows.reference_choices:
            made = twin or self.model
            graft(proto, made.proto, self.rows.reference_choices, made.base_dir)
            proto.graph.node.extend(_comparable(self.rows))
        add_outputs(proto, self.graph.outputs)


# What an output is called whose rows the float model's choices decide, not the candidate's.
COMPARED = "{}/rows_of_float"


def judged_by(model: Model, named: Collection[str] = (), *, has_copy: bool = True) -> Judged:
    """What ``model`` is judged by.

    ``named``: outputs that are judged in any case, as a gate names them. ``has_copy``: whether
    what is compared with it can have a float copy that chooses. Where it cannot and would have to,
    the outputs whose rows are chosen stay beside what they are chosen from.
    """
    graph, rows = model.graph, chosen_rows(model.graph)
    if rows is not None and not has_copy and (rows.reference_choices or not rows.sources):
        outputs = tuple(dict.fromkeys((*graph.outputs, *rows.sources)))
        twin = with_outputs(model, outputs)
        return Judged(twin, with_graph_outputs(twin.graph, outputs), model, rows)
    if rows is None or not rows.sources:
        return Judged(model, graph, model)
    left = {*rows.outputs} - {*named}
    kept = [name for name in graph.outputs if name not in left]
    more = (COMPARED.format(name) for name in rows.comparable)
    outputs = tuple(dict.fromkeys((*kept, *rows.sources, *more)))
    twin = _with_float_choices(model, model, rows) if rows.reference_choices else model
    twin = with_outputs(twin, outputs)
    return Judged(twin, with_graph_outputs(twin.graph, outputs), model, rows)


def _comparable(rows: ChosenRows) -> list[NodeProto]:
    names = [(name, COMPARED.format(name)) for name in rows.comparable]
    return [helper.make_node("Identity", [name], [copy], name=copy) for name, copy in names]


def _with_float_choices(model: Model, source: Model, rows: ChosenRows) -> Model:
    """``model`` with a float copy, of constants of ``source``, that makes the reference choices."""
    judged_graph = model.graph
    flat = GraphProto(node=[node.proto for node in judged_graph.nodes])
    scopes = add_copy(flat, rows.reference_choices, judged_graph.scopes)
    flat.node.extend(_comparable(rows))
    constants = {**judged_graph.initializers, **_constants_of(flat, model, source)}
    types = dict(judged_graph.types)
    types.update((COPY + name, known) for name, known in judged_graph.types.items())
    types.update((COMPARED.format(name), judged_graph.type_of(name)) for name in rows.comparable)
    nodes = index_graph(flat, types).nodes
    graph = index_nodes(
        nodes,
        constants,
        judged_graph.inputs,
        judged_graph.outputs,
        types,
        scopes,
        judged_graph.open_tensors,
    )
    proto = without_initializers(model.proto, judged_graph.initializers)
    del proto.graph.node[:]
    proto.graph.node.extend(flat.node)
    proto.graph.initializer.extend(constants.values())
    nest(proto.graph, scopes)
    return replace(model, proto=proto, graph=graph)


def _constants_of(flat: GraphProto, model: Model, source: Model) -> dict[str, TensorProto]:
    """Those of ``source`` that ``model`` has others for, as the copy in ``flat`` reads them."""
    copies = [node for node in flat.node if node.name.startswith(COPY)]
    new, old = model.graph.initializers, source.graph.initializers
    read = {tensor for node in copies for tensor in reads(node)} & old.keys()
    changed = {name for name in read if new.get(name) != old[name]}
    for node in copies if changed else ():
        rename_tensors(node, lambda tensor: COPY + tensor if tensor in changed else tensor)
    constants = {}
    for name in changed:
        constants[COPY + name] = TensorProto()
        constants[COPY + name].CopyFrom(old[name])
        constants[COPY + name].name = COPY + name
    return constants


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
    if (
        layers_in_bodies(graph)
        or None in shapes
        or sum(math.prod(s) for s in shapes if s) > _MAX_ELEMENTS
    ):
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
    return with_nodes(graph, graph.nodes, outputs=outputs)
