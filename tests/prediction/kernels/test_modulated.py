"""Tokens that a row shifts, scales and gates, and maps made of tokens, in diffusion networks."""

from tests.prediction.kernels.building import builder_test

STEP = """
      axis = Constant<value = int64[1] {1}>()
      one = Constant<value = float {1.0}>()
      [step1] r = Tanh(t)
      [row1] row = Gemm(r, wr, br)"""


def modulated(tokens: int, changes: str) -> str:
    """Normed tokens that are scaled and shifted by parts of a row before a product."""
    return f"""
        (float[1,{tokens},64] x, float[1,32] t) => (float[1,{tokens},64] out)
        <float[32,128] wr = {{1}}, float[128] br = {{1}}, float[64] g = {{1}},
         float[64,64] w1 = {{1}}, float[64,64] w2 = {{1}}> {{
          {STEP}
          [parts1] a1, b1 = Split<axis = 1>(row)
          [long1] a2 = Unsqueeze(a1, axis)
          [long2] b2 = Unsqueeze(b1, axis)
          [product1] y = MatMul(x, w1)
          [norm1] n = LayerNormalization<axis = -1>(y, g)
          {changes}
          [product2] out = MatMul(m, w2)
        }}"""


SCALED = """[near1] a = Add(a2, one)
          [scale1] s = Mul(n, a)
          [shift1] m = Add(s, b2)"""
BLOCK = f"""
    (float[1,64,64] x, float[1,32] t) => (float[1,64,64] out)
    <float[32,384] wr = {{1}}, float[384] br = {{1}}, float[64] g = {{1}},
     float[64,64] w1 = {{1}}, float[64,64] w2 = {{1}}, float[64,64] w3 = {{1}}> {{
      {STEP}
      [parts1] a1, b1, c1, d1, e1, f1 = Split<axis = 1>(row)
      [long1] a = Unsqueeze(a1, axis)
      [long2] b = Unsqueeze(b1, axis)
      [long3] c = Unsqueeze(c1, axis)
      [long4] d = Unsqueeze(d1, axis)
      [long5] e = Unsqueeze(e1, axis)
      [long6] f = Unsqueeze(f1, axis)
      [product1] y = MatMul(x, w1)
      [norm1] n1 = LayerNormalization<axis = -1>(y, g)
      [near1] b0 = Add(b, one)
      [scale1] s1 = Mul(n1, b0)
      [shift1] m1 = Add(s1, a)
      [product2] p1 = MatMul(m1, w2)
      [gate1] q1 = Mul(c, p1)
      [add1] z = Add(y, q1)
      [norm2] n2 = LayerNormalization<axis = -1>(z, g)
      [near2] e0 = Add(e, one)
      [scale2] s2 = Mul(n2, e0)
      [shift2] m2 = Add(s2, d)
      [product3] p2 = MatMul(m2, w3)
      [gate2] q2 = Mul(f, p2)
      [add2] out = Add(z, q2)
    }}"""

SQUARES = f"""
    (float[1,64,64] x, float[1,32] t) => (float[1,64,64] out)
    <float[32,128] wr = {{1}}, float[128] br = {{1}}, float[64,64] w1 = {{1}}> {{
      {STEP}
      two = Constant<value = float {{2.0}}>()
      small = Constant<value = float {{1e-5}}>()
      [parts1] a1, b1 = Split<axis = 1>(row)
      [before] y = Relu(x)
      [square] y2 = Pow(y, two)
      [mean] v = ReduceMean<axes = [-1]>(y2)
      [above] e = Add(v, small)
      [root] q = Sqrt(e)
      [inverse] i = Reciprocal(q)
      [norm] n = Mul(y, i)
      [near1] a = Add(a1, one)
      [scale1] s = Mul(n, a)
      [shift1] m = Add(s, b1)
      [product1] p = MatMul(m, w1)
      [add1] out = Add(p, y)
    }}"""


