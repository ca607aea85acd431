"""Models and deterministic objectives on which searches are compared.

A candidate takes the time of its predicted
layers: a roofline for one of several GPUs, times a factor that is hidden from every search and
different for each GPU and layer signature, because no engine follows a roofline.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from benchmarks.networks.fresh import FRESH
from benchmarks.networks.further import FURTHER
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.ocr import ocr_models
from benchmarks.networks.searched import (
    decoder,
    dense_net,
    efficient_net,
    inception,
    mobile_net,
    pyramid,
    residual_net,
    transformer,
    u_net,
    yolo,
)
from placer.graph import Graph
from placer.model import load_model, save_model
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import Gpu, load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.space import Choices, Group, Space, build_space

GPUS = ("a100-sxm-40gb", "l4", "t4", "orin-agx", "rtx-4090")
# How many combinations a reduced space has at most, and how far apart its groups' nodes may be.
MOST, NEAR = 20_000, 2
# Additive noise power is drawn over so many decades; a placement's differs by so much from the sum.
NOISE_DECADES, NOISE_DEVIATION = 3.0, 0.1
NoiseUnit = Literal["edge", "layout"]

# The pack asks nothing of the GPU, so all GPUs share sites and predicted layers.
TARGET = Target(typing="strong")


@dataclass(frozen=True)
class Source:
    """A model: ``build`` makes it, else it is a file with dynamic inputs fixed to ``shape``."""

    build: Callable[[], onnx.ModelProto] | None = None
    file: str = ""
    shape: tuple[int, ...] = ()

    def graph(self) -> Graph:
        """Load it as placer does."""
        if self.build is None:
            return load_model(ocr_models() / self.file, {"x": self.shape}).graph
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
_LATER = {
    **dict.fromkeys(("RepVGG", "GhostNet", "HRNet"), HELD_OUT),
    **dict.fromkeys(("RegNetY", "YOLOv5-like", "BiFPN", "Attention U-Net"), FRESH),
    **dict.fromkeys(("MobileViT", "FCOS", "nnU-Net", "SqueezeNet", "diffusion U-Net"), FURTHER),
}
# Whole spaces on which nothing about the search was decided.
ASIDE: Mapping[str, Source] = {
    **{name: Source(networks[name]) for name, networks in _LATER.items()},
    "ResNet-18 full": Source(lambda: residual_net(8, 224, (2, 2, 2, 2), bottleneck=False)),
    "ResNeXt full": Source(lambda: residual_net(8, 224, (2, 2, 2, 2), bottleneck=True, groups=32)),
    "Inception full": Source(lambda: inception(16, 224, 3)),
    "decoder full": Source(lambda: decoder(8, 8, (512, 256, 128, 64, 32))),
    "DenseNet small": Source(lambda: dense_net(8, 224, (3, 4, 4))),
    "YOLO small": Source(lambda: yolo(8, 320, 16, 1)),
    "PP-OCRv4 cls full": _ocr(_ROTATION, 32, 3, 48, 192),
    "ViT small": Source(lambda: transformer(8, 784, 128, (1, 1, 1))),
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
    """The problem ``name`` of REDUCED, FULL or ASIDE."""
    source = {**REDUCED, **FULL, **ASIDE}[name]
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
    Choices of one motion-normal form are one to the engine and have the noise of the quietest of
    them: pairs that motion implies round what is rounded already, and add nothing.
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
        self._quietest: dict[int, tuple[str, ...]] = {}
        self._forms = forms_of(problem.name)
        for own, form in self._forms.items():
            known = self._quietest.setdefault(form, own)
            if self._sum(own) < self._sum(known):
                self._quietest[form] = own

    def power(self, choices: Choices) -> float:
        """Noise power of the placement of ``choices``, which must be of whole groups."""
        form = self._forms[tuple(choices[group.name] for group in self._space.groups)]
        own = self._quietest[form]
        rng = np.random.default_rng(seed_of("deviation", *own))
        return self._sum(own) * max(0.1, 1 + NOISE_DEVIATION * float(rng.standard_normal()))

    def _sum(self, layouts: tuple[str, ...]) -> float:
        """Of the noise of ``layouts`` of all groups."""
        names = (group.name for group in self._space.groups)
        return sum(self._by_layout[own] for own in zip(names, layouts, strict=True))


@lru_cache(maxsize=2)
def forms_of(name: str) -> dict[tuple[str, ...], int]:
    """By the layouts of all groups, the motion-normal form of their placement.

    ``name``: a problem of REDUCED; others have too many choices.
    """
    problem = load_problem(name)
    layers, near, found = problem.layer_model(), None, dict[tuple[str, ...], int]()
    for choices in problem.choices():
        near = layers.predict(problem.space.placement(choices), near)
        found[tuple(choices.values())] = near.form
    return found


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
