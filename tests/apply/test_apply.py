"""``placer apply``: a placement on a retrained, renamed, re-exported or changed model."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

from placer.apply.apply import Applied, apply_placement
from placer.apply.matching import Correspondence, correspond
from placer.common.folder_lock import LOCK_FILE, locked
from placer.errors import InputError
from placer.graph import Edge, Graph, index_graph, tensor_type
from placer.graph.structure import COMMUTATIVE, parse_structure, structure_of
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.plan import Plan
from placer.prediction.predictor import Predictor
from placer.quantization import Placement, Range
from placer.quantization.placement_file import (
    PlacementFile,
    load_placement,
    placement_text,
    read_placement,
)
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import ANY_TARGET
from tests.conftest import DIGITS, Finished
from tests.model.test_normalize import outputs

Run = Callable[..., Finished]
Save = Callable[..., Path]

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
SEED0, SEED1 = ARTEFACTS / "digits-seed0.onnx", ARTEFACTS / "digits-seed1.onnx"
DYNAMO = ARTEFACTS / "digits-seed1-dynamo.onnx"
PACKS = ("tensorrt", "onnxruntime")

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
RESIDUAL = """
<ir_version: 8, opset_import: ["" : 17]>
residual (float[1, 4, 8, 8] x) => (float[1, 5] y)
<float[4, 4, 3, 3] w1 = {0.1}, float[4, 4, 3, 3] w2 = {0.1}, float[5, 4] w3 = {0.1}>
{
  [conv1] p = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [relu1] q = Relu (p)
  [conv2] r = Conv <pads = [1, 1, 1, 1]> (q, w2)
  [add] s = Add (r, q)
  [relu2] t = Relu (s)
  [pool] u = GlobalAveragePool (t)
  [flat] v = Flatten (u)
  [head] y = Gemm <transB = 1> (v, w3)
}
"""
# The same network by a careless exporter.
RESIDUAL_AGAIN = """
<ir_version: 8, opset_import: ["" : 17]>
again (float[1, 4, 8, 8] x) => (float[1, 5] y)
<float[4, 4, 3, 3] w1 = {0.1}, float[4, 4, 3, 3] w2 = {0.1}, float[5, 4] w3 = {0.1},
 float[4] one = {1, 1, 1, 1}, float[4] zero = {0, 0, 0, 0}>
{
  x1 = Identity (x)
  c1 = Conv <auto_pad = "NOTSET", dilations = [1, 1], group = 1, kernel_shape = [3, 3],
             pads = [1, 1, 1, 1], strides = [1, 1]> (x1, w1)
  n1 = BatchNormalization (c1, one, zero, zero, one)
  a1 = Relu (n1)
  a2 = Identity (a1)
  c2 = Conv <pads = [1, 1, 1, 1]> (a2, w2)
  n2 = BatchNormalization (c2, one, zero, zero, one)
  s = Add (a1, n2)
  t = Relu (s)
  u = GlobalAveragePool (t)
  shape = Constant <value = int64[2] {1, 4}> ()
  v = Reshape (u, shape)
  y = Gemm <alpha = 1.0, transB = 1> (v, w3)
}
"""
RESIDUAL_PLACEMENT = Placement.of(
    [
        *(Edge("x", "conv1", 0), Edge("w1", "conv1", 1)),
        *(Edge("q", "conv2", 0), Edge("w2", "conv2", 1), Edge("q", "add", 1)),
        *(Edge("v", "head", 0), Edge("w3", "head", 1), Edge("u", "flat", 0)),
    ],
    shared=[("u", "v")],
)


def graph_of(proto: ModelProto) -> Graph:
    values = onnx.shape_inference.infer_shapes(proto).graph.value_info
    inferred = (*proto.graph.input, *values, *proto.graph.output)
    types = {v.name: tensor_type(v) for v in inferred}
    return index_graph(proto.graph, types)


def file_of(
    placement: Placement,
    graph: Graph,
    folder: Path,
    pack: str = "tensorrt",
    ranges: Mapping[str, Range] | None = None,
) -> PlacementFile:
    """The placement as ``optimize`` would have written it, read again."""
    rules = load_pack(pack)
    path = folder / "placement.yaml"
    text = placement_text(
        placement,
        ranges or {},
        rules.manifest.scheme,
        model="sha256:other",
        pack=rules.name_and_version,
        calibrated=True,
        graph=graph,
    )
    path.write_text(text, encoding="utf-8")
    return read_placement(path)


@cache
def loaded(path: Path) -> Model:
    return load_model(path)


def default(graph: Graph, pack: Pack) -> Placement:
    return place(find_sites(graph, pack.rules), {})


def plan(graph: Graph, placement: Placement, pack: Pack) -> Plan:
    integer = pack.manifest.scheme.activation
    return Predictor(graph, pack.rules, ANY_TARGET, "float16", integer).predict(placement).plan


def layers(found: Plan, names: Mapping[str, str] | None = None) -> Counter[object]:
    """Layers by the nodes that they cover, renamed by ``names``, and by types and kind."""
    names = names or {}
    return Counter(
        (
            layer.kind,
            frozenset(names.get(node, node) for node in layer.nodes),
            layer.input_types,
            layer.output_types,
        )
        for layer in found.layers
    )


def partners(matched: Correspondence) -> dict[str, str]:
    """Target's node names by the source's."""
    source, target = matched.source.vertices, matched.target.vertices
    return {source[s].name: target[t].name for s, t in matched.pairs.items()}


# --- the same network -----------------------------------------------------------------------


@pytest.mark.parametrize("pack", PACKS)
def test_retrained_with_another_seed(tmp_path: Path, pack: str):
    rules, first, second = load_pack(pack), loaded(SEED0), loaded(SEED1)
    weights = [m.array("head.weight") for m in (first, second)]
    assert not np.allclose(*weights)
    placement = default(first.graph, rules)
    applied = apply_placement(file_of(placement, first.graph, tmp_path, pack), second)
    assert applied.is_exact
    assert all(found.by_name for found in applied.found)
    assert applied.placement == placement == default(second.graph, rules)
    expected = layers(plan(first.graph, placement, rules))
    assert layers(plan(second.graph, applied.placement, rules)) == expected


def test_the_other_exporter_of_torch(tmp_path: Path):
    rules, first, second = load_pack("tensorrt"), loaded(SEED0), loaded(DYNAMO)
    placement = default(first.graph, rules)
    file = file_of(placement, first.graph, tmp_path)
    applied = apply_placement(file, second)
    assert [f.edge for f in applied.found if f.by_name] == []
    assert (applied.lost, applied.broken, applied.new_nodes) == ((), (), ())
    assert applied.placement == default(second.graph, rules)
    names = partners(correspond(structure_of(first.graph), structure_of(second.graph)))
    expected = layers(plan(first.graph, placement, rules), names)
    assert layers(plan(second.graph, applied.placement, rules)) == expected


def test_what_the_other_exporter_writes_otherwise_is_told(tmp_path: Path):
    """ONNX Runtime quantizes GlobalAveragePool and Flatten, not ReduceMean and Reshape."""
    rules = load_pack("onnxruntime")
    first, second = loaded(SEED0), loaded(DYNAMO)
    placement = default(first.graph, rules)
    applied = apply_placement(file_of(placement, first.graph, tmp_path, "onnxruntime"), second)
    assert applied.lost == ()
    assert applied.is_exact is False
    changed = {str(f.edge): f.operators for f in applied.found if f.operators is not None}
    assert changed == {
        "relu_12 -> node_mean[0]": ("GlobalAveragePool", "ReduceMean"),
        "mean -> node_view[0]": ("Flatten", "Reshape"),
    }


def test_a_careless_exporter(save: Save, tmp_path: Path):
    """Identity, Constant, BatchNormalization, defaults written out, Add's inputs swapped."""
    rules = load_pack("tensorrt")
    first, second = (load_model(save(text)) for text in (RESIDUAL, RESIDUAL_AGAIN))
    placement = default(first.graph, rules)
    applied = apply_placement(file_of(placement, first.graph, tmp_path), second)
    assert (applied.lost, applied.new_nodes) == ((), ())
    names = partners(correspond(structure_of(first.graph), structure_of(second.graph)))
    assert layers(plan(second.graph, applied.placement, rules)) == layers(
        plan(first.graph, placement, rules), names
    )
    residual = apply_placement(file_of(RESIDUAL_PLACEMENT, first.graph, tmp_path), second)
    (skip,) = (f.edge for f in residual.found if f.source == Edge("q", "add", 1))
    assert (skip.tensor, skip.input_index) == ("a1", 0)


