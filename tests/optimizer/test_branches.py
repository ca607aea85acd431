"""Branches of an If: matched, calibrated, quantized and judged as what is outside of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from onnx import GraphProto, ModelProto, numpy_helper
from onnxruntime.quantization import quantize_dynamic

import placer
from placer.calibration.body_runs import runs_of_bodies
from placer.calibration.collect import calibrate
from placer.calibration.dataset import load_dataset
from placer.engines.base import Compiled, Tensors
from placer.engines.execution_paths import ExecutionPath, ExecutionPaths
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.errors import RunError
from placer.graph.edit import every_node
from placer.graph.flat import body_of, flatten
from placer.graph.text import parse_model
from placer.model import Model, load_model, load_quantized, save_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.bodies_run import bodies_run
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.layer_cache import FILE_NAME
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.trials.layer_times import ProfiledLayers, layer_costs
from placer.optimizer.trials.proposer import make_landscapes
from placer.plan import Plan
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.quantization import EMPTY, Placement, Range
from placer.quantization.placement_file import placement_text
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.optimizer.judged_file import optimized_and_applied
from tests.reference_outputs import outputs

# One weight is shared by both branches.
TEXT = """
<ir_version: 8, opset_import: ["": 17]>
g (bool[1] go, float[32,256] x) => (float[32,256] y)
<float[256,256] shared = {0.5}, float[256,256] own = {0.5}> {
  [choice] y = If (go) <
    then_branch = a () => (float[32,256] r) {
      [first] m = MatMul(x, shared)
      [act] n = Relu(m)
      [second] r = MatMul(n, own)
    },
    else_branch = b () => (float[32,256] r) {
      [first] m = MatMul(x, shared)
      [act] r = Tanh(m)
    }
  >
}
"""
PACK = load_pack("onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and data that takes both branches or one."""
    path = tmp_path_factory.mktemp("branches")
    proto = parse_model(TEXT)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        values = rng.standard_normal((256, 256), np.float32) / 16
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    save_model(proto, path, path / "m.onnx")
    x = rng.standard_normal((12, 32, 256), np.float32)
    both = np.arange(12)[:, None] % 3 > 0
    np.savez(path / "both.npz", x=x, go=both)
    np.savez(path / "one.npz", x=x, go=np.ones_like(both))
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder / "m.onnx", bodies=True)


def default(model: Model) -> Placement:
    return place(find_sites(model.graph, PACK.rules), {})


def candidate(model: Model, folder: Path) -> ModelProto:
    placement = default(model)
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    data = load_dataset(folder / "both.npz", model)
    ranges = calibrate(model, tensors, data).ranges("minmax", PACK.manifest.scheme)
    return Inserter(model, PACK.manifest.scheme).insert(placement, ranges)


def bodies(proto: ModelProto) -> tuple[GraphProto, GraphProto]:
    choice = proto.graph.node[-1]
    return body_of(choice, "then_branch"), body_of(choice, "else_branch")


def test_the_float_model_keeps_its_if_and_its_outputs(folder: Path, model: Model):
    assert [node.op_type for node in model.proto.graph.node] == ["If"]
    assert [node.name for node in model.graph.by_op["MatMul"]] == ["first", "second", "first_1"]
    assert model.graph.type_of("y").shape == (32, 256)
    for go in (True, False):
        inputs = {"go": np.array([go]), "x": np.ones((32, 256), np.float32)}
        found = outputs(model.proto, **inputs)
        np.testing.assert_array_equal(found, outputs(onnx.load(folder / "m.onnx"), **inputs))


