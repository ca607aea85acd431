"""Which sites stay float since integers would not pay for their conversions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, product

import pytest

from placer.common.processor import PROCESSORS
from placer.graph import Graph
from placer.graph.text import graph_of_text
from placer.prediction.defaults_by_estimates import with_defaults_on_device
from placer.rules.behaviour import Behaviour
from placer.rules.condition import Condition
from placer.rules.defaults_by_gains import defaults_by_gains, sites_with_defaults
from placer.rules.gains import Conversion, Gain, Gains, Sum
from placer.rules.matcher import Matches
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import Site, find_sites, place
from placer.rules.target import ANY_TARGET, Target

RULES = load_pack("onnxruntime").rules
CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] out, float[1,16,16,16] end)
<float[16,16,3,3] w = {1}, float[16,16,1,1] v = {1}> {
  [wide1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [act1] b = Sigmoid(a)
  [sum1] c = Add(b, a)
  [wide2] d = Conv<pads = [1, 1, 1, 1]>(c, w)
  [erf1] e = Erf(d)
  [thin1] f = Conv(e, v)
  [erf2] out = Erf(f)
  [gate1] end = Mul(e, x)
}
"""


def gains(each: dict[str, float], conversion: float) -> Gains:
    nodes = [Gain(op=[op], each=us) for op, us in each.items()]
    return Gains(
        quantize=Conversion(each=conversion), dequantize=Conversion(each=conversion), nodes=nodes
    )


def integers(graph: Graph, given: Gains | None, rules: Sequence[Rule] = RULES) -> set[str]:
    """The anchors of sites whose default quantizes."""
    sites = defaults_by_gains(Matches(graph), find_sites(graph, rules), rules, given)
    return {s.match.anchor.name for s in sites if s.layouts[s.default].quantize}


def test_without_times_the_default_is_what_the_rules_say():
    graph = graph_of_text(CHAIN)
    every = {"wide1", "act1", "sum1", "wide2", "thin1", "gate1"}
    assert integers(graph, None) == every


def test_a_region_pays_for_its_conversions_together():
    """Neither the Sigmoid nor the first sum saves anything, but floats there cost conversions."""
    graph = graph_of_text(CHAIN)
    saved = {"Conv": 8.0, "Sigmoid": -3.0, "Add": -1.0, "Mul": -1.0}
    assert integers(graph, gains(saved, 5)) == {"wide1", "act1", "sum1", "wide2"}
    assert integers(graph, gains(saved, 1)) == {"wide1", "wide2", "thin1"}
    assert integers(graph, gains(saved, 20)) == set()
    saved = {**saved, "Conv": 12.0, "Sigmoid": -30.0}
    assert integers(graph, gains(saved, 5)) == {"wide1", "sum1", "wide2", "thin1"}


@pytest.mark.parametrize("conversion", [0.5, 2.0, 6.0])
def test_no_other_choice_saves_more(conversion: float):
    graph = graph_of_text(CHAIN)
    given = gains({"Conv": 4.0, "Sigmoid": -2.5, "Add": -1.5, "Mul": -1.5}, conversion)
    sites = find_sites(graph, RULES)
    names = [site.match.anchor.name for site in sites]
    best = max(
        _saved({*compress(names, choice)}, sites, graph, given)
        for choice in product((False, True), repeat=len(names))
    )
    assert _saved(integers(graph, given), sites, graph, given) == best


def _saved(chosen: set[str], sites: Sequence[Site], graph: Graph, given: Gains) -> float:
    """What integers at ``chosen`` save, less conversions, counted tensor by tensor."""
    owner = {n.name: s.match.anchor.name for s in sites for n in s.match.nodes.values()}
    total = sum(
        given.saved_us(s.match.anchor, graph) for s in sites if s.match.anchor.name in chosen
    )
    for tensor in ("x", "a", "b", "c", "d", "e", "f", "out", "end"):
        node = graph.producer.get(tensor)
        written = node is not None and owner.get(node.name) in chosen
        read = [owner.get(edge.node) in chosen for edge in graph.edges_of(tensor)]
        if written:
            total -= given.dequantize.takes_us(tensor, graph) * read.count(False)
        elif any(read):
            total -= given.quantize.takes_us(tensor, graph)
    return total


