"""Which rule pack explains a model or a placement where none is given."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

import placer
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.plan.diff import diff_plans
from placer.plan.diff_result import Score
from placer.prediction.explanation.conversion_text import conversion_text
from placer.prediction.rule_tests import layer_line
from placer.qdq.bases import Base
from placer.quantization import FLOAT8
from placer.rules.packaging.load import builtin_pack_names, load_pack
from tests.conftest import Finished, with_random_weights
from tests.model.paired import nvfp4

MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,256,8,8] x) => (float[1,256,8,8] y) <float[256,256,3,3] w = {0.5}> {
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu1] y = Relu(c)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path, proto = tmp_path / "model.onnx", onnx.parser.parse_model(MODEL)
    values = np.random.default_rng(0).normal(0, 0.1, (256, 256, 3, 3)).astype(np.float32)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    onnx.save(proto, path)
    return path


def placement_of(model: Path, pack: str) -> Path:
    """A placement of ``model`` that says it was made with ``pack``."""
    path = model.with_name("placement.yaml")
    placer.explain(model).write_improved(path)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(document | {"pack": f"{pack} 1.0.0"}))
    return path


def pack_of(*arguments: Path, gpu: str | None = None) -> str:
    return placer.explain(*arguments, gpu=gpu).pack.manifest.name


def test_a_placement_and_the_model_made_of_it_are_explained_by_their_own_pack(
    model: Path, tmp_path: Path
):
    placement = placement_of(model, "onnxruntime")
    assert pack_of(model, placement) == "onnxruntime"
    data = tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(1).normal(0, 1, (4, 256, 8, 8)).astype(np.float32))
    applied = placer.apply_placement(
        placement, model, data=data, calibration="minmax", output=tmp_path / "out", cache=False
    )
    assert pack_of(applied.folder / "optimized.onnx") == "onnxruntime"
    with pytest.raises(InputError, match="has pairs, whose formats are its own; leave out"):
        placer.explain(applied.folder / "optimized.onnx", pack="openvino", scheme="symmetric")


def test_a_gpu_is_asked_for_with_tensorrts_pack(model: Path):
    placement = placement_of(model, "onnxruntime")
    assert pack_of(model, placement, gpu="l4") == "tensorrt"


def test_the_kind_of_cpu_is_named_and_refused_where_nothing_depends_on_it(
    model: Path, placer: Callable[..., Finished]
):
    for name in ("openvino", "onnxruntime"):
        found = placer("explain", model, "--pack", name, "--processor", "avx512")
        pack = load_pack(name).name_and_version
        assert f"pack {pack}, for a CPU of the kind avx512\n" in found.out
    found = placer("explain", model, "--pack", "onnxruntime-arm")
    assert "CPU" not in found.out.partition("\n")[0]
    for words in (("--gpu", "a100"), ("--pack", "onnxruntime-arm")):
        refused = placer("explain", model, *words, "--processor", "amx")
        assert refused.code == 2
        assert "does not depend on the CPU; leave out" in refused.err


def test_nodes_without_inputs_are_explained_by_every_pack(tmp_path: Path):
    path = tmp_path / "noisy.onnx"
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
      [draw] n = RandomNormal<shape = [1, 4, 8, 8]>() [add] z = Add(x, n) [relu] y = Relu(z)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)
    for name in builtin_pack_names():
        plan = placer.explain(path, pack=name).explanation.plan
        assert {node for layer in plan.layers for node in layer.nodes} >= {"add", "relu"}, name


@pytest.mark.parametrize(("scheme", "written"), [(None, "uint8"), ("symmetric", "int8")])
def test_a_scheme_decides_what_is_predicted(model: Path, scheme: str | None, written: str):
    explained = placer.explain(model, pack="openvino", scheme=scheme)
    conv = next(layer for layer in explained.explanation.plan.layers if layer.nodes)
    assert conv.inputs[0].dtype == written
    assert explained.to_json()["scheme"] == scheme


def test_a_placement_is_explained_in_the_scheme_that_it_was_made_in_alone(
    model: Path, tmp_path: Path
):
    int8, fp8 = tmp_path / "int8.yaml", tmp_path / "fp8.yaml"
    placer.explain(model, gpu="l4").write_improved(int8)
    placer.explain(model, gpu="l4", scheme="fp8").write_improved(fp8)
    explained = placer.explain(model, fp8, gpu="l4", scheme="fp8").explanation
    assert any(layer.inputs[0].dtype == FLOAT8 for layer in explained.plan.layers if layer.nodes)
    with pytest.raises(InputError) as refused:
        placer.explain(model, int8, gpu="l4", scheme="fp8")
    assert str(refused.value) == (
        f"{int8} was made for activations in int8 and weights in int8, which scheme 'fp8' does not "
        "have; leave out `scheme`, or give the one that the placement was made with"
    )


def test_what_names_no_built_in_pack_is_explained_by_tensorrts(model: Path):
    placement = placement_of(model, "ours")
    assert pack_of(model, placement) == pack_of(model) == "tensorrt"


# Pairs that no kernel reads.

PAIRS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) {
  [q] i = QuantizeLinear<axis = 1>(x, XS, XZ)
  [dq] d = DequantizeLinear<axis = 1>(i, XS, XZ)
  [v] v = DequantizeLinear<axis = AXIS>(w, s16, z16)
  [conv] y = Conv<pads = [1, 1, 1, 1]>(d, v)
}
"""