def test_ranges_are_those_of_the_samples_that_take_the_branch(folder: Path, model: Model):
    data = load_dataset(folder / "both.npz", model)
    found = calibrate(model, ["n", "m_1"], data).statistics
    expected = {name: [] for name in found}
    for sample, bodies in runs_of_bodies(model, data):
        (scope,) = bodies
        assert (scope[-1].attribute == "then_branch") == sample.inputs["go"].item()
        values = sample.inputs["x"] @ model.array("shared")
        taken, value = ("n", np.maximum(values, 0)) if sample.inputs["go"] else ("m_1", values)
        expected[taken].append((value.min(), value.max()))
    for name, statistics in found.items():
        low, high = np.array(expected[name]).T
        assert (statistics.low, statistics.high) == pytest.approx((low.min(), high.max()), rel=1e-5)


def test_a_branch_that_no_sample_takes_has_no_statistics(folder: Path, model: Model):
    data = load_dataset(folder / "one.npz", model)
    assert calibrate(model, ["n", "m_1"], data).statistics.keys() == {"n"}


def test_a_weight_that_both_branches_read_is_quantized_once(folder: Path, model: Model):
    proto = candidate(model, folder)
    onnx.checker.check_model(proto, full_check=True)
    quantized = [t.name for t in proto.graph.initializer if t.name.endswith("/quantized")]
    assert quantized == ["shared/quantized"]
    for body in bodies(proto):
        read = [n.input[0] for n in body.node if n.op_type == "DequantizeLinear"]
        assert "shared/quantized" in read
    assert [n.name for n in proto.graph.node] == ["x/QuantizeLinear", "choice"]


def test_the_placement_is_read_back_from_the_file(folder: Path, model: Model, tmp_path: Path):
    save_model(candidate(model, folder), folder, tmp_path / "q.onnx")
    proto = load_quantized(tmp_path / "q.onnx")
    flatten(proto.graph)
    assert extract_placement(proto).placement.edges == default(model).edges
    imported = load_model(tmp_path / "q.onnx", bodies=True)
    assert imported.source_quantization().placement.edges == default(model).edges
    assert [n.op for n in imported.graph.nodes] == [n.op for n in model.graph.nodes]


def test_an_engine_that_enters_no_branch_says_so_of_the_pairs_there(
    folder: Path, model: Model, tmp_path: Path
):
    save_model(candidate(model, folder), folder, tmp_path / "q.onnx")
    imported = load_model(tmp_path / "q.onnx").source_quantization()
    assert imported.notes == (
        "7 pairs dropped in bodies of If, Loop and Scan, which no rule of this engine enters",
    )


# The model returns what the If writes as it is and behind a pair: one tensor under two names.
TWICE = """
<ir_version: 8, opset_import: ["": 17]>
g (bool go, float[2,4] x) => (float[2,4] h, float[2,4] y) <float s = {0.5}, uint8 z = {9}> {
  h = If (go) <
    then_branch = a () => (float[2,4] r) {
      q = QuantizeLinear(x, s, z)
      d = DequantizeLinear(q, s, z)
      r = Tanh(d)
    },
    else_branch = b () => (float[2,4] r) { r = Neg(x) }
  >
  i = QuantizeLinear(h, s, z)
  y = DequantizeLinear(i, s, z)
}
"""


def test_a_pair_at_a_graph_output_is_taken_apart_beside_pairs_in_branches(tmp_path: Path):
    onnx.save(parse_model(TWICE), tmp_path / "q.onnx")
    imported = load_model(tmp_path / "q.onnx", bodies=True)
    assert [node.op for node in imported.graph.nodes] == ["Tanh", "Neg", "If", "Identity"]
    found = {edge.node for edge in imported.source_quantization().placement.edges}
    assert found == {"Tanh", ""}


def test_products_with_scales_of_run_time_stay_in_their_branches(folder: Path, tmp_path: Path):
    save_model(onnx.load(folder / "m.onnx"), folder, tmp_path / "m.onnx")
    quantize_dynamic(
        tmp_path / "m.onnx", tmp_path / "q.onnx", extra_options={"EnableSubgraph": True}
    )
    names = {node.name for node in every_node(onnx.load(tmp_path / "q.onnx").graph.node)}
    assert "second_quant" in names  # ONNX Runtime's names of nodes that it replaces.
    imported = load_model(tmp_path / "q.onnx", bodies=True)
    assert len(imported.graph.scopes) == 5
    given = {"go": np.array([True]), "x": np.ones((32, 256), np.float32)}
    expected = outputs(onnx.load(folder / "m.onnx"), **given)
    np.testing.assert_allclose(outputs(imported.proto, **given), expected, atol=0.2)