def test_what_a_node_saves_is_told_by_its_operator_groups_and_sizes():
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x, float[4,32] z)
          => (float[1,8,8,8] a, float[1,16,8,8] b, float[4,8] c, float[1,8,6,6] d,
              float[1,4,16,16] e, float[32,8] f)
        <float[8,16,1,1] w = {1}, float[16,1,3,3] v = {1}, float[8,32] u = {1},
         float[8,16,3,3] t = {1}, float[16,4,2,2] s = {1}, float[4,8] r = {1}> {
          [up] e = ConvTranspose<strides = [2, 2]>(x, s)
          [conv] a = Conv(x, w)
          [deep] b = Conv<group = 16, pads = [1, 1, 1, 1]>(x, v)
          [wide] d = Conv(x, t)
          [product] c = Gemm<transB = 1>(z, u)
          [turned] f = Gemm<transA = 1>(z, r)
        }
    """)
    given = Gains(
        quantize=Conversion(each=1, elements=2, maps=4),
        dequantize=Conversion(),
        nodes=[
            Gain(op=["Conv"], groups="depthwise", each=-3),
            Gain(op=["Conv"], each=1, elements=10, products=1000, weights=10_000, windows=-1),
            Gain(op=["Gemm"], products=1000, weights=1000),
            Gain(op=["ConvTranspose"], products=1000),
        ],
    )
    saved = {name: given.saved_us(node, graph) for name, node in graph.by_name.items()}
    conv = 1 + 10 * 1.024 + 1000 * 8 * 64 * 16 / 1e6 + 10_000 * 128 / 1e6
    wide = 1 + 10 * 1.024 + 1000 * 288 * 144 / 1e6 + 10_000 * 1152 / 1e6 - 9 * 36 / 1e3
    product = 1.024 + 0.256
    turned = 1000 * 32 * 8 * 4 / 1e6 + 1000 * 32 / 1e6
    up = 1000 * 1024 * 16 / 1e6
    assert saved == pytest.approx(
        {"conv": conv, "deep": -3, "wide": wide, "product": product, "turned": turned, "up": up}
    )
    assert given.quantize.takes_us("x", graph) == pytest.approx(1 + 2 * 1.024 + 4)
    assert given.quantize.takes_us("z", graph) == pytest.approx(1 + 2 * 0.128)


def test_a_conv_of_several_groups_gathers_pixels_for_each_unless_it_is_depthwise():
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,4,4] x) => (float[1,8,4,4] a, float[1,16,4,4] b)
        <float[8,1,3,3] w = {1}, float[16,1,3,3] v = {1}> {
          [deep] a = Conv<group = 8, pads = [1, 1, 1, 1]>(x, w)
          [wide] b = Conv<group = 8, pads = [1, 1, 1, 1]>(x, v)
        }
    """)
    given = Gains(
        quantize=Conversion(), dequantize=Conversion(), nodes=[Gain(op=["Conv"], windows=-1000)]
    )
    saved = {name: given.saved_us(node, graph) for name, node in graph.by_name.items()}
    assert saved == pytest.approx({"deep": -144, "wide": -8 * 144})


GELU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] out)
<float[16,16,3,3] w = {1}, float root = {1.4142135}, float one = {1}, float half = {0.5}> {
  [wide] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [div] d = Div(a, root)
  [erf] e = Erf(d)
  [add] f = Add(e, one)
  [mul] m = Mul(a, f)
  [end] out = Mul(m, half)
}
"""


@pytest.mark.parametrize(("saved", "kept"), [(0.0, {"wide"}), (6.0, {"wide"}), (8.0, set())])
def test_integers_in_front_of_a_layer_of_several_nodes_cost_what_it_saves(
    saved: float, kept: set[str]
):
    """The Conv saves 10 us, of which a Q before it and two DQs behind it take 3."""
    given = gains({"Conv": 10.0}, 1).model_copy(update={"fused": [Gain(op=["Gelu"], each=saved)]})
    assert integers(graph_of_text(GELU), given) == kept


SWISH = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] out)
<float[16,16,3,3] w = {1}> {
  [wide] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [swish] b = HardSwish(a)
  [erf] out = Erf(b)
}
"""


