"""Custom operators: the library is given, the nodes stay, and what is around them is quantized."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import placer
from placer.common.custom_ops import custom_op_libraries, libraries_held
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import InputError, RunError
from placer.model import load_model
from tests.conftest import Finished

Save = Callable[..., Path]

# NegPos of onnxruntime-extensions writes min(x, 0) and max(x, 0).
NETWORK = """
<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
g (float[N,4,8,8] x) => (float[N,4,8,8] y)
<float[4,4,1,1] w = {0.5}, float[4,4,1,1] v = {0.25}> {
  [first] a = Conv(x, w)
  [custom] low, high = ai.onnx.contrib.NegPos(a)
  [second] b = Conv(high, v)
  [sum] y = Add(b, low)
}
"""


@pytest.fixture
def library() -> str:
    extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions")
    return str(extensions.get_library_path())


def test_without_the_library_the_message_asks_for_it(save: Save):
    with pytest.raises(InputError, match=r"unknown domain 'ai.onnx.contrib'; give the library"):
        load_model(save(NETWORK))


def test_what_is_no_library_is_refused_without_being_loaded(tmp_path: Path):
    with pytest.raises(InputError, match=r"missing.so of `custom_ops` is not there"):
        placer.custom_ops(tmp_path / "missing.so").__enter__()
    other = tmp_path / "other.so"
    other.write_bytes(b"\x7fELF")
    with pytest.raises(InputError, match="does not export RegisterCustomOps"):
        placer.custom_ops(other).__enter__()


def test_a_library_that_cannot_be_loaded_is_told(save: Save, tmp_path: Path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF RegisterCustomOps\0")
    with placer.custom_ops(broken):
        model = load_model(save(NETWORK))  # Types behind the node are then not known.
        assert model.graph.type_of("high").shape is None
        with pytest.raises(RunError, match=r"ONNX Runtime cannot load .*broken.so"):
            OnnxRuntimeModel(model.proto, model.base_dir, threads=1)


def test_libraries_belong_to_the_block(library: str):
    with placer.custom_ops(library), placer.custom_ops(library):
        assert custom_op_libraries() == (library,)
    assert custom_op_libraries() == ()


def test_types_behind_a_custom_operator_are_those_of_a_run(save: Save, library: str):
    with placer.custom_ops(library):
        graph = load_model(save(NETWORK), {"x": (2, 4, 8, 8)}).graph
    assert graph.type_of("high").shape == graph.type_of("b").shape == (2, 4, 8, 8)


def test_what_is_kept_is_told_apart_by_the_content_of_the_libraries(tmp_path: Path, library: str):
    """Which are not loaded here: one process cannot load two contents of this library."""
    content, held = Path(library).read_bytes(), []
    for end in (b"", b"", b"another version"):
        (tmp_path / "ops.so").write_bytes(content + end)
        with placer.custom_ops(tmp_path / "ops.so"):
            held.append(libraries_held())
    assert held[0] == held[1] != held[2]


@pytest.mark.slow
def test_what_is_around_a_custom_operator_is_quantized(
    save: Save, tmp_path: Path, library: str, request: pytest.FixtureRequest
):
    path, rng = save(NETWORK), np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((16, 4, 8, 8)).astype(np.float32))
    result = placer.optimize(
        path,
        data=str(tmp_path / "data.npz"),
        custom_ops=library,
        engine="onnxruntime",
        budget=3,
        output=tmp_path / "out",
        cache=False,
    )
    (tried,) = (trial for trial in result.trials if trial.kind == "everything")
    assert tried.state == "complete"
    assert [gate.passed for gate in tried.gates] == [True]
    assert result.sites == 3
    assert f"--custom-ops {library}" in result.command
    program: Callable[..., Finished] = request.getfixturevalue("placer")
    given = ("--custom-ops", library, "--data", tmp_path / "data.npz")
    improved, applied = tmp_path / "improved.yaml", tmp_path / "applied"
    told = program("explain", path, "--gpu", "l4", "--improved", improved, *given[:2])
    assert told.code == 0, told.err
    made = program("apply", improved, path, "--base", "float", "-o", applied, *given)
    assert made.code == 0, made.err
    trained = program("export-qat", applied / "placement.yaml", path, *given[:2])
    assert trained.code == 0, trained.err
