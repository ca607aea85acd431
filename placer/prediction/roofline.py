"""Estimate how long a predicted layer takes: a roofline with a launch cost for each layer.

    time = (launch + latency) / clock + depth * cycles / clock + operations / (rate * efficiency)
           + bytes read / (bandwidth * efficiency) + bytes written / (bandwidth * efficiency)

Rates, bandwidth and clock come from the GPU's data sheet (``configs/gpus``), the rest from
``configs/layer_classes.yaml``, by class of layer. The times are added, not the largest taken
(Williams et al. 2009, Roofline, without overlap): the kernels that inference runs are short, and
the profiles that the classes were fitted to show little overlap. ``depth`` is how many products
each element of the output sums: one thread block sums them one after the other, however few blocks
there are, so that at batch 1 it is what a convolution takes. Reading and writing are charged apart,
since what was just written is often read from the cache. A conversion's operations are its
elements. Every number is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from placer.common.yaml_file import parse_file
from placer.graph import Graph, Node
from placer.graph.weights import weight_input
from placer.plan import Layer, Port
from placer.prediction.conversions import UNKNOWN, PredictedLayer
from placer.prediction.estimator import Estimator
from placer.prediction.gpus import Gpu

_QUANTIZED = ("int8", "uint8", "float8e4m3fn")
_BYTES = {
    "float": 4,
    "int32": 4,
    "double": 8,
    "int64": 8,
    "bool": 1,
    **dict.fromkeys(_QUANTIZED, 1),
}
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLING = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean")
FEW_CHANNELS = 4  # An image: no tensor core kernel takes so few.
WARP = 32  # Threads, each of which converts an element.
KEPT_CLASSES = 256
TILE = 64  # Channels that a thread block of large kernels computes at least.


Rate = Literal["tensor", "dp4a", "cuda", "elements"]


class LayerClass(BaseModel):
    """Efficiencies of one kind of layer.

    ``dtype``: type that the layer reads; empty for any other. ``compute_capability``: of the GPUs
    that the figures were measured on; empty for those that have no class of their own. ``rate``:
    what computes: ``tensor`` cores, ``dp4a`` (INT8 on CUDA cores, four times the FP32 rate),
    ``cuda`` cores (FP32 rate) or, for ``elements`` that are converted, a warp of each
    multiprocessor in each clock cycle. ``bandwidth_efficiency`` is that of writing too, unless
    ``write_efficiency`` is given. ``depth_cycles``: clock cycles for each product that an element
    of the output sums. ``least_depth_cycles``: those that they and operations and bytes take
    together at least: a layer with few outputs runs on few cores, which hide nothing of it.
    ``latency_cycles``: constant. ``tile``: channels are computed in multiples of it; 0 for what
    tensor cores take at least. ``source``: where the figures come from; "assumed" where nothing was
    measured.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dtype: str = ""
    compute_capability: str = ""
    rate: Rate = "tensor"
    ops_efficiency: float = Field(gt=0, le=1)
    bandwidth_efficiency: float = Field(gt=0)
    write_efficiency: float | None = Field(default=None, gt=0)
    depth_cycles: float = Field(default=0, ge=0)
    least_depth_cycles: float = Field(default=0, ge=0)
    tile: Literal[0, 64] = 0
    latency_cycles: float = Field(ge=0)
    source: str = Field(min_length=7)


