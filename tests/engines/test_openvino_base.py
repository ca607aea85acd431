"""``base`` auto on OpenVINO: each model says what it is computed in, and the search decides."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.errors import RunError
from placer.model import load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.optimizer.setup.candidates import Candidates
from placer.qdq import Inserter
from placer.qdq.base_property import BASE_PROPERTY, name_base
from placer.quantization import EMPTY
from placer.quantization.placement_file import read_placement
from placer.results.folder import OutputFolder
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from tests.conftest import DIGITS, two_convs

pytest.importorskip("openvino", reason="OpenVINO is not installed")
import openvino

from placer.engines.openvino.engine import OpenVinoEngine, create
from placer.engines.openvino.export import save_as_openvino

Save = Callable[..., Path]
CHAIN = two_convs(channels=16, size=16, weight=1)
HAS_BFLOAT16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="this CPU has no bfloat16")


@needs_bfloat16
def test_a_model_is_computed_in_the_type_that_it_names(save: Save, tmp_path: Path):
    proto = onnx.load(save(CHAIN))
    engine = OpenVinoEngine(base="auto")
    (value,) = proto.graph.input
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    inputs = {value.name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    found = {None: engine.compile(proto, tmp_path).run(inputs)}
    for base in ("bfloat16", "float"):
        name_base(proto, base)
        found[base] = engine.compile(proto, tmp_path).run(inputs)
        fixed = OpenVinoEngine(base=base).compile(proto, tmp_path).run(inputs)
        onnx.save(proto, tmp_path / "named.onnx")
        save_as_openvino(tmp_path / "named.onnx", tmp_path / "named.xml")
        saved = engine.load(tmp_path / "named.xml").run(inputs)
        for name in fixed:
            np.testing.assert_array_equal(found[base][name], fixed[name])
            np.testing.assert_array_equal(saved[name], fixed[name])
    (name,) = fixed
    np.testing.assert_array_equal(found[None][name], found["float"][name])
    assert not np.array_equal(found["bfloat16"][name], found["float"][name])
    name_base(proto, "float16")
    with pytest.raises(RunError, match="is for base float16, which OpenVINO does not compute in"):
        engine.compile(proto, tmp_path)


@pytest.mark.skipif(HAS_BFLOAT16, reason="this CPU has bfloat16")
def test_a_cpu_without_bfloat16_computes_what_names_float_and_refuses_the_rest(
    save: Save, tmp_path: Path
):
    proto = onnx.load(save(CHAIN))
    engine = create(base="auto")
    name_base(proto, "float")
    engine.compile(proto, tmp_path)
    name_base(proto, "bfloat16")
    with pytest.raises(RunError, match="for base bfloat16, which this CPU does not compute in"):
        engine.compile(proto, tmp_path)
    create(base="float").compile(proto, tmp_path)


def test_candidates_of_an_earlier_result_do_not_keep_its_type(save: Save):
    path = save(CHAIN)
    earlier = onnx.load(path)
    name_base(earlier, "bfloat16")
    onnx.save(earlier, path)
    model = load_model(path, {})
    inserter = Inserter(model, load_pack("openvino").manifest.scheme)
    candidates = Candidates(model, OpenVinoEngine(), inserter, {})

    def named(base: str | None) -> str | None:
        properties = candidates.build(EMPTY.computed_in(base)).metadata_props
        return next((e.value for e in properties if e.key == BASE_PROPERTY), None)

    assert named(None) is None  # The model's own type.
    assert named("bfloat16") == "bfloat16"


@pytest.mark.slow
@needs_bfloat16
def test_the_result_says_the_type_that_it_was_judged_in_and_a_resumed_run_keeps_both(
    tmp_path: Path,
):
    folder = OutputFolder(tmp_path / "out")

    def run(budget: int) -> Result:
        request = Request(
            DIGITS / "digits.onnx",
            output=folder.path,
            gates=("sqnr>=20",),
            engine="openvino",
            base="auto",
            preset="quick",
            budget=budget,
            cache_dir=None,
        )
        return optimize(request, QuietObserver())

    first, result = run(7), run(8)
    assert {trial.base for trial in first.trials} == {"float", "bfloat16"}
    assert [t.placement for t in result.trials[:7]] == [t.placement for t in first.trials]
    assert "--base auto" in result.command
    assert result.best is not None
    base = result.best.base
    properties = {e.key: e.value for e in onnx.load(folder.model).metadata_props}
    assert properties[BASE_PROPERTY] == base
    assert read_placement(folder.placement).base == base
    judged: dict[int | None, tuple[str, str | None]] = {
        trial.number: (trial.placement, trial.base) for trial in result.trials
    }
    float_model = EMPTY.computed_in(None if base == "float" else base)
    judged[None] = (float_model.id, base)  # It is no trial.
    assert judged[result.best.trial] == (result.best.placement, base)
