"""Files that are no usable model are refused in one sentence, before any work."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper

from placer.common.limits import Limits
from placer.common.ort_session import Session, run_once
from placer.errors import InputError, RunError
from placer.model import load_as_is, load_model, load_quantized

RELU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) { [act] y = Relu(x) }
"""


def refusal(path: Path, load: Callable[[Path], object] = load_model) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def save(proto: ModelProto | str, name: str = "net.onnx") -> Path:
        path = tmp_path / name
        model = onnx.parser.parse_model(proto) if isinstance(proto, str) else proto
        path.write_bytes(model.SerializeToString())
        return path

    return save


@pytest.mark.parametrize("suffix", ["onnxtxt", "textproto", "json", "onnxjson", "pbtxt", "txt"])
def test_the_suffix_says_nothing(write: Callable[..., Path], suffix: str):
    binary = write(RELU, f"net.{suffix}")
    assert len(load_model(binary).graph.nodes) == 1
    binary.write_text(RELU)
    assert "not an ONNX file" in refusal(binary)


def test_a_domain_that_the_file_does_not_import_is_that_of_its_nodes(write: Callable[..., Path]):
    """AIMET leaves out that of its own operators."""
    proto = onnx.parser.parse_model(RELU)
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "Gelu", "com.microsoft"
    assert load_model(write(proto)).graph.nodes[0].op == "Div"  # Gelu in standard operators.


def test_a_domain_that_a_local_function_does_not_import_is_that_of_its_nodes(
    write: Callable[..., Path],
):
    path = write("""
    <ir_version: 10, opset_import: ["": 17, "local": 1]>
    g (float[4] x) => (float[4] y) { y = local.f(x) }
    <domain: "local", opset_import: ["": 17]>
    f (a) => (b) { b = com.microsoft.Gelu(a) }
    """)
    assert load_model(path).graph.nodes[0].op == "Div"  # Gelu in standard operators.


def test_only_regular_files_are_read(tmp_path: Path):
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    assert "is not a regular file" in refusal(pipe)
    assert "is not a regular file" in refusal(Path("/dev/zero"))
    assert "is a folder" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "nowhere.onnx")


def test_a_file_over_the_limit(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    path = write(RELU)
    monkeypatch.setenv("PLACER_MAX_MODEL_BYTES", "10")
    assert "set PLACER_MAX_MODEL_BYTES=" in refusal(path)
    monkeypatch.setenv("PLACER_MAX_MODEL_BYTES", "ten")
    assert "is not a whole number above 0" in refusal(path)


def calls(count: int, times: int, last: int) -> ModelProto:
    """Functions f0 to f<count-1>, each of which calls the next ``times``, the last one f<last>."""
    proto = onnx.parser.parse_model(RELU.replace("Relu", "f.f0"))
    proto.opset_import.append(helper.make_opsetid("f", 1))
    for i in range(count):
        callee = f"f{i + 1}" if i + 1 < count else (f"f{last}" if last >= 0 else "Relu")
        nodes = [
            NodeProto(
                op_type=callee,
                domain="f" if callee != "Relu" else "",
                input=[f"t{k}" if k else "x"],
                output=[f"t{k + 1}" if k + 1 < times else "y"],
            )
            for k in range(times)
        ]
        function = FunctionProto(name=f"f{i}", domain="f", input=["x"], output=["y"], node=nodes)
        function.opset_import.extend(proto.opset_import)
        proto.functions.append(function)
    return proto


def test_functions_are_counted_before_they_are_inlined(write: Callable[..., Path]):
    assert len(load_model(write(calls(3, 2, -1))).graph.nodes) == 8
    assert "more than 10^12 nodes" in refusal(write(calls(60, 2, -1)))
    assert "calls itself" in refusal(write(calls(3, 1, 0)))
    assert "more than 100 deep" in refusal(write(calls(150, 1, -1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RELU.replace("Relu(x)", "Relu(z)"), "node 'act' (Relu) reads 'z', which nothing computes"),
        (RELU.replace("{ [act]", "{ [a] y = Relu(x) [act]"), "'y' occurs twice"),
        (RELU.replace("[1,4] y)", "[1,4] y, float z)"), "nothing computes the output 'z'"),
        (RELU.replace("[1,4] y)", "[1,4] y, float[1,4] y)"), "'y' occurs twice among its graph"),
        (
            RELU.replace("[1,4] x", "[1099511627776,4] x"),
            "'x' has a dimension of 1,099,511,627,776",
        ),
        (RELU.replace("act", "a" * 5000), "has 5,000 characters, more than 2,000"),
    ],
)
def test_structure_and_names(write: Callable[..., Path], text: str, expected: str):
    for load in (load_model, load_quantized, load_as_is):
        message = refusal(write(text), load)
        assert expected in message
        assert len(message) < 400


WINDOW = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,8,8] y) {
  [conv] y = Conv<pads = [1, 1, 1, 1], ATTRIBUTE>(x, w)
}
"""


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("strides = [0, 1]", "node 'conv' (Conv) has strides [0, 1], which are to be positive"),
        ("group = 0", "node 'conv' (Conv) has 0 groups"),
        ("dilations = [1]", "node 'conv' (Conv) has 1 dilations, 4 pads, which are not of one"),
    ],
)
def test_windows_that_cannot_be(write: Callable[..., Path], attribute: str, expected: str):
    assert expected in refusal(write(WINDOW.replace("ATTRIBUTE", attribute)))


def test_an_input_without_a_type(write: Callable[..., Path]):
    proto = onnx.parser.parse_model(RELU)
    proto.graph.input[0].ClearField("type")
    assert "input 'x' has no type" in refusal(write(proto))


def test_control_characters_in_names(write: Callable[..., Path]):
    proto = onnx.parser.parse_model(RELU)
    proto.graph.node[0].name = "a\x1b[31mb"
    assert "holds control characters; rename it" in refusal(write(proto))


def test_of_several_bad_names_the_first_is_told_in_every_run(write: Callable[..., Path]):
    proto = onnx.parser.parse_model(RELU)
    del proto.graph.node[:]
    names = ["x", *(f"t{i}\t" for i in range(30)), "y"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    proto.graph.node.extend(nodes)
    assert "the name 't0\t' holds" in refusal(write(proto))


def test_types_that_do_not_exist(write: Callable[..., Path]):
    proto = onnx.parser.parse_model(RELU)
    proto.graph.initializer.append(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1"))
    for load in (load_model, load_quantized, load_as_is):
        assert "initializer 'w' has the unknown type 99" in refusal(write(proto), load)
    proto.graph.initializer[0].data_type = 0
    assert "has the unknown type 0" in refusal(write(proto), load_quantized)


EXPAND = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[N,4] y) <int64[2] s = {536870912, 4}> { y = Expand(x, s) }
"""


