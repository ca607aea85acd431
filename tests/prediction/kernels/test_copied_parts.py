"""Depthwise Convs of what is joined with what they make, as ghost blocks have them."""

from tests.prediction.kernels.building import builder_test


def ghost(act: str, window: int = 1, behind: str = "[next] out = Conv(q, w4)") -> str:
    """``window``: channels that each output of the second Conv reads."""
    groups = 64 // window
    return f"""
    (float[1,64,8,8] x) => (float[1,128,8,8] out)
    <float[64,64,1,1] w1 = {{1}}, float[64,{window},3,3] w2 = {{1}}, float[64] b = {{1}},
     float[128,64,1,1] w3 = {{1}}, float[128,128,1,1] w4 = {{1}}, float[128] b3 = {{1}}> {{
      [first] a = Conv(x, w1, b)
      [relu] y = Relu(a)
      [cheap] c = Conv<group = {groups}, pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(y, w2, b)
      {act}
      [join] q = Concat<axis = 1>(y, z)
      {behind}
    }}"""


ADDED = "[short] k = Conv(x, w3, b3) [sum] out = Add(q, k)"
test_parts = builder_test(
    {
        "an activation of the Conv's kernel": ghost("[act] z = Relu(c)"),
        "one of a generated kernel": ghost("[act] z = LeakyRelu(c)"),
        "none": ghost("[act] z = Identity(c)"),
        "other Convs read the part itself": ghost("[act] z = Relu(c)", window=64),
        "a Conv's kernel adds what is joined": ghost("[act] z = Identity(c)", behind=ADDED),
        "of all channels": ghost("[act] z = Identity(c)", window=64, behind=ADDED),
    },
    opset=17,
)