def test_onnxruntime_runs_integer_layers_in_branches(folder: Path, model: Model):
    data = load_dataset(folder / "both.npz", model)
    samples = {next(iter(bodies))[-1].attribute: s for s, bodies in runs_of_bodies(model, data)}
    inputs = ExecutionPaths([ExecutionPath(sample.inputs, 0.5) for sample in samples.values()])
    engine = OnnxRuntimeEngine()
    compiled = engine.compile(candidate(model, folder), folder)
    plan = compiled.plan(inputs)
    layers = {node: layer for layer in plan.layers for node in layer.nodes}
    products = [layers[name] for name in ("first", "second", "first_1")]
    assert [layer.op for layer in products] == [
        "QLinearMatMul",
        "MatMulIntegerToFloat",
        "QLinearMatMul",
    ]
    assert all(layer.time_us is not None for layer in products)
    assert layers["act"] is layers["first"]  # The Q behind the Relu clamps at zero.
    assert engine.measure([compiled], inputs, 3).shape == (3, 1)


class WrongInOneBranch(OnnxRuntimeModel):
    """ONNX Runtime with a kernel in the else branch that has gone wrong."""

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        return {name: inputs["go"] * value for name, value in super().run(inputs).items()}


class Verified(OnnxRuntimeEngine):
    """An engine whose outputs are compared with ONNX Runtime's."""

    verified = True


def test_outputs_of_the_rarer_branch_are_verified_too(folder: Path, model: Model):
    samples = [sample.inputs for sample in load_dataset(folder / "both.npz", model)][:2]
    assert [inputs["go"].item() for inputs in samples] == [False, True]
    inputs = ExecutionPaths([ExecutionPath(samples[0], 0.25), ExecutionPath(samples[1], 0.75)])
    candidates = Candidates(model, Verified(), Inserter(model, PACK.manifest.scheme), {})
    compiled = WrongInOneBranch(model.proto, model.base_dir, threads=1)
    candidates.verify(EMPTY, candidates.compile(EMPTY), inputs)
    with pytest.raises(RunError, match="invalid output: output 'y' is zero throughout"):
        candidates.verify(EMPTY, compiled, inputs)


def test_every_layer_has_a_time_whatever_branches_run(folder: Path, model: Model):
    inputs = next(iter(load_dataset(folder / "one.npz", model))).inputs
    compiled = OnnxRuntimeEngine().compile(candidate(model, folder), folder)
    times = {n: layer.time_us for layer in compiled.plan(inputs).layers for n in layer.nodes}
    assert None not in times.values()
    assert times["choice"] == times["first_1"] == 0
    assert times["first"] != 0


class Clockless(OnnxRuntimeEngine):
    """Takes one second for the then branch and three for the other."""

    def _measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        return np.full((rounds, len(models)), 1.0 if inputs["go"] else 3.0)


@pytest.mark.slow
def test_an_engine_in_a_worker_measures_all_paths(folder: Path, model: Model, tmp_path: Path):
    samples = [sample.inputs for sample in load_dataset(folder / "both.npz", model)][:2]
    inputs = ExecutionPaths([ExecutionPath(samples[0], 0.25), ExecutionPath(samples[1], 0.75)])
    with IsolatedEngine(EngineSpec(__name__, "Clockless"), Limits(), tmp_path) as engine:
        compiled = engine.compile(model.proto, model.base_dir)
        assert engine.measure([compiled], inputs, 2).tolist() == [[1.5], [1.5]]
        layers = {node: layer for layer in compiled.plan(inputs).layers for node in layer.nodes}
    assert all(layers[node.name].time_us is not None for node in model.graph.by_op["MatMul"])
    assert layers["first"].time_us and layers["first_1"].time_us


