"""``placer fit`` on real engines, with few and small networks."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

import placer
from placer.cli.app import app
from placer.errors import InputError, RunError
from placer.fitting.architectures import ARCHIVE, architecture, architecture_names, is_bare
from placer.fitting.measure import Measurer
from placer.fitting.networks import mixed_order, network_names, write_network
from placer.fitting.predicted import counts_moves
from placer.fitting.records import Records
from placer.fitting.run import network_weight
from placer.graph.text import parse_model
from placer.model import load_model
from placer.prediction.times.devices import load_device
from placer.rules.packaging.load import load_pack

# Small, and each different: a Conv, a pool, a Gemm of some widths.
SECRET = """
<ir_version: 9, opset_import: ["": 17]>
secret_{c} (float[1,3,24,24] x) => (float[1,4] y)
<float[{c},3,3,3] w = {{0.1}}, float[{c},{c},3,3] v = {{0.01}}, float[{c},4] u = {{0.1}}> {{
  [secret_stem] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [secret_relu] b = Relu(a)
  [secret_body] c = Conv<pads = [1, 1, 1, 1]>(b, v)
  [secret_pool] d = GlobalAveragePool(c)
  [secret_flat] e = Flatten(d)
  [secret_head] y = Gemm(e, u)
}}
"""
FEW = {"networks": 0, "placements": 1, "rounds": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for channels in (8, 16, 24, 32, 48):
        onnx.save(parse_model(SECRET.format(c=channels)), folder / f"secret-{channels}.onnx")
    return folder


@pytest.fixture(scope="module")
def fitted(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with fit.json and what was measured."""
    folder = tmp_path_factory.mktemp("fitted")
    placer.fit("onnxruntime", folder / "fit.json", models=models, **FEW)
    return folder


def told(*arguments: object) -> list[str]:
    sentences: list[str] = []
    engine, output, models = arguments
    placer.fit(str(engine), str(output), models=str(models), on_network=sentences.append, **FEW)
    return sentences


def test_the_file_estimates_other_models(fitted: Path, tmp_path: Path):
    onnx.save(parse_model(SECRET.format(c=40)), tmp_path / "other.onnx")
    found = placer.explain(tmp_path / "other.onnx", gpu=str(fitted / "fit.json"))
    assert found.pack.manifest.name == "onnxruntime"
    assert found.explanation.float_us > 1
    fit = load_device(str(fitted / "fit.json"))
    assert found.explanation.ratio_error == fit.errors.ratio > 0


def test_the_file_holds_what_was_measured_and_predicted(fitted: Path):
    document = json.loads((fitted / "fit.json").read_text())
    assert document["engine"]["name"] == "onnxruntime"
    assert document["versions"]["onnxruntime"]
    assert len(document["networks"]) == document["errors"]["networks"] == 5
    first = document["networks"][0]["builds"][0]
    assert (first["label"], first["ratio"]) == ("float", 1.0)
    assert first["estimated_us"] != first["measured_us"]
    conv = next(rule for rule in document["rules"] if rule["rule"] == "conv-act")
    assert 0 < conv["built"] <= conv["predicted"]


def test_neither_names_nor_weights_are_in_the_file_unless_asked_for(
    fitted: Path, models: Path, tmp_path: Path
):
    text = (fitted / "fit.json").read_text()
    assert "secret" not in text
    shutil.copytree(fitted, tmp_path / "again")
    output = tmp_path / "again" / "fit.json"
    placer.fit("onnxruntime", output, models=models, names=True, **FEW)
    assert '"model secret-8"' in output.read_text()
    assert "secret_stem" not in output.read_text()


def test_an_interrupted_run_goes_on_where_it_stopped(fitted: Path, models: Path, tmp_path: Path):
    shutil.copytree(fitted, tmp_path / "stopped")
    next((tmp_path / "stopped").rglob("model secret-48.json")).unlink()
    sentences = told("onnxruntime", tmp_path / "stopped" / "fit.json", models)
    assert sum("were measured before" in sentence for sentence in sentences) == 4
    assert "4 of 5, model secret-48: 3 builds measured" in sentences


