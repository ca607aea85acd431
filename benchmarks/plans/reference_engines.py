"""Real, published TensorRT engines, and the float model and the placement behind each.

The environment variable PLACER_REFERENCE_ENGINES names the folder with a subfolder per model
(``resnet18-a100``, ``resnet18-cifar-rtx-3090``, ``bevfusion-orin``, ``resnet50-tf-rtx-3090``,
``mobilenet-v2-titan-rtx`` and so on), in it one per engine with ``graph.json`` (trtexec
--exportLayerInfo) and ``profile.json``; engines that are not there are left out. Sources:

- resnet18-a100, resnet50-tf-rtx-3090: github.com/NVIDIA/TensorRT,
  tools/experimental/trt-engine-explorer/examples
- mobilenet-v2-titan-rtx: the same, tests/inputs (mobilenet.qat, mobilenet_v2_residuals.qat)
- resnet18-cifar-rtx-3090: github.com/leimao/PyTorch-Eager-Mode-Quantization-TensorRT-Acceleration
- bevfusion-orin: github.com/hehern/bevfusion_spconv_deploy, transcribed
- alexnet-, mobilenet_v2- and resnet18-rtx-3060-laptop, of TensorRT 10.4:
  github.com/fuzzylabs/edge-vision-power-estimation at 6d8ac68a, desktop/torch_onnx_trtexec
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import onnx

from benchmarks.networks import reference_models as models
from benchmarks.networks import torchvision_models as torchvision
from benchmarks.networks.topologies import mobilenet_v2, resnet
from placer.graph import Edge, Graph, index_graph, tensor_type
from placer.model import load_model
from placer.model.normalize import infer_values
from placer.plan import Layer, Plan
from placer.plan.readers.read import read_plan
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

VARIABLE = "PLACER_REFERENCE_ENGINES"


@dataclass(frozen=True)
class Network:
    """A float model. ``normalized`` False: the engine's file kept its BatchNormalization."""

    build: Callable[[], onnx.ModelProto]
    normalized: bool = True

    def graph(self) -> Graph:
        """The model, indexed; made once."""
        return _graph(self)


@dataclass(frozen=True)
class Engine:
    """One engine.

    ``base``: float type of what is not quantized. ``place``: edges that carry a pair, and sets of
    tensors of one scale. ``rename``: the graph's name of a node that the engine names. ``fitted``:
    rules and layer classes were fitted to it. On the others rules were corrected. ``timed``: its
    times take part in fits.
    """

    name: str
    network: Network
    gpu: str
    version: str
    base: str
    median_ms: float
    place: Callable[[Graph], Placement]
    rename: Callable[[str], str] = str
    fitted: bool = False
    timed: bool = True

    @property
    def graph(self) -> Graph:
        """The float model."""
        return self.network.graph()

    @property
    def target(self) -> Target:
        """What is built for: all these engines chose their types themselves."""
        capability = load_gpu(self.gpu).compute_capability
        return Target(engine_version=self.version, compute_capability=capability, typing="weak")

    def predict(self) -> Prediction:
        """What the tensorrt pack predicts."""
        rules = load_pack("tensorrt").rules
        predictor = Predictor(self.graph, rules, self.target, self.base, "int8")
        return predictor.predict(self.place(self.graph))

    def actual(self) -> Plan:
        """The engine's layers with their measured times, its nodes called as in the graph."""
        path = folder() / self.name
        plan = read_plan(path / "graph.json", path / "profile.json")
        names = self._names(plan.layers)
        layers = [
            replace(layer, nodes=tuple(names.get(n, n) for n in layer.nodes))
            for layer in plan.layers
        ]
        return replace(plan, layers=tuple(layers))

    @property
    def is_one_run(self) -> bool:
        """Whether the profile is of a single run."""
        text = (folder() / self.name / "profile.json").read_text(encoding="utf-8")
        return bool(json.loads(text)[0]["count"] == 1)

    def _names(self, layers: Sequence[Layer]) -> Mapping[str, str]:
        found = {node for layer in layers for node in layer.nodes}
        if self.network in (RESNET18, MOBILENET_V2):  # Exported by PyTorch with numbers.
            return _by_number(self.graph, found)
        return {node: self.rename(node) for node in found}


def folder() -> Path:
    """Where the engines are; SystemExit if the variable does not say."""
    path = Path(os.environ.get(VARIABLE, ""))
    if not (path / "resnet18-a100" / "qat" / "graph.json").is_file():
        raise SystemExit(f"set {VARIABLE} to the folder that holds resnet18-a100 and its like")
    return path


