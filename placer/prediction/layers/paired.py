"""Layers of a region under one combination of pairs, with the pairs around each.

That depends on the region's own edges only, so it is worked out once for each combination of scales
on these, in whatever placement they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from placer.graph import Edge, Graph, Node
from placer.graph.weights import BIAS_INDEX, is_row
from placer.prediction.layers.claims import FLOAT, Claim
from placer.prediction.layers.conversions import BuildTarget
from placer.prediction.layers.integer_operators import is_integer_operator
from placer.prediction.layers.integer_readers import NO_ROUNDED, ReadEdges, rounded
from placer.prediction.layers.layer_candidate import LayerCandidate, Written
from placer.prediction.layers.layer_types import CONVS
from placer.prediction.layers.motion import NormalForm, Scale, Scales
from placer.prediction.layers.paired_candidate import PairedCandidate
from placer.prediction.layers.regions import Region
from placer.prediction.layers.stored_constants import STORED, behind_clamp, is_vector
from placer.rules.condition import Condition

KEPT_CANDIDATES, KEPT_DECISIONS = 1 << 17, 1 << 17
PRODUCTS = STORED | {"MatMul"}
# Engines whose kernels that read INT8 write FP32 for a Conv that reads floats.
_WRITE_FP32 = Condition(engine_versions="<8.6")

# By position; None: a node that is part of another layer.
Decided = Mapping[int, PairedCandidate | None]


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """The edges of a region that may carry a pair, and of these the ones that may carry two."""

    edges: tuple[Edge, ...]
    linked: tuple[Edge, ...]


class Decisions:
    """What is built in regions by the pairs on their edges."""

    def __init__(self, target: BuildTarget, linked: Mapping[Edge, object]) -> None:
        """``linked``: edges that pairs move to, which may have two of them."""
        self._linked = linked
        self._asked: dict[Region, _Asked] = {}
        # Equal ones are one object: steps are remembered by it.
        paired = lru_cache(maxsize=KEPT_CANDIDATES)(PairedCandidate)
        self._decide = lru_cache(maxsize=KEPT_DECISIONS)(partial(_decide, target, paired))

    def of(self, region: Region, form: NormalForm, has_pairs: bool = True) -> Decided:
        """What is built at the positions of ``region``.

        ``has_pairs``: whether any activation of the model carries a pair.
        """
        asked = self._asked.get(region)
        if asked is None:
            edges = region.edges
            asked = _Asked(edges, tuple([edge for edge in edges if edge in self._linked]))
            self._asked[region] = asked
        scales = tuple(map(form.scales.get, asked.edges))
        second = tuple(map(form.second.get, asked.linked))
        return self._decide(region, asked, scales, second, has_pairs or not region.asks_for_pairs)


def _decide(
    target: BuildTarget,
    paired: Callable[..., PairedCandidate],
    region: Region,
    asked: _Asked,
    scales: tuple[Scale | None, ...],
    second: tuple[Scale | None, ...],
    has_pairs: bool,
) -> Decided:
    form = NormalForm(_given(asked.edges, scales), _given(asked.linked, second))
    decided: dict[int, PairedCandidate | None] = dict.fromkeys(c.position for c in region.alone)
    shifts = target.scales.has_zero_point
    candidates = region.candidates(
        form,
        shifts or _always,
        target.scales.exceeds,
        partial(_refuses, target, has_pairs),
        has_pairs,
    )
    shifts = shifts or _never
    verdicts = _verdicts(region, candidates.values(), form, shifts) if target.rounds_alone else {}
    read = ReadEdges(form, region.integer_readers, verdicts, target.refuses)
    moved = _moved(candidates.values(), form)
    for position, candidate in candidates.items():
        chains: tuple[Scales, ...] = tuple(map(form.chain, candidate.reads))
        written: tuple[Written, ...] = candidate.output_scales(form)
        constants = _constants(target, candidate, form)
        feeds = _feeds_float_conv(target, candidate, form)
        found_rounded = NO_ROUNDED
        if target.rounds_alone:
            found_rounded = rounded(candidate, read, shifts)
        decided[position] = paired(
            candidate,
            chains,
            written,
            feeds,
            constants,
            candidate.rounds(form),
            found_rounded,
            tuple(map(verdicts.get, candidate.reads)) if verdicts else (),
            moved.get(candidate.nodes[0].name) if candidate.nodes else None,
            _chained(target, candidate, form),
        )
    return decided


def _refuses(
    target: BuildTarget, has_pairs: bool, candidate: LayerCandidate, form: NormalForm
) -> bool:
    """Whether zero points, formats or pairs elsewhere keep a layer from being built."""
    claim = candidate.claim
    if claim is None:
        return False
    if claim.with_pairs not in (None, has_pairs) or target.refuses(claim, form):
        return True
    moves_alone = target.behaviour.other_formats == "moved" and bool(claim.demanded)
    return moves_alone and candidate.reads_another_format(form)


def _chained(target: BuildTarget, candidate: LayerCandidate, form: NormalForm) -> Scale | None:
    """The second scale of all that reads what a Conv writes as integers, if there is one."""
    if target.behaviour.chained == "converted":
        return None
    if candidate.claim is None or candidate.claim.fusion.inputs == FLOAT:
        return None
    scales = {form.second.get(edge) for edge in candidate.readers}
    is_conv = len(candidate.writes) == 1 and any(node.op == "Conv" for node in candidate.nodes)
    return scales.pop() if is_conv and len(scales) == 1 else None


def _moved(candidates: Iterable[LayerCandidate], form: NormalForm) -> Mapping[str, Scale]:
    """Of nodes that move what a layer computes, nodes of which stand behind them, its Q's scale."""
    scale_of_node = {}
    for candidate in candidates:
        claim, graph = candidate.claim, candidate.graph
        if claim is not None and claim.movers:
            scales = {form.scales.get(edge) for edge in candidate.readers}
            scale = scales.pop() if len(scales) == 1 else None
            last = max(map(graph.by_name.__getitem__, claim.movers), key=lambda node: node.index)
            if scale is not None and last.op == "Transpose":
                scale_of_node.update(dict.fromkeys(claim.movers, scale))
    return scale_of_node


