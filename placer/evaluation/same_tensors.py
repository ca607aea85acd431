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
    agreeing = [name for name in wanted if name in recovered.producer]
    if 2 * len(named) >= len(wanted) and all(_alike(n, given.graph, recovered) for n in agreeing):
        return named, ""
    found = {
        mine: theirs
        for mine, theirs in _by_structure(given.graph, recovered).items()
        if mine in source.graph.producer and theirs in written
    }
    return found, (
        f"{candidate.path} names tensors otherwise than the float model: {len(found)} of "
        f"{len(wanted)} were found by structure"
    )


def _alike(name: str, graph: Graph, other: Graph) -> bool:
    """Whether like operators write the tensor in both, in one shape.

    A Relu or Clip may have been taken out, as what a pair cuts off is the same.
    """
    shapes = graph.type_of(name).shape, other.type_of(name).shape
    ops = graph.producer[name].op, other.producer[name].op
    alike = kind_of(ops[0]) == kind_of(ops[1]) or ops[0] in CLAMPING
    return alike and (None in shapes or shapes[0] == shapes[1])


def _by_structure(graph: Graph, other: Graph) -> Mapping[str, str]:
    """By tensor that a node of ``graph`` writes, the one that stands for it in ``other``."""
    matched = correspond(_renamed(structure_of(graph), "a"), _renamed(structure_of(other), "b"))
    return {
        mine: theirs
        for s, t in matched.pairs.items()
        if matched.source.vertices[s].op not in (GRAPH_INPUT, GRAPH_OUTPUT)
        for mine, theirs in zip(
            matched.source.vertices[s].outputs, matched.target.vertices[t].outputs, strict=False
        )
        if mine and theirs
    }


def _renamed(structure: Structure, prefix: str) -> Structure:
    """``structure`` with other names for its nodes, by which nothing is to be found."""
    vertices = enumerate(structure.vertices)
    outer = (GRAPH_INPUT, GRAPH_OUTPUT)
    return Structure(
        tuple(v if v.op in outer else replace(v, name=f"{prefix}:{i}") for i, v in vertices)
    )
