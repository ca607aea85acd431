"""Reformats that change the memory layout alone, as TensorRT 8 has them under weak typing."""

import pytest

from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.layouts import can_read, fills_groups
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target, Typing
from tests.prediction.test_motion import HEAD

RULES = load_pack("tensorrt").rules


def graph_of(signature: str, body: str, constants: str) -> Graph:
    return graph_of_text(f"{HEAD} g {signature} <{constants}> {{ {body} }}")


def reformats(
    graph: Graph,
    quantized: str = "",
    base: str = "float16",
    typing: Typing = "weak",
    version: str = "8.6",
    capability: str = "8.0",
    integer: str = "int8",
) -> list[str]:
    """``tensor: type`` of each reformat that keeps the type.

    ``quantized``: tensors that have a pair wherever they are read, of the type ``integer``.
    """
    pairs = [
        Edge(name, node.name, index)
        for node in graph.nodes
        for index, name in enumerate(node.inputs)
        if name in quantized.split()
    ]
    target = Target(engine_version=version, compute_capability=capability, typing=typing)
    prediction = Predictor(graph, RULES, target, base, integer).predict(Placement.of(pairs))
    layers = [layer for layer in prediction.plan.layers if layer.kind == "reformat"]
    return [
        f"{layer.name.removeprefix('reformat ')}: {layer.output_types[0]}"
        for layer in layers
        if layer.inputs[0].dtype == layer.output_types[0]
    ]


WEIGHTS = "float[64,32,3,3] w = {1}, float[64,64,3,3] w2 = {1}, int64[3] rows = {1, 64, 64}"
HEADS = graph_of(
    "(float[1,32,10,10] x) => (float[1,64,64] y)",
    "[conv] c = Conv(x, w) [rows1] r = Reshape(c, rows) [sig] y = Sigmoid(r)",
    WEIGHTS,
)


def test_a_reshape_reads_row_major_what_a_conv_wrote_by_channels():
    assert reformats(HEADS) == ["c: float16"]


@pytest.mark.parametrize(("version", "found"), [("10.3", ["c: float16"]), ("11.1", [])])
def test_layouts_are_told_under_strong_typing_in_tensorrt_10_alone(version: str, found: list[str]):
    assert reformats(HEADS, typing="strong", version=version) == found


def test_one_pixel_of_whole_groups_is_row_major_already():
    def classifier(classes: int) -> Graph:
        return graph_of(
            f"(float[1,64,1,1] x) => (float[1,{classes}] y)",
            "[conv] c = Conv(x, w) [flat] f = Flatten(c) [sig] y = Sigmoid(f)",
            f"float[{classes},64,1,1] w = {{1}}",
        )

    assert reformats(classifier(1000)) == []  # Groups of 8.
    assert reformats(classifier(10)) == ["c: float16"]
    assert reformats(classifier(1000), "x w f c") == ["c: int8"]  # Groups of 32.
    assert reformats(classifier(1024), "x w f c") == []


def test_a_reformat_to_the_type_of_the_output_changes_the_layout_too():
    graph = graph_of(
        "(float[1,32,10,10] x) => (float[1,64,64] y)",
        "[conv] c = Conv(x, w) [rows1] y = Reshape(c, rows)",
        WEIGHTS,
    )
    assert reformats(graph) == []


def test_a_graph_output_is_row_major():
    def graph(dtype: str) -> Graph:
        return graph_of(
            f"({dtype}[1,8,3,3] x) => ({dtype}[1,8,3,3] y)",
            "[conv] c = Conv(x, w) [sig] y = Sigmoid(c)",
            f"{dtype}[8,8,1,1] w = {{{', '.join(64 * '0')}}}",
        )

    assert "y: float16" in reformats(graph("float16"))
    assert reformats(graph("float")) == []  # The reformat to FP32 does both.


def test_an_int8_conv_behind_a_reshape_of_an_image_needs_its_channels_grouped():
    graph = graph_of(
        "(float[1,1,3,9,9] x) => (float[1,8,9,9] y)",
        "[squeeze] i = Reshape(x, shape) [conv] c = Conv(i, w) [sig] y = Sigmoid(c)",
        "float[8,3,1,1] w = {1}, int64[4] shape = {1, 3, 9, 9}",
    )
    assert reformats(graph, "i w") == ["i: int8"]


