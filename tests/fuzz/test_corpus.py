"""Every input that was found to break a command, as the code that makes it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto
from pydantic import ValidationError

from placer.errors import InputError
from placer.model.quantized.arithmetic import dequantize_nodes
from placer.model.quantized.names import Names
from placer.plan import Plan
from placer.prediction.explanation.explain import Explanation
from placer.quantization import EMPTY
from placer.results.parts import BestPart, FrontPart, TrialPart
from placer.search.study.storage import open_storage
from tests.conftest import Finished
from tests.fuzz.runs import finished
from tests.fuzz.seeds import PACK, models

Placer = Callable[..., Finished]
Damage = Callable[[ModelProto], None]


def _external(proto: ModelProto, name: str, **entries: str) -> None:
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _location_with_nul(proto: ModelProto) -> None:
    _external(proto, "s", location="a\0b")


def _location_nowhere(proto: ModelProto) -> None:
    _external(proto, "s", location="nowhere.bin")


def _location_outside(proto: ModelProto) -> None:
    _external(proto, "z", location="/etc/passwd")


def _location_of_another_size(proto: ModelProto) -> None:
    _external(proto, "z", location="mine/pack.yaml", length="20")


def _location_of_nothing(proto: ModelProto) -> None:
    _external(proto, "s", location="mine/pack.yaml", length="0")


def _flag_of_other_size(proto: ModelProto) -> None:
    flag = next(t for t in proto.graph.initializer if t.name == "t")
    flag.ClearField("int32_data")
    flag.raw_data = bytes(10)


def _quantized_operator_without_inputs(proto: ModelProto) -> None:
    node = proto.graph.node[1]
    node.op_type, node.domain = "QLinearMatMul", "com.microsoft"
    del node.input[:], node.attribute[:]


def _pair_without_scale(proto: ModelProto) -> None:
    node = next(node for node in proto.graph.node if node.op_type == "QuantizeLinear")
    node.op_type, node.domain = "TRT_FP8QuantizeLinear", "trt"
    node.input[1] = ""
    proto.opset_import.add(domain="trt", version=1)


def _circle(proto: ModelProto) -> None:
    first, second = proto.graph.node[:2]
    first.input[0] = second.output[0]


def _opset_beyond_integers(proto: ModelProto) -> None:
    proto.opset_import[0].version = 2**62


def _quantized_to_float(proto: ModelProto) -> None:
    point = next(t for t in proto.graph.initializer if t.name == "z")
    point.ClearField("int32_data")
    point.data_type, point.raw_data = TensorProto.FLOAT4E2M1, b"\0"


def _zero_points_for_one_scale(proto: ModelProto) -> None:
    proto.graph.node[-1].input[2] = "wz"


def _several_conditions(proto: ModelProto) -> None:
    proto.graph.node[1].input[0] = "w"


@pytest.mark.parametrize(
    ("base", "damage", "expected"),
    [
        ("pairs", _location_with_nul, "names no external data file"),
        ("pairs", _location_nowhere, "is missing; copy it beside the model"),
        ("pairs", _location_outside, "points outside the model's folder"),
        ("pairs", _location_of_nothing, "is too short for initializer 's'; copy the whole file"),
        ("pairs", _location_of_another_size, "has 20 bytes, its shape takes 1; export it again"),
        ("branches", _flag_of_other_size, "tensor 't' is damaged or cut short"),
        ("dense", _quantized_operator_without_inputs, "has 0 inputs, which are too few"),
        ("pairs", _pair_without_scale, "(TRT_FP8QuantizeLinear) lacks one of its first 2 inputs"),
        ("pairs", _zero_points_for_one_scale, "has 4 zero points for 1 scales"),
        ("branches", _several_conditions, "the condition of node 'if' (If) has 9 values"),
        ("pairs", _circle, "waits for its own output"),
        ("pairs", _opset_beyond_integers, "it imports version 4611686018427387904"),
    ],
)
def test_models_that_check_refuses(placer: Placer, base: str, damage: Damage, expected: str):
    finished = on_damaged(placer, base, damage, "check", "net.onnx", "--static")
    assert finished.code == 2
    assert expected in finished.err
    assert finished.err.count("\n") == 1


def test_a_number_beyond_the_parser(placer: Placer):
    """ONNX's parser lets an exception of C++ pass."""
    Path("mine").mkdir()
    for name, text in PACK.items():
        (Path("mine") / name).write_text(text.replace("ir_version: 9", f"ir_version: {10**30}"))
    finished = placer("rules", "test", "mine")
    assert finished.code == 1
    assert "not a valid ONNX text model" in finished.out + finished.err


