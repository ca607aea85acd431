"""Which tensor of a quantized model is which of its float model's, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from placer.errors import PlacerError
from placer.evaluation.layers import CLAMPING
from placer.graph import Graph, index_graph
from placer.graph.matching import correspond
from placer.graph.structure import (
    GRAPH_INPUT,
    GRAPH_OUTPUT,
    Structure,
    kind_of,
    structure_of,
)
from placer.model import Model, load_model

_OUTER = (GRAPH_INPUT, GRAPH_OUTPUT)
_WITH_BIAS = frozenset({"Conv", "ConvTranspose", "Gemm"})


@dataclass(frozen=True)
class _Names:
    """Names that both models have, by what writes them in either.

    ``doubted``: other operators, or one in another shape. ``fused``: a bias or a Relu may be
    part of the operator in one of them, which says nothing. ``agreeing``: the same operators.
    Graph outputs, whose names exporters keep, are neither doubted nor agreeing.
    """

    agreeing: frozenset[str]
    doubted: frozenset[str]
    fused: frozenset[str]

    @property
    def are_believed(self) -> bool:
        """Whether no more are doubted than agree."""
        return len(self.doubted) <= len(self.agreeing)


def same_tensors(source: Model, given: Model, candidate: Model) -> tuple[Mapping[str, str], str]:
    """The names that ``candidate`` has for tensors of ``source``, and a sentence if they differ.

    ``source``: the float model as it is run, ``given``: the same, normalised. Quantizers keep
    names, even where they fuse operators; exporters number tensors anew. A name is doubted if
    another operator writes it in ``candidate``, once that is taken apart, than in ``given``, or in
    another shape. If most are doubted, or names cover less than half of the tensors, all tensors
    are found by structure, unless that finds fewer than agree by name. Otherwise those are that are
    doubted or that have no name. Of a file that cannot be taken apart names are believed.
    """
    written = index_graph(candidate.proto.graph, {}).producer
    named = {name: name for name in source.graph.producer if name in written}
    try:
        recovered = load_model(candidate.path, candidate.input_shapes).graph
    except PlacerError:
        return named, ""
    wanted = [name for name in given.graph.producer if name in source.graph.producer]
    names = _judge([name for name in wanted if name in named], given.graph, recovered)
    are_many = 2 * len(named) >= len(wanted)
    if are_many and not names.doubted:
        return named, ""
    found: Mapping[str, str] = {
        mine: theirs
        for mine, theirs in _by_structure(given.graph, recovered).items()
        if mine in source.graph.producer and theirs in written
    }
    count = len(found)
    if (are_many and names.are_believed) or count <= len(
        names.agreeing if names.doubted else named
    ):
        found, count = _mended(named, names, found)
    if not count:
        return found, ""
    return found, (
        f"{candidate.path} names tensors otherwise than the float model: {count} of "
        f"{len(wanted)} were found by structure"
    )


def _judge(common: Iterable[str], graph: Graph, other: Graph) -> _Names:
    """What is to be said of the names ``common``, by what writes them in ``graph`` and ``other``.

    A Relu or Clip may have been taken out, as what a pair cuts off is the same, and a bias may be
    added by a node of its own in one of both.
    """
    agreeing: set[str] = set()
    doubted: set[str] = set()
    fused: set[str] = set()
    for name in common:
        if name not in other.producer:
            continue
        shapes = graph.type_of(name).shape, other.type_of(name).shape
        op, others = graph.producer[name].op, other.producer[name].op
        with_bias = "Add" in (op, others) and not _WITH_BIAS.isdisjoint((op, others))
        if None not in shapes and shapes[0] != shapes[1]:
            doubted.add(name)
        elif kind_of(op) == kind_of(others):
            agreeing.add(name)
        else:
            (fused if op in CLAMPING or with_bias else doubted).add(name)
    outputs = set(graph.outputs)
    return _Names(frozenset(agreeing - outputs), frozenset(doubted - outputs), frozenset(fused))


def _mended(
    named: Mapping[str, str], names: _Names, found: Mapping[str, str]
) -> tuple[Mapping[str, str], int]:
    """``named`` with what is ``found`` of those that do not agree, and how many that changes.

    Where most are doubted, those that are not found are left out.
    """
    if not names.doubted:
        return named, 0
    kept = {n: n for n in named if names.are_believed or n not in names.doubted}
    unsure = names.doubted | names.fused
    moved = {n: to for n, to in found.items() if n != to and (n in unsure or n not in named)}
    return {**kept, **moved}, len(moved)


def _by_structure(graph: Graph, recovered: Graph) -> Mapping[str, str]:
    """By tensor that a node of ``graph`` writes, the one that stands for it in ``recovered``."""
    matched = correspond(_renamed(structure_of(graph), "a"), _renamed(structure_of(recovered), "b"))
    pairs = [
        (matched.source.vertices[s], matched.target.vertices[t]) for s, t in matched.pairs.items()
    ]
    return {
        mine: theirs
        for one, other in pairs
        # A MatMul stands for a Gemm, but its bias is added by another node.
        if one.op not in _OUTER and (one.op == other.op or "Gemm" not in (one.op, other.op))
        for mine, theirs in zip(one.outputs, other.outputs, strict=False)
        if mine and theirs
    }


def _renamed(structure: Structure, prefix: str) -> Structure:
    """``structure`` with other names for its nodes, by which nothing is to be found."""
    vertices = enumerate(structure.vertices)
    return Structure(
        tuple(v if v.op in _OUTER else replace(v, name=f"{prefix}:{i}") for i, v in vertices)
    )
