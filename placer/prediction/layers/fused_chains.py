"""Layers fused with what follows them, past nodes that only move elements."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.followers import AFFINE, Follower, followers, last_mover
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm, Scale
from placer.prediction.layers.moved_scales import (
    are_positive,
    copied_edges,
    is_pool,
    is_sum,
    leaves_scales,
    passed,
    pooled_scale,
    takes_scales,
)

_PRODUCTS = frozenset({"Conv", "MatMul", "Gemm"})
_SHIFTS = frozenset({"Add", "Sub"})
_IN_Q = frozenset({"Relu", "Clip", "Add", "Sub", "Mul", "Div"})  # FakeQuantize takes them along.


@dataclass(frozen=True)
class FusedChain:
    """A layer with those that it takes along, and the nodes that run after all of them.

    ``copied``: of the claim that it makes (``Claim.copied``).
    """

    group: tuple[LayerCandidate, ...]
    movers: tuple[Node, ...]
    copied: frozenset[Edge] = frozenset()

    @property
    def position(self) -> int:
        """Where it runs."""
        return max(part.position for part in self.group)


def find_fused_chains(
    candidates: Mapping[int, LayerCandidate],
    form: NormalForm,
    has_zero_point: Callable[[Scale], bool],
    has_pairs: bool,
) -> list[FusedChain]:
    """The layers of ``candidates`` that take others along, each with these.

    Past a pair without a zero point, too, since its Q and DQ are one FakeQuantize, unless what
    follows becomes part of DQ (plans of OpenVINO 2026.4.1 of small graphs).
    """
    groups, moved = [], dict[LayerCandidate, tuple[LayerCandidate, ...]]()
    joined = set[LayerCandidate]()
    for _, candidate in sorted(candidates.items()):
        if candidate in joined:  # An activation that a product takes may take others along, too.
            continue
        taken = _taken(candidate, candidates, form, has_zero_point)
        last = candidates[taken[-1].nodes[-1].index] if taken else candidate
        past = passed(candidate, taken, form) if has_pairs else ()
        moves = _disagree(last, form) and _moves_on(candidate, taken, last, form)
        if past or moves:
            end = _without_scales(taken)
            scales = tuple([candidates[node.index] for node in end])
            pool = candidates.get(past[0].index) if past and is_pool(past[0]) else None
            if end and pool is not None and takes_scales(pool, end, form):
                moved[pool] = scales
            elif end and leaves_scales(candidate):
                copied = copied_edges(last, end, form)
                groups.append(FusedChain(scales, (), copied))
        if taken:
            chain = _chain(candidate, taken, candidates)
            joined.update(chain.group[1:])
            groups.append(chain)
    groups = _with_moved_scales(groups, moved)
    if has_pairs:
        groups = _with_pooled_scales(groups, candidates, form)
    return groups


def _without_scales(taken: list[Follower]) -> list[Node]:
    """The nodes of the scales and shifts that end ``taken``, which loses them."""
    end = list[Node]()
    while taken and taken[-1].is_affine:
        end[:0] = taken.pop().nodes
    return end


def _chain(
    candidate: LayerCandidate, taken: Sequence[Follower], candidates: Mapping[int, LayerCandidate]
) -> FusedChain:
    """``candidate`` with the followers that it takes along."""
    followed = [candidates[node.index] for follower in taken for node in follower.nodes]
    movers = [mover for follower in taken for mover in follower.movers]
    return FusedChain((candidate, *followed), (*filter(None, [last_mover(candidate)]), *movers))


def _with_moved_scales(
    groups: list[FusedChain], moved: Mapping[LayerCandidate, tuple[LayerCandidate, ...]]
) -> list[FusedChain]:
    """``groups`` in which pools take along the scales that ``moved`` has for them."""
    for pool, scales in moved.items():
        chain = next((one for one in groups if one.group[0] is pool), FusedChain((pool,), ()))
        groups = [one for one in groups if one is not chain]
        groups.append(FusedChain((pool, *scales, *chain.group[1:]), chain.movers))
    return groups


def _with_pooled_scales(
    groups: Sequence[FusedChain], candidates: Mapping[int, LayerCandidate], form: NormalForm
) -> list[FusedChain]:
    """``groups``, and pools with the scale in front that something element-wise has made."""
    taken = {part for chain in groups for part in chain.group}
    chains = {chain.group[0]: chain for chain in groups}
    for candidate in candidates.values():
        scale = pooled_scale(candidate, form)
        lone = candidates.get(scale.index) if scale is not None else None
        is_taken = candidate in taken and candidate not in chains
        if lone is not None and lone not in taken and _is_free(lone) and not is_taken:
            chain = chains.pop(candidate, FusedChain((candidate,), ()))
            chains[candidate] = FusedChain((candidate, lone, *chain.group[1:]), chain.movers)
            taken.add(lone)
    return list(chains.values())


def _taken(
    candidate: LayerCandidate,
    candidates: Mapping[int, LayerCandidate],
    form: NormalForm,
    has_zero_point: Callable[[Scale], bool],
) -> list[Follower]:
    """What a layer takes along as far as the pairs on the way let it."""
    taken, graph = list[Follower](), candidate.graph
    for follower in followers(candidate):
        others = [candidates.get(node.index) for node in follower.nodes]
        inside = [form.scales[edge] for edge in follower.bare if edge in form.scales]
        if any(map(has_zero_point, inside)) and _keeps_zero_point(follower, form, graph):
            break
        if inside and not _takes_pair(candidate, taken, follower, form):
            break
        if follower.movers and _is_implied(follower, form, graph):
            break
        if not all(map(_is_free, others)):
            break
        taken.append(follower)
    if _has_product(candidate, ("Conv",)):
        _leave_to_dq(taken, form, graph)
    return taken


def _keeps_zero_point(follower: Follower, form: NormalForm, graph: Graph) -> bool:
    """Whether DQ with a zero point in front of it stays there, so that Q has to be a layer's last.

    Past a Clip it moves (LPT's ClampTransformation), where no Q behind takes both along.
    """
    return follower.kind != "Clip" or _is_quantized(follower, form, graph)


def _takes_pair(
    candidate: LayerCandidate, taken: Sequence[Follower], follower: Follower, form: NormalForm
) -> bool:
    """Whether a layer takes ``follower`` along with the pair in front of it.

    Of a product all that reads the pair as a whole; but a linear layer with an activation leaves
    the shift to DQ. Of others DQ takes scales along, and shifts that no Q does.
    """
    graph = candidate.graph
    if _has_product(candidate, _PRODUCTS):
        if follower.kind in _SHIFTS and not _has_product(candidate, ("Conv",)):
            nodes = [*candidate.nodes, *(node for one in taken for node in one.nodes)]
            return all(node.op in _PRODUCTS or node.op in AFFINE for node in nodes)
        return _reads_as_one(follower, form)
    is_shift = follower.kind in _SHIFTS and _is_quantized(follower, form, graph)
    return len(follower.nodes) == 1 and (not follower.is_affine or is_shift)


def _has_product(candidate: LayerCandidate, products: Container[str]) -> bool:
    return any(node.op in products for node in candidate.nodes)


def _reads_as_one(follower: Follower, form: NormalForm) -> bool:
    """Whether all edges into an activation carry one pair, and none inside it."""
    inside = {tensor for node in follower.nodes for tensor in node.outputs}
    scales = {form.scales.get(e) for e in follower.bare if e.tensor not in inside}
    is_bare = all(e not in form.scales for e in follower.bare if e.tensor in inside)
    return len(follower.nodes) == 1 or (is_bare and len(scales) == 1)


def _leave_to_dq(taken: list[Follower], form: NormalForm, graph: Graph) -> None:
    """Take off the scales and shifts that end a Conv's layer behind a pair, unless Q has them."""
    if not taken or _is_quantized(taken[-1], form, graph):
        return
    first = len(taken)
    while first and taken[first - 1].is_affine:
        first -= 1
    for place in range(first, len(taken)):
        if any(edge in form.scales for edge in taken[place].bare):
            del taken[place:]
            return


def _is_implied(follower: Follower, form: NormalForm, graph: Graph) -> bool:
    """Whether the Q behind takes it along, which stays behind what moves elements."""
    return follower.kind in _IN_Q and _is_quantized(follower, form, graph)


def _is_quantized(follower: Follower, form: NormalForm, graph: Graph) -> bool:
    """Whether all that reads it does so through one pair."""
    readers = [e for t in follower.nodes[-1].outputs for e in graph.edges_of(t)]
    scales = {form.scales.get(edge) for edge in readers}
    return len(scales) == 1 and None not in scales


def _is_free(candidate: LayerCandidate | None) -> bool:
    """Whether another layer may take a node along: no layer has it, or one that merges."""
    if candidate is None or len(candidate.nodes) != 1:
        return False
    return candidate.claim is None or merges(candidate)


def _disagree(candidate: LayerCandidate, form: NormalForm) -> bool:
    """Whether what reads the layer wants it in more than one scale, or in one and in float."""
    return len({form.scales.get(edge) for edge in candidate.readers}) > 1


def _moves_on(
    candidate: LayerCandidate, taken: Sequence[Follower], last: LayerCandidate, form: NormalForm
) -> bool:
    """Whether the engine moves scales and shifts on that end a layer, as those of a pair.

    Those of products move past sums that are read in float, and positive ones behind the activation
    of a Conv into Q. Those of a Conv become part of its weights, unless an activation is before
    them; those of a linear layer are scaled with the integers, unless one is (plans of OpenVINO
    2026.4.1 of small graphs).
    """
    product = next((node.op for node in candidate.nodes if node.op in _PRODUCTS), None)
    if product is None:
        return True
    end = [node for one in taken for node in one.nodes if one.is_affine]
    is_summed = any(e not in form.scales and is_sum(e, candidate.graph) for e in last.readers)
    if not is_summed and (product != "Conv" or not are_positive(end, candidate.graph)):
        return False
    own = (node.op in _PRODUCTS or node.op in AFFINE for node in candidate.nodes)
    is_activated = not all(own) or not all(follower.is_affine for follower in taken)
    if product == "Conv":
        return is_activated
    return not is_activated and candidate.claim is not None and bool(candidate.claim.demanded)


def merges(candidate: LayerCandidate) -> bool:
    """Whether the layer is one with those of its rule that read one another."""
    return candidate.claim is not None and candidate.claim.fusion.merges
