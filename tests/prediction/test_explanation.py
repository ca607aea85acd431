"""``placer explain``: decisions, the predicted plan, stray conversions and their remedies."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from placer.explaining.api import explain as explain_file
from placer.graph import Edge
from placer.graph.text import graph_of_text, parse_model
from placer.model import load_model
from placer.prediction.explanation.conversion_text import conversion_text, removed_text
from placer.prediction.explanation.decision_tree import decision_tree
from placer.prediction.explanation.default_gains import OTHER, chosen_layout
from placer.prediction.explanation.explanation_json import explanation_json
from placer.prediction.explanation.remedies import Remedy
from placer.quantization import EMPTY, Placement, Range
from placer.quantization.placement_file import load_placement, placement_text
from placer.rules.sites import find_sites, place
from tests.prediction.explained import CONVS, OWN_PAIRS, PACK, RESIDUAL, RESIDUAL_EDGE, explain


def test_what_the_estimate_cannot_tell_from_the_float_model_is_a_tie():
    found = explain(graph_of_text(RESIDUAL), Placement.of(CONVS))
    shares = {0.8: False, 0.9: True, 1.0: False, 1.1: True, 1.2: False}
    for share, is_tie in shares.items():
        assert replace(found, float_us=share * found.total_us).is_tie == is_tie


def test_a_float_residual_leaves_quantize_layers_and_the_remedy_names_its_edge(
    save: Callable[..., Path],
):
    graph = load_model(save(RESIDUAL)).graph
    found = explain(graph, Placement.of(CONVS))
    conversions = {c.name: c for c in found.conversions}
    assert set(conversions) == {"quantize x", "quantize r", "quantize t", "reformat out"}
    assert conversions["quantize x"].because == (
        "the graph input is float: a standing cost of quantizing the first layer"
    )
    assert conversions["quantize r"].because == (
        "'r' is read in float by 'add', so its producer writes float"
    )
    remedy = conversions["quantize r"].remedy
    assert isinstance(remedy, Remedy)
    assert (remedy.change.added, remedy.change.removed) == ((RESIDUAL_EDGE,), ())
    assert remedy.saves_us > 0
    assert explain(graph, remedy.placement).total_us == pytest.approx(
        found.total_us - remedy.saves_us
    )
    assert found.improved_us < found.total_us
    assert RESIDUAL_EDGE in found.improved.edges
    assert conversions["quantize t"].remedy or conversions["quantize t"].goes_with_others
    assert "quantize r" not in {c.name for c in explain(graph, found.improved).conversions}


def test_conversions_are_sorted_by_cost_and_add_up(save: Callable[..., Path]):
    graph = load_model(save(RESIDUAL)).graph
    found = explain(graph, Placement.of(CONVS))
    times = [conversion.us for conversion in found.conversions]
    assert times == sorted(times, reverse=True)
    assert sum(layer.time_us or 0 for layer in found.plan.layers) == pytest.approx(found.total_us)
    assert found.plan.estimated
    assert found.float_us == explain(graph, EMPTY).total_us


def test_the_layout_at_each_site_is_read_from_the_placement(save: Callable[..., Path]):
    graph = load_model(save(RESIDUAL)).graph
    sites = find_sites(graph, PACK.rules)
    (site,) = (s for s in sites if s.match.rule.id == "conv-add-relu")
    assert chosen_layout(site, place(sites, {})) == "int8-residual"
    for layout in site.layouts:
        assert chosen_layout(site, place((site,), {site.name: layout})) == layout
    assert chosen_layout(site, Placement.of([Edge("w2", "conv2", 1)])) == OTHER


def test_pairs_that_split_a_kernel_are_named_with_what_the_default_saves(
    save: Callable[..., Path],
):
    graph = load_model(save(RESIDUAL)).graph
    inside = Edge("c", "relu1", 0)
    both = [RESIDUAL_EDGE, Edge("d", "add", 0)]
    found = explain(graph, Placement.of([*CONVS, *both, inside]), "8.6")
    default = explain(graph, place(find_sites(graph, PACK.rules), {}), "8.6")
    branches = {branch.rule.id: branch.layouts for branch in decision_tree(found)}
    (conv,), (add,) = branches["conv-mixed"], branches["conv-add-relu"]
    assert conv.shown == "int8-all-readers, with pairs inside (default: int8-all-readers)"
    assert conv.notes[0] == "split by pairs: leave c -> relu1[0] in float"
    assert add.shown == "both-quantized (default: int8-residual)"
    assert min(conv.saves_us, add.saves_us) > 0
    told = f"the default here saves est. {add.saves_us:.1f} us: leave d -> add[0] in float"
    assert add.notes == (told,)
    without = explain(graph, Placement.of([*CONVS, *both]), "8.6")
    assert found.total_us - without.total_us == pytest.approx(conv.saves_us)
    assert found.default_us == default.total_us < found.improved_us + 0.1
    assert not {inside, Edge("d", "add", 0)} & found.improved.edges
    assert not any(layout.notes for branch in decision_tree(default) for layout in branch.layouts)


def test_pairs_before_an_activation_only_round_from_tensorrt_10_on(save: Callable[..., Path]):
    graph = load_model(save(RESIDUAL)).graph
    found = explain(graph, Placement.of([*CONVS, RESIDUAL_EDGE, Edge("c", "relu1", 0)]), "10.3")
    assert ("conv1", "relu1") in [layer.nodes for layer in found.plan.layers]
    branches = {branch.rule.id: branch.layouts for branch in decision_tree(found)}
    (conv,) = branches["conv-mixed"]
    assert conv.notes == ("pairs that only round: leave c -> relu1[0] in float",)
    assert conv.saves_us == 0
    decisions = json.loads(json.dumps(explanation_json(found, timed=True)))["decisions"]
    (decision,) = (one for one in decisions if one["rule"] == "conv-mixed")
    assert [edge["tensor"] for edge in decision["rounded_by"]] == ["c"]
    assert decision["split_by"] == []


def test_overlaps_say_why_a_match_gave_way(save: Callable[..., Path]):
    graph = load_model(save(RESIDUAL)).graph
    lost = {(o.lost.rule.id, o.won.rule.id, o.because) for o in explain(graph, EMPTY).overlaps}
    assert ("weighted-input", "conv-add-relu", "priority 30 against 0") in lost


def test_a_placement_file_comes_back(save: Callable[..., Path], tmp_path: Path):
    graph = load_model(save(RESIDUAL)).graph
    placement = Placement.of([*CONVS, RESIDUAL_EDGE], [("x", "t")])
    path = tmp_path / "placement.yaml"
    scheme = PACK.manifest.scheme
    ranges = {"x": Range(-1.0, 1.0)}
    text = placement_text(placement, ranges, scheme, model="m", pack="p", calibrated=True)
    path.write_text(text)
    assert load_placement(path, graph) == placement


def test_a_layer_that_clears_memory_is_no_conversion(save: Callable[..., Path]):
    path = save("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,65536] x) => (float[1,1] y) {
          [relu] r = Relu(x)
          [sum] y = ReduceMean<axes = [1]>(r)
        }
    """)
    found = explain_file(path, pack="tensorrt-rtx").explanation
    assert found.plan.layers[0].name == "clear x/counts"
    assert [conversion.name for conversion in found.conversions] == ["reformat y"]


