"""Inputs on which a module once raised what nobody caught, by the module of today.

More of them are in ``test_corpus.py``, in ``tests/cli/test_refusals.py`` (types, dimensions and
names, for all commands) and in ``tests/model/test_validate.py``.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto

from placer.graph.text import parse_model
from tests.conftest import Finished
from tests.fuzz.seeds import PACK, PLAN, models

Placer = Callable[..., Finished]
Damage = Callable[[ModelProto], None]
OFFLINE = ("--engine", "fusion-model", "--gpu", "a100", "--no-cache", "-o", "out", "--budget", 2)
COMMANDS = {
    "check": ("check", "net.onnx", "--static"),
    "explain": ("explain", "net.onnx", "--pack", "mine"),
    "import": ("import", "net.onnx", "--pack", "mine"),
    "extract": ("extract", "net.onnx", "--outputs", "y"),
    "optimize": ("optimize", "net.onnx", *OFFLINE),
}


def initializer(proto: ModelProto, name: str) -> TensorProto:
    return next(t for t in proto.graph.initializer if t.name == name)


def resized(name: str, values: int) -> Damage:
    """A weight's values, cut to so many or made so many; its dims stay."""

    def damage(proto: ModelProto) -> None:
        tensor = initializer(proto, name)
        del tensor.float_data[:]
        tensor.raw_data = bytes(4 * values)

    return damage


def shaped(name: str, *dims: int) -> Damage:
    """A weight of ones of another shape."""

    def damage(proto: ModelProto) -> None:
        array = np.ones(dims, np.float32 if initializer(proto, name).float_data else np.int8)
        initializer(proto, name).CopyFrom(onnx.numpy_helper.from_array(array, name))

    return damage


def typed(name: str, kind: int) -> Damage:
    """A weight of another type, whose bytes are zero."""

    def damage(proto: ModelProto) -> None:
        tensor = initializer(proto, name)
        size = int(np.prod(tensor.dims)) if tensor.dims else 1
        width = onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
        tensor.ClearField("int32_data")
        tensor.data_type, tensor.raw_data = kind, bytes(size * width)

    return damage


def without(index: int, *fields: str) -> Damage:
    """A node without its inputs or outputs."""

    def damage(proto: ModelProto) -> None:
        for field in fields:
            proto.graph.node[index].ClearField(field)

    return damage


def with_axis(index: int, axis: int) -> Damage:
    def damage(proto: ModelProto) -> None:
        node = proto.graph.node[index]
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("axis", axis))

    return damage


def pairs_in_a_circle(proto: ModelProto) -> None:
    quantize, dequantize = proto.graph.node[:2]
    quantize.input[0] = dequantize.output[0]


def two_functions_of_one_name(proto: ModelProto) -> None:
    function = onnx.parser.parse_function(
        '<opset_import: ["": 17], domain: "f"> again (p) => (r) { r = Relu(p) }'
    )
    proto.functions.extend((function, function))
    proto.graph.node[4].op_type, proto.graph.node[4].domain = "again", "f"


def a_loop_without_a_body(proto: ModelProto) -> None:
    """ONNX's inference makes a vector of fewer than no elements for one input alone."""
    node = next(node for node in proto.graph.node if node.op_type == "Relu")
    node.op_type = "Loop"
    node.input.append("")


def an_input_of_unknown_type(proto: ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.elem_type = 99


def an_input_that_is_a_sequence(proto: ModelProto) -> None:
    proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def an_input_beyond_memory(proto: ModelProto) -> None:
    """No dimension of which is large."""
    shape = proto.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for size in (1, 2**19, 2**19, 64):
        shape.dim.add(dim_value=size)


@pytest.mark.parametrize(
    ("base", "damage", "command", "expected"),
    [
        # qdq/extract.py: a pair's scale and zero point, what it reads and writes.
        ("pairs", resized("s", 3), "explain", "tensor 's' is damaged or cut short"),
        ("pairs", without(0, "output"), "explain", "node 'q' (QuantizeLinear) has no output"),
        ("pairs", without(1, "input"), "explain", "node 'dq' (DequantizeLinear) has 0 inputs"),
        ("pairs", pairs_in_a_circle, "explain", "node 'q' (QuantizeLinear) waits for its own"),
        # model/quantized/dequantizer.py and its neighbours.
        ("pairs", without(1, "input"), "import", "node 'dq' (DequantizeLinear) has 0 inputs"),
        ("pairs", typed("w", TensorProto.BFLOAT16), "import", "of type BFLOAT16 cannot be taken"),
        ("qoperator", typed("z", TensorProto.FLOAT), "import", "of type FLOAT cannot be taken"),
        # model/quantized/arithmetic.py: scales along an axis.
        ("pairs", with_axis(2, 7), "import", "has axis 7 on a tensor of rank 2"),
        ("pairs", with_axis(2, -9), "import", "has axis -9 on a tensor of rank 2"),
        ("pairs", shaped("ws", 3), "import", "has 4 zero points for 3 scales"),
        ("qoperator", shaped("ws", 5), "import", "of shape (5,) along axis 0 of a tensor of shape"),
        # model/tensorrt_pairs.
        ("pairs", without(1, "input"), "check", "node 'dq' (DequantizeLinear) has 0 inputs"),
        # model/quantized/reader.py and model/normalize.py: what ONNX's C++ passes raise.
        ("pairs", two_functions_of_one_name, "import", "again"),
        ("dense", a_loop_without_a_body, "extract", "Required attribute 'body' is missing"),
        # calibration/dataset.py and graph/edit.py: inputs that random data are made for.
        ("dense", an_input_of_unknown_type, "optimize", "'x' has the unknown type 99"),
        ("dense", an_input_that_is_a_sequence, "optimize", "input 'x' is not a tensor"),
        ("dense", an_input_beyond_memory, "optimize", "more than 1 GiB"),
        # prediction/predictor.py.
        ("dense", an_input_of_unknown_type, "explain", "'x' has the unknown type 99"),
    ],
)
def test_models_that_are_refused(
    placer: Placer, base: str, damage: Damage, command: str, expected: str
):
    refused(placer, damaged(base, damage), command, expected)


@pytest.mark.parametrize(
    ("base", "damage"), [("residual", shaped("w", 4)), ("dense", shaped("v", 4))]
)
def test_weights_of_rank_1(placer: Placer, base: str, damage: Damage):
    """prediction/work.py: a Conv and a Gemm without channels are explained as they are."""
    prepared(damaged(base, damage))
    assert placer(*COMMANDS["explain"]).code == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [b"mm", b"MatMul", b"w", b"x"])
