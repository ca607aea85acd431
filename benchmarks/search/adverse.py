"""Searches where much is wrong at once: noise, engines that refuse builds, gates, costs off alike.

Latencies are those of ``misfits`` in the shape "mixture" (neighbours, kinds of operators that are
off alike, cliffs), off the sum of layers by about ``level``. Besides

- every measurement is off by its build: a lognormal factor of deviation ``noise``, of which a
  trial's interval tells half;
- the engine refuses about a part ``failing`` of random placements: those in which two neighbouring
  groups are quantized in certain ways;
- a gate binds: ``sqnr``, 6 dB above that of the pack's default, or ``top1``, of 400 answers one
  percent may change. Noise is a sum over the edges that have pairs, each of them over three
  decades, times a factor of each placement's own (deviation 10%). The few samples on which ours
  measures noise beside its trials are off by a further 30%.

All searches have the same starts and the same budget. What a search ends at is the fastest, without
noise, of the four that its trials showed to be the fastest, as finalists race. Regret is against
the best that any search of a world ends at.

    python -m benchmarks.search.adverse --set read --jobs 2 --json adverse.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of
from benchmarks.networks import exporters, exporters_aside, fresh, further, held_out, topologies
from benchmarks.networks import unseen as later
from benchmarks.search.misfits import MisfitLatency
from benchmarks.search.models import TARGET, Latency, Problem, Source, neighbours, seed_of
from benchmarks.search.rivals import GreedyProposer, LocalProposer, StartedProposer, TpeProposer
from benchmarks.search.runs import parallel, starts_of
from placer.accuracy.gates import GateResult
from placer.common.blas import one_blas_thread
from placer.common.files import write_text
from placer.common.statistics import Ratio
from placer.prediction.layers.predictor import Predictor
from placer.results.parts import LatencyPart
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.landscape import Landscape
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import Judgement, Measurement, TrialRecord
from placer.search.samplers import Proposal, Proposer
from placer.search.space import Choices, build_space

OURS, NO_PROFILE = "ours", "ours, no profile"
SCHEMES = (OURS, NO_PROFILE, "TPE", "local", "greedy")
BUDGET, FINALISTS, SAMPLES = 50, 4, 400
SHOWN = (10, 20, 50)
MISSED_DB, CHANGED = 6.0, 0.01
# Standard deviations of the logarithm of noise: of placements, and of few samples of one.
OWN, FEW = 0.1, 0.3

Build = Callable[[], onnx.ModelProto]
READ: Mapping[str, tuple[Build, str]] = {
    "YOLOX": (lambda: topologies.yolox(96), "tensorrt"),
    "VGG": (lambda: fresh.vgg(64), "onnxruntime"),
    "EDSR": (lambda: further.edsr(32), "tensorrt"),
    "HiFi-GAN": (exporters_aside.ASIDE["HiFi-GAN"], "onnxruntime"),
    "CBAM": (exporters.EXPORTED["CBAM"], "tensorrt"),
    "Swin": (held_out.HELD_OUT["Swin"], "onnxruntime"),
}
ASIDE: Mapping[str, tuple[Build, str]] = {
    "Xception": (exporters.EXPORTED["Xception"], "tensorrt"),
    "YOLOv10": (exporters.EXPORTED["YOLOv10"], "onnxruntime"),
    "NAFNet": (exporters.EXPORTED["NAFNet"], "tensorrt"),
    "Res2Net": (exporters_aside.ASIDE["Res2Net"], "onnxruntime"),
    "Fast-SCNN": (exporters_aside.ASIDE["Fast-SCNN"], "tensorrt"),
    "SSD MobileNet": (exporters_aside.ASIDE["SSD MobileNet"], "onnxruntime"),
    "MobileNetV3": (lambda: later.mobilenet_v3(96), "tensorrt"),
    "ConvNeXt": (lambda: later.convnext(64), "onnxruntime"),
    "LeViT": (lambda: further.le_vit(14, 64, 4), "tensorrt"),
    "PSPNet": (lambda: fresh.psp_net(96), "onnxruntime"),
}
GPUS = {
    "read": ("l40s", "a10", "orin-nano-8gb"),
    "aside": ("h100-sxm", "rtx-3090", "a30", "orin-nx-16gb", "titan-rtx"),
}
NOISES, FAILING, GATES = (0.01, 0.02, 0.03, 0.05), (0.0, 0.15, 0.3), ("", "sqnr", "top1")


@dataclass(frozen=True)
class Case:
    """A network on an engine; see the module."""

    model: str
    gpu: str
    level: float
    world: int
    noise: float
    failing: float
    gate: str


@dataclass(frozen=True)
class Run:
    """One search: what it would end at after each number of trials."""

    case: Case
    scheme: str
    best: Sequence[float]
    failed: int
    missed: int
    ended: bool
    seconds: float

    def at(self, trials: int) -> float:
        """The latency it would end at after so many trials."""
        return self.best[min(trials, len(self.best)) - 1]


@lru_cache(maxsize=2)
def problem_of(name: str) -> Problem:
    """The network ``name`` of ``READ`` or ``ASIDE``."""
    return load_problem(name, *{**READ, **ASIDE}[name])


def load_problem(name: str, build: Build, pack_name: str) -> Problem:
    """What ``build`` makes, as the pack sees it."""
    pack = load_pack(pack_name)
    target = TARGET if pack_name == "tensorrt" else ANY_TARGET
    graph = Source(build).graph()
    float_type = "float16" if pack_name == "tensorrt" else "float"
    activation = pack.manifest.scheme.activation
    predictor = Predictor(graph, pack.rules, target, float_type, activation)
    return Problem(name, build_space(graph, find_sites(graph, pack.rules, target)), predictor)


class World:
    """What building, timing and judging a placement of one case gives."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.problem = self.load()
        self.latency: Latency = MisfitLatency(
            self.problem, case.gpu, case.level, case.world, "mixture"
        )
        self._layers = self.problem.layer_model()
        self._kept: dict[str, float] = {}
        self.refused = self._refused_pairs()
        self.limit = self.power(self.problem.space.defaults) * 10 ** (-MISSED_DB / 10)
        self._margins = self._rng("margins").lognormal(0, 1.0, SAMPLES)

    def load(self) -> Problem:
        """The network that it is about."""
        return problem_of(self.case.model)

    def _rng(self, *parts: object) -> np.random.Generator:
        return np.random.default_rng(seed_of("adverse", self.case.model, self.case.world, *parts))

    def _refused_pairs(self) -> list[tuple[tuple[int, str], tuple[int, str]]]:
        """Layouts of two neighbouring groups that the engine refuses together."""
        groups, near = self.problem.space.groups, neighbours(self.problem.space)
        floats = self.problem.space.floats
        rng = self._rng("refused")
        pairs = [
            ((i, a), (j, b))
            for i, first in enumerate(groups)
            for j in sorted(near[i])
            if j > i
            for a in first.layouts
            for b in groups[j].layouts
            if a != floats[first.name] and b != floats[groups[j].name]
        ]
        drawn = [[str(rng.choice(g.layouts)) for g in groups] for _ in range(200)]
        chosen: list[tuple[tuple[int, str], tuple[int, str]]] = []
        for index in rng.permutation(len(pairs)).tolist():
            hit = [any(d[i] == a and d[j] == b for (i, a), (j, b) in chosen) for d in drawn]
            if np.mean(hit) >= self.case.failing:
                break
            chosen.append(pairs[index])
        return chosen

    def fails(self, choices: Choices) -> bool:
        """Whether the engine refuses it."""
        own = [choices[group.name] for group in self.problem.space.groups]
        return any(own[i] == a and own[j] == b for (i, a), (j, b) in self.refused)

    def power(self, choices: Choices) -> float:
        """Noise power."""
        placement = self.problem.space.placement(choices)
        if placement.id not in self._kept:
            form = self._layers.predict(placement).prediction.form.canonical()
            keys = sorted({f"{e.node}:{e.input_index}" for part in form for e, _ in part})
            total = sum(10 ** (-5 + 3 * float(self._rng("edge", key).uniform())) for key in keys)
            own = math.exp(OWN * float(self._rng("own", *keys).standard_normal()))
            self._kept[placement.id] = own * total
        return self._kept[placement.id]

    def few(self, choices: Choices) -> float:
        """Noise power on a few samples."""
        key = self.problem.space.placement(choices).id
        return self.power(choices) * math.exp(FEW * float(self._rng("few", key).standard_normal()))

    def violation(self, noise: float) -> float:
        """By how much the gate is missed."""
        if self.case.gate == "sqnr":
            return 10 * math.log10(max(noise, 1e-12) / self.limit)
        # Noise at the limit changes two in a hundred answers.
        scale = float(np.quantile(self._margins, 0.02)) / self.limit
        return float(np.mean(self._margins < noise * scale)) - CHANGED

    def true(self, choices: Choices) -> float:
        """Latency without noise."""
        return self.latency.ratio(self.problem.space.placement(choices))

    def trial(self, number: int, proposal: Proposal, profiled: bool) -> TrialRecord:
        """What comes of ``proposal``."""
        choices = proposal.choices
        placement = self.problem.space.placement(choices)
        record = TrialRecord(
            number=number,
            kind=proposal.kind,
            choices=choices,
            placement_id=placement.id,
            skipped=proposal.skipped,
        )
        if self.fails(choices):
            return replace(record, error="the engine refuses it")
        measured = self.latency.measure(placement)
        off = self.case.noise * float(self._rng("build", placement.id).standard_normal())
        ratio, half = measured.ratio * math.exp(off), self.case.noise * measured.ratio
        is_float = placement.id == self.problem.space.placement(self.problem.space.floats).id
        ratio = 1.0 if is_float else ratio
        noise = self.power(choices)
        gates = (GateResult(self.case.gate, None, "", self.violation(noise)),)
        return replace(
            record,
            measurement=Measurement(
                Ratio(ratio, ratio - half, ratio + half, 1),
                LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1),
                layers=measured.layers if profiled else {},
            ),
            judgement=Judgement(gates, noise) if self.case.gate else Judgement((), noise),
        )