def attended(behind: str, size: int = 8) -> str:
    """An attention of four heads whose rows become a map."""
    return f"""
        (float[1,64,64] x, float[1,64,8,8] given) => (float[1,32,{size},{size}] out)
        <float[64,64] wq = {{1}}, float[64,64] wk = {{1}}, float[64,64] wv = {{1}},
         float[64,64] wo = {{1}}, float[64] bo = {{1}}, float[32,64,3,3] w1 = {{1}}> {{
          heads = Constant<value = int64[4] {{1, -1, 4, 16}}>()
          rows = Constant<value = int64[3] {{1, -1, 64}}>()
          map = Constant<value = int64[4] {{1, 64, 8, 8}}>()
          sizes = Constant<value = int64[4] {{1, 64, {size}, {size}}}>()
          [query] q0 = MatMul(x, wq)
          [key] k0 = MatMul(x, wk)
          [value] v0 = MatMul(x, wv)
          [heads1] q1 = Reshape(q0, heads)
          [heads2] k1 = Reshape(k0, heads)
          [heads3] v1 = Reshape(v0, heads)
          [turn1] q2 = Transpose<perm = [0, 2, 1, 3]>(q1)
          [turn2] k2 = Transpose<perm = [0, 2, 3, 1]>(k1)
          [turn3] v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
          [scores] s = MatMul(q2, k2)
          [soft] p = Softmax<axis = -1>(s)
          [mix] o1 = MatMul(p, v2)
          [turn4] o2 = Transpose<perm = [0, 2, 1, 3]>(o1)
          [rows1] o3 = Reshape(o2, rows)
          [project] o4 = MatMul(o3, wo)
          [bias1] o5 = Add(o4, bo)
          [turn5] o6 = Transpose<perm = [0, 2, 1]>(o5)
          [map1] m = Reshape(o6, map)
          {behind}
          [conv1] out = Conv<pads = [1, 1, 1, 1]>(a, w1)
        }}"""


def stream(name: str) -> str:
    """Normed tokens that parts of a row of their own scale, shift and gate."""
    return f"""
      [row{name}] row{name} = Gemm(r, wr{name}, br)
      [parts{name}] a0{name}, b0{name}, c0{name} = Split<axis = 1>(row{name})
      [longa{name}] a{name} = Unsqueeze(a0{name}, axis)
      [longb{name}] b{name} = Unsqueeze(b0{name}, axis)
      [longc{name}] c{name} = Unsqueeze(c0{name}, axis)
      [first{name}] y{name} = MatMul({name}, w{name})
      [norm{name}] n{name} = LayerNormalization<axis = -1>(y{name}, g)
      [near{name}] s{name} = Add(b{name}, one)
      [scale{name}] m{name} = Mul(n{name}, s{name})
      [shift{name}] h{name} = Add(m{name}, a{name})
      [second{name}] o{name} = MatMul(h{name}, v{name})
      [bias{name}] p{name} = Add(o{name}, g)
      [gate{name}] q{name} = Mul(c{name}, p{name})
      [add{name}] k{name} = Add(y{name}, q{name})
      [again{name}] l{name} = LayerNormalization<axis = -1>(k{name}, g)
      [third{name}] out{name} = MatMul(l{name}, w{name})"""


STREAMS = f"""
    (float[1,64,64] x, float[1,8,64] z, float[1,32] t)
      => (float[1,64,64] outx, float[1,8,64] outz)
    <float[32,192] wrx = {{1}}, float[32,192] wrz = {{1}}, float[192] br = {{1}},
     float[64] g = {{1}}, float[64,64] wx = {{1}}, float[64,64] wz = {{1}},
     float[64,64] vx = {{1}}, float[64,64] vz = {{1}}> {{
      axis = Constant<value = int64[1] {{1}}>()
      one = Constant<value = float {{1.0}}>()
      [step1] r = Tanh(t)
      {stream("x")}
      {stream("z")}
    }}"""