def weights(scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8),
        "s": np.array(scale, np.float32),
        "z": np.array(0, np.int8),
        "s16": np.full(16, scale, np.float32),
        "z16": np.zeros(16, np.int8),
    }


def with_pairs(
    tmp_path: Path, axis: int, each: str = "", scale: float = 0.03, op: str = "Conv"
) -> Path:
    """A Conv whose weight has scales along ``axis``; ``each``: the input has some for channels."""
    text = PAIRS.replace("AXIS", str(axis)).replace("XS", f"s{each}").replace("XZ", f"z{each}")
    text = text.replace("Conv<", f"{op}<")
    proto, path = onnx.parser.parse_model(text), tmp_path / "pairs.onnx"
    for name, value in weights(scale).items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize(
    ("axis", "each", "reads"),
    [(0, "", "int8"), (1, "", "float"), (0, "16", "float")],
    ids=["as engines read them", "a weight by its inputs", "an activation by channels"],
)
def test_a_conv_with_scales_along_another_axis_is_predicted_in_float_as_it_is_built(
    tmp_path: Path, builder: Any, axis: int, each: str, reads: str
):
    """ONNX Runtime issue 17718: axis is 1 where it is not given, a Conv's output channels are 0."""
    path = with_pairs(tmp_path, axis, each)
    found = placer.explain(path, pack="tensorrt-rtx")
    built = check_model(builder, onnx.load(path), "sm89").plan
    for plan in (found.explanation.plan, built):
        (conv,) = (layer for layer in plan.layers if "conv" in layer.nodes)
        assert all(kind.startswith(reads) for kind in conv.input_types), plan
    assert len(found.unpredicted) == (reads == "float")


def test_a_weight_with_scales_along_another_axis_is_not_said_to_have_no_pair(tmp_path: Path):
    """ONNX Runtime issue 19694: the output channels of a ConvTranspose are 1."""
    explained = placer.explain(with_pairs(tmp_path, 0, op="ConvTranspose"))
    assert "TensorRT 8 wants axis 0" in explained.notes[0]
    assert (explained.not_built, bool(explained.first_changes)) == ((), True)
    found = explained.explanation
    (dequantized,) = (x for x in found.conversions if x.kind == "dequantize")
    because, remedy = conversion_text(dequantized, timed=True, pairs=found.pairs)
    assert because.endswith(
        "'x' is read in float by 'conv', whose operand 'w' has several scales along another axis "
        "than its output channels"
    )
    assert remedy.startswith("remove it: give 'v' (w -> conv[1]) scales by output channels; saves")


def test_an_explanation_says_that_no_such_engine_is_built(tmp_path: Path):
    """TensorRT issue 2628: scales were NaN after calibration."""
    found = placer.explain(with_pairs(tmp_path, 0, scale=float("nan")))
    (told,) = found.unpredicted
    document = found.to_json()
    assert document["notes"] == [told]
    assert (document["pack"], document["processor"]) == (found.pack.name_and_version, None)
    assert told.startswith("TensorRT refuses this file as it is, so it builds no such plan: node ")
    assert "its scale is nan" in told
    assert placer.explain(with_pairs(tmp_path, 0)).unpredicted == ()


def test_a_file_that_quantizes_at_run_time_is_predicted_where_the_pack_can_or_said_not_to_be(
    tmp_path: Path,
):
    """Two products share what they quantize, the third has it for itself."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[8,16] x) => (float[8,16] y, float[8,16] end)
    <float[16,16] w = {1}, float[16,16] v = {2},
     float[16] b = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> {
      [product1] a = MatMul(x, w) [sum1] c = Add(a, b) [act] d = Erf(c)
      [product2] y = MatMul(x, v) [product3] end = MatMul(d, w)
    }
    """
    plain, dynamic = tmp_path / "plain.onnx", tmp_path / "dynamic.onnx"
    proto = onnx.parser.parse_model(text)
    for tensor, factor in zip(proto.graph.initializer, (1, 2), strict=False):
        values = factor * np.eye(16, dtype=np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, plain)
    quantize_dynamic(plain, dynamic)
    own = placer.explain(dynamic, pack="onnxruntime")
    built = OnnxRuntimeEngine().compile(onnx.load(dynamic), tmp_path).plan()
    diff = diff_plans(own.explanation.plan, built)
    assert diff.exact == Score(matched=5, predicted=5, actual=5)
    assert own.unpredicted == placer.explain(plain, pack="tensorrt").unpredicted == ()
    (told,) = placer.explain(dynamic, pack="tensorrt").unpredicted
    assert told.startswith("this file quantizes at run time (DynamicQuantizeLinear)")


