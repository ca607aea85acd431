"""Fit files: what they hold, what is refused, and estimates from them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import placer
from placer.common.processor import PROCESSORS, UNKNOWN_PROCESSOR, Processor
from placer.errors import InputError
from placer.graph.text import graph_of_text, parse_model
from placer.model import save_model
from placer.optimizer.options.project import keywords_of, read_project
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.costs import Cost, CostTable
from placer.prediction.times.devices import load_device, make_estimator
from placer.prediction.times.fitted import (
    BuildEvidence,
    Fit,
    FitErrors,
    FittedEngine,
    NetworkEvidence,
)
from placer.prediction.times.layer_parts import WEIGHTS, CostKey, Part, ancestors, layer_parts
from placer.prediction.times.plan_parts import plan_parts
from placer.quantization import EMPTY, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET

# A 1x1 Conv of 16 channels on 8 x 8: 32,768 operations; it reads 4096 bytes of the image and 1024
# of weights and writes 4096. The Relu writes 1024 elements.
MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {1}> {
  [conv] c = Conv(x, w)
  [relu] y = Relu(c)
}
"""
SILU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,6,6] out)
<float[16,16,1,1] w = {1}, float[16,16,3,3] v = {1}> {
  [conv1] c = Conv(x, w)
  [sigmoid1] s = Sigmoid(c)
  [mul1] y = Mul(c, s)
  [conv2] out = Conv(y, v)
}
"""
PACK = load_pack("openvino")


def cost(name: str, dtype: str = "float", **figures: float) -> Cost:
    names = ("fixed_us", "us_per_mop", "us_per_mb_read", "us_per_mb_written")
    return Cost(name=name, dtype=dtype, builds=3, **{n: figures.get(n, 0.0) for n in names})


def left_out(
    name: str, weights_mb: float, latency: float = 1.3, ratio: float = 1.1
) -> NetworkEvidence:
    """A network whose float build is estimated at ``latency`` times what it took."""
    kinds = (("weights", "", 1.0, 0.0, weights_mb, 0.0),)
    builds = (("float", 100.0, 100 * latency), ("default", 50.0, 50 * latency / ratio))
    return NetworkEvidence(
        name=name,
        noise=0.01,
        builds=tuple(
            BuildEvidence(
                label=label,
                measured_us=measured,
                estimated_us=estimated,
                ratio=measured / 100,
                ratio_interval=(0.9, 1.1),
                estimated_ratio=estimated / 100 / latency,
                kinds=kinds,
            )
            for label, measured, estimated in builds
        ),
    )


def fit_of(
    *costs: Cost, many_weights_mb: float | None = None, processor: Processor = UNKNOWN_PROCESSOR
) -> Fit:
    engine = FittedEngine(
        name="openvino",
        version="1.0",
        device="CPU",
        clock="CPU time",
        base="float",
        pack="openvino",
        pack_version=PACK.name_and_version,
        pack_fingerprint=PACK.fingerprint,
        processor=processor,
    )
    errors = FitErrors(
        networks=5,
        builds=10,
        pairs=5,
        latency=0.3,
        ratio=0.1,
        ratio_median=0.05,
        ratio_95=0.2,
        pairs_apart=5,
        ordered=1.0,
        training_ratio=0.02,
    )
    found = Fit(
        format="placer-fit/12",
        name="a CPU",
        engine=engine,
        versions={},
        system="Linux",
        noise=0.01,
        errors=errors,
        remarks=(),
        costs=costs,
        many_weights_mb=many_weights_mb,
        rules=(),
        networks=tuple(left_out(f"short-{number}", 0.002) for number in range(5)),
    )
    return found.signed()


FITTED = fit_of(
    cost("", "", us_per_mop=100),
    cost("conv 1x1", fixed_us=2, us_per_mop=1000, us_per_mb_read=100, us_per_mb_written=200),
    cost("fused Relu", us_per_mop=10),
)


@pytest.fixture
def fit_file(tmp_path: Path) -> Path:
    path = tmp_path / "fit.json"
    path.write_text(FITTED.to_text())
    return path


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    save_model(parse_model(MODEL), tmp_path, path)
    return path


def test_a_layer_has_a_part_for_its_main_node_and_one_for_each_node_fused_into_it():
    graph = graph_of_text(MODEL)
    (layer,) = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    conv, relu, rows, _, weights = layer_parts(layer, graph)
    assert conv == Part(CostKey("conv 1x1", "float"), 1, 0.032768, 0.004096, 0.004096)
    assert relu == Part(CostKey("fused Relu", "float"), 0, 0.001024, 0, 0)
    assert rows == Part(CostKey("rows of conv", "float"), 0, 64 / 1e6, 0, 0)
    assert weights == Part(WEIGHTS, 1, 0, 0.001024, 0)


@pytest.mark.parametrize(
    ("quantized", "kind", "times"),
    [
        ("", CostKey("fused Sigmoid", "float"), 0),
        ("x w", CostKey("fused Sigmoid", "integer"), 0),
        ("x w y", CostKey("fused Sigmoid in conv 1x1", "integer to integer"), 1),
    ],
)
def test_a_smooth_activation_between_integers_is_a_kind_of_its_own(
    quantized: str, kind: CostKey, times: float
):
    graph = graph_of_text(SILU)
    placement = Placement.of(edge for t in quantized.split() for edge in graph.edges_of(t))
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(placement).layers
    conv = next(layer for layer in layers if layer.nodes)
    assert layer_parts(conv, graph)[1] == Part(kind, times, 0.001024, 0, 0)


@pytest.mark.parametrize(
    ("node", "result", "elements"),
    [
        # 16 x 4 x 4 written, each the largest of 2 x 2.
        ("MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", "float[1,16,4,4]", 256 * 4),
        ("GlobalAveragePool(x)", "float[1,16,1,1]", 16 * 8 * 8),
        ('Resize<mode = "nearest">(x, none, s)', "float[1,16,16,16]", 4096),
        # Of each element that is written, two along either axis of the image are read.
        ('Resize<mode = "linear">(x, none, s)', "float[1,16,16,16]", 4096 * 4),
    ],
)
def test_what_a_node_combines_counts_for_each_element_that_it_writes(
    node: str, result: str, elements: int
):
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => ({result} y) <float[0] none = {{}}, float[4] s = {{1, 1, 2, 2}}> {{
      [one] y = {node}
    }}
    """)
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    (one,) = (layer for layer in layers if layer.nodes)
    assert layer_parts(one, graph)[0].mops == pytest.approx(elements / 1e6)


