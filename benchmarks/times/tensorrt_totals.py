"""Estimated against published latencies of whole engines with known placements, but no layers.

First ``python -m benchmarks.networks.write published --folder networks``. Rows with pairs of
ModelOpt also need the files that ``modelopt.onnx.quantization.quantize`` (0.45.0, INT8, max) makes
of "yolo26s x1.onnx", "yolo26m-416 x1.onnx" and "vit-b x1.onnx", as "yolo26s-modelopt x1.onnx" and
so on beside them.

    python -m benchmarks.times.tensorrt_totals --folder networks --json totals.json
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from placer.graph import Edge, Graph
from placer.model import load_model, load_quantized
from placer.prediction.select import make_predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.qdq.extract import extract_placement
from placer.quantization import Placement
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

Place = Callable[[Graph], Placement]


@dataclass(frozen=True)
class Build:
    """How an engine was built: ``typing`` and version of TensorRT, and who published it."""

    gpu: str
    version: str
    typing: Literal["strong", "weak"]
    source: str


@dataclass(frozen=True)
class Total:
    """An engine: FP16 but for ``place``; ``of``: the float engine that it is compared with."""

    network: str
    pairs: str
    build: Build
    measured_ms: float
    of: str = ""


ADA = Build("rtx-4090", "10.0", "weak", "levipereira/yolov9-qat")
ADA_MODELOPT = Build("rtx-4090", "10.13", "strong", "levipereira/Model-Optimizer-ONNX")
ADA_MODELOPT_FLOAT = replace(ADA_MODELOPT, typing="weak")
ADA_LAPTOP = Build("rtx-4050-laptop", "10.14.1", "weak", "Techn08055/tensorrt-precision-lab")
ADA_L4 = Build("l4", "10.9", "strong", "docs.embedl.com, embedl-deploy")
ADA_FLOAT = Build("rtx-4090", "10.0", "weak", "WongKinYiu/yolov9 issue 327")
ORIN = Build("orin-agx", "8.5.2", "weak", "NVIDIA-AI-IOT/yolo_deepstream")
ORIN_NANO = Build("orin-nano-8gb", "10.3", "weak", "onnxsim pull request 1742")
T4 = Build("t4", "8.5.2", "weak", "NVIDIA-AI-IOT/yolo_deepstream")
T4_DOCS = Build("t4", "10.3", "weak", "docs.ultralytics.com")
A100_DOCS = Build("a100-sxm-40gb", "8.6.1", "weak", "ultralytics, README of 2023")
PRO_6000 = Build("rtx-5090", "11.3", "strong", "ultralytics pull request 26223")
PRO_6000_11 = Build("rtx-5090", "11.2", "strong", "ultralytics pull request 26167")
PRO_6000_10 = Build("rtx-5090", "10.13", "weak", "ultralytics pull request 26167")


def totals() -> Iterator[Total]:
    """All engines; a float one stands before those that are compared with it."""
    trained = {1: (1.245, 0.972, 0.868), 4: (3.329, 2.057, 1.778), 8: (6.54, 3.687, 3.058)}
    trained[12] = (10.067, 5.295, 4.618)
    for batch, (half, silu, relu) in trained.items():
        name = f"yolov9c x{batch}"
        yield Total(name, "none", ADA, half)
        yield Total(name, "trained", ADA, silu, name)
        yield Total(f"yolov9c-relu x{batch}", "trained", ADA, relu)
    for name, ms in (("t x1", 0.78), ("t x12", 2.32), ("s x1", 0.92), ("s x12", 4.19)):
        yield Total(f"yolov9{name}", "none", ADA_FLOAT, ms)
    yield Total("yolo26n x1", "none", ADA_MODELOPT_FLOAT, 0.5025)
    yield Total("yolo26n x1", "backbone", ADA_MODELOPT, 0.536, "yolo26n x1")
    for build, rows in ((ORIN, (140, 168, 207.3, 266)), (T4, (132, 169, 208, 305))):
        for batch, half, tied in zip((1, 16), rows[:2], rows[2:], strict=True):
            name = f"yolov7 x{batch}"
            yield Total(name, "none", build, 1e3 * batch / half)
            yield Total(name, "trained", build, 1e3 * batch / tied, name)
            if (build, batch) == (ORIN, 1):
                yield Total(name, "own scales", build, 1e3 / 180.4, name)
                yield Total(name, "own scales but for pools", build, 1e3 / 180.4, name)
    for network, half, integer in (
        ("resnet18 x1", 0.758, 0.485),
        ("resnet18 x8", 3.537, 1.927),
        ("resnet50-v1 x1", 1.814, 1.190),
        ("resnet50-v1 x8", 8.816, 4.930),
        ("mobilenetv2 x1", 0.850, 0.781),
        ("mobilenetv2 x8", 3.925, 2.446),
    ):
        yield Total(network, "none", ORIN_NANO, half)
        yield Total(network, "residuals", ORIN_NANO, integer, network)
    yield Total("resnet50 x1", "none", ADA_LAPTOP, 0.603)
    for pairs, ms in (
        ("scattered blocks", 0.606),
        ("adjacent blocks", 0.602),
        ("all but stem and first block", 0.381),
        ("all", 0.335),
    ):
        yield Total("resnet50 x1", pairs, ADA_LAPTOP, ms, "resnet50 x1")
    yield Total("resnet50 x1", "none", replace(ADA_L4, typing="weak"), 0.267)
    yield Total("resnet50 x1", "all", ADA_L4, 0.218, "resnet50 x1")
    yield Total("resnet50 x1", "Convs", ADA_L4, 0.222, "resnet50 x1")
    yield Total("vit-b x1", "none", ORIN_NANO, 5.59)
    yield Total("vit-b x1", "modelopt", ORIN_NANO, 4.30, "vit-b x1")
    for build, row in (
        (T4_DOCS, (1.47, 2.66, 5.86, 9.06, 14.37)),
        (A100_DOCS, (0.99, 1.20, 1.83, 2.39, 3.53)),
    ):
        for size, ms in zip("nsmlx", row, strict=True):
            yield Total(f"yolov8{size} x1", "none", build, ms)
    yield Total("yolo26s x1", "none", PRO_6000, 0.551)
    yield Total("yolo26s x1", "modelopt", PRO_6000, 0.566, "yolo26s x1")
    yield Total("yolo26m-416 x1", "none", PRO_6000_11, 0.77)
    yield Total("yolo26m-416 x1", "modelopt", PRO_6000_11, 0.755, "yolo26m-416 x1")
    yield Total("yolo26m-416 x1", "all but the head", PRO_6000_11, 0.745, "yolo26m-416 x1")
    yield Total("yolo26m-416 x1", "none", PRO_6000_10, 0.84)
    yield Total("yolo26m-416 x1", "all but the head", PRO_6000_10, 0.885, "yolo26m-416 x1")


# --- placements, from the sources of the tools ----------------------------------------------


def _convs(graph: Graph, takes: Callable[[str], bool]) -> list[Edge]:
    nodes = [n for n in graph.nodes if n.op == "Conv" and takes(n.name)]
    return [Edge(n.inputs[i], n.name, i) for n in nodes for i in (0, 1)]


def _stage(name: str) -> int:
    """The number of a node's module in a network of ultralytics; 0 if it has none."""
    return int(name.partition("model.")[2].partition("/")[0] or 0)