TRAINED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) {
  q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
  v = DequantizeLinear<axis = 0>(w, s16, z16)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(d, v)
  [norm] n = BatchNormalization(c, s16, s16, s16, s16)
  [add] a = Add(n, d)
  [relu] y = Relu(a)
}
"""


def test_a_residual_add_is_in_the_layer_of_a_conv_whose_norm_training_left(tmp_path: Path):
    """As of a YOLOv3 that trt-engine-explorer published: one layer, which names no norm."""
    proto, path = onnx.parser.parse_model(TRAINED), tmp_path / "trained.onnx"
    for name, value in weights(0.03).items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.save(proto, path)
    layers = placer.explain(path, base="float").explanation.plan.of_kind("compute")
    assert [layer_line(layer) for layer in layers] == ["conv+add+relu: int8, float -> float"]


def test_a_result_is_explained_as_it_was_estimated(model: Path, tmp_path: Path):
    """Its Casts to FP16 and back are the conversions that a float32 graph has anyway."""
    result = placer.optimize(
        model,
        engine="fusion-model",
        gpu="l4",
        gates="sqnr>=10",
        budget=3,
        output=tmp_path / "out",
        cache=False,
    )
    file = tmp_path / "out" / "optimized.onnx"
    assert {node.op_type for node in onnx.load(file).graph.node} >= {"Cast", "QuantizeLinear"}
    explained = placer.explain(file, gpu="l4")
    assert [layer_line(layer) for layer in explained.explanation.plan.layers] == [
        "quantize x: float -> int8",
        "conv1+relu1: int8 -> float16",
        "y/Cast: float16 -> float",
    ]
    assert explained.explanation.speedup == pytest.approx(result.speedup, rel=0.03)


# Integers that a caller hands in and takes out, as with TensorRT's --inputIOFormats=int8:chw32.

INTEGERS = """
<ir_version: 8, opset_import: ["": 17]>
g (int8[1,16,8,8] x) => (int8[1,16,8,8] y) {
  [dq] d = DequantizeLinear(x, s, z)
  [v] v = DequantizeLinear<axis = 0>(w, s16, z16)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(d, v)
  NODES
  [q] y = QuantizeLinear(r, s, z)
}
"""


@pytest.mark.parametrize(
    ("nodes", "layers"),
    [
        ("[relu] r = Relu(c)", ["conv+relu: int8 -> int8"]),
        ("[add] a = Add(c, d) [relu] r = Relu(a)", ["conv+add+relu: int8, int8 -> int8"]),
        ("[softmax] r = Softmax(c)", ["conv: int8 -> float16", "softmax: float16 -> int8"]),
    ],
)
def test_integers_that_enter_and_leave_are_read_and_written_as_such(
    tmp_path: Path, nodes: str, layers: list[str]
):
    path = with_pairs(tmp_path, 0)
    constants = onnx.load(path).graph.initializer
    proto = onnx.parser.parse_model(INTEGERS.replace("NODES", nodes))
    proto.graph.initializer.extend(constants)
    onnx.save(proto, path)
    plan = placer.explain(path).explanation.plan
    assert [layer_line(layer) for layer in plan.layers] == layers


BYTES = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[1,16,8,8] x) => (uint8[1,16,8,8] y) {
  [dq] d = DequantizeLinear(x, s, z)
  [v] v = DequantizeLinear<axis = 0>(w, s16, z16)
  [conv] c = Conv<pads = [1, 1, 1, 1]>(d, v)
  NODES
  [q] y = QuantizeLinear(r, s, z)
}
"""


def bytes_in_and_out(folder: Path, nodes: str) -> Path:
    """A file with uint8 inputs and outputs."""
    path = with_pairs(folder, 0)
    constants = [t for t in onnx.load(path).graph.initializer if t.name != "z"]
    proto = onnx.parser.parse_model(BYTES.replace("NODES", nodes))
    proto.graph.initializer.extend([*constants, numpy_helper.from_array(np.uint8(0), "z")])
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("pack", ["onnxruntime", "openvino"])
def test_engines_on_cpus_read_and_write_bytes_that_enter_and_leave(tmp_path: Path, pack: str):
    path = bytes_in_and_out(tmp_path, "[relu] r = Relu(c)")
    plan = placer.explain(path, pack=pack).explanation.plan
    (conv,) = plan.of_kind("compute")
    assert (conv.nodes[0], *conv.input_types, *conv.output_types) == ("conv", "uint8", "uint8")
    engine = OnnxRuntimeEngine() if pack == "onnxruntime" else OpenVinoEngine()
    built = engine.compile(onnx.load(path), tmp_path).plan()
    assert [(layer.output_types, layer.kind) for layer in built.of_kind("compute")] == [
        (plan.layers[0].output_types, "compute")
    ]


