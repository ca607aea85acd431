"""Which tensor of a quantized model is which of its float model's, whatever they are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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


def same_tensors(source: Model, given: Model, candidate: Model) -> tuple[Mapping[str, str], str]:
    """The names that ``candidate`` has for tensors of ``source``, and a sentence if they differ.

    ``source``: the float model as it is run, ``given``: the same, normalised. Quantizers keep
    names, exporters number tensors anew. So names are believed unless one of them is written by
    another operator, or in another shape, than in ``given`` once ``candidate`` is taken apart, and
    as long as they cover half of the tensors. Otherwise tensors are found by structure. Of a file
    that cannot be taken apart names are believed.
    """
    written = index_graph(candidate.proto.graph, {}).producer
    named = {name: name for name in source.graph.producer if name in written}
    try:
        recovered = load_model(candidate.path, candidate.input_shapes).graph
    except PlacerError:
        return named, ""
    wanted = [name for name in given.graph.producer if name in source.graph.producer]
    both = [name for name in wanted if name in named and name in recovered.producer]
    agree = all(_alike(name, given.graph, recovered) for name in both)
    if agree and 2 * len(named) >= len(wanted):
        return named, ""
    found = {
        mine: theirs
        for mine, theirs in _by_structure(given.graph, recovered).items()
        if mine in source.graph.producer and theirs in written
    }
    if agree and len(found) <= len(named):  # The others hold integers there.
        return named, ""
    return found, (
        f"{candidate.path} names tensors otherwise than the float model: {len(found)} of "
        f"{len(wanted)} were found by structure"
    )


def _alike(name: str, graph: Graph, other: Graph) -> bool:
    """Whether like operators write the tensor in both, in one shape.

    A Relu or Clip may have been taken out, as what a pair cuts off is the same, and a bias may be
    added by a node of its own.
    """
    shapes = graph.type_of(name).shape, other.type_of(name).shape
    op, others = graph.producer[name].op, other.producer[name].op
    alike = kind_of(op) == kind_of(others) or op in CLAMPING
    alike = alike or (op in _WITH_BIAS and others == "Add")
    return alike and (None in shapes or shapes[0] == shapes[1])


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