def test_tensors_too_large_for_memory(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    path = write(EXPAND)
    assert "of shape 536870912x4 takes 8 GiB, more than 1 GiB" in refusal(path)
    monkeypatch.setenv("PLACER_MAX_TENSOR_BYTES", str(2**33))
    assert load_model(path).graph.type_of("y").shape == (536870912, 4)


def test_a_batch_too_large_for_memory(write: Callable[..., Path]):
    path = write(RELU.replace("float[1,4]", "float[N,3,32,32]"))
    shapes = {"x": (3_000_000, 3, 32, 32)}
    for load in (load_model, load_as_is):
        assert "takes 34.33 GiB" in refusal(path, lambda p, load=load: load(p, shapes))


LOOP = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1] x, int64 n, bool c) => (float[1] y) <int64 trips = {TRIPS}, bool yes = {1}> {
  y = Loop (COUNT, yes, x) <body = b (int64 i, bool go, float[1] a) => (bool on, float[1] z) {
    on = Identity(go)
    z = Add(a, a)
  }>
}
"""


def test_a_loop_with_a_huge_constant_trip_count(write: Callable[..., Path]):
    endless = LOOP.replace("COUNT", "trips").replace("TRIPS", "9223372036854775807")
    assert "(Loop) runs 9,223,372,036,854,775,807 times" in refusal(write(endless))
    ending = endless.replace("on = Identity(go)", "on = Less(a, a)")
    load_model(write(ending))  # The usual form of a while loop.
    load_model(write(LOOP.replace("COUNT", "trips").replace("TRIPS", "1000")))


def test_a_loop_whose_data_never_end_it_is_stopped(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    path = write(LOOP.replace("COUNT", "n").replace("TRIPS", "1"))
    monkeypatch.setenv("PLACER_MAX_RUN_S", "1")
    session = Session(ort.InferenceSession(path, providers=["CPUExecutionProvider"]))
    inputs = {"x": np.ones(1, np.float32), "n": np.array(2**62), "c": np.array(True)}
    with pytest.raises(RunError, match="took more than 1 s; set PLACER_MAX_RUN_S=10"):
        run_once(session, None, inputs)


def test_attributes_are_looked_at_too(write: Callable[..., Path]):
    proto = onnx.parser.parse_model(RELU)
    value = AttributeProto(name="value", type=AttributeProto.TENSOR)
    value.t.CopyFrom(TensorProto(data_type=77))
    proto.graph.node[0].attribute.append(value)
    assert "attribute 'value' has the unknown type 77" in refusal(write(proto))


def test_limits_are_positive_numbers():
    assert Limits.from_environment({}) == Limits()
    assert Limits.from_environment({"PLACER_MAX_NODES": "7"}).nodes == 7
    for wrong in ("0", "-1", "1e3", ""):
        with pytest.raises(InputError, match="PLACER_MAX_NODES"):
            Limits.from_environment({"PLACER_MAX_NODES": wrong})


def test_inputs_with_default_values_are_fixed_to_them_and_the_others_keep_their_order(
    write: Callable[..., Path],
):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x, float[1] k = {2}, float[1,4] z) => (float[1,4] y) {
      a = Mul(x, k)
      y = Add(a, z)
    }
    """
    proto = onnx.parser.parse_model(text)
    assert [value.name for value in proto.graph.input] == ["x", "k", "z"]
    model = load_model(write(proto))
    assert model.graph.inputs == ("x", "z")
    assert model.notes[0] == "fixed 1 inputs to their default values: k"


def test_an_operator_set_that_is_newer_than_the_installed_onnx(write: Callable[..., Path]):
    newest = onnx.defs.onnx_opset_version()
    assert load_as_is(write(RELU.replace("17]", f"{newest}]"))).graph.nodes
    told = refusal(write(RELU.replace("17]", f"{newest + 1}]")))
    assert f"is of opset {newest + 1}" in told
    assert f"none beyond {newest}" in told
