"""Predicted against actual plans: fusions, types, conversions, scores."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.plan import Kind, Layer, Plan, Port
from placer.plan.diff import diff_plans
from placer.plan.diff_result import CONVERSIONS, ConversionDiff, PlanDiff, Score, sentences
from placer.plan.readers.read import read_plan
from placer.plan.readers.tensorrt_inspector import inspector_layers, named_layer


def layer(
    nodes: str, types: str = "int8", kind: Kind = "compute", *, name: str = "", **fields: object
) -> Layer:
    """A layer of the nodes in ``nodes`` that writes the types in ``types``, parted by spaces."""
    outputs = tuple(Port(dtype) for dtype in types.split())
    return Layer(
        name or nodes.replace(" ", "+"), kind, tuple(nodes.split()), (), outputs, kind, **fields
    )


def linked(name: str, source: str, target: str, kind: Kind, nodes: str = "") -> Layer:
    """A layer that reads the tensors in ``source``, parted by spaces, and writes ``target``."""
    inputs = tuple(Port("float", "", tensor) for tensor in source.split())
    return Layer(name, kind, tuple(nodes.split()), inputs, (Port("int8", "", target),), kind)


def compare(predicted: list[Layer], actual: list[Layer]) -> PlanDiff:
    return diff_plans(Plan(tuple(predicted)), Plan(tuple(actual)))


# --- compute layers -------------------------------------------------------------------------


def test_equal_plans_agree():
    layers = [layer("conv relu"), layer("", "int8", "quantize", name="q"), layer("gemm", "float")]
    diff = compare(layers, layers)
    assert diff.agrees
    assert [pair.nodes for pair in diff.matched] == [("conv", "relu"), ("gemm",)]
    assert (diff.exact, diff.exact.f1) == (Score(2, 2, 2), 1.0)
    assert list(sentences(diff)) == []


def test_empty_plans_agree():
    assert compare([], []).agrees


def test_layers_of_a_splits_outputs_are_known_by_the_name_of_the_split():
    split = Layer("split", "Slice", ("split",), (), (Port("float"),))
    diff = compare(
        [split, split, layer("conv_1", "float")],
        [layer("split", "float"), layer("split_6", "float"), layer("conv_1", "float")],
    )
    assert diff.agrees
    # A number behind what is no Split is a node's own.
    assert compare([layer("conv")], [layer("conv_1")]).only_actual == ("conv_1",)


def test_kernels_whose_names_have_underscores_for_dots_are_known_by_the_node():
    kernel = named_layer("/layers_3/attn/MatMul_myl0_25")
    assert compare([layer("/layers.3/attn/MatMul")], [kernel]).by_nodes.f1 == 1.0
    # Two nodes may be meant.
    two = [layer("/layers.3/a_b/MatMul"), layer("/layers_3/a.b/MatMul")]
    kernel = named_layer("/layers_3/a_b/MatMul_myl0_25")
    assert compare(two, [kernel]).by_nodes.f1 == 0.0


def test_a_fusion_that_did_not_happen():
    diff = compare(
        [layer("conv add relu")],
        [layer("conv", time_us=5.25), layer("add relu", time_us=4.0)],
    )
    (split,) = diff.splits
    assert split.whole.name == "conv+add+relu"
    assert [part.name for part in split.parts] == ["conv", "add+relu"]
    assert (diff.fusions, diff.matched) == ((), ())
    assert diff.by_nodes == Score(0, 1, 2)
    assert not diff.agrees
    assert list(sentences(diff)) == [
        "'conv+add+relu' was predicted as one layer but runs as 2: 'conv' (5.2 us), "
        "'add+relu' (4.0 us)."
    ]


def test_a_fusion_that_was_not_predicted():
    diff = compare([layer("conv"), layer("pool"), layer("fc")], [layer("conv pool"), layer("fc")])
    (fusion,) = diff.fusions
    assert [part.name for part in fusion.parts] == ["conv", "pool"]
    assert diff.splits == ()
    assert diff.by_nodes == Score(1, 3, 2)
    assert (diff.by_nodes.precision, diff.by_nodes.recall) == (1 / 3, 1 / 2)
    assert diff.by_nodes.f1 == pytest.approx(2 / 5)
    assert list(sentences(diff)) == [
        "'conv+pool' is one layer but was predicted as 2: 'conv', 'pool'."
    ]


def test_a_node_that_moved_to_another_layer_is_a_split_and_a_fusion():
    diff = compare([layer("conv relu"), layer("pool")], [layer("conv"), layer("relu pool")])
    assert [split.whole.name for split in diff.splits] == ["conv+relu"]
    assert [fusion.whole.name for fusion in diff.fusions] == ["relu+pool"]


def test_a_node_computed_in_two_layers_is_a_split():
    diff = compare([layer("conv relu")], [layer("conv", "float"), layer("conv relu")])
    assert len(diff.splits) == 1
    assert diff.exact == Score(1, 1, 2)


def test_a_node_computed_in_two_layers_of_either_plan_is_no_split():
    """TensorRT-RTX adds the bias of an INT8 product, and rounds, in a kernel behind it."""
    plan = [layer("product", "float"), layer("product relu")]
    diff = compare(plan, plan)
    assert (diff.splits, diff.fusions, diff.agrees) == ((), (), True)
    assert list(sentences(diff)) == []


def test_nodes_that_one_plan_never_names_do_not_count():
    diff = compare(
        [layer("conv relu"), layer("pool")],
        [layer("conv", activation="RELU"), layer("pool shuffle")],
    )
    assert diff.agrees
    assert [pair.nodes for pair in diff.matched] == [("conv",), ("pool",)]


def test_layers_of_nodes_that_the_other_plan_does_not_name_have_no_partner():
    predicted = [layer("conv"), layer("sigmoid")]
    actual = [layer("conv"), layer("", name="copy"), layer("reshape", kind="no-op")]
    diff = compare(predicted, actual)
    assert not diff.agrees
    assert (diff.only_predicted, diff.only_actual) == (("sigmoid",), ("copy",))
    assert diff.exact == diff.by_nodes == Score(1, 2, 2)


def test_a_node_of_a_no_op_layer_does_not_count():
    actual = [layer("gemm"), layer("flatten", kind="no-op")]
    assert compare([layer("gemm flatten")], actual).agrees


# --- types ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicted", "actual", "exact", "by_class"),
    [
        ("int8", "int8", 1, 1),
        ("float", "float16", 0, 1),
        ("int8", "float8e4m3fn", 0, 1),
        ("int8", "float16", 0, 0),
        ("int64", "float", 0, 0),
        ("int8 int8", "int8", 1, 1),
        ("int8", "int8 float", 0, 0),
        ("int8", "", 0, 0),
        ("unknown", "float", 0, 0),
        ("unknown", "unknown", 0, 0),
    ],
)
def test_output_types_are_compared_exactly_and_by_class(
    predicted: str, actual: str, exact: int, by_class: int
):
    diff = compare([layer("conv", predicted)], [layer("conv", actual)])
    assert (diff.exact.matched, diff.by_class.matched, diff.by_nodes.matched) == (
        exact,
        by_class,
        1,
    )
    assert (len(diff.matched), len(diff.other_types)) == (by_class, 1 - exact)
    assert diff.agrees == bool(exact)


def test_a_type_that_differs_in_words():
    diff = compare([layer("conv")], [layer("conv", "float16 int8", time_us=12.0)])
    assert list(sentences(diff)) == [
        "'conv' (12.0 us) writes float16 and int8 but was predicted to write int8."
    ]


def test_layers_of_the_same_nodes_pair_by_type():
    one, other = layer("gemm", "int8", name="a"), layer("gemm", "float", name="b")
    diff = compare([one, other], [other, one])
    assert [(pair.predicted.name, pair.actual.name) for pair in diff.matched] == [
        ("a", "a"),
        ("b", "b"),
    ]
    assert diff.exact == Score(2, 2, 2)


# --- conversions ----------------------------------------------------------------------------


def conversion(diff: PlanDiff, kind: Kind) -> ConversionDiff:
    return next(c for c in diff.conversions if c.kind == kind)


def test_missing_and_extra_conversions():
    diff = compare(
        [linked("conv", "x", "a", "compute", "conv"), linked("q1", "a", "aq", "quantize")],
        [
            linked("r1", "x", "x1", "reformat"),
            linked("conv", "x1", "a", "compute", "conv"),
        ],
    )
    quantize = conversion(diff, "quantize")
    assert (quantize.predicted, quantize.actual) == (1, 0)
    assert [q.name for q in quantize.missing] == ["q1"]
    assert [r.name for r in conversion(diff, "reformat").extra] == ["r1"]
    assert [c.kind for c in diff.conversions] == list(CONVERSIONS)
    assert not diff.agrees
    assert list(sentences(diff)) == [
        "Predicted quantize layer 'q1' does not run.",
        "Reformat layer 'r1' was not predicted.",
    ]


CHAIN = [
    linked("conv", "x", "a", "compute", "conv"),
    linked("a/QuantizeLinear", "a", "aq", "quantize"),
    linked("fc", "aq", "y", "compute", "fc"),
]


def test_conversions_of_other_names_pair_by_place():
    actual = [
        linked("first", "in", "t1", "compute", "conv"),
        linked("copy", "t1", "t2", "no-op"),
        linked("QuantizeLinear_7", "t2", "t3", "quantize"),
        linked("second", "t3", "out", "compute", "fc"),
    ]
    assert compare(CHAIN, actual).agrees


def test_conversions_at_other_places_do_not_pair():
    actual = [
        linked("input/QuantizeLinear", "x", "xq", "quantize"),
        linked("conv", "xq", "a", "compute", "conv"),
        linked("fc", "a", "y", "compute", "fc"),
    ]
    quantize = conversion(compare(CHAIN, actual), "quantize")
    assert [q.name for q in quantize.missing] == ["a/QuantizeLinear"]
    assert [q.name for q in quantize.extra] == ["input/QuantizeLinear"]


def test_conversions_of_the_input_pair_by_their_consumer():
    def plan(names: dict[str, str]) -> list[Layer]:
        layers = [linked(q, "x", f"{node}_q", "quantize") for node, q in names.items()]
        return layers + [linked(n, f"{n}_q", f"{n}_y", "compute", n) for n in names]

    both = plan({"conv": "q1", "gemm": "q2"})
    assert compare(both, plan({"gemm": "p2", "conv": "p1"})).agrees
    only_gemm = [*plan({"gemm": "p2"}), linked("conv", "x", "conv_y", "compute", "conv")]
    quantize = conversion(compare(both, only_gemm), "quantize")
    assert ([q.name for q in quantize.missing], quantize.extra) == (["q1"], ())


def test_conversions_of_two_inputs_before_one_node_pair_by_input():
    """Whatever the order; what a predicted conversion writes has the name of what it reads."""
    predicted = [
        linked("quantize camera", "camera", "camera", "quantize"),
        linked("quantize lidar", "lidar", "lidar", "quantize"),
        linked("conv", "camera lidar", "y", "compute", "conv"),
    ]
    actual = [
        linked("Q_1", "lidar", "joined", "quantize"),
        linked("Q_0", "camera", "joined", "quantize"),
        linked("conv", "joined", "y", "compute", "conv"),
    ]
    pairs = conversion(compare(predicted, actual), "quantize").shared
    assert [(one.name, other.name) for one, other in pairs] == [
        ("quantize camera", "Q_0"),
        ("quantize lidar", "Q_1"),
    ]


def test_conversions_whose_place_is_not_told_do_not_pair():
    predicted = [layer("conv"), layer("", kind="quantize", name="q1")]
    actual = [*CHAIN, layer("", kind="quantize", name="p2")]
    diff = compare(predicted, actual)
    quantize = conversion(diff, "quantize")
    assert (quantize.predicted, quantize.actual) == (1, 2)
    assert [q.name for q in quantize.missing] == ["q1"]
    assert [q.name for q in quantize.extra] == ["a/QuantizeLinear", "p2"]
    assert (diff.false_conversions, diff.missed_conversions) == (1, 2)


def test_a_false_and_a_missed_conversion_do_not_cancel():
    moved = [
        linked("quantize x", "x", "xq", "quantize"),
        linked("conv", "xq", "a", "compute", "conv"),
        linked("fc", "a", "y", "compute", "fc"),
    ]
    diff = compare(CHAIN, moved)
    assert (diff.false_conversions, diff.missed_conversions) == (1, 1)


# --- properties -----------------------------------------------------------------------------

NODES = [f"n{i}" for i in range(8)]


@st.composite
def plans(draw: st.DrawFn) -> list[Layer]:
    """A partition of some of eight nodes into layers."""
    groups = draw(st.lists(st.integers(0, 4), min_size=len(NODES), max_size=len(NODES)))
    types = draw(st.lists(st.sampled_from(["int8", "float16", "float"]), min_size=5, max_size=5))
    members = [[n for n, g in zip(NODES, groups, strict=True) if g == i] for i in range(1, 5)]
    return [layer(" ".join(nodes), types[i]) for i, nodes in enumerate(members) if nodes]


@given(plans(), plans())
def test_swapping_the_plans_swaps_the_differences(one: list[Layer], other: list[Layer]):
    diff, swapped = compare(one, other), compare(other, one)
    assert diff.splits == swapped.fusions
    assert diff.only_predicted == swapped.only_actual
    assert diff.exact.precision == swapped.exact.recall
    assert diff.exact.matched <= diff.by_class.matched <= diff.by_nodes.matched
    assert len(diff.matched) == diff.by_class.matched
    assert diff.agrees == swapped.agrees


@given(plans())
def test_every_plan_agrees_with_itself(layers: list[Layer]):
    diff = compare(layers, layers)
    assert diff.agrees
    assert diff.exact == Score(len(layers), len(layers), len(layers))


# --- published engines ----------------------------------------------------------------------


def test_half_precision_runs_the_same_layers_of_resnet18():
    default = Path(__file__).parents[3] / "shared" / "reference-engines"
    folder = Path(os.environ.get("PLACER_REFERENCE_ENGINES", default)) / "resnet18-a100"
    if not folder.is_dir():
        pytest.skip("no reference engines; name their folder in PLACER_REFERENCE_ENGINES")
    diff = diff_plans(*(read_plan(folder / build / "graph.json") for build in ("fp32", "fp16")))
    assert (diff.by_class, diff.exact) == (Score(23, 23, 23), Score(0, 23, 23))
    assert (diff.splits, diff.fusions) == ((), ())
    assert [c.actual for c in diff.conversions] == [0, 0, 0, 2]


def test_conversions_of_names_alone_are_known_by_the_tensor_or_the_layer_in_their_name():
    def copied(tensor: str, dtypes: str) -> Layer:
        read, written = (Port(dtype, tensor=tensor) for dtype in dtypes.split())
        return Layer(f"reformat {tensor}", "Reformat", (), (read,), (written,), "reformat")

    half = [Port("float16", tensor=tensor) for tensor in ("image", "y")]
    predicted = [
        copied("image", "float float16"),
        Layer("conv", "Convolution", ("conv",), (half[0],), (half[1],)),
        copied("y", "float16 float16"),
        Layer("concat", "ConcatInPlace", ("concat",), (half[1],), (), "no-op"),
        copied("z", "float16 float"),
        Layer("/rows", "NoOp", ("/rows",), (half[1],), (Port("float16", tensor="r"),), "no-op"),
        copied("r", "float16 float16"),
    ]
    names = [
        "Reformatting CopyNode for Input Tensor 0 to conv + PWN(relu)",
        "conv + PWN(relu)",
        "y copy",
        "Reformatting CopyNode for Output Tensor 0 to gemm",
        "/rows_copy_output",
    ]
    actual = Plan(tuple(inspector_layers(names, Path("names.txt"))))
    (reformats,) = (c for c in diff_plans(Plan(tuple(predicted)), actual).conversions if c.actual)
    assert [(one.name, other.name) for one, other in reformats.shared] == [
        ("reformat y", "y copy"),
        ("reformat image", "Reformatting CopyNode for Input Tensor 0 to conv + PWN(relu)"),
        ("reformat r", "/rows_copy_output"),
    ]
    assert [layer.name for layer in reformats.extra] == [names[3]]
