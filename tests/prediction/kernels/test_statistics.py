"""Means and deviations of a line that are joined, as in embeddings of speakers."""

from tests.prediction.kernels.building import builder_test


def joined(parts: str, given: str = "[1,16,40]", axes: str = "[-1]") -> str:
    """A graph that joins ``parts`` of a mean, ``a``, and a deviation, ``d``."""
    rank = given.count(",") - 1
    window, pads = ",3" * rank, ", ".join("1" * 2 * rank)
    return f"""
    (float{given} x) => (float[1,8] out)
    <float[16,16{window}] w = {{1}}, float[32,8] f = {{1}}, float[8] b = {{1}}> {{
      count = Constant<value = float {{40}}>()
      less = Constant<value = float {{39}}>()
      [conv1] c = Conv<pads = [{pads}]>(x, w)
      [relu] y = Relu(c)
      [mean1] a = ReduceMean<axes = {axes}, keepdims = 0>(y)
      [mean2] m = ReduceMean<axes = {axes}, keepdims = 1>(y)
      [centre] s = Sub(y, m)
      [square] q = Mul(s, s)
      [variance] v = ReduceMean<axes = {axes}, keepdims = 0>(q)
      [total] t = Mul(v, count)
      [unbiased] u = Div(t, less)
      [root] d = Sqrt(u)
      [join] j = Concat<axis = 1>({parts})
      [dense] out = Gemm(j, f, b)
    }}"""


GRAPHS = {
    "the kernel that joins them takes the root": joined("a, d"),
    "in whatever order": joined("d, a"),
    "also of a map": joined("a, d", "[1,16,8,5]", "[2, 3]"),
    "behind an INT8 Conv": ("x->conv1 w->conv1", joined("a, d")),
    "and it quantizes both": ("j->dense f->dense", joined("a, d")),
}
test_deviations_beside_means = builder_test(GRAPHS, opset=17)