def test_openvino_dequantizes_bytes_for_a_conv_in_float(tmp_path: Path):
    path = bytes_in_and_out(tmp_path, "[relu] r = Relu(c)")
    proto = onnx.load(path)
    proto.graph.node[2].input[1] = "f"
    values = np.random.default_rng(0).normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(values, "f"))
    onnx.save(proto, path)
    plan = placer.explain(path, pack="openvino").explanation.plan
    assert [layer.name for layer in plan.of_kind("dequantize")] == ["dequantize x"]
    built = OpenVinoEngine().compile(onnx.load(path), tmp_path).plan()
    assert len(built.of_kind("dequantize")) == 1


def test_tensorrt_rtx_lays_integers_out_anew(tmp_path: Path):
    path = with_pairs(tmp_path, 0)
    constants = onnx.load(path).graph.initializer
    proto = onnx.parser.parse_model(
        INTEGERS.replace("NODES", "[add] a = Add(c, d) [relu] r = Relu(a)")
    )
    proto.graph.initializer.extend(constants)
    onnx.save(proto, path)
    plan = placer.explain(path, pack="tensorrt-rtx").explanation.plan
    assert [layer_line(layer) for layer in plan.layers] == [
        "reformat x: int8 -> int8",
        "conv: int8 -> float",
        "generated add+relu: float, int8 -> int8",
    ]


def test_operators_that_the_engine_lacks_are_told(tmp_path: Path):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {0.5}, int64 first = {0}> {
      parts = SplitToSequence<axis = 0>(x)
      part = SequenceAt(parts, first)
      [product] y = Conv(part, w)
    }
    """
    path = tmp_path / "lists.onnx"
    onnx.save(with_random_weights(text), path)
    (told,) = placer.explain(path).unpredicted
    assert told.startswith("TensorRT has no SequenceAt, SplitToSequence, so it cannot build")
    assert placer.explain(path, pack="onnxruntime").unpredicted == ()
    task = prepare(Request(model=path, engine="fusion-model", gpu="a100"), QuietObserver())
    assert told in task.warnings


def test_the_parser_has_none_of_the_operators_that_the_pack_says_it_lacks(builder: Any):
    module = builder.module
    logger = module.Logger(module.Logger.ERROR)
    parser = module.OnnxParser(module.Builder(logger).create_network(0), logger)
    assert parser.supports_operator("Conv")
    lacks = load_pack("tensorrt-rtx").manifest.behaviour.lacks
    assert "SequenceAt" in lacks
    assert [op for op in lacks if parser.supports_operator(op)] == []


def test_a_file_with_a_plugin_of_tensorrt_is_explained(tmp_path: Path):
    path, proto = tmp_path / "plugin.onnx", with_random_weights(MODEL)
    proto.graph.node[1].op_type = "EfficientNMS_TRT"
    onnx.save(proto, path)
    found = placer.explain(path)
    assert "EfficientNMS_TRT" in {layer.op for layer in found.explanation.plan.layers}
    (told,) = found.unpredicted
    assert told.startswith("TensorRT needs plugins for TRT.EfficientNMS_TRT")
    with pytest.raises(InputError, match="EfficientNMS_TRT, which ONNX does not have"):
        placer.explain(path, pack="onnxruntime")


@pytest.mark.parametrize("domain", ["", "com.example"])
def test_behind_a_plugin_the_types_that_the_file_declares_hold(tmp_path: Path, domain: str):
    path = tmp_path / "plugin.onnx"
    proto = with_random_weights("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[N,512,32,32] x) => (float[N,512,32,32] y)
        <float[512,512,3,3] w = {0.5}, float[N,512,32,32] p> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
          [plugin] p = Relu(c)
          [conv2] y = Conv<pads = [1, 1, 1, 1]>(p, w)
        }
    """)
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "DeformConvPlugin", domain
    if domain:
        proto.opset_import.add(domain=domain, version=1)
    onnx.save(proto, path)
    found = placer.explain(path, shapes={"x": (2, 512, 32, 32)})
    layers = {layer.name: layer for layer in found.explanation.plan.layers}
    assert layers["conv2"].input_types == ("int8",)
    del proto.graph.value_info[:]
    onnx.save(proto, path)
    layers = {layer.name: layer for layer in placer.explain(path).explanation.plan.layers}
    assert layers["conv2"].input_types == ("unknown",)


