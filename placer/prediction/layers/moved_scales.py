"""Scales behind an activation of a Conv or a reduction, which an engine moves past pools and sums.

OpenVINO takes them, with shifts behind them, for a dequantization, as it does the scale of the
integers where only Relus stand between, and moves them behind what pools, averages or resizes in
float (LPT's AvgPool, MaxPool, Reduce and Interpolate transformations; plans of OpenVINO 2026.4.1 of
168 small graphs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx.numpy_helper import to_array

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.followers import AFFINE, Follower, followers
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm

_SCALES = frozenset({"Mul", "Div", "BatchNormalization"})
_TRANSPARENT = frozenset({"Relu"})  # The scale of the integers moves past it.
_POOLS = frozenset({"AveragePool", "MaxPool"})
_MEANS = frozenset({"GlobalAveragePool", "ReduceMean"})
_TAKES_SCALES = _MEANS | {"Resize"}
_PASSED = _POOLS | _TAKES_SCALES
_MOVERS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
_REDUCE = "Reduce"  # The kernel, by any rule.


def passed(
    candidate: LayerCandidate, taken: Sequence[Follower], form: NormalForm
) -> tuple[Node, ...]:
    """What reads the layer in float and the scales at its end move past, pools first.

    ``taken``: what the layer takes along; none of it where no scale moves. Sums, and what moves
    elements, are passed where something else reads the layer, too.
    """
    affine = affine_end(taken)
    if affine == len(taken) or not _is_scaled(candidate, taken, affine):
        return ()
    graph = candidate.graph
    readers = graph.edges_of(taken[-1].nodes[-1].outputs[0])
    floats = [e for e in readers if e not in form.scales and not e.is_graph_output]
    end = [node for one in taken[affine:] for node in one.nodes]
    pools = [
        graph.by_name[edge.node]
        for edge in floats
        if _is_passed(edge, graph)
        and (graph.by_name[edge.node].op != "MaxPool" or are_positive(end, graph))
    ]
    others = [
        graph.by_name[edge.node]
        for edge in floats
        if is_sum(edge, graph) or graph.by_name[edge.node].op in _MOVERS
    ]
    return (*pools, *(others if len(readers) > 1 else ()))


def is_pool(node: Node) -> bool:
    """Whether scales move behind ``node`` as a whole."""
    return node.op in _PASSED


def pooled_scale(candidate: LayerCandidate, form: NormalForm) -> Node | None:
    """The factor in front of a float pool that it computes behind itself, whatever has made it.

    A pool of windows does only with the Q that follows or at a graph output, a maximum only of
    positive ones (plans of OpenVINO 2026.4.1 of 70 small graphs, whose models have a pair).
    """
    scale, graph = pool_and_scale(candidate), candidate.graph
    if scale is None:
        return None
    edges = (graph.edges_into(candidate.nodes[0])[0], *graph.edges_into(scale))
    if any(edge in form.scales for edge in edges):
        return None
    keeps = candidate.nodes[0].op in _MEANS or _is_quantized_behind(candidate, form)
    return scale if keeps or all(edge.is_graph_output for edge in candidate.readers) else None


def pool_and_scale(candidate: LayerCandidate) -> Node | None:
    """As ``pooled_scale``, as far as the graph alone decides."""
    pool, graph = candidate.nodes[0] if candidate.nodes else None, candidate.graph
    if pool is None or pool.op not in _POOLS | _MEANS:
        return None
    scale = graph.producer.get(pool.inputs[0])
    if scale is None or scale.op not in _SCALES or len(graph.edges_of(pool.inputs[0])) != 1:
        return None
    computed = [e for e in graph.edges_into(scale) if e.tensor not in graph.initializers]
    if len(computed) != 1 or (computed[0].input_index and scale.op != "Mul"):
        return None
    if (pool.op in _POOLS and scale.op not in ("Mul", "Div")) or _ends_gelu(computed[0], graph):
        return None
    return scale if pool.op != "MaxPool" or are_positive([scale], graph) else None


def _ends_gelu(edge: Edge, graph: Graph) -> bool:
    """Whether the factor at ``edge`` is the last of a GELU in parts, which is one operator."""
    product = graph.producer.get(edge.tensor)
    if product is None or product.op != "Mul":
        return False
    sums = [graph.producer.get(tensor) for tensor in product.inputs]
    tensors = [t for one in sums if one is not None and one.op == "Add" for t in one.inputs]
    return any(graph.producer[t].op in ("Erf", "Tanh") for t in tensors if t in graph.producer)


def leaves_scales(candidate: LayerCandidate) -> bool:
    """Whether scales that leave the layer are one of their own."""
    return _is_reduce(candidate) or any(node.op == "Conv" for node in candidate.nodes)


def may_leave_scales(candidate: LayerCandidate) -> bool:
    """Whether it depends on pairs elsewhere if scales behind the layer stay with it."""
    if pool_and_scale(candidate) is not None:
        return True
    return leaves_scales(candidate) and any(one.is_affine for one in followers(candidate))


def copied_edges(last: LayerCandidate, end: Sequence[Node], form: NormalForm) -> frozenset[Edge]:
    """The edges on which what reads scales that have left a layer computes them by itself.

    Those with pairs, if Q takes all factors along, and where several remain those to sums with
    something else and to what pools or moves elements. Of these one reads the layer if nothing
    else does, a sum last.
    """
    graph = last.graph
    edges = graph.edges_of(end[-1].outputs[0])
    by_q = {e for e in edges if e in form.scales} if are_positive(end, graph) else set[Edge]()
    if len(edges) - len(by_q) == 1:
        return frozenset(by_q)
    floats = [e for e in edges if e not in form.scales and not e.is_graph_output]
    moved = {e for e in floats if graph.by_name[e.node].op in _MOVERS | _PASSED}
    sums = {e for e in floats if is_sum(e, graph)}
    copied = by_q | moved | {e for e in sums if len({*graph.by_name[e.node].inputs}) > 1}
    if floats and copied.issuperset(edges):
        copied.remove([e for e in floats if e in moved or moved.isdisjoint(floats)][-1])
    return frozenset(copied)


def is_sum(edge: Edge, graph: Graph) -> bool:
    """Whether ``edge`` leads to a sum of two activations."""
    node = graph.by_name.get(edge.node or "")
    return (
        node is not None and node.op == "Add" and graph.initializers.keys().isdisjoint(node.inputs)
    )


def are_positive(nodes: Sequence[Node], graph: Graph) -> bool:
    """Whether all factors of scales and shifts are above zero, so that Q takes them along."""
    for node in nodes:
        if node.op == "Sub" and node.inputs[0] in graph.initializers:
            return False
        factors = node.inputs[1:2] if node.op == "BatchNormalization" else node.inputs[:2]
        if node.op in _SCALES:
            for tensor in set(factors).intersection(graph.initializers):
                if not (to_array(graph.initializers[tensor]) > 0).all():
                    return False
    return True


def takes_scales(candidate: LayerCandidate, end: Sequence[Node], form: NormalForm) -> bool:
    """Whether a layer computes scales that moved behind it.

    ``end``: the scales and shifts. Pools compute them only with the Q that follows; where something
    else reads them, Q takes positive ones along by itself.
    """
    is_alone = len(candidate.graph.edges_of(end[-1].outputs[0])) == 1
    if _is_quantized_behind(candidate, form):
        return is_alone or not are_positive(end, candidate.graph)
    return any(node.op in _TAKES_SCALES for node in candidate.nodes)


def _is_quantized_behind(candidate: LayerCandidate, form: NormalForm) -> bool:
    """Whether all that reads a layer does so through one pair, also behind what moves elements."""
    readers = candidate.readers
    while len(readers) == 1 and readers[0] not in form.scales and not readers[0].is_graph_output:
        node = candidate.graph.by_name[readers[0].node]
        if node.op not in _MOVERS:
            return False
        readers = candidate.graph.edges_of(node.outputs[0])
    scales = {form.scales.get(edge) for edge in readers}
    return len(scales) == 1 and None not in scales


def beside(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[int, int]]:
    """The positions of layers with scales at their end and of what these may move past."""
    for candidate, last in _with_scales(claimed):
        for edge in candidate.graph.edges_of(last.outputs[0]):
            if _is_passed(edge, candidate.graph):
                yield candidate.position, candidate.graph.by_name[edge.node].index
    for candidate in claimed:
        scale = pool_and_scale(candidate)
        if scale is not None:
            yield candidate.position, scale.index


def ends_of_scales(claimed: Sequence[LayerCandidate]) -> frozenset[int]:
    """The positions of scales and shifts that end layers of Convs, and may be left by these."""
    return frozenset(last.index for _, last in _with_scales(claimed))


def _with_scales(claimed: Sequence[LayerCandidate]) -> Iterator[tuple[LayerCandidate, Node]]:
    """Layers of Convs that scales or shifts end, and the last of these."""
    for candidate in claimed:
        if any(node.op == "Conv" for node in candidate.nodes):
            taken = list(followers(candidate))
            if taken and taken[-1].is_affine:
                yield candidate, taken[-1].nodes[-1]


def affine_end(taken: Sequence[Follower]) -> int:
    """Where the scales and shifts begin that ``taken`` ends with."""
    first = len(taken)
    while first and taken[first - 1].is_affine:
        first -= 1
    return first


def _is_scaled(candidate: LayerCandidate, taken: Sequence[Follower], affine: int) -> bool:
    """Whether the scales and shifts from ``affine`` on are more than a part of a Conv's weights."""
    if candidate.claim is None:
        return False
    is_integer = bool(candidate.claim.demanded)
    has_scale = any(one.kind in _SCALES for one in taken[affine:])
    if _is_reduce(candidate):
        return has_scale or is_integer
    before = [*candidate.nodes, *(node for one in taken[:affine] for node in one.nodes)]
    if not any(node.op == "Conv" for node in before) or before[-1].op in {"Conv", *AFFINE}:
        return False
    return has_scale or (is_integer and before[-1].op in _TRANSPARENT)


def _is_passed(edge: Edge, graph: Graph) -> bool:
    return not edge.is_graph_output and graph.by_name[edge.node].op in _PASSED


def _is_reduce(candidate: LayerCandidate) -> bool:
    return candidate.claim is not None and _REDUCE in candidate.claim.fusion.op
