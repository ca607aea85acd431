"""Times of single layers that users of TensorRT published where no file of the engine is left.

A MobileNetV2 with a pyramid and eight heads at 512x768, FP16, 8.4 on an Orin of 16
multiprocessors, by trtexec: github.com/zmurder/zmurder.github.io, notes on what an engine's layers
take. Its layers name every Conv, a log of its INT8 engine gives the shapes up to the pyramid.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from benchmarks.networks.topologies import Net
from benchmarks.times.profiled_layers import Sample
from placer.graph import Graph
from placer.model import load_model
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.roofline import gpu_work
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

# Microseconds of the layer of each Conv, in the model's order; 0 where another Conv's layer has it.
BACKBONE = (
    66.3, 109.3, 62.8, 156.6, 161.4, 43.6, 66.9, 126.0, 68.4, 66.9, 75.4, 16.0, 22.3, 45.6, 16.7,
    21.9, 45.4, 16.6, 21.8, 22.0, 11.3, 18.4, 26.4, 13.6, 17.5, 25.9, 12.6, 17.5, 25.9, 12.4, 17.5,
    25.9, 16.1, 22.1, 34.9, 21.5, 21.5, 35.4, 20.4,
)  # fmt: skip
ENCODER = (
    12.9, 28.0, 11.9, 16.1, 9.7, 10.3, 14.3, 9.6, 9.7, 16.2, 9.6, 10.1, 16.2, 9.6,
)  # fmt: skip
PYRAMID = (24.0, 24.0, 60.8, 89.6, 87.0, 221.5)
HEADS = (1614.8, 0, 0, 0, 0, 0, 0, 0)
# What smaller layers take is mostly latency, of which the profiler may have a share. Chosen by
# bytes, since a least time would choose slow layers. No share is taken off: the profiles of
# BEVFusion on such a board sum to no more than its engines take.
LEAST_BYTES = 2e6
ARCHITECTURE = "mobilenet-v2"  # As engines of it are called in reference_engines.py.
TIMES = (*BACKBONE, *ENCODER, *PYRAMID, *HEADS)


def mobilenet_pyramid() -> onnx.ModelProto:
    """Up to the first Conv of each head."""
    net = Net((1, 3, 512, 768))
    x = net.relu6(net.conv(net.input, 3, 32, 3, 2))
    x = net.conv(net.relu6(net.conv(x, 32, 32, 3, 1, 32)), 32, 16, 1)
    taken, channels = dict[int, str](), 16
    for outputs, count, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1)):
        for block in range(count):
            wide = 6 * channels
            y = net.relu6(net.conv(x, channels, wide, 1))
            y = net.relu6(net.conv(y, wide, wide, 3, 1 if block else stride, wide))
            y = net.conv(y, wide, outputs, 1)
            x, channels = (net.add("Add", x, y) if block else y), outputs
        taken[channels] = x
    x = net.conv(net.conv(x, channels, 128, 1), 128, 128, 3)
    for dilation in (2, 4, 6, 8):
        y = net.relu(net.conv(x, 128, 64, 1))
        y = net.relu(net.same_conv(y, net.weight(64, 64, 3, 3), dilation=dilation))
        x = net.add("Add", x, net.relu(net.conv(y, 64, 128, 1)))
    for lateral in (32, 24):
        side = net.conv(taken[lateral], lateral, 128, 1)
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        x = net.add("Resize", x, "", scales, mode="nearest")
        x = net.relu(net.conv(x, 128, 128, 1))
        x = net.relu(net.conv(net.add("Add", side, x), 128, 128, 3))
    heads = [net.relu(net.conv(x, 128, 128, 3)) for _ in HEADS]
    return net.model(*heads)


@cache
def samples() -> tuple[Sample, ...]:
    """The layers of ``mobilenet_pyramid`` that have a Conv and move ``LEAST_BYTES``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mobilenet.onnx"
        onnx.save(mobilenet_pyramid(), path)
        graph = load_model(path).graph
    target = Target(engine_version="8.4", compute_capability="8.7", typing="weak")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    gpu, times, found = load_gpu("orin-agx"), _times(graph), []
    for layer in predictor.predict(EMPTY).layers:
        us = sum(times.get(node.name, 0.0) for node in layer.nodes)
        work = gpu_work(layer, graph)
        if us > 0 and work is not None and work.bytes >= LEAST_BYTES:
            found.append(Sample("mobilenet-pyramid-orin", gpu, work, us, sum(TIMES)))
    return tuple(found)


def _times(graph: Graph) -> Mapping[str, float]:
    convs = [node.name for node in graph.nodes if node.op == "Conv"]
    return dict(zip(convs, TIMES, strict=True))