def test_a_recurrent_layer_multiplies_its_matrices_at_each_step():
    graph = graph_of_text("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[5,1,8] x) => (float[5,1,1,4] y) <float[1,12,8] w = {1}, float[1,12,4] r = {1}> {
      [gru] y = GRU<hidden_size = 4>(x, w, r)
    }
    """)
    (layer,) = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    gru, _ = layer_parts(layer, graph)
    assert gru.mops == pytest.approx(2 * 5 * (12 * 8 + 12 * 4) / 1e6)
    assert CostKey("matmul", "") in ancestors(gru.key)


CONV = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,6,8,8] x) => (float[2,{out},6,6] out) <float[{out},{channels},3,3] w = {{1}}> {{
  [conv] y = Conv<group = {group}>(x, w)
  [relu] out = Relu(y)
}}
"""


def _conv_parts(quantized: str, group: int = 1, outputs: int = 20) -> tuple[Part, ...]:
    graph = graph_of_text(CONV.format(channels=6 // group, group=group, out=outputs))
    placement = Placement.of(edge for t in quantized.split() for edge in graph.edges_of(t))
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(placement).layers
    return layer_parts(next(layer for layer in layers if layer.nodes), graph)


def test_a_convolution_computes_channels_in_sixteens_and_sums_integers_in_fours():
    pixels = 2 * 6 * 6
    assert _conv_parts("")[0].mops == pytest.approx(2 * pixels * 9 * 6 * 32 / 1e6)
    assert _conv_parts("x w")[0].mops == pytest.approx(2 * pixels * 9 * 8 * 32 / 1e6)


def test_a_grouped_convolution_computes_whole_vectors_in_each_group():
    """Of 3 channels and 10 outputs in each group as much as of 3, or 4 integers, and 16."""
    pixels = 2 * 6 * 6
    assert _conv_parts("", group=2)[0].mops == pytest.approx(2 * pixels * 9 * 2 * 3 * 16 / 1e6)
    assert _conv_parts("x w", group=2)[0].mops == pytest.approx(2 * pixels * 9 * 2 * 4 * 16 / 1e6)
    # Kernels for depthwise ones go through channels, which fill vectors.
    depthwise = _conv_parts("x w", group=6, outputs=6)
    assert depthwise[0].mops == pytest.approx(2 * pixels * 9 * 6 / 1e6)


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        ("0, 3, 1, 2", "Transpose to channels first"),
        ("0, 2, 3, 1", "Transpose"),
        ("0, 2, 1, 3", "Transpose"),
    ],
)
def test_a_transpose_back_to_convolutions_is_a_kind_of_its_own(order: str, kind: str):
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,4,4] x) => (float[1,4,4,4] y) {{
      [turn] y = Transpose<perm = [{order}]>(x)
    }}
    """)
    (layer,) = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    assert layer_parts(layer, graph)[0].key == CostKey(kind, "float")


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        ("MatMul(x, w)", "quantize of a product"),
        ("MatMul(x, x)", "quantize"),
        ("Softmax(x)", "quantize"),
    ],
)
def test_quantizing_what_a_float_product_by_weights_wrote_is_a_kind_of_its_own(
    layer: str, kind: str
):
    graph = graph_of_text(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,8] x) => (float[1,8,8] y) <float[8,8] w = {{1}}, float[8,8] v = {{1}}> {{
      [first] a = {layer}
      [second] y = MatMul(a, v)
    }}
    """)
    placement = Placement.of(edge for t in ("a", "v") for edge in graph.edges_of(t))
    prediction = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(placement)
    _, (quantize,), _ = plan_parts(prediction, graph, moves=False)
    assert quantize.key == CostKey(kind, "float")
    assert CostKey("quantize", "float") in (quantize.key, *ancestors(quantize.key))


