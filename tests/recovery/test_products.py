"""Layers as products: what they give is what they read times their weights."""

from pathlib import Path

import numpy as np
import pytest

from placer.recovery.products import products_of
from tests.calibration.conftest import model_of

# More samples than channels, of a Conv with uneven sides.
CONV = """
<ir_version: 9, opset_import: ["": 17]>
g (float[4,2,7,5] x) => (float[4,6,4,3] y)
<float[6,1,3,2] w = {1}> {
  [layer] y = Conv<group = 2, strides = [2, 2], pads = [1, 1, 1, 0]>(x, w)
}
"""
MATMUL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[4,3,5] x) => (float[4,3,6] y)
<float[5,6] w = {1}> {
  [layer] y = MatMul(x, w)
}
"""
GEMM = """
<ir_version: 9, opset_import: ["": 17]>
g (float[4,5] x) => (float[4,6] y)
<float[6,5] w = {1}> {
  [layer] y = Gemm<transB = 1>(x, w)
}
"""


@pytest.mark.parametrize("text", [CONV, MATMUL, GEMM])
def test_rows_times_weights_are_what_the_layer_gives(tmp_path: Path, text: str):
    model = model_of(text, tmp_path)
    (product,) = products_of(model)
    rng = np.random.default_rng(0)
    x, weight = (
        rng.normal(size=model.graph.type_of(tensor).shape).astype(np.float32)
        for tensor in product.node.inputs[:2]
    )
    (given,) = product.apply(weight, np.zeros(6, np.float32), [x])
    at = rng.permutation(product.positions(given))
    rows = product.rows(x, at, weight.shape[2:])
    computed = np.einsum("pgk,gok->pgo", rows, product.matrix(weight))
    assert np.allclose(computed, product.given(given, at), atol=1e-5)
