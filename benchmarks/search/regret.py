"""How many trials searches need: ours and eight others, among them Model Optimizer's regions.

Latencies are deterministic (``search_models``): predicted layers, a roofline and a hidden factor
for each GPU and layer. Every search sees the latency of what it tries; ours also each layer's time,
as an engine's profiler tells it, and once more without. All search the same space of layouts of
whole groups, and a placement that was tried already is no trial for anybody. The optimum is that of
all combinations for reduced spaces, and for whole models the best of a long search or of any run.

    python -m benchmarks.search.regret --jobs 16 --json regret.json --plot search-regret.svg

Ours begins with the pack's default, which often is near the optimum. So TPE runs once more from the
same beginning, as do CMA-ES, local search and greedy, the region scheme once more with the default
as the model to import, and the last rows are of those cases alone where no beginning is within 1%.

``--gates`` compares them on reduced spaces where a gate binds: the SQNR must be 3, 6 or 10 dB
better than that of the pack's default. Ours may measure the noise of placements it does not build
(column "probes"); TPE is told by how much a trial misses; random and regions take what holds.

``--merge`` puts runs of some models, GPUs or seeds together:

    python -m benchmarks.search.regret --models U-Net --json u-net.json
    python -m benchmarks.search.regret --merge u-net.json fpn.json --json regret.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of
from benchmarks.search.models import FULL, GPUS, REDUCED, NoiseUnit
from benchmarks.search.optima import Best, find_bests, read_bests, with_runs
from benchmarks.search.runs import (
    BUDGET,
    HIDDEN,
    NEAR,
    NO_PROFILE,
    OURS,
    REGIONS,
    SCHEMES,
    Case,
    Run,
    parallel,
    search,
)
from placer.accuracy.metrics import finite
from placer.common.files import write_text
from placer.results.result import versions

SEEDS = 5
REGRET_FLOOR = 1e-4  # Of the plot, whose axis is logarithmic.
SHOWN = (20, 50, 100)  # Trials after which the regret is shown.
GATE_DB = (3.0, 6.0, 10.0)
REFERENCE_EVALUATIONS = 20_000
QUICK_MODELS = ("U-Net", "FPN")


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


def run_all(plan: Plan, jobs: int) -> list[Run]:
    """All searches of ``plan``."""
    tasks = [
        partial(search, case, scheme, seed, BUDGET)
        for scheme in plan.schemes
        for case in plan.cases()
        for seed in range(plan.seeds)
    ]
    return list(parallel(tasks, jobs, "searches"))


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
    needed = [run.needed(bests[run.case].ratio) for run in runs]
    low, middle, high = (_trials(_quantile(needed, part)) for part in (0.25, 0.5, 0.75))
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


def _trials(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else f">{BUDGET}"


def _percent(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "none held"


def verdict(plan: Plan, runs: Sequence[Run], bests: Mapping[Case, Best]) -> dict[str, Any]:
    """What the goals ask: median trials, and where ours is worse than another at 50 trials."""
    medians = {}
    for scheme in plan.schemes:
        needed = [run.needed(bests[run.case].ratio) for run in runs if run.scheme == scheme]
        medians[scheme] = _trials(_quantile(needed, 0.5))
    worse = []
    cases = [case for case in plan.cases() if case in bests]  # Merged runs may lack some.
    for case in cases:
        regrets = {
            scheme: median_regret(
                [r for r in runs if (r.case, r.scheme) == (case, scheme)], bests, 50
            )
            for scheme in plan.schemes
        }
        for other in [scheme for scheme in regrets if scheme not in (OURS, NO_PROFILE)]:
            if OURS in regrets and regrets[OURS] > regrets[other] + 1e-9:
                both = {scheme: finite(regrets[scheme]) for scheme in (OURS, other)}
                worse.append({"case": case.key, "than": other, **both})
    hard = sum(bests[case].is_hard for case in cases)
    return {
        "median trials to 1%": medians,
        "cases": len(cases),
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
            numbers = range(1, BUDGET + 1)
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


def document(plan: Plan, bests: Mapping[Case, Best], runs: Sequence[Run]) -> dict[str, Any]:
    """All results as JSON values."""
    return {
        "versions": dict(versions()),
        "plan": asdict(plan),
        "references": [{"case": asdict(c), **asdict(best)} for c, best in bests.items()],
        "verdict": verdict(plan, runs, bests),
        "runs": [asdict(run) for run in runs],
    }


def merged(paths: Sequence[Path]) -> tuple[Plan, list[Run], dict[Case, Best]]:
    """What the files of several runs tell together; of two references of a case, the faster."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    first = documents[0]
    for document in documents:
        if document["versions"] != first["versions"]:
            raise SystemExit(
                f"the runs differ in versions: {document['versions']}, {first['versions']}"
            )
    runs = [
        Run(**{**entry, "case": Case(**entry["case"])})
        for document in documents
        for entry in document["runs"]
    ]
    bests: dict[Case, Best] = {}
    for path in paths:
        for case, best in read_bests(path).items():
            if case not in bests or best.ratio < bests[case].ratio:
                bests[case] = best
    plans = [document["plan"] for document in documents]
    plan = {**plans[0], "seeds": len({run.seed for run in runs})}
    for key in ("models", "gpus", "schemes", "gates"):
        plan[key] = tuple(dict.fromkeys(value for own in plans for value in own[key]))
    return Plan(**plan), runs, with_runs(bests, runs)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = parser_of(__doc__)
    known = [*REDUCED, *FULL]
    parser.add_argument("--models", nargs="+", choices=known, metavar="MODEL", default=known)
    parser.add_argument("--gpus", nargs="+", choices=GPUS, metavar="GPU", default=list(GPUS))
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
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
    parser.add_argument("--merge", type=Path, nargs="+", help="files of earlier runs; runs nothing")
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
    if arguments.merge:
        plan, runs, bests = merged(arguments.merge)
    else:
        plan = make_plan(arguments)
        bests = find_bests(
            plan.cases(), read_bests(arguments.references), plan.evaluations, arguments.jobs
        )
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