class LayerClasses(BaseModel):
    """``configs/layer_classes.yaml``.

    ``launch_cycles``: what each layer costs beyond its work. ``ratio_error``: relative error that
    80% of the estimated ratios of two builds of one network stay within, ``latency_error``: the
    same of the estimated latencies of engines that no class was fitted to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch_cycles: float = Field(ge=0)
    launch_source: str
    ratio_error: float = Field(default=0, ge=0)
    latency_error: float = Field(default=0, ge=0)
    error_source: str = ""
    classes: tuple[LayerClass, ...]

    def launch_us(self, gpu: Gpu) -> float:
        """What each layer costs on ``gpu`` beyond its work, in microseconds."""
        return self.launch_cycles / gpu.boost_clock_mhz

    def find(self, name: str, dtype: str, compute_capability: str = "") -> LayerClass:
        """The class of layers ``name`` that read ``dtype``, or else of any type.

        One of the GPU's own compute capability goes before those of any.
        """
        same = [entry for entry in self.classes if entry.name == name]
        wanted = ((dtype, compute_capability), ("", compute_capability), (dtype, ""), ("", ""))
        by_key = {(entry.dtype, entry.compute_capability): entry for entry in reversed(same)}
        return next(by_key[key] for key in wanted if key in by_key)


@dataclass(frozen=True)
class Work:
    """What a layer has to do: its class, the type it computes in, operations and bytes moved.

    ``written``: those of ``bytes`` that are written. ``depth``: how many products each element of
    the output sums. ``tiled_ops``: operations where channels come in multiples of ``TILE``.
    ``constants``: those of ``bytes`` that are weights.
    """

    name: str
    dtype: str
    ops: float
    bytes: float
    written: float = 0
    depth: float = 0
    tiled_ops: float = 0
    constants: float = 0


def load_layer_classes() -> LayerClasses:
    """Read ``configs/layer_classes.yaml``."""
    folder = Path(str(resources.files("placer.configs")))
    return parse_file(folder / "layer_classes.yaml", folder, LayerClasses)


class Roofline(Estimator):
    """Estimates the layers of one model on one GPU."""

    def __init__(self, graph: Graph, gpu: Gpu, classes: LayerClasses) -> None:
        source = f"predicted from rules, estimated for {gpu.name}"
        super().__init__(source, classes.latency_error, classes.ratio_error)
        self._graph = graph
        self._gpu = gpu
        self._launch_us = classes.launch_us(gpu)
        self._find = lru_cache(maxsize=KEPT_CLASSES)(classes.find)
        self._rate = lru_cache(maxsize=KEPT_CLASSES)(partial(operation_rate, gpu=gpu))

    def layer_us(self, predicted: PredictedLayer) -> float:
        """Estimated time of one layer in microseconds; 0 for a no-op."""
        work = layer_work(predicted, self._graph)
        if work is None:
            return 0.0
        return self._launch_us + self.work_us(work)

    def work_us(self, work: Work) -> float:
        """Estimated time of ``work`` in microseconds, without the launch."""
        gpu = self._gpu
        found = self._find(work.name, work.dtype, gpu.compute_capability)
        rate = self._rate(found.rate, work.dtype)
        bandwidth = gpu.memory_bandwidth_gb_s * 1e9
        ops = work.tiled_ops if found.tile else work.ops
        seconds = ops / (rate * found.ops_efficiency)
        uncached = uncached_bytes(work, gpu)
        seconds += uncached / bandwidth
        read = work.bytes - work.written - uncached
        seconds += read / (bandwidth * found.bandwidth_efficiency)
        writing = found.write_efficiency or found.bandwidth_efficiency
        seconds += work.written / (bandwidth * writing)
        clock = gpu.boost_clock_mhz
        us = seconds * 1e6 + work.depth * found.depth_cycles / clock
        return found.latency_cycles / clock + max(us, work.depth * found.least_depth_cycles / clock)


def uncached_bytes(work: Work, gpu: Gpu) -> float:
    """Bytes of weights that the L2 cache cannot have kept from the inference before."""
    return max(0.0, work.constants - gpu.l2_mb * 2**20)


def operation_rate(rate: Rate, dtype: str, gpu: Gpu) -> float:
    """Operations per second at most; ``rate`` is a ``LayerClass``'s."""
    if rate == "tensor":
        return gpu.peak_ops(dtype)
    if rate == "elements":
        return WARP * gpu.sms * gpu.boost_clock_mhz * 1e6
    return gpu.peak.float * 1e12 * (4 if rate == "dp4a" else 1)


