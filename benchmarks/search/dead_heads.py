"""How soon searches hold a gate where sites destroy parts of the outputs.

A detector like YOLOv8 with six output parts and ``sqnr>=15``. Each group adds noise to each part,
log-uniform over three decades, scaled so that a third of all groups, drawn at random, has half of
the noise that the gate allows. Of what is not within this third, a ``--shares`` of pairs of groups
that are near each other destroy a part (noise of 1 to 10) when both are quantized, as INT8
arithmetic at a Concat does where it is wrong; and a third of as large a share of all groups destroy
one alone. The first parts are destroyed most often, so that taking groups out of the default one by
one changes nothing. A part with noise n in sum reads ``n / (1 + n)``; the worst part counts, as
placer counts it.

Latencies are those of ``search_models``. Searches begin with the same placements. "Greedy" ranks
groups by their own measured noise, one probe each, and bisects how many of the quietest hold the
gate; it then adds the others one by one.

    python -m benchmarks.search.dead_heads --json dead-heads.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of
from benchmarks.search.models import (
    ASIDE,
    FULL,
    GPUS,
    REDUCED,
    Problem,
    load_problem,
    neighbours,
    seed_of,
)
from benchmarks.search.rivals import (
    QuietestProposer,
    StartedProposer,
    TpeProposer,
    decided_by_default,
)
from benchmarks.search.runs import Case, measured_trial, parallel, starts_of
from placer.common.files import write_text
from placer.results.result import versions
from placer.search.landscape.landscape import Landscape
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord
from placer.search.samplers import Proposer, RandomProposer
from placer.search.space import Choices

SCHEMES = ("ours", "greedy", "TPE", "random")
PARTS, LIMIT_DB, DECADES = 6, 15.0, 3.0
BUDGET, SEEDS, SHARES = 50, 3, (0.0, 0.25, 1.0)
SHOWN = (12, 20, 30, 50)


class DeadHeads:
    """Noise of one problem's placements, as ``search_runs`` wants its gate."""

    def __init__(self, problem: Problem, share: float, world: int) -> None:
        """``world``: which groups destroy what."""
        self._space = problem.space
        self.limit = 10 ** (-LIMIT_DB / 10)
        self.probed: set[str] = set()
        count = len(self._space.groups)
        rng = np.random.default_rng(seed_of("dead heads", problem.name, share, world))
        self._powers = 10 ** (rng.uniform(-DECADES, 0, (count, PARTS)))
        near = neighbours(self._space)
        pairs = [(i, j) for i, j in combinations(range(count), 2) if j in near[i]]
        third = sorted(rng.choice(count, size=math.ceil(count / 3), replace=False).tolist())
        alone = rng.permutation(sorted(set(range(count)) - set(third)))[: round(share * count / 3)]
        loud = [pair for pair in pairs if not set(pair) <= set(third)]
        together = rng.permutation(len(loud))[: round(share * len(loud))]
        self._killers: list[tuple[int, ...]] = [(int(group),) for group in alone]
        self._killers += [loud[int(i)] for i in together]
        # Parts that come first are destroyed more often.
        self._parts = [int(PARTS * rng.uniform() ** 2) for _ in self._killers]
        self._strength = 10 ** rng.uniform(0, 1, len(self._killers))
        self._powers *= 0.5 * self.limit / self._powers[third].sum(axis=0).max()

    def power(self, choices: Choices) -> float:
        """Noise of the worst part."""
        floats = self._space.floats
        on = np.array([choices[g.name] != floats[g.name] for g in self._space.groups])
        noise = self._powers[on].sum(axis=0) if on.any() else np.zeros(PARTS)
        destroyers = zip(self._killers, self._parts, self._strength, strict=True)
        for groups, part, strength in destroyers:
            if all(on[group] for group in groups):
                noise[part] += strength
        return float((noise / (1 + noise)).max())

    def probe(self, choices: Choices) -> float:
        """Noise of a placement that is not built."""
        self.probed.add(self._space.placement(choices).id)
        return self.power(choices)

    def violation(self, noise: float) -> float:
        """By how many dB the gate is missed; at most 0 if it holds."""
        return 10 * math.log10(max(noise, 1e-12) / self.limit)


