"""Edges that are read as integers, and pairs to which layers that write floats round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from placer.graph import Edge, Graph
from placer.prediction.layers.claims import ANY, FLOAT, Claim
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm, Passage, Scale

Refuses = Callable[[Claim, NormalForm], bool]


@dataclass(frozen=True, slots=True)
class Rounded:
    """The pairs behind a layer that it rounds to by itself, by tensor and scale.

    ``alone``: nothing reads the integers, which are not written. ``besides``: floats are written
    besides the integers.
    """

    alone: frozenset[tuple[str, Scale]] = frozenset()
    besides: frozenset[tuple[str, Scale]] = frozenset()


NO_ROUNDED = Rounded()


@dataclass(frozen=True, eq=False, slots=True)
class IntegerReader:
    """What takes the integers of an edge where all of ``paired`` carry pairs and no ``bare`` do.

    ``claim``: of the layer that does, None for a node past which DQ moves.
    """

    paired: tuple[Edge, ...] = ()
    bare: tuple[Edge, ...] = ()
    claim: Claim | None = None

    def takes(self, form: NormalForm, refuses: Refuses) -> bool:
        """Whether it does; ``refuses``: see ``BuildTarget``."""
        return self._fits(form) and (self.claim is None or not refuses(self.claim, form))

    def declines(self, form: NormalForm, refuses: Refuses) -> bool:
        """Whether only ``refuses`` keeps it from doing so."""
        return self._fits(form) and self.claim is not None and refuses(self.claim, form)

    def _fits(self, form: NormalForm) -> bool:
        scales = form.scales
        return all(e in scales for e in self.paired) and all(e not in scales for e in self.bare)


IntegerReaders = Mapping[Edge, tuple[IntegerReader, ...]]


def find_integer_readers(
    claims: Iterable[Claim], passages: Iterable[Passage], graph: Graph, stored: Iterable[str]
) -> IntegerReaders:
    """By edge the layers that read it as integers, and the nodes past which its DQ moves.

    ``stored``: graph inputs and outputs that are integers outside.
    """
    outside = (edge for tensor in stored for edge in graph.edges_of(tensor))
    readers_of = {edge: [IntegerReader()] for edge in outside if edge.is_graph_output}
    for claim in claims:
        if claim.fusion.reads == ANY:
            for edge in (e for node in claim.nodes for e in graph.edges_into(node)):
                readers_of.setdefault(edge, []).append(IntegerReader())
        elif claim.fusion.inputs != FLOAT:
            for edge in claim.demanded:
                readers_of.setdefault(edge, []).append(
                    IntegerReader(claim.paired, claim.bare, claim)
                )
    for passage in passages:
        for edge in passage.before:
            readers_of.setdefault(edge, []).append(IntegerReader((*passage.before, *passage.after)))
    return {edge: tuple(integer_readers) for edge, integer_readers in readers_of.items()}


@dataclass(frozen=True, eq=False, slots=True)
class ReadEdges:
    """How edges of a region are read.

    ``readers``: what may take their integers. ``verdicts``: what is known of edges, whether they
    are read as integers. ``refuses``: see ``BuildTarget``.
    """

    form: NormalForm
    readers: IntegerReaders
    verdicts: Mapping[Edge, bool | None]
    refuses: Refuses

    def are_integers(self, edge: Edge) -> bool:
        """Whether an edge with a pair is read as integers."""
        if self.verdicts.get(edge) is False:
            return False
        return any(one.takes(self.form, self.refuses) for one in self.readers.get(edge, ()))

    def are_declined(self, edges: Iterable[Edge]) -> bool:
        """Whether what reads ``edges`` would take their integers but for their zero point."""
        return all(
            any(one.declines(self.form, self.refuses) for one in self.readers.get(edge, ()))
            for edge in edges
        )


def rounded(
    candidate: LayerCandidate, read: ReadEdges, has_zero_point: Callable[[Scale], bool]
) -> Rounded:
    """What a layer rounds to by itself; ``has_zero_point``: of a scale, whether that is not 0.

    Where all that reads a tensor through a pair reads floats and the zero point is 0, OpenVINO
    makes Q and DQ one FakeQuantize (LPT's FuseMultiplyToFakeQuantizeTransformation), which the
    layer before takes along. So it does with int8 where all are kernels that refuse its zero
    point. A kernel of element-wise nodes takes both along in any case, and writes floats for those
    who read floats. Plans of OpenVINO 2026.4.1.
    """
    claim, form = candidate.claim, read.form
    fusion = None if claim is None else claim.fusion
    if claim is not None and claim.fusion.outputs == "same" and claim.demanded:
        return NO_ROUNDED
    is_kernel = fusion is not None and (fusion.takes is not None or fusion.outputs != FLOAT)
    is_pointwise = fusion is not None and fusion.reads == ANY
    alone, besides = set[tuple[str, Scale]](), set[tuple[str, Scale]]()
    for key, edges in _edges_by_scale(candidate, form).items():
        if any(edge in form.second for edge in edges):
            continue
        floats = [edge for edge in edges if not read.are_integers(edge)]
        rounds = is_pointwise or not is_kernel or not has_zero_point(key[1])
        if len(floats) == len(edges):
            rounds = rounds or read.are_declined(edges)
            if rounds or all(read.verdicts.get(edge) is False for edge in edges):
                alone.add(key)
        elif floats and is_pointwise:
            besides.add(key)
    return Rounded(frozenset(alone), frozenset(besides))


def _edges_by_scale(
    candidate: LayerCandidate, form: NormalForm
) -> dict[tuple[str, Scale], list[Edge]]:
    """What reads each tensor of a layer through a pair, by the tensor and the pair's scale."""
    edges_of: dict[tuple[str, Scale], list[Edge]] = {}
    for edge in candidate.readers:
        scale = form.scales.get(edge)
        if scale is not None and edge.tensor in scale.tensors:
            edges_of.setdefault((edge.tensor, scale), []).append(edge)
    return edges_of
