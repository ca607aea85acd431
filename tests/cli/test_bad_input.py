"""Wrong input: one sentence, exit code 2, nothing written."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.graph.text import parse_model
from tests.conftest import DIGITS, Finished, with_random_weights
from tests.few_digits import FEW_BY_MINMAX

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
IMAGES = (4, 1, 32, 32)


def refused(finished: Finished, expected: str) -> None:
    assert finished.code == 2
    assert expected in finished.err
    assert finished.err.startswith("placer: error: ")
    assert finished.err.count("\n") == 1
    assert "Traceback" not in finished.err
    assert not list(Path().rglob("*.placer*"))


def write(text: str) -> Path:
    path = Path("net.onnx")
    onnx.save(onnx.parser.parse_model(text), path)
    return path


RELU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) { [act] y = Relu(x) }
"""


def test_not_an_onnx_file(placer: Placer):
    Path("notes.onnx").write_text("these are not the bytes you are looking for")
    refused(placer("optimize", "notes.onnx"), "notes.onnx is not an ONNX")
    refused(placer("optimize", "nowhere.onnx"), "nowhere.onnx does not exist")
    Path("link.onnx").symlink_to("nowhere.onnx")
    refused(placer("optimize", "link.onnx"), "link.onnx is a link to nowhere.onnx, which does not")
    refused(placer("explain", "https://host/a.onnx"), "a.onnx is a URL; download it and give")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.onnx",), "nowhere.onnx does not exist; give"),
        ((MODEL, "--data", "nowhere.npz"), "nowhere.npz does not exist; give"),
        ((MODEL, "--eval-data", "nowhere"), "nowhere does not exist; give"),
        ((MODEL, "--data", "notes.txt"), "notes.txt has the unsupported suffix '.txt'"),
    ],
)
def test_what_is_not_there_is_refused_before_engines_are_compared(
    placer: Placer, words: tuple[object, ...], said: str
):
    Path("notes.txt").write_text("")
    finished = placer("optimize", *words)
    refused(finished, said)
    assert finished.out == ""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "net.onnx is not an ONNX file: it is empty; export the model again"),
        (b"\x28\0\0\0ORTM", "it is in ONNX Runtime's own format; give the .onnx file"),
        (b"\x1c\0\0\0TFL3", "it is a TensorFlow Lite model; convert it: python -m tf2onnx"),
        (b"PK\3\4\0\0", "it is a zip archive, as PyTorch and Keras save models"),
        (b"\x80\2\x8a", "it is a Python pickle, as PyTorch saves models"),
        (b"\x89HDF\r\n", "it is an HDF5 file, as Keras saves models"),
        (b"ftrt\0\0", "it is a TensorRT engine; give the ONNX model"),
        (b"<!DOCTYPE html>", "it is a web page, as a failed download leaves"),
        (b"<?xml version", "it is XML, as OpenVINO's models are"),
        (b'\n {"format": "placer-result/1"}', "it is JSON; give the .onnx file"),
        (b'{"activation_encodings": []}', "it is JSON of AIMET; export the model in binary form"),
    ],
)
def test_files_of_other_formats_are_recognised(placer: Placer, data: bytes, said: str):
    Path("net.onnx").write_bytes(data)
    refused(placer("explain", "net.onnx"), said)