def test_matmul_and_add_for_gemm(save: Save, tmp_path: Path):
    first = load_model(save(RESIDUAL))
    text = RESIDUAL.replace(
        "[head] y = Gemm <transB = 1> (v, w3)", "z = MatMul (v, w4) y = Add (z, b)"
    )
    text = text.replace(
        "float[5, 4] w3 = {0.1}", "float[4, 5] w4 = {0.1}, float[5] b = {1,2,3,4,5}"
    )
    second = load_model(save(text, "other.onnx"))
    applied = apply_placement(file_of(RESIDUAL_PLACEMENT, first.graph, tmp_path), second)
    assert applied.lost == ()
    operators = {f.source.node: f.operators for f in applied.found}
    assert operators["head"] == ("Gemm", "MatMul")
    assert len(applied.new_nodes) == 1
    assert applied.new_nodes[0].startswith("Add")


# --- other names and another order ----------------------------------------------------------


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
    applied = apply_placement(file_of(placement, model.graph, folder), load_model(path))
    expected = {
        frozenset((nodes.get(e.node, ""), e.input_index) for e in group)
        for group in placement.groups
    }
    found = {
        frozenset((e.node, e.input_index) for e in group) for group in applied.placement.groups
    }
    assert found == expected


@pytest.mark.parametrize("seed", range(6))
def test_of_two_equal_branches_one_is_quantized(tmp_path: Path, seed: int):
    proto = parse_model(TWINS)
    graph = graph_of(proto)
    branch = Placement.of([Edge("x", "a1", 0), Edge("qa", "a3", 0), Edge("ra", "join", 0)])
    other, nodes = renamed(proto, seed, reuse=True)
    onnx.save(other, tmp_path / "other.onnx")
    applied = apply_placement(file_of(branch, graph, tmp_path), load_model(tmp_path / "other.onnx"))
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
    assert apply_placement(file, load_model(tmp_path / "same.onnx")).placement == branch


