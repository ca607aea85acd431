"""docs/first-rule.md: what the reader is told to do works and prints what the page says."""

import doctest
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.model import load_model
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.conftest import Finished

Placer = Callable[..., Finished]

GUIDE = Path(__file__).parents[3] / "docs" / "first-rule.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(console: str) -> Iterator[tuple[list[str], str]]:
    """The commands of a console block with what each prints."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command.split(), printed


def run(placer: Placer, command: list[str], printed: str) -> None:
    program, *arguments = command
    if program == "rm":
        Path(*arguments).unlink()
        return
    assert program == "placer"
    finished = placer(*arguments)
    assert finished.code == 0, finished.err
    matches = doctest.OutputChecker().check_output(printed, finished.out, doctest.ELLIPSIS)
    assert matches, f"{command} printed {finished.out}"


@pytest.fixture
def reader(placer: Placer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do all that the guide says, in an empty folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for language, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(text, str(GUIDE), "exec"), {})
        elif language == "yaml":
            path = Path(text.partition("\n")[0].removeprefix("# "))
            path.write_text(text, encoding="utf-8")
        elif language == "console":
            for command, printed in commands(text):
                run(placer, command, printed)


@pytest.mark.usefixtures("reader")
def test_the_rule_of_the_guide_keeps_the_net_on_integers():
    def layers(name: str) -> list[str]:
        pack, model = load_pack(name), load_model(Path("net.onnx"))
        placement = place(find_sites(model.graph, pack.rules), {})
        tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
        calibration = calibrate(model, tensors, synthetic_dataset(model, 2, 0))
        ranges = calibration.ranges("minmax", pack.manifest.scheme)
        candidate = Inserter(model, pack.manifest.scheme).insert(placement, ranges)
        plan = OnnxRuntimeEngine().compile(candidate, model.base_dir).plan()
        return [layer.op for layer in plan.layers if layer.nodes]

    assert layers("onnxruntime") == ["QLinearConv", "Where", "QLinearConv"]
    assert layers("masking@0.1.0") == ["QLinearConv", "QLinearWhere", "QLinearConv"]
    assert Path("placer.lock").exists()
