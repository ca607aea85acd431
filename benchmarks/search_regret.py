"""How many trials searches need: ours, random, TPE, and Model Optimizer's region by region.

Latencies are deterministic (``search_models``): predicted layers, a roofline and a hidden factor
for each GPU and layer. Every search sees the latency of what it tries; ours also each layer's time,
as an engine's profiler tells it, and once more without. All search the same space of layouts of
whole groups, and a placement that was tried already is no trial for anybody. The optimum is that of
all combinations for reduced spaces, and for whole models the best of a long search or of any run.

    python benchmarks/search_regret.py --jobs 16 --json regret.json --plot docs/search-regret.svg

Ours begins with the pack's default, which often is near the optimum. So TPE runs once more from the
same beginning, and the last rows are of those cases alone where no beginning is within 1%.

``--gates`` compares them on reduced spaces where a gate binds: the SQNR must be 3, 6 or 10 dB
better than that of the pack's default. Ours may measure the noise of placements it does not build
(column "probes"); TPE is told by how much a trial misses; random and regions take what holds.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from region_scheme import RegionProposer
from rich.console import Console
from rich.table import Table
from search_models import FULL, GPUS, REDUCED, Latency, Noise, NoiseUnit, Problem, load_problem
from search_rivals import TpeProposer

from placer.accuracy.gates import GateResult
from placer.common.files import write_text
from placer.common.statistics import Ratio
from placer.prediction.gpus import load_gpu
from placer.results.result import LatencyPart, versions
from placer.search.landscape import Landscape
from placer.search.layer_signatures import LayerModel
from placer.search.records import Judgement, Measurement, TrialRecord
from placer.search.samplers import Proposal, Proposer, RandomProposer
from placer.search.space import Choices, Space
from placer.search.surrogate import SurrogateProposer, seed_proposals

OURS, NO_PROFILE, RANDOM, TPE = "ours", "ours, no profile", "random", "TPE"
SEEDED_TPE, REGIONS = "TPE from our seeds", "regions"
BUDGETS = {OURS: 60, NO_PROFILE: 60, RANDOM: 200, TPE: 200, SEEDED_TPE: 200, REGIONS: 200}
OTHERS = (RANDOM, TPE, REGIONS)
SEEDS = 5
# Standard deviation of the logarithm of the hidden factor.
HIDDEN = 0.25
NEAR = 1.01  # Found: at most this times the optimum.
REGRET_FLOOR = 1e-4  # Of the plot, whose axis is logarithmic.
SHOWN = (10, 20, 50)  # Trials after which the regret is shown.
GATE_DB = (3.0, 6.0, 10.0)
REFERENCE_EVALUATIONS = 20_000
QUICK_MODELS = ("U-Net", "FPN")

Progress = Sequence[tuple[int, float]]  # Trials at which the best latency fell, and to what.


@dataclass(frozen=True)
class Case:
    """A model on a GPU, and by how many dB the default misses the gate, if there is one."""

    model: str
    gpu: str
    hidden: float = HIDDEN
    gate_db: float | None = None
    noise: NoiseUnit = "layout"

    @property
    def key(self) -> str:
        """Name in the JSON file."""
        gate = "" if self.gate_db is None else f", gate {self.gate_db:.0f} dB"
        return f"{self.model} on {self.gpu}{gate}"

    def gate(self) -> _Gate | None:
        """Its gate, if there is one."""
        if self.gate_db is None:
            return None
        return _Gate(load_problem(self.model), self.noise, self.gate_db)

    def latency(self, layers: LayerModel | None = None) -> Latency:
        """Its objective."""
        return Latency(load_problem(self.model), load_gpu(self.gpu), self.hidden, layers)


@dataclass(frozen=True)
class Run:
    """One search. ``probes``: placements whose accuracy alone was measured."""

    case: Case
    scheme: str
    seed: int
    trials: int
    probes: int
    progress: Progress
    seconds: float

    def best(self, trials: int) -> float:
        """The best latency that holds the gate after so many trials, infinite if none did."""
        return min((ratio for number, ratio in self.progress if number <= trials), default=math.inf)

    def needed(self, optimum: float) -> float:
        """Trials until within 1% of ``optimum``, infinite if that was never reached."""
        found = (number for number, ratio in self.progress if ratio <= NEAR * optimum)
        return next(found, math.inf)


@dataclass(frozen=True)
class Best:
    """The best known latency of a case, and of what placement.

    ``start``: the best of the placements that ours begins with, None if none holds the gate.
    """

    ratio: float
    choices: Choices
    start: float | None

    @property
    def is_hard(self) -> bool:
        """Whether no beginning is within 1% of it."""
        return self.start is None or self.start > NEAR * self.ratio


class _Gate:
    """An SQNR that the default misses by some dB."""

    def __init__(self, problem: Problem, unit: NoiseUnit, missed_db: float) -> None:
        self._noise = Noise(problem, unit)
        self.limit = self._noise.power(problem.space.defaults) * 10 ** (-missed_db / 10)
        self.probed: set[str] = set()
        self._space = problem.space

    def power(self, choices: Choices) -> float:
        """Noise power of a trial."""
        return self._noise.power(choices)

    def probe(self, choices: Choices) -> float:
        """Noise power of a placement that is not built."""
        self.probed.add(self._space.placement(choices).id)
        return self._noise.power(choices)

    def violation(self, noise: float) -> float:
        """By how many dB the gate is missed; at most 0 if it holds."""
        return 10 * math.log10(max(noise, 1e-12) / self.limit)


def _no_probe(choices: Choices) -> float:
    raise RuntimeError(f"a search without gates measured the noise of {choices}")


def make_proposer(scheme: str, problem: Problem, seed: int, gate: _Gate | None) -> Proposer:
    """The search ``scheme``, knowing nothing yet."""
    if scheme in (OURS, NO_PROFILE):
        return SurrogateProposer(
            Landscape(problem.space, problem.layer_model()),
            seed,
            _no_probe if gate is None else gate.probe,
            per_site=False,
            noise_limit=None if gate is None else gate.limit,
        )
    if scheme == SEEDED_TPE:
        return TpeProposer(problem.space, seed, starts_of(problem.space))
    made: dict[str, Callable[[Space, int], Proposer]] = {
        RANDOM: RandomProposer,
        TPE: TpeProposer,
        REGIONS: RegionProposer,
    }
    return made[scheme](problem.space, seed)


def starts_of(space: Space) -> list[Choices]:
    """What ours begins with."""
    return [proposal.choices for proposal in seed_proposals(space)]


def search(case: Case, scheme: str, seed: int, budget: int) -> Run:
    """Run one search until its budget is spent or it has nothing left to try."""
    problem = load_problem(case.model)
    latency = case.latency()
    gate = case.gate()
    start = time.monotonic()
    proposer = make_proposer(scheme, problem, seed, gate)
    trials: list[TrialRecord] = []
    progress: list[tuple[int, float]] = []
    tried: set[str] = set()
    while len(trials) < budget and (proposal := proposer.propose(trials)) is not None:
        trial = measured_trial(problem, latency, gate, len(trials), proposal, scheme == OURS)
        if trial.placement_id in tried:
            raise RuntimeError(f"{scheme} tried a placement of {case.key} twice")
        tried.add(trial.placement_id)
        trials.append(trial)
        ratio = trial.ratio if trial.feasible and trial.ratio is not None else math.inf
        if ratio < (progress[-1][1] if progress else math.inf):
            progress.append((len(trials), ratio))
    probes = 0 if gate is None else len(gate.probed)
    return Run(case, scheme, seed, len(trials), probes, progress, time.monotonic() - start)


def measured_trial(
    problem: Problem,
    latency: Latency,
    gate: _Gate | None,
    number: int,
    proposal: Proposal,
    profiled: bool,
) -> TrialRecord:
    placement = problem.space.placement(proposal.choices)
    measured = latency.measure(placement)
    ratio = measured.ratio
    judgement = None
    if gate is not None:
        noise = gate.power(proposal.choices)
        judgement = Judgement((GateResult("sqnr", None, "", gate.violation(noise)),), noise)
    return TrialRecord(
        number=number,
        kind=proposal.kind,
        choices=proposal.choices,
        placement_id=placement.id,
        measurement=Measurement(
            Ratio(ratio, ratio, ratio, 1),
            LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1),
            layers=measured.layers if profiled else {},
        ),
        judgement=judgement,
        skipped=proposal.skipped,
    )


def exhaust(cases: Sequence[Case]) -> dict[Case, Best]:
    """The optimum of a reduced space; ``cases`` are of one model."""
    problem = load_problem(cases[0].model)
    layers = problem.layer_model()
    by_gpu: dict[tuple[str, float], list[Case]] = {}
    for case in cases:
        by_gpu.setdefault((case.gpu, case.hidden), []).append(case)
    latencies = {key: own[0].latency(layers) for key, own in by_gpu.items()}
    gates = {case: case.gate() for case in cases}
    noise = next(iter(gates.values()))
    found: dict[Case, tuple[float, Choices]] = {}
    for choices in problem.choices():
        placement = problem.space.placement(choices)
        power = 0.0 if noise is None else noise.power(choices)
        for key, own in by_gpu.items():
            ratio = latencies[key].ratio(placement)
            for case in own:
                gate = gates[case]
                holds = gate is None or power <= gate.limit
                if holds and ratio < found.get(case, (math.inf,))[0]:
                    found[case] = ratio, choices
    return {case: Best(*best, _best_start(case)) for case, best in found.items()}


def long_search(case: Case, evaluations: int) -> dict[Case, Best]:
    """The best of so many evaluations: local search from random starts and from near the best."""
    ratio, choices = LongSearch(load_problem(case.model), case.latency()).run(evaluations)
    return {case: Best(ratio, choices, _best_start(case))}


def _best_start(case: Case) -> float | None:
    problem = load_problem(case.model)
    latency = case.latency()
    starts = starts_of(problem.space)
    gate = case.gate()
    if gate is not None:
        starts = [choices for choices in starts if gate.power(choices) <= gate.limit]
    ratios = (latency.ratio(problem.space.placement(choices)) for choices in starts)
    return min(ratios, default=None)


class LongSearch:
    """Changes one group at a time while that helps; then starts elsewhere."""

    def __init__(self, problem: Problem, latency: Latency) -> None:
        self._space = problem.space
        self._latency = latency
        self._known: dict[str, float] = {}
        self._rng = np.random.default_rng(0)
        self._most = 0

    def run(self, evaluations: int) -> tuple[float, dict[str, str]]:
        """Stops earlier if the last so many starts brought nothing new to evaluate."""
        self._most = evaluations
        starts = (self._space.floats, self._space.defaults, self._space.everything)
        best = min(self._descend(dict(start)) for start in starts)
        idle = 0
        while len(self._known) < evaluations and idle < 100:
            before = len(self._known)
            start = self._random() if self._rng.uniform() < 0.25 else self._near(dict(best[1]))
            best = min(best, self._descend(start))
            idle = idle + 1 if len(self._known) == before else 0
        return best[0], dict(best[1])

    def _descend(self, choices: dict[str, str]) -> tuple[float, list[tuple[str, str]]]:
        ratio = self._evaluate(choices)
        improved = True
        while improved and len(self._known) < self._most:
            improved = False
            for index in self._rng.permutation(len(self._space.groups)):
                group = self._space.groups[int(index)]
                for layout in group.layouts:
                    changed = {**choices, group.name: layout}
                    other = self._evaluate(changed)
                    if other < ratio - 1e-12:
                        choices, ratio, improved = changed, other, True
        return ratio, sorted(choices.items())

    def _evaluate(self, choices: Choices) -> float:
        placement = self._space.placement(choices)
        if placement.id not in self._known:
            self._known[placement.id] = self._latency.ratio(placement)
        return self._known[placement.id]

    def _random(self) -> dict[str, str]:
        return {g.name: self._layout(g.layouts) for g in self._space.groups}

    def _near(self, choices: dict[str, str]) -> dict[str, str]:
        count = min(len(self._space.groups), int(self._rng.integers(2, 7)))
        for index in self._rng.choice(len(self._space.groups), size=count, replace=False):
            group = self._space.groups[int(index)]
            choices[group.name] = self._layout(group.layouts)
        return choices

    def _layout(self, layouts: Sequence[str]) -> str:
        return layouts[int(self._rng.integers(len(layouts)))]


@dataclass(frozen=True)
class Plan:
    """What to compare."""

    models: tuple[str, ...]
    gpus: tuple[str, ...]
    seeds: int
    schemes: tuple[str, ...]
    hidden: float
    gates: tuple[float, ...]
    noise: NoiseUnit
    evaluations: int

    def cases(self) -> list[Case]:
        """All cases, model by model."""
        levels: tuple[float | None, ...] = self.gates or (None,)
        return [
            Case(model, gpu, self.hidden, level, self.noise)
            for model in self.models
            for gpu in self.gpus
            for level in levels
        ]


def find_bests(plan: Plan, kept: Mapping[Case, Best], jobs: int) -> dict[Case, Best]:
    """The best of every case; those in ``kept`` are taken over if they still hold."""
    found = {case: kept[case] for case in plan.cases() if case in kept and _holds(kept[case], case)}
    tasks: list[Callable[[], dict[Case, Best]]] = []
    for model in plan.models:
        missing = [c for c in plan.cases() if c.model == model and c not in found]
        if model in REDUCED and missing:
            tasks.append(partial(exhaust, missing))
        else:
            tasks += [partial(long_search, case, plan.evaluations) for case in missing]
    for part in parallel(tasks, jobs, "references"):
        found.update(part)
    return found


def _holds(best: Best, case: Case) -> bool:
    """Whether a kept best is of the space as it is now and still takes as long."""
    problem = load_problem(case.model)
    layouts = {group.name: group.layouts for group in problem.space.groups}
    if layouts.keys() != best.choices.keys():
        return False
    if any(best.choices[name] not in own for name, own in layouts.items()):
        return False
    ratio = case.latency().ratio(problem.space.placement(best.choices))
    return math.isclose(ratio, best.ratio, rel_tol=1e-9)


def run_all(plan: Plan, jobs: int) -> list[Run]:
    """All searches of ``plan``."""
    tasks = [
        partial(search, case, scheme, seed, BUDGETS[scheme])
        for scheme in plan.schemes
        for case in plan.cases()
        for seed in range(plan.seeds)
    ]
    return list(parallel(tasks, jobs, "searches"))


def parallel(tasks: Sequence[Callable[[], Any]], jobs: int, what: str) -> Iterator[Any]:
    """Results of ``tasks`` in their order; progress goes to standard error."""
    context = multiprocessing.get_context("spawn")
    console = Console(stderr=True)
    with context.Pool(min(jobs, max(1, len(tasks))), _quiet) as pool:
        for number, result in enumerate(pool.imap(_call, tasks), 1):
            if number % max(1, len(tasks) // 20) == 0:
                console.print(f"{what}: {number} of {len(tasks)}", highlight=False)
            yield result


def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _call(task: Callable[[], Any]) -> Any:
    return task()


def with_runs(bests: Mapping[Case, Best], runs: Sequence[Run]) -> dict[Case, Best]:
    """``bests``, but for cases where a run did better than the long search."""
    found = dict(bests)
    for run in runs:
        known = found[run.case]
        found[run.case] = replace(known, ratio=min(known.ratio, run.best(run.trials)))
    return found


def table(title: str, plan: Plan, runs: Sequence[Run], bests: Mapping[Case, Best]) -> Table:
    """Medians over seeds and GPUs by model and, last, over all and over the hard cases."""
    shown = Table(title=title)
    for column in ("model", "scheme", "runs", "optimum", "trials to 1%", "quartiles", "found"):
        shown.add_column(column)
    for trials in SHOWN:
        shown.add_column(f"regret at {trials}")
    shown.add_column("probes" if plan.gates else "s / run")
    parts = {model: [run for run in runs if run.case.model == model] for model in plan.models}
    parts["all"] = list(runs)
    parts["no start near"] = [run for run in runs if bests[run.case].is_hard]
    for part, of_part in parts.items():
        for scheme in plan.schemes:
            own = [run for run in of_part if run.scheme == scheme]
            if own:
                shown.add_row(
                    part if scheme == plan.schemes[0] else "",
                    f"{scheme} (no gate)" if plan.gates and scheme == REGIONS else scheme,
                    *_row(own, bests, bool(plan.gates)),
                    end_section=scheme == plan.schemes[-1],
                )
    return shown


def _row(runs: Sequence[Run], bests: Mapping[Case, Best], gated: bool) -> list[str]:
    """Cells of one scheme."""
    budget = BUDGETS[runs[0].scheme]
    needed = [run.needed(bests[run.case].ratio) for run in runs]
    low, middle, high = (_trials(_quantile(needed, part), budget) for part in (0.25, 0.5, 0.75))
    reached = sum(math.isfinite(value) for value in needed) / len(needed)
    regrets = [_percent(median_regret(runs, bests, trials)) for trials in SHOWN]
    last = float(np.median([run.probes if gated else run.seconds for run in runs]))
    optimum = float(np.median([bests[run.case].ratio for run in runs]))
    return [
        str(len(runs)),
        f"{optimum:.3f}",
        middle,
        f"{low} - {high}",
        f"{reached:.0%}",
        *regrets,
        f"{last:.0f}" if gated else f"{last:.1f}",
    ]


def median_regret(runs: Sequence[Run], bests: Mapping[Case, Best], trials: int) -> float:
    """Median of how much slower than the optimum the best is, infinite if nothing held."""
    return _quantile([run.best(trials) / bests[run.case].ratio - 1 for run in runs], 0.5)


def _quantile(values: Sequence[float], part: float) -> float:
    """The value that at least ``part`` of ``values`` do not exceed; no mean of two is taken."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def _trials(value: float, budget: int) -> str:
    return f"{value:.0f}" if math.isfinite(value) else f">{budget}"


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None


