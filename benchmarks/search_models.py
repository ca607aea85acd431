"""Models and deterministic objectives on which searches are compared.

Latency depends on shapes alone, so weights are zeros. A candidate takes the time of its predicted
layers: a roofline for one of several GPUs, times a factor that is hidden from every search and
different for each GPU and layer signature, because no engine follows a roofline.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import rapidocr_onnxruntime
from topologies import Net, classifier

from placer.graph import Graph
from placer.model import load_model, save_model
from placer.prediction.gpus import Gpu, load_gpu
from placer.prediction.predictor import Predictor
from placer.prediction.roofline import Roofline, load_layer_classes
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target
from placer.search.layer_signatures import LayerModel
from placer.search.space import Choices, Group, Space, build_space

GPUS = ("a100-sxm-40gb", "l4", "t4", "orin-agx", "rtx-4090")
# How many combinations a reduced space has at most, and how far apart its groups' nodes may be.
MOST, NEAR = 20_000, 2
# Additive noise power is drawn over so many decades; a placement's differs by so much from the sum.
NOISE_DECADES, NOISE_DEVIATION = 3.0, 0.1
NoiseUnit = Literal["edge", "layout"]
OCR = Path(rapidocr_onnxruntime.__file__).parent / "models"

# The pack asks nothing of the GPU, so all GPUs share sites and predicted layers.
TARGET = Target(typing="strong")


class ShapeNet(Net):
    """A net whose weights are zeros: only their shapes matter."""

    def __init__(self, *shape: int) -> None:
        super().__init__(shape)
        self.batch = shape[0]

    def weight(self, *shape: int) -> str:
        """Append zeros."""
        return self.constant(np.zeros(shape, np.float32))

    def block(self, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        """Convolution and Relu."""
        return self.relu(self.conv(x, inputs, outputs, kernel, stride))

    def unit(self, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> str:
        """Convolution and SiLU."""
        return self.silu(self.conv(x, inputs, outputs, kernel, stride))

    def pool(self, x: str, kernel: int, stride: int) -> str:
        """MaxPool with same padding."""
        pads = [(kernel - 1) // 2] * 4
        return self.add("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def up(self, x: str) -> str:
        """Nearest Resize to twice the size."""
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.add("Resize", x, "", scales, mode="nearest")

    def transposed(self, x: str, inputs: int, outputs: int) -> str:
        """ConvTranspose to twice the size, and Relu."""
        weight, bias = self.weight(inputs, outputs, 2, 2), self.weight(outputs)
        return self.relu(self.add("ConvTranspose", x, weight, bias, strides=[2, 2]))

    def concat(self, *parts: str) -> str:
        """Concat of channels."""
        return self.add("Concat", *parts, axis=1)

    def halves(self, x: str, channels: int) -> list[str]:
        """Split of channels in two."""
        return list(self.split(x, channels // 2, channels // 2))


def residual_net(
    batch: int, size: int, blocks: Sequence[int], *, bottleneck: bool, groups: int = 1
) -> onnx.ModelProto:
    """ResNet (He et al. 2015), or ResNeXt (Xie et al. 2016) with ``groups``."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.pool(net.block(net.input, 3, 64, 7, 2), 3, 2), 64
    for stage, count in enumerate(blocks):
        width = (64 << stage) * (2 if groups > 1 else 1)
        outputs = (256 << stage) if bottleneck else width
        for index in range(count):
            stride = 2 if stage and not index else 1
            if bottleneck:
                main = net.block(x, channels, width, 1)
                main = net.relu(net.conv(main, width, width, 3, stride, groups))
                main = net.conv(main, width, outputs, 1)
            else:
                main = net.conv(net.block(x, channels, width, 3, stride), width, width, 3)
            if stride != 1 or channels != outputs:
                x = net.conv(x, channels, outputs, 1, stride)
            x, channels = net.relu(net.add("Add", main, x)), outputs
    return classifier(net, x, channels)


