"""No command writes over a file that no run of placer wrote, unless it is told to."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.checkup.run import FORMAT as CHECKUP
from placer.cli.onboard import markdown_of
from placer.common.own_files import is_own
from placer.model import load_model
from placer.prediction.times.fitted import FORMAT as FIT
from placer.report.page import render
from placer.results.onboarding import Summary
from placer.rules.packaging.files import PackFiles
from tests.conftest import Finished, with_random_weights

Placer = Callable[..., Finished]

FLOAT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] y) <float[8,8,3,3] w = {0.1}> {
  [conv] c = Conv<pads = [1,1,1,1]>(x, w)
  [act] y = Relu(c)
}
"""
QUANTIZED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] y)
<float[8,8,3,3] w = {0.1}, float s = {0.05}, int8 z = {0}, float t = {0.001}> {
  xq = QuantizeLinear(x, s, z)
  xd = DequantizeLinear(xq, s, z)
  wq = QuantizeLinear(w, t, z)
  wd = DequantizeLinear(wq, t, z)
  [conv] c = Conv<pads = [1,1,1,1]>(xd, wd)
  [act] y = Relu(c)
}
"""
OF_THE_USER = "of the user"


@pytest.fixture
def files(placer: Placer) -> None:
    """What the commands read, in the current folder."""
    onnx.save(with_random_weights(FLOAT), "net.onnx")
    onnx.save(with_random_weights(QUANTIZED), "quantized.onnx")
    np.save("x.npy", np.random.default_rng(0).random((4, 8, 8, 8), np.float32))
    Path("models.yaml").write_text("models: [net.onnx]\n")
    placer("rules", "new", "mine", "--engine", "onnxruntime")


# Each with the files that it writes, of which another one is there each time.
QUICK = [
    ("explain net.onnx --plan plan.json", "plan.json"),
    ("explain quantized.onnx --improved better.yaml", "better.yaml"),
    ("explain net.onnx --html page.html", "page.html"),
    ("import quantized.onnx", "quantized.float.onnx"),
    ("import quantized.onnx -o net2.onnx", "net2.placement.yaml"),
    ("extract net.onnx --around act --depth 0", "net.region.onnx"),
    ("extract net.onnx --around act --depth 0 --data x.npy -o part.onnx", "part.npz"),
    ("extract net.onnx --shape x=1x8x8x8", "net.fixed.onnx"),
    ("rules lock onnxruntime", "placer.lock"),
    ("rules pack mine", "mine-0.1.0.zip"),
]
# Those that take longer are only refused here.
LONG = [
    ("check net.onnx --plan plan.json", "plan.json"),
    ("export-qat placement.yaml net.onnx", "net.qat.json"),
    ("fit -o fit.json", "fit.json"),
    ("doctor --full --output checkup.json", "checkup.json"),
    ("sensitivity net.onnx --figure page.html", "page.html"),
    ("onboard models.yaml --markdown table.md", "table.md"),
    ("report one.placer -o page.html", "page.html"),
    ("report one.placer two.placer", "comparison.html"),
]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("command", "written"), QUICK + LONG)
def test_a_file_that_no_run_wrote_is_refused_before_anything_else(
    placer: Placer, command: str, written: str
):
    Path(written).write_text(OF_THE_USER)
    before = set(Path().rglob("*"))
    finished = placer(*command.split())
    assert finished.code == 2
    assert finished.err == (
        f"placer: error: {written} is there and no run of placer wrote it; give --replace to write "
        "over it, or choose another output\n"
    )
    assert Path(written).read_text() == OF_THE_USER
    assert set(Path().rglob("*")) == before


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("command", "written"), QUICK)
def test_the_same_command_runs_again_over_what_it_wrote(placer: Placer, command: str, written: str):
    Path(written).write_text(OF_THE_USER)
    assert placer(*command.split(), "--replace").code == 0
    assert is_own(Path(written))
    again = placer(*command.split())
    assert again.code == 0, again.err


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        ("import {}/quantized.onnx", ".float.onnx"),
        ("extract {}/quantized.onnx --around act --depth 0", ".region.onnx"),
    ],
)
def test_models_of_one_name_have_outputs_of_their_own(placer: Placer, command: str, suffix: str):
    for folder in ("a", "b"):
        Path(folder).mkdir()
        shutil.copy("quantized.onnx", folder)
    first = placer(*command.format("a").split())
    assert first.code == 0, first.err
    before = Path(f"quantized{suffix}").read_bytes()
    second = placer(*command.format("b").split())
    assert second.code == 0, second.err
    assert (
        f"quantized{suffix} is about a/quantized.onnx; this result is in quantized-" in second.out
    )
    assert Path(f"quantized{suffix}").read_bytes() == before
    (own,) = Path().glob(f"quantized-*{suffix}")
    assert placer(*command.format("b").split()).code == 0
    Path("a/quantized.onnx").unlink()
    placer(*command.format("b").split())  # No file is lost that a command would make again.
    assert own.exists()
    assert Path(f"quantized{suffix}").read_bytes() != before


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "command",
    ["import {} -o {}", "extract {} --around act --depth 0 -o {}"],
    ids=["import", "extract"],
)
def test_outputs_are_the_same_however_the_model_is_named(placer: Placer, command: str):
    """Caches and resumed studies know a model by its bytes."""
    for model, output in (
        ("quantized.onnx", "a.onnx"),
        (Path("quantized.onnx").resolve(), "b.onnx"),
    ):
        assert placer(*command.format(model, output).split()).code == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    assert str(Path().resolve()).encode() not in Path("a.onnx").read_bytes()
    model = load_model(Path("a.onnx"))
    assert "placer.source" not in {entry.key for entry in model.proto.metadata_props}


ESTIMATED = "--engine fusion-model --gpu a100"


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("before", "command", "written"),
    [
        (
            ["import quantized.onnx"],
            "export-qat quantized.float.placement.yaml quantized.float.onnx",
            "quantized.float.qat.json",
        ),
        ([], f"sensitivity net.onnx {ESTIMATED} --figure page.html", "page.html"),
        (
            [
                f"optimize net.onnx {ESTIMATED} --budget 2 --gate sqnr>=0 -o {name}.placer"
                for name in ("one", "two")
            ],
            "report one.placer two.placer",
            "comparison.html",
        ),
        (
            [f"optimize net.onnx {ESTIMATED} --budget 2 --gate sqnr>=0 -o one.placer"],
            "report one.placer -o page.html",
            "page.html",
        ),
    ],
)
def test_what_takes_longer_runs_again_over_what_it_wrote(
    placer: Placer, before: list[str], command: str, written: str
):
    for earlier in before:
        finished = placer(*earlier.split())
        assert finished.code == 0, finished.err
    for _ in range(2):
        finished = placer(*command.split())
        assert finished.code == 0, finished.err
        assert is_own(Path(written))


@pytest.mark.parametrize(
    "text",
    [
        "# My networks\n\nformat: placer-placement/1 begins a placement.\n",
        '{"about": {"format": "placer-result/1"}}',
        "The page's title is <title>net.onnx - placer</title>.\n",
        "**placer onboard** writes tables.\n",
    ],
)
def test_text_that_quotes_what_placer_writes_is_not_of_placer(tmp_path: Path, text: str):
    path = tmp_path / "README.md"
    path.write_text(text)
    assert not is_own(path)


@pytest.mark.parametrize("form", [FIT, CHECKUP])
def test_documents_say_that_they_are_of_placer(tmp_path: Path, form: str):
    path = tmp_path / "document.json"
    path.write_text(json.dumps({"format": form}, indent=1))
    assert is_own(path)
    path.write_text(json.dumps({"format": "other/1", "producer": "placer"}))
    assert not is_own(path)


def test_pages_say_that_they_are_of_placer(tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text(render("base.html.j2", title="net.onnx", figures={}))
    assert is_own(path)
    path.write_text("<title>net.onnx</title>")
    assert not is_own(path)


def test_tables_of_onboarding_say_that_they_are_of_placer(tmp_path: Path):
    path = tmp_path / "table.md"
    path.write_text(markdown_of(Summary.model_construct(models=())))
    assert is_own(path)


def test_an_empty_file_holds_nothing_to_lose(tmp_path: Path):
    path = tmp_path / "table.md"
    path.touch()
    assert is_own(path)


def test_a_pack_of_many_rules_is_of_placer(tmp_path: Path):
    files = {f"rule{number}.yaml": b"" for number in range(200)}
    path = tmp_path / "mine-0.1.0.zip"
    path.write_bytes(PackFiles(tmp_path, files).with_hash().archive())
    assert is_own(path)


def test_archives_of_others_are_not_of_placer(tmp_path: Path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.zeros(4))
    assert not is_own(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"placer"
    assert is_own(path)
