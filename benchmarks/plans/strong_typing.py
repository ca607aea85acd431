"""What pack tensorrt predicts under strong typing, against what NVIDIA's builder makes.

Of TensorRT 10 and 11 hardly any layers are published; TensorRT-RTX, always strongly typed, is the
nearest compiler that runs here, with kernels of its own. Random small graphs and placements, each
drawn from its number and the seed alone, are predicted by pack tensorrt and built. The table counts
layers that cover the same nodes by operator and types: a difference that follows from the graph's
types is a fault of the pack, one that follows from RTX's kernels is none.

    python -m benchmarks.plans.strong_typing --cases 300 --seed 1 --json strong.json
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.errors import PlacerError, RunError
from placer.learning.builder import BuilderPlans
from placer.learning.case import Case, Refused, loaded
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.readers.rtx_log import typed_layers
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from tests.differential.graphs import random_model
from tests.differential.net import Misfit
from tests.differential.placements import random_placement
from tests.differential.rtx import GPU, TARGET


class Kind(NamedTuple):
    """Layers alike: operators, and types as predicted and as built."""

    operators: str
    reads: str
    predicted: str
    built: str


def kinds(case: Case, plans: BuilderPlans) -> Iterator[Kind]:
    """A kind for each layer that both plans have; Refused if the builder refuses the case."""
    predicted, built = plans.plans(case)
    diff = diff_plans(predicted, built)
    nodes = case.model.graph.by_name
    for pair in dict.fromkeys((*diff.matched, *diff.other_types)):
        ours, theirs = pair.predicted, pair.actual
        names = (ours.input_types, sorted(ours.output_types), sorted(theirs.output_types))
        operators = " ".join(nodes[name].op for name in ours.nodes)
        yield Kind(operators, *(", ".join(types) for types in names))


def main() -> None:
    """Print the table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    library, pack = import_builder(), load_pack("tensorrt")

    def build(model: onnx.ModelProto) -> Plan:
        report = check_model(library, model, GPU)
        if not report.accepted:
            raise RunError(str(report.refusals[0]))
        return Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)

    plans, found, cases = BuilderPlans(pack, TARGET, build), Counter[Kind](), 0
    for number in range(arguments.cases):
        random = Random(f"{arguments.seed}-{number}")
        try:
            model = loaded(random_model(random, pack.rules))
            case = Case(model, random_placement(model, pack, TARGET, random))
            found.update(list(kinds(case, plans)))
            cases += 1
        except (PlacerError, Misfit, Refused):
            continue
    same = sum(count for kind, count in found.items() if kind.predicted == kind.built)
    title = f"{cases} cases, {found.total()} layers of the same nodes, {same} of the same types"
    table = Table(title=title)
    for column in ("layers", "operators", "read", "predicted", "built"):
        table.add_column(column)
    for kind, count in found.most_common():
        if kind.predicted != kind.built:
            table.add_row(str(count), *kind)
    Console(width=140).print(table)
    if arguments.json:
        kinds_found = [{"layers": count, **kind._asdict()} for kind, count in found.most_common()]
        totals = {"cases": cases, "layers": found.total(), "same_types": same}
        write_json(arguments.json, {"versions": dict(versions()), **totals, "kinds": kinds_found})


if __name__ == "__main__":
    main()