def test_a_model_in_a_zip_archive_is_to_be_unpacked(placer: Placer):
    """ONNX Runtime issue 14213: tf2onnx's --large_model writes it under the name of a model."""
    with zipfile.ZipFile("net.onnx", "w") as archive:
        archive.write(MODEL, "__MODEL_PROTO.onnx")
    refused(placer("explain", "net.onnx"), "unpack it and give '__MODEL_PROTO.onnx'")


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "none.onnx", "-o", "file/out"),
        ("apply", "none.yaml", "none.onnx", "-o", "file/out"),
        ("explain", "none.onnx", "--plan", "file/plan.json"),
        ("explain", "none.onnx", "--improved", "file/better.yaml"),
        ("explain", "none.onnx", "--html", "file/page.html"),
        ("check", "none.onnx", "--plan", "file/plan.json"),
        ("import", "none.onnx", "-o", "file/float.onnx"),
        ("export-qat", "none.yaml", "none.onnx", "-o", "file/qat.json"),
        ("extract", "none.onnx", "--outputs", "y", "-o", "file/region.onnx"),
        ("extract", "none.onnx", "--fix", "x=1", "-o", "file/fixed.onnx"),
        ("sensitivity", "none.onnx", "--figure", "file/page.html"),
        ("init", "none.onnx", "-o", "file/placer.yaml"),
        ("report", "none.placer", "-o", "file/page.html"),
        ("report", "none.placer", "other.placer", "-o", "file/page.html"),
        ("onboard", "none.yaml", "--markdown", "file/table.md"),
        ("fit", "--engine", "onnxruntime", "--output", "file/fit.json"),
        ("doctor", "--full", "--engine", "onnxruntime", "--output", "file/checkup.json"),
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(
    placer: Placer, words: tuple[str, ...]
):
    Path("file").write_text("")
    refused(placer(*words), "file is not a folder; choose another")


def test_a_refused_command_makes_no_folder_for_its_output(placer: Placer):
    refused(placer("onboard", "none.yaml", "--markdown", "new/table.md"), "none.yaml")
    refused(placer("explain", "none.onnx", "--plan", "new/plan.json"), "none.onnx")
    assert not Path("new").exists()


def test_an_output_without_a_name(placer: Placer):
    refused(placer("explain", "none.onnx", "--plan", ""), "the path of an output is empty")


def test_a_truncated_file(placer: Placer):
    Path("cut.onnx").write_bytes(MODEL.read_bytes()[:100_000])
    refused(placer("optimize", "cut.onnx"), "cut.onnx is not an ONNX file, or was cut short")