@pytest.mark.parametrize(("taken", "kept"), [(0.0, {"wide"}), (7.0, {"wide"}), (9.0, set())])
def test_integers_leave_alone_what_a_float_layer_takes_along(taken: float, kept: set[str]):
    """The Conv saves 10 us, of which a Q before it and a DQ behind it take 2."""
    given = gains({"Conv": 10.0}, 1).model_copy(
        update={"alone": [Gain(op=["HardSwish"], each=taken)]}
    )
    assert integers(graph_of_text(SWISH), given) == kept


def test_only_what_the_engine_version_takes_along_is_left_alone():
    graph, alone = graph_of_text(SWISH), [Gain(op=["HardSwish"], each=9.0)]
    given = gains({"Conv": 10.0}, 1).model_copy(update={"alone": alone})
    for version, kept in (("1.29.0", "integer"), ("1.30.0", "float")):
        target = Target(engine_version=version)
        sites = find_sites(graph, RULES, target)
        (site,) = (
            s
            for s in defaults_by_gains(Matches(graph), sites, RULES, given, target)
            if s.match.anchor.name == "wide"
        )
        assert site.default == kept


def test_defaults_ask_for_the_engine_version_however_they_are_made():
    graph, pack = graph_of_text(SWISH), load_pack("onnxruntime")
    given = gains({"Conv": 10.0}, 1).model_copy(
        update={"alone": [Gain(op=["HardSwish"], each=9.0)]}
    )
    behaviour = pack.manifest.behaviour.model_copy(update={"gains": given})
    pack = replace(pack, manifest=pack.manifest.model_copy(update={"behaviour": behaviour}))
    for version, kept in (("1.29.0", "integer"), ("1.30.0", "float")):
        target = Target(engine_version=version)
        sites = find_sites(graph, pack.rules, pack.target(target))
        decided = with_defaults_on_device(Matches(graph), sites, pack, target, "float", None)
        for made in (decided, sites_with_defaults(graph, pack, target)):
            assert [s.default for s in made if s.match.anchor.name == "wide"] == [kept]


def test_maps_are_moved_in_memory_by_their_elements():
    graph = graph_of_text(SWISH)
    conversion = Conversion(each=1, elements=0.5, maps=2, map_elements=0.25)
    assert conversion.takes_us("a", graph) == 1 + 2 + 0.75 * 4.096
    assert conversion.takes_us("x", graph) == 1 + 2 + 0.5 * 4.096


POOLED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,8,8] out)
<float[16,16,3,3] w = {1}, float[16,16,1,1] v = {1}> {
  [wide] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [pool] b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)
  [thin] c = Conv(b, v)
  [erf] out = Erf(c)
}
"""


@pytest.mark.parametrize(("lost", "kept"), [(0.0, {"thin"}), (-9.0, set()), (-2.0, {"thin"})])
def test_q_moves_before_a_pool_that_a_float_node_writes(lost: float, kept: set[str]):
    """A Conv that loses time in integers may still be better than such a pool."""
    graph = graph_of_text(POOLED)
    given = gains({"Conv": 1.0}, 1)
    nodes = [Gain(op=["Conv"], each=10, windows=-10)]  # 16 x 16 x 9 pixels: 23 us.
    given = given.model_copy(update={"nodes": nodes})
    late = given.model_copy(update={"behind_floats": [Gain(op=["MaxPool"], each=lost)]})
    assert integers(graph, late) - {"pool"} == kept
    dear = given.model_copy(update={"behind_floats": [Gain(op=["MaxPool"], each=-30)]})
    nodes = [Gain(op=["Conv"], each=20, windows=-10)]
    assert integers(graph, dear.model_copy(update={"nodes": nodes})) == {"wide", "pool", "thin"}


@pytest.mark.parametrize(
    ("dtype", "pack", "is_integer"),
    [
        ("float", "onnxruntime", True),
        ("float16", "onnxruntime", False),
        ("bfloat16", "onnxruntime", False),
        ("float16", "openvino", True),
    ],
)
def test_half_precision_gains_nothing_where_no_kernel_of_integers_reads_it(
    dtype: str, pack: str, *, is_integer: bool
):
    weights = ", ".join(["1"] * 64 * 64)
    graph = graph_of_text(f"""
        <ir_version: 10, opset_import: ["": 22]>
        g ({dtype}[512,64] x) => ({dtype}[512,64] out) <{dtype}[64,64] w = {{{weights}}}> {{
          [product] a = MatMul(x, w)
          [last] out = Tanh(a)
        }}
    """)
    defaults = {s.match.anchor.name: s.default for s in sites_with_defaults(graph, load_pack(pack))}
    assert (defaults["product"] != "float") == is_integer


def test_a_node_without_inputs_writes_floats():
    """Such as RandomNormal, or a Constant in the body of a Loop."""
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,1,1] w = {1}> {
          [noise] a = RandomNormal<shape = [1,16,8,8]>()
          [conv] b = Conv(a, w)
          [sum] out = Add(b, x)
        }
    """)
    assert integers(graph, gains({"Conv": 10.0}, 1)) == {"conv"}