def quietest(problem: Problem, noise: DeadHeads) -> Proposer:
    """Greedy by the noise of each group alone, which is measured first."""
    space = problem.space
    floats, defaults = space.floats, space.defaults
    names = decided_by_default(space)
    own = {name: noise.probe({**floats, name: defaults[name]}) for name in names}
    return QuietestProposer(space, own)


@dataclass(frozen=True)
class Run:
    """One search. ``first``: number of the first trial that held the gate, the float model apart.

    ``best``: the best latency that held after each trial, at most 1, the float model's.
    """

    model: str
    share: float
    seed: int
    scheme: str
    first: int | None
    best: Sequence[float]
    probes: int
    seconds: float


def make_proposer(scheme: str, problem: Problem, seed: int, noise: DeadHeads) -> Proposer:
    """The search ``scheme``, knowing nothing yet."""
    space, starts = problem.space, starts_of(problem.space)
    if scheme == "ours":
        landscape = Landscape(space, problem.layer_model())
        return SurrogateProposer(
            landscape, seed, noise.probe, per_site=False, noise_limit=noise.limit
        )
    if scheme == "TPE":
        return TpeProposer(space, seed, starts)
    after = quietest(problem, noise) if scheme == "greedy" else RandomProposer(space, seed)
    return StartedProposer(space, starts, after.propose)


def search(model: str, gpu: str, share: float, seed: int, scheme: str, budget: int) -> Run:
    """Run one search in the world ``seed`` until its budget is spent or nothing is left to try."""
    problem, latency = load_problem(model), Case(model, gpu).latency()
    noise = DeadHeads(problem, share, seed)
    proposer = make_proposer(scheme, problem, seed, noise)
    start, trials, best = time.monotonic(), list[TrialRecord](), list[float]()
    first = None
    while len(trials) < budget and (proposal := proposer.propose(trials)) is not None:
        trial = measured_trial(
            problem, latency, noise, len(trials), proposal, profiled=scheme == "ours"
        )
        trials.append(trial)
        ratio = trial.ratio if trial.feasible else None
        if ratio is not None and first is None and trial.choices != problem.space.floats:
            first = len(trials)
        best.append(min(best[-1] if best else 1.0, 1.0 if ratio is None else ratio))
    seconds = time.monotonic() - start
    return Run(model, share, seed, scheme, first, best, len(noise.probed), seconds)


def table(runs: Sequence[Run]) -> Table:
    """By share and scheme."""
    shown = Table(title=f"sqnr>={LIMIT_DB:g} where sites destroy parts of the outputs")
    for column in ("model", "pairs that destroy", "scheme", "runs", "first that holds"):
        shown.add_column(column)
    for trials in SHOWN:
        shown.add_column(f"of float at {trials}")
    shown.add_column("probes")
    for model, share, scheme in dict.fromkeys((r.model, r.share, r.scheme) for r in runs):
        own = [r for r in runs if (r.model, r.share, r.scheme) == (model, share, scheme)]
        firsts = sorted(math.inf if run.first is None else run.first for run in own)
        after = [median(run.best[min(n, len(run.best)) - 1] for run in own) for n in SHOWN]
        shown.add_row(
            model,
            f"{share:.0%}",
            scheme,
            str(len(own)),
            ", ".join("none" if math.isinf(value) else str(value) for value in firsts),
            *(f"{value:.3f}" for value in after),
            f"{median(run.probes for run in own):.0f}",
        )
    return shown


def parse() -> argparse.Namespace:
    """Command line."""
    parser = parser_of(__doc__)
    known = [*REDUCED, *FULL, *ASIDE]
    parser.add_argument(
        "--models", nargs="+", choices=known, metavar="MODEL", default=["YOLO full"]
    )
    parser.add_argument("--gpu", choices=GPUS, default=GPUS[0])
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Print the table and write JSON."""
    arguments = parse()
    tasks = [
        partial(search, model, arguments.gpu, share, seed, scheme, arguments.budget)
        for model in arguments.models
        for share in arguments.shares
        for scheme in arguments.schemes
        for seed in range(arguments.seeds)
    ]
    runs: list[Run] = list(parallel(tasks, arguments.jobs, "searches"))
    Console(width=130).print(table(runs))
    if arguments.json:
        document = {"versions": dict(versions()), "runs": [asdict(run) for run in runs]}
        write_text(arguments.json, json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
