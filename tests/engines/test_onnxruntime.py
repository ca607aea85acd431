"""ONNX Runtime's CPU provider: what the pack claims is what the engine builds."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.select import select_engine
from placer.errors import InputError, RunError
from placer.model import load_model
from placer.plan import Layer, Plan
from placer.qdq import Inserter
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Fusion, Rule
from placer.rules.sites import find_sites, place

Save = Callable[..., Path]
ROOT = Path(__file__).parents[2]

PACK = load_pack("onnxruntime")
FUSING = [
    pytest.param(rule, layout, id=f"{rule.id}-{layout}")
    for rule in PACK.rules
    for layout in rule.layouts
    if rule.layouts[layout].fuses
]


def plan_of(path: Path, rule: Rule, layout: str) -> tuple[Plan, dict[str, str]]:
    """The engine's plan of the first match in ``layout``; names of the match's nodes."""
    model = load_model(path)
    (site, *_) = find_sites(model.graph, [rule])
    placement = place([site], {site.name: layout})
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 4, 0)).ranges(
        "minmax", PACK.manifest.scheme
    )
    candidate = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    compiled = OnnxRuntimeEngine().compile(candidate, model.base_dir)
    return compiled.plan(), {name: node.name for name, node in site.match.nodes.items()}


def fits(layer: Layer, fusion: Fusion, nodes: dict[str, str]) -> bool:
    covered = tuple(sorted(nodes[name] for name in fusion.nodes if name in nodes))
    return (
        layer.op in fusion.op
        and layer.nodes == covered
        and set(layer.input_types) == {fusion.inputs}
        and layer.output_types == (fusion.outputs,)
    )


@pytest.mark.parametrize(("rule", "layout"), FUSING)
def test_the_layers_that_a_layout_promises_are_built(save: Save, rule: Rule, layout: str):
    plan, nodes = plan_of(save(rule.tests[0].model), rule, layout)
    for fusion in rule.layouts[layout].fuses:
        assert any(fits(layer, fusion, nodes) for layer in plan.layers), (fusion, plan)


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


def compiled(
    path: Path, quantized: bool, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[onnx.ModelProto, Plan]:
    """The float model at ``path`` or its default candidate, and what runs of it."""
    model = load_model(path, shapes or {})
    proto = model.proto
    if quantized:
        placement = place(find_sites(model.graph, PACK.rules), {})
        tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
        scheme = PACK.manifest.scheme
        ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
        proto = Inserter(model, scheme).insert(placement, ranges)
    return proto, OnnxRuntimeEngine().compile(proto, model.base_dir).plan()


@pytest.mark.parametrize("quantized", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "unet", "c2f", "vit_block"])
def test_every_node_of_a_network_is_in_one_layer_or_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, quantized: bool
):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    topologies = importlib.import_module("topologies")
    onnx.save(topologies.TOPOLOGIES[name](), tmp_path / "net.onnx")
    assert_covered(*compiled(tmp_path / "net.onnx", quantized))


@pytest.mark.parametrize("quantized", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize(
    ("name", "size"), [("v2.0_cls", (48, 192)), ("v4_det", (64, 64)), ("v4_rec", (48, 64))]
)
def test_every_node_of_an_ocr_network_is_in_one_layer_or_removed(
    name: str, size: tuple[int, int], quantized: bool
):
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        pytest.skip("rapidocr-onnxruntime is not installed")
    (path,) = Path(package.origin).parent.glob(f"models/*{name}_infer.onnx")
    assert_covered(*compiled(path, quantized, {"x": (1, 3, *size)}))


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
    _, plan = compiled(save(text), quantized=False)
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
    proto, plan = compiled(save(text), quantized=True)
    assert_covered(proto, plan)
    assert all(len(layer.nodes) <= 1 for layer in plan.layers)


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
        return select_engine(name, threads=1, pack=None, gpu=gpu, base=None, shapes={})

    engine, pack, why = select("auto")
    assert engine.name == pack.manifest.name == "onnxruntime"
    assert why.startswith("the first that runs on this machine")
    engine, pack, why = select("fusion-model", "A100")
    assert (engine.name, pack.manifest.name) == ("fusion-model", "tensorrt")
    assert why == "as asked for; every latency is an estimate"
    with pytest.raises(InputError, match="unknown engine 'tensort'; use one of: auto"):
        select("tensort")
    with pytest.raises(InputError, match="`gpu` and `build_for` go with engine fusion-model"):
        select("onnxruntime", "a100")
    with pytest.raises(InputError, match="needs a GPU to predict for"):
        select("fusion-model")
