"""Integers that enter and that several nodes read, as NVIDIA's builder copies them."""

from tests.prediction.kernels.building import builder_test

POSITIONS = """
    (int64[1,16] x) => (float[1,16,32] out)
    <float[100,32] words = {1}, float[40,32] places = {1}, float[32] g = {1}> {
      one = Constant<value = int64 {1}>()
      pad = Constant<value = int64 {1}>()
      [word] u = Gather(words, x)
      [equal] q = Equal(x, pad)
      [not] n = Not(q)
      [count] c = Cast<to = 6>(n)
      [sum] s = CumSum(c, one)
      [real] m = Mul(s, c)
      [index] p = Cast<to = 7>(m)
      [behind] a = Add(p, one)
      [place] v = Gather(places, a)
      [both] z = Add(u, v)
      [norm] out = LayerNormalization(z, g, g)
    }"""
MASK = """
    (int64[1,16] x) => (float[1,16,32] out)
    <float[100,32] words = {1}, float[32,32] w = {1}> {
      pad = Constant<value = int64 {1}>()
      axis = Constant<value = int64[1] {2}>()
      [equal] q = Equal(x, pad)
      [mask] c = Cast<to = 1>(q)
      [rows] k = Unsqueeze(c, axis)
      [word] u = Gather(words, x)
      [product] p = MatMul(u, w)
      [masked] out = Mul(p, k)
    }"""
SUMMED = """
    (int64[1,16] x) => (float[1,16,32] out)
    <float[100,32] words = {1}, float[400,32] places = {1}, float[32] g = {1}> {
      one = Constant<value = int64 {1}>()
      [sum] s = CumSum(x, one)
      [place] v = Gather(places, s)
      [word] u = Gather(words, x)
      [both] z = Add(u, v)
      [norm] out = LayerNormalization(z, g, g)
    }"""
test_entering_integers = builder_test(
    {
        "positions are counted where tokens are copied, words looked up where both are added": (
            POSITIONS
        ),
        "words and their mask are of one kernel": MASK,
        "a running sum reads a copy": SUMMED,
    },
    17,
)