def test_a_window_is_gathered_for_each_pixel_of_an_integer_convolution_that_is_dense():
    def gathered(parts: tuple[Part, ...]) -> list[Part]:
        return [part for part in parts if part.key.name == "gathered"]

    [part] = gathered(_conv_parts("x w"))
    windows = 2 * 6 * 6 * 9 / 1e6
    assert part == Part(CostKey("gathered", "uint8"), 0, windows, pytest.approx(6 * windows), 0)
    assert not gathered(_conv_parts(""))


def test_a_grouped_convolution_gathers_windows_and_multiplies_rows_of_each_group():
    parts = {part.key.name: part for part in _conv_parts("x w", group=2)}
    pixels = 2 * 6 * 6 / 1e6
    gathered = parts["gathered in groups"]
    assert (gathered.mops, gathered.read_mb) == pytest.approx((2 * 9 * pixels, 6 * 9 * pixels))
    assert parts["rows of grouped conv to float"].mops == pytest.approx(2 * pixels)
    depthwise = {part.key.name for part in _conv_parts("x w", group=6, outputs=6)}
    assert "rows of depthwise conv" in depthwise and "gathered in groups" not in depthwise


def test_a_grouped_convolution_is_a_kind_of_its_own():
    kind = _conv_parts("x w", group=2)[0].key
    assert kind == CostKey("grouped conv to float", "uint8")
    assert ancestors(kind)[0] == CostKey("conv", "uint8")
    assert _conv_parts("", group=6, outputs=6)[0].key == CostKey("depthwise conv", "float")
    assert _conv_parts("", group=6, outputs=12)[0].key == CostKey("grouped conv", "float")


def test_a_layer_that_computes_maps_of_an_output_has_a_part_for_it():
    key = CostKey("conv to an output", "float")
    elements = 2 * 20 * 6 * 6 / 1e6
    assert _conv_parts("")[-2] == Part(key, 1, elements, 0, pytest.approx(4 * elements))
    graph = graph_of_text(SILU)
    layers = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    inner, last = (layer_parts(layer, graph) for layer in layers if layer.nodes)
    assert key not in [part.key for part in inner]
    assert key in [part.key for part in last]


def test_a_layer_takes_the_sum_of_what_its_parts_cost():
    graph = graph_of_text(MODEL)
    prediction = Predictor(graph, PACK.rules, ANY_TARGET, "float", "uint8").predict(EMPTY)
    us = make_estimator(graph, FITTED).total_us(prediction)
    assert us == pytest.approx(2 + 32.768 + 0.4096 + 0.8192 + 0.01024 + 0.0064 + 0.1024)


def test_what_was_not_measured_costs_what_is_most_like_it():
    table = CostTable([cost("", ""), cost("conv", "uint8"), cost("memory", "")])
    assert table.find(CostKey("depthwise conv", "uint8")).name == "conv"
    assert table.find(CostKey("Softmax", "float")).name == "memory"
    assert table.find(CostKey("matmul", "float")).name == ""


DIV = cost("Div", fixed_us=1.0, us_per_mb_read=50.0)
MEMORY = cost("memory", "", fixed_us=9.0, us_per_mb_read=2.0)
EVERYTHING = cost("", "", us_per_mb_read=30.0)