class _FeasibleGreedy(GreedyProposer):
    """Greedy among what meets the gate; single changes that miss it are left out."""

    def _best(self) -> tuple[float, Choices]:
        held = ((t.ratio, t.choices) for t in self._trials if t.feasible and t.ratio is not None)
        return min(held, key=lambda own: own[0])


def make_proposer(scheme: str, world: World) -> Proposer:
    """The search ``scheme``, knowing nothing yet."""
    problem, seed = world.problem, world.case.world
    space, starts = problem.space, starts_of(problem.space)
    if scheme in (OURS, NO_PROFILE):
        landscape = Landscape(space, problem.layer_model())
        limit = world.limit if world.case.gate == "sqnr" else None
        return SurrogateProposer(landscape, seed, world.few, per_site=False, noise_limit=limit)
    if scheme == "TPE":
        return TpeProposer(space, seed, starts)
    rivals: dict[str, Proposer] = {
        "local": LocalProposer(space, seed),
        "greedy": _FeasibleGreedy(space),
    }
    return StartedProposer(space, starts, rivals[scheme].propose)


def search(case: Case, scheme: str, budget: int) -> Run:
    """One search on ``case``."""
    return search_in(World(case), scheme, budget)


@one_blas_thread()
def search_in(world: World, scheme: str, budget: int) -> Run:
    """Run one search until its budget is spent or it has nothing left to try."""
    proposer = make_proposer(scheme, world)
    start, trials, best = time.process_time(), list[TrialRecord](), list[float]()
    while len(trials) < budget and (proposal := proposer.propose(trials)) is not None:
        trials.append(world.trial(len(trials), proposal, scheme == OURS))
        held = sorted((t.ratio, i) for i, t in enumerate(trials) if t.feasible and t.ratio)
        best.append(min((world.true(trials[i].choices) for _, i in held[:FINALISTS]), default=1.0))
    return Run(
        world.case,
        scheme,
        best,
        failed=sum(trial.error is not None for trial in trials),
        missed=sum(trial.violation > 0 for trial in trials),
        ended=len(trials) < budget,
        seconds=time.process_time() - start,
    )


