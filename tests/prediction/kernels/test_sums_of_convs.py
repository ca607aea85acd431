"""Which of two Convs adds the other one's result: the one that the builder comes to later."""

from tests.prediction.kernels.building import builder_test

SUM = """(float[1,32,16,16] x {inputs}) => (float[1,32,16,16] out)
    <float[32,32,3,3] w = {{1}}, float[32,32,1,1] v = {{1}}, float[32,32,3,3] u = {{1}}> {{
      {body} [sum] s = Add(b, a) [active] out = Relu(s) }}"""
TWO = ", float[1,32,16,16] z"
A, B = "[deep] a = Conv<pads = [1, 1, 1, 1]>({}, u)", "[short] b = Conv({}, v)"
STEM = """[stem] c = Conv<pads = [1, 1, 1, 1]>(x, w) [relu1] d = Relu(c)
      [second] e = Conv<pads = [1, 1, 1, 1]>(d, u) [relu2] f = Relu(e)"""
LATERAL = "[lateral] l = Conv(d, v) [merge] m = Add(l, f)"
GRAPHS = {
    "that of the second input": SUM.format(inputs=TWO, body=f"{B.format('z')} {A.format('x')}"),
    "that of the shorter branch, if the other one waits for a third": SUM.format(
        inputs=TWO,
        body="[stem] c = Conv<pads = [1, 1, 1, 1]>(x, w) [relu1] d = Relu(c) "
        "[other] g = Conv<pads = [1, 1, 1, 1]>(z, w) [merge] m = Add(d, g) "
        f"{A.format('m')} {B.format('d')}",
    ),
    "so in necks whose lateral maps are added first": SUM.format(
        inputs="", body=f"{STEM} {LATERAL} {B.format('f')} {A.format('m')}"
    ),
    "but not if the file has the shorter branch first": SUM.format(
        inputs="", body=f"{STEM} {B.format('f')} {LATERAL} {A.format('m')}"
    ),
}

test_sums_of_convs = builder_test(GRAPHS, 17)