ATTENTION = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,64,64] q, float[1,4,64,64] k, float[1,4,64,64] v) => (float[1,4,64,64] y) {
      [qk] a = MatMul(q, k)
      [soft] b = Softmax<axis = -1>(a)
      [pv] y = MatMul(b, v)
    }
"""


def test_a_conv_whose_weight_is_computed_is_said_to_stay_float(save: Callable[..., Path]):
    """TensorRT issue 2428."""
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x, float[16,16,3,3] w) => (float[1,16,6,6] y) { [conv] y = Conv(x, w) }
    """
    graph = load_model(save(text)).graph
    found = explain(graph, Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)]))
    reasons = {c.because for c in found.conversions if c.kind == "dequantize"}
    told = "is read in float by 'conv', whose operand 'w' is not constant"
    assert reasons == {f"'x' {told}", f"'w' {told}"}


def test_pairs_are_named_that_a_layout_lacks(save: Callable[..., Path]):
    """Attention without a pair behind its Softmax (pytorch/TensorRT issue 4200)."""
    graph = load_model(save(ATTENTION)).graph
    read = [Edge("q", "qk", 0), Edge("k", "qk", 1), Edge("v", "pv", 1)]
    found = explain(graph, Placement.of(read))
    ((branch,),) = (branch.layouts for branch in decision_tree(found))
    assert branch.notes[0] == "for int8 it lacks pairs on b -> pv[0]"
    ((all_there,),) = (
        branch.layouts
        for branch in decision_tree(explain(graph, Placement.of([*read, Edge("b", "pv", 0)])))
    )
    assert not any("lacks" in note for note in all_there.notes)


def test_a_pair_that_others_read_is_not_taken_out(save: Callable[..., Path]):
    pairs = explain_file(save(OWN_PAIRS.format(weight="wd"))).explanation.pairs
    first, second = (next(e for e in pairs if e.node == n) for n in ("conv1", "conv2"))
    of_weight = next(e for e in pairs if e.node == "conv1" and e.input_index)
    assert list(removed_text([first, second], pairs)) == [
        "take out 'q1' and 'd1' (c -> conv1[0]), 'q2' and 'd2' (c -> conv2[0])"
    ]
    assert list(removed_text([of_weight], pairs)) == ["leave w -> conv1[1] in float"]


def test_pairs_on_the_weights_of_convs_alone_gain_nothing(save: Callable[..., Path]):
    """TensorRT issue 2131: float input, weights stored as INT8."""
    one_pair = OWN_PAIRS.format(weight="wd").replace("Conv(d0, wd)", "Conv(x, wd)")
    (said,) = explain_file(save(one_pair)).unpredicted
    assert said == (
        "pairs on weights alone leave 'conv0' in float and gain no speed: quantize what these "
        "Convs read, too"
    )


