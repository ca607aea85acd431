"""A search that chooses between INT8 and FP8 site by site, and what is done with its result."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from placer.model import load_model
from placer.optimizer.setup.warm_start import warm_starts
from placer.qdq.extract import extract_placement
from placer.quantization import FLOAT8, Placement
from placer.quantization.placement_file import load_placement, placement_text
from placer.results.result import Result
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.search.space import build_space
from tests.conftest import Finished

Placer = Callable[..., Finished]

# INT8 is the faster one: what is FP8 is there for the gate.
GPU = """\
name: slow
compute_capability: "10.0"
sms: 1
boost_clock_mhz: 100000
memory_gb: 1
memory_bandwidth_gb_s: 0.5
l2_mb: 1
peak: {float: 0.01, float16: 0.02, bfloat16: 0.02, int8: 0.08, float8: 0.06}
sources:
  - fields: [sms, boost_clock_mhz, memory_gb, memory_bandwidth_gb_s, l2_mb, peak]
    source: made up for a test
"""
# One channel of what conv2 reads is far larger than the others, and its weights far smaller: with
# one scale INT8 rounds the others to nothing, which FP8 does not.
NETWORK = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,16,16,16] x) => (float[1,16,16,16] y) {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] b = Relu(a)
  [wide] c = Mul(b, gain)
  [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w2)
  [relu2] e = Relu(d)
  [conv3] y = Conv<pads = [1, 1, 1, 1]>(e, w3)
}
"""
GAIN = np.array([200.0, *[1.0] * 15], np.float32)
SCHEME = load_pack("tensorrt").with_scheme("int8-and-fp8").manifest.scheme
RUN = ("--engine", "fusion-model", "--gpu", "slow.yaml", "--preset", "quick", "--no-cache")


