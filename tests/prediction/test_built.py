"""Layers as the builder logs them, and what each has to do: sizes are the log's."""

from pathlib import Path

from placer.graph import Graph
from placer.graph.text import parse_model
from placer.plan.readers.rtx_log import LayerSizes, TensorSize, parse_sizes
from placer.prediction.times.built import BuiltEstimator
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.prediction.times.work import Work
from placer.qdq.extract import extract_placement

MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,32,8,8] y)
<float[32,16,3,3] w = {0.1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] y = Relu(c)
}
"""
# What TensorRT-RTX 1.7.1.116 logs of such a model with pairs, strides and formats left out.
QUANTIZE = (
    "Name: __myl_MulMinMaxRounCast_myl0_0, LayerType: kgen, Inputs: [ { Name: x, "
    "Dimensions: [1,16,8,8], Datatype: Float }], Outputs: [ { Name: q, Dimensions: [1,16,8,8], "
    "Datatype: Int8 }], TacticName: t, StreamId: 0, Metadata: [ONNX Layer: conv]"
    "[ONNX Layer: x/QuantizeLinear]"
)
PRODUCT = (
    "Name: conv_myl0_1, LayerType: correlation, Inputs: [ { Name: q, Dimensions: [1,16,8,8], "
    "Datatype: Int8 }], Constants: [ { Name: w, Dimensions: [32,16,3,3], Datatype: Int8 }, "
    "{ Name: s, Dimensions: [1,32,1,1], Datatype: Float }], Outputs: [ { Name: f, "
    "Dimensions: [1,32,8,8], Datatype: Float }], TacticName: t, StreamId: 0, "
    "Metadata: [ONNX Layer: conv][ONNX Layer: x/DequantizeLinear]"
)
SCALE = (
    "Name: __myl_MulRelu_myl0_2, LayerType: kgen, Inputs: [ { Name: f, Dimensions: [1,32,8,8], "
    "Datatype: Float }], Outputs: [ { Name: y, Dimensions: [1,32,8,8], Datatype: Half }], "
    "TacticName: t, StreamId: 0, Metadata: [ONNX Layer: conv][ONNX Layer: relu]"
)
WAIT = "Name: w, LayerType: wait, Inputs: [], Outputs: [], TacticName: , StreamId: 0, Metadata: "
LOG = (QUANTIZE, PRODUCT, SCALE, WAIT)


def graph(text: str) -> Graph:
    return extract_placement(parse_model(text)).graph({}, Path("the model"))


def times(*lines: str, model: str = MODEL) -> list[float | None]:
    estimator = BuiltEstimator(load_gpu("l4"), load_layer_classes())
    plan = estimator.plan(lines, graph(model), "a test")
    assert plan.estimated_times
    assert not plan.estimated
    return [layer.time_us for layer in plan.layers]


def test_sizes_are_those_of_the_log():
    assert next(parse_sizes([PRODUCT])) == LayerSizes(
        inputs=(TensorSize("int8", 1024),),
        constants=(TensorSize("int8", 32 * 16 * 9), TensorSize("float", 32)),
        outputs=(TensorSize("float", 2048),),
    )


def test_of_the_layers_that_name_a_convolution_only_the_library_kernel_computes_it():
    wide = MODEL.replace("32,16,3,3", "32,16,5,5").replace("1, 1, 1, 1", "2, 2, 2, 2")
    narrow, larger = times(*LOG), times(*LOG, model=wide)
    # Only the product takes longer where the graph says that more is to be computed.
    assert (narrow[0], narrow[2:]) == (larger[0], larger[2:])
    assert narrow[1] < larger[1]


def test_what_scales_a_product_moves_the_bytes_of_the_log_and_a_wait_takes_nothing():
    gpu, classes = load_gpu("l4"), load_layer_classes()
    roofline = Roofline(graph(MODEL), gpu, classes)

    def moving(read: int, written: int) -> float:
        work = Work("memory", "float", 0, read + written, written)
        return classes.launch_us(gpu) + roofline.work_us(work)

    wider = SCALE.replace("Datatype: Half", "Datatype: Float")
    assert times(*LOG)[2:] == [moving(4 * 2048, 2 * 2048), 0]
    assert times(QUANTIZE, PRODUCT, wider, WAIT)[2:] == [moving(4 * 2048, 4 * 2048), 0]
