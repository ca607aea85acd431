"""The command placer apply: what it writes, prints and refuses."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import ModelProto, numpy_helper

from placer.apply.transfer import transfer_placement
from placer.common.folder_lock import LOCK_FILE, locked
from placer.common.processor import this_processor
from placer.graph import Edge
from placer.graph.structure import structure_of
from placer.model import load_model
from placer.quantization import Placement, Range
from placer.quantization.placement_file import load_placement, read_placement
from placer.rules.packaging.load import load_pack
from tests.apply.placements import (
    DYNAMO,
    RESIDUAL,
    RESIDUAL_PLACEMENT,
    SEED0,
    SEED1,
    Save,
    default,
    file_of,
    loaded,
)
from tests.conftest import DIGITS, Finished
from tests.few_digits import CALIBRATION
from tests.reference_outputs import outputs

Run = Callable[..., Finished]


@pytest.fixture
def placement_file(tmp_path: Path) -> Path:
    """The default ONNX Runtime placement of the first training, with ranges of its own."""
    rules, model = load_pack("onnxruntime"), loaded(SEED0)
    placement = default(model.graph, rules)
    ranges = {e.tensor: Range(-6.375, 6.375) for e in placement.edges}
    constants = model.graph.initializers
    ranges = {t: r for t, r in ranges.items() if t not in constants}
    file_of(placement, model.graph, tmp_path, "onnxruntime", ranges)
    return tmp_path / "placement.yaml"


def test_weights_keep_the_range_of_the_placement_unless_another_is_given(
    placer: Run, placement_file: Path
):
    """Where products saturate on this machine's processor, a full range is warned of."""
    data = ("--data", CALIBRATION, "--calibration", "minmax", "--no-cache")
    kept = placer("apply", placement_file, SEED0, *data, "-o", "kept")
    assert kept.code == 0, kept.err
    saturates = this_processor().exact_products is False
    assert ("sums of products saturate" in " ".join(kept.out.split())) == saturates
    asked = (*data, "--weight-range", "reduced")
    given = placer("apply", placement_file, SEED0, *asked, "-o", "given")
    assert given.code == 0, given.err
    assert "sums of products saturate" not in " ".join(given.out.split())
    written = read_placement(Path("given/placement.yaml"))
    assert written.scheme.weight_range == "reduced"
    assert read_placement(Path("kept/placement.yaml")).scheme.weight_range == "full"
    wrong = placer("apply", placement_file, SEED0, "--weight-range", "half", "-o", "wrong")
    assert wrong.code == 2
    assert "unknown weight range 'half'" in wrong.err


def test_a_second_process_in_the_output_folder_is_refused(placer: Run, placement_file: Path):
    Path("out").mkdir()
    with locked(Path("out")):
        data = ("--data", CALIBRATION, "--calibration", "minmax", "--no-cache")
        finished = placer("apply", placement_file, SEED0, *data, "-o", "out")
        assert [path.name for path in Path("out").iterdir()] == [LOCK_FILE]
    assert finished.code == 2
    assert f"out is in use by process {os.getpid()}" in finished.err


def scales_of(proto: ModelProto) -> set[float]:
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {
        float(values[node.input[1]].item())
        for node in proto.graph.node
        if node.op_type == "QuantizeLinear"
    }