def test_a_run_measures_both_branches_by_how_often_they_are_taken(folder: Path):
    task = prepare(request(folder, "both.npz"), QuietObserver())
    assert {edge.node for edge in task.edges} == {"first", "second", "first_1", "act_1"}
    assert isinstance(task.inputs, ExecutionPaths)
    shares = [path.share for path in task.inputs.paths]
    assert sum(shares) == pytest.approx(1)
    assert {path.inputs["go"].item() for path in task.inputs.paths} == {True, False}
    assert not [text for text in task.warnings if "branch" in text or "bodies" in text]


def test_a_branch_that_no_sample_takes_stays_float(folder: Path):
    task = prepare(request(folder, "one.npz"), QuietObserver())
    assert {edge.node for edge in task.edges} == {"first", "second"}
    (told,) = [text for text in task.warnings if "branch" in text]
    assert told == (
        "2 of 6 nodes stay float in the else branch of If 'choice': calibration and "
        "evaluation data must both run them; give samples that do"
    )


def test_latency_leaves_out_rare_paths(tmp_path: Path):
    count = 5
    chain = " ".join(
        f"""x{i + 1} = If (go{i}) <
          then_branch = a{i} () => (float[2,4] r) {{ r = Relu(x{i}) }},
          else_branch = b{i} () => (float[2,4] r) {{ r = Neg(x{i}) }}
        >"""
        for i in range(count)
    )
    inputs = ", ".join(f"bool go{i}" for i in range(count))
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g ({inputs}, float[2,4] x0) => (float[2,4] x{count}) {{ {chain} }}"""
    onnx.save(parse_model(text), tmp_path / "m.onnx")
    # Ten samples differ in their execution paths; ten more take that of the last.
    numbers = np.append(np.arange(10), np.full(10, 9))
    switches = {f"go{i}": numbers >> i & 1 == 1 for i in range(count)}
    np.savez(tmp_path / "d.npz", x0=np.ones((20, 2, 4), np.float32), **switches)
    model = load_model(tmp_path / "m.onnx", bodies=True)
    data, told = load_dataset(tmp_path / "d.npz", model), []
    taken = bodies_run(model, data, data, told.append).inputs
    assert isinstance(taken, ExecutionPaths)
    assert [path.share for path in taken.paths] == [11 / 18, *[1 / 18] * 7]
    assert told[0] == (
        "latency is that of the 8 most frequent of 10 combinations of bodies that run, which 90% "
        "of the samples have"
    )


def test_times_weighted_by_branches_are_not_kept_for_other_runs(folder: Path, tmp_path: Path):
    asked = replace(request(folder, "both.npz"), cache_dir=tmp_path)
    task = prepare(asked, QuietObserver())
    assert layer_costs(task, "float") is None
    plain = replace(task.model, graph=replace(task.model.graph, scopes={}))
    kept = layer_costs(replace(task, model=plain), "float")
    assert kept is not None
    assert kept.path == tmp_path / FILE_NAME
    assert kept.engine.startswith(f"{task.engine.name} {task.engine.version}, ")


class WholeIf(OnnxRuntimeModel):
    """A model whose If is one layer in the plan, as OpenVINO's are."""

    def plan(self, inputs: Tensors | None = None) -> Plan:
        layers = [layer for layer in super().plan(inputs).layers if "choice" in layer.nodes]
        return Plan((replace(layers[0], time_us=90.0),), "")