def _percent(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "none held"


def verdict(plan: Plan, runs: Sequence[Run], bests: Mapping[Case, Best]) -> dict[str, Any]:
    """What the goals ask: median trials, and where ours is worse than another at 50 trials."""
    medians = {}
    for scheme in plan.schemes:
        needed = [run.needed(bests[run.case].ratio) for run in runs if run.scheme == scheme]
        medians[scheme] = _trials(_quantile(needed, 0.5), BUDGETS[scheme])
    worse = []
    for case in plan.cases():
        regrets = {
            scheme: median_regret(
                [r for r in runs if (r.case, r.scheme) == (case, scheme)], bests, 50
            )
            for scheme in plan.schemes
        }
        for other in [scheme for scheme in OTHERS if scheme in regrets]:
            if OURS in regrets and regrets[OURS] > regrets[other] + 1e-9:
                both = {scheme: _finite(regrets[scheme]) for scheme in (OURS, other)}
                worse.append({"case": case.key, "than": other, **both})
    hard = sum(bests[case].is_hard for case in plan.cases())
    return {
        "median trials to 1%": medians,
        "cases": len(plan.cases()),
        "cases where no start is near": hard,
        "worse at 50 trials": worse,
    }


def plot(path: Path, plan: Plan, runs: Sequence[Run], bests: Mapping[Case, Best]) -> None:
    """Median regret over trials with quartiles; reduced spaces and whole models apart."""
    parts = [("reduced spaces, all combinations known", REDUCED), ("whole models", FULL)]
    parts = [(title, names) for title, names in parts if any(m in names for m in plan.models)]
    figure = Figure(figsize=(6 * len(parts), 4.2), layout="tight")
    axes = figure.subplots(1, len(parts), squeeze=False)
    for axis, (title, names) in zip(axes[0], parts, strict=True):
        for scheme in plan.schemes:
            own = [run for run in runs if run.scheme == scheme and run.case.model in names]
            numbers = range(1, BUDGETS[scheme] + 1)
            regrets = [
                [max(REGRET_FLOOR, run.best(n) / bests[run.case].ratio - 1) for run in own]
                for n in numbers
            ]
            middle, low, high = ([_quantile(r, q) for r in regrets] for q in (0.5, 0.25, 0.75))
            (line,) = axis.plot(numbers, middle, label=scheme, linewidth=1.8)
            axis.fill_between(numbers, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axis.axhline(NEAR - 1, color="grey", linewidth=0.8, linestyle=":")
        axis.set(title=title, xlabel="trials", xscale="log", yscale="log")
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=2))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("slower than the best known (0.01%: at most)")
    axes[0][-1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1.02, 1))
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150)
    temporary.replace(path)


