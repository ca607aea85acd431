"""Estimate how long a predicted layer takes: a roofline with a launch cost for each layer.

    time = (launch + latency) / clock + depth * cycles / clock + operations / (rate * efficiency)
           + bytes read / (bandwidth * efficiency) + bytes written / (bandwidth * efficiency)
           + exponentials / rate of exponentials

Rates, bandwidth and clock come from the GPU's data sheet (``configs/gpus``), the rest from
``configs/layer_classes.yaml``, by class of layer. The times are added, not the largest taken
(Williams et al. 2009, Roofline, without overlap): the kernels that inference runs are short, and
the profiles that the classes were fitted to show little overlap. ``depth`` is how many products
each element of the output sums: one thread block sums them one after the other, however few blocks
there are, so that at batch 1 it is what a convolution takes. Reading and writing are charged apart,
since what was just written is often read from the cache; where the cache is large for the bandwidth
of the memory, both are faster (``tensor_bandwidth``). Tensors that the cache does not hold take the
memory's time at least, whatever a class says (``least_memory_us``), and a Softmax's rows theirs.
``exponentials`` are the elements of which a kernel that sums integers computes a SiLU or the like
before it writes them. A conversion's operations are its elements. Every number is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial

from placer.graph import Graph
from placer.graph.weights import weight_input
from placer.plan import Port
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.layouts import FEW_CHANNELS, makes_rows
from placer.prediction.times.estimator import Estimator
from placer.prediction.times.gpus import Gpu
from placer.prediction.times.layer_classes import LayerClasses, Rate
from placer.prediction.times.work import (
    POOLING,
    SMALL_TILE,
    TILE,
    Work,
    depthwise_share,
    layer_work,
    matrix_share,
    port_bytes,
)

WARP = 32  # Threads, each of which converts an element.
# Bytes that each multiprocessor moves in a clock cycle at least where the L2 cache keeps a layer's
# tensors: what the memory of an RTX 3090 gives it, the least of the GPUs that the classes without a
# compute capability were fitted to (A100: 12.7). Ada's memory gives it 2.4 to 3.1, and ten times
# the cache.
CACHED_BYTES = 6.73
# What layers of few operations reach of the memory's bandwidth where the cache holds none of their
# tensors: 0.7 to 0.85 on an RTX 3090 (ResNet50 at batch 32) and an Orin (BEVFusion's ResNet50, the
# MobileNetV2 of benchmarks/times/published_layers.py).
MEMORY_SHARE = 0.8
# Bytes that are read again from the memory for each that the cache does not hold: what is written
# last drives out what is read next. From half more than the cache on nothing is left in it.
# Compared were 1 and 3 on the fourteen engines of benchmarks/times/layer_classes.py, each left out:
# with 3 latencies are off by 0.072 (root mean square of logarithms; with 1 by 0.076), with the
# network left out by 0.149 (0.156); ratios by 0.102 (0.100), and by 0.179 (0.170).
DRIVEN_OUT = 3.0
# Elements of which each multiprocessor computes a SiLU in a clock cycle in a kernel that sums
# integers: half of the special functions that its hardware takes (16; CUDA C++ Programming Guide,
# arithmetic instructions), of which an exponential and a reciprocal are two. A YOLOv9-c with SiLU
# and with ReLU differs by as much as four would say (TensorRT 10.0, RTX 4090, github.com/
# levipereira/yolov9-qat), a YOLOv7 leaves room for sixteen (8, Orin, NVIDIA-AI-IOT/
# yolo_deepstream). In the FP16 Convs of a YOLOv8m (8.5.2, Orin) a SiLU costs nothing that shows.
EXPONENTIALS = 8.0
# Channels that INT8 tensors are grouped by ("Thirty-two wide channel vectorized row major Int8
# format": 138 of 147 INT8 outputs of a MobileNetV2, a ResNet18 and BEVFusion's ResNet50).
INT8_GROUP = 32
# How many times the bytes of its tensors a Transpose moves that reads channels which lie together:
# as much as a reformat and a Transpose of what that wrote (four maps of a SparseDrive on an Orin,
# TensorRT 8.6.1: 1.0 to 1.2 times what the two are estimated to take).
TURNED = 2.0
IMAGE_AXES = 4
_OF_MAPS = frozenset({"Conv", "ConvTranspose", *POOLING})
# Channels of an image that INT8 tensor cores compute, as many as they take at once. A ResNet18's
# first Conv with its MaxPool takes 5.5 times what its three channels would on an A100. In FP16
# kernels for images waste less.
IMAGE_CHANNELS = 16
# Cycles of a multiprocessor that a kernel of a Softmax takes for each row, however short: 16,896
# rows of 118 FP16 elements take 75.5 us on an Orin AGX (BEVFusion, TensorRT 8.5.2). Where GPUs are
# not known, rows of 16 elements take 5.3 and 6.4 times as long as the Transpose that moves the same
# tensor (YOLOv8m, 8.5.2, and YOLOv8n, 8, whose boxes are means of such rows).
SOFTMAX_ROW_CYCLES = 93.0
HALF_TO_TF32 = 2.0  # An H100's rate of FP16 for its rate of TF32; an A100's and an Orin's, too.
MOSTLY = 0.5  # Of the operations; a ResNet's classifier does 0.1%, a ViT's products 99%.
# Of what Convs read and write: depthwise ones 34% in a ShuffleNetV2, 42 to 45% in MobileNets,
# MNASNets and an EfficientNet-B0, 5 to 13% in a YOLO11, a YOLO26 and a YOLOv10.
OFTEN_DEPTHWISE = 0.25
KEPT_CLASSES = 256


class Roofline(Estimator):
    """Estimates the layers of one model on one GPU.

    ``half_groups``: whether Convs of several groups are no faster in INT8 than in FP16. ``base``:
    the type of what is not quantized.
    """

    def __init__(
        self,
        graph: Graph,
        gpu: Gpu,
        classes: LayerClasses,
        *,
        half_groups: bool = False,
        base: str = "float16",
    ) -> None:
        source = f"predicted from rules, estimated for {gpu.name}"
        error = ratio_error(graph, classes, base, gpu)
        super().__init__(source, classes.latency_error, error, classes.layer_error)
        self._graph = graph
        self._gpu = gpu
        self._half_groups = half_groups
        self._launch_us = classes.launch_us(gpu)
        self._find = lru_cache(maxsize=KEPT_CLASSES)(classes.find)
        self._rate = lru_cache(maxsize=KEPT_CLASSES)(partial(operation_rate, gpu=gpu))

    def layer_us(self, predicted: PredictedLayer) -> float:
        """Estimated time of one layer in microseconds; 0 for a no-op."""
        if self._half_groups and _is_grouped(predicted, self._graph):
            predicted = _as_half(predicted)
        work = gpu_work(predicted, self._graph)
        if work is None:
            return 0.0
        return self._launch_us + self.work_us(work)

    def work_us(self, work: Work) -> float:
        """Estimated time of ``work`` in microseconds, without the launch."""
        gpu = self._gpu
        layer_class = self._find(work.name, work.dtype, gpu.compute_capability)
        rate = self._rate(layer_class.rate, work.dtype)
        bandwidth = tensor_bandwidth(work, gpu)
        ops = {TILE: work.tiled_ops, SMALL_TILE: work.small_tiled_ops}.get(
            layer_class.tile, work.ops
        )
        seconds = ops / (rate * layer_class.ops_efficiency)
        uncached = uncached_bytes(work, gpu)
        seconds += uncached / memory_bandwidth(gpu)
        read = work.bytes - work.written - uncached
        seconds += read / (bandwidth * layer_class.bandwidth_efficiency)
        writing = layer_class.write_efficiency or layer_class.bandwidth_efficiency
        seconds += work.written / (bandwidth * writing)
        seconds += work.exponentials / (EXPONENTIALS * gpu.sms * gpu.clock_mhz * 1e6)
        clock = gpu.clock_mhz
        depth = work.depth * slower_products(work.dtype, gpu)
        us = seconds * 1e6 + depth * layer_class.depth_cycles / clock
        least_depth_us = depth * layer_class.least_depth_cycles / clock
        rows_us = work.softmax_rows * SOFTMAX_ROW_CYCLES / (gpu.sms * clock)
        return layer_class.latency_cycles / clock + max(
            us, least_depth_us, rows_us, least_memory_us(work, gpu)
        )


def ratio_error(graph: Graph, classes: LayerClasses, base: str, gpu: Gpu) -> float:
    """Relative error that 80% of ratios of two builds of ``graph`` on ``gpu`` stay within.

    ``base``: the type of what is not quantized. Networks of depthwise Convs were further off, as
    the classes know few of their layers.
    """
    errors = [classes.least_ratio_error(base, gpu.compute_capability)]
    if matrix_share(graph) > MOSTLY:
        errors.append(classes.matrix_ratio_error)
    if depthwise_share(graph) > OFTEN_DEPTHWISE:
        errors.append(classes.depthwise_ratio_error)
    return max(errors)


def gpu_work(predicted: PredictedLayer, graph: Graph) -> Work | None:
    """What a layer has to do on a GPU; None if it is no work at all.

    INT8 maps are in groups of channels, the last of which may be part empty. An image's channels
    are as many in tensor cores as those take at once. A strided Conv skips what lies between the
    places of its window, rows and columns alike, since the channels of a place lie together. Seen
    on engines in FP16; FP32 has its channels apart, so that of a row all is loaded.
    """
    work = layer_work(predicted, graph)
    if work is None:
        return None
    layer = predicted.layer
    read, written = 0.0, 0.0
    if layer.op != "Concat":  # Of which only copies are work.
        share = 1 / predicted.copies
        read, written = (share * _empty_bytes(p, graph) for p in (layer.inputs, layer.outputs))
    work = replace(work, bytes=work.bytes + read + written, written=work.written + written)
    if _turns_grouped(predicted, graph):
        work = replace(work, bytes=TURNED * work.bytes, written=TURNED * work.written)
    if work.dtype == "float":
        return work
    ops = work.ops * _image_share(predicted, work, graph)
    return replace(work, ops=ops, bytes=work.bytes - _skipped_bytes(predicted, graph))


def _turns_grouped(predicted: PredictedLayer, graph: Graph) -> bool:
    """Whether a Transpose makes rows in FP16 of pixels whose channels lie together."""
    turn = next((node for node in predicted.nodes[:1] if node.op == "Transpose"), None)
    reshape = None if turn is None else graph.producer.get(turn.inputs[0])
    is_half = not {"float16", "bfloat16"}.isdisjoint(predicted.layer.output_types[:1])
    return predicted.grouped and is_half and makes_rows(graph, reshape)


def _is_grouped(predicted: PredictedLayer, graph: Graph) -> bool:
    """Whether a layer is a Conv of several groups that is not depthwise."""
    conv = next((node for node in predicted.nodes if node.op == "Conv"), None)
    group = 1 if conv is None else conv.attributes.get("group", 1)
    shape = None if conv is None else graph.type_of(conv.inputs[0]).shape
    return group != 1 and shape is not None and group != shape[1]


def _as_half(predicted: PredictedLayer) -> PredictedLayer:
    """The layer with FP16 for its INT8 tensors; what is in float stays as it is."""
    layer = predicted.layer
    inputs, outputs = (
        tuple(replace(p, dtype="float16") if p.dtype == "int8" else p for p in ports)
        for ports in (layer.inputs, layer.outputs)
    )
    return replace(predicted, layer=replace(layer, inputs=inputs, outputs=outputs))


def _empty_bytes(ports: Iterable[Port], graph: Graph) -> float:
    """Bytes of the channels that INT8 maps of more than an image's channels are filled up by."""
    empty = 0.0
    for port in set(ports):
        shape = graph.type_of(port.tensor).shape or ()
        wide = len(shape) == IMAGE_AXES and shape[1] > FEW_CHANNELS
        if wide and port.dtype == "int8" and _is_map(port.tensor, graph):
            empty += port_bytes(port, graph) * (-shape[1] % INT8_GROUP) / shape[1]
    return empty