def _yolov9(graph: Graph) -> Placement:
    """Pairs on Convs, on both inputs of Adds, before and behind average pools, before others and
    the necks' Concats; what is joined or split has one scale.
    """
    edges, tied = _convs(graph, lambda name: "dfl" not in name), []
    for node in graph.nodes:
        inputs, output = list(node.inputs), node.outputs[0]
        if node.op == "Add" and "/m" in node.name:
            edges += [Edge(x, node.name, i) for i, x in enumerate(inputs)]
            tied.append(inputs)
        if node.op in ("MaxPool", "Resize", "AveragePool"):
            edges.append(Edge(inputs[0], node.name, 0))
        if node.op == "AveragePool":
            edges += graph.edges_of(output)
        if node.op == "MaxPool":
            tied.append([inputs[0], output])
        if node.op == "Split":
            tied.append([inputs[0], *node.outputs])
        if node.op == "Concat" and len(graph.type_of(output).shape or ()) == 4:
            tied.append([*inputs, output])
            if node.name.count("/") == 2:
                edges += [Edge(x, node.name, i) for i, x in enumerate(inputs)]
    return Placement.of(edges, tied)


def _yolov7(*ties: str) -> Place:
    """Pairs on all Convs but the heads'; one scale for inputs and outputs of operators ``ties``."""

    def place(graph: Graph) -> Placement:
        edges = _convs(graph, lambda name: "/head" not in name)
        read = {edge.tensor for edge in edges}
        tied = [
            [n.inputs[0], n.outputs[0]] if n.op == "MaxPool" else [*n.inputs, n.outputs[0]]
            for n in graph.nodes
            if n.op in ties and n.outputs[0] in read
        ]
        return Placement.of(edges, tied)

    return place