def test_a_pack_says_whether_its_engine_may_have_plugins(tmp_path: Path):
    path, proto = tmp_path / "plugin.onnx", with_random_weights(MODEL)
    proto.graph.node[1].op_type = "Folded"
    onnx.save(proto, path)
    pack = tmp_path / "mine"
    pack.mkdir()
    manifest = {
        "name": "mine",
        "version": "1.0.0",
        "engine": "onnxruntime",
        "engine_versions": ">=1",
        "extends": "onnxruntime",
        "behaviour": {"foreign": "plugins"},
        "licence": "MIT",
        "maintainers": ["me"],
    }
    (pack / "pack.yaml").write_text(yaml.safe_dump(manifest))
    (told,) = placer.explain(path, pack=str(pack)).unpredicted
    assert told.startswith("ONNX Runtime needs plugins for TRT.Folded")


@pytest.mark.parametrize(("groups", "told"), [(1, False), (32, True), (256, False)])
def test_convs_of_groups_may_gain_nothing(groups: int, told: bool, tmp_path: Path):
    """TensorRT issue 4529; depthwise ones have kernels of their own."""
    text = MODEL.replace("[256,256,3,3]", f"[256,{256 // groups},3,3]")
    text = text.replace("Conv<", f"Conv<group = {groups}, ")
    onnx.save(with_random_weights(text), tmp_path / "float.onnx")
    found = placer.explain(tmp_path / "float.onnx", gpu="a100")
    assert any("grouped Conv" in note for note in found.notes) == told


def test_of_grouped_convs_in_fp8_nothing_is_said_of_int8(tmp_path: Path):
    """That they gain nothing is."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 19]>
        g (float[1,64,8,8] x) => (float[1,64,8,8] y) <float s = {0.01}> {
          q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
          v = DequantizeLinear(w, s, z)
          [conv] y = Conv<group = 8>(d, v)
        }""")
    for name, shape, values in (("z", [], [0.0]), ("w", [64, 8, 1, 1], [1.0] * 512)):
        tensor = onnx.helper.make_tensor(name, TensorProto.FLOAT8E4M3FN, shape, values)
        proto.graph.initializer.append(tensor)
    onnx.save(proto, tmp_path / "fp8.onnx")
    (note,) = placer.explain(tmp_path / "fp8.onnx", gpu="l4").notes
    assert note.startswith("FP8 pairs before 'conv' gain nothing")


def test_nvfp4_is_told_of_gpus_without_fp4(tmp_path: Path):
    path = tmp_path / "nvfp4.onnx"
    onnx.save(nvfp4(), path)
    own = "layers and times of trt.TRT_FP4DynamicQuantize are not known; placer check builds them"
    fp4, known = placer.explain(path, gpu="l4").unpredicted
    assert fp4.startswith("l4 (compute capability 8.9) has no FP4 tensor cores")
    assert known == own
    # Nor is the product said to compute in float, which the builder makes of FP4.
    assert placer.explain(path, gpu="rtx-5090").notes == (own,)


NO_TENSOR_CORES = (
    "a100-pcie-80gb (compute capability 8.0) has no FP8 tensor cores, so FP8 pairs make no engine "
    "faster there: use INT8"
)
GROUPS = (
    "FP8 pairs before 'conv' gain nothing (rule conv-fp8-groups): No fast FP8 kernel supports "
    "grouped Convs, depthwise ones included, so they stay in FP16, though layers and times here "
    "are predicted as if one did; leave these nodes in float, or use INT8"
)
WINDOW = (
    "FP8 pairs before 'conv' gain nothing (rule conv-fp8-window): No FP8 kernel supports a "
    "Conv whose window has more than 32 elements, such as the 7x7 of a stem, so it stays in FP16; "
    "leave these nodes in float, or use INT8"
)


@pytest.mark.parametrize(
    ("pack", "gpu", "conv", "said"),
    [
        ("tensorrt", "a100", "group = 64", [NO_TENSOR_CORES, GROUPS]),
        ("tensorrt", "l4", "group = 64", [GROUPS]),
        ("tensorrt-rtx", "l4", "group = 64", []),  # Its builder has kernels for them.
        ("tensorrt-rtx", "l4", "group = 1", [WINDOW]),
    ],
)
def test_fp8_without_kernels_is_told(tmp_path: Path, pack, gpu, conv, said):
    """As rules of the pack say (TensorRT issue 4524 recommends INT8 for depthwise Convs)."""
    taken, side = (1, 3) if conv == "group = 64" else (64, 7)
    text = f"""
      <ir_version: 9, opset_import: ["": 19]>
      g (float[1,64,8,8] x) => (float[1,64,n,n] y)
      <float[64,{taken},{side},{side}] w = {{0.1}}, float s = {{0.01}}> {{
        [q] q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        [i] i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z)
        [conv] y = Conv<{conv}>(d, v)
      }}"""
    proto, path = onnx.parser.parse_model(text), tmp_path / "fp8.onnx"
    fp8 = onnx.helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0])
    weight = numpy_helper.from_array(np.full((64, taken, side, side), 0.1, np.float32), "w")
    proto.graph.initializer[0].CopyFrom(weight)
    proto.graph.initializer.append(fp8)
    onnx.save(proto, path)
    assert placer.explain(path, gpu=gpu, pack=pack).unpredicted == tuple(said)


