"""The layers that take others along: what follows them, past what only moves elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placer.graph import Graph, Node
from placer.prediction.layers.followers import Follower, followers
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm

_IN_Q = frozenset({"Relu", "Clip", "Add", "Sub", "Mul", "Div"})  # FakeQuantize takes them along.


@dataclass(frozen=True)
class Led:
    """A layer with those that it takes along, and the nodes that run after all of them."""

    group: tuple[LayerCandidate, ...]
    movers: tuple[Node, ...]


def find_led(found: Mapping[int, LayerCandidate], form: NormalForm) -> list[Led]:
    """The layers of ``found`` that take others along, each with these."""
    groups = []
    for candidate in found.values():
        taken = list[Follower]()
        for follower in followers(candidate):
            others = [found.get(node.index) for node in follower.nodes]
            if any(edge in form.scales for edge in follower.bare):
                break
            if follower.movers and _is_implied(follower, form, candidate.graph):
                break
            if not all(map(_is_free, others)):
                break
            taken.append(follower)
        # The engine moves scales and shifts on, as it does with those of a pair.
        last = found[taken[-1].nodes[-1].index] if taken else candidate
        if _disagree(last, form):
            while taken and taken[-1].is_affine:
                taken.pop()
        if taken:
            own = [found[node.index] for follower in taken for node in follower.nodes]
            groups.append(Led((candidate, *own), tuple(m for f in taken for m in f.movers)))
    return groups


def _is_implied(follower: Follower, form: NormalForm, graph: Graph) -> bool:
    """Whether the Q behind takes it along, which stays behind what moves elements."""
    readers = [e for t in follower.nodes[-1].outputs for e in graph.edges_of(t)]
    scales = {form.scales.get(edge) for edge in readers}
    return follower.kind in _IN_Q and len(scales) == 1 and None not in scales


def _is_free(candidate: LayerCandidate | None) -> bool:
    """Whether another layer may take a node along: no layer has it, or one that merges."""
    if candidate is None or len(candidate.nodes) != 1:
        return False
    return candidate.claim is None or merges(candidate)


def _disagree(candidate: LayerCandidate, form: NormalForm) -> bool:
    """Whether what reads the layer wants it in more than one scale, or in one and in float."""
    return len({form.scales.get(edge) for edge in candidate.readers}) > 1


def merges(candidate: LayerCandidate) -> bool:
    """Whether the layer is one with those of its rule that read one another."""
    return candidate.claim is not None and candidate.claim.fusion.merges
