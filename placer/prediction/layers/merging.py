"""Which element-wise layers become one kernel, by the order in which nodes run.

A node joins the kernels that write what it reads, one after another, unless something outside
would have to run between: what reads the kernel must come after all that the kernel reads. Source:
tokenize_node of OpenVINO's snippets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.claims import ANY
from placer.prediction.layers.fused_chains import merges
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm
from placer.prediction.layers.operands import Operand

Group = tuple[LayerCandidate, ...]  # In the order of their nodes.


def find_groups(
    candidates: Mapping[int, LayerCandidate], form: NormalForm, operands: Mapping[Edge, Operand]
) -> list[Group]:
    """The layers of ``candidates``, by position, that are one."""
    groups: dict[int, Group] = {}
    for position in sorted(candidates):
        candidate = candidates[position]
        if not merges(candidate):
            continue
        current: Group = (candidate,)
        groups[position] = current
        last = _last_before(candidate, groups, form)
        for writer in _writers_read(candidate, form):
            other = groups.get(writer, current)
            if other is current or rule_of(other[0]) != rule_of(candidate):
                continue
            if _moves_on(candidates[writer]):
                continue
            joined = tuple(sorted((*other, *current), key=lambda part: part.position))
            if _is_one(joined, last, form, operands):
                current = joined
                groups.update((part.position, current) for part in current)
    return [group for group in dict.fromkeys(groups.values()) if len(group) > 1]


def rule_of(candidate: LayerCandidate) -> str | None:
    """The rule that a layer is built by; None for a node of its own."""
    return None if candidate.claim is None else candidate.claim.match.rule.id


def _moves_on(candidate: LayerCandidate) -> bool:
    """Whether what ``candidate`` computes is moved before anything reads it."""
    return candidate.claim is not None and bool(candidate.claim.movers)


def writers_of(candidate: LayerCandidate) -> list[int]:
    """The indices of the nodes that write what a candidate reads."""
    producers = candidate.graph.producer
    return [producers[e.tensor].index for e in candidate.reads if e.tensor in producers]


def start_of(group: Sequence[LayerCandidate]) -> int:
    """The first position in ``group`` by which all that it reads has been computed."""
    own = {node.index for part in group for node in part.nodes}
    written = max((w for part in group for w in writers_of(part) if w not in own), default=-1)
    return next(part.position for part in group if part.position > written)


def _writers_read(candidate: LayerCandidate, form: NormalForm) -> Iterator[int]:
    """Of ``writers_of`` those of which it reads something once activations are found."""
    nodes = candidate.graph.nodes
    for writer in writers_of(candidate):
        if not _reads_around(candidate.nodes[-1], nodes[writer], candidate.graph, form):
            yield writer


def _last_before(candidate: LayerCandidate, groups: Mapping[int, Group], form: NormalForm) -> int:
    """Where the last of what ``candidate`` reads is computed, by its Q or by a kernel."""
    if any(_is_quantized_here(edge, candidate, form) for edge in candidate.reads):
        return candidate.position - 1
    writers = _writers_read(candidate, form)
    return max((groups[w][-1].position if w in groups else w for w in writers), default=-1)


def _is_quantized_here(edge: Edge, candidate: LayerCandidate, form: NormalForm) -> bool:
    """Whether the Q on ``edge`` runs right before ``candidate``, its first reader."""
    scale, graph = form.scales.get(edge), candidate.graph
    others = (e for e in graph.edges_of(edge.tensor) if not e.is_graph_output)
    earlier = (e for e in others if graph.by_name[e.node].index < candidate.position)
    return scale is not None and all(form.scales.get(e) != scale for e in earlier)


def _reads_around(node: Node, writer: Node, graph: Graph, form: NormalForm) -> bool:
    """Whether ``node`` makes Swish of what ``writer``, a Sigmoid that others need, reads.

    It then no longer reads the Sigmoid (OpenVINO's SwishFusion).
    """
    if (node.qualified_op, writer.qualified_op) != ("Mul", "Sigmoid"):
        return False
    (data,) = graph.edges_into(writer)  # As the standard has it.
    others = [edge for edge in graph.edges_into(node) if edge.tensor != writer.outputs[0]]
    scales = {form.scales.get(edge) for edge in (data, *others)}
    readers = graph.edges_of(writer.outputs[0])
    is_shared = len(readers) > 1 and all(edge not in form.scales for edge in readers)
    return is_shared and len(scales) == 1 and [edge.tensor for edge in others] == [data.tensor]


def _is_one(group: Group, last: int, form: NormalForm, operands: Mapping[Edge, Operand]) -> bool:
    """Whether all that reads ``group`` comes after what it reads, and no pair is inside.

    ``last``: where the last of what its last part reads is computed.
    """
    graph, takes_pairs = group[0].graph, _takes_pairs(group[0])
    nodes = [node for part in group for node in part.nodes]
    inside = {node.name for node in nodes}
    last = max(last, start_of(group))
    copied = {edge for part in group if part.claim is not None for edge in part.claim.copied}
    left = sum(tensor in graph.outputs for node in nodes for tensor in node.outputs)
    if takes_pairs and left > 1:
        return False  # "Too many Result children" (OpenVINO's TokenizeSnippets).

    def fits(edge: Edge) -> bool:
        if edge.node in inside:
            return edge not in copied and _has_no_pair(edge, form, operands, takes_pairs)
        if edge in copied or edge.is_graph_output or graph.by_name[edge.node].index > last:
            return True
        return _reads_around(graph.by_name[edge.node], graph.producer[edge.tensor], graph, form)

    return all(fits(edge) for part in group for edge in part.readers)


def _has_no_pair(
    edge: Edge, form: NormalForm, operands: Mapping[Edge, Operand], takes_pairs: bool
) -> bool:
    """Whether no pair is on ``edge``, or one that the layer around it takes."""
    if edge not in form.scales:
        return True
    operand = operands.get(edge)
    return takes_pairs and (operand is None or not operand.is_kept(form))


def _takes_pairs(candidate: LayerCandidate) -> bool:
    return candidate.claim is not None and candidate.claim.fusion.reads == ANY
