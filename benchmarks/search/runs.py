"""One search on one case, with or without a gate; what ``search_regret`` compares."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import optuna
from rich.console import Console

from benchmarks.search.models import Latency, Noise, NoiseUnit, Problem, load_problem
from benchmarks.search.region_scheme import RegionProposer
from benchmarks.search.rivals import (
    CmaEsProposer,
    GreedyProposer,
    LocalProposer,
    StartedProposer,
    TpeProposer,
)
from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.prediction.times.gpus import load_gpu
from placer.results.parts import LatencyPart
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.proposals.surrogate import SurrogateProposer, seed_proposals
from placer.search.records import Judgement, Measurement, TrialRecord
from placer.search.samplers import Proposal, Proposer, RandomProposer
from placer.search.space import Choices, Space

OURS, NO_PROFILE, RANDOM, TPE = "ours", "ours, no profile", "random", "TPE"
SEEDED_TPE, REGIONS = "TPE from our seeds", "regions"
CMA_ES, LOCAL, GREEDY = "CMA-ES", "local search", "greedy"  # From our seeds, too.
IMPORTED_REGIONS = "regions, default imported"
_RIVALS = (RANDOM, TPE, SEEDED_TPE, CMA_ES, LOCAL, GREEDY, REGIONS, IMPORTED_REGIONS)
SCHEMES = (OURS, NO_PROFILE, *_RIVALS)
BUDGET = 100
# Standard deviation of the logarithm of the hidden factor.
HIDDEN = 0.25
NEAR = 1.01  # Found: at most this times the optimum.

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

    def gate(self) -> Gate | None:
        """Its gate, if there is one."""
        if self.gate_db is None:
            return None
        return Gate(load_problem(self.model), self.noise, self.gate_db)

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


class NoiseGate(Protocol):
    """A gate on the noise of a placement."""

    def power(self, choices: Choices) -> float:
        """Noise power of a trial."""
        ...

    def violation(self, noise: float) -> float:
        """By how many dB the gate is missed; at most 0 if it holds."""
        ...


class Gate:
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


def no_probe(choices: Choices) -> float:
    """Of a search without gates, which measures no noise."""
    raise RuntimeError(f"a search without gates measured the noise of {choices}")


def make_proposer(scheme: str, problem: Problem, seed: int, gate: Gate | None) -> Proposer:
    """The search ``scheme``, knowing nothing yet."""
    if scheme in (OURS, NO_PROFILE):
        return SurrogateProposer(
            Landscape(problem.space, problem.layer_model()),
            seed,
            no_probe if gate is None else gate.probe,
            per_site=False,
            noise_limit=None if gate is None else gate.limit,
        )
    return make_rival(scheme, problem.space, seed)


def make_rival(scheme: str, space: Space, seed: int) -> Proposer:
    """A search that is not ours, knowing nothing yet."""
    starts = starts_of(space)
    made: dict[str, Callable[[], Proposer]] = {
        RANDOM: lambda: RandomProposer(space, seed),
        TPE: lambda: TpeProposer(space, seed),
        SEEDED_TPE: lambda: TpeProposer(space, seed, starts),
        CMA_ES: lambda: CmaEsProposer(space, seed, starts),
        LOCAL: lambda: StartedProposer(space, starts, LocalProposer(space, seed).propose),
        GREEDY: lambda: StartedProposer(space, starts, GreedyProposer(space).propose),
        REGIONS: lambda: RegionProposer(space, seed),
        IMPORTED_REGIONS: lambda: RegionProposer(space, seed, baseline=space.defaults),
    }
    return made[scheme]()


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
    gate: NoiseGate | None,
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
