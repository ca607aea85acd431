"""Layers of published engines in which INT8 and FP16 Convs follow each other."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx

from benchmarks.networks import topologies
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.model import load_model
from placer.prediction.layers.predictor import Predictor
from placer.prediction.rule_tests import layer_line
from placer.prediction.times.devices import make_estimator
from placer.prediction.times.gpus import load_gpu
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.prediction.test_motion import HEAD

# TensorRT 8.6.1 on an Orin: github.com/Wanglaoban3/SparseDriveV2-Quantization-Onnx-Deploy,
# deploy/artifacts/prof: a ResNet34 with a pyramid in FP16 (pull_sumf), with pairs on Convs
# (pull_b8v5) and with ModelOpt's pairs (pull_sd2). Three Convs of the two are left in FP16.
ENGINE = Target(engine_version="8.6.1", compute_capability="8.7", typing="weak")


def lines(graph: Graph, quantized: str = "", target: Target = ENGINE) -> list[str]:
    """What runs; ``quantized``: Convs whose inputs and weights carry pairs."""
    convs = [graph.by_name[name] for name in quantized.split()]
    pairs = [Edge(conv.inputs[i], conv.name, i) for conv in convs for i in (0, 1)]
    rules = load_pack("tensorrt").rules
    plan = Predictor(graph, rules, target, "float16", "int8").predict(Placement.of(pairs)).plan
    return [layer_line(layer) for layer in plan.layers if layer.kind != "no-op"]


BLOCK = """
[conv1] c1 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w1) [relu1] r1 = Relu(c1)
[conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2) [bn2] n2 = BatchNormalization(c2, s, s, s, s)
[down] c3 = Conv<strides = [2, 2]>(x, w3) [bn3] n3 = BatchNormalization(c3, s, s, s, s)
[add] a = Add(n2, n3) [relu2] y = Relu(a)
"""
CONSTANTS = (
    "float[64,64,3,3] w1 = {1}, float[64,64,3,3] w2 = {1}, float[64,64,1,1] w3 = {1}, "
    "float[64] s = {1}"
)


def test_the_shortcuts_conv_takes_the_sum_where_the_file_has_normalizations(
    save: Callable[..., Path],
):
    """Without them the Conv does that comes first (kalfazed/tensorrt_starter, also 8.6.1)."""
    shapes = "(float[1,64,16,16] x) => (float[1,64,8,8] y)"
    graph = load_model(save(f"{HEAD} g {shapes} <{CONSTANTS}> {{ {BLOCK} }}")).graph
    assert [line for line in lines(graph) if "conv2" in line or "down" in line] == [
        "conv2: float16 -> float16",
        "down+add+relu2: float16, float16 -> float16",
    ]


def test_an_fp16_conv_and_the_sum_it_adds_are_reformatted_behind_int8_convs():
    """layer2.1: both operands of its second Conv, and its result for the sum of the next block."""
    graph = graph_of_text(f"""{HEAD} g (float[1,64,8,8] x) => (float[1,64,8,8] y)
        <float[64,64,3,3] w0 = {{1}}, float[64,64,3,3] w1 = {{1}}, float[64,64,3,3] w2 = {{1}},
         float[64,64,3,3] w3 = {{1}}, float[64,64,3,3] w4 = {{1}}> {{
        [conv0] c0 = Conv<pads = [1, 1, 1, 1]>(x, w0) [relu0] r0 = Relu(c0)
        [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(r0, w1) [relu1] r1 = Relu(c1)
        [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2) [add1] a1 = Add(c2, r0) [relu2] r2 = Relu(a1)
        [conv3] c3 = Conv<pads = [1, 1, 1, 1]>(r2, w3) [relu3] r3 = Relu(c3)
        [conv4] c4 = Conv<pads = [1, 1, 1, 1]>(r3, w4) [add2] a2 = Add(c4, r2) [relu4] y = Relu(a2)
    }}""")
    quantized = "conv0 conv1 conv3 conv4"
    assert lines(graph, quantized) == [
        "quantize x: float -> int8",
        "conv0+relu0: int8 -> float16",
        "quantize r0: float16 -> int8",
        "conv1+relu1: int8 -> float16",
        "reformat r1: float16 -> float16",
        "reformat r0: float16 -> float16",
        "conv2+add1+relu2: float16, float16 -> float16",
        "quantize r2: float16 -> int8",
        "conv3+relu3: int8 -> int8",
        "reformat r2: float16 -> float16",
        "conv4+add2+relu4: int8, float16 -> float16",
        "reformat y: float16 -> float",
    ]


def test_up_to_8_5_an_int8_conv_writes_fp32_for_a_conv_that_reads_floats():
    """BEVFusion's fuser (8.5.2), whose Conv_144 is in FP32; see its engine in the benchmarks."""
    graph = graph_of_text(f"""{HEAD} g (float[1,64,8,8] x) => (float[1,64,8,8] y)
        <float[64,64,3,3] w0 = {{1}}, float[64,64,3,3] w1 = {{1}}> {{
        [conv0] c0 = Conv<pads = [1, 1, 1, 1]>(x, w0) [conv1] y = Conv<pads = [1, 1, 1, 1]>(c0, w1)
    }}""")
    older = Target(engine_version="8.5.2", compute_capability="8.7", typing="weak")
    assert lines(graph, "conv0", older)[1:] == ["conv0: int8 -> float", "conv1: float -> float"]
    assert lines(graph, "conv0")[1:] == [
        "conv0: int8 -> float16",
        "reformat c0: float16 -> float16",
        "conv1: float16 -> float16",
        "reformat y: float16 -> float",
    ]


def test_a_resize_in_fp16_is_reformatted_before_and_behind_int8_convs():
    """Two levels of the pyramid; at the smallest one the builder chose otherwise."""
    graph = graph_of_text(f"""{HEAD}
        g (float[1,64,8,8] x, float[1,64,16,16] z) => (float[1,64,16,16] y)
        <float[64,64,1,1] w0 = {{1}}, float[64,64,1,1] w1 = {{1}}, float[4] by = {{1, 1, 2, 2}}> {{
        [conv0] c0 = Conv(x, w0)
        [resize] r = Resize<mode = "nearest">(c0, , by)
        [conv1] c1 = Conv(z, w1) [add] y = Add(c1, r)
    }}""")
    assert lines(graph, "conv0 conv1") == [
        "quantize x: float -> int8",
        "conv0: int8 -> float16",
        "reformat c0: float16 -> float16",
        "resize: float16 -> float16",
        "quantize z: float -> int8",
        "reformat r: float16 -> float16",
        "conv1+add: int8, float16 -> float16",
        "reformat y: float16 -> float",
    ]


def test_rows_are_made_of_the_pixels_of_an_fp16_map_as_a_conv_wrote_it():
    """All four maps of the pyramid in FP16; a Reshape that cuts the channels needs a reformat."""
    body = """[conv] c = Conv(x, w) [reshape] r = Reshape(c, rows)
        [turn] t = Transpose<perm = [0, 2, 1]>(r) [relu] y = Relu(t)"""
    found = []
    for rows, shape in (("1, 64, 64", "1,64,64"), ("16, 4, 64", "16,64,4")):
        graph = graph_of_text(f"""{HEAD} g (float[1,64,8,8] x) => (float[{shape}] y)
            <float[64,64,1,1] w = {{1}}, int64[3] rows = {{{rows}}}> {{ {body} }}""")
        found.append([line for line in lines(graph) if line.startswith("reformat c")])
    assert found == [[], ["reformat c: float16 -> float16"]]


def test_a_transpose_behind_a_reformat_moves_its_tensors_once():
    """One that reads the channels as an FP16 Conv wrote them moves twice as much, and no layer
    goes before it; an INT8 Conv's NC/32HW32 is reformatted first.
    """
    graph = graph_of_text(f"""{HEAD} g (float[1,256,64,64] x) => (float[1,4096,256] y)
        <float[256,256,1,1] w = {{1}}, int64[3] rows = {{1, 256, 4096}}> {{
        [conv] c = Conv(x, w) [reshape] r = Reshape(c, rows)
        [turn] t = Transpose<perm = [0, 2, 1]>(r) [relu] y = Relu(t)
    }}""")
    pairs = [Edge("x", "conv", 0), Edge("w", "conv", 1)]
    estimator = make_estimator(graph, load_gpu("a100"))
    rules = load_pack("tensorrt").rules
    predictor = Predictor(graph, rules, ENGINE, "float16", "int8")
    taken = {}
    for kind, edges in ("float16", []), ("int8", pairs):
        layers = estimator.estimate(predictor.predict(Placement.of(edges))).layers
        before = [x for x in layers if x.kind == "reformat" and x.inputs[0].tensor == "c"]
        assert len(before) == (kind == "int8")
        (turn,) = (layer for layer in layers if layer.nodes == ("turn",))
        taken[kind] = turn.time_us
    assert taken["int8"] < taken["float16"]


# TensorRT 10.14.1, strongly typed: github.com/Parker-Lyu/Learn-TensorRT, which tells of two builds
# on an RTX 2060 and one on an RTX 4090 how many layers write which type. ModelOpt puts a pair on
# the input and weight of each Conv, also of the one that takes expectations, and one scale on the
# three pools. Built were 44 layers that write INT8, 49 or 50 FP16 and 0 to 4 FP32. Of the 64 INT8
# Convs 39 wrote INT8 and 25 FP16; 41 conversions came of pairs, and 46 or 49 did not, most of these
# in front of SiLUs.
def test_what_the_layers_of_a_yolov8n_with_pairs_on_convs_write(tmp_path: Path):
    onnx.save(topologies.yolov8n(640), tmp_path / "yolov8n.onnx")
    graph = load_model(tmp_path / "yolov8n.onnx").graph
    convs, pools = graph.by_op["Conv"], graph.by_op["MaxPool"]
    pairs = [Edge(conv.inputs[i], conv.name, i) for conv in convs for i in (0, 1)]
    pairs += [Edge(pool.inputs[0], pool.name, 0) for pool in pools]
    placement = Placement.of(pairs, [[pool.inputs[0] for pool in pools]])
    target = Target(engine_version="10.14", compute_capability="7.5", typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    layers = [layer for layer in predictor.predict(placement).plan.layers if layer.kind != "no-op"]
    computed = [layer for layer in layers if layer.kind == "compute"]
    assert Counter(layer.output_types[0] for layer in computed) == {"int8": 44, "float16": 49}
    names = {conv.name for conv in convs}
    of_convs = [layer for layer in computed if names & {*layer.nodes}]
    assert Counter(layer.output_types[0] for layer in of_convs) == {"int8": 38, "float16": 26}
    conversions = Counter(layer.kind for layer in layers if layer.kind != "compute")
    assert conversions == {"quantize": 43, "requantize": 3, "reformat": 39}
