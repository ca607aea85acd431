"""The engine that predicts: labelled estimates, the same to the last digit in every run."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from placer.calibration.dataset import calibration_and_evaluation, load_dataset
from placer.engines.estimated.fusion_model import FusionModelEngine
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import InputError
from placer.graph import Edge
from placer.model import load_model
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from tests.conftest import DIGITS, Finished
from tests.few_digits import FEW_BY_MINMAX

Placer = Callable[..., Finished]
Save = Callable[..., Path]

PACK = load_pack("tensorrt")
MODEL = DIGITS / "digits.onnx"
QUICK = (*FEW_BY_MINMAX, "--preset", "quick", "--no-cache")
RUN = ("optimize", MODEL, *QUICK, "--engine", "fusion-model")

# So slow that the work of the small model counts, not the launches.
SLOW_GPU = """\
name: slow
compute_capability: "8.6"
sms: 1
boost_clock_mhz: 100000
memory_gb: 1
memory_bandwidth_gb_s: 0.5
l2_mb: 1
peak: {float: 0.005, float16: 0.02, bfloat16: 0.02, int8: 0.04}
sources:
  - fields: [sms, boost_clock_mhz, memory_gb, memory_bandwidth_gb_s, l2_mb, peak]
    source: made up for a test
"""

CHAIN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,3,3] w1 = {0.1}, float[16,16,3,3] w2 = {0.1}> {
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r = Relu(c)
  [conv2] out = Conv<pads = [1, 1, 1, 1]>(r, w2)
}
"""
WHOLE = Placement.of(
    [Edge("x", "conv1", 0), Edge("w1", "conv1", 1), Edge("r", "conv2", 0), Edge("w2", "conv2", 1)]
)
RANGES = {"x": Range(-1, 1), "r": Range(0, 4)}


def result(folder: str = "digits.placer") -> Result:
    return Result.model_validate_json((Path(folder) / "result.json").read_text())


def test_a_description_of_ones_own_is_told_from_others_of_its_name(tmp_path: Path):
    def device(text: str) -> str:
        (tmp_path / "slow.yaml").write_text(text)
        return FusionModelEngine(load_gpu(str(tmp_path / "slow.yaml")), PACK).device

    assert device(SLOW_GPU).startswith(f"slow (float16, pack {PACK.name_and_version}, description ")
    assert device(SLOW_GPU) == device(SLOW_GPU)
    assert device(SLOW_GPU) != device(SLOW_GPU.replace("sms: 1\n", "sms: 2\n"))


def test_a_run_is_labelled_an_estimate_everywhere(placer: Placer):
    finished = placer(*RUN, "--budget", 2, "--gpu", "t4")
    assert finished.code == 0, finished.err
    printed = " ".join(finished.out.split())
    assert "every latency is an estimate" in printed
    assert "trial estimated, ms speed-up" in printed
    assert "nothing was run" in printed
    found = result()
    assert found.engine.estimated
    assert found.engine.name == "fusion-model"
    assert found.engine.device == f"t4 (float16, pack {PACK.name_and_version})"
    assert found.pack.name == "tensorrt"
    assert found.scheme.activation == "int8"


def test_an_estimated_gain_within_the_error_of_estimates_is_not_called_faster(placer: Placer):
    finished = placer(*RUN, "--budget", 2, "--gpu", "h200")
    assert finished.code == 0, finished.err
    found = result()
    assert found.verdict == "cannot tell"
    assert found.best.trial == 1  # The rules' default stays the result.
    low, high = found.best.speedup_interval
    assert low <= 1 < found.best.speedup < high
    printed = " ".join(finished.out.split())
    assert "fusion-model: cannot tell, within the error of estimates" in printed
    assert "faster" not in printed


@pytest.mark.slow
def test_runs_agree_to_the_last_digit(placer: Placer):
    documents = []
    for folder in ("a", "b"):
        assert placer(*RUN, "--budget", 4, "--gpu", "rtx-3090", "-o", folder).code == 0
        document = json.loads((Path(folder) / "result.json").read_text())
        for trial in document["trials"]:
            del trial["seconds"]
        documents.append({key: document[key] for key in ("trials", "best", "baseline", "verdict")})
    assert documents[0] == documents[1]
    for trial in documents[0]["trials"]:
        latency = trial["latency"]
        error = 1 + load_layer_classes().latency_error
        assert latency["p90_ms"] == pytest.approx(latency["median_ms"] * error)
        assert latency["p10_ms"] == pytest.approx(latency["median_ms"] / error)
    low, high = documents[0]["best"]["speedup_interval"]
    assert low <= documents[0]["best"]["speedup"] <= high