@pytest.mark.parametrize(
    ("most", "read_mb", "us"),
    [
        # Its own rate holds up to four times the most.
        ((0.1, 10, 10), 0.4, 1 + 0.4 * 50),
        ((0.1, 10, 10), 5, 1 + 0.4 * 50 + 4.6 * 2),
        # Nothing like it was measured so large: the rate of all kinds says nothing of this one.
        ((0.1, 10, 1000), 50, 1 + 0.4 * 50 + 49.6 * 2),
        # What is like it was measured no further.
        ((0.1, 0.1, 1000), 50, 1 + 50 * 50),
        ((None, None, None), 5, 1 + 5 * 50),
    ],
)
def test_far_beyond_what_was_measured_of_a_kind_a_part_takes_what_like_kinds_do(
    most: tuple[float | None, ...], read_mb: float, us: float
):
    table = CostTable(
        one.model_copy(update={"most": None if mb is None else (0, mb, mb)})
        for one, mb in zip((DIV, MEMORY, EVERYTHING), most, strict=True)
    )
    assert table.layer_us([Part(CostKey("Div", "float"), 1, 0, read_mb, 0)]) == pytest.approx(us)


def test_a_part_larger_than_all_measured_ones_keeps_the_ratio_of_its_types():
    """As a Conv at 512x512 in a fit to small networks, by itself and by all parts together."""
    kinds = (
        cost("conv", us_per_mop=6), cost("conv", "uint8", us_per_mop=1.5),
        cost("conv", "", us_per_mop=3), cost("", "", us_per_mop=4),
    )  # fmt: skip
    table = CostTable(one.model_copy(update={"most": (10, 10, 10)}) for one in kinds)
    float_us, uint8_us = (
        table.layer_us([Part(CostKey("conv 3x3", dtype), 1, 1000, 0, 0)])
        for dtype in ("float", "uint8")
    )
    assert uint8_us / float_us == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("kind", "nearest"),
    [
        (("conv to float 1x1", "uint8"), ("conv to float", "uint8")),
        (("depthwise conv 1x1", "uint8"), ("depthwise conv", "uint8")),
        (("Transpose to channels first", "float"), ("Transpose to channels first", "")),
        (("few-channel quantize", "float"), ("conversion", "float")),
        (("matmul of activations", "float"), ("matmul", "float")),
        (("MaxPool", "uint8"), ("MaxPool", "")),
        (("Softmax", "float"), ("Softmax", "")),
        (("fused Sigmoid", "float"), ("fused Sigmoid", "")),
    ],
)
def test_the_kind_that_a_kind_of_part_resembles(
    kind: tuple[str, str], nearest: tuple[str, str]
) -> None:
    assert ancestors(CostKey(*kind))[0] == nearest


def test_explain_takes_pack_base_and_interval_from_the_fit(fit_file: Path, model_file: Path):
    found = placer.explain(model_file, gpu=str(fit_file))
    assert found.gpu == FITTED
    assert (found.pack.manifest.name, found.base) == ("openvino", "float")
    assert found.explanation.latency_error == pytest.approx(0.3)
    assert found.explanation.ratio_error == pytest.approx(0.1)
    assert found.explanation.float_us == pytest.approx(36.11584)


INT8_PAIR = f"""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float s = {{0.02}}, int8 z = {{3}}, int8[4,4,1,1] w = {{{", ".join("1" * 16)}}}, int8 v = {{0}}> {{
  [relu] r = Relu(x)
  [q] q = QuantizeLinear(r, s, z)
  [dq] d = DequantizeLinear(q, s, z)
  [dw] f = DequantizeLinear(w, s, v)
  [conv] y = Conv(d, f)
}}
"""


@pytest.mark.parametrize(
    ("measured", "other", "read"), [("amx", "avx512", "float"), ("avx512", "amx", "uint8")]
)
def test_explain_predicts_for_the_processor_that_was_measured(
    tmp_path: Path, measured: str, other: str, read: str
):
    """Products of two int8 operands have no zero point on OpenVINO."""
    save_model(parse_model(INT8_PAIR), tmp_path, tmp_path / "model.onnx")
    fit = fit_of(cost("", "", fixed_us=1), processor=PROCESSORS[measured])
    (tmp_path / "fit.json").write_text(fit.to_text())
    assert fit.target.processor == PROCESSORS[measured]
    found = placer.explain(tmp_path / "model.onnx", gpu=str(tmp_path / "fit.json"))
    (conv,) = (one for one in found.explanation.plan.layers if "conv" in one.nodes)
    assert conv.input_types[0] == read
    asked = placer.explain(tmp_path / "model.onnx", gpu=str(tmp_path / "fit.json"), processor=other)
    assert asked.explanation.plan != found.explanation.plan