# --- another network ------------------------------------------------------------------------


def applied_to(text: str, save: Save, folder: Path) -> Applied:
    first, second = load_model(save(RESIDUAL)), load_model(save(text, "other.onnx"))
    return apply_placement(file_of(RESIDUAL_PLACEMENT, first.graph, folder), second)


def test_what_is_gone_is_listed(save: Save, tmp_path: Path):
    """Other nodes change too, but conv2 alone had quantized edges; Reshape is like Flatten."""
    text = RESIDUAL.replace("[flat] v = Flatten (u)", "[flat] v = Reshape (u, sh)")
    text = text.replace("float[5, 4] w3 = {0.1}", "float[5, 4] w3 = {0.1}, int64[2] sh = {1, 4}")
    text = text.replace("[relu2] t = Relu (s)", "[sigmoid] t = Sigmoid (s)")
    text = text.replace("[conv2] r = Conv <pads = [1, 1, 1, 1]> (q, w2)", "[tanh] r = Tanh (q)")
    applied = applied_to(text, save, tmp_path)
    assert {(str(x.edge), x.operator) for x in applied.lost} == {
        ("q -> conv2[0]", "Conv"),
        ("w2 -> conv2[1]", "Conv"),
    }
    assert {x.reason for x in applied.lost} == {"no node corresponds to its own"}
    (group,) = applied.broken
    assert group.kept == (Edge("q", "add", 1),)
    assert group.lost == (Edge("q", "conv2", 0),)
    assert set(applied.new_nodes) == {"tanh", "sigmoid"}