def test_a_gpu_of_the_users_own(placer: Placer):
    Path("slow.yaml").write_text(SLOW_GPU)
    finished = placer(*RUN, "--budget", 2, "--gpu", "slow.yaml", "--base", "float")
    assert finished.code == 0, finished.err
    found = result()
    assert found.engine.device.startswith("slow (float, ")
    assert found.verdict == "faster"
    assert found.best.speedup_interval[0] > 1
    onnx.checker.check_model(onnx.load("digits.placer/optimized.onnx"), full_check=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--engine", "fusion-model"), "needs a GPU to predict for; give --gpu, e.g. a100"),
        (("--engine", "fusion-model", "--gpu", "rtx"), "unknown GPU 'rtx'; use one of: "),
        (("--engine", "fusion-model", "--gpu", "mine.yaml"), "mine.yaml:1: field"),
        (("--engine", "fusion-model", "--gpu", "t4", "--base", "int4"), "unknown base 'int4'"),
        (
            ("--engine", "onnxruntime", "--gpu", "t4"),
            "with engine fusion-model or tensorrt-rtx-build, which estimates",
        ),
    ],
)
def test_wrong_options_are_named_before_anything_is_written(
    placer: Placer, options: tuple[str, ...], expected: str
):
    Path("mine.yaml").write_text("name: mine\n")
    finished = placer("optimize", MODEL, "--preset", "quick", *options)
    assert finished.code == 2
    assert expected in finished.err
    assert not Path("digits.placer").exists()


def engine(gpu: str = "t4", base: str = "float16") -> FusionModelEngine:
    return FusionModelEngine(load_gpu(gpu), PACK, base)


def test_ratios_beside_fp32_and_on_blackwell_are_less_certain_whatever_the_model():
    classes = load_layer_classes()
    assert engine().ratio_error == classes.ratio_error
    assert engine(base="float").ratio_error == classes.float_ratio_error > classes.ratio_error
    assert engine("rtx-5090").ratio_error == classes.blackwell_ratio_error > classes.ratio_error


def test_the_plan_of_a_candidate_is_predicted_from_its_pairs(save: Save):
    model = load_model(save(CHAIN))
    inserter = Inserter(model, PACK.manifest.scheme)
    one = engine()
    whole = one.compile(inserter.insert(WHOLE, RANGES), model.base_dir).plan()
    assert whole.estimated
    assert [(x.name, x.kind) for x in whole.layers] == [
        ("quantize x", "quantize"),
        ("conv1+relu1", "compute"),
        ("conv2", "compute"),
        ("reformat out", "reformat"),
    ]
    assert [x.output_types for x in whole.layers] == [
        ("int8",),
        ("int8",),
        ("float16",),
        ("float",),
    ]
    assert all(x.time_us > 0 for x in whole.layers)
    floats = one.compile(inserter.insert(EMPTY, {}), model.base_dir).plan()
    assert [x.output_types for x in floats.layers] == [("float16",)] * 3 + [("float",)]
    # The same again after another candidate, and from an engine that has seen no other.
    assert one.compile(inserter.insert(WHOLE, RANGES), model.base_dir).plan() == whole
    assert engine().compile(inserter.insert(WHOLE, RANGES), model.base_dir).plan() == whole


def test_an_engine_that_saw_one_model_predicts_another(save: Save):
    """Same names, other attributes and shapes."""
    small = load_model(save(CHAIN))
    strided = CHAIN.replace("[1,16,8,8] out", "[1,16,4,4] out").replace(
        "[1, 1, 1, 1]>(x", "[1, 1, 1, 1], strides = [2, 2]>(x"
    )
    large = load_model(save(strided, "strided.onnx"))
    one = engine()
    first = one.compile(small.proto, small.base_dir).plan()
    second = one.compile(large.proto, large.base_dir).plan()
    assert second == engine().compile(large.proto, large.base_dir).plan()
    assert [x.time_us for x in second.layers] != [x.time_us for x in first.layers]


