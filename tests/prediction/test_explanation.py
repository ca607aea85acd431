"""``placer explain``: decisions, the predicted plan, stray conversions and their remedies."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import yaml

from placer.explaining.api import explain as explain_file
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text, parse_model
from placer.model import load_model
from placer.prediction.explanation.conversion_text import conversion_text, removed_text
from placer.prediction.explanation.decision_tree import decision_tree
from placer.prediction.explanation.default_gains import OTHER, chosen_layout
from placer.prediction.explanation.explain import Explainer, Explanation, decision_costs
from placer.prediction.explanation.explanation_json import explanation_json
from placer.prediction.explanation.remedies import Remedy
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range
from placer.quantization.placement_file import load_placement, placement_text, read_placement
from placer.rules.matcher import Matches
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from tests.conftest import Finished

PACK = load_pack("tensorrt")
RESIDUAL = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[8,32,32,32] x) => (float[8,32,32,32] out)
    <float[32,32,3,3] w1 = {0.1}, float[32,32,3,3] w2 = {0.1}, float[32,32,3,3] w3 = {0.1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] r = Relu(c)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w2)
      [add] s = Add(d, r)
      [relu2] t = Relu(s)
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(t, w3)
    }
"""
CONVS = [
    *(Edge("x", "conv1", 0), Edge("w1", "conv1", 1)),
    *(Edge("r", "conv2", 0), Edge("w2", "conv2", 1)),
    *(Edge("t", "conv3", 0), Edge("w3", "conv3", 1)),
]
RESIDUAL_EDGE = Edge("r", "add", 1)


def explain(graph: Graph, placement: Placement, version: str = "10.3") -> Explanation:
    target = Target(version, "8.0", typing="strong")
    predictor = Predictor(graph, PACK.rules, target, "float16", "int8")
    roofline = Roofline(graph, load_gpu("a100"), load_layer_classes())
    return Explainer(Matches(graph), PACK.rules, target, predictor, roofline).explain(placement)


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


def test_the_command_explains_the_packs_default(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    finished = placer("explain", save(RESIDUAL), "--gpu", "l4", "--all")
    assert finished.code == 0, finished.err
    text = " ".join(finished.out.split())
    assert "the pack's default placement; estimates for l4" in text
    assert "conv-add-relu" in text
    assert "conv2+add+relu2" in text
    assert "matches that gave way" in text
    assert "est." in text


# A Sigmoid in integers would not pay for a conversion of what it writes; what it reads has a pair
# all the same, which ONNX Runtime's integer Conv needs.
GATED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,16,16] x) => (float[1,64,16,16] y) <float[64,64,3,3] w = {0.01}> {
  [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] b = Relu(a)
  [sigmoid] c = Sigmoid(b)
  [erf] y = Erf(c)
}
"""


def test_a_default_that_is_float_by_the_packs_times_says_so(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    finished = placer("explain", save(GATED), "--pack", "onnxruntime")
    assert finished.code == 0, finished.err
    text = finished.out[: finished.out.index("layers are predicted")]
    told = (
        "float by default: integers here are not expected to save more than their conversions cost"
    )
    words = " ".join(text.replace("│", " ").replace("└", " ").replace("─", " ").split())
    assert words.count(told) == 1
    assert "conv-act: 1 site" in words
    assert "integer: 1 site conv" in words
    assert "other" not in words


BRANCHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,64,64] x) => (float[1,4,64,64] y)
<float[32,3,3,3] w0 = {0.1}, float[32,32,1,1] w1 = {0.1}, float[32,32,3,3] w2 = {0.1},
 float[32,64,1,1] w3 = {0.1}, float[4,32,1,1] w4 = {0.1}> {
  [stem] a = Conv<pads = [1, 1, 1, 1]>(x, w0) [r0] b = Relu(a)
  [left] c = Conv(b, w1) [r1] d = Relu(c)
  [right] e = Conv<pads = [1, 1, 1, 1]>(b, w2) [r2] f = Relu(e)
  [cat] h = Concat<axis = 1>(d, f)
  [out] i = Conv(h, w3) [r3] j = Relu(i) [head] y = Conv(j, w4)
}
"""