def test_wider_layers_keep_their_placement(save: Save, tmp_path: Path):
    text = RESIDUAL.replace("float[4, 4, 3, 3] w1", "float[6, 4, 3, 3] w1")
    text = text.replace("float[4, 4, 3, 3] w2", "float[6, 6, 3, 3] w2")
    text = text.replace("float[5, 4] w3", "float[5, 6] w3")
    applied = applied_to(text, save, tmp_path)
    assert applied.lost == ()
    assert applied.is_exact is False
    assert applied.placement == RESIDUAL_PLACEMENT


def test_an_inserted_layer_shifts_generated_names(save: Save, tmp_path: Path):
    """Names say conv2; what is around it says that it is the layer before."""
    text = RESIDUAL.replace("[conv2]", "[conv3]").replace(
        "[relu1] q = Relu (p)",
        "[relu0] p0 = Relu (p) [conv2] p1 = Conv <pads = [2, 2, 2, 2], dilations = [2, 2]> (p0, w1)"
        " [relu1] q = Relu (p1)",
    )
    applied = applied_to(text, save, tmp_path)
    assert applied.lost == ()
    found = {f.source.node: f.edge.node for f in applied.found}
    assert found["conv2"] == "conv3"
    assert "conv2" in applied.new_nodes


def test_nothing_in_common(save: Save, tmp_path: Path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    other (float[1, 3] image) => (float[1, 3] out) { [tanh] out = Tanh (image) }"""
    with pytest.raises(InputError, match="none of its 8 edges is found"):
        applied_to(text, save, tmp_path)


def test_a_file_without_structure_matches_by_name(save: Save, tmp_path: Path):
    model = load_model(save(RESIDUAL))
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path)
    path = tmp_path / "placement.yaml"
    path.write_text(path.read_text().partition("structure:")[0])
    applied = apply_placement(read_placement(path), model)
    assert (applied.placement, applied.is_exact) == (RESIDUAL_PLACEMENT, None)
    other = load_model(save(RESIDUAL.replace("[conv2]", "[conv2b]"), "other.onnx"))
    applied = apply_placement(read_placement(path), other)
    assert {x.edge.node for x in applied.lost} == {"conv2"}
    assert applied.lost[0].candidates[0] == "conv2b"


def test_a_damaged_structure_is_named(save: Save, tmp_path: Path):
    model = load_model(save(RESIDUAL))
    text = structure_of(model.graph).text()
    assert parse_structure(text, "f").vertices == structure_of(model.graph).vertices
    with pytest.raises(InputError, match=r"f: structure, line 2 is no vertex"):
        parse_structure(text.replace('["conv1"', '["conv1', 1), "f: structure")
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path)
    path = tmp_path / "placement.yaml"
    path.write_text(path.read_text().replace('["conv1"', '["convX"'))
    with pytest.raises(InputError, match="'structure' does not have the edge w1 -> conv1"):
        apply_placement(read_placement(path), model)


# --- the command ----------------------------------------------------------------------------


@pytest.fixture
def placement_file(tmp_path: Path) -> Path:
    """The default ONNX Runtime placement of the first training, with ranges of its own."""
    rules, model = load_pack("onnxruntime"), loaded(SEED0)
    placement = default(model.graph, rules)
    ranges = {e.tensor: Range(-6.375, 6.375) for e in placement.edges}
    constants = model.graph.initializers
    ranges = {t: r for t, r in ranges.items() if t not in constants}
    file_of(placement, model.graph, tmp_path, "onnxruntime", ranges)
    return tmp_path / "placement.yaml"


def test_a_second_process_in_the_output_folder_is_refused(placer: Run, placement_file: Path):
    Path("out").mkdir()
    with locked(Path("out")):
        data = ("--data", DIGITS / "calibration.npz", "--no-cache")
        finished = placer("apply", placement_file, SEED0, *data, "-o", "out")
        assert [path.name for path in Path("out").iterdir()] == [LOCK_FILE]
    assert finished.code == 2
    assert f"out is in use by process {os.getpid()}" in finished.err


def scales_of(proto: ModelProto) -> set[float]:
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {
        float(values[node.input[1]].item())
        for node in proto.graph.node
        if node.op_type == "QuantizeLinear"
    }


def test_calibrated_on_data(placer: Run, placement_file: Path):
    data = DIGITS / "calibration.npz"
    finished = placer("apply", placement_file, SEED1, "--data", data, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    assert report["same_structure"] is True
    assert {found["by"] for found in report["found"]} == {"name"}
    assert report["ranges"]["calibrated"] is True
    assert report["ranges"]["sqnr"] > 15
    assert report == json.loads(Path("out/apply.json").read_text())
    written = onnx.load("out/optimized.onnx")
    image = np.load(data)["image"][:1]
    quantized, floats = (outputs(m, image=image)[0] for m in (written, loaded(SEED1).proto))
    assert np.argmax(quantized) == np.argmax(floats)
    assert len(scales_of(written)) > 10
    again = read_placement(Path("out/placement.yaml"))
    assert again.model == loaded(SEED1).fingerprint
    assert apply_placement(again, loaded(SEED0)).is_exact


def test_ranges_are_kept_without_data(placer: Run, placement_file: Path):
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    assert report["ranges"] == {"method": "kept", "calibrated": True, "sqnr": None}
    assert any("ranges are of the weights" in text for text in report["warnings"])
    (scale,) = scales_of(onnx.load("out/optimized.onnx"))
    assert scale == pytest.approx(12.75 / 255)
    groups = yaml.safe_load(Path("out/placement.yaml").read_text())["groups"]
    assert {tuple(group["range"]) for group in groups if "range" in group} == {(-6.375, 6.375)}


def test_the_result_is_compared_with_the_model(placer: Run, placement_file: Path):
    """Point 4 of the attacks: ranges that make another function of the model are refused."""
    finished = placer("apply", placement_file, SEED1, "--json", "-o", "good")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["sqnr"] > 3
    placement_file.write_text(placement_file.read_text().replace("6.375", "0.0001"))
    finished = placer("apply", placement_file, SEED1, "-o", "bad")
    assert finished.code == 2
    assert f"the outputs of {SEED1} would be others (" in finished.err
    assert "dB on random inputs); give --data to calibrate it" in finished.err
    assert not Path("bad").exists()


def test_half_precision_remainder(placer: Run, placement_file: Path):
    finished = placer("apply", placement_file, DYNAMO, "--base", "float16", "-o", "out")
    assert finished.code == 0, finished.err
    types = Counter(t.data_type for t in onnx.load("out/optimized.onnx").graph.initializer)
    assert types[onnx.TensorProto.FLOAT16] > types[onnx.TensorProto.FLOAT]


@pytest.mark.parametrize(
    ("pack", "kind"),
    [
        ("tensorrt", onnx.TensorProto.FLOAT16),
        ("openvino", onnx.TensorProto.FLOAT),  # It computes in the type that its plugin is told.
        ("not-installed", onnx.TensorProto.FLOAT),
    ],
)
def test_without_a_base_the_engine_of_the_pack_decides(
    placer: Run, tmp_path: Path, pack: str, kind: int
):
    model = loaded(SEED0)
    edge = next(e for e in default(model.graph, load_pack("tensorrt")).edges)
    only = Placement(frozenset({frozenset({edge})}))
    file_of(only, model.graph, tmp_path, "tensorrt", {edge.tensor: Range(-6.375, 6.375)})
    file = tmp_path / "placement.yaml"
    file.write_text(file.read_text().replace("pack: tensorrt ", f"pack: {pack} "))
    finished = placer("apply", file, SEED0, "-o", "out")
    assert finished.code == 0, finished.err
    kinds = {t.data_type for t in onnx.load("out/optimized.onnx").graph.initializer}
    halves = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    assert kinds & halves >= {kind}
    assert (onnx.TensorProto.FLOAT16 in kinds) == (kind == onnx.TensorProto.FLOAT16)


@pytest.mark.parametrize("base", ["float", "bfloat16"])
def test_the_base_precision_of_a_placement_is_kept(placer: Run, placement_file: Path, base: str):
    text = placement_file.read_text()
    placement_file.write_text(text.replace("groups:", f"base: {base}\ngroups:", 1))
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    properties = {e.key: e.value for e in onnx.load("out/optimized.onnx").metadata_props}
    assert properties["placer.base"] == base
    again = Path("out/placement.yaml")
    assert read_placement(again).base == base
    judged = load_placement(placement_file, loaded(SEED1).graph)
    assert properties["placer.placement"] == judged.id
    assert load_placement(again, loaded(SEED1).graph) == judged


@pytest.mark.parametrize(
    ("base", "named", "kinds"),
    [
        ("float", "float", {onnx.TensorProto.FLOAT}),
        ("bfloat16", "bfloat16", {onnx.TensorProto.FLOAT}),
        ("float16", None, {onnx.TensorProto.FLOAT16}),
    ],
)
def test_another_base_precision_takes_the_place_of_that_of_the_placement(
    placer: Run, placement_file: Path, base: str, named: str | None, kinds: set[int]
):
    text = placement_file.read_text()
    placement_file.write_text(text.replace("groups:", "base: bfloat16\ngroups:", 1))
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--base", base)
    assert finished.code == 0, finished.err
    proto = onnx.load("out/optimized.onnx")
    assert {e.key: e.value for e in proto.metadata_props}.get("placer.base") == named
    assert read_placement(Path("out/placement.yaml")).base == named
    weights = {t.data_type for t in proto.graph.initializer if len(t.dims) == 4}
    assert weights - {onnx.TensorProto.INT8} == kinds


def test_what_is_printed(placer: Run, placement_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    finished = placer("apply", placement_file, DYNAMO, "-o", "out")
    lines = [" ".join(line.replace("│", " ").split()) for line in finished.out.splitlines()]
    assert "edges found by structure 49" in lines
    assert "edges found by name 1" in lines  # The graph output.
    assert "of them in another operator 2" in lines
    assert (
        "- another operator: relu_12 -> node_mean[0] is ReduceMean, was GlobalAveragePool" in lines
    )
    assert lines[-1] == "wrote out"


def test_strict_refuses_and_writes_nothing(placer: Run, save: Save, tmp_path: Path):
    model = load_model(save(RESIDUAL))
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path)
    gone = "[tanh] r = Tanh (q)"
    text = RESIDUAL.replace("[conv2] r = Conv <pads = [1, 1, 1, 1]> (q, w2)", gone)
    other = save(text, "other.onnx")
    finished = placer("apply", tmp_path / "placement.yaml", other, "--strict", "-o", "out")
    assert finished.code == 2
    assert "2 edges of" in finished.err
    assert "q -> conv2[0]" in finished.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--ranges", "calibrated"), "calibrated ranges need data; give --data"),
        (
            ("--ranges", "kept", "--data", "x.npz"),
            "kept ranges use no data; leave out",
        ),
        (("--ranges", "other"), "unknown ranges 'other'; use one of: kept, calibrated"),
        (("--base", "int8"), "unknown base 'int8'"),
        (("--data", DIGITS / "calibration.npz", "--calibration", "x"), "unknown calibration 'x'"),
    ],
)
def test_wrong_flags(placer: Run, placement_file: Path, flags: tuple[object, ...], expected: str):
    finished = placer("apply", placement_file, SEED1, *flags)
    assert finished.code == 2
    assert expected in finished.err


def test_a_placement_without_ranges_needs_data(placer: Run, tmp_path: Path):
    rules, model = load_pack("onnxruntime"), loaded(SEED0)
    file_of(default(model.graph, rules), model.graph, tmp_path, "onnxruntime")
    finished = placer("apply", tmp_path / "placement.yaml", SEED1)
    assert finished.code == 2
    assert "has no range of tensor" in finished.err
    assert "give --data" in finished.err


def test_optimize_keeps_the_structure(placer: Run):
    finished = placer(
        *("optimize", SEED0, "--engine", "fusion-model", "--gpu", "a100", "--preset", "quick"),
        *("--budget", "2", "--gate", "sqnr>=5", "-o", "out", "--quiet"),
    )
    assert finished.code == 0, finished.err
    file = read_placement(Path("out/placement.yaml"))
    assert file.structure.vertices == structure_of(loaded(SEED0).graph).vertices
    applied = placer("apply", "out/placement.yaml", DYNAMO, "-o", "applied", "--strict")
    assert applied.code == 0, applied.err