BOTH = (
    "INT8 and FP8 pairs are in one network, which TensorRT builds for compute capability >=10.0 "
    "only, and this is 8.9: use one of them"
)


@pytest.mark.parametrize(
    ("pack", "gpu", "said"),
    [
        ("tensorrt", "rtx-4090", [BOTH]),
        ("tensorrt", "rtx-5090", []),
        ("tensorrt-rtx", "rtx-4090", []),  # 1.7.1 built such networks for it.
    ],
)
def test_int8_beside_fp8_is_refused_before_blackwell(tmp_path: Path, pack, gpu, said):
    """As TensorRT 11.3 did on an RTX 4090, with a sentence that names kSTRONGLY_TYPED."""
    text = """
      <ir_version: 9, opset_import: ["": 19]>
      g (float[1,64,8,8] x) => (float[1,64,8,8] y)
      <float[64,64,1,1] w = {0.1}, float s = {0.01}, int8 z = {0}> {
        [q] q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        [i] i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z)
        [conv1] c = Conv(d, v)
        [qc] qc = QuantizeLinear(c, s, f) dc = DequantizeLinear(qc, s, f)
        [j] j = QuantizeLinear(w2, s, f) u = DequantizeLinear(j, s, f)
        [conv2] y = Conv(dc, u)
      }"""
    proto, path = onnx.parser.parse_model(text), tmp_path / "both.onnx"
    weight = np.full((64, 64, 1, 1), 0.1, np.float32)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w2"))
    proto.graph.initializer.append(
        onnx.helper.make_tensor("f", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0])
    )
    onnx.save(proto, path)
    assert placer.explain(path, gpu=gpu, pack=pack).unpredicted == tuple(said)


@pytest.mark.parametrize(
    ("product", "computes"),
    [
        ("y = MatMul(x, w)", "float"),
        ("q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, v)", "uint8"),
    ],
)
def test_a_product_by_a_stack_is_one_of_integers_if_it_has_pairs(tmp_path: Path, product, computes):
    ones = ", ".join(["1"] * 512)
    text = f"""
      <ir_version: 8, opset_import: ["": 17]> g (float[2,4,16] x) => (float[2,4,16] y)
      <float[2,16,16] w = {{{ones}}}, int8[2,16,16] i = {{{ones}}}, float s = {{0.01}},
       uint8 z = {{128}}, int8 zero = {{0}}> {{
        v = DequantizeLinear(i, s, zero) {product}
      }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    plan = placer.explain(tmp_path / "model.onnx", pack="onnxruntime").explanation.plan
    (types,) = {layer.input_types for layer in plan.layers if layer.nodes}
    assert types == (computes,)


def test_int4_weights_beside_fp8_are_not_int8(tmp_path: Path):
    text = """
      <ir_version: 10, opset_import: ["": 21]> g (float[4,32] x) => (float[4,32] y)
      <float[32,32] w = {0.1}, float s = {0.01}> {
        [q] q = QuantizeLinear(x, s, f) d = DequantizeLinear(q, s, f)
        [i] i = QuantizeLinear(w, s, f) v = DequantizeLinear(i, s, f) [first] m = MatMul(d, v)
        [j] u = DequantizeLinear(w4, s) [second] y = MatMul(m, u)
      }"""
    proto, path = onnx.parser.parse_model(text), tmp_path / "model.onnx"
    weight = numpy_helper.from_array(np.full((32, 32), 0.1, np.float32), "w")
    proto.graph.initializer[0].CopyFrom(weight)
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("f", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0]),
            onnx.helper.make_tensor("w4", onnx.TensorProto.INT4, [32, 32], [1] * 1024),
        ]
    )
    onnx.save(proto, path)
    assert placer.explain(path, gpu="rtx-4090", pack="tensorrt").unpredicted == ()


DEAD = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,32,8,8] x) => (float[1,16,8,8] y)
<float[32,32,1,1] w = {1}, float s = {0.03}, int8 z = {0}, int64[2] half = {16, 16}> {
  i = QuantizeLinear(x, s, z) d = DequantizeLinear(i, s, z)
  j = QuantizeLinear(w, s, z) v = DequantizeLinear(j, s, z)
  [conv] c = Conv(d, v)
  [split] y, unread = Split<axis = 1>(c, half)
  k = QuantizeLinear(unread, s, z) e = DequantizeLinear(k, s, z) [dead] n = Conv(e, first)
}
"""


