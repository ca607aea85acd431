"""How well a pack predicts what an engine builds: what the scripts of all engines share.

Every network gets the float model, the pack's default placement and random ones of its space. Each
candidate is built, and its layers are held against those that are predicted. A set whose networks
an exporter writes needs `--folder`, and torch where they are not there yet.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.given import add_option, given_models
from benchmarks.networks.sets import NAMES, Subject, subjects, with_open_sizes
from placer.errors import PlacerError
from placer.graph import Graph
from placer.model import Model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.diff_result import sentences
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.quantization import Placement
from placer.results.result import versions


@dataclass
class Counts:
    """Sums over plans. Conversions: layers that quantize, dequantize or requantize."""

    plans: int = 0
    refused: int = 0
    predicted: int = 0
    actual: int = 0
    by_nodes: int = 0
    exact: int = 0
    predicted_conversions: int = 0
    actual_conversions: int = 0
    false_conversions: int = 0
    missed_conversions: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    @property
    def f1(self) -> float:
        """Of layers by their nodes."""
        return 2 * self.by_nodes / max(1, self.predicted + self.actual)

    @property
    def f1_types(self) -> float:
        """Of layers by their nodes and the types that they write."""
        return 2 * self.exact / max(1, self.predicted + self.actual)

    def to_json(self) -> dict[str, object]:
        """For ``json.dumps``, with the scores."""
        return {**asdict(self), "f1": self.f1, "f1_types": self.f1_types}


@dataclass(frozen=True)
class Candidate:
    """A placement of one model: its predicted plan, and the one that is built.

    ``what``: the float model, the default, a random one. ``kind``: what is counted apart, such as
    FP16 and INT8. ``build`` raises RunError if the engine refuses.
    """

    what: str
    placement: Placement
    predict: Callable[[Placement], Plan]
    build: Callable[[Placement], Plan]
    kind: str = ""


class Engine(Protocol):
    """An engine whose layers a pack predicts."""

    @property
    def default_pack(self) -> str:
        """The pack that predicts them unless another is asked for."""
        ...

    @property
    def title(self) -> str:
        """Where its layers are read from."""
        ...

    @property
    def default_set(self) -> str:
        """The networks, by the name of their set, unless others are asked for."""
        ...

    @property
    def default_placements(self) -> int:
        """How many of each network unless another number is asked for."""
        ...

    @property
    def enters_bodies(self) -> bool:
        """Whether nodes in the bodies of If, Loop and Scan are nodes as others."""
        ...

    def candidates(self, model: Model, options: argparse.Namespace) -> Iterator[Candidate]:
        """The placements of ``model`` that are compared."""
        ...

    def understood(self, plan: Plan) -> Plan:
        """A built plan as it is compared; plans are kept as they were built."""
        ...

    def count(self, graph: Graph, predicted: Plan, actual: Plan) -> Counts:
        """Compare two plans."""
        ...

    def version(self) -> str:
        """The engine and its version."""
        ...


def compare(engine: Engine, found: Iterable[Subject], options: argparse.Namespace) -> _Rows:
    """Counts by network, by part and all together."""
    rows = _Rows()
    for subject in found:
        try:
            model = with_open_sizes(subject.load()) if options.open_sizes else subject.load()
            for candidate in engine.candidates(model, options):
                counts = _compared(engine, subject, model, candidate, options)
                rows.add(subject, candidate.kind, counts)
        except PlacerError as error:
            print(f"{subject.name}: {error}", flush=True)
            rows.add(subject, "", Counts(refused=1))
        print(f"{_title(subject)} is compared", flush=True)
    return rows


def _compared(
    engine: Engine,
    subject: Subject,
    model: Model,
    candidate: Candidate,
    options: argparse.Namespace,
) -> Counts:
    try:
        actual = engine.understood(_built(subject, candidate, options.keep))
    except PlacerError as error:
        print(f"{subject.name}, {candidate.what} is refused: {error}"[:160], flush=True)
        return Counts(refused=1)
    predicted = candidate.predict(candidate.placement)
    if options.differences:
        diff = diff_plans(predicted, actual)
        print(f"\n{subject.name}, {candidate.what}", *Counter(sentences(diff)), sep="\n")
    return engine.count(model.graph, predicted, actual)


def _built(subject: Subject, candidate: Candidate, folder: Path | None) -> Plan:
    """From ``folder`` if the same placement was built before."""
    if folder is None:
        return candidate.build(candidate.placement)
    placement = candidate.placement.id[:12]
    path = folder / subject.part / f"{subject.name}, {candidate.kind} {placement}.json"
    if path.is_file():
        return read_plan(path)
    plan = candidate.build(candidate.placement)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, plan_json(plan))
    return plan


class _Rows:
    """Counts by title; rows of single networks go before those of parts and of all."""

    def __init__(self) -> None:
        self.networks: dict[str, Counts] = {}
        self.parts: dict[str, Counts] = {}

    def add(self, subject: Subject, kind: str, counts: Counts) -> None:
        """Count a plan of ``subject``."""
        ending = f", {kind}" if kind else ""
        for title in (subject.part, "all"):
            _increase(self.parts, f"{title}{ending}", counts)
        _increase(self.networks, f"{_title(subject)}{ending}", counts)

    def table(self, title: str) -> Table:
        """All rows."""
        table = Table(title=title)
        for column in ("network", "plans", "layers", "F1 by nodes", "F1 with types"):
            table.add_column(column)
        table.add_column("conversions predicted/built/false/missed")
        for name, counts in (*self.networks.items(), *self.parts.items()):
            refused = f", {counts.refused} refused" if counts.refused else ""
            conversions = (
                counts.predicted_conversions, counts.actual_conversions,
                counts.false_conversions, counts.missed_conversions,
            )  # fmt: skip
            table.add_row(
                name,
                f"{counts.plans}{refused}",
                str(counts.actual),
                f"{counts.f1:.3f}",
                f"{counts.f1_types:.3f}",
                "/".join(map(str, conversions)),
            )
        return table


def _increase(found: dict[str, Counts], title: str, counts: Counts) -> None:
    found.setdefault(title, Counts())
    found[title] += counts


def _title(subject: Subject) -> str:
    return f"{subject.part}: {subject.name}"


def main(
    engine: Engine,
    doc: str | None,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _parser: None,
) -> None:
    """Print the table and write JSON.

    ``doc``: the docstring of the script. ``add_options``: adds those of its own.
    """
    parser = parser_of(doc)
    add_options(parser)
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=[engine.default_set])
    parser.add_argument("--folder", type=Path, default=Path("networks"), help="of exported sets")
    count = engine.default_placements
    parser.add_argument("--placements", type=int, default=count, help="random ones a network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pack", default=engine.default_pack)
    parser.add_argument("--scheme", help="one of the pack's alternative schemes")
    parser.add_argument("--keep", type=Path, help="folder of built plans, read where they are")
    parser.add_argument("--open-sizes", action="store_true", help="leave sizes of images open")
    parser.add_argument("--differences", action="store_true", help="say what differs")
    parser.add_argument("--json", type=Path)
    add_option(parser)
    options = parser.parse_args()
    rows = compare(engine, _subjects(engine, options), options)
    Console(width=120).print(
        rows.table(f"layers predicted by the pack {options.pack} against {engine.title}")
    )
    if options.json:
        document = {
            "versions": {**versions(), "engine": engine.version(), "pack": options.pack},
            "options": {
                "placements": options.placements,
                "seed": options.seed,
                "open_sizes": options.open_sizes,
            },
            "networks": {name: counts.to_json() for name, counts in rows.networks.items()},
            "together": {name: counts.to_json() for name, counts in rows.parts.items()},
        }
        write_json(options.json, document)


def _subjects(engine: Engine, options: argparse.Namespace) -> Iterator[Subject]:
    if options.model:
        for name, load in given_models(options, engine.enters_bodies):
            yield Subject("given", name, load)
        return
    for name in options.networks:
        yield from subjects(name, options.folder, engine.enters_bodies)