@pytest.mark.slow
def test_builds_of_other_options_are_kept_and_said_to_take_no_part(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "other")
    output = tmp_path / "other" / "fit.json"
    before = sorted(output.parent.rglob("model*.json"))
    told: list[str] = []
    options = {**FEW, "rounds": 4}
    found = placer.fit("onnxruntime", output, models=models, on_network=told.append, **options)
    assert set(before) < set(output.parent.rglob("model*.json"))
    remark = "builds measured with other options are kept and take no part"
    assert found.remarks[0] == remark  # The file is passed on: no path of its user's is in it.
    assert told[0] == f"{remark}: {before[0].parent.name} in {output}.builds"


@pytest.mark.slow
def test_builds_that_were_timed_otherwise_are_measured_again(
    fitted: Path, models: Path, tmp_path: Path
):
    """Before short calls had an untimed one in front, options did not tell how calls are timed."""
    shutil.copytree(fitted, tmp_path / "former")
    (written,) = (tmp_path / "former").rglob("options.json")
    options = json.loads(written.read_text())
    options.pop("timing", None)
    records = Records(tmp_path / "former" / "fit.json.builds", options)
    written.parent.rename(records.folder)
    (records.folder / "options.json").write_text(json.dumps(options, sort_keys=True, indent=1))
    sentences = told("onnxruntime", tmp_path / "former" / "fit.json", models)
    assert sentences[0].startswith("builds measured with other options are kept and take no part")
    assert sum("builds measured" in sentence for sentence in sentences[1:]) == 5


def test_when_time_is_up_costs_are_fitted_to_what_was_measured(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "run")
    shutil.copytree(models, tmp_path / "models")
    onnx.save(parse_model(SECRET.format(c=12)), tmp_path / "models" / "secret-12.onnx")
    output = tmp_path / "run" / "fit.json"
    found = placer.fit("onnxruntime", output, models=tmp_path / "models", timeout=1e-6, **FEW)
    assert found.errors.networks == 5
    left = "time was up with 1 of 6 networks not measured; the same command again goes on with them"
    assert left in found.remarks  # A busy machine may be remarked on, too.
    late = r"^0 networks .* Time was up with 6 of 6 networks not measured"
    with pytest.raises(RunError, match=late):
        placer.fit("onnxruntime", tmp_path / "new", models=tmp_path / "models", timeout=1e-6, **FEW)


def test_whatever_is_measured_first_has_its_share_of_each_kind():
    def kinds(names: Iterable[str]) -> Counter[str]:
        return Counter(name.rpartition("-")[0] for name in names)

    names = network_names(280)
    first = mixed_order(names)[:70]
    assert all(abs(4 * kinds(first)[kind] - count) <= 8 for kind, count in kinds(names).items())
    numbers = sorted(int(name[13:]) for name in first if name.startswith("architecture-"))
    assert max(after - one for one, after in pairwise(numbers)) <= 8  # Of 60.


def test_a_model_that_has_changed_is_measured_again(fitted: Path, models: Path, tmp_path: Path):
    shutil.copytree(fitted, tmp_path / "run")
    shutil.copytree(models, tmp_path / "models")
    onnx.save(parse_model(SECRET.format(c=12)), tmp_path / "models" / "secret-8.onnx")
    sentences = told("onnxruntime", tmp_path / "run" / "fit.json", tmp_path / "models")
    assert "5 of 5, model secret-8: 3 builds measured" in sentences


def test_files_of_one_network_count_once_whatever_their_weights_and_names(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "run")
    shutil.copytree(models, tmp_path / "models")
    shutil.copy(models / "secret-8.onnx", tmp_path / "models" / "secret-8a.onnx")
    retrained = SECRET.format(c=8).replace("0.01", "0.02").replace("stem", "first")
    onnx.save(parse_model(retrained), tmp_path / "models" / "secret-8b.onnx")
    found = placer.fit(
        "onnxruntime", tmp_path / "run" / "fit.json", models=tmp_path / "models", **FEW
    )
    assert found.errors.networks == len(found.networks) == 5
    assert "models with the same layers count once" in found.remarks


def test_damaged_builds_are_named(fitted: Path, models: Path, tmp_path: Path):
    shutil.copytree(fitted, tmp_path / "damaged")
    next((tmp_path / "damaged").rglob("model secret-16.json")).write_text("{}")
    with pytest.raises(InputError, match=r"model secret-16.json is damaged; remove it"):
        told("onnxruntime", tmp_path / "damaged" / "fit.json", models)


