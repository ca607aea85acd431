"""Heads of few channels, which no attention kernel takes: the builder's layers are predicted."""

from tests.prediction.kernels.building import builder_test


def attention(width: int, bias: bool = True) -> str:
    """Four heads of ``width`` channels over 64 tokens, as diffusion networks have them."""
    wide = 4 * width
    joined = {
        name: f"[bias{name}] {name} = Add(p{name}, b)"
        if bias
        else f"[same{name}] {name} = Identity(p{name})"
        for name in "qkv"
    }
    return f"""
    (float[1,64,{wide}] x) => (float[1,64,{wide}] out)
    <float[{wide},{wide}] w1 = {{1}}, float[{wide},{wide}] w2 = {{1}},
     float[{wide},{wide}] w3 = {{1}}, float[{wide},{wide}] w4 = {{1}}, float[{wide}] b = {{1}}> {{
      heads = Constant<value = int64[4] {{1, 64, 4, {width}}}>()
      rows = Constant<value = int64[3] {{1, 64, {wide}}}>()
      half = Constant<value = float {{0.5}}>()
      [relu1] r = Relu(x)
      [productq] pq = MatMul(r, w1)
      {joined["q"]}
      [productk] pk = MatMul(r, w2)
      {joined["k"]}
      [productv] pv = MatMul(r, w3)
      {joined["v"]}
      [longq] lq = Reshape(q, heads)
      [turnq] tq = Transpose<perm = [0, 2, 1, 3]>(lq)
      [longk] lk = Reshape(k, heads)
      [turnk] tk = Transpose<perm = [0, 2, 3, 1]>(lk)
      [longv] lv = Reshape(v, heads)
      [turnv] tv = Transpose<perm = [0, 2, 1, 3]>(lv)
      [scale1] s = Mul(tq, half)
      [scores1] c = MatMul(s, tk)
      [soft1] a = Softmax<axis = -1>(c)
      [mix1] m = MatMul(a, tv)
      [turn1] t = Transpose<perm = [0, 2, 1, 3]>(m)
      [flat1] f = Reshape(t, rows)
      [product1] o = MatMul(f, w4)
      [bias1] out = Add(o, b)
    }}"""


GRAPHS = {
    "heads of eight channels are multiplied by kernels of products": attention(8),
    "which read where they lie those of products without a bias": attention(8, bias=False),
    "heads of twelve channels are padded for one kernel": attention(12),
    "heads of sixteen are one kernel": attention(16),
}
QUANTIZED = {
    "what scales an INT8 product's sums scales queries as well": (
        "r->productq w1->productq r->productk w2->productk r->productv w3->productv",
        attention(8),
    ),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=17)
