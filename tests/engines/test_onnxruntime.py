"""ONNX Runtime's CPU provider: what the pack claims is what the engine builds."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.networks import topologies
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.onnxruntime.engine import ModelFile
from placer.engines.select import select_engine
from placer.errors import InputError, RunError
from placer.graph import Edge, Graph
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.plan import Layer, Plan
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.blocked import is_blocked
from placer.rules.fusion_schema import Fusion
from placer.rules.match import Match
from placer.rules.matcher import match_rules
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Layout, Rule
from placer.rules.sites import find_sites, place

Save = Callable[..., Path]

PACK = load_pack("onnxruntime")
FUSING = [
    pytest.param(rule, layout, index, id=f"{rule.id}-{layout}-{index}")
    for rule in PACK.rules
    # Loading takes integer products apart: tests/explaining/test_explain.py builds these as files.
    if not any("MatMulInteger" in node.op for node in rule.pattern.values())
    for layout in rule.layouts
    for index in range(len(rule.layouts[layout].fuses))
]

# What layers read whose only integers are a constant, which is no tensor of a plan; by `reads`.
BESIDE_CONSTANTS = {("matmul.w",): "float", ("gemm.w",): "float", ("gather.table",): "int64"}
# Layers of floats, by rule and layout, that become others where no pair is behind them.
BEFORE_PAIRS = {("matmul-bias", "float", 4), ("matmul-bias-relu", "follow", 2)}


def placement_of(
    graph: Graph, match: Match, layout: Layout, fusion: Fusion, before_pairs: bool
) -> Placement:
    """The pairs that the layer needs, and no others; ``before_pairs``: those behind it, too."""
    nodes = [match.nodes[name] for name in fusion.nodes if name in match.nodes]
    names = {node.name for node in nodes}
    references = layout.quantize if fusion.reads is None else fusion.reads
    read = [e for r in references for e in match.edges(r, graph) if e.node in names]
    if fusion.joins:  # All that read the tensor become one layer.
        read = [e for edge in read for e in graph.edges_of(edge.tensor)]
        names = {edge.node for edge in read}
        nodes = [node for node in graph.nodes if node.name in names]
    # Between the layer's own nodes are only pairs that ONNX Runtime moves there.
    inner = {tensor for node in nodes for tensor in node.outputs}
    absorbed = [e for r in fusion.absorbs for e in match.edges(r, graph) if e.tensor not in inner]
    written = [
        e for n in nodes for t in n.outputs for e in graph.edges_of(t) if e.node not in names
    ]
    if fusion.outputs != "uint8" and fusion.readers_quantized is None and not before_pairs:
        return Placement.of([*read, *absorbed])
    tied = [tuple({e.tensor for e in (*read, *written)})]
    return Placement.of(
        [*read, *absorbed, *written], tied if fusion.readers_quantized == "as-read" else []
    )


def stacked(graph: Graph, placement: Placement) -> frozenset[Edge]:
    """Weights of products with more than two dimensions, whose scales are not by channel."""
    products = {node.name for node in graph.nodes if node.op == "MatMul"}
    wide = {name for name, tensor in graph.initializers.items() if len(tensor.dims) > 2}
    return frozenset(e for e in placement.edges if e.node in products and e.tensor in wide)


def example_of(rule: Rule, fusion: Fusion) -> str:
    """The graph of the rule's first test with all nodes of the layer, else of its first test."""
    whole = (t for t in rule.tests if any({*fusion.nodes} <= {*match} for match in t.matches[:1]))
    return next(whole, rule.tests[0]).model


def plan_of(path: Path, rule: Rule, name: str, index: int) -> tuple[Plan, dict[str, str]]:
    """The engine's plan of the first match for a layer of a layout; names of the match's nodes."""
    layout, fusion = rule.layouts[name], rule.layouts[name].fuses[index]
    model = load_model(path)
    match = match_rules(model.graph, [rule])[0]
    before_pairs = (rule.id, name, index) in BEFORE_PAIRS
    placement = placement_of(model.graph, match, layout, fusion, before_pairs)
    placement = placement.with_weights(stacked(model.graph, placement))
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 4, 0)).ranges(
        "minmax", PACK.manifest.scheme
    )
    candidate = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    compiled = OnnxRuntimeEngine().compile(candidate, model.base_dir)
    return compiled.plan(), {name: node.name for name, node in match.nodes.items()}


