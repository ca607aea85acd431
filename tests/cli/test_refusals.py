"""Inputs that no command can use: one sentence, exit code 2, and nothing written anywhere."""

import os
from collections.abc import Callable
from pathlib import Path

import onnx.parser
import pytest
from onnx import ModelProto, TensorProto

from tests.conftest import Finished
from tests.fuzz.seeds import PACK, PLACEMENT, models

Placer = Callable[..., Finished]

# By command: what it is called with for the model net.onnx.
COMMANDS: dict[str, tuple[str, ...]] = {
    "optimize": ("net.onnx", "--engine", "onnxruntime", "-o", "out"),
    "import": ("net.onnx",),
    "apply": ("placement.yaml", "net.onnx"),
    "extract": ("net.onnx", "--outputs", "y"),
    "check": ("net.onnx", "--static"),
}
MANIFEST = """
defaults: {engine: fusion-model, gpu: a100, budget: 1, preset: quick}
models: [{model: net.onnx}]
"""
FLOAT64 = """
<ir_version: 9, opset_import: ["": 17]>
g (double[1,4] x) => (double[1,4] y) <double[1] w = {0.5}> { [mul] y = Mul(x, w) }
"""
EXPAND = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) <int64[2] s = {536870912, 4}> {
  wide = Expand(x, s)
  y = ReduceMax<axes = [0]>(wide)
}
"""


def listing() -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in Path().rglob("*")}


def refused(placer: Placer, expected: str, *command: object) -> None:
    """Hold ``command`` to a sentence with ``expected``, exit code 2, and files as they were."""
    before = listing()
    finished = placer(*command)
    assert finished.code == 2, finished.err
    assert expected in finished.err
    assert finished.err.count("\n") == 1
    assert len(finished.err) <= 320
    assert listing() == before


def prepared(proto: ModelProto | str | None) -> None:
    """Write net.onnx and what else the commands take."""
    if proto is not None:
        made = onnx.parser.parse_model(proto) if isinstance(proto, str) else proto
        Path("net.onnx").write_bytes(made.SerializeToString())
    Path("placement.yaml").write_text(PLACEMENT)
    Path("models.yaml").write_text(MANIFEST)
    Path("mine").mkdir()
    for name, text in PACK.items():
        (Path("mine") / name).write_text(text)


def without_outputs() -> ModelProto:
    proto = models()["dense"]
    del proto.graph.output[:]
    return proto


@pytest.mark.parametrize("command", ["optimize", "import", "apply", "extract"])
def test_a_model_without_outputs(placer: Placer, command: str):
    prepared(without_outputs())
    refused(placer, "net.onnx", command, *COMMANDS[command])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("optimize", "no rule of pack 'onnxruntime' matches a node"),
        ("import", "is not quantized"),
        ("apply", "placement"),
    ],
)
def test_a_float64_model(placer: Placer, command: str, expected: str):
    prepared(FLOAT64)
    refused(placer, expected, command, *COMMANDS[command])


@pytest.mark.parametrize("command", ["optimize", "import", "apply"])
def test_a_tensor_of_8_gib(placer: Placer, command: str):
    prepared(EXPAND)
    refused(placer, "takes 8 GiB, more than 1 GiB", command, *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dimension_of_2_to_the_40(placer: Placer, command: str):
    prepared(FLOAT64.replace("double[1,4] x", f"double[{2**40},4] x"))
    refused(placer, "has a dimension of 1,099,511,627,776", command, *COMMANDS[command])


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_never_ends(placer: Placer, command: str, kind: str):
    prepared(None)
    endless(Path("net.onnx"), kind)
    refused(placer, "net.onnx is not a regular file", command, *COMMANDS[command])


def endless(path: Path, kind: str) -> None:
    """A file that a careless reader waits for, or reads until the memory is exhausted."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("data.npz", ("optimize", "net.onnx", "--data", "data.npz", "-o", "out")),
        ("data.npy", ("apply", "placement.yaml", "net.onnx", "--data", "data.npy")),
        ("data.npz", ("extract", "net.onnx", "--outputs", "y", "--data", "data.npz")),
        ("mine/pack.yaml", ("optimize", "net.onnx", "--pack", "mine", "-o", "out")),
        ("mine/matmul.yaml", ("rules", "list", "mine")),
        ("placement.yaml", ("apply", "placement.yaml", "net.onnx")),
        ("placement.yaml", ("optimize", "net.onnx", "--warm-start", "placement.yaml", "-o", "out")),
        ("models.yaml", ("onboard", "models.yaml")),
    ],
)
def test_other_files_that_never_end(placer: Placer, file: str, command: tuple[str, ...], kind: str):
    prepared(models()["dense"])
    endless(Path(file), kind)
    linked = file.startswith("mine/") and kind != "pipe"
    expected = "points outside its rule pack" if linked else "is not a regular file"
    refused(placer, f"{Path(file).name} {expected}", *command)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("#" * 6_000_000, "holds 5.722 MiB, more than 4 MiB"), ("[" * 250_000, "nested too deeply")],
    ids=["6 MB", "250,000 brackets"],
)
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("placement.yaml", ("apply", "placement.yaml", "net.onnx")),
        ("placement.yaml", ("optimize", "net.onnx", "--warm-start", "placement.yaml", "-o", "out")),
        ("models.yaml", ("onboard", "models.yaml")),
    ],
)
def test_yaml_bombs(placer: Placer, file: str, command: tuple[str, ...], text: str, expected: str):
    prepared(models()["dense"])
    Path(file).write_text(text)
    refused(placer, expected, *command)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("#" * 6_000_000, "is larger than"), ("[" * 250_000, "nested too deeply")],
    ids=["6 MB", "250,000 brackets"],
)
@pytest.mark.parametrize("file", ["pack.yaml", "matmul.yaml"])
def test_yaml_bombs_in_packs(placer: Placer, file: str, text: str, expected: str):
    prepared(models()["dense"])
    (Path("mine") / file).write_text(text)
    refused(placer, expected, "optimize", "net.onnx", "--pack", "mine", "-o", "out")