@cache
def _graph(network: Network) -> Graph:
    if not network.normalized:
        proto = network.build()
        values = infer_values(proto, {}, Path("model.onnx"))
        return index_graph(proto.graph, {name: tensor_type(v) for name, v in values.items()})
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.onnx"
        onnx.save(network.build(), path)
        return load_model(path).graph


_NUMBERED = ("Conv", "Add", "Clip", "MaxPool", "GlobalAveragePool", "Gemm", "Relu", "Flatten")


def _by_number(graph: Graph, found: Iterable[str]) -> Mapping[str, str]:
    """The exporter numbered nodes in topological order, with the Q/DQ nodes in between, so the
    i-th Conv by number is the i-th Conv of the graph. Of Relu and Flatten not all are named.
    """
    names: dict[str, str] = {}
    for op in _NUMBERED:
        numbers = sorted(int(n.split("_")[1]) for n in found if re.fullmatch(rf"{op}_\d+", n))
        own = [n.name for n in graph.nodes if n.op == op]
        if len(numbers) == len(own):
            names.update({f"{op}_{n}": name for n, name in zip(numbers, own, strict=True)})
    return names


# --- placements -----------------------------------------------------------------------------


def _edges(graph: Graph, ops: tuple[str, ...], indices: Iterable[int]) -> list[Edge]:
    return [Edge(n.inputs[i], n.name, i) for n in graph.nodes if n.op in ops for i in indices]


def _none(_graph: Graph) -> Placement:
    return Placement.of(())


def _qat(*more: tuple[str, int]) -> Callable[[Graph], Placement]:
    """Pairs on input and weight of every Conv and Gemm, and on input ``index`` of more."""

    def place(graph: Graph) -> Placement:
        edges = _edges(graph, ("Conv", "Gemm"), (0, 1))
        return Placement.of([*edges, *(e for op, i in more for e in _edges(graph, (op,), (i,)))])

    return place


def _keras(graph: Graph) -> Placement:
    """Pairs on input and weight of Conv and MatMul, on the shortcut of each Add and on the pool."""
    edges = _edges(graph, ("Conv", "MatMul"), (0, 1)) + _edges(graph, ("GlobalAveragePool",), (0,))
    adds = [e for e in _edges(graph, ("Add",), (0,)) if "block" in e.node]
    return Placement.of([*edges, *adds])


def _everywhere(graph: Graph) -> Placement:
    """Eager mode: pairs at every reader of every tensor, one scale before and behind what keeps
    values and at Adds before their Relu.
    """
    edges = [Edge(t, n.name, i) for n in graph.nodes for i, t in enumerate(n.inputs) if i < 2 and t]
    edges = [e for e in edges if not _is_relu_of_conv(graph, e)]
    edges += [Edge(tensor, "", index) for index, tensor in enumerate(graph.outputs)]
    kept = ("MaxPool", "GlobalAveragePool", "Flatten", "Relu")
    shared = [
        (n.inputs[0], n.outputs[0])
        for n in graph.nodes
        if n.op in kept and not _is_relu_of_conv(graph, Edge(n.inputs[0], n.name, 0))
    ]
    return Placement.of(edges, shared)


def _is_relu_of_conv(graph: Graph, edge: Edge) -> bool:
    reader = next((n for n in graph.nodes if n.name == edge.node), None)
    maker = graph.producer.get(edge.tensor)
    return reader is not None and reader.op == "Relu" and maker is not None and maker.op == "Conv"


def _camera(graph: Graph) -> Placement:
    edges = _edges(graph, ("Conv",), (0, 1)) + _edges(graph, ("Add",), (1,))
    concats = [n for n in graph.nodes if n.name in ("Concat_737", "Concat_779")]
    edges += [Edge(t, n.name, i) for n in concats for i, t in enumerate(n.inputs)]
    return Placement.of(edges, [(*n.inputs, *n.outputs) for n in concats])


def _fuser(graph: Graph) -> Placement:
    edges = _edges(graph, ("Conv", "ConvTranspose"), (0, 1))
    return Placement.of(e for e in edges if e.node != "Conv_144")


def _eager_name(node: str) -> str:
    """What the float model calls a node of the model that eager mode converted."""
    name = re.sub(r"/layer(\d)/(\d)/", r"/layer\1/layer\1.\2/", node.removeprefix("/model_fp32"))
    name = name.replace("/downsample/0/", "/downsample/downsample.0/")
    name = name.replace("/conv1/Relu", "/relu1/Relu") if "layer" in name else name
    return "/relu/Relu" if name == "/conv1/Relu" else name


# --- the engines ----------------------------------------------------------------------------