def test_a_model_that_cannot_be_read_is_left_out_and_too_few_are_refused(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "few")
    shutil.copytree(models, tmp_path / "models")
    (tmp_path / "models" / "secret-8.onnx").write_bytes(b"no model")
    output = tmp_path / "few" / "fit.json"
    written = output.read_text()
    failed = r"4 networks were measured .* What failed first: .*secret-8.onnx is not an ONNX file"
    with pytest.raises(RunError, match=failed):
        told("onnxruntime", output, tmp_path / "models")
    assert output.read_text() == written


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"engine": "fusion-model"},
            "estimates latencies and runs nothing; choose one that measures",
        ),
        ({"rounds": 2}, "`rounds` is 2; give 3 or more"),
        ({"placements": 0}, "`placements` is 0; give 1 or more"),
        ({"models": "nowhere"}, "nowhere is not a folder"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], said: str, tmp_path: Path):
    given = {"engine": "onnxruntime", "output": tmp_path / "fit.json", **options}
    with pytest.raises(InputError, match=said):
        placer.fit(**given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pack", "options", "moves"),
    [
        ("onnxruntime", {}, True),
        ("onnxruntime", {"provider": "cpu"}, True),
        ("onnxruntime", {"provider": "CUDA"}, False),
        ("openvino", {}, False),
    ],
)
def test_moves_between_memory_layouts_are_those_of_onnx_runtime_on_a_cpu(
    pack: str, options: dict[str, str], moves: bool
):
    assert counts_moves(load_pack(pack), options) == moves


def test_given_models_are_measured_before_the_networks_that_a_fit_makes(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "run")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.onnx").write_bytes(b"no model")
    shutil.copy(models / "secret-8.onnx", tmp_path / "models")

    class Stopped(Exception):
        pass

    sentences: list[str] = []

    def tell(sentence: str) -> None:
        sentences.append(sentence)
        if len(sentences) == 2:
            raise Stopped

    options = {**FEW, "networks": 5}
    output = tmp_path / "run" / "fit.json"
    with pytest.raises(Stopped):
        placer.fit("onnxruntime", output, models=tmp_path / "models", on_network=tell, **options)
    assert "broken.onnx is not an ONNX file" in sentences[0]
    assert sentences[1] == "2 of 7, model secret-8: 3 builds were measured before"


def test_an_engine_that_builds_nothing_is_not_asked_280_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise RunError("no kernel")

    monkeypatch.setattr(Measurer, "measure", refuse)
    sentences: list[str] = []
    with pytest.raises(
        RunError, match=r"of the first 20 networks none .*convolutional-0: no kernel"
    ):
        placer.fit("onnxruntime", tmp_path / "fit.json", on_network=sentences.append)
    assert len(sentences) == 20


NOT_TAKEN = {
    "open": """<ir_version: 9, opset_import: ["": 17]>
        g (float[1,8,h,8] x) => (float[1,8,h,8] y) { y = Relu(x) }""",
    "log": """<ir_version: 9, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {1}> { l = Log(x) y = MatMul(l, w) }""",
}


def test_given_models_that_a_fit_cannot_take_are_told_without_options_that_it_lacks(
    fitted: Path, models: Path, tmp_path: Path
):
    shutil.copytree(fitted, tmp_path / "run")
    shutil.copytree(models, tmp_path / "models")
    for name, text in NOT_TAKEN.items():
        onnx.save(parse_model(text), tmp_path / "models" / f"{name}.onnx")
    sentences = told("onnxruntime", tmp_path / "run" / "fit.json", tmp_path / "models")
    left_out = [one for one in sentences if "a fit takes models of fixed shapes" in one]
    assert len(left_out) == 2
    assert not any("`shapes`" in one or "`data`" in one for one in sentences)