def test_a_transpose_that_makes_an_int8_image_writes_it_as_the_conv_reads_it():
    graph = graph_of(
        "(float[1,9,9,3] x) => (float[1,8,9,9] y)",
        "[move] i = Transpose<perm = [0, 3, 1, 2]>(x) [conv] c = Conv(i, w) [sig] y = Sigmoid(c)",
        "float[8,3,1,1] w = {1}",
    )
    assert reformats(graph, "i w") == []


@pytest.mark.parametrize(("written", "expected"), [(1, []), (4, ["c: float16"])])
def test_the_distances_of_a_yolo_head_need_no_reformat_at_their_conv(
    written: int, expected: list[str]
):
    """A Transpose writes what the Conv reads, and one channel is row-major already."""
    graph = graph_of(
        "(float[1,4,16,90] x) => (float[1,n,90] y)",
        "[softmax] p = Softmax<axis = 2>(x) [move] i = Transpose<perm = [0, 2, 1, 3]>(p)"
        " [conv] c = Conv(i, w) [flat] d = Reshape(c, shape) [sig] y = Sigmoid(d)",
        f"float[{written},16,1,1] w = {{1}}, int64[3] shape = {{1, -1, 90}}",
    )
    assert reformats(graph) == expected


def test_pooling_does_not_read_what_an_int8_conv_wrote_in_fp16():
    graph = graph_of(
        "(float[1,32,10,10] x) => (float[1,64,1,1] y)",
        "[conv] c = Conv(x, w) [pool] y = GlobalAveragePool(c)",
        WEIGHTS,
    )
    assert reformats(graph, "x w") == ["c: float16"]
    assert reformats(graph) == []


@pytest.mark.parametrize("base", ["float", "float16"])
def test_in_fp32_what_a_conv_on_an_image_wrote_is_row_major(base: str):
    graph = graph_of(
        "(float[1,3,20,20] x) => (float[1,64,5,5] y)",
        "[conv] c = Conv(x, w) [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)"
        " [conv2] d = Conv(p, w2) [conv3] e = Conv(d, w3) [add] y = Add(e, d)",
        "float[32,3,3,3] w = {1}, float[64,32,5,5] w2 = {1}, float[64,64,1,1] w3 = {1}",
    )
    assert reformats(graph, base=base) == (["p: float", "y: float"] if base == "float" else [])


def test_int8_channels_are_not_joined_within_a_group():
    def graph(channels: int) -> Graph:
        return graph_of(
            f"(float[1,{channels},9,9] a, float[1,64,9,9] b) => (float[1,8,9,9] y)",
            "[join] j = Concat<axis = 1>(a, b) [conv] c = Conv(j, w) [sig] y = Sigmoid(c)",
            f"float[8,{channels + 64},1,1] w = {{1}}",
        )

    assert reformats(graph(80), "a b j w") == ["a: int8"]
    assert reformats(graph(96), "a b j w") == []
    join = graph(80).by_name["join"]
    assert fills_groups(graph(80), join, "a", "float16")


def test_what_a_reshape_passes_on_is_copied_into_a_joined_tensor():
    graph = graph_of(
        "(float[1,8,16] x, float[1,128] y) => (float[1,256] z)",
        "[relu] r = Relu(x) [flat] f = Flatten(r) [neg] n = Neg(y)"
        " [join] j = Concat<axis = 1>(f, n) [sig] z = Sigmoid(j)",
        "float unused = {1}",
    )
    assert reformats(graph) == ["f: float16"]


def test_an_fp16_conv_needs_the_channels_of_a_graph_input_grouped():
    weights = ", ".join(8 * 3 * "0")
    graph = graph_of(
        "(float16[1,3,8,8] x) => (float16[1,8,8,8] y)",
        "[conv] y = Conv(x, wf)",
        f"float16[8,3,1,1] wf = {{{weights}}}",
    )
    assert reformats(graph) == ["x: float16", "y: float16"]
    assert reformats(graph, typing="strong") == []


