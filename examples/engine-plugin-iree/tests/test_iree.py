"""IREE as an engine, on the CPU; where IREE is missing only the factory is tested."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from placer_engine_iree import IreeFactory, factory

from placer.engines.base import Compiled, Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.registry import EngineFactory, EngineOptions
from placer.errors import InputError, RunError
from placer.model import Model, load_model
from placer.plan import Layer
from placer.qdq import Inserter
from placer.quantization import Range
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

PACK = load_pack(factory.rules)

needs_iree = pytest.mark.skipif(
    factory.unavailable() is not None, reason="needs iree-base-compiler and iree-base-runtime"
)

NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[batch,8,8,8] x) => (float[batch,4] y)
<float[16,8,3,3] w1 = {1}, float[16] b1 = {0.5}, float[16,4] w2 = {1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  [relu] r = Relu(c)
  [pool] p = GlobalAveragePool(r)
  [flat] f = Flatten(p)
  [fc] y = MatMul(f, w2)
}
"""


def options(**extra: str) -> EngineOptions:
    return EngineOptions(pack=PACK, extra=extra)


def saved(folder: Path, text: str) -> Path:
    """The ONNX text as a file, its weights of rank 2 and up random but seeded."""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        shape = tuple(tensor.dims)
        values = rng.standard_normal(shape) if len(shape) > 1 else np.full(shape, 0.5)
        named = onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name)
        tensor.CopyFrom(named)
    path = folder / "net.onnx"
    onnx.save(proto, path)
    return path


def quantized(model: Model) -> onnx.ModelProto:
    """The candidate of the pack's default placement with ranges of -4 to 4."""
    placement = place(find_sites(model.graph, PACK.rules), {})
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = {tensor: Range(-4.0, 4.0) for tensor in tensors}
    return Inserter(model, PACK.manifest.scheme).insert(placement, ranges)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load_model(saved(tmp_path, NET))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return factory.create(options())


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 8, 8, 8)).astype(np.float32)


def output(compiled: Compiled, x: np.ndarray) -> np.ndarray:
    return compiled.run({"x": x})["y"]


def covering(layers: tuple[Layer, ...], node: str) -> list[Layer]:
    return [layer for layer in layers if node in layer.nodes and layer.kind == "compute"]


def test_the_factory_is_one():
    assert isinstance(factory, EngineFactory)
    assert PACK.manifest.engine == "iree"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (options(taget="cuda"), "engine iree: unknown engine option 'taget'; use one of: target"),
        (options(target="rocm"), "iree has no target 'rocm'; --engine-option target is: llvm-cpu"),
        (
            options(target="cuda", arch="h100"),
            "cuda has no instruction set 'h100'; give e.g. sm_80",
        ),
        (EngineOptions(pack=PACK, device="0"), "add --engine-option target=cuda"),
        (EngineOptions(pack=PACK, gpu="a100"), "--gpu and --build-for go with --engine fusion-"),
    ],
)
def test_options_that_it_does_not_take(given: EngineOptions, sentence: str):
    with pytest.raises(InputError, match=sentence):
        IreeFactory().create(given)


@needs_iree
def test_float_outputs_are_those_of_onnx_runtime(engine: Engine, model: Model, x: np.ndarray):
    ours = output(engine.compile(model.proto, model.base_dir), x)
    theirs = output(OnnxRuntimeEngine().compile(model.proto, model.base_dir), x)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@needs_iree
def test_quantized_outputs_are_those_of_onnx_runtime(engine: Engine, model: Model, x: np.ndarray):
    candidate = quantized(model)
    ours = output(engine.compile(candidate, model.base_dir), x)
    theirs = output(OnnxRuntimeEngine().compile(candidate, model.base_dir), x)
    np.testing.assert_allclose(ours, theirs, rtol=0.02, atol=0.02)


@needs_iree
def test_the_plan_is_the_dispatches_and_their_nodes(engine: Engine, model: Model):
    float_plan = engine.compile(model.proto, model.base_dir).plan()
    assert float_plan.source == f"IREE {engine.version}"
    assert not float_plan.estimated
    (conv,) = covering(float_plan.layers, "conv")
    assert (conv.op, set(conv.input_types)) == ("conv", {"float"})
    assert conv.nodes == ("conv",)

    layers = engine.compile(quantized(model), model.base_dir).plan().layers
    (conv,) = covering(layers, "conv")
    assert (conv.op, conv.input_types[:1]) == ("conv", ("int8",))
    (pool,) = covering(layers, "pool")
    assert (pool.nodes, pool.output_types) == (("pool", "relu"), ("int8",))
    (fc,) = covering(layers, "fc")
    assert (fc.nodes, fc.input_types[:1]) == (("fc",), ("int8",))
    assert [layer.kind for layer in layers if not layer.nodes] == ["quantize"]


@needs_iree
def test_measuring_gives_seconds_by_round_and_model(engine: Engine, model: Model, x: np.ndarray):
    compiled = [engine.compile(m, model.base_dir) for m in (model.proto, quantized(model))]
    seconds = engine.measure(compiled, {"x": x}, 3)
    assert seconds.shape == (3, 2)
    assert (seconds > 0).all()
    assert engine.clock == "CPU time of one thread"


@needs_iree
def test_an_engine_made_in_one_thread_works_in_another(model: Model, x: np.ndarray):
    with ThreadPoolExecutor(2) as pool:
        engines = list(pool.map(lambda _: factory.create(options()), range(2)))
        made = list(pool.map(lambda e: e.compile(model.proto, model.base_dir), reversed(engines)))
        first, second = pool.map(lambda compiled: output(compiled, x), made)
    np.testing.assert_array_equal(first, second)


@needs_iree
def test_what_the_importer_refuses_is_a_run_error(engine: Engine, tmp_path: Path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 17, "com.example": 1]>
        g (float[1,4] x) => (float[1,4] y) { y = com.example.NoSuchOperator(x) }
        """
    )
    with pytest.raises(RunError, match=r"IREE's compiler refuses the model: .*NoSuchOperator"):
        engine.compile(proto, tmp_path)


@needs_iree
def test_cuda_code_is_compiled_without_a_gpu(model: Model):
    from placer_engine_iree.compiler import Compiler  # noqa: PLC0415 - needs IREE

    module = Compiler("cuda", "sm_80", {}).module(quantized(model), model.base_dir)
    assert b"sm_80" in module or b".target" in module


@needs_iree
def test_a_telling_line_of_stderr():
    from placer_engine_iree.compiler import telling_line  # noqa: PLC0415 - needs IREE

    diagnostics = "a.mlir:3:5: note: see here\na.mlir:9:1: error: failed to legalize\nmore"
    assert telling_line(diagnostics) == "failed to legalize"
    assert telling_line("Traceback\n  File x\nKeyError: 'y'\n") == "KeyError: 'y'"
    assert telling_line("") == "it gave no reason"