def _is_map(tensor: str, graph: Graph) -> bool:
    """Whether a Conv or a pool writes or reads the tensor, unlike the heads of attention."""
    writer = graph.producer.get(tensor)
    readers = (graph.by_name.get(edge.node) for edge in graph.edges_of(tensor))
    return any(node is not None and node.op in _OF_MAPS for node in (writer, *readers))


def _image_share(predicted: PredictedLayer, work: Work, graph: Graph) -> float:
    """How many times more channels an INT8 Conv of an image computes than the image has."""
    conv = next((node for node in predicted.nodes if node.op == "Conv"), None)
    shape = graph.type_of(conv.inputs[0]).shape if conv is not None else None
    if work.dtype != "int8" or not shape or not 0 < shape[1] <= FEW_CHANNELS:
        return 1.0
    return IMAGE_CHANNELS / shape[1]


def _skipped_bytes(predicted: PredictedLayer, graph: Graph) -> float:
    """Bytes of what a Conv reads that lie between the places of its window."""
    conv = next((node for node in predicted.nodes if node.op == "Conv"), None)
    weight = None if conv is None else weight_input(graph, conv)
    strides = None if conv is None else conv.attributes.get("strides")
    if conv is None or weight is None or not isinstance(strides, list | tuple):
        return 0.0
    window = graph.initializers[weight.tensor].dims[2:]
    share = math.prod(min(1.0, k / s) for k, s in zip(window, strides, strict=False))
    inputs = predicted.layer.inputs
    read = next((port for port in inputs if port.tensor == conv.inputs[0]), None)
    return (1 - share) * port_bytes(read, graph) if read else 0.0


