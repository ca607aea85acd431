"""A few small rules, and predictions by them: a change of the built-in packs changes none."""

from collections.abc import Sequence

from placer.common.yaml_file import parse_text
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.rules.schema import Rule
from placer.rules.target import Target, Typing
from tests.prediction.test_motion import HEAD

CONV = """
id: conv
pattern:
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
  act: {op: Relu, inputs: [c], output: y, optional: true}
layouts:
  int8:
    quantize: [conv.x, conv.w]
    default: true
    fuses: [{nodes: [conv, act], op: Convolution, inputs: int8, outputs: readers}]
  float:
    fuses: [{nodes: [conv, act], op: Convolution, inputs: float, outputs: float}]
"""
RESIDUAL = """
id: residual
priority: 1
pattern:
  add: {op: Add, inputs: [c, r], output: y, commutative: true}
  conv: {op: Conv, inputs: [x, w, "b?"], output: c}
layouts:
  int8-residual:
    quantize: [conv.x, conv.w, add.r]
    default: true
    fuses: [{nodes: [conv, add], op: Convolution, inputs: int8, outputs: int8}]
  float-residual:
    quantize: [conv.x, conv.w]
    fuses:
      - {nodes: [conv, add], op: Convolution, inputs: int8, outputs: float, float_like: add.r}
  both:
    quantize: [add.c, add.r]
    fuses: [{nodes: [add], op: PointWise, inputs: int8, outputs: readers}]
  float:
    fuses: [{nodes: [conv, add], op: Convolution, inputs: float, outputs: float}]
"""
STEM = """
id: stem
priority: 2
pattern:
  conv: {op: Conv, inputs: [x, w, "b?"], output: y}
where: [{dim: {tensor: x, axis: 1, at_most: 3}}]
layouts:
  int8:
    quantize: [conv.x, conv.w]
    default: true
    fuses:
      - nodes: [conv]
        op: Convolution
        inputs: int8
        outputs: readers
        float_type: float
        when: {typing: weak}
"""
MOVES = """
id: moves
pattern: {op: {op: [MaxPool, Reshape], inputs: [x, "_*"], output: y}}
motion: {before: x, after: y}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [op], op: [Pooling, NoOp], inputs: int8, outputs: same, reads: [op.x]}
      - {nodes: [op], op: [Pooling, NoOp], inputs: float, outputs: same}
"""
CONCAT = """
id: concat
pattern: {join: {op: Concat, inputs: ["xs*"], output: y}}
motion: {before: xs, after: y}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [join], op: Concat, inputs: int8, outputs: same, reads: [join.xs]}
      - {nodes: [join], op: Concat, inputs: float, outputs: same}
"""
SPLIT = """
id: split
pattern: {split: {op: Split, inputs: [x, "_?"], output: ["ys*"]}}
motion: {before: x, after: ys}
layouts:
  follow:
    default: true
    fuses:
      - {nodes: [split], op: Slice, inputs: int8, outputs: same, reads: [split.x]}
      - {nodes: [split], op: Slice, inputs: float, outputs: same}
"""


def rule(text: str) -> Rule:
    return parse_text(f"why: a sentence for the test\nsource: test\n{text}", "rule.yaml", Rule)


PACK = tuple(map(rule, (CONV, RESIDUAL, STEM, MOVES, CONCAT, SPLIT)))


def predict(
    graph: Graph,
    *groups: Sequence[Edge],
    rules: Sequence[Rule] = PACK,
    typing: Typing = "strong",
    base: str = "float16",
) -> Prediction:
    """The prediction with these scale groups; every weight has a pair too."""
    weights = [[e] for t in graph.initializers for e in graph.edges_of(t) if t.startswith("w")]
    placement = Placement.of_groups((*groups, *weights))
    return Predictor(graph, rules, Target(typing=typing), base, "int8").predict(placement)


def lines(prediction: Prediction) -> list[str]:
    """A layer per line, as in the tests of rules."""
    layers = prediction.plan.layers
    return [f"{x.name}: {', '.join(x.input_types)} -> {', '.join(x.output_types)}" for x in layers]


def graph_of(signature: str, body: str, constants: str = "") -> Graph:
    """A graph of tensors of shape (1, 4, 4, 4) or as written, and 1x1 convolutions."""
    weights = "float[4,4,1,1] w1 = {1}, float[4,3,1,1] w3 = {1}, int64[2] k = {1,-1}"
    weights += f", {constants}" if constants else ""
    return graph_of_text(f"{HEAD} g {signature} <{weights}> {{ {body} }}")


X, C, R = Edge("x", "conv1", 0), Edge("c", "relu1", 0), Edge("r", "conv2", 0)

BLOCK = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] out)",
    "[short] s = Conv(x, w1) [long] c = Conv(x, w1) [add] a = Add(s, c) [conv3] out = Conv(a, w1)",
)

INPUTS, A3 = [Edge("x", "short", 0), Edge("x", "long", 0)], Edge("a", "conv3", 0)

FORK = graph_of(
    "(float[1,4,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b, float[1,4,4,4] s)",
    "[conv1] c = Conv(x, w1) [conv2] a = Conv(c, w1) [conv3] b = Conv(c, w1) "
    "[sigmoid1] s = Sigmoid(c)",
)
TO_2, TO_3, TO_S = Edge("c", "conv2", 0), Edge("c", "conv3", 0), Edge("c", "sigmoid1", 0)