def layer_work(predicted: PredictedLayer, graph: Graph) -> Work | None:
    """What a layer has to do; None if it is no work at all."""
    layer, nodes = predicted.layer, predicted.nodes
    if layer.kind == "no-op":
        return None
    if not nodes:
        moved = sum(port_bytes(port, graph) for port in (*layer.inputs, *layer.outputs))
        given = (layer.inputs or layer.outputs)[0]  # What clears memory reads nothing.
        few = _channels(given.tensor, graph) <= FEW_CHANNELS
        name = "few-channel conversion" if few else "conversion"
        elements = max(_elements(port.tensor, graph) for port in layer.outputs)
        written = sum(port_bytes(port, graph) for port in layer.outputs)
        return Work(name, given.dtype, elements, moved, written)
    if layer.op == "Concat":
        return _concat_work(predicted, graph)
    dtype = _computing_type(layer.inputs)
    moved = sum(port_bytes(port, graph) for port in _distinct((*layer.inputs, *layer.outputs)))
    main = next((node for node in nodes if node.op in WEIGHTED), nodes[0])
    constants = _weight_bytes(nodes, graph, type_bytes(dtype))
    moved += constants
    share = 1 / predicted.copies
    return Work(
        _class_name(predicted, main, dtype, graph),
        dtype,
        share * sum(_ops(node, _multiple(dtype), graph) for node in nodes),
        share * moved,
        written=share * sum(port_bytes(port, graph) for port in layer.outputs),
        depth=_depth(main, graph),
        tiled_ops=share * sum(_ops(node, TILE, graph) for node in nodes),
        constants=share * constants,
    )


def _class_name(predicted: PredictedLayer, main: Node, dtype: str, graph: Graph) -> str:
    if predicted.layer.op == "ConvActPool":
        return "conv-act-pool"
    if main.op in ("Conv", "ConvTranspose"):
        channels = _channels(main.inputs[0], graph)
        if channels <= FEW_CHANNELS:
            return "few-channel conv"
        if main.op == "Conv" and main.attributes.get("group", 1) == channels:
            return "depthwise conv"
        return "conv" + (_float_output(predicted.layer) if dtype in _QUANTIZED else "")
    if main.op in ("Gemm", "MatMul"):
        return "matmul"
    return "pooling" if main.op in POOLING else "memory"


def _float_output(layer: Layer) -> str:
    """How the class of a layer that reads integers says that it writes float."""
    if "float" in layer.output_types:
        return " to float"
    return " to half" if {"float16", "bfloat16"} & set(layer.output_types) else ""


def _concat_work(predicted: PredictedLayer, graph: Graph) -> Work | None:
    """Copies of the inputs that their producers cannot write into the joined tensor themselves.

    A producer, or the conversion behind it, writes into it if nothing else reads its output
    (TensorRT eliminates copies input by input: hehern bevfusion, yolo_deepstream).
    """
    layer = predicted.layer
    if not layer.outputs:
        return None
    dtype = layer.output_types[0]
    copied = [
        edge.tensor
        for edge, port in zip(predicted.edges, layer.inputs, strict=True)
        if edge.tensor not in graph.producer
        or len(graph.edges_of(edge.tensor)) > 1
        or port.dtype != dtype
    ]
    if not copied:
        return None
    moved = 2 * sum(_elements(tensor, graph) for tensor in copied) * type_bytes(dtype)
    return Work("memory", dtype, 0, moved)


def _computing_type(ports: Sequence[Port]) -> str:
    """INT8 if any input is, else the type of the first float input, else of the first known."""
    types = [port.dtype for port in ports if port.dtype != UNKNOWN]
    quantized = next((dtype for dtype in types if dtype in _QUANTIZED), None)
    if quantized is not None:
        return quantized
    return next((t for t in types if "float" in t), types[0] if types else "float")