def _residuals(place: int) -> Place:
    """As ModelOpt (0.45.0, INT8): on Convs, on input ``place`` of Adds, before pools."""

    def make(graph: Graph) -> Placement:
        pools = ("MaxPool", "GlobalAveragePool")
        others = [n for n in graph.nodes if n.op == "Add" or n.op in pools]
        places = [(n, place if n.op == "Add" else 0) for n in others]
        edges = [Edge(n.inputs[i], n.name, i) for n, i in places]
        return Placement.of(_convs(graph, lambda _: True) + edges)

    return make


def _blocks(takes: Callable[[str], bool]) -> Place:
    """Pairs on the Convs and on the residual Adds of some blocks of torchvision's ResNet50, as
    "layer3.0", and if it takes "" on all that is in no block, too.
    """

    def make(graph: Graph) -> Placement:
        rest = [n for n in graph.nodes if n.op in ("MaxPool", "GlobalAveragePool", "Gemm")]
        edges = _convs(graph, lambda name: takes(_block(name)))
        for node in rest if takes("") else []:
            edges += [Edge(node.inputs[i], node.name, i) for i in range(1 + (node.op == "Gemm"))]
        for node in graph.nodes:
            if node.op == "Add" and takes(_block(node.name)):
                # The first block's shortcut has the Conv that takes the Add; it reads the other.
                place = 0 if _block(node.name) == "layer1.0" else 1
                edges.append(Edge(node.inputs[place], node.name, place))
        return Placement.of(edges)

    return make


def _block(name: str) -> str:
    return next((part for part in name.split("/") if part.startswith("layer") and "." in part), "")


PLACES: dict[tuple[str, str], Place] = {
    ("yolov9c", "trained"): _yolov9,
    ("yolov9c-relu", "trained"): _yolov9,
    ("yolov7", "trained"): _yolov7("Concat", "MaxPool"),
    ("yolov7", "own scales"): _yolov7(),
    ("yolov7", "own scales but for pools"): _yolov7("MaxPool"),
    ("resnet18", "residuals"): _residuals(1),
    ("resnet50", "scattered blocks"): _blocks(
        lambda block: block in ("layer2.1", "layer3.0", "layer3.4", "layer3.5", "layer4.1")
    ),
    ("resnet50", "adjacent blocks"): _blocks(
        lambda block: block in ("layer3.3", "layer3.4", "layer3.5")
    ),
    ("resnet50", "all but stem and first block"): _blocks(
        lambda block: block not in ("", "layer1.0")
    ),
    ("resnet50", "all"): _blocks(lambda _: True),
    ("resnet50", "Convs"): lambda g: Placement.of(_convs(g, lambda _: True)),
    ("resnet50-v1", "residuals"): _residuals(1),
    ("mobilenetv2", "residuals"): _residuals(0),
    ("yolo26n", "backbone"): lambda g: Placement.of(_convs(g, lambda name: _stage(name) < 11)),
    ("yolo26m-416", "all but the head"): lambda g: Placement.of(
        _convs(g, lambda name: _stage(name) != 23)
    ),
}


