"""Sums of several operands become Adds, so that rules of residual connections fit them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from placer.model import load_model

Save = Callable[..., Path]

SUMS = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,6,5] x, float[4,1,1] y) => (float[1,4,6,5] out, float[1,4,6,5] one)
{
  [two] a = Sum(x, y)
  [three] b = Sum(a, x, y)
  [single] c = Sum(b)
  [act] out = Relu(c)
  [last] one = Sum(x, a)
}"""


def test_a_sum_is_a_row_of_adds(save: Save) -> None:
    path = save(SUMS)
    model = load_model(path)
    graph = model.graph
    assert sorted(node.op for node in graph.nodes) == ["Add", "Add", "Add", "Add", "Relu"]
    assert graph.by_name["two"].inputs == ("x", "y")
    assert graph.by_name["three"].inputs == ("b/part", "y")
    assert graph.by_name["last"].outputs == ("one",)
    assert "wrote 4 Sum nodes as Adds" in model.notes
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 4, 6, 5), np.float32),
        "y": rng.standard_normal((4, 1, 1), np.float32),
    }
    expected = ReferenceEvaluator(onnx.load(path)).run(None, feeds)
    for found, wanted in zip(
        ReferenceEvaluator(model.proto).run(None, feeds), expected, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_sums_in_bodies_are_adds_too(save: Save) -> None:
    text = """<ir_version: 9, opset_import: ["": 17]>
    g (bool b, float[4] x) => (float[4] out) {
      out = If(b) <
        then_branch = then () => (float[4] t) { t = Sum(x, x, x) },
        else_branch = other () => (float[4] e) { e = Relu(x) }>
    }"""
    model = load_model(save(text))
    (branching,) = model.proto.graph.node
    then = next(a.g for a in branching.attribute if a.name == "then_branch")
    assert [node.op_type for node in then.node] == ["Add", "Add"]