def fits(layer: Layer, fusion: Fusion, covered: tuple[str, ...]) -> bool:
    written = fusion.inputs if fusion.outputs == "same" else fusion.outputs
    read = BESIDE_CONSTANTS.get(tuple(fusion.reads or ()), fusion.inputs)
    return (
        layer.op in fusion.op
        and (layer.nodes == covered or (fusion.joins and set(covered) < set(layer.nodes)))
        and set(layer.input_types) - {"bool"} == {read}
        and set(layer.output_types) == {written}
    )


@pytest.mark.parametrize(("rule", "name", "index"), FUSING)
def test_the_layers_that_a_layout_promises_are_built(save: Save, rule: Rule, name: str, index: int):
    fusion = rule.layouts[name].fuses[index]
    plan, nodes = plan_of(save(example_of(rule, fusion)), rule, name, index)
    covered = tuple(sorted(nodes[name] for name in fusion.nodes if name in nodes))
    if fusion.op == ["NoOp"]:
        # They are gone, or one pair before and behind them is, and a neighbour tells of them.
        assert not [layer for layer in plan.layers if layer.nodes and {*layer.nodes} <= {*covered}]
    else:
        assert any(fits(layer, fusion, covered) for layer in plan.layers), (fusion, plan)


CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,4,4] y)
<float[16,16,3,3] w1 = {1}, float[16,16,1,1] w2 = {1}> {
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r = Relu(c)
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
  [conv2] y = Conv(p, w2)
}
"""


def test_a_chain_runs_on_integers_from_end_to_end(save: Save):
    model = load_model(save(CHAIN))
    placement = place(find_sites(model.graph, PACK.rules), {})
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 4, 0)).ranges(
        "minmax", PACK.manifest.scheme
    )
    candidate = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    plan = OnnxRuntimeEngine().compile(candidate, model.base_dir).plan()
    layers = [layer for layer in plan.layers if layer.nodes]
    assert [(layer.op, layer.nodes) for layer in layers] == [
        ("QLinearConv", ("conv1", "relu1")),
        ("MaxPool", ("pool1",)),
        ("QLinearConv", ("conv2",)),
    ]
    assert {t for layer in layers for t in (*layer.input_types, *layer.output_types)} == {"uint8"}
    others = [layer.op for layer in plan.layers if not layer.nodes]
    assert others.count("QuantizeLinear") == others.count("DequantizeLinear") == 1


def float_and_default(
    path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[tuple[onnx.ModelProto, Plan]]:
    """The float model at ``path`` and its default candidate, and what runs of each."""
    model = load_model(path, shapes or {})
    placement = place(find_sites(model.graph, PACK.rules), {})
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    scheme = PACK.manifest.scheme
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    for proto in (model.proto, Inserter(model, scheme).insert(placement, ranges)):
        yield proto, OnnxRuntimeEngine().compile(proto, model.base_dir).plan()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("resnet18", marks=pytest.mark.slow),
        "mobilenet_v2",
        "unet",
        "c2f",
        "vit_block",
    ],
)
def test_every_node_of_a_network_is_in_one_layer_or_removed(tmp_path: Path, name: str):
    onnx.save(topologies.TOPOLOGIES[name](), tmp_path / "net.onnx")
    for proto, plan in float_and_default(tmp_path / "net.onnx"):
        assert_covered(proto, plan)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("v2.0_cls", (48, 192)),
        pytest.param("v4_det", (64, 64), marks=pytest.mark.slow),
        pytest.param("v4_rec", (48, 64), marks=pytest.mark.slow),
    ],
)
def test_every_node_of_an_ocr_network_is_in_one_layer_or_removed(name: str, size: tuple[int, int]):
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        pytest.skip("rapidocr-onnxruntime is not installed")
    (path,) = Path(package.origin).parent.glob(f"models/*{name}_infer.onnx")
    for proto, plan in float_and_default(path, {"x": (1, 3, *size)}):
        assert_covered(proto, plan)


def assert_covered(proto: onnx.ModelProto, plan: Plan) -> None:
    pairs = ("QuantizeLinear", "DequantizeLinear")
    nodes = [node.name for node in proto.graph.node if node.op_type not in pairs]
    covered = [node for layer in plan.layers for node in layer.nodes]
    assert sorted((*covered, *plan.removed)) == sorted(nodes)
    computing = plan.of_kind("compute")
    assert "unknown" not in {t for layer in computing for t in layer.output_types}
    # No fusion of ONNX Runtime is larger than that of a LayerNormalization of nine nodes.
    assert max(len(layer.nodes) for layer in computing) <= 9


def test_a_blocked_convolution_covers_the_add_and_the_relu_behind_it(save: Save):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] y)
    <float[16,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}> {
      [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [conv2] b = Conv<pads = [1, 1, 1, 1]>(a, w2)
      [add1] s = Add(a, b)
      [relu1] y = Relu(s)
    }
    """
    (_, plan), _ = float_and_default(save(text))
    computing = {layer.nodes: layer for layer in plan.of_kind("compute")}
    assert computing.keys() == {("conv1",), ("add1", "conv2", "relu1")}
    (fused,) = (layer for nodes, layer in computing.items() if "add1" in nodes)
    assert [port.tensor for port in fused.inputs] == ["a", "a"]
    assert [port.tensor for port in fused.outputs] == ["y"]