def test_what_git_lfs_has_not_fetched(placer: Placer):
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 12345\n"
    for name in ("net.onnx", "data.npz", "rows.npy"):
        Path(name).write_text(pointer)
    said = "is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    refused(placer("optimize", "net.onnx"), f"net.onnx {said}")
    for data in ("data.npz", "rows.npy"):
        refused(placer("optimize", str(MODEL), "--data", data), f"{data} {said}")
    onnx.save(
        onnx.load(MODEL), "big.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    Path("w.bin").write_text(pointer)
    refused(placer("optimize", "big.onnx"), f"w.bin {said}")


def test_missing_external_data(placer: Placer):
    onnx.save(
        onnx.load(MODEL), "big.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    Path("w.bin").unlink()
    refused(placer("optimize", "big.onnx"), "external data file w.bin of initializer")


def test_an_opset_that_cannot_be_raised(placer: Placer):
    text = """
    <ir_version: 6, opset_import: ["": 6]>
    g (float[1,2,4,4] x, float[2] s) => (float[1,2,4,4] y) {
      [norm] y = BatchNormalization<is_test = 0>(x, s, s, s, s)
    }
    """
    refused(placer("optimize", write(text)), "cannot be raised to 17 at node 'norm' (BatchNorm")


def test_an_unknown_operator_domain(placer: Placer):
    text = RELU.replace('"": 17', '"": 17, "acme": 1').replace("Relu", "acme.Relu")
    refused(placer("optimize", write(text)), "node 'act' uses operator Relu of the unknown domain")


def test_a_model_without_a_matching_site(placer: Placer):
    refused(placer("optimize", write(RELU)), "no rule of pack 'onnxruntime' matches a node")
    follower = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[2,2] y) <int64[2] s = {2, 2}> { y = Reshape(x, s) }
    """
    refused(placer("optimize", write(follower)), "there is nothing to do")


def test_a_float64_model(placer: Placer):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (double[1,2] x) => (double[1,2] y) <double[2,2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }
    """
    refused(placer("optimize", write(text)), "its weights are float64, which is not quantized;")


def test_a_model_whose_only_site_needs_quantized_readers(placer: Placer):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,4,4] y) {
      [pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
    }
    """
    finished = placer(
        "optimize", write(text), "--engine", "fusion-model", "--gpu", "a100", "--pack", "openvino"
    )
    refused(finished, "there is nothing to do")


def test_shape_flags(placer: Placer):
    refused(placer("optimize", MODEL, "--shape", "x=1x3"), "unknown input 'x'; ")
    refused(placer("optimize", MODEL, "--shape", "image"), "write NAME=1x3x224x224")
    twice = ("--shape", "image=1x1x32x32") * 2
    refused(placer("optimize", MODEL, *twice), "names input 'image' twice")


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"picture": np.zeros(IMAGES, np.float32)}, "rename"),
        ({"image": np.zeros((4, 1, 8, 8), np.float32)}, "(N, 1, 32, 32)"),
        ({"image": np.zeros(IMAGES, np.int64)}, "int64"),
        ({"image": np.full(IMAGES, np.nan, np.float32)}, "NaN"),
    ],
    ids=["name", "shape", "type", "NaN"],
)
def test_calibration_arrays(placer: Placer, arrays: dict[str, np.ndarray], expected: str):
    np.savez("data.npz", **arrays)
    finished = placer("optimize", MODEL, "--data", "data.npz")
    refused(finished, expected)
    assert "data.npz" in finished.err
    assert "image" in finished.err


def test_a_gate_that_the_data_cannot_serve(placer: Placer):
    data = ("--data", DIGITS / "calibration.npz", "--no-cache")
    finished = placer("optimize", MODEL, *data, "--gate", "top1>=0.9")
    refused(finished, "gate top1>=0.9 needs labels; add an array named 'labels' to the data")


def test_labels_that_the_model_does_not_meet_are_refused_before_any_calibration(placer: Placer):
    arrays = dict(np.load(DIGITS / "evaluation.npz"))
    labels = np.roll(arrays["labels"], 7)  # As of images in another order.
    np.savez("rolled.npz", image=arrays["image"], labels=labels)
    data = ("--data", DIGITS / "calibration.npz", "--eval-data", "rolled.npz", "--no-cache")
    finished = placer("optimize", MODEL, *data, "--engine", "onnxruntime")
    assert finished.code == 2
    assert "no better than guessing among 10 classes" in finished.err
    assert "calibrating" not in finished.out


# Ids are counted from one, so that only a run tells which rows are looked up.
LOOK_UP = """
<ir_version: 9, opset_import: ["": 17]>
g (int64[1,4] ids) => (float[1,4,8] y)
<float[10,8] e = {0.5}, float[8,8] w = {0.5}, int64 one = {1}> {
  [minus] i = Sub(ids, one) [look] h = Gather(e, i) [mm] y = MatMul(h, w)
}
"""


@pytest.mark.parametrize("command", ["optimize", "eval"])
def test_ids_out_of_range_in_evaluation_data(placer: Placer, command: str):
    onnx.save(with_random_weights(LOOK_UP), "net.onnx")
    ids = np.random.default_rng(0).integers(1, 11, (6, 1, 4))
    np.savez("good.npz", ids=ids)
    ids[3, 0, 1] = 99
    np.savez("bad.npz", ids=ids)
    asked = {
        "optimize": ("net.onnx", "--data", "good.npz", "--eval-data", "bad.npz", "-o", "out"),
        "eval": ("net.onnx", "net.onnx", "--data", "bad.npz"),
    }
    finished = placer(command, *asked[command], "--engine", "onnxruntime")
    refused(finished, "bad.npz, sample 3 makes an index out of range at node 'look'")


def test_an_empty_data_folder(placer: Placer):
    Path("data").mkdir()
    refused(placer("optimize", MODEL, "--data", "data"), "folder data holds no .npz or .npy file")


def test_names_that_are_not_known(placer: Placer):
    refused(placer("optimize", MODEL, "--gate", "psnr>=30"), "unknown metric 'psnr'")
    refused(placer("optimize", MODEL, "--engine", "trt"), "unknown engine 'trt'")
    refused(placer("optimize", MODEL, "--preset", "slow"), "unknown preset 'slow'")
    refused(placer("optimize", MODEL, "--pack", "mine"), "neither a folder nor built in")
    refused(placer("optimize", MODEL, "--calibration", "max"), "unknown calibration 'max'")
    refused(placer("optimize", MODEL, "--pack", "tensorrt"), "is for engine tensorrt")


def test_an_output_that_cannot_be_written(placer: Placer):
    Path("taken").write_text("a file")
    finished = placer("optimize", MODEL, "--output", "taken", "--no-cache")
    refused(finished, "taken is not a folder; choose another")
    assert Path("taken").read_text() == "a file"
    refused(placer("optimize", MODEL, "--output", "taken/out"), "taken is not a folder")
    finished = placer("optimize", MODEL, "--output", "int8.onnx")
    refused(finished, "output int8.onnx is a folder, for optimized.onnx and what belongs to it")
    assert not Path("int8.onnx").exists()


def test_a_file_that_is_read_is_not_written_over(placer: Placer):
    path = write(RELU)
    before = path.read_bytes()
    for command in (("explain", path), ("check", path, "--static")):
        finished = placer(*command, "--plan", Path("..") / Path.cwd().name / path)
        refused(finished, "net.onnx, which MODEL names, too; choose another file")
    finished = placer("explain", path, "--plan", "new.json", "--html", "new.json")
    refused(finished, "--html would overwrite new.json, which --plan names, too")
    model = Path("net/optimized.onnx")
    model.parent.mkdir()
    model.write_bytes(before)
    finished = placer("optimize", model, "--output", "net")
    refused(finished, "the result would overwrite net/optimized.onnx; choose another output")
    for name in ("placement.yaml", "result.json"):
        Path("net", name).write_text("of an earlier run")
    for start, read in (("net/placement.yaml", "placement.yaml"), ("net", "result.json")):
        finished = placer("optimize", path, "--output", "net", "--warm-start", start)
        refused(finished, f"the result would overwrite net/{read}; choose another output")
    assert path.read_bytes() == model.read_bytes() == before
    assert not Path("new.json").exists()


def test_data_that_another_model_reads_are_not_written_over(placer: Placer):
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,64] x) => (float[1,64] y) { [product] y = MatMul(x, w) }
    """)
    model.graph.initializer.append(weight)
    external = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save(model, "net.onnx", location="weights.onnx.data", **external)
    onnx.save(onnx.load("net.onnx"), "other.onnx", location="mine.onnx.data", **external)
    for output, reader in (("weights.onnx", "net.onnx"), ("mine.onnx", "other.onnx")):
        finished = placer("extract", "net.onnx", "--around", "product", "-o", output)
        refused(finished, f"{output} would overwrite {output}.data, which {reader} reads; choose")
        assert not Path(output).exists()
    for _ in range(2):  # The second one replaces the model and data of the first.
        finished = placer("extract", "net.onnx", "--around", "product", "-o", "part.onnx")
        assert finished.code == 0
    assert Path("part.onnx.data").read_bytes() == weight.raw_data
    Path("part.onnx").unlink()
    Path("part.onnx.data").write_text("of the user")
    again = ("extract", "net.onnx", "--around", "product", "-o", "part.onnx")
    refused(placer(*again), "part.onnx.data is there and no run of placer wrote it; give --replace")
    assert Path("part.onnx.data").read_text() == "of the user"
    assert placer(*again, "--replace").code == 0
    assert Path("part.onnx.data").read_bytes() == weight.raw_data


