"""Other names, another order of nodes, equal branches: a placement still finds its edges."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from placer.apply.transfer import transfer_placement
from placer.graph import Edge, Graph, index_graph, tensor_type
from placer.graph.matching import Correspondence, correspond
from placer.graph.structure import COMMUTATIVE, structure_of
from placer.graph.text import parse_model
from placer.model import load_model
from placer.quantization import Placement
from tests.apply.placements import (
    SEED0,
    file_of,
    loaded,
    partners,
)

# Two equal branches that differ in names alone; opset 17, as all models here.
TWINS = """
<ir_version: 8, opset_import: ["" : 17]>
twins (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<float[4, 4, 3, 3] wa = {0.1}, float[4, 4, 3, 3] wb = {0.1},
 float[4, 4, 3, 3] va = {0.1}, float[4, 4, 3, 3] vb = {0.1}>
{
  [a1] pa = Conv <pads = [1, 1, 1, 1]> (x, wa)
  [a2] qa = Relu (pa)
  [a3] ra = Conv <pads = [1, 1, 1, 1]> (qa, va)
  [b1] pb = Conv <pads = [1, 1, 1, 1]> (x, wb)
  [b2] qb = Relu (pb)
  [b3] rb = Conv <pads = [1, 1, 1, 1]> (qb, vb)
  [join] y = Add (ra, rb)
}
"""


def graph_of(proto: ModelProto) -> Graph:
    values = onnx.shape_inference.infer_shapes(proto).graph.value_info
    inferred = (*proto.graph.input, *values, *proto.graph.output)
    types = {v.name: tensor_type(v) for v in inferred}
    return index_graph(proto.graph, types)


def renamed(proto: ModelProto, seed: int, *, reuse: bool) -> tuple[ModelProto, dict[str, str]]:
    """``proto`` with other names and in another topological order; and the new names of nodes.

    ``reuse``: the new names are the old ones, of other nodes and tensors.
    """
    rng = random.Random(seed)
    made = ModelProto.FromString(proto.SerializeToString())
    graph = made.graph
    tensors = [t for n in graph.node for t in (*n.input, *n.output) if t]
    tensors += [v.name for v in (*graph.input, *graph.output, *graph.initializer)]
    new = fresh_names(sorted(set(tensors)), rng, reuse)
    nodes = fresh_names([n.name for n in graph.node], rng, reuse)
    for node in graph.node:
        node.name = nodes[node.name]
        for names in (node.input, node.output):
            names[:] = [new.get(t, "") for t in names]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = new[value.name]
    ready = {v.name for v in (*graph.input, *graph.initializer)} | {""}
    waiting, order = list(graph.node), []
    while waiting:
        index = rng.choice([i for i, n in enumerate(waiting) if ready.issuperset(n.input)])
        order.append(waiting.pop(index))
        ready.update(order[-1].output)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
    del graph.node[:]
    graph.node.extend(copies)
    return made, nodes


def fresh_names(old: list[str], rng: random.Random, reuse: bool) -> dict[str, str]:
    shuffled = rng.sample(old, len(old))
    return {a: b if reuse else f"n{i}" for i, (a, b) in enumerate(zip(old, shuffled, strict=True))}


def assert_isomorphic(matched: Correspondence) -> None:
    """Every vertex has a partner of its kind, and reads what its partner reads."""
    assert matched.is_exact
    for s, t in matched.pairs.items():
        here, there = matched.source.sources[s], matched.target.sources[t]
        mapped = [None if p is None else (matched.pairs[p.vertex], p.output) for p in here]
        if matched.source.vertices[s].op in COMMUTATIVE:
            assert Counter(mapped) == Counter(there)
        else:
            assert mapped == list(there)


@cache
def original(name: str) -> ModelProto:
    return loaded(SEED0).proto if name == "digits" else parse_model(TWINS)


@given(
    name=st.sampled_from(["digits", "twins"]),
    seed=st.integers(0, 10**6),
    reuse=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_names_and_order_do_not_matter(name: str, seed: int, reuse: bool):
    proto = original(name)
    other, nodes = renamed(proto, seed, reuse=reuse)
    matched = correspond(structure_of(graph_of(proto)), structure_of(graph_of(other)))
    assert_isomorphic(matched)
    found = partners(matched)
    if name == "digits":  # It has no symmetry, so there is one answer.
        assert {old: found[old] for old in nodes} == nodes


@given(seed=st.integers(0, 10**6), reuse=st.booleans(), data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_placement_comes_out_isomorphic(
    tmp_path_factory: pytest.TempPathFactory, seed: int, reuse: bool, data: st.DataObject
):
    folder = tmp_path_factory.mktemp("apply")
    model = loaded(SEED0)
    every = sorted(edge for edges in model.graph.consumers.values() for edge in edges)
    floats = [edge for edge in every if model.graph.type_of(edge.tensor).is_float]
    edges = data.draw(st.lists(st.sampled_from(floats), min_size=1, unique=True))
    tensors = sorted({edge.tensor for edge in edges})
    shared = data.draw(st.lists(st.lists(st.sampled_from(tensors), max_size=3), max_size=3))
    placement = Placement.of(edges, shared)
    other, nodes = renamed(model.proto, seed, reuse=reuse)
    path = folder / "other.onnx"
    onnx.save(other, path)
    applied = transfer_placement(file_of(placement, model.graph, folder), load_model(path))
    expected = {
        frozenset((nodes.get(e.node, ""), e.input_index) for e in group.edges)
        for group in placement.groups
    }
    found = {
        frozenset((e.node, e.input_index) for e in group.edges)
        for group in applied.placement.groups
    }
    assert found == expected


@pytest.mark.parametrize("seed", range(6))
def test_of_two_equal_branches_one_is_quantized(tmp_path: Path, seed: int):
    proto = parse_model(TWINS)
    graph = graph_of(proto)
    branch = Placement.of([Edge("x", "a1", 0), Edge("qa", "a3", 0), Edge("ra", "join", 0)])
    other, nodes = renamed(proto, seed, reuse=True)
    onnx.save(other, tmp_path / "other.onnx")
    model = load_model(tmp_path / "other.onnx")
    applied = transfer_placement(file_of(branch, graph, tmp_path), model)
    assert {e.node for e in applied.placement.edges} in (
        {nodes["a1"], nodes["a3"], nodes["join"]},
        {nodes["b1"], nodes["b3"], nodes["join"]},
    )
    model = load_model(tmp_path / "other.onnx").graph
    (into_join,) = (e.tensor for e in applied.placement.edges if e.node == nodes["join"])
    assert model.producer[into_join].name in {e.node for e in applied.placement.edges}


def test_names_decide_between_equal_branches(tmp_path: Path):
    proto = parse_model(TWINS)
    onnx.save(proto, tmp_path / "same.onnx")
    branch = Placement.of([Edge("x", "b1", 0), Edge("qb", "b3", 0)])
    file = file_of(branch, graph_of(proto), tmp_path)
    assert transfer_placement(file, load_model(tmp_path / "same.onnx")).placement == branch