def test_layers_do_not_reach_past_tensors_that_onnx_runtime_invents(save: Save):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,64] y)
    <float[16,16,1,1] w1 = {1}, int64[3] flat = {1, 16, 64}, float[64,64] w2 = {1}> {
      [conv1] a = Conv(x, w1)
      [move1] t = Transpose<perm = [0, 1, 3, 2]>(a)
      [reshape1] r = Reshape(t, flat)
      [matmul1] y = MatMul(r, w2)
    }
    """
    _, (proto, plan) = float_and_default(save(text))
    assert_covered(proto, plan)
    assert all(len(layer.nodes) <= 1 for layer in plan.layers)


GONE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,32] x) => (float[1,16,8] y)
<float[32,8] w = {1}, float[8] b = {1}, float one = {1}> {
  [tanh1] t = Tanh(x)
  [times1] u = Mul(t, one)
  [proj1] m = MatMul(u, w)
  [bias1] r = Add(m, b)
  [sum1] s = Add(r, one)
  [relu2] y = Relu(s)
}
"""


def test_what_onnx_runtime_takes_out_is_in_no_layer(save: Save):
    model = load_model(save(GONE))
    pairs = [Edge("u", "proj1", 0), Edge("w", "proj1", 1), Edge("r", "sum1", 0), Edge("y", "", 0)]
    scheme = PACK.manifest.scheme
    ranges = calibrate(model, {"u", "r", "y"}, synthetic_dataset(model, 1, 0))
    candidate = Inserter(model, scheme).insert(Placement.of(pairs), ranges.ranges("minmax", scheme))
    plan = OnnxRuntimeEngine().compile(candidate, model.base_dir).plan()
    layers = [(layer.op, layer.nodes) for layer in plan.of_kind("compute")]
    # Not to the Reshape behind the Gemm, nor to the Add before a QuantizeLinear.
    assert layers == [
        ("Tanh", ("tanh1",)),
        ("QGemm", ("bias1", "proj1")),
        ("Add", ("sum1",)),
    ]
    assert plan.removed == ("times1", "relu2")


MOVED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,49,32] x) => (float[1,32,7,7] y)
<int64[4] shape = {1, 32, 7, 7}> {
  [swish1] s = HardSwish(x)
  [move1] t = Transpose<perm = [0, 2, 1]>(s)
  [reshape1] y = Reshape(t, shape)
}
"""


def test_a_transpose_that_was_moved_and_an_operator_that_was_taken_apart_are_layers(save: Save):
    model = load_model(save(MOVED))
    plan = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    assert [(x.nodes, x.kind) for x in plan.layers] == [
        (("swish1",), "compute"),  # a HardSigmoid and a Mul
        (("reshape1",), "compute"),
        (("move1",), "compute"),
    ]


BESIDE_LAYOUTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,16] x, float[1,16,8,8] z) => (float[1,16,8,8] y)
<int64[4] shape = {1, 16, 8, 8}, float[16,1,1] k = {1}, float[16,16,3,3] w = {1}> {
  [move1] t = Transpose<perm = [0, 2, 1]>(x)
  [reshape1] r = Reshape(t, shape)
  [mul1] m = Mul(r, k)
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(z, w)
  [add1] y = Add(m, c)
}
"""


