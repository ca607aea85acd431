"""Random small graphs and placements: where do predicted plans differ from an engine's?

Each case is drawn from its number and the seed alone, built by the real engine, and its layers are
held against the predicted ones; every layer on both sides counts. Of each difference a minimal
graph is searched for. The table counts cases and differences by operator.

    python -m benchmarks.plans.differences --engine tensorrt-rtx --cases 300 --seed 1
    python -m benchmarks.plans.differences --engine tensorrt-rtx --seed 1 --only 17
    python -m benchmarks.plans.differences --engine tensorrt-rtx --cases 1000 --keep built
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from placer.errors import PlacerError
from placer.learning.case import Case, Judgement, Planner, judge
from placer.learning.shrink import shrink
from placer.results.result import versions
from tests.differential.cpu import onnx_runtime, openvino
from tests.differential.net import Misfit
from tests.differential.rtx import RtxEngine


class Engine(Planner, Protocol):
    """What predicts and builds, with the random cases that suit it."""

    name: str

    def case(self, random: Random) -> Case:
        """A random case. Raises PlacerError or Misfit where the graph drawn is none."""
        ...


ENGINES: Mapping[str, Callable[[Path | None], Engine]] = {
    "onnxruntime": lambda _: onnx_runtime(),
    "openvino": lambda _: openvino(),
    "tensorrt-rtx": RtxEngine,
}


@dataclass
class Totals:
    """What came of all cases; by operator: cases with it, and those that differ."""

    cases: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    differ: int = 0
    matched_by_nodes: int = 0
    matched: int = 0
    layers: int = 0
    false_conversions: int = 0
    missed_conversions: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    differ_with: Counter[str] = field(default_factory=Counter)
    minimal: list[dict[str, Any]] = field(default_factory=list)

    def add(self, judged: Judgement) -> None:
        """Count one case."""
        self.cases += 1
        if judged.diff is None:
            self.refused[judged.refusal] += 1
            return
        diff = judged.diff
        self.differ += judged.disagrees
        self.matched += diff.exact.matched
        self.matched_by_nodes += diff.by_nodes.matched
        self.layers += diff.exact.predicted + diff.exact.actual
        self.false_conversions += diff.false_conversions
        self.missed_conversions += diff.missed_conversions
        self.operators.update(judged.case.operators)
        if judged.disagrees:
            self.differ_with.update(judged.case.operators)

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return {
            **{name: value for name, value in vars(self).items() if isinstance(value, int)},
            "f1_by_nodes": 2 * self.matched_by_nodes / max(1, self.layers),
            "f1_with_types": 2 * self.matched / max(1, self.layers),
            "refused": dict(self.refused),
            "operators": {
                op: [n, self.differ_with[op]] for op, n in sorted(self.operators.items())
            },
            "minimal": self.minimal,
        }


def drawn(engine: Engine, seed: int, number: int) -> Case:
    """Case ``number``: the same on every machine; a graph that is none is drawn anew."""
    for attempt in range(100):
        try:
            return engine.case(Random(f"{seed}/{number}/{attempt}"))
        except (PlacerError, Misfit):
            continue
    raise RuntimeError(f"no valid graph for case {number} of seed {seed}")


def minimal(engine: Engine, judged: Judgement) -> Judgement:
    """The smallest case found that differs, too."""
    found = shrink(judged.case, lambda case: _differs(engine, case))
    return judge(engine, found)


def _differs(engine: Engine, case: Case) -> bool:
    return judge(engine, case).disagrees


def run(engine: Engine, options: argparse.Namespace) -> Iterator[tuple[int, Judgement]]:
    """Judge the cases that were asked for."""
    last = options.first + options.cases
    numbers = [options.only] if options.only is not None else range(options.first, last)
    for number in numbers:
        yield number, judge(engine, drawn(engine, options.seed, number))


def main() -> None:
    """Run the cases, print the counts and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="judge this number alone and print its graph")
    parser.add_argument("--shrink", type=int, default=20, help="of how many differences")
    parser.add_argument("--keep", type=Path, help="folder of plans that TensorRT-RTX built")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engine, totals = ENGINES[options.engine](options.keep), Totals()
    console = Console(width=110, highlight=False, markup=False)
    for number, judged in run(engine, options):
        totals.add(judged)
        if options.only is not None:
            _show(console, number, judged)
        if judged.disagrees and len(totals.minimal) < options.shrink:
            small = minimal(engine, judged)
            totals.minimal.append(_described(number, small))
            _show(console, number, small)
    _print(console, totals, options)
    if options.json:
        document = {
            **{"engine": options.engine, "seed": options.seed, "versions": dict(versions())},
            **totals.to_json(),
        }
        write_json(options.json, document)


def _described(number: int, judged: Judgement) -> dict[str, Any]:
    """What the JSON says of a difference."""
    return {
        "case": number,
        "operators": list(judged.case.operators),
        "graph": judged.case.text,
        "predicted": list(judged.layers[0]) if judged.plans else [],
        "actual": list(judged.layers[1]) if judged.plans else [judged.refusal],
    }


def _show(console: Console, number: int, judged: Judgement) -> None:
    found = _described(number, judged)
    console.print(f"\ncase {number}\n{found['graph']}", soft_wrap=True)
    for side in ("predicted", "actual"):
        console.print(f"{side}:", *found[side], sep="\n  ", soft_wrap=True)


def _print(console: Console, totals: Totals, options: argparse.Namespace) -> None:
    table = Table(title=f"plans of {options.engine}, seed {options.seed}")
    for column in ("operator", "cases with it", "of these differ"):
        table.add_column(column)
    for op, count in totals.operators.most_common():
        table.add_row(op, str(count), str(totals.differ_with[op]))
    console.print(table)
    scores = totals.to_json()
    console.print(
        f"{totals.cases} cases, {sum(totals.refused.values())} refused, {totals.differ} differ; "
        f"F1 of layers {scores['f1_by_nodes']:.3f} by nodes, {scores['f1_with_types']:.3f} with "
        f"types; conversions false {totals.false_conversions}, missed {totals.missed_conversions}"
    )
    for reason, count in totals.refused.most_common(5):
        console.print(f"refused {count} times: {reason}", soft_wrap=True)


if __name__ == "__main__":
    main()
