"""What ``placer explain`` prints, and the files that it writes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import yaml

from placer.model import load_model
from placer.prediction.explanation.decision_tree import without_choice
from placer.prediction.explanation.explain import decision_costs
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range
from placer.quantization.placement_file import load_placement, placement_text, read_placement
from tests.conftest import Finished
from tests.prediction.explained import CONVS, OWN_PAIRS, PACK, RESIDUAL, RESIDUAL_EDGE, explain


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


# The first sum is read by a node that has no integers, so the default quantizes less, not nothing.
PARTLY = """
<ir_version: 9, opset_import: ["": 17]>
g (float[8,128,28,28] x) => (float[8,128,28,28] y)
<float[128,128,3,3] w1 = {0.1}, float[128,128,3,3] w2 = {0.1},
 float[128,128,3,3] w3 = {0.1}, float[128,128,3,3] w4 = {0.1}> {
  [sin1] a = Sin(x) [conv1] b = Conv<pads = [1, 1, 1, 1]>(a, w1) [relu1] c = Relu(b)
  [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w2) [add1] s = Add(d, x)
  [sin2] e = Sin(s) [conv3] f = Conv<pads = [1, 1, 1, 1]>(e, w3) [relu2] h = Relu(f)
  [conv4] i = Conv<pads = [1, 1, 1, 1]>(h, w4) [add2] t = Add(i, s)
  [sin3] y = Sin(t)
}
"""


def test_a_default_that_quantizes_less_than_the_rules_is_not_told_as_float(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    finished = placer("explain", save(PARTLY), "--gpu", "a100", "--pack", "tensorrt")
    assert finished.code == 0, finished.err
    assert "int8: 2 sites" in finished.out
    assert "by default: integers" not in " ".join(finished.out.split())


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


ATTENTION = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,16,32] q, float[1,2,32,16] k, float[1,2,16,32] v) => (float[1,2,16,32] z)
<float number = {0.4}> {
  [early] a = Mul(q, number) [other] b = Mul(k, number)
  [scores] s = MatMul(a, b) [softmax] p = Softmax(s) [mix] y = MatMul(p, v) [last] z = Tanh(y)
}
"""


def test_a_fused_layer_counts_for_the_site_that_has_a_choice(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """Not for the scaling of the queries before, and what belongs to no such site is told."""
    path = save(ATTENTION)
    explanation = explain(load_model(path).graph, Placement.of([]))
    chosen = [
        cost.us for cost in decision_costs(explanation) if len(cost.decision.site.layouts) > 1
    ]
    times = {layer.nodes: layer.time_us for layer in explanation.plan.of_kind("compute")}
    assert chosen == [times["early", "other", "scores", "softmax", "mix"]]
    left = f"where no rule has a choice: 1 layer, est. {times['last',]:.1f} us ("
    assert without_choice(explanation, timed=True).startswith(left)
    assert "where no rule has a choice: 1 layer, est. " in placer("explain", path).out
    assert not without_choice(explanation, timed=False)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [((), True), (("--gpu", "l4"), False), (("--pack", "onnxruntime"), False)],
)
def test_that_nothing_was_chosen_is_told(
    options: tuple[str, ...],
    is_told: bool,
    save: Callable[..., Path],
    placer: Callable[..., Finished],
):
    out = placer("explain", save(ATTENTION), *options).out
    assert ("for TensorRT on a100, as neither GPU nor engine was chosen" in out) == is_told


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