def test_outputs_are_those_of_onnx_runtime(save: Save):
    model = load_model(save(CHAIN))
    candidate = Inserter(model, PACK.manifest.scheme).insert(WHOLE, RANGES)
    inputs = {"x": np.random.default_rng(0).uniform(-1, 1, (1, 16, 8, 8)).astype(np.float32)}
    found = engine().compile(candidate, model.base_dir).run(inputs)
    expected = OnnxRuntimeModel(candidate, model.base_dir, 1).run(inputs)
    assert list(found) == ["out"]
    np.testing.assert_array_equal(found["out"], expected["out"])


def test_measuring_repeats_the_sum_of_the_layers(save: Save):
    model = load_model(save(CHAIN))
    inserter = Inserter(model, PACK.manifest.scheme)
    one = engine("a100", "float")
    placements = ((EMPTY, {}), (WHOLE, RANGES))
    compiled = [one.compile(inserter.insert(*case), model.base_dir) for case in placements]
    seconds = one.measure(compiled, {}, rounds=3)
    sums = [sum(x.time_us for x in c.plan().layers) * 1e-6 for c in compiled]
    np.testing.assert_array_equal(seconds, [sums] * 3)


def test_dynamic_inputs_are_estimated_at_the_given_shape(save: Save):
    model = load_model(save(CHAIN.replace("float[1,16", "float[N,16")), {"x": (8, 16, 8, 8)})
    one = FusionModelEngine(load_gpu("t4"), PACK, shapes={"x": (8, 16, 8, 8)})
    two = FusionModelEngine(load_gpu("t4"), PACK, shapes={"x": (64, 16, 8, 8)})
    first, second = (e.compile(model.proto, model.base_dir).plan() for e in (one, two))
    assert [x.name for x in first.layers] == [x.name for x in second.layers]
    assert all(a.time_us < b.time_us for a, b in zip(first.layers, second.layers, strict=True))


def test_an_unknown_base_is_refused():
    message = "unknown base 'int8'; use one of: float16, bfloat16, float"
    with pytest.raises(InputError, match=message):
        engine(base="int8")


@pytest.mark.parametrize(
    ("base", "expected"),
    [("float16", onnx.TensorProto.FLOAT16), ("float", onnx.TensorProto.FLOAT)],
)
def test_the_result_has_its_remainder_in_the_base_type(
    save: Callable[..., Path], placer: Callable[..., Finished], base: str, expected: int
):
    model = save(CHAIN.replace("16,", "32,"))  # INT8 computes 32 channels at least.
    Path("slow.yaml").write_text(SLOW_GPU)
    flags = ("--engine", "fusion-model", "--gpu", "slow.yaml", "--preset", "quick", "--budget", "2")
    finished = placer("optimize", model, *flags, "--base", base, "-o", "out", "--gate", "sqnr>=1")
    assert finished.code == 0, finished.err
    proto = onnx.load("out/optimized.onnx")
    onnx.checker.check_model(proto, full_check=True)
    scales = {n.input[1] for n in proto.graph.node if n.op_type == "QuantizeLinear"}
    assert {t.data_type for t in proto.graph.initializer if t.name in scales} == {expected}
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