def cases(which: str, levels: Sequence[float], worlds: Sequence[int]) -> list[Case]:
    """Every network at each level, with the rest in turn."""
    found = []
    for index, model in enumerate(READ if which == "read" else ASIDE):
        for shift, level in enumerate(levels):
            for world in worlds:
                turn = index + shift + world
                gpu = GPUS[which][index % len(GPUS[which])]
                noise, failing = NOISES[turn % 4], FAILING[(index + 2 * world) % 3]
                gate = GATES[(turn + shift) % 3]
                found.append(Case(model, gpu, level, world, noise, failing, gate))
    return found


def table(runs: Sequence[Run], kinds: Sequence[str] = GATES) -> Table:
    """Median, 90th percentile and worst regret by scheme, and single runs lost to each rival."""
    best = {run.case: min(r.best[-1] for r in runs if r.case == run.case) for run in runs}
    shown = Table()
    for column in ("gate", "scheme", "runs", "failed", "missed", "ended", "s"):
        shown.add_column(column)
    for trials in SHOWN:
        shown.add_column(f"regret at {trials}: median, 90%, worst")
    shown.add_column("ours is behind in")
    by_key = {(run.case, run.scheme): run for run in runs}
    for gate in ("all", *kinds):
        for scheme in SCHEMES:
            own = [r for r in runs if r.scheme == scheme and gate in ("all", r.case.gate)]
            if not own:
                continue
            cells = [_regrets([run.at(n) / best[run.case] - 1 for run in own]) for n in SHOWN]
            lost = [
                sum(by_key[r.case, mine].best[-1] > r.best[-1] * 1.001 for r in own)
                for mine in (OURS, NO_PROFILE)
                if (own[0].case, mine) in by_key
            ]
            figures = [sum(run.failed for run in own), sum(run.missed for run in own)]
            seconds = median(run.seconds for run in own)
            ended = sum(run.ended for run in own)
            head = [gate or "no gate", scheme, *map(str, (len(own), *figures, ended))]
            shown.add_row(*head, f"{seconds:.1f}", *cells, ", ".join(map(str, lost)))
    return shown