@pytest.mark.parametrize(
    "file", ["nowhere", "empty", "broken.json", "broken.yaml", "broken.onnx", "net.onnx"]
)
def test_a_wrong_warm_start(placer: Placer, file: str):
    prepared(models()["dense"])
    Path("empty").mkdir()
    for suffix in ("json", "yaml", "onnx"):
        Path(f"broken.{suffix}").write_text("{")
    command = ("optimize", *COMMANDS["optimize"], "--warm-start", file)
    refused(placer, file, *command)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: []", "models"),
        ("models: [{model: net.onnx, budget: many}]", "budget"),
        ("models: [{model: net.onnx}, {model: net.onnx}]", "net"),
    ],
)
def test_a_wrong_manifest(placer: Placer, text: str, expected: str):
    prepared(models()["dense"])
    Path("models.yaml").write_text(text)
    refused(placer, expected, "onboard", "models.yaml")


@pytest.mark.parametrize("number", [0, 99])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_initializer_of_unknown_type(placer: Placer, command: str, number: int):
    proto = models()["dense"]
    proto.graph.initializer.append(
        TensorProto(name="odd", data_type=number, dims=[1], raw_data=b"1")
    )
    prepared(proto)
    refused(placer, f"'odd' has the unknown type {number}", command, *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_of_5000_characters(placer: Placer, command: str):
    proto = models()["dense"]
    proto.graph.node[0].name = "n" * 5000
    prepared(proto)
    refused(placer, "has 5,000 characters, more than 2,000", command, *COMMANDS[command])


@pytest.mark.parametrize("dims", ["0,4", "4,0"])
@pytest.mark.parametrize("command", ["optimize", "import", "apply", "extract"])
def test_an_input_with_a_dimension_of_0(placer: Placer, command: str, dims: str):
    """ONNX Runtime takes no other data; a region with 1 in its place is another model."""
    prepared(FLOAT64.replace("double[1,4]", f"float[{dims}]").replace("double", "float"))
    refused(placer, "input 'x' has a dimension of 0", command, *COMMANDS[command])
