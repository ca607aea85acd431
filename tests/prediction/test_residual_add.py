"""Which of two Convs takes the Add of their results, by version of TensorRT."""

import pytest

from placer.graph import Edge
from placer.graph.text import graph_of_text
from placer.prediction.layers.norms import without_norms
from placer.prediction.layers.predictor import Predictor
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_motion import HEAD

RULES = load_pack("tensorrt").rules
MAIN, SHORTCUT = "[main] c = Conv(m, w)", "[shortcut] s = Conv(x, w)"
MAIN_FIRST, SHORTCUT_FIRST = f"{MAIN} {SHORTCUT}", f"{SHORTCUT} {MAIN}"


def taker(convs: str, added: str, version: str | None) -> str:
    """The Conv in the layer of Add(``added``); ``convs``: both in the order of the model."""
    graph = graph_of_text(
        f"{HEAD} g (float[1,8,4,4] x) => (float[1,8,4,4] y) <float[8,8,1,1] w = {{1}}> "
        f"{{ [stem] n = Conv(x, w) [act] m = Relu(n) {convs} [add] a = Add({added})"
        " [relu] y = Relu(a) }"
    )
    predictor = Predictor(graph, RULES, Target(engine_version=version), "float16", "int8")
    layers = predictor.predict(EMPTY).plan.layers
    (found,) = (layer.nodes[0] for layer in layers if "add" in layer.nodes)
    return found


@pytest.mark.parametrize("convs", [MAIN_FIRST, SHORTCUT_FIRST])
@pytest.mark.parametrize("version", ["10.4", "11.0", None])
def test_new_versions_take_the_second_input_whatever_the_models_order(
    convs: str, version: str | None
):
    assert taker(convs, "c, s", version) == "shortcut"
    assert taker(convs, "s, c", version) == "main"


@pytest.mark.parametrize("convs", [MAIN_FIRST, SHORTCUT_FIRST])
@pytest.mark.parametrize("version", ["8.0.1", "8.2.1"])
def test_the_oldest_versions_take_the_first_input(convs: str, version: str):
    assert taker(convs, "c, s", version) == "main"
    assert taker(convs, "s, c", version) == "shortcut"


@pytest.mark.parametrize("added", ["c, s", "s, c"])
def test_between_them_the_models_order_decides(added: str):
    """Of ResNets the last in it on 8.4 (A100), the first on 8.6.1 (RTX 3080) and 8.6.3."""
    assert taker(SHORTCUT_FIRST, added, "8.4") == "main"
    assert taker(MAIN_FIRST, added, "8.4") == "shortcut"
    assert taker(MAIN_FIRST, added, "8.6.1") == taker(MAIN_FIRST, added, "8.6.3") == "main"


def taker_of_sizes(
    kernel: int, width: int, version: str, norms: str = "", added: str = "c, s"
) -> str:
    """The same; the main Conv reads 64 channels in a window of ``kernel``, the other ``width``."""
    graph = graph_of_text(
        f"{HEAD} g (float[1,{width},8,8] x) => (float[1,128,8,8] y) "
        f"<float[64,{width},1,1] v = {{1}}, float[128,64,{kernel},{kernel}] w = {{1}}, "
        f"float[128,{width},1,1] u = {{1}}, float[128] o = {{1}}, float[128] z = {{0}}> "
        f"{{ [stem] n = Conv(x, v) [act] m = Relu(n) "
        f"[main] c = Conv<pads = {[kernel // 2] * 4}>(m, w) [shortcut] s = Conv(x, u) {norms} "
        f"[add] a = Add({added}) [relu] y = Relu(a) }}"
    )
    target = Target(engine_version=version)
    predictor = Predictor(without_norms(graph, EMPTY), RULES, target, "float16", "int8")
    layers = predictor.predict(EMPTY).plan.layers
    (found,) = (layer.nodes[0] for layer in layers if "add" in layer.nodes)
    return found


