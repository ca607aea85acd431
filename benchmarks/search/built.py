"""Searches on predicted and on built plans: what each returns, both judged on built plans.

For each network two searches of the same budget and seed: ``fusion-model`` with the pack
tensorrt-rtx, and ``tensorrt-rtx-build``, which has NVIDIA's builder make every candidate. Both
results, the rules' default and the float model are then built, and their times estimated by the
same roofline: what differs is what the prediction does not know. No time was measured. Where the
plan that was predicted for a result is not the one that is built, the differences are counted by
operators.

    python -m benchmarks.search.built --json built.json --keep runs/
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from rich.console import Console
from rich.table import Table

import placer
from benchmarks.networks import topologies, unseen
from placer.common.files import write_text
from placer.graph import Node
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.trial_setup import set_up
from placer.optimizer.trials.proposer import predictor_of
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.diff_result import PlanDiff
from placer.quantization import EMPTY, Placement
from placer.quantization.placement_file import load_placement
from placer.results.result import versions

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PREDICTED, BUILT = "fusion-model", "tensorrt-rtx-build"
NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "digits": lambda: onnx.load(DIGITS),
    "resnet18": lambda: topologies.resnet(64, (2, 2, 2, 2), bottleneck=False),
    "mobilenet_v2": lambda: topologies.mobilenet_v2(64),
    "c2f": lambda: topologies.c2f(64),
    "unet": lambda: topologies.unet(64),
    "vit, 2 blocks": lambda: topologies.vit(64, 128, 4, 2),
    "convnext": lambda: unseen.convnext(64),
    "pyramid": lambda: unseen.pyramid(64),
}
GATE = "sqnr>=10"


@dataclass(frozen=True)
class Judged:
    """A placement on its built plan: estimated time as a share of float's, and its layers.

    ``promised``: the same share by the predicted plan. ``f1``: strict, of predicted layers.
    """

    edges: int
    share: float
    promised: float
    layers: int
    f1: float
    differences: Mapping[str, int]


def request(model: Path, engine: str, gpu: str, budget: int, output: Path) -> Request:
    """The same for both engines but for where plans come from."""
    return Request(
        model=model, engine=engine, gpu=gpu, pack="tensorrt-rtx", gates=(GATE,), budget=budget,
        preset="quick", calibration="minmax", output=output,
    )  # fmt: skip


def searched(asked: Request) -> None:
    """Run the search, or go on with it; where no candidate meets the gate, float is the result."""
    try:
        placer.optimize(
            asked.model, engine=asked.engine, gpu=asked.gpu, pack=asked.pack, gates=asked.gates,
            budget=asked.budget, preset="quick", calibration="minmax", output=asked.output,
        )  # fmt: skip
    except placer.GateError as error:
        print(f"{asked.output}: {error}")


def total(plan: Plan) -> float:
    """Estimated microseconds."""
    return sum(layer.time_us or 0.0 for layer in plan.layers)


def compared(model: Path, gpu: str, budget: int, folder: Path) -> dict[str, Judged]:
    """What both searches return for one network, the default and float, on built plans."""
    asked = {
        engine: request(model, engine, gpu, budget, folder / engine)
        for engine in (PREDICTED, BUILT)
    }
    for one in asked.values():
        searched(one)
    tasks = {engine: prepare(one, QuietObserver()) for engine, one in asked.items()}
    setups = {engine: set_up(task, QuietObserver()) for engine, task in tasks.items()}
    task = tasks[BUILT]
    predictor = predictor_of(task)
    placements: dict[str, Placement] = {
        "float": EMPTY,
        "rules' default": task.space.placement(task.space.defaults),
    }
    for engine in (PREDICTED, BUILT):
        file = folder / engine / "placement.yaml"
        placements[engine] = load_placement(file, task.model.graph) if file.is_file() else EMPTY
    plans = {
        (engine, name): setups[engine].candidates.compile(placement).plan()
        for engine in (PREDICTED, BUILT)
        for name, placement in placements.items()
    }
    found = {}
    for name, placement in placements.items():
        built, predicted = plans[BUILT, name], plans[PREDICTED, name]
        foretold = predictor.predict(placement).plan
        diff = diff_plans(foretold, built)
        found[name] = Judged(
            edges=len(placement.edges),
            share=total(built) / total(plans[BUILT, "float"]),
            promised=total(predicted) / total(plans[PREDICTED, "float"]),
            layers=sum(layer.kind != "no-op" for layer in built.layers),
            f1=diff.exact.f1,
            differences=dict(Counter(differences(foretold, built, diff, task.model.graph.by_name))),
        )
    return found


def differences(
    predicted: Plan, built: Plan, diff: PlanDiff, nodes: Mapping[str, Node]
) -> Iterator[str]:
    """Layers without a partner of the same nodes and types, by side and operators; conversions."""
    other = {id(pair.predicted) for pair in diff.other_types}
    same = [pair for pair in diff.matched if id(pair.predicted) not in other]
    paired = {id(layer) for pair in same for layer in (pair.predicted, pair.actual)}
    for side, plan in (("predicted", predicted), ("built", built)):
        for layer in plan.of_kind("compute"):
            if id(layer) not in paired:
                ops = sorted({nodes[name].op for name in layer.nodes if name in nodes})
                yield f"only {side}: {'+'.join(ops)}"
    for conversion in diff.conversions:
        yield from (f"false {conversion.kind}" for _ in conversion.missing)
        yield from (f"missed {conversion.kind}" for _ in conversion.extra)


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--budget", type=int, default=10, help="trials of each search")
    parser.add_argument("--gpu", default="l4")
    parser.add_argument("--keep", type=Path, help="folder of the searches, which go on there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Judged]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        for name in options.networks:
            folder = keep / name.replace(", ", "-").replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            model = folder / "model.onnx"
            if not model.is_file():
                onnx.save(NETWORKS[name](), model)
            rows[name] = compared(model, options.gpu, options.budget, folder)
            _print(Console(width=110, highlight=False), {name: rows[name]})
            if options.json:
                _write(options, rows)
    _print(Console(width=110, highlight=False), rows)


def _print(console: Console, rows: Mapping[str, Mapping[str, Judged]]) -> None:
    table = Table(title="share of float's time on built plans, estimated (promised by prediction)")
    for column in ("network", "float", "rules' default", PREDICTED, BUILT):
        table.add_column(column)
    for network, found in rows.items():
        cells = (
            f"{one.share:.3f} ({one.promised:.3f})\n{one.edges} edges, {one.layers} layers, "
            f"F1 {one.f1:.2f}"
            for one in found.values()
        )
        table.add_row(network, *cells)
    console.print(table)


def _write(options: argparse.Namespace, rows: Mapping[str, Mapping[str, Judged]]) -> None:
    networks = {
        network: {name: asdict(one) for name, one in found.items()}
        for network, found in rows.items()
    }
    document = {
        "gpu": options.gpu, "budget": options.budget, "gate": GATE,
        "versions": dict(versions()), "networks": networks,
    }  # fmt: skip
    write_text(options.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