def gated(parts: int) -> str:
    """Two blocks of tokens that a row of ``parts`` each, 3 or 4, scales, gates and scales."""
    cut = ", ".join(f"p{{0}}_{part}" for part in range(parts))
    block = f"""
      [row{{0}}] row{{0}} = Gemm(r, wr{{0}}, br)
      [parts{{0}}] {cut} = Split<axis = 1>(row{{0}})
      [longa{{0}}] a{{0}} = Unsqueeze(p{{0}}_0, axis)
      [longb{{0}}] b{{0}} = Unsqueeze(p{{0}}_1, axis)
      [longc{{0}}] c{{0}} = Unsqueeze(p{{0}}_2, axis)
      [norm{{0}}] n{{0}} = LayerNormalization<axis = -1>({{1}}, g)
      [scale{{0}}] m{{0}} = Mul(n{{0}}, a{{0}})
      [second{{0}}] o{{0}} = MatMul(m{{0}}, w)
      [gate{{0}}] q{{0}} = Mul(b{{0}}, o{{0}})
      [add{{0}}] k{{0}} = Add({{1}}, q{{0}})
      [again{{0}}] l{{0}} = LayerNormalization<axis = -1>(k{{0}}, g)
      [scales{{0}}] s{{0}} = Mul(l{{0}}, c{{0}})"""
    if parts > 3:
        block += """
      [longd{0}] d{0} = Unsqueeze(p{0}_3, axis)
      [shift{0}] t{0} = Add(s{0}, d{0})"""
    block += f"""
      [third{{0}}] h{{0}} = MatMul({"t" if parts > 3 else "s"}{{0}}, w)
      [end{{0}}] y{{0}} = Add(h{{0}}, k{{0}})"""
    return f"""
    (float[1,16,64] x, float[1,32] t) => (float[1,16,64] out)
    <float[32,{64 * parts}] wr1 = {{1}}, float[32,{64 * parts}] wr2 = {{1}},
     float[{64 * parts}] br = {{1}}, float[64] g = {{1}}, float[64,64] w = {{1}}> {{
      axis = Constant<value = int64[1] {{1}}>()
      [step1] r = Tanh(t)
      [first] y0 = MatMul(x, w)
      {block.format(1, "y0")}
      {block.format(2, "y1")}
      [last] out = MatMul(y2, w)
    }}"""


def added(parts: int) -> str:
    """As ``gated``, with biases that are no part of the products, as of tokens."""
    text = gated(parts)
    for block in (1, 2):
        row = f"[row{block}] row{block} = Gemm(r, wr{block}, br)"
        apart = f"[row{block}] o{block}r = MatMul(r, wr{block})\n"
        text = text.replace(row, f"{apart}[bias{block}] row{block} = Add(o{block}r, br)")
    return text


PAIRS = "m1->second1 w->second1 t1->third1 w->third1 m2->second2 w->second2"
RESIZED = """[sig1] b = Sigmoid(m)
          [resize1] a = Resize<mode = "nearest", nearest_mode = "floor",
              coordinate_transformation_mode = "asymmetric">(b, , , sizes)"""
GRAPHS = {
    "fewer rows than columns are normed by one kernel and scaled by another": modulated(48, SCALED),
    "as many rows as columns are normed and scaled by one kernel": modulated(64, SCALED),
    "means of squares are taken by a kernel that passes on what another one scales": SQUARES,
    "a row that is only multiplied by has a kernel of its own, too": modulated(
        24, "[scale1] m = Mul(n, b2)"
    ),
    "each kernel cuts its parts out of a row, whose bias is added once": BLOCK,
    "each kernel adds the bias of the part that it reads of one of several rows": STREAMS,
    "a kernel cuts a gate for a product out of one of several rows, and adds its bias": gated(3),
    "of four parts of one of several rows the first kernel writes three": gated(4),
    "so it is where an Add of its own adds the bias": added(4),
    "of three parts each kernel is called after that Add": added(3),
    "heads are stored as rows by a kernel for what makes a map of them": attended(
        "[sig1] a = Sigmoid(m)"
    ),
    "a map made of rows and computed with is resized by another kernel": attended(RESIZED, 16),
}

QUANTIZED = {"with pairs, too, but a product's kernel reads its gate": (PAIRS, gated(4))}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_so_they_are_with_pairs = builder_test(QUANTIZED, opset=17)
