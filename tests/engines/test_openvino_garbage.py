"""Where pairs make OpenVINO compute garbage or refuse a model, the pack puts none."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import this_processor
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.space import build_space

pytest.importorskip("openvino", reason="OpenVINO is not installed")
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.engines.openvino.engine import OpenVinoEngine
from placer.errors import RunError
from tests.conftest import Finished, with_random_weights
from tests.reference_outputs import sqnr

PACK = load_pack("openvino")


@dataclass(frozen=True)
class Fault:
    """A graph, and the edges of an activation and of weights whose pairs do harm.

    ``by_vnni``: with VNNI alone; OpenVINO is right with AVX2 alone.
    """

    body: str
    activation: Edge
    weight: Edge | None = None
    by_vnni: bool = False

    @property
    def placement(self) -> Placement:
        """These pairs alone."""
        return Placement.of_groups([(e,) for e in (self.activation, self.weight) if e is not None])


FAULTS = {
    "minimum": Fault(
        "[least] m = ReduceMin<axes = [1]>(x) [conv] y = Conv(m, one)",
        Edge("m", "conv", 0),
        Edge("one", "conv", 1),
    ),
    "activation behind a maximum": Fault(
        "[most] m = ReduceMax<axes = [1]>(x) [act] a = LeakyRelu(m) [conv] y = Conv(a, one)",
        Edge("a", "conv", 0),
        Edge("one", "conv", 1),
    ),
    "maximum of an image": Fault(
        "[deep] d = Conv<group = 8>(x, each) [most] m = GlobalMaxPool(d) [conv] y = Conv(m, all)",
        Edge("m", "conv", 0),
        Edge("all", "conv", 1),
    ),
    "spatial attention": Fault(
        "[most] m = ReduceMax<axes = [1]>(x) [mean] a = ReduceMean<axes = [1]>(x)"
        "[join] c = Concat<axis = 1>(a, m) [conv] y = Conv(c, two)",
        Edge("c", "conv", 0),
        Edge("two", "conv", 1),
    ),
    "maximum with another view": Fault(
        "[most] m = ReduceMax<axes = [1], keepdims = 0>(x) [view] v = Unsqueeze(m, second)"
        "[act] a = Elu(v) [conv] y = Conv(a, one)",
        Edge("a", "conv", 0),
        Edge("one", "conv", 1),
    ),
    "spatial attention of views": Fault(
        "[most] m = ReduceMax<axes = [1], keepdims = 0>(x) [view] v = Unsqueeze(m, second)"
        "[mean] a = ReduceMean<axes = [1]>(x)"
        "[join] c = Concat<axis = 1>(a, v) [conv] y = Conv(c, two)",
        Edge("c", "conv", 0),
        Edge("two", "conv", 1),
    ),
    "constant behind a maximum": Fault(
        "[most] m = ReduceMax<axes = [3]>(x) [shift] a = Add(bias, m) [conv] y = Conv(a, all)",
        Edge("a", "conv", 0),
        Edge("all", "conv", 1),
    ),
    "SiLU behind a minimum, which two read": Fault(
        "[least] m = ReduceMin<axes = [3]>(x) [gate] g = Sigmoid(m) [act] a = Mul(m, g)"
        "[conv] y = Conv(a, all)",
        Edge("a", "conv", 0),
        Edge("all", "conv", 1),
    ),
    "constant behind a maximum and a Concat": Fault(
        "[most] m = ReduceMax<axes = [1]>(x) [mean] a = ReduceMean<axes = [1]>(x)"
        "[join] c = Concat<axis = 1>(a, m) [scale] s = Mul(c, k) [conv] y = Conv(s, two)",
        Edge("s", "conv", 0),
        Edge("two", "conv", 1),
    ),
    "mean over tokens of several texts": Fault(
        "[texts] t = Reshape(x, two_texts) [mean] m = ReduceMean<axes = [1]>(t)"
        "[view] y = Unsqueeze(m, last)",
        Edge("t", "mean", 0),
    ),
    "mean of a Conv's places of several images": Fault(
        "[texts] t = Reshape(x, two_texts) [conv] c = Conv(t, lines) [act] r = Relu(c)"
        "[mean] m = ReduceMean<axes = [2], keepdims = 0>(r) [fc] g = MatMul(m, w)"
        "[view] y = Unsqueeze(g, last_two)",
        Edge("t", "conv", 0),
        Edge("lines", "conv", 1),
    ),
    "constants behind a mean over tokens": Fault(
        "[texts] t = Reshape(x, two_texts) [mean] m = ReduceMean<axes = [1], keepdims = 0>(t)"
        "[shift] s = Add(m, row) [fc] f = MatMul(s, table) [view] y = Unsqueeze(f, last_two)",
        Edge("s", "fc", 0),
        Edge("table", "fc", 1),
    ),
    "padding that counts": Fault(
        "[pool] y = AveragePool"
        "<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(x)",
        Edge("x", "pool", 0),
    ),
    "automatic padding that counts": Fault(
        '[pool] y = AveragePool<kernel_shape = [2, 2], auto_pad = "SAME_UPPER", '
        "count_include_pad = 1>(x)",
        Edge("x", "pool", 0),
    ),
    "stack of matrices": Fault(
        "[act] a = Sigmoid(x) [experts] y = MatMul(a, stack)",
        Edge("a", "experts", 0),
        Edge("stack", "experts", 1),
        by_vnni=True,
    ),
    "joined rows": Fault(
        "[join] c = Concat<axis = 2>(x, x) [fc] y = MatMul(c, w)",
        Edge("c", "fc", 0),
        Edge("w", "fc", 1),
    ),
    "last of the tokens": Fault(
        "[view] v = Unsqueeze(x, first) [fc] m = MatMul(v, w)"
        "[token] y = Gather<axis = 3>(m, final)",
        Edge("v", "fc", 0),
        Edge("w", "fc", 1),
    ),
    "one row of a map": Fault(
        "[conv] c = Conv(x, all) [turn] s = Neg(c) [row] r = Gather<axis = 2>(s, final)"
        "[view] y = Unsqueeze(r, last)",
        Edge("x", "conv", 0),
        Edge("all", "conv", 1),
    ),
    "columns that become axes": Fault(
        "[row] r = Squeeze(x, first) [fc] m = MatMul(r, w) [view] y = Unsqueeze(m, last)",
        Edge("r", "fc", 0),
        Edge("w", "fc", 1),
    ),
}
WEIGHTS = (
    "float[4,1,1,1] one = {1}, float[4,2,1,1] two = {1}, float[8,1,1,1] each = {1}, "
    "float[4,8,1,1] all = {1}, float[6,4] w = {1}, float[1,8,6,4] stack = {1}, "
    "float[1,8,1,1] bias = {1}, float k = {2}, int64[1] first = {0}, int64[1] second = {1}, "
    "int64[1] last = {3}, int64 final = {-1}, int64[3] two_texts = {2, 12, 18}, "
    "float[6,12,1] lines = {1}, int64[2] last_two = {2, 3}, float[18] row = {1}, "
    "float[18,4] table = {1}"
)


@pytest.fixture(params=FAULTS, ids=lambda name: name.replace(" ", "-"))
def fault(request: pytest.FixtureRequest) -> Fault:
    return FAULTS[request.param]


@pytest.fixture
def model(fault: Fault, tmp_path: Path) -> Model:
    header = '<ir_version: 9, opset_import: ["": 17]> g (float[1,8,9,6] x) => (float[k,l,m,n] y)'
    proto = parse_model(f"{header} <{WEIGHTS}> {{ {fault.body} }}")
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = rng.normal(0, 0.4, tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return load_model(path)


def test_no_layout_puts_pairs_there(fault: Fault, model: Model):
    space = build_space(model.graph, find_sites(model.graph, PACK.rules, PACK.target(ANY_TARGET)))
    for group in space.groups:
        for layout in group.layouts:
            placement = space.placement({**space.floats, group.name: layout})
            assert not fault.placement.edges <= placement.edges


def test_they_would_do_harm(fault: Fault, model: Model):
    """In OpenVINO 2026.4.1. When it is right, its pack may have these pairs from there on."""
    scheme = PACK.manifest.scheme.model_copy(update={"weight_range": "reduced"})
    data = synthetic_dataset(model, 2, 0)
    ranges = calibrate(model, {fault.activation.tensor}, data).ranges("minmax", scheme)
    proto = Inserter(model, scheme).insert(fault.placement, ranges)
    inputs = next(iter(data)).inputs
    try:
        found = OpenVinoEngine().compile(proto, model.base_dir).run(inputs)["y"]
    except RunError as error:
        assert "OpenVINO refuses" in str(error)
    else:
        right = OnnxRuntimeModel(proto, model.base_dir, 1, optimized=False).run(inputs)["y"]
        # Garbage that is not initialized may be NaN.
        harms = right.shape != found.shape or not sqnr(right, found) >= 15
        assert harms or (fault.by_vnni and this_processor().exact_products is False)


_PAIR = """
    q = QuantizeLinear(p, scale, zero)
    act_in = DequantizeLinear(q, scale, zero)