def read_bests(path: Path | None) -> dict[Case, Best]:
    """The references of an earlier run; empty if there is none."""
    if path is None or not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))["references"]
    return {Case(**e["case"]): Best(e["ratio"], e["choices"], e["start"]) for e in entries}


def document(plan: Plan, bests: Mapping[Case, Best], runs: Sequence[Run]) -> dict[str, Any]:
    """All results as JSON values."""
    return {
        "versions": dict(versions()),
        "plan": asdict(plan),
        "references": [{"case": asdict(c), **asdict(best)} for c, best in bests.items()],
        "verdict": verdict(plan, runs, bests),
        "runs": [asdict(run) for run in runs],
    }


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*REDUCED, *FULL]
    parser.add_argument("--models", nargs="+", choices=known, metavar="MODEL", default=known)
    parser.add_argument("--gpus", nargs="+", choices=GPUS, metavar="GPU", default=list(GPUS))
    parser.add_argument("--schemes", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--hidden", type=float, default=HIDDEN, help="spread of hidden factors")
    parser.add_argument("--gates", action="store_true", help="reduced spaces with an SQNR gate")
    parser.add_argument("--quick", action="store_true", help="two small models, two GPUs")
    parser.add_argument(
        "--noise", choices=("edge", "layout"), default="layout", help="what has noise"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--evaluations", type=int, default=REFERENCE_EVALUATIONS)
    parser.add_argument("--references", type=Path, help="JSON of an earlier run to take bests from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="PNG or SVG")
    return parser.parse_args()


def make_plan(arguments: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    models = QUICK_MODELS if arguments.quick else tuple(arguments.models)
    levels = GATE_DB[1:2] if arguments.quick else GATE_DB
    return Plan(
        models=tuple(m for m in models if m in REDUCED or not arguments.gates),
        gpus=tuple(arguments.gpus[:2] if arguments.quick else arguments.gpus),
        seeds=2 if arguments.quick else arguments.seeds,
        schemes=tuple(arguments.schemes),
        hidden=arguments.hidden,
        gates=levels if arguments.gates else (),
        noise=arguments.noise,
        evaluations=arguments.evaluations,
    )


def main() -> None:
    """Print tables, write JSON and the plot."""
    arguments = parse()
    plan = make_plan(arguments)
    bests = find_bests(plan, read_bests(arguments.references), arguments.jobs)
    runs = run_all(plan, arguments.jobs)
    bests = with_runs(bests, runs)
    console = Console(width=140)
    for level in plan.gates or (None,):
        own = [run for run in runs if run.case.gate_db == level]
        title = "Trials until within 1% of the optimum" + (
            f", SQNR {level:.0f} dB above the default's" if level else ""
        )
        console.print(table(title, plan, own, bests))
    console.print_json(data=verdict(plan, runs, bests))
    if arguments.json:
        text = json.dumps(document(plan, bests, runs), indent=None)
        write_text(arguments.json, text + "\n")
    if arguments.plot:
        plot(arguments.plot, plan, runs, bests)


if __name__ == "__main__":
    main()
