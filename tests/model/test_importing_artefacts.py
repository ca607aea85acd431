"""Import of what real tools wrote: against the float original, scale by scale, and on the builder.

``tests/artefacts`` holds what PyTorch and ModelOpt wrote (see its README); what ONNX Runtime's
quantizer writes is made here.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from placer.engines.tensorrt.offline_builder import check_file, check_model
from placer.graph.text import parse_model
from placer.model import Model, load_model, load_quantized
from placer.model.quantized import take_apart
from placer.model.tensorrt_pairs import check_pairs
from placer.qdq import Inserter
from placer.quantization import Range
from placer.quantization.numerics import activation_quantization
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.reference_outputs import outputs

Save = Callable[..., Path]

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
PACK = load_pack("tensorrt")
# Each with its float original, the SQNR in dB that the recovered float model has at least against
# it, and whether TensorRT-RTX takes the artefact as it is. int8 weights cost what they cost; where
# the source keeps float weights the recovered model is the original.
MADE = {
    "torch_eager": ("float", 45, False),
    "torch_fx": ("float", 45, False),
    "torch_qat": ("torch_qat_float", 200, True),
    "modelopt_onnx": ("float", 200, True),
    "modelopt_torch": ("float", 120, True),
}


def sqnr(reference: list[np.ndarray], found: list[np.ndarray]) -> float:
    """In dB, over all outputs together; 300 where there is no noise."""
    signal = sum(float((a.astype(np.float64) ** 2).sum()) for a in reference)
    noise = sum(
        float(((a.astype(np.float64) - b) ** 2).sum())
        for a, b in zip(reference, found, strict=True)
    )
    return 300.0 if noise == 0 else 10 * np.log10(signal / noise)


def images(count: int, shape: tuple[int, ...] = (1, 3, 8, 8)) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(3)
    for _ in range(count):
        yield rng.standard_normal(shape).astype(np.float32)


def results(proto: ModelProto) -> list[np.ndarray]:
    name = proto.graph.input[0].name
    return [value for image in images(4) for value in outputs(proto, **{name: image})]


def quantized_scales(proto: ModelProto) -> Counter[tuple[float, int]]:
    """Scale and zero point of every QuantizeLinear of an activation, as the file says them."""
    constants = {t.name: t for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = node.attribute[0].t
        if node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    found: Counter[tuple[float, int]] = Counter()
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            scale, zero_point = (numpy_helper.to_array(constants[t]) for t in node.input[1:3])
            if scale.size == 1:
                found[float(scale.item()), int(zero_point.item())] += 1
    return found


def placed(model: Model) -> ModelProto:
    """The default placement of the tensorrt pack with imported ranges, others made up."""
    placement = place(find_sites(model.graph, PACK.rules), {})
    ranges = dict(model.imported.ranges(PACK.manifest.scheme))
    for edge in placement.edges:
        ranges.setdefault(edge.tensor, Range(-4, 4))
    return Inserter(model, PACK.manifest.scheme).insert(placement, ranges)


# PyTorch and ModelOpt.


@pytest.mark.parametrize("name", MADE)
def test_the_recovered_float_model_is_the_original(name: str):
    original, least, _ = MADE[name]
    reference = load_model(ARTEFACTS / f"{original}.onnx")
    model = load_model(ARTEFACTS / f"{name}.onnx")
    assert [n.op for n in model.graph.nodes] == [n.op for n in reference.graph.nodes]
    assert sqnr(results(reference.proto), results(model.proto)) >= least


@pytest.mark.parametrize("name", MADE)
def test_scales_are_the_sources(name: str):
    model = load_model(ARTEFACTS / f"{name}.onnx")
    source = quantized_scales(onnx.load(ARTEFACTS / f"{name}.onnx"))
    found = {(s.scale, s.zero_point) for s in model.imported.activations.values()}
    assert found == set(source)
    assert len(model.imported.weights) == (2 if name == "modelopt_onnx" else 3)


@pytest.mark.parametrize("name", ["torch_qat", "modelopt_torch"])
def test_moved_pairs_keep_trained_scales(name: str):
    """The candidate has the scales of the source, bit for bit, wherever its pairs are."""
    model = load_model(ARTEFACTS / f"{name}.onnx")
    assert model.imported.losses(PACK.manifest.scheme) == ()
    candidate = placed(model)
    assert set(quantized_scales(candidate)) <= set(quantized_scales(onnx.load(model.path)))
    values = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    quantized = {w: s for w, s in model.imported.weights.items() if f"{w}/scale" in values}
    assert len(quantized) == 2  # The pack leaves a Linear with 10 outputs float.
    for weight, scale in quantized.items():
        assert np.array_equal(values[f"{weight}/scale"], scale.scale.astype(np.float32))


@pytest.mark.parametrize("name", MADE)
def test_the_replaced_model_builds_where_the_source_did_not(builder: Any, name: str):
    path = ARTEFACTS / f"{name}.onnx"
    assert check_file(builder, path, "sm89").accepted == MADE[name][2]
    report = check_model(builder, placed(load_model(path)), "sm89")
    assert report.refusals == ()
    convolutions = [layer for layer in report.plan.layers if layer.op == "correlation"]
    assert {layer.input_types[0] for layer in convolutions} == {"int8"}


@pytest.mark.parametrize("name", MADE)
def test_the_static_check_knows_what_the_builder_refuses(name: str):
    path = ARTEFACTS / f"{name}.onnx"
    findings = check_pairs(load_quantized(path), ARTEFACTS, path)
    assert any(f.verdict == "refused" for f in findings) != MADE[name][2]


# ONNX Runtime's quantizer.

NET = """
    <ir_version: 8, opset_import: ["": OPSET]>
    g (float[1,3,8,8] x) => (float[1,10] y, float[1,8,4,4] p)
    <float[8,3,3,3] w1 = {0.2}, float[8] b1 = {1, 2, 3, 4, 5, 6, 7, 8},
     float[8,8,3,3] w2 = {0.2}, float[16,10] w3 = {0.2}, float[10] b3 = {1,2,3,4,5,6,7,8,9,10},
     int64[2] shape = {1, 16}> {
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
      [relu1] r1 = Relu(c1)
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
      [sig] s = Sigmoid(c2)
      [mul] m = Mul(c2, s)
      [leaky] l = LeakyRelu<alpha = 0.5>(m)
      [add] a = Add(l, r1)
      [cat] k = Concat<axis = 1>(a, r1)
      [split] k1, k2 = Split<axis = 1SPLIT>(k)
      [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(k1)
      [average] v = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(k2)
      [both] q = Concat<axis = 1>(p, v)
      [gap] g = GlobalAveragePool(q)
      [resh] f = Reshape(g, shape)
      [gemm] h = Gemm<alpha = 0.5>(f, w3, b3)
      [soft] y = Softmax<axis = -1>(h)
    }
"""


class Reader(CalibrationDataReader):
    """A few images."""

    def __init__(self) -> None:
        self._images = images(4)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._images, None)
        return None if image is None else {"x": image}


def quantized_by_onnxruntime(source: Path, how: str) -> Path:
    target = source.with_name(f"{how}.onnx")
    kinds: dict[str, dict[str, Any]] = {
        "qdq": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8},
        "qdq-per-channel": {"quant_format": QuantFormat.QDQ, "per_channel": True},
        "qoperator": {"quant_format": QuantFormat.QOperator},
        "qoperator-uint8": {
            "quant_format": QuantFormat.QOperator,
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QUInt8,
        },
        "qoperator-per-channel": {"quant_format": QuantFormat.QOperator, "per_channel": True},
    }
    if how == "dynamic":
        quantize_dynamic(source, target)
    else:
        quantize_static(source, target, Reader(), **kinds[how])
    return target


def float_net(save: Save, opset: int = 17) -> Path:
    split = ", num_outputs = 2" if opset >= 18 else ""
    return save(NET.replace("OPSET", str(opset)).replace("SPLIT", split), "float.onnx")


HOW = [
    "qdq",
    "qdq-per-channel",
    "qoperator",
    "qoperator-uint8",
    "qoperator-per-channel",
    "dynamic",
]


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
@pytest.mark.parametrize("how", HOW)
def test_the_float_model_behind_what_onnxruntime_quantized(save: Save, how: str, opset: int):
    source = float_net(save, opset)
    original = load_model(source)
    model = load_model(quantized_by_onnxruntime(source, how))
    assert Counter(n.op for n in model.graph.nodes) == Counter(n.op for n in original.graph.nodes)
    names = {node.name for node in original.graph.nodes} - {"relu1"}
    assert names <= {node.name for node in model.graph.nodes}
    assert model.graph.outputs == original.graph.outputs
    assert sqnr(results(original.proto), results(model.proto)) >= 40


@pytest.mark.parametrize("how", ["qdq-per-channel", "qoperator-per-channel"])
def test_exactly_representable_weights_come_back_exactly(save: Save, how: str):
    """Multiples of 1/32, in each channel 127/32: then the recovered model is the original."""
    text = """
        <ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,8,8,8] y)
        <float[8,3,3,3] w = {1}, float[8,8,1,1] v = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w) [relu1] r = Relu(c) [conv2] y = Conv(r, v)
        }
    """
    proto = parse_model(text)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        steps = rng.integers(-127, 128, tuple(tensor.dims))
        steps[:, 0, 0, 0] = 127
        values = (steps / 32).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    source = save(text, "exact.onnx")
    onnx.save(proto, source)
    model = load_model(quantized_by_onnxruntime(source, how))
    for name in ("w", "v"):
        assert np.array_equal(
            model.array(name), numpy_helper.to_array(proto.graph.initializer["wv".index(name)])
        )
    assert sqnr(results(proto), results(model.proto)) == 300


@pytest.mark.parametrize("how", HOW[:-1])
def test_scales_are_those_that_onnxruntime_calibrated(save: Save, how: str):
    """Its quantizer calls the scale of tensor T ``T_scale``."""
    path = quantized_by_onnxruntime(float_net(save), how)
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    imported = load_model(path).imported
    compared = 0
    for name, found in imported.activations.items():
        if f"{name}_scale" in stored:
            compared += 1
            assert found.scale == float(stored[f"{name}_scale"].item())
            assert found.zero_point == int(stored[f"{name}_zero_point"].item())
            scheme = load_pack("onnxruntime").manifest.scheme
            if found.type == "uint8":  # The engine's own scheme arrives at the same numbers.
                made = activation_quantization(found.range(scheme), scheme)
                assert made == (found.scale, found.zero_point)
    assert compared >= 9


@pytest.mark.parametrize("how", HOW)
def test_what_onnxruntime_quantized_builds_once_replaced(builder: Any, save: Save, how: str):
    path = quantized_by_onnxruntime(float_net(save), how)
    assert not check_file(builder, path, "sm89").accepted
    findings = check_pairs(load_quantized(path), path.parent, path)
    assert any(f.verdict == "refused" for f in findings)
    assert check_model(builder, placed(load_model(path)), "sm89").refusals == ()


def test_quantized_at_run_time_or_into_float():
    """Operators that ONNX Runtime's optimizer makes of dynamic quantization."""
    text = """
        <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2,3] x) => (float[2,2] y, float[2,2] z)
        <int8[3,2] wq = {1, 2, 3, 4, 5, 6}, float s = {0.5}, int8 zp = {1}, float[2] b = {1, 2}> {
          [fused] y = com.microsoft.DynamicQuantizeMatMul(x, wq, s, zp, b)
          q, sx, zx = DynamicQuantizeLinear(x)
          [float] z = com.microsoft.MatMulIntegerToFloat(q, wq, sx, s, zx, zp, b)
        }
    """
    proto = onnx.parser.parse_model(text)
    image = np.array([[1, -2, 3], [0.5, 2, -1]], np.float32)
    before = outputs(proto, x=image)
    after = outputs(take_apart(proto, Path(), Path("memory.onnx")).proto, x=image)
    expected = image @ np.array([[0, 0.5], [1, 1.5], [2, 2.5]], np.float32) + [1, 2]
    for quantized, floats in zip(before, after, strict=True):
        np.testing.assert_allclose(floats, expected, rtol=1e-6)
        np.testing.assert_allclose(quantized, expected, atol=0.1)
