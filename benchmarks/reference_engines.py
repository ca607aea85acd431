"""Real TensorRT engines of ResNet18 on an A100, and the float model and placements behind them.

They come from NVIDIA's TensorRT Engine Explorer (github.com/NVIDIA/TensorRT,
tools/experimental/trt-engine-explorer/examples/pytorch/resnet/A100). The folder that holds
``fp32``, ``fp16``, ``qat``, ``qat-residual`` and ``qat-residual-qgap`` is named by the environment
variable PLACER_REFERENCE_ENGINES.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
from topologies import resnet

from placer.graph import Edge, Graph
from placer.model import load_model
from placer.plan import Layer, Plan
from placer.plan.readers.read import read_plan
from placer.prediction.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

VARIABLE = "PLACER_REFERENCE_ENGINES"
VARIANTS = ("fp16", "qat", "qat-residual", "qat-residual-qgap")
GPU = "a100"
# trtexec of the 8.x era chose between FP32, FP16 and INT8 itself.
TARGET = Target(engine_version="8.4", compute_capability="8.0", typing="weak")
_NAMED = ("Conv", "Add", "MaxPool", "GlobalAveragePool", "Gemm")


def folder() -> Path:
    """Where the engines are; SystemExit if the variable does not say."""
    path = Path(os.environ.get(VARIABLE, ""))
    if not (path / "qat" / "graph.json").is_file():
        raise SystemExit(f"set {VARIABLE} to the folder that holds {', '.join(VARIANTS)}")
    return path


def save_float_model(where: Path) -> Path:
    """Write ResNet18 at 224 x 224, batch 32, with random weights into the folder ``where``."""
    path = where / "resnet18.onnx"
    onnx.save(resnet(224, (2, 2, 2, 2), bottleneck=False, batch=32, classes=1000), path)
    return path


def float_graph() -> Graph:
    """The same model, normalised."""
    with tempfile.TemporaryDirectory() as temporary:
        return load_model(save_float_model(Path(temporary))).graph


def placement(graph: Graph, variant: str) -> Placement:
    """The Q/DQ placement of ``variant``, as the engines' README states it."""
    edges: list[Edge] = []
    if variant.startswith("qat"):
        edges += _edges(graph, ("Conv", "Gemm"), (0, 1))
    if "residual" in variant:
        edges += _edges(graph, ("Add",), (1,))
    if "qgap" in variant:
        edges += _edges(graph, ("GlobalAveragePool",), (0,))
    return Placement.of(edges)


def _edges(graph: Graph, ops: tuple[str, ...], indices: Iterable[int]) -> list[Edge]:
    return [Edge(n.inputs[i], n.name, i) for n in graph.nodes if n.op in ops for i in indices]


def predictor(graph: Graph, variant: str) -> Predictor:
    """Predicts what TensorRT 8 made of ``graph`` on the A100."""
    base = "float" if variant == "fp32" else "float16"
    return Predictor(graph, load_pack("tensorrt").rules, TARGET, base, "int8")


def actual_plan(graph: Graph, variant: str) -> Plan:
    """The engine's layers with their measured times, its nodes called as in ``graph``.

    The exporter numbered the nodes in topological order, with the Q/DQ nodes in between, so the
    i-th Conv by number is the i-th Conv of the graph.
    """
    path = folder() / variant
    plan = read_plan(path / "graph.json", path / "profile.json")
    names = _names(graph, plan.layers)
    layers = [replace(x, nodes=tuple(names[n] for n in x.nodes if n in names)) for x in plan.layers]
    return replace(plan, layers=tuple(layers))


def _names(graph: Graph, layers: Iterable[Layer]) -> Mapping[str, str]:
    found = {node for layer in layers for node in layer.nodes}
    names: dict[str, str] = {}
    for op in _NAMED:
        numbered = sorted(
            (n for n in found if re.fullmatch(rf"{op}_\d+", n)), key=lambda n: int(n.split("_")[1])
        )
        names.update(zip(numbered, (n.name for n in graph.nodes if n.op == op), strict=True))
    return names


def measured_ms(variant: str) -> float:
    """Median GPU compute time of the whole engine."""
    text = (folder() / variant / "profile.metadata.json").read_text(encoding="utf-8")
    latency: list[float] = json.loads(text)["performance_summary"]["GPU Compute Time"]
    return latency[3]  # min, max, mean, median, 99th percentile