def test_bench_estimates_with_the_fit(fit_file: Path, model_file: Path):
    found = placer.bench([model_file], engine="fusion-model", gpu=str(fit_file))
    assert found.device == f"a CPU (float, pack {PACK.name_and_version}, fit {FITTED.fingerprint})"
    (measured,) = found.models
    assert measured.median_ms == pytest.approx(0.03611584)
    assert measured.p90_ms == pytest.approx(0.03611584 * 1.3)


def test_a_project_file_names_a_fit_from_its_own_folder(fit_file: Path):
    project = fit_file.parent / "placer.yaml"
    project.write_text("engine: fusion-model\ngpu: fit.json\n")
    assert keywords_of(read_project(project), project, ())["gpu"] == str(fit_file)


def test_another_pack_scheme_or_base_than_was_measured_is_refused(fit_file: Path, model_file: Path):
    with pytest.raises(
        InputError, match=f"fitted with pack {PACK.name_and_version}; pack tensorrt"
    ):
        placer.explain(model_file, gpu=str(fit_file), pack="tensorrt")
    with pytest.raises(InputError, match=r"of base float, not float16; leave `base` out"):
        placer.explain(model_file, gpu=str(fit_file), base="float16")
    with pytest.raises(InputError, match=r"formats that are pack openvino's own; leave out `sche"):
        placer.explain(model_file, gpu=str(fit_file), scheme="symmetric")


def test_an_edited_pack_is_refused_whatever_its_version():
    edited = replace(PACK, rules=PACK.rules[1:])
    said = f"pack {PACK.name_and_version} was edited since the costs of a CPU were fitted; run pla"
    with pytest.raises(InputError, match=said):
        FITTED.check_pack(edited)


def test_formats_that_were_not_measured_are_told(fit_file: Path, model_file: Path):
    """Of a placement for another pack, and of a file with pairs of its own."""
    measured = "the costs of a CPU were measured with asymmetric activations in uint8 and weights "
    own, other = fit_file.parent / "own.yaml", fit_file.parent / "other.yaml"
    placer.explain(model_file, gpu=str(fit_file)).write_improved(own)
    symmetric = own.read_text().replace("symmetric: false", "symmetric: true")
    other.write_text(symmetric.replace("activation: uint8", "activation: int8"))
    assert not placer.explain(model_file, own, gpu=str(fit_file)).notes
    note = placer.explain(model_file, other, gpu=str(fit_file)).notes[0]
    assert f"int8 as in placement {other}, which may take another time" in note
    assert note.startswith(f"{measured}in int8, not with symmetric activations in int8 and w")
    pair = fit_file.parent / "pair.onnx"
    save_model(parse_model(INT8_PAIR), fit_file.parent, pair)
    said = f"{measured}in int8, not with activations in int8 as in the model's own Q/DQ pairs, whi"
    assert any(note.startswith(said) for note in placer.explain(pair, gpu=str(fit_file)).notes)


@pytest.mark.parametrize("name", ["fit.json", "gpu.yaml"])
def test_a_missing_file_is_no_unknown_gpu(tmp_path: Path, name: str):
    with pytest.raises(InputError, match=f"{name} does not exist; give a GPU or fit file"):
        load_device(str(tmp_path / name))


def test_an_edited_file_is_refused(fit_file: Path):
    document = json.loads(fit_file.read_text())
    document["errors"]["ratio"] = 0.01
    fit_file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"fit.json was changed after placer fit wrote it"):
        load_device(str(fit_file))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("placer-fit/12", "placer-fit/7", "format 'placer-fit/7' is not placer-fit/12; run placer"),
        ("placer-fit/12", "placer-fit/13", "is not placer-fit/12; a newer version of placer wrote"),
        ('"fixed_us": 2.0', '"fixed_us": -2.0', "field 'costs.1.fixed_us'"),
        ('"noise"', '"nois"', "field 'noise': Field required"),
        ("}", "", "not valid JSON"),
    ],
)
def test_a_file_of_another_version_or_a_damaged_one_is_refused(
    fit_file: Path, old: str, new: str, said: str
):
    fit_file.write_text(fit_file.read_text().replace(old, new))
    with pytest.raises(InputError, match=said):
        load_device(str(fit_file))