@pytest.mark.parametrize(
    ("kernel", "width", "found"),
    [
        (3, 64, "shortcut"),  # ResNet18: 9 * 64 products against 64.
        (1, 64, "shortcut"),  # The first stage of ResNet50: as many, so the second input.
        (1, 128, "main"),  # Its other stages.
    ],
)
@pytest.mark.parametrize("added", ["c, s", "s, c"])
def test_from_tensorrt_10_on_the_conv_of_fewer_products_takes_it(
    kernel: int, width: int, found: str, added: str
):
    if kernel == 1 and width == 64:
        found = {"c, s": "shortcut", "s, c": "main"}[added]
    assert taker_of_sizes(kernel, width, "10.14", added=added) == found
    assert taker_of_sizes(kernel, width, "8.6.3", added=added) == "main"


def test_not_where_the_file_has_norms_behind_both():
    """torch_trt's ResNet18, in which the Conv of 3x3 takes it."""
    norms = "b = BatchNormalization(c, o, z, z, o) t = BatchNormalization(s, o, z, z, o)"
    assert taker_of_sizes(3, 64, "10.4", norms, "b, t") == "main"


NORMS = "b = BatchNormalization(c, o, z, z, o) n2 = BatchNormalization(s, o, z, z, o)"


@pytest.mark.parametrize(
    ("version", "added", "found"),
    [
        ("10.4", "b, n2", "main"),
        ("10.4", "n2, b", "shortcut"),
        ("8.4", "b, n2", "shortcut"),  # The last in the model's order, as without norms.
    ],
)
@pytest.mark.parametrize("quantized", [True, False])
def test_where_the_file_has_norms_behind_both_new_versions_take_the_first_input(
    version: str, added: str, found: str, quantized: bool
):
    """torch_trt's ResNet18 (10.1, 10.4) and MXNet's (10.1, TensorRT issue 4020)."""
    graph = graph_of_text(
        f"{HEAD} g (float[1,8,4,4] x) => (float[1,8,4,4] y) <float[8,8,1,1] w = {{1}}, "
        f"float[8] o = {{1}}, float[8] z = {{0}}> {{ [stem] n = Conv(x, w) [act] m = Relu(n) "
        f"{MAIN_FIRST} {NORMS} [add] a = Add({added}) [relu] y = Relu(a) }}"
    )
    convs = [n for n in graph.nodes if n.op == "Conv"] if quantized else []
    placement = Placement.of([Edge(n.inputs[i], n.name, i) for n in convs for i in (0, 1)])
    target = Target(engine_version=version)
    predictor = Predictor(without_norms(graph, placement), RULES, target, "float16", "int8")
    layers = predictor.predict(placement).plan.layers
    assert [layer.nodes for layer in layers if "add" in layer.nodes] == [(found, "add", "relu")]


def test_a_norm_behind_a_pair_or_read_elsewhere_is_no_part_of_its_conv():
    graph = graph_of_text(
        f"{HEAD} g (float[1,8,4,4] x) => (float[1,8,4,4] y, float[1,8,4,4] z2) "
        "<float[8,8,1,1] w = {1}, float[8] o = {1}, float[8] z = {0}> { [conv] c = Conv(x, w) "
        "[norm] b = BatchNormalization(c, o, z, z, o) [last] y = Conv(b, w) "
        "[left] d = Conv(x, w) [bare] z2 = BatchNormalization(d, o, z, z, o) }"
    )
    pair = Placement.of([Edge("c", "norm", 0)])
    assert [n.name for n in without_norms(graph, pair).nodes] == ["conv", "norm", "last", "left"]
    left = without_norms(graph, EMPTY)
    assert [(n.name, n.outputs[0]) for n in left.nodes] == [
        ("conv", "b"),
        ("last", "y"),
        ("left", "z2"),
    ]
    assert left.normalized == {"b", "z2"}
