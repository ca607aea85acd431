"""What users and plug-ins import: every name, and each job of the command line in one call."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import placer
from placer.plan.json_format import plan_json
from tests.conftest import DIGITS, two_convs
from tests.few_digits import CALIBRATION

pytestmark = pytest.mark.usefixtures("here")

MODEL = DIGITS / "digits.onnx"
DATA = DIGITS / "calibration.npz"
# What plug-ins use, see docs/engine-plugins.md and examples/.
PLUGINS = {
    "placer.engines.base": ("Compiled", "Engine", "Tensors"),
    "placer.engines.registry": ("EngineFactory", "EngineOptions"),
    "placer.engines.rounds": ("time_calls",),
    "placer.engines.isolation": ("EngineSpec", "IsolatedEngine", "Limits"),
    "placer.engines.onnxruntime": ("OnnxRuntimeEngine", "OnnxRuntimeModel"),
    "placer.errors": ("GateError", "InputError", "PlacerError", "RunError"),
    "placer.graph": ("Edge", "Graph", "Node", "index_graph"),
    "placer.model": ("Model", "load_model", "save_model"),
    "placer.plan": ("Kind", "Layer", "Plan", "Port"),
    "placer.qdq": ("Inserter",),
    "placer.quantization": ("Placement", "Range", "Scheme"),
}


def test_type_checkers_see_every_name():
    nodes = ast.walk(ast.parse(Path(placer.__file__).read_text(encoding="utf-8")))
    imported = {
        name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert set(placer.__all__) <= imported


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with the pairs that the pack for TensorRT puts by default."""
    folder = tmp_path_factory.mktemp("quantized")
    placement = folder / "placement.yaml"
    placer.explain(MODEL).write_improved(placement)
    found = placer.apply_placement(
        placement, MODEL, data=CALIBRATION, calibration="minmax", output=folder / "out", cache=False
    )
    return found.folder / "optimized.onnx"


def test_every_public_name_is_there():
    for name in placer.__all__:
        assert getattr(placer, name) is not None, name


def test_no_public_name_is_that_of_a_package():
    packages = {found.name for found in pkgutil.iter_modules(placer.__path__)}
    packages |= {"rules", "search", "configs"}
    assert not packages & set(placer.__all__)


@pytest.mark.parametrize("module", PLUGINS)
def test_every_name_that_plug_ins_use_is_there(module: str):
    found = importlib.import_module(module)
    assert [name for name in PLUGINS[module] if not hasattr(found, name)] == []


def test_explain_predicts_a_plan_and_writes_it():
    found = placer.explain(MODEL, gpu="l4", base="float")
    assert found.source == "the pack's default placement"
    assert found.to_json()["plan"] == plan_json(found.explanation.plan)
    found.write_plan("predicted.json")
    diff = placer.diff_plans("predicted.json", "predicted.json")
    assert diff.agrees
    assert diff.to_json()["agrees"]


def test_apply_placement_writes_the_quantized_model(quantized: Path):
    operators = [node.op_type for node in onnx.load(quantized).graph.node]
    assert "QuantizeLinear" in operators
    said = json.loads((quantized.parent / "apply.json").read_text())
    assert said["lost"] == []


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"ranges": "other"}, "unknown ranges 'other'; use one of: kept, calibrated"),
        ({"ranges": "calibrated"}, "need data"),
        ({"base": "float8"}, "unknown base 'float8'"),
        ({"io_type": "keeps"}, "did you mean 'keep'?"),
    ],
)
def test_apply_placement_refuses(wrong: dict[str, str], expected: str, here: Path):
    placer.explain(MODEL).write_improved("placement.yaml")
    with pytest.raises(placer.InputError) as error:
        placer.apply_placement("placement.yaml", MODEL, **wrong)  # type: ignore[arg-type]
    assert expected in str(error.value)
    assert [path.name for path in here.iterdir()] == ["placement.yaml"]


def test_import_model_finds_the_float_model_behind(quantized: Path):
    found = placer.import_model(quantized, "float.onnx")
    operators = [node.op_type for node in onnx.load(found.model).graph.node]
    assert "QuantizeLinear" not in operators
    assert found.placement_file.is_file()
    assert len(found.to_json()["scales"]) == len(found.imported.activations) > 0
    with pytest.raises(placer.InputError, match="is not quantized"):
        placer.import_model(MODEL, "again.onnx")


def test_an_error_may_be_raised_without_a_text():
    assert (str(placer.RunError()), placer.RunError.exit_code) == ("", 1)


def test_check_looks_at_the_pairs(quantized: Path):
    found = placer.check(quantized, static=True)
    assert found.refusal is None
    assert "TensorRT 8 takes scales of a ConvTranspose along axis 0" in found.older
    nothing = {"placed_for": None, "not_imported": None, "pairs": []}
    assert found.to_json() == {**nothing, "older": found.older, "tables": []}


