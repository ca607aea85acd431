"""The models of docs/recipes.md: the plan of a bad placement, and what optimize proposes instead.

Each recipe names the layers that users complain of, as the tensorrt pack predicts them for the
placement that they had, and the layer that the proposed placement must have instead. The latencies
behind the proposals are estimates.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from placer.graph import Edge, Graph
from placer.model import load_model
from placer.plan import Layer
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.quantization.placement_file import load_placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.conftest import Finished

PACK = load_pack("tensorrt")


@dataclass(frozen=True)
class Recipe:
    """``pairs``: what the user quantized, ``node.index`` or a tensor for all its readers."""

    name: str
    model: str
    pairs: tuple[str, ...]
    bad: tuple[str, ...]
    good: tuple[str, ...]


RESIDUAL = """
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,32,32,32] x) => (float[8,32,32,32] out)
            <float[32,32,3,3] w1 = {0.1}, float[32,32,3,3] w2 = {0.1},
             float[32,32,3,3] w3 = {0.1}> {
              [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
              [relu1] r = Relu(c)
              [conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w2)
              [add] s = Add(d, r)
              [relu2] t = Relu(s)
              [conv3] out = Conv<pads = [1, 1, 1, 1]>(t, w3)
            }"""

RECIPES = [
    Recipe(
        name="conv and maxpool no longer fuse (ResNet50 in explicit mode, 15% slower)",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,3,64,64] image) => (float[8,32,16,16] out)
            <float[32,3,7,7] w0 = {0.1}, float[32,32,3,3] w1 = {0.1}, float[32,32,3,3] w2 = {0.1}> {
              [stem] c = Conv<pads = [3, 3, 3, 3], strides = [2, 2]>(image, w0)
              [relu0] r = Relu(c)
              [pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(r)
              [conv1] a = Conv<pads = [1, 1, 1, 1]>(p, w1)
              [relu1] b = Relu(a)
              [conv2] d = Conv<pads = [1, 1, 1, 1]>(b, w2)
              [add] e = Add(d, p)
              [relu2] out = Relu(e)
            }""",
        pairs=("stem.0", "stem.1", "conv1.0", "conv1.1", "conv2.0", "conv2.1"),
        bad=("stem+relu0: int8 -> float16", "pool: float16 -> float16", "quantize p"),
        good=("stem+relu0+pool: int8 -> int8",),
    ),
    Recipe(
        name="the branches of a concat are requantized one by one (30% slower)",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,32,32,32] x) => (float[8,32,32,32] out)
            <float[32,32,3,3] w1 = {0.1}, float[32,32,1,1] w2 = {0.1},
             float[32,64,1,1] w3 = {0.1}> {
              [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
              [relu1] b = Relu(a)
              [conv2] c = Conv(x, w2)
              [relu2] d = Relu(c)
              [concat] e = Concat<axis = 1>(b, d)
              [conv3] out = Conv(e, w3)
            }""",
        pairs=("conv3.0", "conv3.1"),
        bad=("quantize b", "quantize d", "concat: int8, int8 -> int8"),
        good=(
            "conv1+relu1: int8 -> int8",
            "conv2+relu2: int8 -> int8",
            "concat: int8, int8 -> int8",
        ),
    ),
    Recipe(
        name="concat branches with scales of their own",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,32,32,32] x) => (float[8,32,32,32] out)
            <float[32,32,3,3] w1 = {0.1}, float[32,32,1,1] w2 = {0.1},
             float[32,64,1,1] w3 = {0.1}> {
              [conv1] b = Conv<pads = [1, 1, 1, 1]>(x, w1)
              [conv2] d = Conv(x, w2)
              [concat] e = Concat<axis = 1>(b, d)
              [conv3] out = Conv(e, w3)
            }""",
        pairs=("x", "w1", "w2", "w3", "b", "d", "e"),
        bad=("requantize b", "requantize d"),
        good=("conv1: int8 -> int8", "conv2: int8 -> int8", "concat: int8, int8 -> int8"),
    ),
    Recipe(
        name="ConvTranspose and its activation do not fuse behind the activation",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,128,32,32] x) => (float[8,128,64,64] out)
            <float[128,128,2,2] w1 = {0.1}, float[128,128,3,3] w2 = {0.1}> {
              [up] c = ConvTranspose<strides = [2, 2]>(x, w1)
              [relu] r = Relu(c)
              [conv] out = Conv<pads = [1, 1, 1, 1]>(r, w2)
            }""",
        pairs=("up.0", "up.1", "conv.0", "conv.1"),
        bad=("up: int8 -> float16", "relu: float16 -> float16", "quantize r"),
        good=("up: int8 -> int8",),
    ),
    Recipe(
        name="a pair between Conv and Swish splits what would be one kernel",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[8,32,32,32] x) => (float[8,32,32,32] out)
            <float[32,32,3,3] w1 = {0.1}, float[32,32,3,3] w2 = {0.1}> {
              [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
              [sigmoid] s = Sigmoid(c)
              [mul] m = Mul(c, s)
              [conv2] out = Conv<pads = [1, 1, 1, 1]>(m, w2)
            }""",
        pairs=("x", "w1", "w2", "c", "m"),
        bad=("conv1: int8 -> int8", "sigmoid+mul: int8, int8 -> int8"),
        good=("conv1+sigmoid+mul: int8 -> int8",),
    ),
    Recipe(
        name="a residual Add stays in float and Conv and ReLU before it write float",
        model=RESIDUAL,
        pairs=("conv1.0", "w1", "conv2.0", "w2", "conv3.0", "w3"),
        bad=(
            "conv1+relu1: int8 -> float16",
            "conv2+add+relu2: int8, float16 -> float16",
            "quantize t",
        ),
        good=("conv1+relu1: int8 -> int8", "conv2+add+relu2: int8, int8 -> int8"),
    ),
    Recipe(
        name="PyTorch's eager mode puts pairs on both inputs of the skip connection's Add",
        model=RESIDUAL,
        pairs=("x", "w1", "w2", "w3", "r", "d", "t"),
        bad=("conv2: int8 -> int8", "add+relu2: int8, int8 -> int8"),
        good=("conv2+add+relu2: int8, int8 -> int8",),
    ),
    Recipe(
        name="attention over more than 512 tokens is three layers in INT8 (issue 3724)",
        model="""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[1,2,576,64] x) => (float[1,2,576,64] out) <float c = {0.125}> {
              [reluq] q = Relu(x)
              [turnk] k = Transpose<perm = [0, 1, 3, 2]>(x)
              [scores] s = MatMul(q, k)
              [scale] t = Mul(s, c)
              [softmax] p = Softmax<axis = -1>(t)
              [mix] m = MatMul(p, x)
              [relu] out = Relu(m)
            }""",
        pairs=("q", "k", "p", "mix.1", "m"),
        bad=(
            "scores: int8, int8 -> float16",
            "scale+softmax: float16 -> int8",
            "mix: int8, int8 -> int8",
        ),
        good=("scores+scale+softmax+mix: float16, float16, float16 -> float16",),
    ),
]


