"""Memory layouts as ONNX Runtime has them on a CPU: what is moved, and which pools run how."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.ort_session import create_session
from placer.model import Model, load_model
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.memory_layouts import BLOCKED, LAST, ROW_MAJOR, lay_out
from placer.prediction.layers.prediction import Prediction
from placer.prediction.select import make_predictor
from placer.prediction.times.devices import make_estimator
from placer.prediction.times.plan_parts import plan_parts
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET
from tests.prediction.test_fitted import cost, fit_of
from tests.prediction.test_motion import HEAD

Save = Callable[..., Path]
PACK = load_pack("onnxruntime")
OWN_KERNELS = ("MaxPool", "NhwcMaxPool", "Upsample")
MOVES = ("ReorderInput", "ReorderOutput", "Transpose")
WEIGHTS = (
    "<float[32,32,3,3] w = {0.1}, float[32,32,3,3] v = {0.2}, float[32] b = {0.1}, "
    "float[4] twice = {1, 1, 2, 2}>"
)
CONV = "Conv<pads = [1, 1, 1, 1]>"
POOL = "MaxPool<kernel_shape = [2, 2], strides = [2, 2]>"
SILU = f"c = {CONV}(x, w, b) s = Sigmoid(c) m = Mul(c, s) y = {CONV}(m, v, b)"


def model_of(save: Save, body: str) -> Model:
    return load_model(
        save(f"{HEAD} g (float[1,32,16,16] x) => (float[N,C,H,W] y) {WEIGHTS} {{ {body} }}")
    )


def placement_of(model: Model, quantized: str) -> Placement:
    """Pairs wherever the tensors ``quantized`` are read; those joined by ``=`` have one scale."""
    groups = [tuple(group.split("=")) for group in quantized.split()]
    edges = [edge for group in groups for name in group for edge in model.graph.edges_of(name)]
    return Placement.of(edges, [group for group in groups if len(group) > 1])


def built(model: Model, placement: Placement, folder: Path) -> Counter[str]:
    """What moves tensors in the graph that ONNX Runtime runs, and its pools."""
    scheme = PACK.manifest.scheme
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    path = folder / "optimized.onnx"
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    create_session(
        candidate.SerializeToString(), folder, threads=1, level=level, optimized_path=path
    )
    ops = Counter(node.op_type for node in onnx.load(path).graph.node)
    return Counter({op: ops[op] for op in (*MOVES, *OWN_KERNELS) if ops[op]})


def prediction_of(model: Model, placement: Placement, pack: Pack = PACK) -> Prediction:
    return make_predictor(model.graph, pack, ANY_TARGET, "float").predict(placement)


def layers_of(model: Model, placement: Placement) -> tuple[PredictedLayer, ...]:
    return prediction_of(model, placement).layers


def predicted(model: Model, placement: Placement) -> Counter[str]:
    """The same by prediction."""
    layers, found = layers_of(model, placement), Counter[str]()
    for layer, laid in zip(layers, lay_out(layers, model.graph), strict=True):
        there: dict[str, str] = {}
        for move in laid.moves:
            integer = move.dtype == "uint8"
            there[move.tensor] = "ReorderInput" if move.to == BLOCKED else "ReorderOutput"
            found["Transpose" if integer or move.to == LAST else there[move.tensor]] += 1
        if layer.layer.op == "MaxPool":
            integer = layer.layer.input_types[0] == "uint8"
            found["NhwcMaxPool" if integer and laid.layout == LAST else "MaxPool"] += 1
        if layer.layer.op == "Resize" and laid.layout == BLOCKED:
            found["Upsample"] += 1
    return found


@pytest.mark.parametrize(
    ("body", "quantized", "expected"),
    [
        pytest.param(
            f"c = {CONV}(x, w, b) p = {POOL}(c) y = {CONV}(p, v, b)",
            "x c=p w v y",
            {"Transpose": 2, "NhwcMaxPool": 1},
            id="a pool behind a quantized Conv has channels last",
        ),
        pytest.param(
            f"p = {POOL}(x) y = {CONV}(p, w, b)",
            "x=p w y",
            {"Transpose": 2, "MaxPool": 1},
            id="a pool of what was quantized row-major does not",
        ),
        pytest.param(
            f"c = {CONV}(x, w, b) p = {POOL}(c) y = {CONV}(p, v, b)",
            "c=p v y",
            {"ReorderInput": 1, "ReorderOutput": 1, "Transpose": 2, "MaxPool": 1},
            id="nor one behind a float Conv",
        ),
        pytest.param(
            f"c = {CONV}(x, w, b) d = {CONV}(c, v, b) y = Add(c, d)",
            "x c d w v y",
            {"Transpose": 2},
            id="a sum of two Convs is taken along to the output",
        ),
        pytest.param(
            SILU,
            "x c m w v y",
            {"Transpose": 2},
            id="floats that lead to another quantized Conv keep channels last",
        ),
        pytest.param(
            SILU,
            "x c w",
            {"Transpose": 2, "ReorderInput": 1, "ReorderOutput": 1},
            id="integers are moved, not floats, where they lead to none",
        ),
        pytest.param(
            f"c = {CONV}(x, w, b) y = Transpose<perm = [0, 2, 3, 1]>(c)",
            "x c w",
            {"Transpose": 1},
            id="a Transpose of the model that puts channels last is none",
        ),
        pytest.param(
            f'c = {CONV}(x, w, b) y = Resize<mode = "linear">(c, , twice)',
            "",
            {"ReorderInput": 1, "ReorderOutput": 1, "Upsample": 1},
            id="a Resize between pixels goes on in blocks",
        ),
        pytest.param(
            f'c = {CONV}(x, w, b) y = Resize<mode = "linear", '
            'coordinate_transformation_mode = "pytorch_half_pixel">(c, , twice)',
            "",
            {"ReorderInput": 1, "ReorderOutput": 1},
            id="not with PyTorch's rule for single pixels",
        ),
        pytest.param(
            f'c = {CONV}(x, w, b) y = Resize<mode = "nearest", nearest_mode = "floor", '
            'coordinate_transformation_mode = "asymmetric">(c, , twice)',
            "",
            {"ReorderInput": 1, "ReorderOutput": 1, "Upsample": 1},
            id="a Resize that repeats pixels goes on in blocks",
        ),
        pytest.param(
            f'c = {CONV}(x, w, b) y = Resize<mode = "nearest">(c, , twice)',
            "",
            {"ReorderInput": 1, "ReorderOutput": 1},
            id="not one that takes other pixels",
        ),
    ],
)
def test_onnx_runtime_moves_what_is_predicted(
    body: str, quantized: str, expected: dict[str, int], save: Save, tmp_path: Path
):
    model = model_of(save, body)
    placement = placement_of(model, quantized)
    assert built(model, placement, tmp_path) == expected
    assert predicted(model, placement) == expected


def test_kernels_that_differ_by_layout_are_kinds_of_their_own(save: Save):
    model = model_of(save, f"p = {POOL}(x) c = {CONV}(p, w, b) q = {POOL}(c) y = {CONV}(q, v, b)")
    prediction = prediction_of(model, placement_of(model, "x=p c=q w v y"))
    names = [part.key.name for own in plan_parts(prediction, model.graph, True) for part in own]
    assert names.count("row-major MaxPool") == names.count("MaxPool") == 1
    moved = [part for own in plan_parts(prediction, model.graph, True) for part in own][-1]
    assert (moved.key.name, moved.key.dtype) == ("moved by Transpose", "uint8")
    assert moved.read_mb == moved.written_mb == pytest.approx(32 * 4 * 4 / 1e6)


def test_no_kernel_on_arm_has_blocks_of_channels(save: Save):
    model = model_of(save, f"p = {POOL}(x) c = {CONV}(p, w, b) y = Relu(c)")
    for name, count in (("onnxruntime", 1), ("onnxruntime-arm", 0)):
        prediction = prediction_of(model, Placement.of([]), load_pack(name))
        parts = [part for own in plan_parts(prediction, model.graph, True) for part in own]
        assert len([part for part in parts if part.key.name == "moved by Reorder"]) == count


def test_without_moves_parts_are_those_of_each_layer(save: Save):
    model = model_of(save, f"p = {POOL}(x) y = {CONV}(p, w, b)")
    prediction = prediction_of(model, placement_of(model, "x=p w y"))
    names = [part.key.name for own in plan_parts(prediction, model.graph, False) for part in own]
    assert not [name for name in names if "moved" in name or "row-major" in name]
    assert PACK.follows_memory_layouts
    assert not load_pack("openvino").follows_memory_layouts


@pytest.mark.parametrize(("moves", "us"), [(True, 100 + 10 + 1), (False, 1 + 1)])
def test_estimates_count_what_is_moved_where_the_fit_did(moves: bool, us: int, save: Save):
    model = model_of(save, f"p = {POOL}(x) c = {CONV}(p, w, b) y = {POOL}(c)")
    costs = (
        cost("", ""),
        cost("MaxPool", "uint8", fixed_us=1),
        cost("row-major MaxPool", "uint8", fixed_us=100),
        cost("moved by Transpose", "uint8", fixed_us=5),
    )
    fit = fit_of(*costs)
    fit = fit.model_copy(update={"engine": fit.engine.model_copy(update={"moves": moves})})
    predictor = make_predictor(model.graph, PACK, ANY_TARGET, "float")
    prediction = predictor.predict(placement_of(model, "x=p c=y w"))
    assert make_estimator(model.graph, fit).total_us(prediction) == pytest.approx(us)


def test_what_only_passes_channels_on_is_row_major(save: Save):
    model = model_of(save, "y = Relu(x)")
    (laid,) = lay_out(layers_of(model, Placement.of([])), model.graph)
    assert (laid.layout, laid.moves) == (ROW_MAJOR, ())
