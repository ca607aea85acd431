"""Means and deviations of the columns of rows, as networks for series subtract and divide by."""

from tests.prediction.kernels.building import builder_test

SERIES = """(float[1,{rows},24] x) => (float out) <float[24,24] w = {{1}}> {{
      eps = Constant<value = float {{1.0}}>()
      {first}
      [mean] m = ReduceMean<axes = [1]>(n) [less] c = Sub(n, m)
      {then} }}"""
GIVEN = "[first] n = Relu(x)"
DIVIDED = """[square] q = Mul(c, c) [variance] v = ReduceMean<axes = [1]>(q) [add] a = Add(v, eps)
      [root] s = Sqrt(a) [divide] out = Div(c, s)"""
TWICE = """[active] d = Sigmoid(c) [last] out = Tanh(d)"""
GRAPHS = {
    "one kernel takes the mean, the deviations and their variance": SERIES.format(
        rows=96, first=GIVEN, then=DIVIDED
    ),
    "it ends with the deviations where no more is summed": SERIES.format(
        rows=96, first=GIVEN, then=TWICE
    ),
    "not of what another kernel writes": SERIES.format(
        rows=96, first="[product] n = MatMul(x, w)", then=TWICE
    ),
    "of long columns all is one kernel": SERIES.format(rows=720, first=GIVEN, then=DIVIDED),
    "largest values are subtracted there, too": SERIES.format(
        rows=96, first=GIVEN, then=TWICE
    ).replace("ReduceMean", "ReduceMax"),
    "what is computed of the mean alone is in the next kernel": SERIES.format(
        rows=96, first=GIVEN, then=TWICE
    ).replace("Sub(n, m)", "Sub(n, h)").replace("[less]", "[half] h = Mul(m, eps2) [less]")
    .replace("eps = ", "eps2 = Constant<value = float {0.5}>() eps = "),
}  # fmt: skip

test_columns = builder_test(GRAPHS, 17)
