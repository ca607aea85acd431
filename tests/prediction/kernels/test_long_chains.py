"""Chains of activations behind each other, through which there are very many paths."""

from collections.abc import Callable
from pathlib import Path

import placer

CHAIN = "".join(f"s{i} = Sigmoid(t{i}) t{i + 1} = Mul(t{i}, s{i}) " for i in range(30))


def test_what_is_behind_the_parts_of_a_concat_is_found_at_once(save: Callable[..., Path]):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,32,8,8] x) => (float[1,32,8,8] y)
    <float[32,32,1,1] w = {{1}}, float[32,64,1,1] v = {{1}}, float s = {{0.1}}, int8 z = {{0}}> {{
      a = Conv(x, w) m = ReduceMean<axes = [2, 3]>(a) t0 = Add(m, x) {CHAIN}
      b = Conv(x, w) r = Relu(b) [join] c = Concat<axis = 1>(t30, r)
      cq = QuantizeLinear(c, s, z) cd = DequantizeLinear(cq, s, z)
      vq = QuantizeLinear(v, s, z) vd = DequantizeLinear(vq, s, z)
      y = Conv(cd, vd)
    }}""")
    layers = placer.explain(path, pack="tensorrt-rtx").explanation.plan.layers
    assert not any("join" in layer.nodes for layer in layers)  # Parts are written in place.


def test_what_a_row_is_computed_to_is_found_at_once(save: Callable[..., Path]):
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,32] x) => (float[1,32] y) <float[32,32] w = {{1}}, float[32,32] v = {{1}}> {{
      [product0] t0 = MatMul(x, w) {CHAIN} [product1] y = MatMul(t30, v)
    }}""")
    layers = placer.explain(path, pack="tensorrt-rtx").explanation.plan.layers
    products = {"product0", "product1"}
    assert products <= {node for layer in layers for node in layer.nodes}


def test_more_nodes_than_python_nests_calls_are_computed_of_rows(save: Callable[..., Path]):
    chain = "".join(f"t{i + 1} = Tanh(t{i}) " for i in range(1200))
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,32] x) => (float[1,16,32] t1200) <float[32] s = {{1}}> {{
      t0 = LayerNormalization(x, s) {chain}
    }}""")
    (layer,) = placer.explain(path, pack="tensorrt-rtx").explanation.plan.layers
    assert len(layer.nodes) == 1201
