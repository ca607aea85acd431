"""Layers of placements in which some sites are FP8 beside INT8, and what sites may choose."""

from dataclasses import replace

import pytest

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.explanation.conversion_text import conversion_text
from placer.prediction.explanation.default_gains import chosen_layout
from placer.prediction.explanation.explain import StandaloneConversion
from placer.prediction.explanation.remedies import Remedy, with_edges, with_layout, without_edges
from placer.prediction.layers.predictor import Predictor
from placer.prediction.select import make_predictor
from placer.prediction.times.layer_classes import load_layer_classes
from placer.quantization import EMPTY, FLOAT8, Placement
from placer.rules.lint import lint
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place, rule_layout
from placer.rules.target import Target
from placer.search.proposals.surrogate import seed_proposals
from placer.search.space import build_space
from tests.prediction.small_rules import CONCAT, rule

PACK = load_pack("tensorrt").with_scheme("int8-and-fp8")
TARGET = Target(typing="strong")
CHAIN = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,16,8,8] x) => (float[1,16,4,4] y)
<float[16,16,3,3] v = {1}, float[16,16,3,3] w = {1}, float[16,16,1,1] u = {1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, v)
  [relu1] b = Relu(a)
  [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
  [conv2] c = Conv<pads = [1, 1, 1, 1]>(p, w)
  [relu2] d = Relu(c)
  [conv3] y = Conv(d, u)
}
"""
GRAPH = graph_of_text(CHAIN)
SITES = find_sites(GRAPH, PACK.rules, TARGET, PACK.manifest.scheme.formats)
BY_NODE = {node.name: site for site in SITES for node in site.match.nodes.values()}


def in_fp8(*nodes: str) -> Placement:
    """The default placement with the sites of ``nodes`` in FP8."""
    sites = [BY_NODE[name] for name in nodes]
    return place(SITES, {site.name: f"{site.default} in {FLOAT8}" for site in sites})


def layers(placement: Placement, pack: str = "tensorrt") -> list[str]:
    own = load_pack(pack).with_scheme("int8-and-fp8")
    predictor = make_predictor(GRAPH, own, TARGET, "float16")
    found = predictor.predict(placement).plan.layers
    return [
        f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"
        for layer in found
        if layer.kind != "no-op"
    ]


def test_each_layout_that_quantizes_is_offered_in_each_format():
    site = BY_NODE["conv2"]
    own = [name for name in site.layouts if rule_layout(name) == name]
    assert set(site.layouts) == {*own} | {f"{n} in {FLOAT8}" for n in own if n != "float"}
    assert site.default == find_sites(GRAPH, PACK.rules, TARGET)[-2].default
    assert place(SITES, {}) == place(find_sites(GRAPH, PACK.rules, TARGET), {})


def test_layers_read_and_write_the_format_of_their_sites():
    assert layers(in_fp8("conv1", "conv2", "conv3")) == [
        "quantize x: float -> float8e4m3fn",
        "conv1+relu1: float8e4m3fn -> float8e4m3fn",
        "pool: float8e4m3fn -> float8e4m3fn",
        "conv2+relu2: float8e4m3fn -> float8e4m3fn",
        "conv3: float8e4m3fn -> float16",
        "reformat y: float16 -> float",
    ]


def test_between_formats_a_layer_of_its_own_quantizes():
    """No kernel of TensorRT is known to read the one and write the other."""
    assert layers(in_fp8("conv2")) == [
        "quantize x: float -> int8",
        "conv1+relu1: int8 -> float16",
        "quantize b: float16 -> float8e4m3fn",
        "pool: float8e4m3fn -> float8e4m3fn",
        "conv2+relu2: float8e4m3fn -> float16",
        "quantize d: float16 -> int8",
        "conv3: int8 -> float16",
        "reformat y: float16 -> float",
    ]


def test_generated_kernels_quantize_to_the_format_of_what_reads_them():
    """As TensorRT-RTX 1.7.1 built Convs of the one format behind Convs of the other.

    No pool of it reads FP8 (tests/prediction/kernels/test_float8.py).
    """
    assert layers(in_fp8("conv2"), "tensorrt-rtx")[1:-1] == [
        "conv1: int8 -> float",
        "generated relu1: float -> float16",
        "pool: float16 -> float16",
        "quantize p: float16 -> float8e4m3fn",
        "conv2: float8e4m3fn -> float",
        "generated relu2: float -> int8",
        "conv3: int8 -> float",
    ]


def test_operands_of_two_formats_are_read_in_float():
    x, v = Edge("x", "conv1", 0), Edge("v", "conv1", 1)
    split = Placement.of([x, v], formats={v: FLOAT8})
    assert not any("conv1" in line and "int8" in line for line in layers(split))


RULE = """
id: own-formats
why: a sentence for the test
source: test
pattern: {op: {op: Conv, inputs: [x, w], output: y}}
layouts:
  both: {quantize: [op.x, op.w], default: true}
  one: {quantize: [op.x, op.w], keep_float: ["y.*"], formats: []}
  float: {formats: []}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[1,3,8,8] x) => (float[1,3,6,6] y) <float[3,3,3,3] w = {1}> { [c] y = Conv(x, w) }
    matches: [{op: c}]
    quantized: {both: ["x->c[0]", "w->c[1]"], one: ["x->c[0]", "w->c[1]"]}