def test_a_rule_pack_with_a_syntax_error(placer: Placer):
    source = Path(__file__).parents[2] / "rules" / "packs" / "onnxruntime"
    shutil.copytree(source, "mine")
    rule = Path("mine/concat.yaml")
    rule.write_text(rule.read_text().replace("output: y}", "output: y"))
    refused(placer("optimize", MODEL, "--pack", "mine"), "mine/concat.yaml:")


@pytest.mark.slow
def test_the_output_folder_of_another_models_study(placer: Placer):
    quick = (*FEW_BY_MINMAX, "--preset", "quick", "--budget", 2, "--no-cache", "--output", "out")
    assert placer("optimize", MODEL, *quick).code == 0
    before = {p.name: p.read_bytes() for p in Path("out").iterdir()}
    proto = onnx.load(MODEL)
    proto.doc_string = "another one"
    onnx.save(proto, "other.onnx")
    finished = placer("optimize", "other.onnx", *quick)
    assert finished.code == 2
    assert "out holds a study with other settings (model: sha256:" in finished.err
    assert {p.name: p.read_bytes() for p in Path("out").iterdir()} == before


def test_usage_errors_are_exit_code_2(placer: Placer):
    refused(placer("optimize"), "no model is given, and there is no placer.yaml here")
    refused(placer("optimise", MODEL), "No such command 'optimise'. Did you mean 'optimize'?")
    refused(placer("optimize", MODEL, "--budget", 0), "--budget is 0; give 1 or more")