@pytest.mark.parametrize(("pack", "is_told"), [("tensorrt", False), ("tensorrt-rtx", True)])
def test_layers_that_are_slower_in_integers_are_told(
    save: Callable[..., Path], placer: Callable[..., Finished], pack: str, is_told: bool
):
    """Few channels at batch 1: no pair is at fault, the INT8 kernels are slower."""
    finished = placer("explain", save(BRANCHES), "--gpu", "l4", "--pack", pack)
    assert finished.code == 0, finished.err
    assert ("by default nothing is quantized" in finished.out) == is_told


def test_decisions_are_a_tree_with_the_costliest_first(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save(RESIDUAL)
    model = load_model(path)
    explanation = explain(model.graph, Placement.of(CONVS))
    costs = decision_costs(explanation)
    assert [cost.decision for cost in costs] == list(explanation.decisions)
    computed = explanation.plan.of_kind("compute")
    assert sum(cost.us for cost in costs) == pytest.approx(sum(one.time_us for one in computed))
    lines = placer("explain", path, "--gpu", "l4").out.splitlines()
    assert lines[1] == "what was decided, the costliest first"
    rules = [line for line in lines if line[:4] in ("├── ", "└── ")]
    us = [float(line.partition("est. ")[2].split()[0]) for line in rules]
    assert len(us) > 1
    assert us == sorted(us, reverse=True)


def test_how_many_layers_compute_in_integers_is_told(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """OpenVINO issue 11699: is a ConvTranspose between pairs one of integers? ORT has none."""
    path = save("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,16,16,16] y)
        <float[16,16,2,2] w = {0.1}, float s = {0.1}, int8 z = {0}> {
          q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
          i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z)
          [up] y = ConvTranspose<strides = [2, 2]>(d, v)
        }
    """)
    told = "layers are predicted, 1 in int8; show them with --all"
    assert told in placer("explain", path, "--pack", "openvino").out
    told = "layers are predicted, none in integers; show them with --all"
    assert told in placer("explain", path, "--pack", "onnxruntime").out


def test_a_model_without_a_choice_and_operators_of_other_domains_are_said_to_be(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save("""
        <ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 2]>
        g (float[1,4] x) => (float[1,4] y) { y = ai.onnx.ml.Normalizer (x) }
    """)
    lines = placer("explain", path).out.splitlines()
    assert "nothing to decide: no rule of pack 'tensorrt' has a choice here" in lines
    assert "1 layer is predicted, none in integers; show them with --all" in lines
    foreign = (
        "TensorRT needs plugins for ai.onnx.ml.Normalizer, whose layers and times are not known"
    )
    assert foreign in lines
    assert foreign not in placer("explain", path, "--pack", "onnxruntime").out


def test_recurrent_nodes_are_said_to_be_unrolled_by_tensorrt_rtx(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[8,1,4] x, float[1,16,4] w, float[1,16,4] r) => (float[8,1,1,4] y) {
          y = LSTM<hidden_size = 4>(x, w, r)
        }
    """)
    said = "TensorRT-RTX unrolls LSTM into dozens of kernels that are not predicted: do not rely"
    assert said in placer("explain", path, "--pack", "tensorrt-rtx").out
    assert "unrolls" not in placer("explain", path).out