def test_names_that_are_no_utf_8(placer: Placer, command: str, name: bytes):
    """Protobuf gives bytes for them, with which nothing works: importing, rules, layers."""
    data = models()["pairs" if command == "import" else "dense"].SerializeToString()
    marked = bytes([len(name)]) + name
    assert marked in data
    refused(placer, data.replace(marked, marked[:1] + b"\xff" * len(name)), command, "not UTF-8")


@pytest.mark.parametrize("command", ["optimize", "extract"])
@pytest.mark.parametrize("size", [f"{2**40}", f"{2**63 - 1}", f"{10**20}", "9" * 5000])
def test_shapes_beyond_integers(placer: Placer, command: str, size: str):
    """graph/edit.py."""
    before = prepared(models()["dense"].SerializeToString())
    finished = placer(*COMMANDS[command], "--shape", f"x={size}x8")
    assert finished.code == 2, finished.err
    assert "has a dimension above 2,147,483,647; give less" in finished.err
    assert finished.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def archive_of_bytes(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"no array")


def archive_packed_in_an_unknown_way(path: Path) -> None:
    np.savez(path, x=np.eye(4, 8, dtype=np.float32))
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.index(magic) + offset
        data[at : at + 2] = (99).to_bytes(2, "little")
    path.write_bytes(bytes(data))


def archive_without_dimensions(path: Path) -> None:
    np.savez(path, x=np.float32(1))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (archive_of_bytes, "array 'x' has shape () but the model needs (N, 8)"),
        (archive_packed_in_an_unknown_way, "That compression method is not supported"),
        (archive_without_dimensions, "array 'x' has shape () but the model needs (N, 8)"),
    ],
)
def test_data(placer: Placer, make: Callable[[Path], None], expected: str):
    """calibration/sources.py."""
    Path("net.onnx").write_bytes(models()["dense"].SerializeToString())
    make(Path("data.npz"))
    before = sorted(Path().rglob("*"))
    finished = placer(*COMMANDS["optimize"], "--data", "data.npz")
    assert finished.code == 2
    assert f"data.npz{': ' if 'array' in expected else ' '}" in finished.err
    assert expected in finished.err
    assert finished.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("labels", [np.zeros(4, np.int64), np.zeros((4, 1), np.int64)])
def test_labels_for_an_output_without_classes(placer: Placer, labels: np.ndarray):
    """accuracy/metrics.py: of an output without dimensions."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8] x) => (float y) <float[8,4] w = {0.5}> {
      a = MatMul(x, w)
      y = ReduceSum<keepdims = 0>(a)
    }
    """
    Path("net.onnx").write_bytes(parse_model(text).SerializeToString())
    np.savez("data.npz", x=np.eye(4, 8, dtype=np.float32), labels=labels)
    finished = placer(*COMMANDS["optimize"], "--data", "data.npz")
    assert finished.code == 2
    assert "labels fit no output" in finished.err
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 100_000, f'{{"Layers": {"9" * 5000}}}', '{"Layers": NaN}']
)
def test_plans(placer: Placer, text: str):
    """plan/readers/read.py: what the JSON reader of Python raises besides its own error."""
    Path("a.json").write_text(text)
    Path("b.json").write_text(PLAN)
    finished = placer("plan", "diff", "a.json", "b.json")
    assert finished.code == 2
    assert "a.json" in finished.err
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    "url", ["sqlite:///a?mode=1&mode=2&password=x", "sqlite://[", "postgresql://u:p@h:x/d", "\0"]
)
def test_urls_of_storages(placer: Placer, url: str):
    """search/study/storage.py: secrets are masked in whatever there is of a URL."""
    finished = placer("worker", "--storage", url, "--study", "s")
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert "password=x" not in finished.err


def damaged(base: str, damage: Damage) -> bytes:
    proto = ModelProto.FromString(models()[base].SerializeToString())
    damage(proto)
    return proto.SerializeToString()


def prepared(model: bytes) -> list[Path]:
    """The model and a rule pack in the current folder; all that there is."""
    Path("net.onnx").write_bytes(model)
    Path("mine").mkdir(exist_ok=True)
    for name, text in PACK.items():
        (Path("mine") / name).write_text(text)
    return sorted(Path().rglob("*"))


def refused(placer: Placer, model: bytes, command: str, expected: str) -> None:
    """Hold ``command`` to a sentence and to no files."""
    before = prepared(model)
    finished = placer(*COMMANDS[command])
    assert finished.code == 2, finished.err
    assert expected in finished.err
    assert finished.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
