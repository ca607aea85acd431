"""How well the tensorrt pack predicts real engines: layers, types, standalone conversions, latency.

Rebuilds each float model, places Q/DQ as each published engine has them, predicts the plan and
holds it against what TensorRT 8 built and measured; every layer of both sides counts. The engines
of ResNet18 on an A100 are training data: rules and layer classes were fitted to them. On the others
rules were corrected after a first comparison, so they are no test any more either.

    PLACER_REFERENCE_ENGINES=folder python -m benchmarks.plans.tensorrt --json fidelity.json

``--differences`` lists each difference. ``--search 50`` also lets ``placer optimize`` find a
placement with the fusion model alone in that many trials and compares its estimate with that of
qat-residual-qgap's placement.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.plans import reference_engines as engines
from placer.model import load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.plan.diff import diff_plans
from placer.plan.diff_result import CONVERSIONS, PlanDiff, Score, sentences
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target


@dataclass(frozen=True)
class Fidelity:
    """One engine: predicted against built; ``layers``: built ones that run anything."""

    engine: str
    fitted: bool
    layers: int
    by_nodes: Score
    exact: Score
    built_conversions: int
    false_conversions: int
    missed_conversions: int
    measured_ms: float
    estimated_ms: float


def compare(entry: engines.Engine) -> tuple[Fidelity, PlanDiff]:
    """Predict the engine and compare."""
    roofline = Roofline(entry.graph, load_gpu(entry.gpu), load_layer_classes())
    predicted, actual = roofline.estimate(entry.predict()), entry.actual()
    diff = diff_plans(predicted, actual)
    fidelity = Fidelity(
        engine=entry.name,
        fitted=entry.fitted,
        layers=len(actual.of_kind("compute", *CONVERSIONS)),
        by_nodes=diff.by_nodes,
        exact=diff.exact,
        built_conversions=len(actual.of_kind(*CONVERSIONS)),
        false_conversions=diff.false_conversions,
        missed_conversions=diff.missed_conversions,
        measured_ms=entry.median_ms,
        estimated_ms=sum(layer.time_us or 0 for layer in predicted.layers) / 1e3,
    )
    return fidelity, diff


def pooled(found: list[Fidelity], title: str) -> Fidelity:
    """All layers of ``found`` taken together; times are not."""
    return Fidelity(
        engine=title,
        fitted=found[0].fitted,
        layers=sum(f.layers for f in found),
        by_nodes=_together([f.by_nodes for f in found]),
        exact=_together([f.exact for f in found]),
        built_conversions=sum(f.built_conversions for f in found),
        false_conversions=sum(f.false_conversions for f in found),
        missed_conversions=sum(f.missed_conversions for f in found),
        measured_ms=0.0,
        estimated_ms=0.0,
    )


def _together(scores: list[Score]) -> Score:
    return Score(
        sum(score.matched for score in scores),
        sum(score.predicted for score in scores),
        sum(score.actual for score in scores),
    )


def print_table(found: list[Fidelity]) -> None:
    """Print a line per engine, and one for those fitted to and those corrected on."""
    table = Table(title="predicted against TensorRT 8, every layer counted")
    for column in ("engine", "F1 by nodes", "F1 with types", "conversions built/false/missed"):
        table.add_column(column)
    for column in ("per layer", "measured ms", "estimate ms", "estimate / measured"):
        table.add_column(column)
    for fitted in (True, False):
        group = [f for f in found if f.fitted == fitted]
        title = "pooled, training data" if fitted else "pooled, corrected on"
        for entry in [*group, *([pooled(group, title)] if group else [])]:
            table.add_row(*_row(entry), end_section=entry.engine == title)
    Console(width=140).print(table)


def _row(entry: Fidelity) -> tuple[str, ...]:
    wrong = entry.false_conversions + entry.missed_conversions
    counts = (entry.built_conversions, entry.false_conversions, entry.missed_conversions)
    times = ("", "", "")
    if entry.measured_ms:
        ratio = entry.estimated_ms / entry.measured_ms
        times = (f"{entry.measured_ms:.3f}", f"{entry.estimated_ms:.3f}", f"{ratio:.2f}")
    return (
        entry.engine,
        f"{entry.by_nodes.f1:.3f}",
        f"{entry.exact.f1:.3f}",
        "/".join(map(str, counts)),
        f"{wrong / entry.layers:.3f}",
        *times,
    )


def ratio_errors(found: list[Fidelity]) -> list[float]:
    """Relative errors of the estimated latency ratios of all pairs of engines of one network."""
    errors = []
    for one, other in itertools.combinations(found, 2):
        if one.engine.partition("/")[0] == other.engine.partition("/")[0] != "bevfusion-orin":
            estimated = one.estimated_ms / other.estimated_ms
            errors.append(abs(math.log(estimated * other.measured_ms / one.measured_ms)))
    return sorted(errors)


def search(budget: int) -> dict[str, float]:
    """Estimated ms of float, of the published best placement and of what optimize finds."""
    best = engines.engine("resnet18-a100/qat-residual-qgap")
    with tempfile.TemporaryDirectory() as folder:
        path = engines.save_resnet18(Path(folder))
        request = Request(
            model=path,
            output=Path(folder) / "out",
            engine="fusion-model",
            gpu=best.gpu,
            preset="quick",
            gates=("sqnr>=10",),
            budget=budget,
        )
        result = optimize(request, QuietObserver())
        graph = load_model(path).graph
    assert result.best is not None and result.baseline is not None
    base, found = result.baseline.latency, result.best.latency
    assert base is not None and found is not None
    target = Target(compute_capability="8.0", typing="strong")
    predictor = Predictor(graph, load_pack("tensorrt").rules, target, "float16", "int8")
    roofline = Roofline(graph, load_gpu(best.gpu), load_layer_classes())
    plan = roofline.estimate(predictor.predict(best.place(graph)))
    return {
        "float": base.median_ms,
        "qat-residual-qgap": sum(layer.time_us or 0 for layer in plan.layers) / 1e3,
        "found": found.median_ms,
        "trials": len(result.trials),
    }


def main() -> None:
    """Print the table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("--search", type=int, metavar="TRIALS")
    arguments = parser.parse_args()
    found = []
    for entry in engines.present():
        fidelity, diff = compare(entry)
        found.append(fidelity)
        if arguments.differences:
            print(f"\n{entry.name}: only predicted {diff.only_predicted}, only {diff.only_actual}")
            print("\n".join(sentences(diff)))
    print_table(found)
    errors = ratio_errors(found)
    text = ", ".join(f"{math.expm1(error):.1%}" for error in errors)
    print(f"errors of {len(errors)} ratios of two engines of one network: {text}")
    document = {"versions": dict(versions()), "engines": [asdict(entry) for entry in found]}
    if arguments.search:
        document["search_estimates_ms"] = estimates = search(arguments.search)
        print("optimize with the fusion model, strong typing, estimates in ms:", estimates)
    if arguments.json:
        write_json(arguments.json, document)


if __name__ == "__main__":
    main()
