"""How many rows of memory a layer goes through, and which node it is named after."""

import pytest

from placer.graph.text import graph_of_text
from placer.prediction.layers.predictor import Predictor
from placer.prediction.select import make_predictor
from placer.prediction.times.layer_parts import CostKey, Part, ancestors, layer_parts
from placer.prediction.times.plan_parts import plan_parts
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET

PACK = load_pack("openvino")


def _parts(inputs: str, node: str, output: str, last: bool | None) -> tuple[Part, ...]:
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 18]>
    g ({inputs}) => ({output} out) <float[1,12,3,3] k = {{1}}, float[12,1,3,3] d = {{1}},
        float[8,8,1,1] p = {{1}}, float[1,1,1,32] row = {{1}}, float[1,8,1,1] channel = {{1}},
        float one = {{1}}, float[2] scales = {{1, 1}}> {{
      [node] out = {node}
    }}
    """)
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    return layer_parts(next(layer for layer in layers if layer.nodes), graph, last)


IMAGE, PAIR = "float[1,8,16,32] x", "float[1,8,16,32] x, float[1,8,16,32] y"


@pytest.mark.parametrize(
    ("inputs", "node", "output", "last", "rows"),
    [
        # Heads move whole, single elements of a matrix do not, and no axis of one element moves.
        ("float[1,64,2,16] x", "Transpose<perm = [0, 2, 1, 3]>(x)", "float[1,2,64,16]", None, 128),
        ("float[1,64,32] x", "Transpose<perm = [0, 2, 1]>(x)", "float[1,32,64]", None, 2048),
        ("float[64,1,32] x", "Transpose<perm = [1, 0, 2]>(x)", "float[1,64,32]", None, 0),
        # Of two maps each one's channels at once, or each one's at every pixel.
        (PAIR, "Concat<axis = 1>(x, y)", "float[1,16,16,32]", False, 2),
        (PAIR, "Concat<axis = 1>(x, y)", "float[1,16,16,32]", True, 2 * 16 * 32),
        # Lines and channels that are repeated; not scalars and tensors of one shape.
        (IMAGE, "Add(x, row)", "float[1,8,16,32]", None, 8 * 16),
        (IMAGE, "Mul(x, channel)", "float[1,8,16,32]", None, 8),
        (IMAGE, "Mul(x, one)", "float[1,8,16,32]", None, 0),
        (PAIR, "Add(x, y)", "float[1,8,16,32]", None, 0),
        (IMAGE, "Conv(x, p)", "float[1,8,16,32]", None, 16 * 32),
        ("float[1,12,8,8] x", "Conv<group = 12>(x, d)", "float[1,12,6,6]", None, 36 * 9 * 12),
    ],
)
def test_rows_are_stretches_of_memory(
    inputs: str, node: str, output: str, last: bool | None, rows: int
):
    parts = _parts(inputs, node, output, last)
    found = [part.mops for part in parts if part.key.name.startswith("rows of")]
    assert found == ([pytest.approx(rows / 1e6)] if rows else [])


def test_rows_of_a_kind_that_was_not_measured_cost_what_others_of_its_type_do():
    assert ancestors(CostKey("rows of Slice", "uint8")) == (
        CostKey("rows", "uint8"),
        CostKey("rows", ""),
    )


def test_a_sum_with_a_norm_behind_it_is_a_norm():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,32] x, float[1,8,32] y) => (float[1,8,32] out) <float[32] g = {1}> {
      [add] sum = Add(x, y)
      [norm] out = LayerNormalization(sum, g)
    }
    """)
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    names = [part.key.name for layer in layers for part in layer_parts(layer, graph)]
    assert "LayerNormalization" in names


@pytest.mark.parametrize(("size", "kind"), [("32", "row-major conv"), ("32,32", "conv")])
def test_float_convolutions_that_do_not_run_in_blocks_are_kinds_of_their_own(size: str, kind: str):
    window = ",".join("3" for _ in size.split(","))
    written = ",".join("30" for _ in size.split(","))
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,{size}] x) => (float[1,16,{written}] y) <float[16,16,{window}] w = {{1}}> {{
      [conv] y = Conv(x, w)
    }}
    """)
    prediction = make_predictor(graph, load_pack("onnxruntime"), ANY_TARGET, "float").predict(EMPTY)
    names = [part.key.name for parts in plan_parts(prediction, graph, True) for part in parts]
    assert names[0] == kind
    assert ancestors(CostKey(kind, "float"))[-1] == CostKey("conv", "")
