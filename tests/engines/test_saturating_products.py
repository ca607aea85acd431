"""Sums of products of uint8 by int8 on this machine's processor, and on one without VNNI."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.common.processor import PROCESSORS, this_processor
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime.engine import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.engines.openvino.engine import OpenVinoEngine
from placer.engines.select import select_engine
from placer.errors import InputError
from placer.model import load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

Save = Callable[..., Path]

# All weights are 1 and all activations at the end of their range: products are as large as any.
NETWORK = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,3,3] w = {1}, float[16,16,1,1] v = {1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [last] y = Conv(c, v)
}
"""
RANGES = {"x": Range(0, 1), "c": Range(0, 144), "y": Range(0, 2304)}
X = {"x": np.ones((1, 16, 8, 8), np.float32)}
FULL = Scheme(activation="uint8", symmetric=False, bias="int32")
REDUCED = FULL.model_copy(update={"weight_range": "reduced"})


def candidate(path: Path, scheme: Scheme) -> onnx.ModelProto:
    """All edges quantized."""
    model = load_model(path)
    edges = [edge for node in model.graph.nodes for edge in model.graph.edges_into(node)]
    return Inserter(model, scheme).insert(
        Placement.of([*edges, *model.graph.edges_of("y")]), RANGES
    )


@pytest.fixture
def path(save: Save) -> Path:
    path = save(NETWORK)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        ones = np.ones(tuple(tensor.dims), np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(ones, tensor.name))
    onnx.save(model, path)
    return path


def largest(model: OnnxRuntimeModel | HalfPrecisionModel) -> float:
    return float(model.run(X)["y"].max())


def test_onnx_runtime_saturates_where_the_processor_does(path: Path):
    model = OnnxRuntimeEngine().compile(candidate(path, FULL), path.parent)
    saturates = largest(model) < 2000
    assert saturates == (this_processor().exact_products is False)


def test_weights_of_reduced_range_are_multiplied_exactly_everywhere(path: Path):
    model = OnnxRuntimeEngine().compile(candidate(path, REDUCED), path.parent)
    assert largest(model) == pytest.approx(2304, rel=0.01)


@pytest.mark.parametrize("scheme", [FULL, REDUCED], ids=["full", "reduced"])
def test_what_other_engines_are_judged_by_is_exact_everywhere(path: Path, scheme: Scheme):
    proto = candidate(path, scheme)
    for model in (
        OnnxRuntimeModel(proto, path.parent, threads=1),
        HalfPrecisionModel(proto, path.parent, threads=1),
    ):
        assert largest(model) == pytest.approx(2304, rel=0.01)


def test_nodes_that_read_one_weight_are_judged_exactly_too(save: Save):
    """The optimization of ONNX Runtime 1.32 that makes sums exact fails on such graphs."""
    path = save("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,64] x) => (float[1,64] y) <float[64,64] w = {0}> {
      [first] a = MatMul(x, w)
      [second] y = MatMul(a, w)
    }
    """)
    model = onnx.load(path)
    ones = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model.graph.initializer[0].CopyFrom(ones)
    onnx.save(model, path)
    loaded = load_model(path)
    edges = [edge for node in loaded.graph.nodes for edge in loaded.graph.edges_into(node)]
    ranges = {"x": Range(0, 1), "a": Range(0, 64)}
    proto = Inserter(loaded, FULL).insert(Placement.of(edges), ranges)
    found = OnnxRuntimeModel(proto, path.parent, threads=1).run({"x": np.ones((1, 64), np.float32)})
    assert found["y"].max() == pytest.approx(64**2, rel=0.01)


@pytest.fixture(scope="module")
def without_vnni() -> Iterator[Executor]:
    """A process in which OpenVINO takes the processor for one of AVX2 alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
            process.submit(int).result()
        yield process


def on_openvino(model: onnx.ModelProto, folder: Path) -> float:
    return float(OpenVinoEngine().compile(model, folder).run(X)["y"].max())


def test_openvino_saturates_without_vnni_but_for_a_reduced_range(
    path: Path, without_vnni: Executor
):
    ours = {"bias": "float"}
    full, reduced = (
        without_vnni.submit(
            on_openvino, candidate(path, scheme.model_copy(update=ours)), path.parent
        ).result()
        for scheme in (FULL, REDUCED)
    )
    assert full < 2000
    assert reduced == pytest.approx(2304, rel=0.01)


@pytest.mark.parametrize(
    ("pack", "processor", "weight_range"),
    [
        ("onnxruntime", "avx2", "reduced"),
        ("onnxruntime", "avx2-vnni", "full"),
        ("onnxruntime", "avx512", "reduced"),
        ("onnxruntime", "amx", "full"),
        ("onnxruntime-arm", "avx2", "full"),
        ("openvino", "avx2", "reduced"),
        ("tensorrt", "avx2", "full"),
    ],
)
def test_the_range_follows_from_the_pack_and_the_processor(
    pack: str, processor: str, weight_range: str
):
    target = Target(processor=PROCESSORS[processor])
    loaded = load_pack(pack)
    assert loaded.with_weight_range("auto", target).manifest.scheme.weight_range == weight_range
    for asked in ("full", "reduced"):
        assert loaded.with_weight_range(asked, target).manifest.scheme.weight_range == asked
    unknown = loaded.with_weight_range("auto", Target())
    assert unknown.manifest.scheme.weight_range == "full"


def test_weights_in_fp8_have_no_reduced_range():
    pack = load_pack("tensorrt").with_scheme("fp8")
    target = Target(processor=PROCESSORS["avx2"])
    assert pack.with_weight_range("auto", target) is pack
    with pytest.raises(InputError, match="`weight_range` reduced is for weights in int8"):
        pack.with_weight_range("reduced", target)


def test_the_choice_is_said():
    _, pack, why = select_engine("onnxruntime", threads=1)
    is_reduced = pack.manifest.scheme.weight_range == "reduced"
    assert is_reduced == (this_processor().exact_products is False)
    assert ("weights take a reduced range" in why) == is_reduced