CONVERTING = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] out, float[1,16,16,16] end)
<float[16,16,3,3] w = {{1}}, float[16,16,1,1] v = {{1}}, float[16] s = {{1}}> {{
  [erf1] a = Erf(x)
  [middle] b = {}
  [thin] c = Conv(b, v)
  [erf2] out = Erf(c)
  [erf3] end = Erf({})
}}
"""
WIDE, NORM = "Conv<pads = [1, 1, 1, 1]>(a, w)", "LayerNormalization(a, s, s)"


@pytest.mark.parametrize(
    ("middle", "read", "saved", "expected"),
    [
        (WIDE, "x", 1.5, {"middle", "thin"}),  # The second reads what the first writes.
        (WIDE, "b", 1.5, {"middle"}),  # What another reads in float is quantized apart.
        (WIDE, "b", 2.5, {"middle", "thin"}),
        ("Mul(a, x)", "x", 1.0, {"thin"}),  # Quantizes what it writes in float, too.
        ("Mul(a, x)", "b", 1.0, set()),
        (NORM, "x", 1.0, set()),  # Writes float, by its rule.
        (NORM, "x", 2.5, {"thin"}),
    ],
)
def test_kernels_that_convert_what_they_write_spare_a_conversion(
    middle: str, read: str, saved: float, expected: set[str]
):
    """As OpenVINO's rules say of each layer, and ``converting`` where none does."""
    graph = graph_of_text(CONVERTING.format(middle, read))
    given = gains({"Conv": saved}, 2)
    given = given.model_copy(update={"dequantize": Conversion(), "converting": ["Mul"]})
    assert integers(graph, given, load_pack("openvino").rules) == expected