@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx", "onnxruntime", "openvino"])
def test_nodes_that_no_output_needs_are_not_built(tmp_path: Path, pack: str):
    proto = onnx.parser.parse_model(DEAD.replace("{1}", "{" + ", ".join(["1"] * 1024) + "}"))
    first = np.ones((8, 16, 1, 1), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(first, "first"))
    onnx.save(proto, tmp_path / "model.onnx")
    plan = placer.explain(tmp_path / "model.onnx", pack=pack).explanation.plan
    assert {node for layer in plan.layers for node in layer.nodes} == {"conv", "split"}


@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx", "onnxruntime", "openvino"])
def test_a_file_of_a_pair_alone_is_explained(tmp_path: Path, pack: str):
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (float[1,8] x) => (float[1,8] y)
    <float s = {0.03}, int8 z = {0}> { i = QuantizeLinear(x, s, z) y = DequantizeLinear(i, s, z) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    assert placer.explain(tmp_path / "model.onnx", pack=pack).explanation.decisions == ()


@pytest.mark.parametrize("pack", ["tensorrt", "openvino"])
def test_integers_that_enter_leave_as_floats_behind_their_pair(tmp_path: Path, pack: str):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (int8[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] d)
    <float s = {0.03}, int8 z = {0}> {
      d = DequantizeLinear(x, s, z) i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z)
      [conv] y = Conv(d, v)
    }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((16, 16, 1, 1), "f"), "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    plan = placer.explain(tmp_path / "model.onnx", pack=pack, base="float").explanation.plan
    assert {layer_line(layer) for layer in plan.layers} == {
        "conv: int8 -> float",
        "dequantize x: int8 -> float",
    }


@pytest.mark.parametrize(("dtype", "base"), [("bfloat16", "bfloat16"), ("float", "float16")])
def test_a_bfloat16_file_is_predicted_in_bfloat16(save: Callable[..., Path], dtype: str, base: str):
    path = save(f"""
    <ir_version: 10, opset_import: ["": 22]>
    g ({dtype}[1,16,8,8] x, {dtype}[16,16,1,1] w) => ({dtype}[1,16,8,8] y) {{
      c = Conv(x, w) y = Relu(c)
    }}""")
    explained = placer.explain(path)
    assert explained.base == base
    layers = explained.explanation.plan.of_kind("compute")
    assert {layer.output_types for layer in layers} == {(base,)}


OF_ORT = """
<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (float[1,8] x) => (float[1,8] y) <float s = {0.5}, int8 z = {0}> { BODY }
"""


@pytest.mark.parametrize(
    ("body", "what_to_do"),
    [
        ("y = com.microsoft.Inverse(x)", "export the model without ONNX Runtime's fusions"),
        (
            "q = QuantizeLinear(x, s, z) a = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)"
            " y = DequantizeLinear(a, s, z)",
            "quantize in the Q/DQ format (QuantFormat.QDQ)",
        ),
    ],
)
def test_operators_of_onnxruntime_that_tensorrt_lacks(body: str, what_to_do: str, tmp_path: Path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(OF_ORT.replace("BODY", body)), path)
    (told,) = (one for one in placer.explain(path).notes if "TensorRT has no com" in one)
    assert told.endswith(f"whose layers and times are not known; {what_to_do}")


OWN_PAIRS = """
<ir_version: 9, opset_import: ["": 17]> g (float[1,64,28,28] x) => (float[1,64,28,28] y)
<float[64,64,3,3] w = {0.3}, float s = {0.1}, float t = {0.5}, int8 z = {0}> {
  xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)
  wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z)
  c = Conv<pads = [1, 1, 1, 1]>(xd, wd) BEHIND
}"""
SPLIT = "cq = QuantizeLinear(c, t, z) cd = DequantizeLinear(cq, t, z) r = Relu(cd) y = Add(r, x)"


@pytest.mark.parametrize(
    ("behind", "missing", "command"),
    [
        pytest.param("y = Relu(c)", set(), "placer apply FILE MODEL", marks=pytest.mark.slow),
        (SPLIT, {"r"}, "placer apply FILE MODEL --data DATA --ranges kept"),
    ],
)
def test_what_is_improved_of_a_quantized_file_keeps_its_ranges(
    save: Callable[..., Path], tmp_path: Path, behind: str, missing: set[str], command: str
):
    """What had no pair has no range; -128 is no value of a scheme whose scale is amax / 127."""
    path, better = save(OWN_PAIRS.replace("BEHIND", behind)), tmp_path / "better.yaml"
    explained = placer.explain(path)
    explained.write_improved(better)
    assert explained.apply_command == command
    assert yaml.safe_load(better.read_text())["calibrated"] is not bool(missing)
    given: dict[str, Any] = {}
    if missing:
        with pytest.raises(InputError, match="has no range of tensor 'r'; give `data`"):
            placer.apply_placement(better, path, output=tmp_path / "none")
        samples = np.random.default_rng(0).standard_normal((2, 64, 28, 28)).astype(np.float32)
        np.savez(tmp_path / "data.npz", x=samples)
        given = {"data": tmp_path / "data.npz", "ranges": "kept"}
    applied = placer.apply_placement(better, path, output=tmp_path / "out", **given)
    assert applied.scales.ranges["x"] == pytest.approx((-12.7, 12.7))
    assert applied.scales.ranges.keys() == {"x", *missing}
    assert not [warning for warning in applied.warnings if "random" in warning]