def test_debug_shows_the_traceback(placer: Placer):
    finished = placer("optimize", "nowhere.onnx", "--debug")
    assert finished.code == 2
    assert "Traceback" in finished.err


def test_a_model_that_the_engine_refuses_is_a_failed_run(placer: Placer):
    text = RELU.replace("{ [act]", "<float[4,4] w = {1}> { [fc] z = MatMul(x, w) [act]")
    proto = parse_model(text.replace("Relu(x)", "Relu(z)"))
    proto.opset_import.add(domain="com.microsoft", version=1)
    for node in proto.graph.node:
        if node.name == "act":
            node.op_type, node.domain = "Nothing", "com.microsoft"
    onnx.save(proto, "net.onnx")
    finished = placer("optimize", "net.onnx", "--no-cache")
    assert finished.code == 1
    assert "ONNX Runtime refuses" in finished.err


def test_what_would_be_noticed_after_minutes_of_work(placer: Placer):
    Path("out").mkdir()
    folder = "out is a folder; give the file to write"
    refused(placer("doctor", "--full", "--output", "out"), folder)
    refused(placer("fit", "--output", "out"), folder)
    few = "4 networks are too few to tell how far off a fit is for others"
    refused(placer("fit", "--output", "fit.json", "--networks", "4"), few)
    refused(placer("doctor", "--full", "--threads", "0"), "--threads is 0; give 1 or more")
    refused(placer("doctor", "--full", "--output", "new/a.json", "--engine", "none"), "'none'")
    assert not Path("new").exists()


def test_a_missing_option_with_choices_is_one_sentence(placer: Placer):
    write(RELU)
    refused(placer("rules", "learn", "net.onnx"), "Missing option '--from'. Choose from: builder")


def test_a_library_is_asked_for_where_onnx_runtime_lacks_an_operator(placer: Placer):
    write(RELU.replace("17]", '17, "acme": 1]').replace("Relu(x)", "acme.Relu(x)"))
    finished = placer("bench", "net.onnx", "--engine", "onnxruntime", "--rounds", "3")
    assert finished.code == 1
    assert "give the library that has this operator to --custom-ops" in finished.err


def test_a_region_ends_where_the_model_does(placer: Placer):
    write(RELU)
    done = placer("extract", "net.onnx", "--around", "act", "--depth", str(10**12), "-o", "r.onnx")
    assert done.code == 0
    assert [node.name for node in onnx.load("r.onnx").graph.node] == ["act"]


def test_a_budget_that_leaves_no_trial_for_a_candidate(placer: Placer):
    said = "--budget is 1, which is the float model's trial and leaves none for a candidate; give 2"
    refused(placer("optimize", str(MODEL), "--budget", "1"), said)
