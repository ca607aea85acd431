"""GroupNorms of lines that are made maps, as in U-Nets for trajectories, and of volumes."""

from tests.prediction.kernels.building import builder_test


def normed(back: str) -> str:
    ones, zeros = (", ".join([value] * 8) for value in ("1.0", "0.0"))
    return f"""
    (float[1,64,50] x) => (float[1,64,50] out)
    <float[64,64,5] w1 = {{1}}, float[64,64,5] w2 = {{1}}, float[64] b = {{1}},
     float[64,1,1] scale = {{1}}, float[64,1,1] shift = {{1}}> {{
      one = Constant<value = float[8] {{{ones}}}>()
      zero = Constant<value = float[8] {{{zeros}}}>()
      groups = Constant<value = int64[3] {{0, 8, -1}}>()
      whole = Constant<value = int64[4] {{1, 64, 1, 50}}>()
      two = Constant<value = int64[1] {{2}}>()
      first = Constant<value = int64 {{0}}>()
      [conv] a = Conv<pads = [2, 2], kernel_shape = [5]>(x, w1, b)
      [line] c = Unsqueeze(a, two)
      [view] d = Reshape(c, groups)
      [norm] e = InstanceNormalization(d, one, zero)
      [again] f = Reshape(e, whole)
      [scaled] h = Mul(f, scale)
      [shifted] i = Add(h, shift)
      {back}
      [soft] k = Softplus(j)
      [tanh] l = Tanh(k)
      [mish] m = Mul(j, l)
      [next] out = Conv<pads = [2, 2], kernel_shape = [5]>(m, w2)
    }}"""


def volume() -> str:
    ones, zeros = (", ".join([value] * 8) for value in ("1.0", "0.0"))
    return f"""
    (float[1,64,4,8,8] x) => (float[1,64,4,8,8] out)
    <float[64,64,3,1,1] w1 = {{1}}, float[64,64,3,1,1] w2 = {{1}},
     float[64,1,1,1] scale = {{1}}, float[64,1,1,1] shift = {{1}}> {{
      one = Constant<value = float[8] {{{ones}}}>()
      zero = Constant<value = float[8] {{{zeros}}}>()
      groups = Constant<value = int64[3] {{1, 8, -1}}>()
      whole = Constant<value = int64[5] {{1, 64, 4, 8, 8}}>()
      [conv] a = Conv<pads = [1, 0, 0, 1, 0, 0]>(x, w1)
      [view] d = Reshape(a, groups)
      [norm] e = InstanceNormalization(d, one, zero)
      [again] f = Reshape(e, whole)
      [scaled] h = Mul(f, scale)
      [shifted] i = Add(h, shift)
      [gate] s = Sigmoid(i)
      [silu] m = Mul(i, s)
      [next] out = Conv<pads = [1, 0, 0, 1, 0, 0]>(m, w2)
    }}"""


GATHERED = normed("[back] j = Gather<axis = 2>(i, first)")
test_norms_of_volumes = builder_test({"one kernel norms a volume": volume()}, opset=17)
test_norms_of_lines = builder_test(
    {
        "taken out by an index": GATHERED,
        "squeezed": normed("[back] j = Squeeze(i, two)"),
        "in INT8": ("x->conv w1->conv m->next w2->next", GATHERED),
    },
    opset=17,
)
