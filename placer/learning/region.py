"""Parts of a model around one difference of its plans, the smallest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from placer.errors import PlacerError
from placer.graph import Graph, Node, TensorType
from placer.graph.external_data import is_external, read_tensor
from placer.learning.case import Case, Judgement
from placer.model import Model
from placer.plan import Layer
from placer.plan.dtypes import reads_quantized

Operators = tuple[str, ...]
_MOST_HOPS = 3


def parts_around(judged: Judgement) -> Iterator[tuple[Operators, Case]]:
    """Parts of a case in which its plans may differ, too, and the operators that differ there.

    Each is the nodes of layers that differ and up to three nodes around them; those of the
    smallest differences come first.
    """
    case = judged.case
    graph, seen = case.model.graph, set[frozenset[str]]()
    for nodes in _differing(judged):
        for hops in range(_MOST_HOPS + 1):
            region = _grown(nodes, hops, graph)
            if region in seen:
                continue
            seen.add(region)
            try:
                part = Case.of(cut(case, region), case.placement)
            except PlacerError:
                continue
            yield _operators(nodes, graph), part


def differing_operators(judged: Judgement) -> frozenset[Operators]:
    """The operators of each difference between the plans of a case."""
    graph = judged.case.model.graph
    return frozenset(_operators(nodes, graph) for nodes in _differing(judged))


def _operators(nodes: frozenset[str], graph: Graph) -> Operators:
    return tuple(sorted(graph.by_name[name].op for name in nodes))


def _differing(judged: Judgement) -> Sequence[frozenset[str]]:
    """The nodes of each layer without a partner of its nodes and types, fewest first.

    A partner reads integers, too, if the layer does. A conversion has the nodes that read what it
    converts.
    """
    diff, graph = judged.diff, judged.case.model.graph
    if diff is None:
        return ()
    other = {id(pair.predicted) for pair in diff.other_types}
    same = [
        pair
        for pair in diff.matched
        if id(pair.predicted) not in other
        and reads_quantized(pair.predicted) == reads_quantized(pair.actual)
    ]
    paired = {id(layer) for pair in same for layer in (pair.predicted, pair.actual)}
    layers = (layer for plan in judged.plans for layer in plan.of_kind("compute"))
    node_groups = [layer.nodes for layer in layers if id(layer) not in paired]
    for conversion in diff.conversions:
        node_groups += [_readers(x, graph) for x in (*conversion.missing, *conversion.extra)]
    regions = (frozenset(name for name in nodes if name in graph.by_name) for nodes in node_groups)
    return sorted(dict.fromkeys(filter(None, regions)), key=lambda r: (len(r), sorted(r)))


def _readers(layer: Layer, graph: Graph) -> tuple[str, ...]:
    """The nodes that read what a layer reads or writes."""
    tensors = {port.tensor for port in (*layer.inputs, *layer.outputs)}
    return tuple(e.node for t in tensors for e in graph.edges_of(t) if e.node)


def _grown(nodes: frozenset[str], hops: int, graph: Graph) -> frozenset[str]:
    """``nodes`` and all that are up to ``hops`` edges away."""
    grown = set(nodes)
    for _ in range(hops):
        for name in tuple(grown):
            node = graph.by_name[name]
            grown |= {graph.producer[t].name for t in node.inputs if t in graph.producer}
            grown |= {e.node for t in node.outputs for e in graph.edges_of(t) if e.node}
    return frozenset(grown)


def cut(case: Case, nodes: frozenset[str]) -> ModelProto:
    """The model of ``nodes`` alone; what they read from others is an input, of fixed shape.

    Raises PlacerError where a tensor at the border has no known type or shape.
    """
    graph, proto = case.model.graph, case.model.proto
    inside = [node for node in graph.nodes if node.name in nodes]
    made = {t for node in inside for t in node.outputs if t}
    read = dict.fromkeys(t for node in inside for t in node.inputs if t and t not in made)
    part = helper.make_graph(
        [node.proto for node in inside],
        "part",
        [_value(t, graph.type_of(t)) for t in read if t not in graph.initializers],
        [_value(t, graph.type_of(t)) for t in _outputs(inside, graph)],
        [_inline(graph.initializers[t], case.model) for t in read if t in graph.initializers],
    )
    return helper.make_model(part, opset_imports=proto.opset_import, ir_version=proto.ir_version)


def _outputs(inside: Sequence[Node], graph: Graph) -> Iterator[str]:
    """What nodes outside or the caller read, and first outputs of nodes that nobody reads."""
    names = {node.name for node in inside}
    for node in inside:
        for index, tensor in enumerate(node.outputs):
            edges = graph.edges_of(tensor)
            left = any(edge.node not in names for edge in edges) or (index == 0 and not edges)
            if tensor and left:
                yield tensor


def _inline(tensor: TensorProto, model: Model) -> TensorProto:
    """``tensor`` with its values in it, where they are in a file."""
    if not is_external(tensor):
        return tensor
    return numpy_helper.from_array(read_tensor(tensor, model.base_dir), tensor.name)


def _value(tensor: str, tensor_type: TensorType) -> ValueInfoProto:
    if tensor_type.shape is None or tensor_type.dtype is None:
        raise PlacerError(f"tensor '{tensor}' has no known type; give input shapes")
    return helper.make_tensor_value_info(tensor, tensor_type.dtype, tensor_type.shape)
