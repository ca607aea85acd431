"""``placer apply``: a placement on a retrained, re-exported or changed model."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from placer.apply.transfer import Transferred, transfer_placement
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.matching import correspond
from placer.graph.structure import parse_structure, structure_of
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.quantization.placement_file import read_placement
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET
from tests.apply.placements import (
    DYNAMO,
    RESIDUAL,
    RESIDUAL_PLACEMENT,
    SEED0,
    SEED1,
    Save,
    default,
    file_of,
    loaded,
    partners,
)

PACKS = ("tensorrt", "onnxruntime")

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


# --- the same network -----------------------------------------------------------------------


@pytest.mark.parametrize("pack", PACKS)
def test_retrained_with_another_seed(tmp_path: Path, pack: str):
    rules, first, second = load_pack(pack), loaded(SEED0), loaded(SEED1)
    weights = [m.array("head.weight") for m in (first, second)]
    assert not np.allclose(*weights)
    placement = default(first.graph, rules)
    applied = transfer_placement(file_of(placement, first.graph, tmp_path, pack), second)
    assert applied.is_exact
    assert all(found.by_name for found in applied.found)
    assert applied.placement == placement == default(second.graph, rules)
    expected = layers(plan(first.graph, placement, rules))
    assert layers(plan(second.graph, applied.placement, rules)) == expected


def test_the_other_exporter_of_torch(tmp_path: Path):
    rules, first, second = load_pack("tensorrt"), loaded(SEED0), loaded(DYNAMO)
    placement = default(first.graph, rules)
    file = file_of(placement, first.graph, tmp_path)
    applied = transfer_placement(file, second)
    assert [f.edge for f in applied.found if f.by_name] == []
    assert (applied.lost, applied.broken, applied.new_nodes) == ((), (), ())
    assert applied.placement == default(second.graph, rules)
    names = partners(correspond(structure_of(first.graph), structure_of(second.graph)))
    expected = layers(plan(first.graph, placement, rules), names)
    assert layers(plan(second.graph, applied.placement, rules)) == expected


def test_what_the_other_exporter_writes_otherwise_is_told(tmp_path: Path):
    """ONNX Runtime quantizes Flatten, not Reshape; means over maps are poolings in both."""
    rules = load_pack("onnxruntime")
    first, second = loaded(SEED0), loaded(DYNAMO)
    placement = default(first.graph, rules)
    applied = transfer_placement(file_of(placement, first.graph, tmp_path, "onnxruntime"), second)
    assert applied.lost == ()
    assert applied.is_exact is False
    changed = {str(f.edge): f.operators for f in applied.found if f.operators is not None}
    assert changed == {
        "mean -> node_view[0]": ("Flatten", "Reshape"),
    }


def test_a_careless_exporter(save: Save, tmp_path: Path):
    """Identity, Constant, BatchNormalization, defaults written out, Add's inputs swapped."""
    rules = load_pack("tensorrt")
    first, second = (load_model(save(text)) for text in (RESIDUAL, RESIDUAL_AGAIN))
    placement = default(first.graph, rules)
    applied = transfer_placement(file_of(placement, first.graph, tmp_path), second)
    assert (applied.lost, applied.new_nodes) == ((), ())
    names = partners(correspond(structure_of(first.graph), structure_of(second.graph)))
    assert layers(plan(second.graph, applied.placement, rules)) == layers(
        plan(first.graph, placement, rules), names
    )
    residual = transfer_placement(file_of(RESIDUAL_PLACEMENT, first.graph, tmp_path), second)
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
    applied = transfer_placement(file_of(RESIDUAL_PLACEMENT, first.graph, tmp_path), second)
    assert applied.lost == ()
    operators = {f.source.node: f.operators for f in applied.found}
    assert operators["head"] == ("Gemm", "MatMul")
    assert len(applied.new_nodes) == 1
    assert applied.new_nodes[0].startswith("Add")


# --- another network ------------------------------------------------------------------------


def applied_to(text: str, save: Save, folder: Path) -> Transferred:
    first, second = load_model(save(RESIDUAL)), load_model(save(text, "other.onnx"))
    return transfer_placement(file_of(RESIDUAL_PLACEMENT, first.graph, folder), second)


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
    applied = transfer_placement(read_placement(path), model)
    assert (applied.placement, applied.is_exact) == (RESIDUAL_PLACEMENT, None)
    other = load_model(save(RESIDUAL.replace("[conv2]", "[conv2b]"), "other.onnx"))
    applied = transfer_placement(read_placement(path), other)
    assert {x.edge.node for x in applied.lost} == {"conv2"}
    assert applied.lost[0].candidates[0] == "conv2b"


def test_a_damaged_structure_is_named(save: Save, tmp_path: Path):
    model = load_model(save(RESIDUAL))
    text = structure_of(model.graph).text()
    assert parse_structure(text, "f").vertices == structure_of(model.graph).vertices
    with pytest.raises(InputError, match=r"f: structure, line 2 is not a vertex"):
        parse_structure(text.replace('["conv1"', '["conv1', 1), "f: structure")
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path)
    path = tmp_path / "placement.yaml"
    path.write_text(path.read_text().replace('["conv1"', '["convX"'))
    with pytest.raises(InputError, match="'structure' does not have the edge w1 -> conv1"):
        transfer_placement(read_placement(path), model)


TWO_OUTPUTS = """
<ir_version: 8, opset_import: ["" : 17]>
heads (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] boxes, float[1, 4, 8, 8] scores)
<float[4, 4, 3, 3] w1 = {0.1}, float[4, 4, 3, 3] w2 = {0.1}>
{
  [conv1] boxes = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [conv2] scores = Conv <pads = [1, 1, 1, 1]> (boxes, w2)
}
"""


def test_every_output_keeps_its_pair(save: Save, tmp_path: Path):
    outputs = [Edge("boxes", "", 0), Edge("scores", "", 1)]
    first = load_model(save(TWO_OUTPUTS))
    file = file_of(Placement.of(outputs), first.graph, tmp_path)
    renamed = TWO_OUTPUTS.replace("boxes", "b").replace("scores", "s")
    found = transfer_placement(file, load_model(save(renamed, "other.onnx")))
    assert found.placement == Placement.of([Edge("b", "", 0), Edge("s", "", 1)])