def test_two_functions_of_one_name(placer: Placer):
    def twice(proto: ModelProto) -> None:
        proto.functions.add().CopyFrom(proto.functions[0])

    base = next(name for name, proto in models().items() if proto.functions)
    finished = on_damaged(placer, base, twice, "extract", "net.onnx", "--outputs", "y")
    assert finished.code == 2
    assert finished.err.count("\n") == 1


def test_texts_of_any_bytes_are_no_part_of_a_region(placer: Placer):
    def bytes_in(proto: ModelProto) -> None:
        proto.graph.node[0].attribute.add(name="auto_pad", type=3, s=b"\xce\xff")

    finished = on_damaged(placer, "vision", bytes_in, "extract", "net.onnx", "--outputs", "y")
    assert (finished.code, finished.err.count("\n")) in ((0, 0), (2, 1))


def test_a_type_that_cannot_be_taken_apart(placer: Placer):
    finished = on_damaged(placer, "pairs", _quantized_to_float, "import", "net.onnx")
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert not list(Path().glob("*.float.onnx"))


def test_a_convolution_with_a_scalar_weight_has_no_depth(placer: Placer):
    def scalar(proto: ModelProto) -> None:
        proto.graph.node[-1].op_type = "ConvTranspose"

    finished = on_damaged(placer, "pairs", scalar, "explain", "net.onnx", "--pack", "mine")
    assert "Traceback" not in finished.err
    assert finished.code in (0, 2)


def test_what_the_converter_raises_is_a_sentence(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    def refusing(*_: object) -> None:
        raise onnx.shape_inference.InferenceError("two shapes")

    proto = models()["dense"]
    proto.opset_import[0].version = 12
    Path("net.onnx").write_bytes(proto.SerializeToString())
    monkeypatch.setattr("onnx.version_converter.convert_version", refusing)
    finished = placer("optimize", "net.onnx", "-o", "out")
    assert (finished.code, finished.err.count("\n")) == (2, 1)
    assert "opset 12 cannot be raised to 17" in finished.err
    assert not Path("out").exists()


def test_a_pair_with_many_scales_is_not_written_as_arithmetic():
    with pytest.raises(InputError, match="needs one scale and one zero point, not 4"):
        dequantize_nodes("q", "d", np.ones(4, np.float32), np.zeros(1, np.int8), Names(set()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DROP TABLE trial_values", "of table 'trial_values' is missing"),
        ("ALTER TABLE trials RENAME COLUMN state TO gone", "column 'state' of table 'trials' is"),
        ("DELETE FROM version_info", "table 'version_info' is empty"),
        ("DELETE FROM alembic_version", "table 'alembic_version' is empty"),
    ],
)
def test_a_study_database_that_lacks_something(tmp_path: Path, sql: str, expected: str):
    path = tmp_path / "study.db"
    open_storage(f"sqlite:///{path}", shared=False)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    before = path.read_bytes()
    with pytest.raises(InputError, match=expected):
        open_storage(f"sqlite:///{path}", shared=False)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_study_that_keeps_ranges_of_other_tensors(placer: Placer):
    run = finished("fusion-model")
    for name, data in run.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    study = Path("out/study.db")
    with closing(sqlite3.connect(study)) as connection, connection:
        rename = "SET value_json = replace(value_json, '\"q\": [', '\"other\": [')"
        connection.execute(f"UPDATE study_user_attributes {rename} WHERE key = 'calibration'")
    before = study.read_bytes()
    ended = placer(*run.command, "--budget", "3")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert study.read_bytes() == before


@pytest.mark.parametrize("ends", [[], [1.0], [0.9, 1.0, 1.1]])
def test_an_interval_without_two_ends(ends: list[float]):
    for part, field in (
        (BestPart, "speedup_interval"),
        (FrontPart, "ratio_interval"),
        (TrialPart, "ratio_interval"),
    ):
        with pytest.raises(ValidationError) as told:
            part.model_validate({field: ends})
        assert (field,) in [error["loc"][:1] for error in told.value.errors()]


def test_a_model_that_takes_no_time_has_no_speedup():
    nothing = Explanation((), {}, (), Plan(()), (), 0.0, 0.0, 0.0, False, EMPTY, 0.0, 0.1, 0.1)
    assert nothing.speedup == 1.0


def on_damaged(placer: Placer, base: str, damage: Damage, *command: str) -> Finished:
    """Run a command on a damaged copy of a seed model, beside the seeds' rule pack."""
    proto = ModelProto.FromString(models()[base].SerializeToString())
    damage(proto)
    Path("net.onnx").write_bytes(proto.SerializeToString())
    Path("mine").mkdir()
    for name, text in PACK.items():
        (Path("mine") / name).write_text(text)
    return placer(*command)