def _multiple(dtype: str) -> int:
    """Channels that tensor cores take at once (NVIDIA, Deep Learning Performance guide)."""
    return 16 if dtype in _QUANTIZED else {"float16": 8, "bfloat16": 8}.get(dtype, 4)


def _depth(node: Node, graph: Graph) -> int:
    """Products that each element of a weighted node's output sums; 0 if the shape is not known."""
    if node.op in ("Gemm", "MatMul"):
        return _matrix_depth(node, graph, unknown=0)
    weight = weight_input(graph, node) if node.op in WEIGHTED else None
    if weight is None:
        return 0
    dims = graph.initializers[weight.tensor].dims
    if len(dims) < 2:  # No weights of a convolution; no engine takes them.
        return 0
    if node.op == "Conv":
        return math.prod(dims[1:])
    # Each element of a ConvTranspose's output sums over the part of the kernel that strides leave.
    strides = node.attributes.get("strides")
    steps = math.prod(strides) if isinstance(strides, list | tuple) else 1
    return math.ceil(dims[0] * math.prod(dims[2:]) / steps)


def _matrix_depth(node: Node, graph: Graph, unknown: int) -> int:
    """The length that a matrix product sums over; ``unknown`` if no such axis is known."""
    axis = -2 if node.attributes.get("transA", 0) else -1
    shape = graph.type_of(node.inputs[0]).shape or ()
    return shape[axis] if len(shape) >= -axis else unknown


def _ops(node: Node, multiple: int, graph: Graph) -> float:
    """Operations, 2 per multiply-add; channels count in multiples of ``multiple``."""
    if node.op not in WEIGHTED:
        return 0.0
    if node.op in ("Gemm", "MatMul"):
        depth = _matrix_depth(node, graph, unknown=1)
        return 2.0 * _elements(node.outputs[0], graph) * _up(depth, multiple)
    weight = weight_input(graph, node)
    if weight is None:
        return 0.0
    shape = graph.initializers[weight.tensor].dims
    if len(shape) < 2:  # No weight of a convolution; the engine will say so.
        return 0.0
    grouped = node.attributes.get("group", 1) > 1
    first, second = (shape[0], shape[1]) if grouped else (_up(shape[0], multiple), shape[1])
    if not grouped and second > FEW_CHANNELS:
        second = _up(second, multiple)
    kernel = math.prod(shape[2:])
    if node.op == "ConvTranspose":
        return 2.0 * _elements(node.inputs[0], graph) / shape[0] * first * second * kernel
    return 2.0 * _elements(node.outputs[0], graph) / shape[0] * first * second * kernel


def _up(value: int, multiple: int) -> int:
    return math.ceil(value / multiple) * multiple


def _weight_bytes(nodes: Sequence[Node], graph: Graph, size: float) -> float:
    # A Gather reads no more of its table than it writes.
    readers = (node for node in nodes if not node.op.startswith("Gather"))
    tensors = {t for node in readers for t in node.inputs if t in graph.initializers}
    return sum(math.prod(graph.initializers[t].dims) for t in tensors) * size


def _distinct(ports: Sequence[Port]) -> Iterator[Port]:
    """Ports without repeats: a tensor that a layer reads twice is loaded once."""
    return iter(dict.fromkeys(ports))


def port_bytes(port: Port, graph: Graph) -> float:
    """Bytes of the tensor that a layer reads or writes there."""
    return _elements(port.tensor, graph) * type_bytes(port.dtype)


def type_bytes(dtype: str) -> int:
    """Bytes of an element of ONNX type ``dtype``; 4 for types that are not known."""
    if dtype in _QUANTIZED:
        return 1
    return 2 if dtype in ("float16", "bfloat16") else _BYTES.get(dtype, 4)


def _elements(tensor: str, graph: Graph) -> int:
    return math.prod(graph.type_of(tensor).shape or (1,))


def _channels(tensor: str, graph: Graph) -> int:
    shape = graph.type_of(tensor).shape
    return shape[1] if shape is not None and len(shape) > 2 else FEW_CHANNELS + 1