@pytest.fixture
def model(placer: Placer) -> Path:  # noqa: ARG001 - makes a folder to be in
    Path("slow.yaml").write_text(GPU)
    rng = np.random.default_rng(1)
    np.savez("data.npz", x=rng.uniform(-3, 3, (16, 16, 16, 16)).astype(np.float32))
    proto = onnx.parser.parse_model(NETWORK)
    weights = {f"w{i}": rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32) for i in (1, 2, 3)}
    weights["w2"] /= GAIN.reshape(1, 16, 1, 1)
    for name, values in {**weights, "gain": GAIN.reshape(1, 16, 1, 1)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(proto, "model.onnx")
    return Path("model.onnx")


def optimize(placer: Placer, model: Path, scheme: str, *flags: object) -> Result:
    data = ("--data", "data.npz", "--eval-data", "data.npz", "--calibration", "minmax")
    chosen = () if scheme == "int8" else ("--scheme", scheme)
    finished = placer("optimize", model, *RUN, *data, *chosen, *flags, "-o", scheme)
    assert finished.code == 0, finished.err
    return Result.model_validate_json(Path(scheme, "result.json").read_text())


def sites_of(placement: Placement) -> dict[tuple[str, int], str]:
    """Formats by node and input: a base precision gives tensors other names."""
    return {(edge.node, edge.input_index): own for edge, own in placement.formats.items()}


@pytest.mark.slow
def test_under_a_gate_both_formats_are_faster_than_either(placer: Placer, model: Path):
    found = {
        scheme: optimize(placer, model, scheme, "--gate", "sqnr>=26", "--budget", 16)
        for scheme in ("int8", "fp8", "int8-and-fp8")
    }
    speed = {scheme: result.best.speedup for scheme, result in found.items()}
    assert speed["int8-and-fp8"] > max(speed["int8"], speed["fp8"]) > 1
    assert [found[scheme].best.formats for scheme in ("int8", "fp8")] == [{}, {}]
    both = found["int8-and-fp8"]
    assert sum(both.best.formats.values()) == both.best.quantized_edges
    assert all(both.best.formats.values())
    assert f"default in {FLOAT8}" in {trial.kind for trial in both.trials}


@pytest.mark.slow
def test_a_placement_in_both_formats_goes_through_all_that_reads_it(placer: Placer, model: Path):
    loaded = load_model(model)
    sites = find_sites(loaded.graph, load_pack("tensorrt").rules, formats=SCHEME.formats)
    chosen = {s.name: f"{s.default} in {FLOAT8}" for s in sites if s.match.anchor.name == "conv2"}
    mixed = place(sites, chosen)
    assert set(mixed.formats.values()) == {FLOAT8}
    text = placement_text(
        mixed, {}, SCHEME, model=loaded.fingerprint, pack="tensorrt 0", calibrated=True
    )
    Path("start.yaml").write_text(text)
    flags = ("--warm-start", "start.yaml", "--gate", "sqnr>=1", "--budget", 1)
    result = optimize(placer, model, "int8-and-fp8", *flags)
    assert result.trials[0].placement == mixed.id
    assert result.best.formats == {"int8": 4, FLOAT8: 2}
    written = Path("int8-and-fp8/optimized.onnx")
    read = extract_placement(onnx.load(written), SCHEME).placement
    assert sites_of(read) == sites_of(mixed)
    placement = Path("int8-and-fp8/placement.yaml")
    assert load_placement(placement, loaded.graph) == mixed
    finished = placer("apply", placement, model, "-o", "applied")
    assert finished.code == 0, finished.err
    again = extract_placement(onnx.load("applied/optimized.onnx"), SCHEME).placement
    assert sites_of(again) == sites_of(mixed)
    told = placer("explain", model, "--placement", placement, "--gpu", "slow.yaml", "--json")
    decisions = json.loads(told.out)["decisions"]
    (layout,) = [d["layout"] for d in decisions if "conv2" in d["nodes"].values()]
    assert layout.endswith(f" in {FLOAT8}")
    report = Path("int8-and-fp8/report.html").read_text()
    assert f"2 in {FLOAT8}" in report
    qat = placer("export-qat", placement, model)
    assert (qat.code, "is for FP8" in qat.err) == (2, True)


def test_a_placement_in_fp8_alone_is_one_in_fp8_where_there_are_both(model: Path):
    loaded, alone = load_model(model), load_pack("tensorrt").with_scheme("fp8")
    sites = find_sites(loaded.graph, alone.rules, formats=SCHEME.formats)
    given, scheme = place(sites, {}), alone.manifest.scheme
    Path("fp8.yaml").write_text(
        placement_text(given, {}, scheme, model="m", pack="p 1", calibrated=True)
    )
    space = build_space(loaded.graph, sites)
    (start,) = warm_starts([Path("fp8.yaml")], loaded, space, SCHEME)
    assert space.placement(start.choices) == given.in_format(FLOAT8)
    (same,) = warm_starts([Path("fp8.yaml")], loaded, space, scheme)
    assert space.placement(same.choices) == given


@pytest.mark.slow
def test_what_was_found_in_fp8_alone_begins_a_search_in_both(placer: Placer, model: Path):
    gate = ("--gate", "sqnr>=20", "--budget")
    first = optimize(placer, model, "fp8", *gate, 3)
    for start in ("fp8", "fp8/placement.yaml"):
        second = optimize(placer, model, "int8-and-fp8", "--warm-start", start, *gate, 1)
        assert second.best.formats == {"int8": 0, FLOAT8: first.best.quantized_edges}
        shutil.rmtree("int8-and-fp8")
    quantized = optimize(placer, Path("fp8/optimized.onnx"), "int8-and-fp8", *gate, 1)
    assert quantized.trials[0].kind == "as imported"
    assert quantized.best.formats["int8"] == 0
    told = placer("explain", model, "--placement", "fp8/placement.yaml", "--gpu", "slow.yaml")
    assert f"int8 in {FLOAT8}" in told.out
    flags = ("--warm-start", "int8-and-fp8", "--gate", "sqnr>=0.1", "--budget", 1)
    back = optimize(placer, model, "int8", *flags)
    assert back.trials[0].kind == "warm start int8-and-fp8"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "gpu"), [("onnxruntime", ()), ("fusion-model", ("--gpu", "t4"))]
)
def test_who_has_one_format_refuses_two(
    placer: Placer, model: Path, engine: str, gpu: tuple[str, ...]
):
    finished = placer("optimize", model, "--engine", engine, *gpu, "--scheme", "int8-and-fp8")
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert "int8-and-fp8" in finished.err