def test_calibrated_on_data(placer: Run, placement_file: Path):
    data = DIGITS / "calibration.npz"
    finished = placer("apply", placement_file, SEED1, "--data", data, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    assert report["same_structure"] is True
    assert {found["by"] for found in report["found"]} == {"name"}
    assert report["ranges"]["calibrated"] is True
    assert report["ranges"]["sqnr"] > 15
    assert report == json.loads(Path("out/apply.json").read_text())
    written = onnx.load("out/optimized.onnx")
    image = np.load(data)["image"][:1]
    quantized, floats = (outputs(m, image=image)[0] for m in (written, loaded(SEED1).proto))
    assert np.argmax(quantized) == np.argmax(floats)
    assert len(scales_of(written)) > 10
    again = read_placement(Path("out/placement.yaml"))
    assert again.model == loaded(SEED1).fingerprint
    assert transfer_placement(again, loaded(SEED0)).is_exact


def test_ranges_are_kept_without_data(placer: Run, placement_file: Path):
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    assert report["ranges"] == {"method": "kept", "calibrated": True, "sqnr": None}
    assert any("ranges are of the weights" in text for text in report["warnings"])
    (scale,) = scales_of(onnx.load("out/optimized.onnx"))
    assert scale == pytest.approx(12.75 / 255)
    reduced = ("--ranges", "kept", "--weight-range", "reduced")
    finished = placer("apply", placement_file, SEED1, "-o", "kept", *reduced, "--json")
    assert json.loads(finished.out)["warnings"] == []  # Asked for, as after training with them.
    placement_file.write_text(
        placement_file.read_text().replace("calibrated: true", "calibrated: false")
    )
    finished = placer("apply", placement_file, SEED1, "-o", "random", *reduced, "--json")
    (warning,) = json.loads(finished.out)["warnings"]
    advice = "give `data`, and leave out `ranges`"
    assert warning == f"ranges of the placement rest on random inputs; {advice}"
    groups = yaml.safe_load(Path("out/placement.yaml").read_text())["groups"]
    assert {tuple(group["range"]) for group in groups if "range" in group} == {(-6.375, 6.375)}


def test_ranges_fit_the_quantized_file_and_its_float_model(placer: Run, save: Save, tmp_path: Path):
    """The two files differ, their weights do not."""
    quantized = save("""
        <ir_version: 8, opset_import: ["": 17]>
        quantized (float[1,2] x) => (float[1,2] y) <
          int8[2,2] q = {1, -2, 3, 4}, float s = {0.5}, int8 z = {0},
          float r = {0.05}, uint8 m = {128}
        > {
          xq = QuantizeLinear(x, r, m)
          xd = DequantizeLinear(xq, r, m)
          w = DequantizeLinear(q, s, z)
          y = MatMul(xd, w)
        }""")
    floats, placement = tmp_path / "float.onnx", tmp_path / "float.placement.yaml"
    assert placer("import", quantized, "-o", floats).code == 0
    for model in (quantized, floats):
        finished = placer("apply", placement, model, "-o", f"{model.stem}.out", "--json")
        assert finished.code == 0, finished.err
        assert "ranges are of the weights" not in finished.out
    weights = read_placement(placement).weights
    assert weights == loaded(quantized).weights_digest() != loaded(SEED1).weights_digest()


def test_the_result_is_compared_with_the_model(placer: Run, placement_file: Path):
    """Point 4 of the attacks: ranges that make another function of the model are refused."""
    finished = placer("apply", placement_file, SEED1, "--json", "-o", "good")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["sqnr"] > 3
    placement_file.write_text(placement_file.read_text().replace("6.375", "0.0001"))
    finished = placer("apply", placement_file, SEED1, "-o", "bad")
    assert finished.code == 2
    assert f"the outputs of {SEED1} would differ too much (" in finished.err
    assert "dB on random inputs); give --data to calibrate it" in finished.err
    assert not Path("bad").exists()


def test_kept_ranges_are_compared_on_data(placer: Run, placement_file: Path):
    data = ("--data", CALIBRATION, "--ranges", "kept")
    finished = placer("apply", placement_file, SEED1, *data, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    assert report["ranges"] == {"method": "kept", "calibrated": True, "sqnr": None}
    groups = read_placement(Path("out/placement.yaml")).groups
    assert {group.range for group in groups if group.range} == {Range(-6.375, 6.375)}
    placement_file.write_text(placement_file.read_text().replace("6.375", "0.0001"))
    refused = placer("apply", placement_file, SEED1, *data, "-o", "bad")
    assert refused.code == 2
    assert "dB); check the placement's ranges, or calibrate on other data" in refused.err


TEXT = """
<ir_version: 9, opset_import: ["": 19]>
net (float[2,4] x, string[2,4] s) => (float[2,4] y) <float[4,4] w = {0.5}> {
  [matmul] m = MatMul(x, w)
  [cast] n = Cast<to = 1>(s)
  [add] y = Add(m, n)
}
"""


def test_what_cannot_be_made_up_is_compared_on_data_alone(placer: Run, save: Save, tmp_path: Path):
    path = save(TEXT)
    edges = [Edge("x", "matmul", 0), Edge("w", "matmul", 1)]
    file_of(Placement.of(edges), loaded(path).graph, tmp_path, ranges={"x": Range(-4, 4)})
    command = ("apply", tmp_path / "placement.yaml", path, "--ranges", "kept", "--json", "-o")
    alone = placer(*command, "alone")
    assert alone.code == 0, alone.err
    report = json.loads(alone.out)
    assert report["sqnr"] is None
    (warning,) = report["warnings"]
    unknown = "input 's' holds text, which cannot be made up; give data"
    assert warning == f"the result is not compared with {path}: {unknown}"
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    np.savez("data.npz", x=x, s=np.full((8, 4), "1"))
    compared = placer(*command, "compared", "--data", "data.npz")
    assert compared.code == 0, compared.err
    assert json.loads(compared.out)["sqnr"] > 20
    written = [Path(folder, "optimized.onnx").read_bytes() for folder in ("alone", "compared")]
    assert written[0] == written[1]


def test_half_precision_remainder(placer: Run, placement_file: Path):
    finished = placer("apply", placement_file, DYNAMO, "--base", "float16", "-o", "out")
    assert finished.code == 0, finished.err
    types = Counter(t.data_type for t in onnx.load("out/optimized.onnx").graph.initializer)
    assert types[onnx.TensorProto.FLOAT16] > types[onnx.TensorProto.FLOAT]


@pytest.mark.parametrize(
    ("pack", "kind"),
    [
        ("tensorrt", onnx.TensorProto.FLOAT16),
        ("openvino", onnx.TensorProto.FLOAT),  # It computes in the type that its plugin is told.
        ("not-installed", onnx.TensorProto.FLOAT),
    ],
)
def test_without_a_base_the_engine_of_the_pack_decides(
    placer: Run, tmp_path: Path, pack: str, kind: int
):
    model = loaded(SEED0)
    edge = next(e for e in default(model.graph, load_pack("tensorrt")).edges)
    only = Placement.of_groups([[edge]])
    file_of(only, model.graph, tmp_path, "tensorrt", {edge.tensor: Range(-6.375, 6.375)})
    file = tmp_path / "placement.yaml"
    file.write_text(file.read_text().replace("pack: tensorrt ", f"pack: {pack} "))
    finished = placer("apply", file, SEED0, "-o", "out")
    assert finished.code == 0, finished.err
    kinds = {t.data_type for t in onnx.load("out/optimized.onnx").graph.initializer}
    halves = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    assert kinds & halves >= {kind}
    assert (onnx.TensorProto.FLOAT16 in kinds) == (kind == onnx.TensorProto.FLOAT16)


@pytest.mark.parametrize("base", ["float", "bfloat16"])
def test_the_base_precision_of_a_placement_is_kept(placer: Run, placement_file: Path, base: str):
    text = placement_file.read_text()
    placement_file.write_text(text.replace("groups:", f"base: {base}\ngroups:", 1))
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    properties = {e.key: e.value for e in onnx.load("out/optimized.onnx").metadata_props}
    assert properties["placer.base"] == base
    again = Path("out/placement.yaml")
    assert read_placement(again).base == base
    judged = load_placement(placement_file, loaded(SEED1).graph)
    assert properties["placer.placement"] == judged.id
    assert load_placement(again, loaded(SEED1).graph) == judged


@pytest.mark.parametrize(
    ("base", "named", "kinds"),
    [
        ("float", "float", {onnx.TensorProto.FLOAT}),
        ("bfloat16", "bfloat16", {onnx.TensorProto.FLOAT}),
        ("float16", None, {onnx.TensorProto.FLOAT16}),
    ],
)
def test_another_base_precision_takes_the_place_of_that_of_the_placement(
    placer: Run, placement_file: Path, base: str, named: str | None, kinds: set[int]
):
    text = placement_file.read_text()
    placement_file.write_text(text.replace("groups:", "base: bfloat16\ngroups:", 1))
    finished = placer("apply", placement_file, SEED1, "-o", "out", "--base", base)
    assert finished.code == 0, finished.err
    proto = onnx.load("out/optimized.onnx")
    assert {e.key: e.value for e in proto.metadata_props}.get("placer.base") == named
    assert read_placement(Path("out/placement.yaml")).base == named
    weights = {t.data_type for t in proto.graph.initializer if len(t.dims) == 4}
    assert weights - {onnx.TensorProto.INT8} == kinds


def test_what_is_printed(placer: Run, placement_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    finished = placer("apply", placement_file, DYNAMO, "-o", "out")
    lines = [" ".join(line.replace("│", " ").split()) for line in finished.out.splitlines()]
    assert "edges found by structure 49" in lines
    assert "edges found by name 1" in lines
    assert "of them in another operator 1" in lines
    assert "- another operator: mean -> node_view[0] is Reshape, was Flatten" in lines
    assert lines[-1] == "wrote out"


def test_strict_refuses_and_writes_nothing(placer: Run, save: Save, tmp_path: Path):
    model = load_model(save(RESIDUAL))
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path)
    gone = "[tanh] r = Tanh (q)"
    text = RESIDUAL.replace("[conv2] r = Conv <pads = [1, 1, 1, 1]> (q, w2)", gone)
    other = save(text, "other.onnx")
    finished = placer("apply", tmp_path / "placement.yaml", other, "--strict", "-o", "out")
    assert finished.code == 2
    assert "2 of 8 edges of" in finished.err
    assert "q -> conv2[0]" in finished.err
    assert not Path("out").exists()


ANOTHER = """
<ir_version: 8, opset_import: ["" : 17]>
another (float[1, 4, 8, 8] x) => (float[1, 4] y) <float[4, 4, 3, 3] w1 = {0.1}>
{
  [conv1] p = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [sigmoid] q = Sigmoid (p)
  [pool] u = GlobalMaxPool (q)
  [flat] y = Flatten (u)
}
"""


def test_a_network_with_few_of_the_edges_is_another_one(placer: Run, save: Save, tmp_path: Path):
    model, other = load_model(save(RESIDUAL)), save(ANOTHER, "other.onnx")
    ranges = {tensor: Range(-4, 4) for tensor in ("x", "q", "u", "v")}
    file_of(RESIDUAL_PLACEMENT, model.graph, tmp_path, ranges=ranges)
    command = ("apply", tmp_path / "placement.yaml", other, "-o", "out")
    refused = placer(*command)
    assert refused.code == 2
    assert "5 of 8 edges" in refused.err
    assert "hardly the same network; give the placement of this network, or --partial" in (
        refused.err
    )
    assert not Path("out").exists()
    taken = placer(*command, "--partial")
    assert taken.code == 0, taken.err
    assert "warning: 5 of 8 edges" in taken.out
    both = placer(*command, "--partial", "--strict")
    assert both.code == 2
    assert "--strict refuses what --partial takes; give one of them" in both.err


SMALL = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y) <float[4, 4, 3, 3] w = {0.1}>
{
  [conv] p = Conv <pads = [1, 1, 1, 1]> (x, w)
  [relu] y = Relu (p)
}
"""
LARGE = """
<ir_version: 8, opset_import: ["" : 17]>
large (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<float[4, 4, 3, 3] w1 = {0.1}, float[4, 4, 3, 3] w2 = {0.1}>
{
  [FIRST] p = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [act] q = Relu (p)
  [second] r = Conv <pads = [1, 1, 1, 1]> (q, w2)
  [tanh] s = Tanh (r)
  [sigmoid] t = Sigmoid (s)
  [double] u = Mul (t, t)
  [join] y = Add (u, q)
}
"""


@pytest.mark.parametrize(("first", "code"), [("first", 2), ("conv", 0)])
def test_a_larger_network_without_a_name_of_the_placement_is_another_one(
    placer: Run, save: Save, tmp_path: Path, first: str, code: int
):
    """One that kept a name has been extended."""
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    graph = load_model(save(SMALL)).graph
    file_of(placement, graph, tmp_path, ranges={"x": Range(-4, 4)})
    command = ("apply", tmp_path / "placement.yaml", save(LARGE.replace("FIRST", first), "l.onnx"))
    finished = placer(*command, "-o", "out")
    assert finished.code == code, finished.err
    assert Path("out").exists() == (code == 0)
    if code:
        assert "5 of 7 nodes of" in finished.err
        assert "none of its edges has its name there" in finished.err
        assert placer(*command, "-o", "out", "--partial").code == 0


def test_a_placement_of_nothing_gives_the_float_model(placer: Run, save: Save, tmp_path: Path):
    path = save(RESIDUAL)
    file_of(Placement.of([]), load_model(path).graph, tmp_path)
    finished = placer("apply", tmp_path / "placement.yaml", path, "-o", "out")
    assert finished.code == 0, finished.err
    assert "quantizes nothing, so the result is the float model" in finished.out
    assert finished.out.count("warning: ") == 1


def test_warnings_name_the_flags_of_options(placer: Run, placement_file: Path):
    printed = placer("apply", placement_file, SEED1, "-o", "out").out
    assert "give --data to calibrate this model" in printed


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--ranges", "calibrated"), "calibrated ranges need data; give --data"),
        (
            ("--ranges", "kept", "--data", "x.npz", "--recover", "auto"),
            "--recover needs calibrated ranges; leave out --ranges or --recover",
        ),
        (("--ranges", "other"), "unknown ranges 'other'; use one of: kept, calibrated"),
        (("--base", "int8"), "unknown base 'int8'"),
        (("--data", DIGITS / "calibration.npz", "--calibration", "x"), "unknown calibration 'x'"),
    ],
)
def test_wrong_flags(placer: Run, placement_file: Path, flags: tuple[object, ...], expected: str):
    finished = placer("apply", placement_file, SEED1, *flags)
    assert finished.code == 2
    assert expected in finished.err


def test_the_same_command_runs_again(placer: Run, placement_file: Path):
    for _ in range(2):
        finished = placer("apply", placement_file, SEED1, "-o", "out")
        assert finished.code == 0, finished.err


def test_a_model_of_the_same_name_has_a_folder_of_its_own(placer: Run, placement_file: Path):
    for folder in ("a", "b", "b"):
        Path(folder).mkdir(exist_ok=True)
        shutil.copy(SEED1, Path(folder, "net.onnx"))
        finished = placer("apply", placement_file, f"{folder}/net.onnx", "--json")
        assert finished.code == 0, finished.err
    (own,) = Path().glob("net-*.applied")
    assert json.loads(Path("net.applied/apply.json").read_text())["model"] == "a/net.onnx"
    told = f"net.applied is about a/net.onnx; this result is in {own}"
    assert told in json.loads(finished.out)["warnings"]
    Path("a/net.onnx").unlink()  # As one that was moved.
    moved = placer("apply", placement_file, "b/net.onnx")
    assert moved.out.endswith("wrote net.applied\n")


def test_the_folder_of_a_run_of_optimize_is_refused(placer: Run, placement_file: Path):
    """Its report would be about another file."""
    Path("out").mkdir()
    Path("out/result.json").write_text('{\n  "format": "placer-result/1"\n}\n')
    finished = placer("apply", placement_file, SEED1, "-o", "out")
    assert finished.code == 2
    words = "out holds a run of placer optimize, whose optimized.onnx would be replaced; choose"
    assert words in finished.err
    assert [path.name for path in Path("out").iterdir()] == ["result.json"]


def test_a_placement_is_not_written_over(placer: Run, placement_file: Path):
    before = placement_file.read_bytes()
    finished = placer("apply", placement_file, SEED1, "-o", placement_file.parent)
    assert finished.code == 2
    assert f"the result would overwrite {placement_file}; choose another" in finished.err
    assert placement_file.read_bytes() == before


def test_a_placement_without_ranges_needs_data(placer: Run, tmp_path: Path):
    rules, model = load_pack("onnxruntime"), loaded(SEED0)
    file_of(default(model.graph, rules), model.graph, tmp_path, "onnxruntime")
    finished = placer("apply", tmp_path / "placement.yaml", SEED1)
    assert finished.code == 2
    assert "has no range of tensor" in finished.err
    assert "give --data" in finished.err


@pytest.mark.parametrize("calibrated", [True, False])
def test_data_are_for_tensors_without_a_range_where_ranges_are_kept(
    placer: Run, placement_file: Path, calibrated: bool
):
    """One range that rests on random inputs is enough for the result not to be calibrated."""
    document = yaml.safe_load(placement_file.read_text())
    next(group for group in document["groups"] if "range" in group).pop("range")
    placement_file.write_text(yaml.safe_dump(document | {"calibrated": calibrated}))
    data = ("--data", CALIBRATION, "--ranges", "kept", "--calibration", "minmax")
    finished = placer("apply", placement_file, SEED1, *data, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    told = report["ranges"]
    assert (told["method"], told["calibrated"]) == ("kept, others minmax", calibrated)
    assert ("rest on random inputs" in " ".join(report["warnings"])) != calibrated
    file = read_placement(Path("out/placement.yaml"))
    assert file.calibrated == calibrated
    written = {group.range for group in file.groups}
    assert len(written - {None, Range(-6.375, 6.375)}) == 1
    assert Range(-6.375, 6.375) in written


def test_where_no_range_can_be_kept_all_are_calibrated(placer: Run, placement_file: Path):
    document = yaml.safe_load(placement_file.read_text())
    for group in document["groups"]:
        group.pop("range", None)
    placement_file.write_text(yaml.safe_dump(document | {"calibrated": False}))
    data = ("--data", CALIBRATION, "--ranges", "kept", "--calibration", "minmax")
    finished = placer("apply", placement_file, SEED1, *data, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    report = json.loads(finished.out)
    told = report["ranges"]
    assert (told["method"], told["calibrated"]) == ("minmax", True)
    assert "ranges" not in " ".join(report["warnings"])


def test_optimize_keeps_the_structure(placer: Run):
    finished = placer(
        *("optimize", SEED0, "--engine", "fusion-model", "--gpu", "a100", "--preset", "quick"),
        *("--budget", "2", "--gate", "sqnr>=5", "-o", "out", "--quiet"),
    )
    assert finished.code == 0, finished.err
    file = read_placement(Path("out/placement.yaml"))
    assert file.structure.vertices == structure_of(loaded(SEED0).graph).vertices
    applied = placer("apply", "out/placement.yaml", DYNAMO, "-o", "applied", "--strict")
    assert applied.code == 0, applied.err


def test_a_model_with_a_plugin_of_an_engine_takes_the_placement_of_its_part(
    placer: Run, placement_file: Path
):
    """Nothing here can run such a file; ``placer extract`` cuts the part that was optimized."""
    proto = onnx.load(SEED0)
    scores = proto.graph.output[0]
    plugin = onnx.helper.make_node("EfficientNMS_TRT", [scores.name], ["kept"], name="nms")
    proto.graph.node.append(plugin)
    proto.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("kept", 1, None))
    onnx.save(proto, "detector.onnx")
    refused = placer("apply", placement_file, "detector.onnx", "--data", "x.npz", "-o", "out")
    assert refused.code == 2
    finished = placer("apply", placement_file, "detector.onnx", "--strict", "-o", "out")
    assert finished.code == 0, finished.err
    nodes = onnx.load("out/optimized.onnx").graph.node
    assert "EfficientNMS_TRT" in {node.op_type for node in nodes}
    given, written = read_placement(placement_file), read_placement(Path("out/placement.yaml"))
    assert {g.edges for g in written.groups} == {g.edges for g in given.groups}


GROWN = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,8,6,6] x) => (float[1,8,4,4] y, float[1,8,4,4] z)
<float[8,8,3,3] w = {0.5}, float[8,1,3,3] v = {0.5}> {
  [conv] y = Conv(x, w)
  NEW
}
"""


@pytest.mark.parametrize(
    ("scheme", "site"), [("", "depthwise-conv:new"), ("fp8", "conv-fp8-groups:new")]
)
def test_new_sites_are_those_of_the_scheme(placer: Run, save: Save, scheme: str, site: str):
    """TensorRT has no FP8 kernels for Convs of groups."""
    known = save(GROWN.replace("NEW", "z = Relu(y)"), "known.onnx")
    grown = save(GROWN.replace("NEW", "[new] z = Conv<group = 8>(x, v)"), "grown.onnx")
    graph = loaded(known).graph
    edges = [Edge("x", "conv", 0), Edge("w", "conv", 1)]
    file_of(Placement.of(edges), graph, Path(), ranges={"x": Range(-1, 1)}, scheme=scheme)
    finished = placer("apply", "placement.yaml", grown, "-o", "out", "--json")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["new_sites"] == [site]


def test_a_result_is_told_from_a_placement(placer: Run):
    Path("result.json").write_text('{\n  "format": "placer-result/1"\n}\n')
    finished = placer("apply", "result.json", SEED1)
    assert finished.code == 2
    assert "result.json is the result of a run; give the placement.yaml of" in finished.err