"""


@pytest.mark.parametrize(
    ("activation", "pair", "harms"),
    [
        ("Abs", "", True),
        ("LeakyRelu<alpha = -0.5>", "", True),
        ("Relu", "", False),
        ("LeakyRelu<alpha = 0.5>", "", False),
        ("Abs", _PAIR, False),
        ("LeakyRelu<alpha = -0.5>", _PAIR, False),
    ],
)
def test_openvino_computes_an_activation_behind_a_max_pool_before_it(
    activation: str, pair: str, harms: bool
):
    """In float, too: right of what never falls, or with a pair behind the MaxPool."""
    proto = parse_model(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,1,2,2] y)
        <float[1,2,1,1] w = {{1, -1}}, float scale = {{0.05}}, uint8 zero = {{128}}> {{
          c = Conv(x, w)
          p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
          {pair or "act_in = Identity(p)"}
          y = {activation}(act_in)
        }}
    """)
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32) - 1}
    found = OpenVinoEngine().compile(proto, Path()).run(inputs)["y"]
    right = OnnxRuntimeModel(proto, Path(), 1, optimized=False).run(inputs)["y"]
    assert (sqnr(right, found) < 15) is harms


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "told"), [("Abs", True), ("Relu", False)])
def test_a_float_model_that_the_engine_computes_otherwise_is_told(
    placer: Callable[..., Finished], activation: str, told: bool
):
    """Gates compare with what the engine computes, which is wrong here without any pair."""
    model = with_random_weights(f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,16,16] x) => (float[1,16,8,8] y)
        <float[16,8,3,3] w = {{1}}, float[16] b = {{1}}, float[16,16,1,1] v = {{1}}> {{
          c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
          p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
          a = {activation}(p)
          y = Conv(a, v)
        }}
    """)
    onnx.save(model, "model.onnx")
    finished = placer("optimize", "model.onnx", "--engine", "openvino", "--budget", "2")
    assert ("output 'y' of the float model on openvino agrees" in finished.out) == told
    assert finished.code == 0, finished.err