def _verdicts(
    region: Region,
    candidates: Iterable[LayerCandidate],
    form: NormalForm,
    has_zero_point: Callable[[Scale], bool],
) -> Mapping[Edge, bool | None]:
    """How paired operands are read that no product takes along; see ``Operand``."""
    fused = {
        node.name: candidate.claim
        for candidate in candidates
        if any(node.op in PRODUCTS for node in candidate.nodes)
        for node in candidate.nodes
    }
    verdicts: dict[Edge, bool | None] = {}
    for edge, operand in region.operands.items():
        if edge in form.scales and edge.node not in fused:
            verdicts[edge] = operand.is_read_as_integers(form, has_zero_point)
        elif edge in form.scales and _is_read_in_float(edge, fused[edge.node]):
            verdicts[edge] = False
    return verdicts


def _is_read_in_float(edge: Edge, claim: Claim | None) -> bool:
    """Whether an INT8 Conv takes a sum along whose other operand it reads in float."""
    if claim is None or not claim.demanded or edge in claim.paired:
        return False
    return any(node.op == "Conv" for node in claim.nodes)


def _never(_scale: Scale) -> bool:
    return False


def _always(_scale: Scale) -> bool:
    return True


def _given(edges: tuple[Edge, ...], scales: tuple[Scale | None, ...]) -> dict[Edge, Scale]:
    pairs = zip(edges, scales, strict=True)
    return {edge: scale for edge, scale in pairs if scale is not None}


def _feeds_float_conv(target: BuildTarget, candidate: LayerCandidate, form: NormalForm) -> bool:
    """Whether a Conv reads in float what the candidate writes, in engines that care.

    Those are of weak typing, up to 8.5: in 8.6 a kernel that reads INT8 writes FP16 for an FP16
    Conv, and a reformat stands between (backbones of a SparseDrive on Orin, 8.6.1).
    """
    nodes = target.graph.by_name
    is_up = target.target.meets(_WRITE_FP32)
    return (
        is_up
        and target.target.typing == "weak"
        and any(
            edge not in form.scales and edge.node in nodes and nodes[edge.node].op in CONVS
            for edge in candidate.readers
        )
    )


def _constants(
    target: BuildTarget, candidate: LayerCandidate, form: NormalForm
) -> tuple[Edge, ...]:
    """The constants that a run dequantizes: those that the candidate's nodes read through a pair.

    So are biases that are quantized for it.
    Those of products whose operands carry pairs are: a candidate has them as integers, and a file
    of others gets them where a Q follows, behind a Relu or Clip, too. So do weights without a pair
    that a kernel reads in float all the same, as that of ConvTranspose does (ONNX Runtime's
    weight_bias_quantization.cc). Operators of the QOperator format read theirs as integers.
    """
    claim, edges_read = candidate.claim, list[Edge]()
    if target.behaviour.constants == "folded":
        return ()
    if claim is not None and claim.demanded and claim.fusion.inputs != FLOAT:
        return ()
    if claim is None and is_integer_operator(candidate.nodes):
        return ()
    for node in candidate.nodes:
        edges_read += dict.fromkeys(_constants_of(target, node, candidate.graph, form))
    return tuple(edges_read)


def _constants_of(
    target: BuildTarget, node: Node, graph: Graph, form: NormalForm
) -> Iterator[Edge]:
    """The constants that ``node`` reads through a pair or as integers; some are told twice."""
    edges = graph.edges_into(node)
    constants = [edge for edge in edges if edge.tensor in graph.initializers]
    yield from (edge for edge in constants if edge in form.scales)
    if node.op not in STORED or edges[0] not in form.scales:
        return
    requantized = _is_requantized(node, graph, form)
    is_stored = requantized and edges[1] in constants
    if is_stored:
        yield edges[1]
    is_quantized = is_stored or edges[1] in form.scales
    if is_quantized and (requantized or target.stores_biases):
        biases = [edge for edge in constants if edge.input_index == BIAS_INDEX]
        for edge in biases:
            is_stored = target.stores_biases and is_row(graph, edge.tensor)
            if is_stored or is_vector(edge, graph):
                yield edge


def _is_requantized(node: Node, graph: Graph, form: NormalForm) -> bool:
    """Whether a Q reads what the node writes, behind a Relu or Clip that alone reads it."""
    edges, behind = graph.edges_of(node.outputs[0]), behind_clamp(node, graph)
    if behind and edges[0] not in form.scales:
        return all(edge in form.scales for edge in behind)
    return bool(edges) and all(edge in form.scales for edge in edges)