def test_a_default_that_no_remedy_comes_near_is_told_with_how_to_get_it(
    save: Callable[..., Path],
):
    """Its estimate is below that with all remedies by more than estimates err (here 10%)."""
    explained = placer.explain(save(OWN_PAIRS.replace("BEHIND", SPLIT)), gpu="l4")

    def told(default_us: float, nothing: bool = False) -> str:
        of_default = replace(
            explained.explanation,
            improved_us=44.0,
            default_us=default_us,
            float_by_default=nothing,
            ratio_error=0.1,
        )
        return replace(explained, explanation=of_default).default_advice

    assert told(41.0) == ""
    start = "the pack's default placement: 0.019 ms, an estimate, which no remedies of these pairs "
    assert told(19.0) == (
        f"{start}come near; to get it, run placer import MODEL -o FLOAT_MODEL, then placer explain "
        "FLOAT_MODEL --improved FILE with the same options, and placer apply FILE FLOAT_MODEL "
        "--data DATA"
    )
    assert told(19.0, nothing=True) == (
        f"{start}come near; as it quantizes nothing, it is the float model, which placer import "
        "MODEL -o FLOAT_MODEL writes"
    )


# Its own pairs cost more than they save, and half precision leaves the Pow in float32.
WITH_POW = """
<ir_version: 9, opset_import: ["": 17]> g (float[1,64,28,28] x) => (float[1,64,28,28] y)
<float[64,64,3,3] w = {0.3}, float s = {0.1}, float t = {200}, int8 z = {0}, float two = {2}> {
  xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)
  wq = QuantizeLinear(w, s, z) wd = DequantizeLinear(wq, s, z)
  c = Conv<pads = [1, 1, 1, 1]>(xd, wd) r = Relu(c) p = Pow(r, two)
  pq = QuantizeLinear(p, t, z) pd = DequantizeLinear(pq, t, z) y = Add(pd, x)
}"""


@pytest.mark.slow
@pytest.mark.parametrize("pack", ["tensorrt", "tensorrt-rtx"])
@pytest.mark.parametrize("base", ["float16", "bfloat16", "float"])
def test_the_estimate_of_what_is_written_is_announced(
    save: Callable[..., Path], tmp_path: Path, pack: str, base: Base
):
    """What apply writes keeps float32 at the ports and in the Pow, which Casts part from the rest.

    In float nothing is converted, and the estimate with all remedies is that of the file.
    """
    path, better = save(WITH_POW), tmp_path / "better.yaml"
    asked = {"gpu": "l4", "pack": pack, "base": base}
    explained = placer.explain(path, **asked)
    explained.write_improved(better)
    assert explained.apply_command.endswith(f" --base {base}") is (base != "float16")
    applied = placer.apply_placement(better, path, output=tmp_path / "out", base=base)
    read = placer.explain(applied.folder / "optimized.onnx", **asked).explanation
    written, before = explained.written, explained.explanation
    assert (written is None) is (base == "float")
    if written is None:
        announced = before.improved_us, before.float_us
    else:
        assert (written.kept, written.casts) == (1, 4)
        announced = written.total_us, written.float_us
        assert written.float_us > before.float_us
    assert announced == pytest.approx((read.total_us, read.float_us))


@pytest.mark.slow
def test_what_is_improved_of_a_file_in_fp8_is_applied_to_the_float_model(
    save: Callable[..., Path], tmp_path: Path, placer: Callable[..., Finished]
):
    """No float operator rounds as pairs in FP8 do, so these cannot be taken out of every file."""
    proto = with_random_weights(OWN_PAIRS.replace("BEHIND", SPLIT).replace('"": 17', '"": 19'))
    zero = next(one for one in proto.graph.initializer if one.name == "z")
    zero.CopyFrom(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    onnx.save(proto, tmp_path / "fp8.onnx")
    said = placer("explain", tmp_path / "fp8.onnx", "--gpu", "l4", "--improved", "better.yaml")
    assert "the model with placer apply FILE FLOAT_MODEL --data DATA" in said.out, said.err
    text = OWN_PAIRS.replace("BEHIND", "r = Relu(c) y = Add(r, x)")
    for tensor in ("x", "w"):
        text = re.sub(rf"{tensor}q = .*", "", text).replace(f"{tensor}d", tensor)
    samples = np.random.default_rng(0).standard_normal((2, 64, 28, 28)).astype(np.float32)
    np.savez("data.npz", x=samples)
    done = placer("apply", "better.yaml", save(text), "--data", "data.npz")
    assert done.code == 0, done.err