def test_layers_in_an_if_that_is_profiled_as_one_do_not_count_as_free(folder: Path):
    task = prepare(request(folder, "both.npz"), QuietObserver())
    times = ProfiledLayers(task, make_landscapes(task), [])
    compiled = WholeIf(task.model.proto, task.model.base_dir, threads=1)
    assert not times.known(EMPTY)
    assert times.measure(EMPTY, compiled) == {}
    assert times.known(EMPTY)


# Once constants are folded and Identity nodes are gone, the branches hold no node.
RETURNED = """
<ir_version: 8, opset_import: ["": 17]>
g (bool go, float[2,4] x) => (float[2,4] y) {
  p = Relu(x)
  y = If (go) <
    then_branch = a () => (float[2,4] r) { r = Identity(p) },
    else_branch = b () => (float[2,4] r) {
      c = Constant<value_floats = [1.0, -2.0, 3.0, -4.0]>()
      shape = Constant<value_ints = [2, 4]>()
      r = Expand(c, shape)
    }
  >
}
"""


def test_branches_that_return_what_is_outside_of_them_keep_a_node(tmp_path: Path):
    onnx.save(parse_model(RETURNED), tmp_path / "m.onnx")
    found = load_model(tmp_path / "m.onnx", bodies=True)
    assert [node.op for node in found.graph.nodes] == ["Relu", "If"]
    for go in (True, False):
        given = {"go": np.array(go), "x": np.full((2, 4), 0.5, np.float32)}
        expected = outputs(onnx.load(tmp_path / "m.onnx"), **given)
        np.testing.assert_array_equal(outputs(found.proto, **given), expected)


def test_training_is_told_of_pairs_in_branches(folder: Path, model: Model, tmp_path: Path):
    placement, scheme = default(model), PACK.manifest.scheme
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    ranges = dict.fromkeys(tensors, Range(-4.0, 4.0))
    text = placement_text(
        placement,
        ranges,
        scheme,
        model=model.fingerprint,
        pack=PACK.name_and_version,
        calibrated=True,
        graph=model.graph,
    )
    (tmp_path / "placement.yaml").write_text(text)
    found = placer.export_qat(tmp_path / "placement.yaml", folder / "m.onnx", tmp_path / "q.json")
    assert not found.lost
    readers = {one.tensor: {r.node for r in one.readers} for one in found.tensors}
    assert len(readers) == len(found.tensors)
    assert readers["shared"] == readers["x"] == {"first", "first_1"}


def test_explain_says_that_nodes_in_bodies_count_once(folder: Path, model: Model, tmp_path: Path):
    save_model(candidate(model, folder), folder, tmp_path / "q.onnx")
    for path in (folder / "m.onnx", tmp_path / "q.onnx"):
        assert placer.explain(path, pack="onnxruntime").in_bodies == (
            "5 of 6 nodes are in the bodies of 'choice'; each is shown once and counts once in "
            "every sum of times, however often it runs"
        )
    assert not placer.explain(folder / "m.onnx", pack="tensorrt").in_bodies


def test_recovery_leaves_branches_alone(folder: Path):
    asked = replace(request(folder, "both.npz"), recover=("bias-correction",))
    task = prepare(asked, QuietObserver())
    assert task.request.recover == ()
    told = "nothing is recovered: recovery does not enter the bodies of If, Loop and Scan"
    assert told in task.warnings


@pytest.mark.usefixtures("faster_by_pairs")
@pytest.mark.slow
def test_the_file_is_the_one_that_was_judged_and_its_placement_makes_it_again(
    folder: Path, tmp_path: Path
):
    model = folder / "m.onnx"
    proto = optimized_and_applied(model, folder / "both.npz", "onnxruntime", tmp_path)
    assert all("QuantizeLinear" in {n.op_type for n in body.node} for body in bodies(proto))
    assert not placer.explain(tmp_path / "out/optimized.onnx", pack="onnxruntime").inside


def request(folder: Path, data: str) -> Request:
    return Request(
        model=folder / "m.onnx",
        data=str(folder / data),
        engine="onnxruntime",
        output=folder / "task",
    )