SMALL_WEIGHTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,3,3] w1 = {0.001}, float[16,16,3,3] w2 = {0.05}> {
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r = Relu(c)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(r, w2)
}
"""


@pytest.mark.parametrize(
    ("base", "io"),
    [
        ("float16", "convert"),
        ("bfloat16", "keep"),
        pytest.param("float16", "keep", marks=pytest.mark.slow),
        pytest.param("bfloat16", "convert", marks=pytest.mark.slow),
        pytest.param("float", "keep", marks=pytest.mark.slow),
    ],
)
def test_gates_are_those_of_the_model_that_is_written(
    save: Save, placer: Placer, base: str, io: str
):
    """Scales of its weights, 2.5e-05, are below FP16's smallest normal number."""
    model = save(SMALL_WEIGHTS)
    Path("slow.yaml").write_text(SLOW_GPU)
    x = np.random.default_rng(1).uniform(-1, 1, (32, 16, 8, 8)).astype(np.float32)
    np.savez("data.npz", x=x)
    flags = ("--engine", "fusion-model", "--gpu", "slow.yaml", "--preset", "quick", "--budget", "3")
    data_flags = ("--data", "data.npz", "--eval-data", "data.npz", "--calibration", "minmax")
    gate = ("--gate", "sqnr>=25", *data_flags)
    finished = placer(
        "optimize", model, *flags, *gate, "--base", base, "--io-type", io, "-o", "out"
    )
    assert finished.code == 0, finished.err
    found = result("out")
    assert found.verdict == "faster"
    proto = onnx.load("out/optimized.onnx")
    scales = {t.name: t.data_type for t in proto.graph.initializer if t.name.endswith("w1/scale")}
    assert set(scales.values()) <= {onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16}
    written = HalfPrecisionModel(proto, Path("out"), 1)
    floats = OnnxRuntimeModel(onnx.load(model), Path(), 1)
    signal = noise = 0.0
    data = load_dataset("data.npz", load_model(model))
    _, judged = calibration_and_evaluation(data, data, 0)
    for sample in judged.limit(found.evaluation.samples):
        expected = floats.run(sample.inputs)["y"].astype(np.float64)
        got = written.run(sample.inputs)["y"].astype(np.float64)
        signal += np.sum(expected**2)
        noise += np.sum((got - expected) ** 2)
    assert found.best.gates[0].value == pytest.approx(10 * np.log10(signal / noise), abs=1e-3)
    kept = [text for text in found.warnings if "stays float32: of 'w1', a scale" in text]
    assert bool(kept) == (base == "float16")


@pytest.mark.slow
def test_fp8_candidates_are_searched_and_gated(
    save: Callable[..., Path], placer: Callable[..., Finished]
):
    model = save("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[8,64,32,32] x) => (float[8,64,32,32] y)
        <float[64,64,3,3] w1 = {0.1}, float[64,64,3,3] w2 = {0.1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [relu1] r = Relu(c)
          [conv2] y = Conv<pads = [1, 1, 1, 1]>(r, w2)
        }
    """)
    flags = ("--engine", "fusion-model", "--gpu", "l4", "--preset", "quick", "--budget", "2")
    finished = placer(
        "optimize", model, *flags, "--scheme", "fp8", "-o", "out", "--gate", "sqnr>=10"
    )
    assert finished.code == 0, finished.err
    proto = onnx.load("out/optimized.onnx")
    onnx.checker.check_model(proto, full_check=True)
    points = {n.input[2] for n in proto.graph.node if n.op_type == "DequantizeLinear"}
    types = {t.data_type for t in proto.graph.initializer if t.name in points}
    assert types == {onnx.TensorProto.FLOAT8E4M3FN}
    assert Result.model_validate_json(Path("out/result.json").read_text()).scheme.is_float8


def test_sites_whose_scales_a_float16_model_cannot_hold_stay_float(tmp_path: Path, placer: Placer):
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 19]>
        g (float16[1,16,8,8] x) => (float16[1,16,8,8] y) {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [relu1] r = Relu(c)
          [conv2] y = Conv<pads = [1, 1, 1, 1]>(r, w2)
        }
    """)
    for name, size in (("w1", 0.0005), ("w2", 0.05)):
        values = (size * rng.standard_normal((16, 16, 3, 3))).astype(np.float16)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path / "half.onnx"
    onnx.save(proto, path)
    Path("slow.yaml").write_text(SLOW_GPU)
    flags = ("--engine", "fusion-model", "--gpu", "slow.yaml", "--preset", "quick", "--budget", "3")
    finished = placer("optimize", path, *flags, "-o", "out")
    assert finished.code == 0, finished.err
    found = result("out")
    assert any(
        "1 of 2 sites stay as they are: of 'w1', a scale of" in text for text in found.warnings
    ), found.warnings
    constants = {t.name for t in onnx.load("out/optimized.onnx").graph.initializer}
    assert "w1" in constants
    assert "w1/scale" not in constants