def built_plan(model: Model, pairs: list[Edge], activations: set[str]) -> Plan:
    """What is built with ``pairs``; ``activations``: their tensors that are no weights."""
    scheme = PACK.manifest.scheme
    ranges = calibrate(model, activations, synthetic_dataset(model, 1, 0))
    candidate = Inserter(model, scheme).insert(Placement.of(pairs), ranges.ranges("minmax", scheme))
    return OnnxRuntimeEngine().compile(candidate, model.base_dir).plan()


def test_transposes_to_another_layout_are_not_one_that_was_moved(save: Save):
    model = load_model(save(BESIDE_LAYOUTS))
    pairs = [Edge("z", "conv1", 0), Edge("w", "conv1", 1), Edge("c", "add1", 1)]
    plan = built_plan(model, pairs, {"z", "c"})
    # ONNX Runtime calls the first "Transpose", and those around the Conv "Transpose_token_1".
    turned = [layer for layer in plan.layers if layer.op == "Transpose"]
    assert [layer.nodes for layer in turned if layer.kind == "compute"] == [("move1",)]
    assert len(turned) == 3


GEMM = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,9,32] x) => (float[1,4,9,8] y)
<float[32,32] w = {1}, float[32] b = {1}, int64[4] heads = {1, 9, 4, 8}> {
  [matmul1] m = MatMul(x, w)
  [add1] a = Add(m, b)
  [reshape1] r = Reshape(a, heads)
  [turn1] y = Transpose<perm = [0, 2, 1, 3]>(r)
}
"""


def test_a_gemm_of_integers_covers_its_bias_and_the_reshape_behind_it_is_a_layer(save: Save):
    model = load_model(save(GEMM))
    pairs = [Edge("x", "matmul1", 0), Edge("w", "matmul1", 1), Edge("y", "", 0)]
    plan = built_plan(model, pairs, {"x", "y"})
    assert [layer.nodes for layer in plan.of_kind("compute")] == [
        ("add1", "matmul1"),
        ("reshape1",),
        ("turn1",),
    ]


UNBLOCKED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,18,8,8] x) => (float[1,18,8,8] y)
<float[18,18,1,1] w = {1}, float[18] b = {1}> {
  [exp1] e = Exp(x)
  [conv1] c = Conv(x, w, b)
  [add1] a = Add(c, e)
  [tanh1] y = Tanh(a)
}
"""


def test_a_convolution_that_is_not_blocked_adds_a_tensor_too(save: Save):
    model = load_model(save(UNBLOCKED))
    plan = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    assert [x.nodes for x in plan.layers] == [("exp1",), ("add1", "conv1", "tanh1")]


HARD_SWISH = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z)
<float[16,16,1,1] w1 = {1}, float[16,16,1,1] w2 = {1}> {
  [conv1] c = Conv(x, w1)
  [gate1] s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c)
  [mul1] m = Mul(s, c)
  [tanh1] y = Tanh(m)
  [conv2] d = Conv(x, w2)
  [swish1] z = HardSwish(d)
}
"""


def test_a_blocked_convolution_applies_a_hard_swish_but_no_graph_output(save: Save):
    model = load_model(save(HARD_SWISH))
    plan = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    layers = [layer.nodes for layer in plan.of_kind("compute")]
    assert sorted(layers) == [("conv1", "gate1", "mul1"), ("conv2",), ("swish1",), ("tanh1",)]
    assert plan.removed == ()


GELU = "d = Div(c, root) e = Erf(d) f = Add(e, one) m = Mul(c, f) g = Mul(m, half)"
LEAKY = "g = LeakyRelu(c)"


@pytest.mark.parametrize(
    ("act", "blocked"), [(GELU, True), (LEAKY, True), ("g = Elu(c)", False), ("g = Erf(c)", False)]
)
def test_what_lies_in_blocks_behind_a_convolution(save: Save, act: str, blocked: bool):
    """Where ``g`` does, the second convolution adds it to its result."""
    model = load_model(
        save(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,16,8,8] y)
        <float[16,16,3,3] w = {{1}}, float[16,16,3,3] v = {{2}}, float root = {{1.4142135}},
         float one = {{1}}, float half = {{0.5}}> {{
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
          {act}
          [conv2] h = Conv<pads = [1, 1, 1, 1]>(g, v)
          [add1] s = Add(h, g)
          [end] y = Softmax(s)
        }}
        """)
    )
    plan = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    assert is_blocked("g", model.graph, block=16) == blocked
    assert is_blocked("g", model.graph, block=8) == blocked
    assert any(set(layer.nodes) == {"conv2", "add1"} for layer in plan.layers) == blocked


