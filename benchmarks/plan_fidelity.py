"""How well the tensorrt pack predicts real engines: layers, types, standalone conversions, latency.

Rebuilds the float ResNet18, places Q/DQ as each published engine has them, predicts the plan and
holds it against what TensorRT built and measured on an A100.

    PLACER_REFERENCE_ENGINES=folder python benchmarks/plan_fidelity.py --json fidelity.json

``--search 50`` also lets ``placer optimize`` find a placement with the fusion model alone in that
many trials and compares its estimate with that of qat-residual-qgap's placement.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import reference_engines as engines
from rich.console import Console
from rich.table import Table

from placer.common.files import write_text
from placer.graph import Graph
from placer.model import load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.plan import Kind, Plan
from placer.plan.diff import diff_plans
from placer.prediction.gpus import load_gpu
from placer.prediction.predictor import Predictor
from placer.prediction.roofline import Roofline, load_layer_classes
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

CONVERSIONS: tuple[Kind, ...] = ("quantize", "dequantize", "requantize", "reformat")


@dataclass(frozen=True)
class Fidelity:
    """One engine: predicted against built."""

    engine: str
    f1: float
    f1_by_class: float
    predicted_conversions: int
    actual_conversions: int
    wrong_conversions: int
    measured_ms: float
    estimated_ms: float


def compare(graph: Graph, variant: str, roofline: Roofline) -> Fidelity:
    """Predict the engine ``variant`` and compare."""
    prediction = engines.predictor(graph, variant).predict(engines.placement(graph, variant))
    predicted, actual = roofline.estimate(prediction), engines.actual_plan(graph, variant)
    diff = diff_plans(predicted, actual)
    return Fidelity(
        engine=variant,
        f1=diff.exact.f1,
        f1_by_class=diff.by_class.f1,
        predicted_conversions=len(predicted.of_kind(*CONVERSIONS)),
        actual_conversions=len(actual.of_kind(*CONVERSIONS)),
        wrong_conversions=_wrong(predicted, actual),
        measured_ms=engines.measured_ms(variant),
        estimated_ms=sum(layer.time_us or 0 for layer in predicted.layers) / 1e3,
    )


def _wrong(predicted: Plan, actual: Plan) -> int:
    """Conversions of each kind that one plan has more than the other."""
    return sum(abs(len(predicted.of_kind(k)) - len(actual.of_kind(k))) for k in CONVERSIONS)


def search(budget: int) -> dict[str, float]:
    """Estimated ms of float, of the published best placement and of what optimize finds."""
    with tempfile.TemporaryDirectory() as folder:
        path = engines.save_float_model(Path(folder))
        request = Request(
            model=path,
            output=Path(folder) / "out",
            engine="fusion-model",
            gpu=engines.GPU,
            preset="quick",
            gates=("sqnr>=10",),
            budget=budget,
        )
        result = optimize(request, QuietObserver())
        graph = load_model(path).graph
    assert result.best is not None and result.baseline is not None
    predictor = Predictor(
        graph,
        load_pack("tensorrt").rules,
        Target(compute_capability="8.0", typing="strong"),
        "float16",
        "int8",
    )
    roofline = Roofline(graph, load_gpu(engines.GPU), load_layer_classes())
    plan = roofline.estimate(predictor.predict(engines.placement(graph, "qat-residual-qgap")))
    return {
        "float": result.baseline.latency.median_ms,
        "qat-residual-qgap": sum(layer.time_us or 0 for layer in plan.layers) / 1e3,
        "found": result.best.latency.median_ms,
        "trials": len(result.trials),
    }


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--search", type=int, metavar="TRIALS")
    arguments = parser.parse_args()
    graph = engines.float_graph()
    roofline = Roofline(graph, load_gpu(engines.GPU), load_layer_classes())
    found = [compare(graph, variant, roofline) for variant in engines.VARIANTS]
    base = found[0]
    table = Table(title="ResNet18, batch 32, A100: predicted against TensorRT 8")
    # Conversions: predicted / built / wrong.
    columns = (
        "engine",
        "layer F1",
        "conversions predicted/built/wrong",
        "measured ms",
        "estimate ms",
    )
    for column in (*columns, "measured / fp16", "estimate / fp16", "off by"):
        table.add_column(column)
    for entry in found:
        measured = entry.measured_ms / base.measured_ms
        estimated = entry.estimated_ms / base.estimated_ms
        counts = (entry.predicted_conversions, entry.actual_conversions, entry.wrong_conversions)
        table.add_row(
            entry.engine,
            f"{entry.f1:.3f}",
            "/".join(map(str, counts)),
            f"{entry.measured_ms:.3f}",
            f"{entry.estimated_ms:.3f}",
            f"{measured:.3f}",
            f"{estimated:.3f}",
            f"{estimated / measured - 1:+.1%}",
        )
    Console(width=140).print(table)
    document = {"versions": dict(versions()), "engines": [asdict(entry) for entry in found]}
    if arguments.search:
        document["search_estimates_ms"] = estimates = search(arguments.search)
        print("optimize with the fusion model, strong typing, estimates in ms:", estimates)
    if arguments.json:
        write_text(arguments.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