def subject(total: Total, folder: Path) -> tuple[Graph, Placement] | None:
    """The float model and the placement; None if ModelOpt's file is not there."""
    network, _, batch = total.network.partition(" ")
    if total.pairs != "modelopt":
        graph = load_model(folder / f"{total.network}.onnx").graph
        place = PLACES.get((network, total.pairs))
        return graph, place(graph) if place else Placement.of(())
    path = folder / f"{network}-modelopt {batch}.onnx"
    if not path.exists():
        return None
    extracted = extract_placement(load_quantized(path))
    graph = extracted.graph({}, path)
    last = [e for e in extracted.placement.edges if _is_last(e.node) and network == "yolo26s"]
    return graph, Placement.of([e for e in extracted.placement.edges if e not in last])


def _is_last(node: str) -> bool:
    """Whether a Conv is one of those that pull request 26223 leaves in float."""
    return _stage(node) == 23 and node.endswith(".2/Conv")


def estimated_ms(graph: Graph, placement: Placement, build: Build) -> float:
    """As ``placer explain`` estimates it."""
    gpu = load_gpu(build.gpu)
    target = Target(
        engine_version=build.version,
        compute_capability=gpu.compute_capability,
        typing=build.typing,
        base="float16",
    )
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float16")
    prediction = predictor.predict(placement)
    plan = Roofline(graph, gpu, load_layer_classes()).estimate(prediction)
    return sum(layer.time_us or 0.0 for layer in plan.layers) / 1e3


def within(pairs: Sequence[tuple[float, float]], stated: float) -> str:
    """How many estimates are off what was measured by at most the share ``stated``."""
    held = sum(abs(math.log(one / other)) <= math.log1p(stated) for one, other in pairs)
    return f"{held} of {len(pairs)} within {stated:.0%}, which placer states"


def main() -> None:
    """Print the table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder / "published" / "all"
    table, rows, floats = Table(), [], dict[tuple[str, Build], tuple[float, float]]()
    for column in ("network", "pairs", "GPU", "measured", "estimated", "off", "ratio", "estimated"):
        table.add_column(column)
    for total in totals():
        found = subject(total, folder)
        if found is None:
            continue
        ms = estimated_ms(*found, total.build)
        row = asdict(total) | {"estimated_ms": ms}
        ratios = ["", ""]
        if total.of:
            measured, estimated = floats[total.of, replace(total.build, typing="weak")]
            row |= {"ratio": total.measured_ms / measured, "estimated_ratio": ms / estimated}
            ratios = [f"{row['ratio']:.3f}", f"{row['estimated_ratio']:.3f}"]
        elif total.pairs == "none":
            floats[total.network, replace(total.build, typing="weak")] = total.measured_ms, ms
        rows.append(row)
        shown = (f"{total.measured_ms:.3f}", f"{ms:.3f}", f"{ms / total.measured_ms:.2f}")
        table.add_row(total.network, total.pairs, total.build.gpu, *shown, *ratios)
    Console(width=120).print(table)
    pairs = [(row["estimated_ratio"], row["ratio"]) for row in rows if "ratio" in row]
    latencies = [(row["estimated_ms"], row["measured_ms"]) for row in rows]
    classes = load_layer_classes()
    print("ratios:", within(pairs, classes.ratio_error))
    print("latencies:", within(latencies, classes.latency_error))
    if arguments.json:
        write_json(arguments.json, {"versions": dict(versions()), "totals": rows})


if __name__ == "__main__":
    main()