def test_the_float_plan(save: Save):
    model = load_model(save(CHAIN))
    plan = OnnxRuntimeEngine().compile(model.proto, model.base_dir).plan()
    assert [layer.nodes for layer in plan.layers if layer.nodes] == [
        ("conv1", "relu1"),
        ("pool1",),
        ("conv2",),
    ]
    assert not plan.estimated


def test_measuring_interleaves_models_and_tells_their_speeds_apart(save: Save):
    text = CHAIN.replace("1,16,8,8", "1,16,64,64").replace("1,16,4,4", "1,16,32,32")
    large, small = load_model(save(text)), load_model(save(CHAIN, "small.onnx"))
    engine = OnnxRuntimeEngine()
    compiled = [engine.compile(m.proto, m.base_dir) for m in (large, large)]
    x = np.ones((1, 16, 64, 64), np.float32)
    seconds = engine.measure(compiled, {"x": x}, 5)
    assert seconds.shape == (5, 2)
    assert (seconds > 0).all()
    little = engine.measure(
        [engine.compile(small.proto, small.base_dir)], {"x": x[:, :, :8, :8]}, 5
    )
    assert np.median(little) < np.median(seconds)


def test_a_refused_model_is_a_run_error(tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) { y = NoSuchOperator(x) }
        """
    )
    with pytest.raises(RunError, match=r"ONNX Runtime refuses the model: .*NoSuchOperator"):
        OnnxRuntimeEngine().compile(proto, tmp_path)


def test_engines_are_chosen_by_name():
    def select(name: str, gpu: str | None = None) -> tuple[Engine, Pack, str]:
        return select_engine(name, threads=1, gpu=gpu)

    engine, pack, why = select("auto")
    assert engine.name == pack.manifest.name == "onnxruntime"
    assert why.startswith("the first that runs on this machine")
    engine, pack, why = select("fusion-model", "A100")
    assert (engine.name, pack.manifest.name) == ("fusion-model", "tensorrt")
    assert why == "every latency is an estimate"
    with pytest.raises(InputError, match="unknown engine 'tensort'; use one of: auto"):
        select("tensort")
    with pytest.raises(
        InputError, match="`gpu` goes with engine fusion-model or tensorrt-rtx-build"
    ):
        select("onnxruntime", "a100")
    with pytest.raises(InputError, match="needs a GPU to predict for"):
        select("fusion-model")


# ONNX Runtime writes HardSwish as a HardSigmoid and a Mul without names. The first Conv takes its
# own over; behind the second one, on integers, channels are last and tensors have other names.
SWISHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w1 = {1}, float[16,16,1,1] w2 = {1}, float[16,16,1,1] w3 = {1}> {
  [conv1] c = Conv(x, w1)
  [swish1] d = HardSwish(c)
  [conv2] e = Conv(d, w2)
  [swish2] f = HardSwish(e)
  [conv3] y = Conv(f, w3)
}
"""