def test_nodes_that_run_nothing_are_no_layers(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,32,4,4] x) => (float[1,32] y)
        <float[32,32,4,4] w = {0.1}, int64[2] s = {1, 32}> { c = Conv(x, w) y = Reshape(c, s) }
    """)
    told = "layers are predicted, 1 in int8, and 1 no-op; show them with --all"
    assert told in placer("explain", path).out


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
        ({"groups": [{"range": [float("nan"), 1], "edges": []}]}, "give a finite number"),
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
    assert "give the plan by --actual" in placer("explain", model, "--profile", "times.json").err


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


def test_two_scales_of_one_tensor_are_two_conversions(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    """Quantizers of their own in front of every Conv, as pytorch-quantization trains them."""
    said = placer("explain", save(OWN_PAIRS.format(weight="wd"))).out
    told = "the readers of 'c' have different scales, so its producer writes float (2 layers)"
    assert told in flat(said)
    assert "remove it: give 'c' one scale for all that read it" in flat(said)


def test_what_saves_most_of_a_file_with_pairs_is_told_first(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save(AROUND_TANH)
    lines = placer("explain", path, "--gpu", "l4").out.splitlines()
    assert lines[1].startswith("estimated: ")
    start = lines.index("what to change first, by estimates (tensor -> node[input]):")
    told = "- dequantize t: 't' is read in float by 'softmax'; take out 'q2' and 'd2' (t -> "
    assert re.match(rf"{re.escape(told)}softmax\[0\]\); saves est\. ", lines[start + 1])
    assert lines.index("what was decided, the costliest first") > start
    change = json.loads(placer("explain", path, "--gpu", "l4", "--json").out)["change_first"][0]
    assert change["cause"] == "dequantize t: 't' is read in float by 'softmax'"
    edge = {"tensor": "t", "node": "softmax", "input": 0}
    assert change["leave_float"] == [edge | {"pair": ["q2", "d2"]}]
    assert change["take_out"] == ["q2", "d2"]
    assert f"saves est. {change['saves_us']:.1f} us ({change['share']:.0%})" in lines[start + 1]
    refused = AROUND_TANH.replace("int8 zero = {0}", "int8 zero = {1}")
    for other in map(save, (RESIDUAL, refused)):
        assert "what to change first" not in placer("explain", other, "--gpu", "l4").out


def test_many_pairs_of_one_change_are_counted_and_named_with_all(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    blocks = "".join(
        f"""
        [conv{i}] c{i} = Conv(r{i}, wd)
        [q{i}] q{i} = QuantizeLinear(c{i}, s, zero)
        [d{i}] d{i} = DequantizeLinear(q{i}, s, zero)
        [relu{i}] r{i + 1} = Relu(d{i})"""
        for i in range(5)
    )
    path = save(f"""
    <ir_version: 8, opset_import: ["": 13]>
    g (float[1,64,56,56] r0) => (float[1,64,56,56] r5)
    <float[64,64,1,1] w = {{0.1}}, float s = {{0.5}}, int8 zero = {{0}}> {{
        wq = QuantizeLinear(w, s, zero) wd = DequantizeLinear(wq, s, zero) {blocks}
    }}""")
    asked = ("explain", path, "--gpu", "l4")
    title = "what to change first, by estimates (tensor -> node[input]):\n"
    first, named = (
        placer(*asked, *flags).out.partition(title)[2].partition("\n")[0]
        for flags in ((), ("--all",))
    )
    change = json.loads(placer(*asked, "--json").out)["change_first"][0]
    because = "other, where rule conv-bn-act has int8 by default"
    saves = f"saves est. {change['saves_us']:.1f} us ({change['share']:.0%})"
    what = "quantize 5 edges and take out 5 pairs (show them with --all)"
    assert first == f"- 'conv0', 'conv1', 'conv2' and 2 more: {because}; {what}; {saves}"
    assert change["cause"] == f"'conv0', 'conv1', 'conv2', 'conv3', 'conv4': {because}"
    edges = ", ".join(f"r{i} -> conv{i}[0]" for i in range(5))
    pairs = ", ".join(f"'q{i}' and 'd{i}' (c{i} -> relu{i}[0])" for i in range(5))
    assert named == f"- {change['cause']}; quantize {edges} and take out {pairs}; {saves}"
    assert [edge["node"] for edge in change["quantize"]] == [f"conv{i}" for i in range(5)]
    assert [edge["node"] for edge in change["leave_float"]] == [f"relu{i}" for i in range(5)]
    assert change["take_out"] == [name for i in range(5) for name in (f"q{i}", f"d{i}")]


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


def flat(printed: str) -> str:
    return " ".join(printed.split())


def test_a_copy_into_a_joined_tensor_is_told_with_who_else_reads_it(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,3,256,256] x) => (float[1,64,256,256] y)
    <float[64,3,3,3] a = {0.1}, float[64,64,3,3] b = {0.1}, float[64,64,2,2] u = {0.1},
     float[64,128,3,3] e = {0.1}> {
      [c1] t1 = Conv<pads = [1,1,1,1]>(x, a) [r1] f1 = Relu(t1)
      [c2] t2 = Conv<pads = [1,1,1,1]>(f1, b) [r2] f2 = Relu(t2)
      [pool] q = MaxPool<kernel_shape = [2,2], strides = [2,2]>(f2)
      [c3] t3 = Conv<pads = [1,1,1,1]>(q, b) [r3] f3 = Relu(t3)
      [up] t4 = ConvTranspose<strides = [2,2]>(f3, u) [r4] f4 = Relu(t4)
      [cat] k = Concat<axis = 1>(f2, f4) [c5] t5 = Conv<pads = [1,1,1,1]>(k, e) [r5] y = Relu(t5)
    }""")
    told = "'f2' is copied into the joined tensor of 'cat', as it is also read by 'pool'"
    assert told in flat(placer("explain", path).out)