def uncached_bytes(work: Work, gpu: Gpu) -> float:
    """Bytes of weights that the L2 cache cannot have kept from the inference before."""
    return max(0.0, work.constants - gpu.l2_mb * 2**20)


def least_memory_us(work: Work, gpu: Gpu) -> float:
    """Microseconds that moving tensors which the L2 cache does not hold takes at least."""
    tensors = work.bytes - work.constants
    left = max(0.0, tensors - gpu.l2_mb * 2**20)
    moved = min(tensors, DRIVEN_OUT * left)
    return moved / (MEMORY_SHARE * memory_bandwidth(gpu)) * 1e6


def memory_bandwidth(gpu: Gpu) -> float:
    """Of the device memory, in bytes per second."""
    return gpu.memory_bandwidth_gb_s * 1e9


def tensor_bandwidth(work: Work, gpu: Gpu) -> float:
    """What the efficiencies of reading and writing are shares of, in bytes per second.

    That of the memory, but of the part of a layer's tensors that fits into the L2 cache at least
    ``CACHED_BYTES`` for each multiprocessor and clock cycle.
    """
    memory = memory_bandwidth(gpu)
    cache = max(memory, CACHED_BYTES * gpu.sms * gpu.clock_mhz * 1e6)
    kept = min(1.0, gpu.l2_mb * 2**20 / max(work.bytes, 1.0))
    return 1 / (kept / cache + (1 - kept) / memory)


def slower_products(dtype: str, gpu: Gpu) -> float:
    """How many times more cycles a product takes than those that the classes state for it.

    A thread block sums its products as fast as a multiprocessor computes them: on an H100 the
    cycles of FP32, FP16 and INT8 are as 4 to 2 to 1, as its rates are 1 to 2 to 4. GeForce GPUs
    since Ampere compute TF32 at a quarter of FP16's rate, not at half.
    """
    if dtype != "float" or gpu.peak.tf32 is None:
        return 1.0
    return max(1.0, gpu.peak_ops("float16") / gpu.peak_ops("float") / HALF_TO_TF32)


def operation_rate(rate: Rate, dtype: str, gpu: Gpu) -> float:
    """Operations per second at most; ``rate`` is a ``LayerClass``'s."""
    if rate == "tensor":
        return gpu.ops(dtype)
    if rate == "elements":
        return WARP * gpu.sms * gpu.clock_mhz * 1e6
    return gpu.peak.float * 1e12 * gpu.clock_mhz / gpu.boost_clock_mhz