def test_a_hard_swish_without_a_name_is_found_by_what_it_reads(save: Save):
    model = load_model(save(SWISHES))
    edges = [
        Edge("d", "conv2", 0),
        Edge("w2", "conv2", 1),
        Edge("e", "swish2", 0),
        Edge("f", "conv3", 0),
        Edge("w3", "conv3", 1),
        Edge("y", "", 0),
    ]
    placement = Placement.of(edges)
    ranges = calibrate(model, {"d", "e", "f", "y"}, synthetic_dataset(model, 4, 0)).ranges(
        "minmax", PACK.manifest.scheme
    )
    candidate = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    plan = OnnxRuntimeEngine().compile(candidate, model.base_dir).plan()
    assert [layer.nodes for layer in plan.of_kind("compute")] == [
        ("conv1", "swish1"),
        ("conv2",),
        ("swish2",),
        ("conv3",),
    ]


# A HardSwish that a tool inlined by ONNX Runtime's names before it put pairs inside.
INLINED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16] x) => (float[1,16] y) {
  [gate] _inlfunc_HardSwish_HS_X = HardSigmoid(x)
  [product] p = Mul(x, _inlfunc_HardSwish_HS_X)
  [last] y = Tanh(p)
}
"""


def test_a_pair_inside_an_operator_that_was_inlined_is_a_layer(save: Save):
    gate = "_inlfunc_HardSwish_HS_X"
    pairs = [Edge("x", "product", 0), Edge(gate, "product", 1), Edge("p", "last", 0)]
    plan = built_plan(load_model(save(INLINED)), pairs, {"x", gate, "p"})
    read = [port.tensor for layer in plan.of_kind("quantize") for port in layer.inputs]
    assert sorted(read) == [gate, "x"]


def test_nodes_without_a_name_have_the_times_of_the_profile(save: Save):
    # Its profiler calls them HardSigmoid_7 and Mul_8, by numbers that no graph tells.
    model = load_model(save(SWISHES))
    compiled = OnnxRuntimeEngine().compile(
        Inserter(model, PACK.manifest.scheme).insert(
            Placement.of([Edge("e", "swish2", 0), Edge("f", "conv3", 0), Edge("w3", "conv3", 1)]),
            calibrate(model, {"e", "f"}, synthetic_dataset(model, 4, 0)).ranges(
                "minmax", PACK.manifest.scheme
            ),
        ),
        model.base_dir,
    )
    layers = compiled.plan(next(iter(synthetic_dataset(model, 1, 0))).inputs).layers
    assert [layer.nodes for layer in layers if "swish2" in layer.nodes] == [("swish2",)]
    assert all(layer.time_us is not None for layer in layers)


def test_a_plan_leaves_large_constants_where_they_are(tmp_path: Path):
    """And a session holds no copy of the message that it was made of."""
    weight = onnx.numpy_helper.from_array(np.ones((600, 600), np.float32), "w")  # 1.4 MB.
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,600] x) => (float[1,600] y) {
          [product] m = MatMul(x, w) [act] y = Relu(m) }"""
    )
    proto.graph.initializer.append(weight)
    model = OnnxRuntimeEngine().compile(proto, tmp_path)
    assert model._session.own._model_bytes is None
    (layer, _) = model.plan({"x": np.ones((1, 600), np.float32)}).layers
    assert (layer.nodes, layer.inputs[0].tensor) == (("product",), "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("op", "is_kept"), [("MatMul", False), ("Mul", True)])
def test_of_a_file_memory_holds_large_constants_only_if_they_may_do_nothing(
    tmp_path: Path, op: str, is_kept: bool
):
    """A product with ones is none, which its values tell."""
    ones = onnx.numpy_helper.from_array(np.ones((600, 600), np.float32), "w")  # 1.4 MB.
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[600,600] x) => (float[600,600] y)
        {{ y = {op}(x, w) }}"""
    )
    proto.graph.initializer.append(ones)
    onnx.save(proto, tmp_path / "m.onnx")
    assert (ModelFile(tmp_path / "m.onnx").bare.ByteSize() > 1000) == is_kept


def test_a_model_in_a_file_is_compiled_and_planned_as_one_in_memory(save: Save, tmp_path: Path):
    """Wherever its external data is; ONNX Runtime reads a file itself that has none elsewhere."""
    path, inputs = save(CHAIN), {"x": np.ones((1, 16, 8, 8), np.float32)}
    engine, data = OnnxRuntimeEngine(), tmp_path / "data"
    inside = engine.compile(onnx.load(path), path.parent)
    data.mkdir()
    onnx.save(onnx.load(path), data / "m.onnx", save_as_external_data=True, size_threshold=0)
    outside = tmp_path / "outside.onnx"
    outside.write_bytes((data / "m.onnx").read_bytes())
    for file, base_dir in ((path, data), (data / "m.onnx", data), (outside, data)):
        compiled = engine.compile_file(file, base_dir)
        assert compiled.plan() == inside.plan()
        assert compiled.run(inputs)["y"].tolist() == inside.run(inputs)["y"].tolist()


READS_INT2 = pytest.mark.skipif(
    tuple(map(int, ort.__version__.split(".")[:2])) < (1, 32), reason="ONNX Runtime lacks opset 25"
)


@pytest.mark.parametrize(
    ("kind", "opset"),
    [
        (onnx.TensorProto.FLOAT8E4M3FN, 21),
        (onnx.TensorProto.INT4, 21),
        pytest.param(onnx.TensorProto.INT2, 25, marks=READS_INT2),
    ],
)
def test_a_relu_before_signed_values_of_zero_point_0_is_computed(kind: int, opset: int):
    """ONNX Runtime 1.32 takes it out, as if the least value of the type were 0."""
    proto = parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y)
        <float s = {0.125}, int8 z = {0}> {
          [relu] r = Relu(x)
          q = QuantizeLinear(r, s, z)
          y = DequantizeLinear(q, s, z)
        }
    """)
    proto.opset_import[0].version = opset
    proto.graph.initializer[1].CopyFrom(onnx.helper.make_tensor("z", kind, [], [0]))
    compiled = OnnxRuntimeEngine().compile(proto, Path())
    x = np.array([-0.25, -0.125, 0, 0.125], np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], np.maximum(x, 0))