def test_ten_conversions_and_short_names_are_shown_and_all_with_all(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    numbers, name = range(14), "network_" + "block_" * 20 + "Conv2D"
    tensors = ", ".join(f"float[1,32,32,32] x{n}" for n in numbers)
    outputs = ", ".join(f"float[1,32,30,30] y{n}" for n in numbers)
    convs = "\n".join(f"[{name}{n}] y{n} = Conv(x{n}, w)" for n in numbers)
    path = save(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g ({tensors}) => ({outputs}) <float[32,32,3,3] w = {{0.1}}> {{ {convs} }}
    """)
    out = placer("explain", path, "--gpu", "l4").out
    everything = placer("explain", path, "--gpu", "l4", "--all").out
    listed, all_listed = (
        [line for line in text.splitlines() if line.startswith("- ")] for text in (out, everything)
    )
    assert len(all_listed) == 28
    assert listed[:10] == all_listed[:10]
    us = sum(float(line.partition("est. ")[2].split()[0]) for line in all_listed[10:])
    (more,) = listed[10:]
    found = re.fullmatch(r"- 18 more, est\. ([\d.]+) us; show them with --all", more)
    assert found
    assert float(found[1]) == pytest.approx(us, abs=18 * 0.05)  # Each is rounded.
    unfolded = "".join(re.sub("[│ ]", "", out).split())
    assert name[:34] + "..." in unfolded
    assert name not in unfolded
    assert name in "".join(re.sub("[│ ]", "", everything).split())


def test_the_same_as_a_page(save: Callable[..., Path], placer: Callable[..., Finished]):
    finished = placer("explain", save(RESIDUAL), "--gpu", "l4", "--html", "page.html")
    assert finished.code == 0, finished.err
    page = Path("page.html").read_text()
    assert "the pack&#39;s default placement; estimates for l4" in page
    rules = re.findall(r"<summary><b>(.*?)</b>: \d+ sites?, est. ([\d.]+) µs", page)
    assert len(rules) > 1
    assert [rule for rule, _ in rules] == [
        line.split()[1].rstrip(":")
        for line in finished.out.splitlines()
        if line[:4] in ("├── ", "└── ")
    ]
    costs = [float(us) for _, us in rules]
    assert costs == sorted(costs, reverse=True)
    assert "conv2+add+relu2" in page
    assert not re.search(r"(src|href)=.https?:", page)  # Nothing is loaded from elsewhere.


def test_an_engine_without_estimates_has_no_times(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save(RESIDUAL)
    finished = placer("explain", path, "--pack", "onnxruntime", "--all")
    assert finished.code == 0, finished.err
    assert "est." not in finished.out
    assert "base float, pack onnxruntime" in finished.out
    assert "no times are estimated for onnxruntime" in finished.out
    document = json.loads(placer("explain", path, "--pack", "onnxruntime", "--json").out)
    placer("explain", path, "--pack", "onnxruntime", "--html", "page.html", "--json")
    page = Path("page.html").read_text()
    assert "no times are estimated for onnxruntime" in page
    assert "est. µs" not in page
    assert "ESTIMATE" not in page
    times = [document[key] for key in ("gpu", "total_us", "float_us", "speedup")]
    assert times == [None] * 4
    assert all("time_us" not in layer for layer in document["plan"]["layers"])
    for words, expected in (
        (("--gpu", "l4"), "pack 'onnxruntime' is for engine onnxruntime"),
        (("--improved", "better.yaml"), "so no remedy is known; leave out --improved"),
    ):
        refused = placer("explain", path, "--pack", "onnxruntime", *words)
        assert refused.code == 2
        assert expected in refused.err


def test_json_plan_and_improved_placement(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    model = save(RESIDUAL)
    graph = load_model(model).graph
    scheme = PACK.manifest.scheme
    tensor = min(edge.tensor for edge in CONVS if edge.tensor not in graph.initializers)
    text = placement_text(
        Placement.of(CONVS),
        {tensor: Range(-1, 1)},
        scheme,
        model="m",
        pack="p",
        calibrated=False,
        pinned={tensor: "range"},
    )
    Path("mine.yaml").write_text(text)
    files = ("--placement", "mine.yaml", "--plan", "plan.json", "--improved", "better.yaml")
    finished = placer("explain", model, *files, "--json")
    assert finished.code == 0, finished.err
    document = json.loads(finished.out)
    assert document["estimate"] is True
    assert document["gpu"] == "a100-pcie-80gb"
    assert document["improved"]["total_us"] < document["total_us"]
    assert RESIDUAL_EDGE in load_placement(Path("better.yaml"), graph).edges
    assert f"{tensor}: range -1 to 1" in read_placement(Path("better.yaml")).pinned
    again = placer("explain", model, "--placement", "better.yaml", "--json")
    assert json.loads(again.out)["total_us"] == document["improved"]["total_us"]
    assert placer("plan", "diff", "plan.json", "plan.json", "--strict").code == 0


def test_a_model_with_pairs_explains_its_own(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    model = load_model(save(RESIDUAL))
    placement = Placement.of(CONVS)
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    onnx.save(Inserter(model, PACK.manifest.scheme).insert(placement, ranges), "pairs.onnx")
    document = json.loads(placer("explain", "pairs.onnx", "--json").out)
    assert document["total_us"] == pytest.approx(explain(model.graph, placement).total_us)
    refused = placer("explain", "pairs.onnx", "--placement", "pairs.onnx")
    assert refused.code == 2
    assert "pairs.onnx has Q/DQ pairs already; give the float model or no placement" in refused.err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": "other"}, "field 'format'"),
        ({"groups": [{"edges": [{"tensor": "x", "node": "conv9", "input": 0}]}]}, "node 'conv9'"),
        ({"groups": [{"edges": [{"tensor": "x", "node": "conv1"}]}]}, "field 'groups.0.edges.0."),
        ({"colour": "red"}, "field 'colour'"),
        ({"groups": [{"range": [2, -1], "edges": []}]}, "'groups.0.range': begins at 2 and ends"),
        ({"groups": [{"range": [float("nan"), 1], "edges": []}]}, "should be a finite number"),
        ({"groups": [{"range": [True, 2], "edges": []}]}, "write a number"),
        ({"groups": {}}, "field 'groups': give a list"),
        ({"groups": [1]}, "field 'groups.0': give a mapping of fields"),
    ],
)
def test_a_wrong_placement_file_is_named(
    save: Callable[..., Path],
    placer: Callable[..., Finished],
    change: dict[str, object],
    expected: str,
):
    scheme = PACK.manifest.scheme
    text = placement_text(EMPTY, {}, scheme, model="m", pack="p", calibrated=False)
    Path("mine.yaml").write_text(yaml.safe_dump({**yaml.safe_load(text), **change}))
    finished = placer("explain", save(RESIDUAL), "--placement", "mine.yaml")
    assert finished.code == 2
    assert "mine.yaml" in finished.err
    assert expected in finished.err
    assert finished.err.count("\n") == 1


def test_wrong_flags_are_one_sentence(save: Callable[..., Path], placer: Callable[..., Finished]):
    model = save(RESIDUAL)
    assert "unknown base 'int4'" in placer("explain", model, "--base", "int4").err
    assert placer("explain", model, "--gpu", "gtx-9").code == 2
    assert placer("explain", "nowhere.onnx").code == 2
    assert placer("explain", model, "--placement", "nowhere.yaml").code == 2


def test_scales_in_constant_nodes_are_compared_by_value(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """PyTorch's exporter gives each pair a Constant of its own, also for one and the same scale."""
    path = save("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[1,32,16,16] x) => (float[1,32,16,16] a, float[1,32,8,8] b)
        <float[32,32,1,1] w = {0.1}, int8 zero = {0}> {
          s1 = Constant<value = float {0.5}> ()
          q1 = QuantizeLinear(x, s1, zero)
          d1 = DequantizeLinear(q1, s1, zero)
          s2 = Constant<value = float {0.5}> ()
          q2 = QuantizeLinear(x, s2, zero)
          d2 = DequantizeLinear(q2, s2, zero)
          wq = QuantizeLinear(w, s1, zero)
          wd = DequantizeLinear(wq, s1, zero)
          [conv1] a = Conv(d1, wd)
          [conv2] b = Conv<strides = [2, 2]>(d2, wd)
        }
    """)
    document = json.loads(placer("explain", path, "--json").out)
    layers = [layer["name"] for layer in document["plan"]["layers"]]
    assert layers == ["quantize x", "conv1", "conv2", "reformat a", "reformat b"]


def test_predicted_against_built_per_site(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """An engine that runs the Add apart from its Conv, in the layout of TensorRT's inspector."""
    formats = {"i": "Row major Int8 format", "f": "Row major linear FP16 format"}

    def layer(name: str, types: str, kind: str = "Conv") -> dict[str, object]:
        first, second = (formats[t] for t in types)
        ports = [[{"Name": n, "Format/Datatype": f}] for n, f in (("a", first), ("b", second))]
        return {"Name": name, "LayerType": kind, "Inputs": ports[0], "Outputs": ports[1]}

    layers = [
        layer("conv1 + relu1", "ii"),
        layer("conv2", "ii"),
        layer("PWN(add, relu2)", "ii", "PointWise"),
        layer("conv3", "if"),
    ]
    Path("built.json").write_text(json.dumps({"Layers": layers, "Bindings": []}))
    times = [{"count": 1}, {"name": "PWN(add, relu2)", "medianMs": 0.004}]
    Path("times.json").write_text(json.dumps(times))
    flags = ("--actual", "built.json", "--profile", "times.json")
    document = json.loads(placer("explain", save(RESIDUAL), *flags, "--json").out)
    outcomes = {entry["site"]: entry for entry in document["actual"]}
    wrong = [site for site, entry in outcomes.items() if not entry["agrees"]]
    assert wrong == ["conv-add-relu:add"]
    assert outcomes["conv-add-relu:add"]["built"] == ["PWN(add, relu2)", "conv2"]
    assert outcomes["conv-add-relu:add"]["measured_us"] == [4.0, None]
    other = {"Layers": [layer("fc", "ii")], "Bindings": []}
    Path("other.json").write_text(json.dumps(other))
    refused = placer("explain", save(RESIDUAL), "--actual", "other.json")
    assert refused.code == 2
    assert "other.json names no node of" in refused.err
    text = placer("explain", save(RESIDUAL), *flags).out
    assert f"{len(outcomes) - 1} of {len(outcomes)} sites as predicted" in " ".join(text.split())


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


OWN_PAIRS = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[1,32,16,16] x) => (float[1,32,16,16] a, float[1,32,8,8] b)
    <float[32,32,1,1] w = {{0.1}}, float s = {{0.5}}, float t = {{0.6}}, int8 zero = {{0}}> {{
      [q0] q0 = QuantizeLinear(x, s, zero)
      [d0] d0 = DequantizeLinear(q0, s, zero)
      [wq] wq = QuantizeLinear(w, s, zero)
      [wd] wd = DequantizeLinear(wq, s, zero)
      [conv0] c = Conv(d0, {weight})
      [q1] q1 = QuantizeLinear(c, s, zero)
      [d1] d1 = DequantizeLinear(q1, s, zero)
      [q2] q2 = QuantizeLinear(c, t, zero)
      [d2] d2 = DequantizeLinear(q2, t, zero)
      [conv1] a = Conv(d1, wd)
      [conv2] b = Conv<strides = [2, 2]>(d2, wd)
    }}"""


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


def test_two_scales_of_one_tensor_are_two_conversions(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """Quantizers of their own in front of every Conv, as pytorch-quantization trains them."""
    said = placer("explain", save(OWN_PAIRS.format(weight="wd"))).out
    told = "the readers of 'c' have different scales, so its producer writes float (2 layers)"
    assert told in flat(said)
    assert "remove it: give 'c' one scale for all that read it" in flat(said)


AROUND_TANH = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[1,64,56,56] x) => (float[1,64,56,56] y)
    <float[64,64,1,1] w = {0.1}, float s = {0.5}, int8 zero = {0}> {
      [q0] q0 = QuantizeLinear(x, s, zero)
      [d0] d0 = DequantizeLinear(q0, s, zero)
      [wq] wq = QuantizeLinear(w, s, zero)
      [wd] wd = DequantizeLinear(wq, s, zero)
      [conv] c = Conv(d0, wd)
      [q1] q1 = QuantizeLinear(c, s, zero)
      [d1] d1 = DequantizeLinear(q1, s, zero)
      [relu] r = Relu(d1)
      [tanh] t = Tanh(r)
      [q2] q2 = QuantizeLinear(t, s, zero)
      [d2] d2 = DequantizeLinear(q2, s, zero)
      [softmax] y = Softmax(d2)
    }"""


def test_nodes_of_the_pairs_to_take_out_are_named(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save(AROUND_TANH)
    said = flat(placer("explain", path, "--all").out)
    assert "split by pairs: take out 'q1' and 'd1' (c -> relu[0])" in said
    assert "remove it: take out 'q2' and 'd2' (t -> softmax[0]); saves est. " in said
    found = json.loads(placer("explain", path, "--json").out)
    remedies = filter(None, (conversion["remedy"] for conversion in found["conversions"]))
    freed = [edge for remedy in remedies for edge in remedy["leave_float"]]
    assert {"tensor": "t", "node": "softmax", "input": 0, "pair": ["q2", "d2"]} in freed


def test_a_pair_that_others_read_is_not_taken_out(save: Callable[..., Path]):
    pairs = explain_file(save(OWN_PAIRS.format(weight="wd"))).explanation.pairs
    first, second = (next(e for e in pairs if e.node == n) for n in ("conv1", "conv2"))
    of_weight = next(e for e in pairs if e.node == "conv1" and e.input_index)
    assert list(removed_text([first, second], pairs)) == [
        "take out 'q1' and 'd1' (c -> conv1[0]), 'q2' and 'd2' (c -> conv2[0])"
    ]
    assert list(removed_text([of_weight], pairs)) == ["leave w -> conv1[1] in float"]


def test_a_weight_without_a_pair_is_named(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """tensorflow-onnx issue 1972: folding takes the pairs of weights away."""
    said = placer("explain", save(OWN_PAIRS.format(weight="w"))).out
    assert "'x' is read in float by 'conv0', whose operand 'w' has no pair" in flat(said)


ONE_OPERAND = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[8,64,64] x, float[8,64,64] k) => (float[8,64,64] y)
    <float[64,64] w = {0.1}, float s = {0.5}, int8 zero = {0}> {
      [q0] q0 = QuantizeLinear(x, s, zero)
      [d0] d0 = DequantizeLinear(q0, s, zero)
      [wq] wq = QuantizeLinear(w, s, zero)
      [wd] wd = DequantizeLinear(wq, s, zero)
      [linear] v = MatMul(d0, wd)
      [q1] q1 = QuantizeLinear(v, s, zero)
      [d1] d1 = DequantizeLinear(q1, s, zero)
      [act] a = Softmax(k)
      [product] y = MatMul(a, d1)
    }"""


def test_a_missing_pair_is_named_before_the_advice_to_take_the_other_out(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """Model-Optimizer issue 1289: pairs on all operands of attention but behind its Softmax."""
    said = flat(placer("explain", save(ONE_OPERAND)).out)
    assert "'v' is read in float by 'product', whose operand 'a' has no pair" in said
    assert "remove it: quantize a -> product[0], which " in said
    assert " estimated to be faster: take out 'q1' and 'd1' (v -> product[1]); saves est. " in said


def test_pairs_on_the_weights_of_convs_alone_gain_nothing(save: Callable[..., Path]):
    """TensorRT issue 2131: float input, weights stored as INT8."""
    one_pair = OWN_PAIRS.format(weight="wd").replace("Conv(d0, wd)", "Conv(x, wd)")
    (said,) = explain_file(save(one_pair)).unpredicted
    assert said == (
        "pairs on weights alone leave 'conv0' in float and gain no speed: quantize what these "
        "Convs read, too"
    )


def test_what_is_moved_between_two_scales_is_told_to_get_one(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """A shifted window (roll): slices of what a product wrote are joined before the next one."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,8,64] x) => (float[1,8,8,64] y)
    <float[64,64] w = {0.1}, float[64,64] v = {0.1}, float s = {0.5}, float t = {0.25},
     int8 z = {0}, int64[1] zero = {0}, int64[1] half = {4}, int64[1] end = {8},
     int64[1] axis = {2}> {
      xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)
      wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z) m = MatMul(xd, wd)
      mq = QuantizeLinear(m, s, z) md = DequantizeLinear(mq, s, z)
      a = Slice(md, half, end, axis) b = Slice(md, zero, half, axis)
      [roll] c = Concat<axis = 2>(a, b)
      cq = QuantizeLinear(c, t, z) cd = DequantizeLinear(cq, t, z)
      vq = QuantizeLinear(v, s, z) vd = DequantizeLinear(vq, s, z) y = MatMul(cd, vd)
    }""")
    said = flat(placer("explain", path).out)
    assert "'a' is read in another scale by 'roll'" in said
    assert "remove it: give 'c', 'm', 'x' one scale; saves est. " in said


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


def flat(printed: str) -> str:
    return " ".join(printed.split())