"""


def test_a_rule_says_which_formats_a_layout_has(tmp_path):
    rule = parse_text(RULE, "rule.yaml", Rule)
    (site, *_) = find_sites(GRAPH, [rule], formats=[FLOAT8])
    assert list(site.layouts) == ["both", "one", "float", f"both in {FLOAT8}"]
    (tmp_path / "pack.yaml").write_text(
        "name: own\nversion: 1.0.0\nengine: other\nengine_versions: '>=1'\nlicence: MIT\n"
        "maintainers: [me]\nscheme: {activation: int8, symmetric: true, bias: float}\n"
    )
    (tmp_path / "own-formats.yaml").write_text(RULE)
    assert (
        "own-formats: layout 'float' has formats of its own for nothing: it quantizes nothing"
        in lint(load_pack(str(tmp_path)))
    )


def test_the_search_begins_with_the_default_in_each_format_too():
    space = build_space(GRAPH, SITES)
    kinds = {p.kind: space.placement(p.choices) for p in seed_proposals(space)}
    default, other = kinds["default"], kinds[f"default in {FLOAT8}"]
    assert (default.formats, other.edges) == ({}, default.edges)
    assert set(other.formats) == other.edges
    mixed = in_fp8("conv2")
    assert space.placement(space.nearest(mixed)) == mixed


def test_explanations_name_layouts_in_their_format():
    mixed = in_fp8("conv2")
    told = {node: chosen_layout(site, mixed) for node, site in BY_NODE.items()}
    assert told["conv2"] == f"{BY_NODE['conv2'].default} in {FLOAT8}"
    assert told["conv3"] == BY_NODE["conv3"].default


def test_remedies_keep_formats():
    mixed, site = in_fp8("conv2"), BY_NODE["conv2"]
    assert with_layout(place(SITES, {}), site, site.layouts[f"{site.default} in {FLOAT8}"]) == mixed
    edge = next(e for e in mixed.formats if e.tensor == "p")
    assert without_edges(mixed, [edge]).formats == {e: FLOAT8 for e in mixed.formats if e != edge}
    assert with_edges(mixed, [edge, Edge("d", "conv3", 0)]).formats == dict(mixed.formats)


def test_float8_that_was_not_measured_is_estimated_as_int8():
    classes = load_layer_classes()
    for name in ("conv", "conv to half", "matmul"):
        assert classes.find(name, FLOAT8) == classes.find(name, "int8")


@pytest.mark.parametrize("scheme", ["fp8", "int8-and-fp8"])
def test_engines_without_the_format_refuse_it(scheme: str):
    with pytest.raises(InputError, match=f"unknown scheme '{scheme}'"):
        load_pack("openvino").with_scheme(scheme)


def test_one_format_throughout_is_the_scheme_of_it_alone():
    float8 = {site.name: f"{site.default} in {FLOAT8}" for site in SITES}
    whole = place(SITES, {s.name: float8[s.name] for s in SITES if float8[s.name] in s.layouts})
    alone = load_pack("tensorrt").with_scheme("fp8")
    predictor = make_predictor(GRAPH, alone, TARGET, "float16")
    assert isinstance(predictor, Predictor)
    assert layers(whole) == [
        f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"
        for layer in predictor.predict(place(SITES, {})).plan.layers
        if layer.kind != "no-op"
    ]


def test_a_remedy_says_which_format_it_changes():
    plain, mixed = place(SITES, {}), in_fp8("conv2")
    conversion = StandaloneConversion("quantize p", "quantize", "p", 1.0, "why", None)

    def told(before: Placement, after: Placement) -> str:
        remedy = Remedy(before, before.change_to(after), 1.0)
        return conversion_text(replace(conversion, remedy=remedy), timed=True)[1]

    edges = "p -> conv2[0], w -> conv2[1]"
    assert told(plain, mixed).startswith(f"remove it: quantize {edges} to {FLOAT8}; ")
    assert told(mixed, plain).startswith(f"remove it: quantize {edges} to int8; ")
    assert told(EMPTY, in_fp8("conv1", "conv2", "conv3")).count(f" to {FLOAT8};") == 1


def test_a_remedy_says_which_tensors_get_one_scale():
    before = Placement.of([Edge("x", "conv1", 0)])
    conversion = StandaloneConversion("quantize p", "quantize", "p", 1.0, "why", None)
    pairs = [Edge("x", "conv1", 0), Edge("p", "conv2", 0)]
    told = [
        conversion_text(
            replace(conversion, remedy=Remedy(before, before.change_to(after), 1.0)), timed=True
        )[1]
        for after in (Placement.of(pairs), Placement.of(pairs, [("x", "p")]))
    ]
    assert told == [
        "remove it: quantize p -> conv2[0]; saves est. 1.0 us",
        "remove it: quantize p -> conv2[0] and give 'p', 'x' one scale; saves est. 1.0 us",
    ]


def test_the_third_constant_of_a_concat_is_no_bias():
    """Products of integers add none that is stored in another format than the scheme's."""
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 19]>
    g (float[1,4] x, float[1,4] v) => (float[1,12] y) <float[1,4] c = {1, 2, 3, 4}> {
      [join] y = Concat<axis = 1>(x, v, c)
    }
    """)
    edges = graph.edges_into(graph.by_name["join"])
    placement = Placement.of(edges, [("x", "v", "c")], dict.fromkeys(edges, FLOAT8))
    predictor = Predictor(graph, [rule(CONCAT)], TARGET, "float16", FLOAT8)
    (layer,) = predictor.predict(placement).plan.of_kind("compute")
    assert layer.input_types == (FLOAT8, FLOAT8)


FP8_LACKS = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,16,32,32] x) => (float[1,16,22,22] y)
<float[16,16,7,7] u = {1}, float[16,1,3,3] v = {1}, float[16,16,3,3] w = {1}> {
  [wide] a = Conv(x, u)
  [depthwise] b = Conv<group = 16>(a, v)
  [dense] y = Conv(b, w)
}
"""