def test_so_is_one_whose_zero_point_a_node_holds(tmp_path: Path):
    """And behind an Identity, which the optimizer takes out first."""
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y)
        <float s = {0.125}> {
          r = Relu(x) i = Identity(r) q = QuantizeLinear(i, s, z) y = DequantizeLinear(q, s, z)
        }
    """)
    zero = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT8E4M3FN, [], [0])
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["z"], value=zero))
    found = OnnxRuntimeEngine().compile(proto, tmp_path).run({"x": np.float32([-1, -0.5, 0, 1])})
    assert found["y"].tolist() == [0, 0, 0, 1]


def _between_convs(save: Save, node: str, constants: str) -> Model:
    return load_model(
        save(f"""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[1,8,8,8] x) => (float[1,8,h,w] y)
        <float[8,8,1,1] v = {{1}}, float[8,8,1,1] w = {{1}}, {constants}> {{
          [first] a = Conv(x, v)
          [act] r = Relu(a)
          [node] m = {node}
          [last] y = Conv(m, w)
        }}
        """)
    )


def _run(model: Model, placement: Placement) -> np.ndarray:
    data = synthetic_dataset(model, 1, 0)
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, data).ranges("minmax", PACK.manifest.scheme)
    proto = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    inputs = next(iter(data)).inputs
    return OnnxRuntimeEngine().compile(proto, model.base_dir).run(inputs)["y"]


def test_it_runs_no_pair_before_a_resize_that_it_refuses(save: Save):
    scales = "float[4] scales = {1, 1, 0.5, 0.5}"
    model = _between_convs(save, 'Resize<mode = "cubic">(r, , scales)', scales)
    placement = place(find_sites(model.graph, PACK.rules), {})
    assert _run(model, placement).shape == (1, 8, 4, 4)
    before = Placement.of_groups([*(g.edges for g in placement.groups), (Edge("r", "node", 0),)])
    with pytest.raises(RunError):
        _run(model, before)


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        ("Resize<axes = [2, 3]>(r, , twice)", "float[2] twice = {2, 2}"),
        ("Pad(r, ends, , axes)", "int64[4] ends = {4, 4, 4, 4}, int64[2] axes = {2, 3}"),
    ],
)
def test_it_runs_pairs_before_what_names_axes(save: Save, node: str, constants: str):
    model = _between_convs(save, node, constants)
    placement = place(find_sites(model.graph, PACK.rules), {})
    assert Edge("r", "node", 0) in placement.edges
    assert _run(model, placement).shape == (1, 8, 16, 16)
