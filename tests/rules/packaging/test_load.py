"""Rule files with mistakes: one sentence with file, line and field."""

from pathlib import Path

import pytest

from placer.common.limits import Limits
from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.rules.packaging.load import builtin_pack_names, load_pack
from placer.rules.schema import Rule
from placer.rules.target import Target

GOOD = """\
id: relu
why: a sentence for the test
source: test
pattern:
  act: {op: Relu, inputs: [x], output: y}
layouts:
  int8: {quantize: [act.x], default: true}
  float: {}
"""

MANIFEST = """\
name: mine
version: 1.0.0
engine: onnxruntime
engine_versions: ">=1"
scheme: {activation: uint8, symmetric: false, bias: int32}
licence: MIT
maintainers: [me]
"""


def message(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_text(text, "relu.yaml", Rule)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("op: Relu", "ops: Relu", "relu.yaml:5: field 'pattern.act.ops'"),
        ("[act.x]", "[act.z]", "relu.yaml:1: field 'document': layout 'int8': node 'act' has no"),
        ("[act.x]", "[relu.x]", "names unknown node 'relu'"),
        ("[act.x]", "[z.*]", "names unknown tensor 'z'"),
        ("default: true", "default: false", "exactly one layout has 'default: true'"),
        ("source: test", "source: test\nsource: again", "relu.yaml:4: field 'source' is given"),
        ("why: a sentence for the test", "why: brief", "relu.yaml:2: field 'why': say why"),
        ("id: relu", "id: [relu", "relu.yaml:2: not valid YAML"),
        ("id: relu", "id: !!python/name:os.system x", "YAML tag"),
        ("[x]", "[x, {y: 1}]", "relu.yaml:5: field 'pattern.act.inputs.1'"),
        ("float: {}", "float: {share_scale: [[x, q]]}", "share_scale names unknown tensor 'q'"),
        ("layouts:", "read_behind: [q]\nlayouts:", "read_behind: unknown tensor 'q'"),
        ("layouts:", "where: [{is_initializer: q}]\nlayouts:", "unknown tensor 'q'"),
        ("layouts:", "where: [{depthwise: q}]\nlayouts:", "unknown node 'q'"),
        ("layouts:", "where: [{}]\nlayouts:", "exactly one predicate"),
        (
            "layouts:",
            "  other: {op: Relu, inputs: [a], output: b}\nlayouts:",
            "relu.yaml:1: field 'document': rule 'relu': no tensor joins 'other' with 'act', so",
        ),
    ],
)
def test_one_sentence_names_file_line_and_field(old: str, new: str, expected: str):
    assert expected in message(GOOD.replace(old, new))


def test_yaml_aliases_and_deep_nesting_are_refused():
    assert "aliases are not allowed" in message("id: &a x\nwhy: *a\n")
    assert "nested too deeply" in message("id: " + "[" * 5000)


def pack(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in {"pack": MANIFEST, "relu": GOOD, **files}.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_a_folder_is_a_pack(tmp_path: Path):
    loaded = load_pack(pack(tmp_path / "mine"))
    assert loaded.name_and_version == "mine 1.0.0"
    assert [rule.id for rule in loaded.rules] == ["relu"]
    assert loaded.manifest.scheme.activation == "uint8"


def test_a_pack_may_be_for_the_engine_of_a_plug_in(tmp_path: Path):
    manifest = MANIFEST.replace("engine: onnxruntime", "engine: npu-2")
    assert load_pack(pack(tmp_path / "mine", pack=manifest)).manifest.engine == "npu-2"


def test_the_fingerprint_follows_the_content(tmp_path: Path):
    first = load_pack(pack(tmp_path / "a")).fingerprint
    again = load_pack(pack(tmp_path / "b")).fingerprint
    other = load_pack(pack(tmp_path / "c", relu=GOOD.replace("Relu", "Sigmoid"))).fingerprint
    assert first == again != other


def test_broken_packs_are_refused(tmp_path: Path):
    with pytest.raises(
        InputError, match=r"neither a folder nor built in nor installed nor a .* built in: onnx"
    ):
        load_pack("nowhere")
    with pytest.raises(
        InputError, match=r"other\.yaml: field 'id' is 'relu', which relu\.yaml has"
    ):
        load_pack(pack(tmp_path / "a", other=GOOD))
    with pytest.raises(InputError, match=r"field 'id' is 'tanh'; rename the file to tanh\.yaml"):
        load_pack(pack(tmp_path / "f", other=GOOD.replace("id: relu", "id: tanh")))
    with pytest.raises(InputError, match="larger than 256 KiB"):
        load_pack(pack(tmp_path / "b", relu="#" * (Limits().rule_bytes + 1)))
    with pytest.raises(InputError, match=r"pack\.yaml:4: field 'engine_versions'"):
        load_pack(pack(tmp_path / "c", pack=MANIFEST.replace(">=1", "one")))
    with pytest.raises(InputError, match=r"pack\.yaml:3: field 'engine'"):
        load_pack(pack(tmp_path / "e", pack=MANIFEST.replace("onnxruntime", "My Engine")))
    (tmp_path / "d").mkdir()
    with pytest.raises(InputError, match=r"pack\.yaml does not exist"):
        load_pack(tmp_path / "d")


def test_a_pack_cannot_read_outside_its_folder(tmp_path: Path):
    (tmp_path / "secret.yaml").write_text(GOOD)
    folder = pack(tmp_path / "mine")
    (folder / "relu.yaml").unlink()
    (folder / "relu.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(InputError, match="points outside its rule pack"):
        load_pack(folder)


def test_the_built_in_packs():
    assert builtin_pack_names() == (
        "onnxruntime",
        "onnxruntime-arm",
        "openvino",
        "tensorrt",
        "tensorrt-rtx",
    )


def test_an_alternative_scheme_is_for_targets_that_have_it():
    loaded = load_pack("tensorrt")
    float8 = loaded.with_scheme("fp8", Target(compute_capability="8.9"))
    assert float8.manifest.scheme.is_float8
    assert float8.rules == loaded.rules
    assert float8.fingerprint != loaded.fingerprint
    needs = r"scheme 'fp8' needs compute capability >=8\.9 \(the target has 8\.0\); choose"
    with pytest.raises(InputError, match=needs):
        loaded.with_scheme("fp8", Target(compute_capability="8.0"))
    with pytest.raises(InputError, match="pack 'tensorrt': unknown scheme 'fp4'; use one of: fp8"):
        loaded.with_scheme("fp4")
    with pytest.raises(InputError, match="pack 'onnxruntime' has no scheme 'fp8', only its own"):
        load_pack("onnxruntime").with_scheme("fp8")
