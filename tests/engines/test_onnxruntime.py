"""ONNX Runtime's CPU provider: what the pack claims is what the engine builds."""

from collections.abc import Callable
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
        return select_engine(name, threads=1, pack=None, gpu=gpu, base="float16", shapes={})

    engine, pack, why = select("auto")
    assert engine.name == pack.manifest.name == "onnxruntime"
    assert why.startswith("the first that runs on this machine")
    engine, pack, why = select("fusion-model", "A100")
    assert (engine.name, pack.manifest.name) == ("fusion-model", "tensorrt")
    assert why == "as asked for; every latency is an estimate"
    with pytest.raises(InputError, match="unknown engine 'tensort'; --engine takes one of: auto"):
        select("tensort")
    with pytest.raises(InputError, match="--gpu and --build-for go with --engine fusion-model"):
        select("onnxruntime", "a100")
    with pytest.raises(InputError, match="needs a GPU to predict for"):
        select("fusion-model")