def _resnet18() -> onnx.ModelProto:
    return resnet(224, (2, 2, 2, 2), bottleneck=False, batch=32, classes=1000)


def _mobilenet_v2() -> onnx.ModelProto:
    return mobilenet_v2(224, classes=1000)


RESNET18 = Network(_resnet18)
CIFAR = Network(models.resnet18_cifar)
RESNET50_TF = Network(models.resnet50_tf)
CAMERA = Network(models.bevfusion_camera)
FUSER = Network(models.bevfusion_fuser, normalized=False)
RESNET50_TF_QAT = Network(models.resnet50_tf_qat)
MOBILENET_V2 = Network(_mobilenet_v2)


def _a100(
    variant: str, median_ms: float, place: Callable[[Graph], Placement], base: str = "float16"
) -> Engine:
    name = f"resnet18-a100/{variant}"
    return Engine(name, RESNET18, "a100-pcie-80gb", "8.4", base, median_ms, place, fitted=True)


A100 = (
    _a100("fp32", 1.991, _none, "float"),
    _a100("fp16", 0.862, _none),
    _a100("qat", 0.883, _qat()),
    _a100("qat-residual", 0.546, _qat(("Add", 1))),
    _a100("qat-residual-qgap", 0.500, _qat(("Add", 1), ("GlobalAveragePool", 0))),
)
OTHERS = (
    Engine("resnet18-cifar-rtx-3090/fp16", CIFAR, "rtx-3090", "8.6.3", "float16", 0.188, _none),
    Engine(
        "resnet18-cifar-rtx-3090/int8", CIFAR, "rtx-3090", "8.6.3", "float", 0.153, _everywhere,
        _eager_name,
    ),
    Engine("resnet50-tf-rtx-3090/fp32", RESNET50_TF, "rtx-3090", "8.4", "float", 12.168, _none),
    Engine("resnet50-tf-rtx-3090/fp16", RESNET50_TF, "rtx-3090", "8.4", "float16", 4.020, _none),
    Engine("bevfusion-orin/camera", CAMERA, "orin-agx", "8.5.2", "float16", 8.607, _camera),
    Engine("bevfusion-orin/fuser", FUSER, "orin-agx", "8.5.2", "float16", 5.302, _fuser),
)  # fmt: skip
# First compared on 2026-11-23; what they showed was mended since.
LATER = (
    Engine(
        "resnet50-tf-rtx-3090/qat", RESNET50_TF_QAT, "rtx-3090", "8.4", "float16", 2.195, _keras
    ),
    Engine(
        "mobilenet-v2-titan-rtx/qat", MOBILENET_V2, "titan-rtx", "8.4", "float16", 0.351, _qat()
    ),
    Engine(
        "mobilenet-v2-titan-rtx/qat-residual", MOBILENET_V2, "titan-rtx", "8.4", "float16", 0.258,
        _qat(("Add", 0)),
    ),
)  # fmt: skip
# TensorRT 10.4, first compared on 2026-11-23: files in FP16, batch 1, no pairs. No figure is
# fitted to their times.
TENSORRT_10 = tuple(
    Engine(
        f"{name}-rtx-3060-laptop/fp16", Network(build), "rtx-3060-laptop", "10.4", "float16",
        median_ms, _none, timed=False,
    )
    for name, build, median_ms in (
        ("alexnet", torchvision.alexnet, 0.496),
        ("mobilenet_v2", torchvision.mobilenet_v2, 0.232),
        ("resnet18", torchvision.resnet18, 0.277),
    )
)  # fmt: skip
ENGINES = (*A100, *OTHERS, *LATER, *TENSORRT_10)


def present() -> tuple[Engine, ...]:
    """The engines of ``ENGINES`` whose files are in the folder."""
    return tuple(e for e in ENGINES if (folder() / e.name / "graph.json").is_file())


def network(entry: Engine) -> str:
    """What engines are of the same network on the same GPU; only these are compared."""
    return entry.name if entry.name.startswith("bevfusion") else entry.name.partition("/")[0]


def engine(name: str) -> Engine:
    """The engine called ``name``."""
    return next(entry for entry in ENGINES if entry.name == name)


def save_resnet18(where: Path) -> Path:
    """Write the ResNet18 of the A100's engines into the folder ``where``."""
    path = where / "resnet18.onnx"
    onnx.save(_resnet18(), path)
    return path


def metadata_median_ms(entry: Engine) -> float | None:
    """Median GPU compute time that the engine's own metadata states, None where it has none."""
    path = folder() / entry.name / "profile.metadata.json"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    latency: list[float] = json.loads(text)["performance_summary"]["GPU Compute Time"]
    return latency[3]  # min, max, mean, median, 99th percentile
