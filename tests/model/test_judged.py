"""Models that choose rows in the middle, judged with the float model's choices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.edit import standard_opset
from placer.model import Model, load_model
from placer.model.judged import judged_by
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.qdq.opset import with_opset
from placer.quantization import EMPTY, Placement, Range
from placer.rules.packaging.load import load_pack
from tests.conftest import with_random_weights

# The rows of which a score is among the largest, or above a threshold, and a layer behind.
NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[64,16] x) => (float[OUT] y)
<float[16,16] w = {0.1}, float[16,1] s = {0.1}, float[16,8] u = {0.1}, int64[1] k = {7},
 int64[1] flat = {-1}, float zero = {0}, int64[1] last = {1}> {
  [layer] a = MatMul(x, w) [relu] rows = Relu(a)
  [score] b = MatMul(rows, s) [flat] scores = Reshape(b, flat)
  CHOICE
  [second] y = MatMul(chosen, u)
}
"""
CHOICES = {
    "indices": "[top] best, which = TopK(scores, k) [take] chosen = Gather(rows, which)",
    "values": """[top] best, which = TopK(scores, k) [take] found = Gather(rows, which)
                 [column] c = Unsqueeze(best, last) [weigh] chosen = Mul(found, c)""",
    "condition": """[over] over = Greater(scores, zero)
                    [take] chosen = Compress<axis = 0>(rows, over)""",
    "places": """[over] over = Greater(scores, zero) [where] i = NonZero(over)
                 [index] j = Reshape(i, flat) [take] chosen = Gather(rows, j)""",
}
X = np.random.default_rng(1).standard_normal((64, 16)).astype(np.float32)


def model_of(choice: str, folder: Path) -> Model:
    out = "7,8" if "k)" in CHOICES[choice] else "n,8"
    text = NET.replace("OUT", out).replace("CHOICE", CHOICES[choice])
    onnx.save(with_random_weights(text), folder / "net.onnx")
    return load_model(folder / "net.onnx")


def changed(model: Model) -> Model:
    """``model`` with a first layer that is off enough to choose other rows."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    (w,) = (t for t in proto.graph.initializer if t.name == "w")
    noise = np.random.default_rng(2).standard_normal((16, 16)) * 0.1
    w.CopyFrom(numpy_helper.from_array((model.array("w") + noise).astype(np.float32), "w"))
    graph = replace(model.graph, initializers={**model.graph.initializers, "w": w})
    return replace(model, proto=proto, graph=graph)


def outputs(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return dict(OnnxRuntimeModel(proto, Path(), 1).run({"x": X}))


def expected(choice: str, float_model: Model, candidate: Model) -> np.ndarray:
    """What the layers of ``candidate`` make of the rows that ``float_model`` chooses."""

    def rows_and_scores(model: Model) -> tuple[np.ndarray, np.ndarray]:
        rows = np.maximum(X @ model.array("w"), 0)
        return rows, (rows @ model.array("s"))[:, 0]

    (_, told), (rows, scores) = map(rows_and_scores, (float_model, candidate))
    is_top = choice in ("indices", "values")
    chosen = np.argsort(-told)[:7] if is_top else np.flatnonzero(told > 0)
    weights = scores[chosen, None] if choice == "values" else 1
    return (rows[chosen] * weights) @ candidate.array("u")


@pytest.mark.parametrize("choice", CHOICES)
def test_the_float_model_chooses_and_the_candidate_computes(choice: str, tmp_path: Path):
    model = model_of(choice, tmp_path)
    judged, other = judged_by(model), changed(model)
    own, twin = outputs(other.proto), outputs(judged.of(other).proto)
    rows = expected(choice, model, other)
    np.testing.assert_allclose(twin["y/rows_of_float"], rows, rtol=1e-4, atol=1e-5)
    assert own["y"].shape != rows.shape or not np.allclose(own["y"], rows, rtol=1e-2)
    np.testing.assert_allclose(
        outputs(judged.model.proto)["y/rows_of_float"], outputs(model.proto)["y"], rtol=1e-5
    )


def placed(model: Model) -> tuple[Placement, dict[str, Range]]:
    edges = [model.graph.edge_at(model.graph.by_name["layer"], index) for index in (0, 1)]
    return Placement.of_groups([edge] for edge in edges), {"x": Range(-4.0, 4.0)}


@pytest.mark.parametrize("choice", CHOICES)
def test_candidates_files_and_their_twins_agree(choice: str, tmp_path: Path):
    model, scheme = model_of(choice, tmp_path), load_pack("onnxruntime").manifest.scheme
    judged = judged_by(model)
    placement, ranges = placed(model)
    twin = Inserter(judged.of(model), scheme).insert(placement, ranges)
    written = Inserter(model, scheme).insert(placement, ranges)
    assert judged.fits(written)
    judged.add_to(written)
    found, wanted = outputs(written), outputs(twin)
    assert found.keys() >= {*judged.graph.outputs} == wanted.keys() - {"y"}
    for name in judged.graph.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("choice", CHOICES)
def test_rows_are_chosen_in_float32_whatever_the_base(choice: str, tmp_path: Path):
    model, scheme = model_of(choice, tmp_path), load_pack("tensorrt").manifest.scheme
    judged, inserter = judged_by(model), Inserter(model, scheme)
    reference = outputs(judged.model.proto)["y/rows_of_float"]
    for io in ("keep", "convert"):
        written = MixedPrecision.of(inserter, "float16", io, {}, ()).insert(EMPTY)
        judged.add_to(written, with_opset(judged.model, standard_opset(written)))
        inputs = {"x": X if io == "keep" else X.astype(np.float16)}
        found = HalfPrecisionModel(written, tmp_path, 1).run(inputs)["y/rows_of_float"]
        np.testing.assert_allclose(found, reference, rtol=0.02, atol=0.02)
    twin = MixedPrecision.of(Inserter(judged.of(model), scheme), "float16", "keep", {}, ())
    kept = {n.name: n for n in twin.model.graph.nodes if n.name.startswith("copy in float: ")}
    assert kept
    assert all(
        twin.model.graph.type_of(tensor).dtype != onnx.TensorProto.FLOAT16
        for node in kept.values()
        for tensor in node.outputs
    )