def test_what_needs_integers_behind_it_stays_float_where_a_reader_does():
    """A Split that Q does not pass runs in integers for both its readers or for none."""
    graph = graph_of_text("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,32,16,16] x) => (float[1,16,16,16] out, float[1,16,16,16] end)
        <float[32,32,1,1] w = {1}, float[16,16,1,1] v = {1}> {
          [wide] a = Conv(x, w)
          [split] b, c = Split<axis = 1>(a)
          [thin] out = Conv(b, v)
          [erf] end = Erf(c)
        }
    """)
    given = gains({"Conv": 5.0}, 2).model_copy(update={"dequantize": Conversion()})
    assert integers(graph, given, load_pack("openvino").rules) == {"wide", "thin"}


def test_times_of_the_processor_count_and_the_first_ones_where_it_is_not_known():
    many = [
        gains({"Conv": 9.0}, 1).model_copy(update={"when": Condition(exact_products=exact)})
        for exact in (True, False)
    ]
    behaviour = Behaviour(gains=many)
    assert behaviour.gains_on(Target(processor=PROCESSORS["avx512-vnni"])) is many[0]
    assert behaviour.gains_on(Target(processor=PROCESSORS["avx2"])) is many[1]
    assert behaviour.gains_on(ANY_TARGET) is many[0]
    assert Behaviour(gains=many[:1]).gains_on(Target(processor=PROCESSORS["avx2"])) is None
    assert Behaviour(gains=many[0]).all_gains == [many[0]]
    assert Behaviour().gains_on(ANY_TARGET) is None


TURNED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,16,16] x) => (float[1,16,16,16] out)
<float[16,16,3,3] w = {1}, float[16,16,1,1] v = {1}> {
  [wide] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [turn] b = Transpose<perm = [0, 2, 1, 3]>(a)
  [thin] out = Conv(b, v)
}
"""


@pytest.mark.parametrize(
    ("rank", "lost", "kept"),
    [(5, 9.0, {"wide", "turn", "thin"}), (4, 1.0, {"wide", "turn", "thin"}), (4, 9.0, {"thin"})],
)
def test_what_only_moves_elements_may_lose_time_in_integers(rank: int, lost: float, kept: set[str]):
    """The Convs save 6 us each; the Transpose runs in integers where the first of them does."""
    graph, given = graph_of_text(TURNED), gains({}, 1)
    nodes = [Gain(op=["Conv"], each=6), Gain(op=["Transpose"], rank=rank, each=-lost)]
    found = integers(graph, given.model_copy(update={"nodes": nodes}))
    assert found - {"turn"} == kept - {"turn"}


@pytest.mark.parametrize(
    ("reader", "summed", "kept"),
    [
        ("Erf(s)", 1, {"add1"}),
        ("Erf(s)", 5, set()),
        ("GlobalAveragePool(s)", 5, {"add1"}),
        ("Conv(s, w)", 5, {"add1", "last"}),
    ],
)
def test_a_sum_of_integers_takes_time_to_write_floats(reader: str, summed: float, kept: set[str]):
    """Not for a mean, which takes the scale along, nor where a Conv reads integers."""
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x, float[1,16,8,8] z) => (float[1,16,k,k] out)
        <float[16,16,1,1] w = {{1}}> {{
          [conv1] c = Conv(x, w)
          [add1] s = Add(c, z)
          [last] out = {reader}
        }}
        """
    )
    each = Sum(each=summed, scaling=["GlobalAveragePool"])
    given = gains({"Conv": 4.0}, 0).model_copy(update={"summed": each})
    rules = [rule for rule in load_pack("openvino").rules if rule.id in ("conv-add", "conv")]
    assert integers(graph, given, rules) == kept


@pytest.mark.parametrize(
    ("saved", "others", "kept"),
    [
        (4, "[conv3] r = Conv(a, w)", {"conv1", "conv2", "conv3", "join"}),
        (-4, "[conv3] r = Conv(a, w)", set()),
        (4, "[erf1] r = Erf(a)", {"conv1", "conv2"}),
        (
            4,
            "[join2] q = Concat<axis = 1>(a, a) [erf1] r = Erf(q)",
            {"conv1", "conv2", "join", "join2"},
        ),
    ],
)
def test_what_others_read_as_integers_is_integers_for_a_concat_too(
    saved: float, others: str, kept: set[str]
):
    """But no branch that it alone reads, and none that another node reads in float anyway."""
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,32,8,8] out, float[1,m,8,8] r)
        <float[16,16,1,1] w = {{1}}> {{
          [conv1] a = Conv(x, w)
          [conv2] b = Conv(a, w)
          {others}
          [join] j = Concat<axis = 1>(a, b)
          [erf2] out = Erf(j)
        }}
        """
    )
    rules = [rule for rule in load_pack("openvino").rules if rule.id in ("concat", "conv")]
    given = gains({"Conv": saved}, 1)
    sites = defaults_by_gains(Matches(graph), find_sites(graph, rules), rules, given)
    assert {s.match.anchor.name for s in sites if s.layouts[s.default].quantize} == kept
    assert not [edge for edge in place(sites, {}).edges if edge.tensor == "b"]