def test_a_folder_as_output_is_refused_before_anything_is_measured(tmp_path: Path):
    with pytest.raises(InputError, match="is a folder; give the file to write"):
        placer.fit("onnxruntime", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_generated_networks_are_the_same_every_time(tmp_path: Path):
    first_ones = {name.rpartition("-")[0]: name for name in reversed(network_names(140))}
    for name in first_ones.values():
        first = load_model(write_network(name, tmp_path))
        assert load_model(write_network(name, tmp_path)).fingerprint == first.fingerprint


def test_architectures_are_kept_without_weights_which_are_drawn():
    number = architecture_names().index("resnet18.onnx")
    with ZipFile(str(ARCHIVE)) as archive:
        kept = onnx.load_from_string(archive.read("resnet18.onnx")).graph.initializer
    drawn = architecture(number).graph.initializer
    assert sum(map(is_bare, kept)) == 42 and not any(map(is_bare, drawn))
    assert [one.dims for one in drawn] == [one.dims for one in kept]


def test_a_fit_measures_networks_of_eleven_kinds():
    names = network_names(140)
    assert len(set(names)) == 140
    kinds = Counter(name.rpartition("-")[0] for name in names)
    assert kinds == {
        "convolutional": 18,
        "large": 6,
        "short": 12,
        "sequence": 9,
        "few-tokens": 7,
        "tokens": 6,
        "wide": 4,
        "channels-last": 4,
        "mixed": 20,
        "staged": 24,
        "architecture": 30,
    }
    assert network_names(280)[-1] == "architecture-59"
    assert len(network_names(560)) == 560


def test_architectures_and_given_models_count_for_more_than_generated_networks():
    names = ("model resnet", "architecture-3", "convolutional-3", "large-3")
    assert [network_weight(name) for name in names] == [4, 4, 1, 1]


@pytest.mark.slow
def test_short_networks_hold_kinds_of_layers_that_the_others_lack(tmp_path: Path):
    def ops(kind: str) -> set[str]:
        names = [name for name in network_names(140) if name.startswith(f"{kind}-")]
        return {
            node.op_type
            for name in names[:8]
            for node in onnx.load(write_network(name, tmp_path)).graph.node
        }

    others = ops("convolutional") | ops("tokens") | ops("wide")
    assert ops("short") - others >= {"DepthToSpace", "InstanceNormalization", "PRelu", "Split"}
    assert ops("sequence") - others >= {"GRU", "LSTM", "Tanh"}
    assert ops("few-tokens") - others >= {"Pow", "ReduceMean"}
    known = others.union(*map(ops, ("short", "sequence", "few-tokens", "channels-last")))
    assert ops("mixed") - known >= {"Exp", "Neg", "Pad", "ReduceL2", "Slice", "Sub"}


@pytest.mark.slow
def test_staged_networks_hold_layers_of_deployed_ones_that_the_others_lack(tmp_path: Path):
    groups, ops = set(), set()
    for number in range(4):  # Each block stands once in these.
        model = onnx.load(write_network(f"staged-{number}", tmp_path))
        shapes = {one.name: one.dims for one in model.graph.initializer}
        for node in model.graph.node:
            ops.add(node.op_type)
            attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
            if node.op_type == "Conv":
                groups.add((attributes.get("group", 1), shapes[node.input[1]][1]))
    assert ops >= {"BatchNormalization", "ConvTranspose", "ReduceSum", "Resize", "ReduceL2"}
    assert any(group == 8 and each >= 4 for group, each in groups)
    assert model.graph.input[0].type.tensor_type.shape.dim[2].dim_value >= 128


def test_the_command_says_how_far_off_it_is(fitted: Path, models: Path, tmp_path: Path):
    shutil.copytree(fitted, tmp_path / "run")
    output = tmp_path / "run" / "fit.json"
    arguments = ["fit", "--engine", "onnxruntime", "--models", str(models), "-o", str(output)]
    few = ["--networks", "0", "--placements", "1", "--rounds", "3"]
    ran = CliRunner().invoke(app, [*arguments, *few])
    assert ran.exit_code == 0, ran.output
    assert "5 networks, 15 builds, each network estimated by a fit without its kind" in ran.stdout
    assert "in the right order" in ran.stdout


@pytest.mark.slow
def test_openvino_with_generated_networks(tmp_path: Path):
    output = tmp_path / "fit.json"
    placer.fit("openvino", output, networks=6, placements=1, rounds=3)
    model = write_network("convolutional-7", tmp_path)
    found = placer.explain(model, gpu=str(output))
    assert (found.pack.manifest.name, found.base) == ("openvino", "float")
    assert found.explanation.float_us > 100
    result = placer.optimize(
        model,
        output=tmp_path / "out",
        engine="fusion-model",
        gpu=str(output),
        budget=2,
        gates=["sqnr>=0"],
    )
    assert f"fit {load_device(str(output)).fingerprint}" in result.engine.device
    assert result.engine.clock == "an estimate: predicted plan and fitted costs, nothing was run"
