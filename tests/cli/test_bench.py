"""``placer bench`` and ``placer doctor``."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from placer.graph.text import parse_model
from placer.model import load_model
from placer.qdq import Inserter
from placer.qdq.base_property import name_base
from placer.qdq.origin import name_origin
from placer.quantization import Placement, Range
from placer.rules.packaging.load import load_pack
from tests.conftest import DIGITS, Finished

MODEL = DIGITS / "digits.onnx"


def test_models_are_measured_against_the_first(placer: Callable[..., Finished], tmp_path: Path):
    model = load_model(MODEL)
    convs = [n for n in model.graph.nodes if n.op == "Conv"]
    edges = [edge for n in convs for t in n.inputs[:2] for edge in model.graph.edges_of(t)]
    placement = Placement.of(edge for edge in edges if not edge.is_graph_output)
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    scheme = load_pack("onnxruntime").manifest.scheme
    onnx.save(Inserter(model, scheme).insert(placement, ranges), tmp_path / "pairs.onnx")
    finished = placer("bench", MODEL, tmp_path / "pairs.onnx", "--rounds", 5, "--json")
    assert finished.code == 0, finished.err
    document = json.loads(finished.out)
    assert document["engine"] == "onnxruntime"
    assert not document["estimated"]
    first, second = document["models"]
    assert first["ratio"] == 1.0
    assert second["median_ms"] > 0
    assert second["ratio_interval"][0] <= second["ratio"] <= second["ratio_interval"][1]
    assert first["per_second"] * first["median_ms"] == pytest.approx(1000)


def test_models_of_other_shapes_are_refused_by_name(placer: Callable[..., Finished]):
    for size in (4, 8):
        text = f"""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[N,{size}] x) => (float[N,{size}] y) {{ y = Relu(x) }}
        """
        onnx.save(parse_model(text), f"of{size}.onnx")
    wide = parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,4,4] x) => (float[1,4,4] y) { y = Relu(x) }
    """)
    onnx.save(wide, "wide.onnx")
    for other, shape in (("of8.onnx", "Nx8"), ("wide.onnx", "1x4x4")):
        finished = placer("bench", "of4.onnx", other)
        assert finished.code == 2
        assert f"{other} reads 'x' with shape {shape}, of4.onnx with 1x4; give" in finished.err


@pytest.mark.slow
def test_an_engine_that_runs_here_is_named_for_a_file_of_another(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    """Without TensorRT nobody is told to measure on it."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    proto = onnx.load(MODEL)
    name_origin(proto, "none", load_pack("tensorrt").name_and_version, calibrated=True)
    onnx.save(proto, "placed.onnx")
    told = "was placed for TensorRT and is {} on ONNX Runtime; TensorRT does not run here"
    measured = placer("bench", "placed.onnx", "--rounds", 3)
    assert told.format("measured") in measured.out
    assert "--engine fusion-model with --gpu estimates its latency" in measured.out
    judged = placer("eval", MODEL, "placed.onnx", "--data", DIGITS / "evaluation.npz")
    assert told.format("judged") in " ".join(judged.out.split())


def test_estimates_are_labelled(placer: Callable[..., Finished]):
    finished = placer("bench", MODEL, "--engine", "fusion-model", "--gpu", "t4", "--rounds", 3)
    assert finished.code == 0, finished.err
    assert "estimated" in finished.out
    assert "latency is an estimate" in finished.out


def test_a_base_is_for_engines_that_compute_in_it(placer: Callable[..., Finished]):
    predicted = ("--engine", "fusion-model", "--gpu", "t4", "--base", "float16")
    finished = placer("bench", MODEL, *predicted)
    assert finished.code == 2
    assert "fusion-model computes a file in the types that it has, whatever --base" in finished.err
    data = ("--data", DIGITS / "evaluation.npz")
    finished = placer("eval", MODEL, MODEL, *data, "--base", "bfloat16")
    assert finished.code == 2
    assert "ONNX Runtime takes no --base" in finished.err


@pytest.mark.slow
def test_openvino_computes_a_file_in_the_base_that_it_names(placer: Callable[..., Finished]):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    proto = onnx.load(MODEL)
    name_base(proto, "float")
    onnx.save(proto, "named.onnx")
    words = ("bench", "named.onnx", "--engine", "openvino", "--rounds", 3, "--json")
    devices = [
        json.loads(placer(*words, *more).out)["device"] for more in ((), ("--base", "float"))
    ]
    assert [device.endswith("1 thread, float") for device in devices] == [False, True]


def test_wrong_input_is_one_sentence(placer: Callable[..., Finished]):
    assert placer("bench", "nowhere.onnx").code == 2
    assert placer("bench", MODEL, "--engine", "tensort").code == 2
    twice = placer("bench", MODEL, "--shape", "image=1x1x32x32", "--shape", "image=2x1x32x32")
    assert twice.code == 2
    assert "--shape names input 'image' twice" in twice.err
    assert placer("bench", MODEL, "--engine-option", "target").code == 2


def test_doctor_names_what_runs_and_what_is_missing_or_broken(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "openvino.py").write_text("raise ImportError('libopenvino.so: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    document = json.loads(placer("doctor", "--json").out)
    reasons = {engine["name"]: engine["reason"] for engine in document["engines"]}
    assert reasons["onnxruntime"] is None
    assert reasons["fusion-model"] is None
    assert reasons["openvino"] == (
        "its library does not start: ImportError: libopenvino.so: no such file; install it again"
    )
    assert document["packages"]["onnxruntime"]
    text = placer("doctor").out
    assert "engine onnxruntime runs here" in text
    for name, reason in reasons.items():
        if reason is not None:
            assert f"engine {name} does not run here: {reason}" in " ".join(text.split())