@pytest.mark.parametrize(
    ("branches", "kept"),
    [
        ("a, e", {"join": "beside-others", "join2": "beside-others"}),
        ("a, c, d", {"join": "after", "join2": "after"}),
    ],
)
def test_a_concat_that_reads_floats_keeps_others_from_integers(branches: str, kept: dict[str, str]):
    """The second reads floats where most of its branches are floats for others: then ``a`` too."""
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,32,8,8] out, float[1,m,8,8] out2, float[1,16,8,8] r,
          float[1,16,8,8] ec, float[1,16,8,8] ed)
        <float[16,16,1,1] w = {{1}}> {{
          [conv1] a = Conv(x, w)
          [conv2] b = Conv(a, w)
          [conv3] r = Conv(a, w)
          [exp1] c = Exp(x)
          [sin1] d = Sin(x)
          [tan1] e = Tan(x)
          [erf1] ec = Erf(c)
          [erf2] ed = Erf(d)
          [join] j = Concat<axis = 1>(a, b)
          [erf3] out = Erf(j)
          [join2] j2 = Concat<axis = 1>({branches})
          [erf4] out2 = Erf(j2)
        }}
        """
    )
    rules = [rule for rule in load_pack("openvino").rules if rule.id in ("concat", "conv")]
    sites = defaults_by_gains(
        Matches(graph), find_sites(graph, rules), rules, gains({"Conv": 4.0}, 1)
    )
    assert {s.match.anchor.name: s.default for s in sites if s.match.rule.id == "concat"} == kept


@pytest.mark.parametrize(("saved", "layout"), [(4, "beside-others"), (-8, "after")])
def test_a_concat_reads_floats_that_a_layer_writes_in_float(saved: float, layout: str):
    """A Conv in integers writes integers alone, but one in float writes floats anyway."""
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,32,8,8] out, float[1,16,8,8] r)
        <float[16,1,1,1] v = {1}, float[16,16,1,1] w = {1}> {
          [conv1] a = Conv<group = 16>(x, v)
          [conv2] b = Conv(a, w)
          [conv3] r = Conv(a, w)
          [join] j = Concat<axis = 1>(a, b)
          [erf1] out = Erf(j)
        }
        """
    )
    rules = [rule for rule in load_pack("openvino").rules if rule.id in ("concat", "conv")]
    each = [Gain(op=["Conv"], groups="depthwise", each=saved), Gain(op=["Conv"], each=4)]
    given = gains({}, 1).model_copy(update={"nodes": each})
    sites = defaults_by_gains(Matches(graph), find_sites(graph, rules), rules, given)
    default_of = {site.match.anchor.name: site.default for site in sites}
    conv1 = "int8" if saved > 0 else "float"
    expected = {"conv1": conv1, "conv2": "int8", "conv3": "int8", "join": layout}
    assert default_of == expected


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (
            "[c0] e = Conv(a, u) [r0] f = Relu(e) [a0] s = Concat<axis = 1>(f, b)"
            "[act] y = PRelu(s, slopes)",
            {"act"},
        ),
        (
            "[c0] e = Conv(a, u) [r0] f = Relu(e) [a0] s = Concat<axis = 1>(f, b)[act] y = Relu(s)",
            set(),
        ),
        ("[a0] s = Concat<axis = 1>(a, b) [act] y = PRelu(s, slopes)", set()),
        ("[c0] s = Conv(a, v) [act] y = PRelu(s, slopes)", set()),
        ("[c0] q = Conv(a, v) [a0] s = Add(q, d) [act] y = PRelu(s, slopes)", set()),
    ],
)
def test_a_map_that_is_moved_before_an_activation_is_integers(before: str, kept: set[str]):
    """Not without a Conv, nor where the one before it takes the PRelu along, with a sum or not."""
    graph = graph_of_text(
        f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] a, float[1,16,8,8] b, float[1,32,8,8] d) => (float[1,32,8,8] y)
        <float[32,16,1,1] v = {{1}}, float[16,16,1,1] u = {{1}}, float[32,1,1] slopes = {{0.2}}>
        {{ {before} }}
        """
    )
    moved = [Gain(op=["PRelu"], elements=1)]
    given = gains({}, 1).model_copy(update={"reordered": moved})
    rules = [rule for rule in load_pack("openvino").rules if rule.id in ("prelu-map", "conv")]
    assert integers(graph, given, rules) == kept
