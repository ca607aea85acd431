"""``placer import``, and quantized models as input of ``placer optimize``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from placer.model import load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.trial_setup import set_up
from placer.quantization.placement_file import load_placement
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.conftest import Finished
from tests.reference_outputs import outputs

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
Run = Callable[..., Finished]
FLATTENED = {
    "torch_fx": "/Flatten_output_0",
    "torch_eager": "/net/Flatten_output_0",
    "torch_qat": "/Flatten_output_0",
}
QUICK = ("--budget", "3", "--preset", "quick", "--gate", "sqnr>=5", "--calibration", "minmax")


def test_the_float_model_and_the_placement_are_written(placer: Run):
    finished = placer("import", ARTEFACTS / "torch_eager.onnx", "-o", "out/float.onnx")
    assert finished.code == 0, finished.err
    model = load_model("out/float.onnx")
    assert model.imported is None
    source = load_model(ARTEFACTS / "torch_eager.onnx")
    image = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    written, in_memory = (outputs(m.proto, image=image)[0] for m in (model, source))
    assert np.array_equal(written, in_memory)
    file = Path("out/float.placement.yaml")
    assert load_placement(file, model.graph) == source.imported.placement
    document = yaml.safe_load(file.read_text())
    assert document["model"] == model.fingerprint
    ranges = [tuple(group["range"]) for group in document["groups"] if "range" in group]
    relu = source.imported.activations["/net/conv1/Relu_output_0"]
    assert (0.0, 255 * relu.scale) in ranges


def test_what_is_printed(placer: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    finished = placer("import", ARTEFACTS / "torch_eager.onnx")
    lines = [" ".join(line.replace("│", " ").split()) for line in finished.out.splitlines()]
    assert "scales of activations 7" in lines
    assert "scales of weights 3" in lines
    assert "/net/conv1/Relu_output_0 uint8, zero point 0 2.008 times +6.05 dB" in lines
    assert "- 8 Cast nodes between Q and DQ dropped" in lines
    expected = "wrote torch_eager.float.onnx and torch_eager.float.placement.yaml"
    assert expected in lines


def test_json(placer: Run):
    finished = placer("import", ARTEFACTS / "torch_qat.onnx", "--json")
    document = json.loads(finished.out)
    assert document["source"] == "QDQ, int8 activations, int8 per-channel weights"
    assert document["coarser"] == []
    assert document["scales"]["image"]["zero_point"] == 0
    assert "image -> /conv1/Conv[0]" in document["pairs"]["kept"]
    source = load_model(ARTEFACTS / "torch_qat.onnx").imported
    edges = {*document["pairs"]["kept"], *document["pairs"]["left"]}
    assert edges == {str(edge) for edge in source.placement.edges}


def test_pairs_are_compared_with_the_default_placement_that_other_commands_take(placer: Run):
    given = (ARTEFACTS / "torch_qat.onnx", "--pack", "onnxruntime", "--json")
    document = json.loads(placer("import", *given).out)
    graph, pack = load_model(ARTEFACTS / "torch_qat.onnx").graph, load_pack("onnxruntime")
    default = {str(edge) for edge in place(sites_with_defaults(graph, pack), {}).edges}
    assert {*document["pairs"]["kept"], *document["pairs"]["added"]} == default
    assert default < {str(edge) for edge in place(find_sites(graph, pack.rules), {}).edges}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((ARTEFACTS / "float.onnx",), "float.onnx is not quantized"),
        (("nowhere.onnx",), "nowhere.onnx does not exist"),
        (
            (ARTEFACTS / "torch_fx.onnx", "-o", ARTEFACTS / "torch_fx.onnx"),
            "which MODEL names, too",
        ),
        ((ARTEFACTS / "torch_fx.onnx", "--pack", "none"), "none"),
    ],
)
def test_wrong_input(placer: Run, arguments: tuple[object, ...], expected: str):
    finished = placer("import", *arguments)
    assert finished.code == 2
    assert expected in finished.err


def scales_of(proto: onnx.ModelProto) -> dict[str, float]:
    """Scale of every activation that a QuantizeLinear reads."""
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {
        node.input[0]: float(values[node.input[1]].item())
        for node in proto.graph.node
        if node.op_type == "QuantizeLinear"
    }


@pytest.mark.slow
def test_optimize_takes_a_quantized_model(placer: Run):
    path = ARTEFACTS / "torch_fx.onnx"
    finished = placer("optimize", path, *QUICK, "--engine", "onnxruntime", "-o", "out", "--json")
    assert finished.code == 0, finished.err
    (said,) = [t for t in json.loads(finished.out)["warnings"] if "is quantized already" in t]
    assert "7 scales of activations kept, 0 of them coarser in this scheme" in said


@pytest.mark.parametrize("name", ["torch_fx", "torch_eager", "torch_qat"])
def test_its_candidates_have_the_scales_of_the_source(name: str):
    """uint8 zero points included: ONNX Runtime's scheme has them too.

    Symmetric int8 that is never negative has twice the steps there, up to the same value.

    Tensors that the pack ties, the input and output of Flatten, have the wider scale of the two.
    """
    path = ARTEFACTS / f"{name}.onnx"
    # Of a reduced range, weights have other scales where their sums would not fit.
    request = Request(model=path, engine="onnxruntime", preset="quick", weight_range="full")
    task = prepare(request, QuietObserver())
    bench = set_up(task, QuietObserver())
    source = task.model.imported
    # All that can be quantized, since so small a network is float by default.
    candidate = bench.candidates.build(task.space.placement(task.space.everything))
    found = scales_of(candidate)
    assert len(found) >= 5
    for tensor, scale in found.items():
        base = tensor.removesuffix("/float")
        own = source.activations[base].scale
        if base in source.non_negative:
            assert scale == pytest.approx(own * 127 / 255)
            continue
        assert scale in {known.scale for known in source.activations.values()}
        assert scale == own or tensor == FLATTENED[name]
    values = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    for weight, scales in source.weights.items():
        assert np.array_equal(values[f"{weight}/scale"], scales.scale.astype(np.float32))


@pytest.mark.slow
def test_optimize_can_calibrate_anew(placer: Run):
    path = ARTEFACTS / "torch_fx.onnx"
    flags = (*QUICK, "--engine", "onnxruntime", "--ranges", "calibrated", "-o", "out", "--json")
    finished = placer("optimize", path, *flags)
    assert finished.code == 0, finished.err
    assert any("its scales are not used" in text for text in json.loads(finished.out)["warnings"])
    wrong = placer("optimize", path, "--ranges", "other")
    assert wrong.code == 2
    assert "unknown ranges 'other'; use one of: imported, calibrated" in wrong.err


def test_a_float_model_is_refused_before_its_open_sizes_are_asked_for(
    placer: Run, save: Callable[..., Path]
):
    path = save("""<ir_version: 9, opset_import: ["": 17]>
    g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }""")
    refused = placer("import", path)
    assert (refused.code, refused.out) == (2, "")
    assert "is not quantized; give it to placer optimize as it is" in refused.err
