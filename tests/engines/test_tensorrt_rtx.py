"""NVIDIA's builder (TensorRT-RTX, no GPU needed): what it takes, refuses and builds."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from placer.cli.app import app
from placer.engines.tensorrt.offline_builder import check_file, check_model
from placer.errors import InputError
from placer.model import load_model
from placer.plan import Layer, Port
from placer.plan.readers.read import read_plan
from placer.plan.readers.rtx_log import parse_layers
from placer.qdq import Inserter
from placer.quantization import Range, Scheme
from placer.rules.packaging.load import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place
from tests.conftest import DIGITS, Finished

PACK = load_pack("tensorrt")
LAYOUTS = [
    pytest.param(rule, layout, id=f"{rule.id}-{layout}")
    for rule in PACK.rules
    for layout in rule.layouts
]


def candidate(path: Path, rules: tuple[Rule, ...], layout: str | None, scheme: Scheme) -> Path:
    """Save the candidate in which every site has ``layout``, or its default, beside ``path``."""
    model = load_model(path)
    sites = find_sites(model.graph, rules)
    choices = {} if layout is None else {site.name: layout for site in sites}
    placement = place(sites, choices)
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    target = path.with_name("candidate.onnx")
    onnx.save(Inserter(model, scheme).insert(placement, ranges), target)
    return target


@pytest.mark.parametrize(("rule", "layout"), LAYOUTS)
def test_every_layout_of_the_pack_is_accepted(
    save: Callable[..., Path], builder: object, rule: Rule, layout: str
):
    path = candidate(save(rule.tests[0].model), (rule,), layout, PACK.manifest.scheme)
    report = check_model(builder, onnx.load(path), "sm89")
    assert report.refusals == ()
    assert len(report.engine) > 0


def test_the_bundled_models_default_runs_its_convolutions_on_int8(builder: object, tmp_path: Path):
    path = tmp_path / "digits.onnx"
    path.write_bytes((DIGITS / "digits.onnx").read_bytes())
    report = check_file(builder, candidate(path, PACK.rules, None, PACK.manifest.scheme), "sm89")
    assert report.accepted
    convolutions = [layer for layer in report.plan.layers if layer.op == "correlation"]
    assert len(convolutions) == 14
    assert {layer.input_types[0] for layer in convolutions} == {"int8"}


@pytest.mark.usefixtures("builder")
def test_the_built_plan_is_written_for_plan_diff(save: Callable[..., Path], tmp_path: Path):
    rule = next(rule for rule in PACK.rules if rule.id == "weighted-input")
    path = candidate(save(rule.tests[0].model), (rule,), None, PACK.manifest.scheme)
    built = tmp_path / "built.json"
    finished = CliRunner().invoke(app, ["check", str(path), "--plan", str(built)])
    assert finished.exit_code == 0, finished.output
    plan = read_plan(built)
    assert not plan.estimated
    assert {node for layer in plan.of_kind("compute") for node in layer.nodes} == {"conv1"}
    assert {layer.kind for layer in plan.layers if layer.op in ("signal", "wait")} <= {"no-op"}


def test_an_int32_bias_is_refused_with_its_node(save: Callable[..., Path], builder: object):
    conv = next(rule for rule in PACK.rules if rule.id == "weighted-input")
    text = conv.tests[0].model.replace("w1 = {1}", "w1 = {1}, float[3] b1 = {1, 2, 3}")
    scheme = PACK.manifest.scheme.model_copy(update={"bias": "int32"})
    path = candidate(save(text.replace("image, w1)", "image, w1, b1)")), (conv,), "int8", scheme)
    (refusal,) = check_file(builder, path, "sm89").refusals
    assert refusal.node == "b1/DequantizeLinear"
    assert refusal.op == "DequantizeLinear"
    assert "input has type Int32 but must have type" in refusal.reason


def test_gpus_are_known_by_compute_capability(builder: object):
    with pytest.raises(InputError, match=r"does not build for sm90, but for sm120, "):
        check_file(builder, DIGITS / "digits.onnx", "sm90")


def test_layers_are_read_from_the_build_log():
    line = (
        "Name: conv_0, LayerType: correlation, Inputs: [ { Name: a, Datatype: Int8, Format: (NHWC)"
        " Channel major format }], Constants: [ { Name: w, Datatype: Int8 }], Outputs: [ { Name: b,"
        " Datatype: Float }], TacticName: t, StreamId: 0, Metadata: [ONNX Layer: relu]"
        "[ONNX Layer: conv[0]][ONNX Layer: a/DequantizeLinear][ONNX Layer: conv[0]]"
    )
    assert list(parse_layers(["Layers:", line, "Engine Metadata:"])) == [
        Layer(
            "conv_0",
            "correlation",
            ("conv[0]", "relu"),
            (Port("int8", "(NHWC) Channel major format", "a"),),
            (Port("float", "", "b"),),
        )
    ]


def test_names_in_brackets_are_shown_as_they_are(
    builder: object, placer: Callable[..., Finished], tmp_path: Path
):
    del builder
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Sin(x) }'
    )
    proto.graph.node[0].name = "[/] [red]"
    onnx.save(proto, tmp_path / "odd.onnx")
    finished = placer("check", tmp_path / "odd.onnx")
    assert finished.code == 0
    assert "[/] [red]" in finished.out


def test_the_command(builder: object, placer: Callable[..., Finished]):
    del builder
    finished = placer("check", DIGITS / "digits.onnx", "--json", "--shape", "image=2x1x32x32")
    assert finished.code == 0
    report = json.loads(finished.out)
    assert report["accepted"]
    assert report["plan"]["layers"]
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y)'
            "{ [odd] y = NotAnOperator(x) }"
        ),
        "odd.onnx",
    )
    refused = placer("check", "odd.onnx")
    assert refused.code == 1
    assert "refuses odd.onnx: node 'odd' (NotAnOperator)" in refused.err
    assert placer("check", "nowhere.onnx").code == 2


@pytest.mark.slow
def test_every_candidate_of_a_search_can_be_built(builder: object, placer: Callable[..., Finished]):
    del builder
    flags = ("--engine", "fusion-model", "--gpu", "l4", "--build-for", "sm89", "--budget", "3")
    finished = placer("optimize", DIGITS / "digits.onnx", *flags, "--preset", "quick", "--json")
    assert finished.code == 0, finished.err
    assert [t["error"] for t in json.loads(finished.out)["trials"]] == [None, None, None]
    wrong = placer("optimize", DIGITS / "digits.onnx", *flags[:5], "sm90")
    assert wrong.code == 2
    assert "does not build for sm90, but for sm120" in wrong.err