def test_bench_measures_in_turn():
    found = placer.bench([MODEL, MODEL], engine="onnxruntime", rounds=3)
    assert [one.model for one in found.models] == [str(MODEL)] * 2
    assert found.models[0].ratio == 1.0
    assert set(found.to_json()) == {
        *("engine", "version", "device", "clock", "estimated", "notes", "models")
    }
    with pytest.raises(placer.InputError, match="`rounds` is 2; give 3 or more"):
        placer.bench([MODEL], rounds=2)


def test_extract_region_cuts_a_model():
    region = placer.extract_region(MODEL, Path("region.onnx"), outputs=["logits"])
    assert region.nodes == len(onnx.load("region.onnx").graph.node)


def test_fix_inputs_writes_the_model_for_one_shape():
    fixed = placer.fix_inputs(MODEL, "fixed.onnx", {}, {"image": (2, 1, 32, 32)})
    assert fixed.nodes == len(onnx.load("fixed.onnx").graph.node)


def test_export_qat_tells_what_is_quantized(quantized: Path):
    imported = placer.import_model(quantized, "float.onnx")
    found = placer.export_qat(imported.placement_file, imported.model)
    assert found.path == Path("float.qat.json")
    assert found.lost == ()
    assert len(found.to_json()["activations"]) > 5


@pytest.mark.slow
def test_onboard_and_report(here: Path, save: Callable[..., Path]):
    options = "{engine: fusion-model, gpu: l4, preset: quick, budget: 2, gates: sqnr>=1}"
    model = save(two_convs(channels=4, size=8), "two.onnx")
    (here / "models.yaml").write_text(f"defaults: {options}\nmodels: [{{model: {model}}}]\n")
    planned = placer.plan_onboarding("models.yaml")
    assert [one.job.name for one in planned.planned] == ["two"]
    lines: list[str] = []
    summary = placer.onboard("models.yaml", tell=lines.append)
    assert summary.exit_code == 0
    assert "results are in" in lines[-1]
    assert placer.write_report(here / "models.placer").is_file()
    with pytest.raises(placer.InputError, match="`jobs` is 0"):
        placer.onboard("models.yaml", jobs=0)


ESTIMATED = {"engine": "fusion-model", "gpu": "l4", "preset": "quick", "calibration": "minmax"}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, placer.Result]:
    """The URL of a storage in which a study called digits has ended, and its result."""
    folder = tmp_path_factory.mktemp("studied")
    result = placer.optimize(
        MODEL,
        data={"image": np.load(DATA)["image"][:8]},
        gates="sqnr>=5",
        budget=3,
        output=folder / "out",
        storage=f"sqlite:///{folder / 'studies.db'}",
        study="digits",
        cache=False,
        **ESTIMATED,  # type: ignore[arg-type]
    )
    return f"sqlite:///{folder / 'studies.db'}", result


def test_work_joins_a_study(studied: tuple[str, placer.Result]):
    storage, _ = studied
    done = placer.work("digits", storage, cache=False)
    assert done.own == ()
    assert done.trials == 3
    with pytest.raises(placer.InputError, match="did you mean 'digits'"):
        placer.work("digit", storage)


def test_what_a_notebook_shows_of_a_result_fits_on_a_screen(studied: tuple[str, placer.Result]):
    _, result = studied
    shown = [
        result,
        placer.explain(MODEL, gpu="l4"),
        placer.apply_placement(result.placement_file, MODEL, output="applied"),
        placer.import_model(Path(__file__).parent / "artefacts" / "modelopt_onnx.onnx", "f.onnx"),
    ]
    for one in shown:
        assert len(repr(one)) < 500, type(one)
    assert repr(result).startswith("Result(model=")


def test_one_path_or_name_may_be_given_by_itself():
    (one,) = placer.evaluate(MODEL, MODEL, data=DATA, engine="onnxruntime").models
    assert one.model == str(MODEL)
    (timed,) = placer.bench(MODEL, engine="onnxruntime", rounds=5).models
    assert timed.model == str(MODEL)
    region = placer.extract_region(MODEL, "part.onnx", outputs="logits")
    assert region.outputs == ("logits",)


@pytest.mark.slow
def test_work_waits_for_a_study_that_has_not_begun():
    data = {"image": np.load(DATA)["image"][:8]}
    run = {**ESTIMATED, "cache": False, "study": "digits"}
    placer.optimize(MODEL, data=data, budget=2, storage="sqlite:///s.db", **run)  # type: ignore[arg-type]
    Path("s.db").rename("later.db")
    begins = threading.Timer(1.0, Path("later.db").rename, ["s.db"])
    begins.start()
    done = placer.work("digits", "sqlite:///s.db", cache=False, wait=60)
    assert done.trials == 2
    with pytest.raises(placer.InputError, match=r"unknown study 'digit'.* after 1 s"):
        placer.work("digit", "sqlite:///s.db", wait=1)


def test_diagnose_lists_engines():
    assert "onnxruntime" in [engine.name for engine in placer.diagnose().engines]
