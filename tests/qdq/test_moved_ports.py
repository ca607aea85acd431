"""Integers that enter or leave a model and are moved there, as a cache of INT8 keys is."""

from collections.abc import Callable
from pathlib import Path

import pytest

import placer
from placer.graph.text import parse_model
from placer.plan.diff import diff_plans
from placer.qdq.moved_ports import with_pairs_at_ports

CACHE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,8,1,64] q, float[1,8,1,64] k, int8[1,8,511,64] past)
 => (float[1,8,1,512] y, int8[1,8,512,64] present)
<float s = {0.05}, int8 z = {0}> {
  [new] n = QuantizeLinear(k, s, z)
  [cat] present = Concat<axis = 2>(past, n)
  [keys] d = DequantizeLinear(present, s, z)
  [turn] t = Transpose<perm = [0, 1, 3, 2]>(d)
  [scores] y = MatMul(q, t)
}
"""


def test_a_cache_is_as_if_the_rest_of_its_pair_stood_in_the_model():
    graph = parse_model(CACHE).graph
    put = with_pairs_at_ports(graph)
    (cat,) = (node for node in graph.node if node.op_type == "Concat")
    assert list(cat.input) == ["past/moved", "n"]
    assert list(cat.output) == ["present/moved"]
    written = {node.output[0]: node for node in graph.node}
    for tensor in ("past/moved", "present"):
        quantize = written[tensor]
        dequantize = written[quantize.input[0]]
        assert [quantize.op_type, dequantize.op_type] == ["QuantizeLinear", "DequantizeLinear"]
        assert list(quantize.input[1:]) == list(dequantize.input[1:]) == ["s", "z"]
    assert written["d"].input[0] == "present/moved"
    assert len(put) == 4


@pytest.mark.parametrize(
    "text",
    [
        CACHE.replace("[cat] present", "[act] m = Abs(past) [cat] present").replace(
            "(past,", "(m,"
        ),
        CACHE.replace("int8[1,8,511,64] past", "float[1,8,511,64] p").replace(
            "[cat]", "past = QuantizeLinear(p, s, z) [cat]"
        ),
    ],
    ids=["what computes with integers", "floats"],
)
def test_other_inputs_stay_as_they_are(text: str):
    graph = parse_model(text).graph
    before = [value.name for value in graph.input]
    with_pairs_at_ports(graph)
    read = {node.op_type for node in graph.node for tensor in node.input if tensor in before[2:]}
    assert read == ({"Abs"} if "Abs" in text else {"QuantizeLinear"})


@pytest.mark.usefixtures("builder")
def test_the_builder_appends_to_a_cache_of_integers(save: Callable[..., Path]):
    """No layer dequantizes what a Concat reads; the product reads keys as integers."""
    path = save(CACHE)
    explained = placer.explain(path, pack="tensorrt-rtx", base="float")
    built = placer.check(path).plan
    assert built is not None
    assert diff_plans(explained.explanation.plan, built).exact.f1 == 1
    (cat,) = (layer for layer in explained.explanation.plan.layers if "cat" in layer.nodes)
    assert set(cat.output_types) == {"int8"}


def test_no_remedy_names_a_pair_that_is_not_in_the_file(save: Callable[..., Path]):
    explained = placer.explain(save(CACHE), gpu="a10")
    edges = explained.explanation.pairs
    assert {name for names in edges.values() for name in names} == {"new", "keys"}
    cat = next(layer for layer in explained.explanation.plan.layers if "cat" in layer.nodes)
    assert cat.input_types == ("int8", "int8")