@pytest.mark.parametrize(
    ("version", "capability", "found"),
    [
        ("8.6", "8.0", ["p: float"]),  # ResNet18 on A100.
        ("10.14", "8.9", ["x: float"]),  # ResNet50 on RTX 4050, for a kernel in TF32.
        ("8.6.1", "7.5", []),  # EfficientViT-B0, without TF32.
    ],
)
def test_an_fp32_conv_on_an_image_needs_its_channels_grouped_from_tensorrt_10_on(
    version: str, capability: str, found: list[str]
):
    graph = graph_of(
        "(float[1,3,8,8] x) => (float[1,8,1,1] y)",
        "[stem] c = Conv(x, w) [relu] r = Relu(c) [pool] p = MaxPool<kernel_shape = [2, 2]>(r)"
        "[conv] d = Conv(p, v) [mean] y = GlobalAveragePool(d)",
        "float[8,3,1,1] w = {1}, float[8,8,1,1] v = {1}",
    )
    assert reformats(graph, "", "float", "weak", version, capability) == found


def test_layers_without_a_demand_read_any_layout():
    reader, engine = ("PointWise", HEADS.by_name["sig"]), ("float16", Target(engine_version="8.6"))
    for layout in ("linear", "image", "grouped", "interleaved"):
        assert can_read(HEADS, reader, ("r", "float16", layout), engine)


SILU_AND_POOL = graph_of(
    "(float[1,64,8,8] x) => (float[1,64,1,1] y)",
    "[conv] a = Conv(x, w) [sigmoid] s = Sigmoid(a) [mul] m = Mul(a, s)"
    "[mean] y = GlobalAveragePool(m)",
    "float[64,64,1,1] w = {1}",
)


@pytest.mark.parametrize(
    ("version", "integer", "found"),
    [
        ("8.6", "int8", ["m: float16"]),
        ("10.0", "int8", ["a: float16"]),
        ("10.0", "float8e4m3fn", []),
    ],
)
def test_what_an_int8_conv_writes_in_fp16_is_reformatted_for_a_silu_from_tensorrt_10_on(
    version: str, integer: str, found: list[str]
):
    """Up to 8.6 the SiLU reads and writes it, and what is reformatted is what the pool reads.

    FP8 Convs write what both read.
    """
    assert reformats(SILU_AND_POOL, "x w", version=version, integer=integer) == found


@pytest.mark.parametrize(("integer", "found"), [("int8", ["r: float16"]), ("float8e4m3fn", [])])
def test_an_fp8_conv_adds_what_an_fp16_layer_wrote(integer: str, found: list[str]):
    graph = graph_of(
        "(float[1,64,8,8] x, float[1,64,8,8] z) => (float[1,64,8,8] y)",
        "[other] q = Conv(z, v) [relu] r = Relu(q) [conv] c = Conv(x, w) [add] a = Add(c, r)"
        "[last] y = Relu(a)",
        "float[64,64,1,1] w = {1}, float[64,64,1,1] v = {1}",
    )
    predicted = reformats(graph, "x w", version="10.0", integer=integer)
    assert [reformat for reformat in predicted if reformat.startswith("r:")] == found


def test_fp16_parts_that_begin_within_a_group_are_joined_row_major_for_a_reshape():
    """A YOLOX-s (Orin, 8.5): what a joined Conv and a Sigmoid write is copied, the last is not.

    What Convs that are one write is copied where it begins with whole groups, too.
    """

    def head(boxes: int, objects: int) -> Graph:
        return graph_of(
            f"(float[1,32,10,10] x, float[1,32,10,10] z) => (float[1,{boxes + objects + 8},100] y)",
            "[boxes] b = Conv(x, wb) [objects] o = Conv(x, wo) [sig] s = Sigmoid(o)"
            "[classes] c = Conv(z, wc) [join] j = Concat<axis = 1>(b, s, c)"
            "[rows1] r = Reshape(j, rows) [last] y = Exp(r)",
            f"float[{boxes},32,1,1] wb = {{1}}, float[{objects},32,1,1] wo = {{1}},"
            "float[8,32,1,1] wc = {1}, int64[3] rows = {1, -1, 100}",
        )

    own = {name: reformats(head(*sizes)) for name, sizes in (("odd", (4, 1)), ("whole", (16, 8)))}
    layouts_of_inputs = ["x: float16", "z: float16"]
    assert [line for line in own["odd"] if line not in layouts_of_inputs] == [
        "b: float16",
        "s: float16",
    ]
    assert [line for line in own["whole"] if line not in layouts_of_inputs] == [
        "b: float16",
        "j: float16",
    ]
