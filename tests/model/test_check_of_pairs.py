"""What ``placer check`` says of the pairs that TensorRT refuses."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import placer
from placer.qdq.origin import name_origin
from tests.conftest import DIGITS, Finished
from tests.model.paired import BOTH, REFUSED, TAKEN, Save, text_of

ARTEFACTS = Path(__file__).parent.parent / "artefacts"


@pytest.mark.parametrize("names", ["[q] [dq] [v] [conv]", "", "[node_of_d] [a] [b] [node_of_y]"])
def test_a_built_plan_names_no_pairs_and_all_else_as_the_file_does(
    save: Save, builder: Any, names: str
):
    """The builder calls nodes without a name after what they write."""
    del builder
    body = (
        "{} q = QuantizeLinear(x, s, z) {} d = DequantizeLinear(q, s, z)"
        "{} v = DequantizeLinear<axis = 0>(wq, ws, wz) {} y = Conv(d, v)"
    )
    path = save(text_of(body.format(*(names.split() or [""] * 4))))
    conv = {"": "Conv_3"}.get(names, names.rpartition("[")[2].rstrip("]"))
    plan = placer.check(path).plan
    assert plan.layers[0].kind == "quantize"
    assert {node for layer in plan.layers for node in layer.nodes} == {conv}
    assert conv in {n for x in placer.explain(path).explanation.plan.layers for n in x.nodes}


def test_check_names_the_pairs_before_it_builds(
    save: Save, builder: Any, placer: Callable[..., Finished]
):
    del builder
    body, constants, _ = REFUSED["int32 bias"]
    path = save(text_of(body, constants))
    finished = placer("check", path)
    assert finished.code == 1
    assert "refused: node 'b' (DequantizeLinear) on 'bq': it reads int32" in finished.out
    assert "refuses" in finished.err
    document = json.loads(placer("check", path, "--json").out)
    assert [pair["verdict"] for pair in document["pairs"]] == ["refused"]


@pytest.mark.parametrize(
    ("name", "told", "code"),
    [
        ("int32 bias", f"{BOTH} take all of these out of the file", 0),
        # Its range is lost, and optimize calibrates it.
        ("a negative scale", f"{BOTH} take all of these out of the file", 0),
        # Integers along an axis that does not fit stand for nothing.
        ("scales along another axis", f"{BOTH} refuse the file: ", 2),
        # So does a scale that is NaN after calibration (TensorRT issue 2628).
        ("a scale that is not finite", f"{BOTH} refuse the file: ", 2),
        (
            "a table of int8 that is read at run time",
            "placer import refuses the file, which has no pairs; placer optimize takes it as it is",
            2,
        ),
    ],
)
def test_check_promises_what_import_does(
    save: Save, placer: Callable[..., Finished], name: str, told: str, code: int
):
    body, constants, _ = REFUSED[name]
    path = save(text_of(body, constants))
    assert told in placer("check", path, "--static").out
    assert placer("import", path, "-o", path.with_suffix(".float.onnx")).code == code


def test_check_static_needs_no_builder(save: Save, placer: Callable[..., Finished]):
    body, constants, _ = REFUSED["int32 bias"]
    path = save(text_of(body, constants))
    refused = placer("check", path, "--static")
    assert refused.code == 1
    assert f"TensorRT refuses {path}: node 'b' (DequantizeLinear)" in refused.err
    taken = placer("check", save(text_of(TAKEN["int8"])), "--static")
    assert (taken.code, "TensorRT 10 and 11 take every Q/DQ pair" in taken.out) == (0, True)
    bare = placer("check", DIGITS / "digits.onnx", "--static")
    assert (bare.code, "digits.onnx has no Q/DQ pair" in bare.out) == (0, True)
    assert "'Calibration failure occurred with no scaling factors detected'" in bare.out
    float_model = placer("check", DIGITS / "digits.onnx", "--static", "--json")
    assert (float_model.code, json.loads(float_model.out)) == (
        0,
        {"placed_for": None, "not_imported": None, "pairs": [], "older": None, "tables": []},
    )


TABLE = b"TRT-8601-EntropyCalibration2\nx: 3c010a14\n"


@pytest.mark.parametrize(
    ("name", "content", "is_table"),
    [
        ("int8.cache", TABLE, True),
        ("INT8_calibration_table", TABLE, True),
        # As ONNX Runtime's calibrator calls them (write_calibration_table).
        ("calibration.flatbuffers", b"\x14", True),
        ("calibration.cache", b"x 1.5\n", True),
        ("calibration.json", b"{}", False),
        ("timing.cache", b"\x00\x01", False),
        ("notes.txt", b"TensorRT", False),
    ],
)
def test_a_calibration_table_beside_pairs_is_told(
    save: Save, placer: Callable[..., Finished], name: str, content: bytes, is_table: bool
):
    """ONNX Runtime issue 13071; for a model without pairs a table is what TensorRT 10 needs."""
    path = save(text_of(TAKEN["int8"]))
    (path.parent / name).write_bytes(content)
    done = placer("check", path, "--static")
    said = f"with this file, which has Q/DQ pairs (beside it: '{name}'). TensorRT ignores them."
    assert (done.code, said in done.out) == (0, is_table)
    bare = path.parent / "float.onnx"
    shutil.copy(DIGITS / "digits.onnx", bare)
    assert "calibration table" not in placer("check", bare, "--static").out


def test_a_folder_that_may_not_be_listed_hides_tables_only(
    save: Save, placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    path = save(text_of(TAKEN["int8"]))
    (path.parent / "int8.cache").write_bytes(TABLE)

    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder == path.parent:
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refused)  # Root may list every folder.
    assert (
        placer("check", path, "--static").out
        == f"TensorRT 10 and 11 take every Q/DQ pair of {path}\n"
    )


def test_check_says_first_which_engine_placer_placed_the_pairs_for(
    save: Save, placer: Callable[..., Finished]
):
    path = save(text_of(TAKEN["int8"]))
    for pack, told in [
        ("openvino 0.23.0", f"{path} was placed for OpenVINO, not for TensorRT; "),
        ("tensorrt-rtx 0.9.0", f"TensorRT 10 and 11 take every Q/DQ pair of {path}"),
        ("of-a-colleague 1.0.0", f"TensorRT 10 and 11 take every Q/DQ pair of {path}"),
    ]:
        proto = onnx.load(path)
        name_origin(proto, "p", pack, calibrated=True)
        onnx.save(proto, path)
        assert placer("check", path, "--static").out.startswith(told)
    spaced = path.with_name("of openvino.onnx")
    name_origin(proto, "p", "openvino 0.23.0", calibrated=True)
    onnx.save(proto, spaced)
    told = placer("check", spaced, "--static").out.splitlines()[0]
    assert told.endswith(f"anew: placer optimize '{spaced}' --engine tensorrt")
    # The metadata of a float model that optimize kept name a pack, too.
    proto = onnx.load(DIGITS / "digits.onnx")
    name_origin(proto, "p", "openvino 0.23.0", calibrated=True)
    onnx.save(proto, path)
    assert json.loads(placer("check", path, "--static", "--json").out)["placed_for"] is None


def test_check_prints_a_line_for_each_fix_and_what_most_nodes_need_first(
    placer: Callable[..., Finished],
):
    path = ARTEFACTS / "torch_eager.onnx"
    lines = placer("check", path, "--static").out.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["refused"] * 3 + ["altered"]
    assert [line.partition("; ")[2] for line in lines[:3]] == [
        "remove the Cast and retype the zero points (and 7 more nodes)",
        "quantize symmetrically (and 5 more nodes)",
        "keep the bias float (and 2 more nodes)",
    ]
    assert lines[4] == "--json lists every node"
    pairs = json.loads(placer("check", path, "--static", "--json").out)["pairs"]
    assert len([pair for pair in pairs if pair["op"] == "Cast"]) == 8