@pytest.mark.parametrize(
    ("pack", "scheme", "quantized"),
    [
        ("tensorrt", None, {"wide", "depthwise", "dense"}),
        ("tensorrt", "fp8", {"dense"}),
        ("tensorrt", "int8-and-fp8", {"wide", "depthwise", "dense"}),
        ("tensorrt-rtx", "fp8", {"depthwise", "dense"}),
    ],
)
def test_fp8_takes_the_convs_that_have_kernels(pack, scheme, quantized):
    """Those of groups and of windows above 32 places stay float; whatever INT8 has, it keeps."""
    loaded = load_pack(pack)
    loaded = loaded.with_scheme(scheme) if scheme else loaded
    sites = find_sites(graph_of_text(FP8_LACKS), loaded.rules, loaded.target(TARGET))
    assert {edge.node for edge in place(sites, {}).edges} == quantized


@pytest.mark.parametrize(
    ("pack", "offered"), [("tensorrt", {"dense"}), ("tensorrt-rtx", {"depthwise", "dense"})]
)
def test_beside_int8_fp8_is_offered_where_it_is_in_a_scheme_of_its_own(pack, offered):
    own = load_pack(pack).with_scheme("int8-and-fp8")
    formats = own.manifest.scheme.formats
    sites = find_sites(graph_of_text(FP8_LACKS), own.rules, own.target(TARGET), formats)
    assert {site.match.anchor.name for site in sites if site.formats_vary} == offered