@pytest.fixture(params=RECIPES, ids=lambda recipe: recipe.name.split(" (")[0])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    found = request.param
    assert isinstance(found, Recipe)
    return found


def quantized(graph: Graph, pairs: tuple[str, ...]) -> Placement:
    edges: list[Edge] = []
    for pair in pairs:
        node, _, index = pair.partition(".")
        if index:
            tensor = graph.by_name[node].inputs[int(index)]
            edges.append(Edge(tensor, node, int(index)))
        else:
            edges += graph.edges_of(pair)
    return Placement.of(edges)


def layers(graph: Graph, placement: Placement) -> list[str]:
    """Predicted layers as ``name: types -> types``, conversions by name only."""
    target = Target(compute_capability="8.0", typing="strong")
    plan = Predictor(graph, PACK.rules, target, "float16", "int8").predict(placement).plan
    return [_line(layer) for layer in plan.layers]


def _line(layer: Layer) -> str:
    if not layer.nodes:
        return layer.name
    return f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"


def test_the_placement_of_the_story_predicts_its_plan(recipe: Recipe, save: Callable[..., Path]):
    graph = load_model(save(recipe.model)).graph
    found = layers(graph, quantized(graph, recipe.pairs))
    assert [layer for layer in recipe.bad if layer not in found] == []


@pytest.mark.slow
def test_optimize_proposes_the_good_one(
    recipe: Recipe, save: Callable[..., Path], placer: Callable[..., Finished]
):
    path = save(recipe.model)
    flags = ("--engine", "fusion-model", "--gpu", "a100", "--preset", "quick", "--budget", "12")
    finished = placer("optimize", path, *flags, "--gate", "sqnr>=1", "--output", "out", "--json")
    assert finished.code == 0, finished.err
    result = json.loads(finished.out)
    assert result["engine"]["estimated"]
    graph = load_model(path).graph
    proposed = load_placement(Path("out/placement.yaml"), graph)
    found = layers(graph, proposed)
    assert [layer for layer in recipe.good if layer not in found] == []
    assert [layer for layer in recipe.bad if layer in found and layer not in recipe.good] == []