def test_weights_of_4_bits_are_of_no_use_to_a_conv(tmp_path: Path):
    """TensorRT issue 4833: FP4 and INT4 weights of a Conv are taken, and it computes in float."""
    path = tmp_path / "model.onnx"
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,2,8,8] y)
    <int4[2,4,1,1] w = {33, 67, 101, 23}, float[2,2,1,1] s = {0.1, 0.1, 0.1, 0.1}> {
      v = DequantizeLinear<axis = 1, block_size = 2>(w, s) [conv] y = Conv(x, v)
    }"""
    onnx.save(parse_model(text), path)
    (said,) = explain_file(path).unpredicted
    assert said.startswith("pairs on weights alone leave 'conv' in float")
    assert said.endswith("and the weights to 8 bits: no Conv multiplies by 4 bits")


def test_a_conv_whose_pair_is_before_a_transpose_reads_integers(save: Callable[..., Path]):
    """Convs of TensorFlow's layout: the pair stands before what turns the map."""
    pairs = OWN_PAIRS.format(weight="wd")
    turned = pairs.replace("[conv0]", "[turn] turned = Transpose<perm = [0, 1, 3, 2]>(d0) [conv0]")
    turned = turned.replace("Conv(d0, wd)", "Conv(turned, wd)")
    assert explain_file(save(turned)).unpredicted == ()


SPLIT = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,32,32,32] x) => (float[1,48,32,32] y)
    <float[32,32,1,1] w = {0.1}, float[16,16,3,3] v = {0.1}, float[48,32,1,1] u = {0.1},
     float s = {0.5}, float r = {0.25}, int8 z = {0}, int64[2] half = {16, 16}> {
      q0 = QuantizeLinear(x, s, z) d0 = DequantizeLinear(q0, s, z)
      wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z)
      [conv] c = Conv(d0, wd)
      [act] e = Relu(c)
      [split] a, b = Split<axis = 1>(e, half)
      q1 = QuantizeLinear(b, r, z) d1 = DequantizeLinear(q1, r, z)
      vq = QuantizeLinear(v, s, z) vd = DequantizeLinear(vq, s, z)
      [branch] f = Conv<pads = [1, 1, 1, 1]>(d1, vd)
      [join] j = Concat<axis = 1>(a, f)
      q2 = QuantizeLinear(j, s, z) d2 = DequantizeLinear(q2, s, z)
      uq = QuantizeLinear(u, s, z) ud = DequantizeLinear(uq, s, z)
      [last] y = Conv(d2, ud)
    }"""


CROPPED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,58,58] x) => (float[1,64,56,56] y)
<float[64,64,3,3] w = {0.1}, float s = {0.5}, int8 z = {0}, int64[2] first = {1, 1},
 int64[2] end = {57, 57}, int64[2] axes = {2, 3}> {
  q0 = QuantizeLinear(x, s, z) d0 = DequantizeLinear(q0, s, z)
  wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z)
  [before] c = Conv<pads = [1, 1, 1, 1]>(d0, wd) [act] a = Relu(c)
  q1 = QuantizeLinear(a, s, z) d1 = DequantizeLinear(q1, s, z)
  [conv] v = Conv(d1, wd)
  [crop] r = Slice(d1, first, end, axes)
  [add] t = Add(v, r) [sum] u = Relu(t)
  q2 = QuantizeLinear(u, s, z) d2 = DequantizeLinear(q2, s, z)
  [last] y = Conv<pads = [1, 1, 1, 1]>(d2, wd)
}"""


def test_a_residual_that_a_pair_moves_to_is_one_of_integers(save: Callable[..., Path]):
    found = explain_file(save(CROPPED)).explanation
    (add,) = [d for d in found.decisions if d.site.match.rule.id == "conv-add-relu"]
    assert add.layout == add.default == "int8-residual"


def test_halves_of_unequal_scales_are_told_with_the_default_that_gives_them_one(
    save: Callable[..., Path],
):
    """ShuffleNet; TensorRT issue 4467: a YOLO11 with a pair before each Conv alone."""
    found = explain_file(save(SPLIT)).explanation
    quantized = {c.tensor: c for c in found.conversions if c.kind == "quantize"}
    for half in ("a", "b"):
        assert quantized[half].default_of == ("concat", "shared-scale")
        assert conversion_text(quantized[half], timed=False) == (
            f"quantize {half}: outputs of 'split' (Split) have different scales, so it copies "
            "floats",
            "the default of rule concat, shared-scale, removes it",
        )
    (concat,) = (branch for branch in decision_tree(found) if branch.rule.id == "concat")
    change = "quantize a -> join[0], f -> join[1] and give 'a', 'b', 'f', 'j' one scale"
    assert concat.layouts[0].notes[-1].endswith(f" us: {change}")


@pytest.mark.parametrize("pack", ["onnxruntime", "openvino"])
def test_scales_are_no_reason_where_no_quantize_moves_before_a_split(
    save: Callable[..., Path], pack: str
):
    found = explain_file(save(SPLIT), pack=pack).explanation
    said = {c.because for c in found.conversions if c.kind == "quantize" and c.tensor == "b"}
    assert said == {"'split' (Split) computes in float"}
