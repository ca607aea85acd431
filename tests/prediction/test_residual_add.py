"""Which of two Convs takes the Add of their results, by version of TensorRT."""

import pytest

from placer.graph.text import graph_of_text
from placer.prediction.predictor import Predictor
from placer.quantization import EMPTY
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
@pytest.mark.parametrize("version", ["8.6.3", "10.4", "11.0", None])
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
def test_between_them_the_last_in_the_models_order_takes_it(added: str):
    assert taker(SHORTCUT_FIRST, added, "8.4") == "main"
    assert taker(MAIN_FIRST, added, "8.4") == "shortcut"