def mobile_net(batch: int, size: int) -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al. 2018)."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.relu6(net.conv(net.input, 3, 32, 3, 2)), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for expansion, outputs, count, first in (*stages, (6, 160, 3, 2), (6, 320, 1, 1)):
        for index in range(count):
            stride, wide = (1 if index else first), channels * expansion
            y = net.relu6(net.conv(x, channels, wide, 1)) if expansion > 1 else x
            y = net.conv(net.relu6(net.conv(y, wide, wide, 3, stride, wide)), wide, outputs, 1)
            x = net.add("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    return classifier(net, net.relu6(net.conv(x, channels, 1280, 1)), 1280)


def efficient_net(batch: int, size: int) -> onnx.ModelProto:
    """EfficientNet-B0 (Tan & Le 2019): depthwise, SiLU, squeeze and excite."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.unit(net.input, 3, 32, 3, 2), 32
    stages = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
    for expansion, outputs, count, first, kernel in (*stages, (6, 112, 3, 1, 5), (6, 192, 4, 2, 5)):
        for index in range(count):
            stride, wide = (1 if index else first), channels * expansion
            y = net.unit(x, channels, wide) if expansion > 1 else x
            y = net.silu(net.conv(y, wide, wide, kernel, stride, wide))
            squeezed = net.unit(net.add("GlobalAveragePool", y), wide, max(8, channels // 4))
            excited = net.add("Sigmoid", net.conv(squeezed, max(8, channels // 4), wide, 1))
            y = net.conv(net.add("Mul", y, excited), wide, outputs, 1)
            x = net.add("Add", y, x) if stride == 1 and channels == outputs else y
            channels = outputs
    return classifier(net, net.unit(x, channels, 1280), 1280)


def u_net(batch: int, size: int, widths: Sequence[int]) -> onnx.ModelProto:
    """U-Net (Ronneberger et al. 2015): ConvTranspose, then Concat with the skip."""
    net = ShapeNet(batch, 3, size, size)
    skips, x, channels = [], net.input, 3
    for width in widths[:-1]:
        x = net.block(net.block(x, channels, width), width, width)
        skips.append((x, width))
        x, channels = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), width
    x = net.block(net.block(x, channels, widths[-1]), widths[-1], widths[-1])
    channels = widths[-1]
    for skip, width in reversed(skips):
        x = net.concat(net.transposed(x, channels, width), skip)
        x, channels = net.block(net.block(x, 2 * width, width), width, width), width
    return net.model(net.add("Sigmoid", net.conv(x, channels, 1, 1)))


def yolo(batch: int, size: int, width: int, repeats: int) -> onnx.ModelProto:
    """A YOLOv8-like net: C2f blocks, SPPF, a neck with nearest Resize, two heads."""
    net = ShapeNet(batch, 3, size, size)

    def c2f(x: str, inputs: int, outputs: int, *, shortcut: bool) -> str:
        half = outputs // 2
        parts = net.halves(net.unit(x, inputs, outputs), outputs)
        for _ in range(repeats):
            inner = net.unit(net.unit(parts[-1], half, half, 3), half, half, 3)
            parts.append(net.add("Add", parts[-1], inner) if shortcut else inner)
        return net.unit(net.concat(*parts), half * len(parts), outputs)

    x, channels, stages = net.unit(net.input, 3, width, 3, 2), width, []
    for _ in range(4):
        x = c2f(
            net.unit(x, channels, 2 * channels, 3, 2), 2 * channels, 2 * channels, shortcut=True
        )
        channels *= 2
        stages.append((x, channels))
    pools = [net.unit(x, channels, channels // 2)]
    for _ in range(3):
        pools.append(net.pool(pools[-1], 5, 1))
    x = net.unit(net.concat(*pools), 2 * channels, channels)
    outputs = []
    for skip, wide in reversed(stages[1:3]):
        x = c2f(net.concat(net.up(x), skip), channels + wide, wide, shortcut=False)
        channels = wide
        for classes in (64, 80):
            y = net.unit(net.unit(x, wide, wide, 3), wide, wide, 3)
            outputs.append(net.conv(y, wide, classes, 1))
    return net.model(*outputs)


def dense_net(batch: int, size: int, blocks: Sequence[int], growth: int = 32) -> onnx.ModelProto:
    """DenseNet (Huang et al. 2017): every layer reads the Concat of all before it."""
    net = ShapeNet(batch, 3, size, size)
    x, channels = net.pool(net.block(net.input, 3, 2 * growth, 7, 2), 3, 2), 2 * growth
    for index, count in enumerate(blocks):
        for _ in range(count):
            wide = net.block(x, channels, 4 * growth, 1)
            x = net.concat(x, net.block(wide, 4 * growth, growth))
            channels += growth
        if index < len(blocks) - 1:
            x, channels = net.block(x, channels, channels // 2, 1), channels // 2
            x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return classifier(net, x, channels)


def inception(batch: int, size: int, count: int) -> onnx.ModelProto:
    """Modules of four branches and a Concat (Szegedy et al. 2014)."""
    net = ShapeNet(batch, 3, size, size)
    x = net.pool(net.block(net.pool(net.block(net.input, 3, 64, 7, 2), 3, 2), 64, 192), 3, 2)
    channels = 192
    for index in range(count):
        wide = 64 + 32 * index
        x = net.concat(
            net.block(x, channels, wide, 1),
            net.block(net.block(x, channels, wide, 1), wide, 2 * wide),
            net.block(net.block(x, channels, 32, 1), 32, 64, 5),
            net.block(net.pool(x, 3, 1), channels, 64, 1),
        )
        channels = 3 * wide + 128
    return classifier(net, x, channels)


def pyramid(batch: int, size: int) -> onnx.ModelProto:
    """A feature pyramid (Lin et al. 2016) on plain stages: nearest Resize and Add."""
    net = ShapeNet(batch, 3, size, size)
    x, channels, stages = net.block(net.input, 3, 32, 3, 2), 32, []
    for width in (64, 128, 256):
        x = net.block(net.block(x, channels, width, 3, 2), width, width)
        channels = width
        stages.append((x, width))
    top = net.conv(x, channels, 128, 1)
    outputs = [net.conv(net.block(top, 128, 128), 128, 16, 1)]
    for skip, width in reversed(stages[:-1]):
        top = net.add("Add", net.conv(skip, width, 128, 1), net.up(top))
        outputs.append(net.conv(net.block(top, 128, 128), 128, 16, 1))
    return net.model(*outputs)


def decoder(batch: int, size: int, widths: Sequence[int]) -> onnx.ModelProto:
    """A generator: ConvTranspose and two residual convolutions per level."""
    net = ShapeNet(batch, widths[0], size, size)
    x, channels = net.input, widths[0]
    for width in widths[1:]:
        x = net.transposed(x, channels, width)
        x = net.relu(net.add("Add", net.conv(net.block(x, width, width), width, width, 3), x))
        channels = width
    return net.model(net.add("Tanh", net.conv(x, channels, 3, 3)))


def transformer(batch: int, tokens: int, width: int, stages: Sequence[int]) -> onnx.ModelProto:
    """A ViT (Dosovitskiy et al. 2020) of several stages: between them a quarter of the tokens is
    left, each twice as wide (Wang et al. 2021, Pyramid Vision Transformer).
    """
    net = ShapeNet(batch, tokens, width)

    def norm(x: str, width: int) -> str:
        return net.add("LayerNormalization", x, net.weight(width), net.weight(width))

    def linear(x: str, inputs: int, outputs: int) -> str:
        product = net.add("MatMul", x, net.weight(inputs, outputs))
        return net.add("Add", product, net.weight(outputs))

    def shaped(x: str, *shape: int) -> str:
        return net.add("Reshape", x, net.constant(np.array((batch, *shape), np.int64)))

    def split(x: str, perm: Sequence[int]) -> str:
        return net.add("Transpose", shaped(x, tokens, width // 64, 64), perm=perm)

    def gelu(x: str) -> str:
        root, one, half = (net.constant(np.array(v, np.float32)) for v in (math.sqrt(2), 1, 0.5))
        error = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
        return net.add("Mul", net.add("Mul", x, error), half)

    def block(x: str) -> str:
        normed = norm(x, width)
        q, k, v = (linear(normed, width, width) for _ in range(3))
        scores = net.add("MatMul", split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
        scaled = net.add("Mul", scores, net.constant(np.array(1 / 8, np.float32)))
        mixed = net.add("MatMul", net.add("Softmax", scaled, axis=-1), split(v, (0, 2, 1, 3)))
        joined = shaped(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), tokens, width)
        x = net.add("Add", x, linear(joined, width, width))
        hidden = gelu(linear(norm(x, width), width, 4 * width))
        return net.add("Add", x, linear(hidden, 4 * width, width))

    x = net.input
    for stage, count in enumerate(stages):
        if stage:
            x = linear(shaped(x, tokens // 4, 4 * width), 4 * width, 2 * width)
            tokens, width = tokens // 4, 2 * width
        for _ in range(count):
            x = block(x)
    return net.model(norm(x, width))


@dataclass(frozen=True)
class Source:
    """A model: ``build`` makes it, else it is a file with dynamic inputs fixed to ``shape``."""

    build: Callable[[], onnx.ModelProto] | None = None
    file: str = ""
    shape: tuple[int, ...] = ()

    def graph(self) -> Graph:
        """Load it as placer does."""
        if self.build is None:
            return load_model(OCR / self.file, {"x": self.shape}).graph
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            save_model(self.build(), Path(folder), path)
            return load_model(path).graph


def _ocr(name: str, *shape: int) -> Source:
    return Source(file=name, shape=shape)


_DETECTOR, _READER = "ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx"
_ROTATION = "ch_ppocr_mobile_v2.0_cls_infer.onnx"

# Spaces reduced to what can be enumerated.
REDUCED: Mapping[str, Source] = {
    "ResNet-18": Source(lambda: residual_net(8, 224, (2, 2, 2, 2), bottleneck=False)),
    "ResNet-50": Source(lambda: residual_net(8, 224, (3, 4, 6, 3), bottleneck=True)),
    "ResNeXt": Source(lambda: residual_net(8, 224, (2, 2, 2, 2), bottleneck=True, groups=32)),
    "MobileNetV2": Source(lambda: mobile_net(32, 224)),
    "EfficientNet": Source(lambda: efficient_net(16, 224)),
    "U-Net": Source(lambda: u_net(2, 256, (32, 64, 128, 256))),
    "YOLO": Source(lambda: yolo(8, 320, 16, 1)),
    "DenseNet": Source(lambda: dense_net(8, 224, (3, 4, 4))),
    "Inception": Source(lambda: inception(16, 224, 3)),
    "FPN": Source(lambda: pyramid(4, 512)),
    "decoder": Source(lambda: decoder(8, 8, (512, 256, 128, 64, 32))),
    "ViT": Source(lambda: transformer(8, 784, 128, (1, 1, 1))),
    "PP-OCRv4 cls": _ocr(_ROTATION, 32, 3, 48, 192),
}
# Whole spaces, of which the best of a long search is known.
FULL: Mapping[str, Source] = {
    "ResNet-50 full": Source(lambda: residual_net(8, 224, (3, 4, 6, 3), bottleneck=True)),
    "MobileNetV2 full": Source(lambda: mobile_net(32, 224)),
    "EfficientNet full": Source(lambda: efficient_net(16, 224)),
    "U-Net full": Source(lambda: u_net(1, 512, (32, 64, 128, 256, 512))),
    "YOLO full": Source(lambda: yolo(1, 640, 32, 2)),
    "DenseNet full": Source(lambda: dense_net(8, 224, (4, 6, 8, 6))),
    "ViT full": Source(lambda: transformer(8, 3136, 64, (2, 2, 4, 2))),
    "PP-OCRv4 det full": _ocr(_DETECTOR, 1, 3, 640, 640),
    "PP-OCRv4 rec full": _ocr(_READER, 8, 3, 48, 320),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """A model and what is decided about it."""

    name: str
    space: Space
    predictor: Predictor

    @property
    def combinations(self) -> int:
        """Number of choices of layouts for whole groups."""
        return math.prod(len(group.layouts) for group in self.space.groups)

    def layer_model(self) -> LayerModel:
        """A layer model that has seen no placement."""
        return LayerModel(self.space.graph, self.predictor)

    def choices(self) -> Iterator[dict[str, str]]:
        """All choices in a fixed order."""
        names = [group.name for group in self.space.groups]
        for layouts in itertools.product(*(group.layouts for group in self.space.groups)):
            yield dict(zip(names, layouts, strict=True))


@lru_cache(maxsize=2)
def load_problem(name: str) -> Problem:
    """The problem ``name`` of REDUCED or FULL."""
    source = REDUCED.get(name) or FULL[name]
    pack = load_pack("tensorrt")
    graph = source.graph()
    predictor = Predictor(graph, pack.rules, TARGET, "float16", pack.manifest.scheme.activation)
    space = build_space(graph, find_sites(graph, pack.rules, TARGET))
    if name in REDUCED:
        space = _reduce(space, predictor, name)
    return Problem(name, space, predictor)


def _reduce(space: Space, predictor: Predictor, name: str) -> Space:
    """Leave near groups to decide, the expensive ones more likely; all others take the default."""
    cost = _float_costs(space, predictor)
    rng = np.random.default_rng(seed_of(name))
    near = neighbours(space)
    chosen: list[int] = []
    size = 1
    while left := [
        i for i, g in enumerate(space.groups) if i not in chosen and size * len(g.layouts) <= MOST
    ]:
        around = [i for i in left if any(i in near[j] for j in chosen)]
        options = around or left
        weights = np.array([cost[space.groups[i].name] + 1e-12 for i in options])
        picked = int(rng.choice(options, p=weights / weights.sum()))
        chosen.append(picked)
        size *= len(space.groups[picked].layouts)
    groups = tuple(space.groups[i] for i in sorted(chosen))
    return Space(space.graph, space.sites, groups)


def _float_costs(space: Space, predictor: Predictor) -> dict[str, float]:
    """Estimated microseconds of each group's nodes when nothing is quantized."""
    roofline = Roofline(space.graph, load_gpu(GPUS[0]), load_layer_classes())
    by_node: dict[str, float] = {}
    for layer in predictor.predict(space.placement(space.floats)).layers:
        for node in layer.nodes:
            by_node[node.name] = roofline.layer_us(layer) / len(layer.nodes)
    return {g.name: sum(by_node.get(node, 0.0) for node in _nodes(g)) for g in space.groups}


def _nodes(group: Group) -> set[str]:
    return {node.name for site in group.sites for node in site.match.nodes.values()}


def neighbours(space: Space) -> list[set[int]]:
    """By group, the groups that have a node within ``NEAR`` of one of its nodes."""
    own = [_nodes(group) for group in space.groups]
    found = []
    for nodes in own:
        ball = set(nodes)
        for _ in range(NEAR):
            ball |= {other for node in ball for other in _adjacent(space.graph, node)}
        found.append({i for i, other in enumerate(own) if other & ball})
    return found


def _adjacent(graph: Graph, name: str) -> Iterator[str]:
    node = graph.by_name[name]
    for tensor in node.inputs:
        if tensor in graph.producer:
            yield graph.producer[tensor].name
    for tensor in node.outputs:
        yield from (e.node for e in graph.edges_of(tensor) if not e.is_graph_output)


@dataclass(frozen=True)
class Measured:
    """What building and timing a candidate tells.

    ``ratio``: latency relative to ``Space.floats``. ``layers``: mean microseconds by signature id.
    """

    ratio: float
    layers: Mapping[str, float]


class Latency:
    """The deterministic latency of one problem's placements on one GPU."""

    def __init__(
        self, problem: Problem, gpu: Gpu, hidden: float, layers: LayerModel | None = None
    ) -> None:
        """``hidden``: standard deviation of the logarithm of the hidden factor.
        ``layers``: predictions to share; they must not be those of a search.
        """
        self._gpu = gpu
        self._hidden = hidden
        self._roofline = Roofline(problem.space.graph, gpu, load_layer_classes())
        self._layers = layers or problem.layer_model()
        self._costs: dict[int, float] = {}
        floats = problem.space.placement(problem.space.floats)
        self._float_us = self._total_us(self._predict(floats))

    def measure(self, placement: Placement) -> Measured:
        """Measure one candidate."""
        counts = self._predict(placement)
        layers = {self._layers.signatures[n].id: self._costs[n] for n in counts}
        return Measured(self._total_us(counts) / self._float_us, layers)

    def ratio(self, placement: Placement) -> float:
        """The latency alone."""
        return self._total_us(self._predict(placement)) / self._float_us

    def _predict(self, placement: Placement) -> Mapping[int, int]:
        predicted = self._layers.predict(placement)
        for layer in predicted.layers:
            number = self._layers.number(layer)
            if number not in self._costs:
                signature = self._layers.signatures[number].id
                factor = math.exp(self._hidden * hidden_deviation(self._gpu.name, signature))
                self._costs[number] = factor * self._roofline.layer_us(layer)
        return predicted.counts()

    def _total_us(self, counts: Mapping[int, int]) -> float:
        return sum(self._costs[number] * count for number, count in counts.items())


def hidden_deviation(gpu: str, signature: str) -> float:
    """How far a layer's time is off the roofline, in standard deviations."""
    return float(np.random.default_rng(seed_of(gpu, signature)).standard_normal())


class Noise:
    """Noise power of one problem's placements, relative to the outputs' power.

    Additive with powers drawn log-uniform over three decades; a placement's differs from the sum by
    a tenth (standard deviation), so that adding up is nearly but not quite right. ``unit``:
    ``edge``: each kind of edge of a group has its power, so a layout that quantizes more is never
    less noisy; ``layout``: each layout but the float one has its own power, whatever it quantizes.
    """

    def __init__(self, problem: Problem, unit: NoiseUnit) -> None:
        self._space = problem.space
        self._by_layout = {
            (group.name, layout): _edge_noise(group, layout, problem.space)
            if unit == "edge"
            else _layout_noise(group, layout, problem.space)
            for group in problem.space.groups
            for layout in group.layouts
        }

    def power(self, choices: Choices) -> float:
        """Noise power of the placement of ``choices``, which must be of whole groups."""
        total = sum(self._by_layout[g.name, choices[g.name]] for g in self._space.groups)
        rng = np.random.default_rng(seed_of("deviation", self._space.placement(choices).id))
        return total * max(0.1, 1 + NOISE_DEVIATION * float(rng.standard_normal()))


def _layout_noise(group: Group, layout: str, space: Space) -> float:
    return 0.0 if layout == space.floats[group.name] else _log_uniform(group.name, layout)


def _edge_noise(group: Group, layout: str, space: Space) -> float:
    """The sum over what the first site's layout quantizes beyond its float layout."""
    layouts = group.sites[0].layouts
    edges = layouts[layout].quantize - layouts[space.floats[group.name]].quantize
    return sum(_log_uniform(group.name, edge.node, edge.input_index) for edge in sorted(edges))


def _log_uniform(*parts: object) -> float:
    rng = np.random.default_rng(seed_of("noise", *parts))
    return float(10 ** (-5 + NOISE_DECADES * rng.uniform()))


def seed_of(*parts: object) -> int:
    """A seed that is the same on every machine."""
    text = "|".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