def _regrets(regrets: Sequence[float]) -> str:
    high = float(np.quantile(regrets, 0.9, method="higher"))
    return f"{median(regrets):.1%}, {high:.1%}, {max(regrets):.1%}"


def load(path: Path) -> list[Run]:
    """Runs of an earlier file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [Run(**{**run, "case": Case(**run["case"])}) for run in document]


def add_search_options(parser: argparse.ArgumentParser, first_world: int, worlds: int) -> None:
    """Add what to search, with what, and where results go; the numbers are defaults."""
    parser.add_argument("--set", choices=("read", "aside"), default="read")
    parser.add_argument("--first-world", type=int, default=first_world)
    parser.add_argument("--worlds", type=int, default=worlds)
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--merge", type=Path, nargs="+", help="files of earlier runs to show, too")
    parser.add_argument("--json", type=Path)


def main() -> None:
    """Print a table and write JSON."""
    parser = parser_of(__doc__)
    add_search_options(parser, first_world=9001, worlds=2)
    parser.add_argument("--levels", nargs="+", type=float, default=[0.15, 0.4])
    parser.add_argument("--models", nargs="+")
    arguments: argparse.Namespace = parser.parse_args()
    worlds = range(arguments.first_world, arguments.first_world + arguments.worlds)
    wanted = cases(arguments.set, arguments.levels, worlds)
    wanted = [c for c in wanted if arguments.models is None or c.model in arguments.models]
    tasks: list[Callable[[], Any]] = [
        partial(search, case, scheme, arguments.budget)
        for case in wanted
        for scheme in arguments.schemes
    ]
    runs = [run for path in arguments.merge or () for run in load(path)]
    for run in parallel(tasks, arguments.jobs, "searches"):
        runs.append(run)
        if arguments.json:  # What is there if it is cut off.
            write_text(arguments.json, json.dumps([asdict(run) for run in runs]) + "\n")
    Console(width=170).print(table(runs))


if __name__ == "__main__":
    main()
