"""Searches on objectives that no part of the search was made for; six kinds.

- ``streams``: layers run on two streams, those of a random half of the groups on one, the others'
  on the other, and the slower stream is the latency. Layers of no group run on both.
- ``plateau``: four groups of five change nothing, whatever profiles of their layers say.
- ``negative``: each two neighbouring groups that are both quantized slow each other down.
- ``outputs``: four outputs, each with an SQNR that it must reach (6 dB above that of the default).
  Every edge adds its own noise to each, and each placement's noise on each is off by 30%.
- ``combinations``: the engine refuses three of four random placements, those in which all of three
  random groups are quantized.
- ``drift``: the machine gets 6% slower and quicker in waves of 17 trials, and 10% slower for good
  after the twentieth.

Builds, starts, budget, finalists and regret are those of ``adverse``.

    python -m benchmarks.search.odd --set read --jobs 2 --json odd.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.command_line import parser_of
from benchmarks.networks.fresh import FRESH
from benchmarks.networks.further import FURTHER
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.search import adverse
from benchmarks.search.adverse import MISSED_DB, Case, Run, World
from benchmarks.search.misfits import HIDDEN
from benchmarks.search.models import Latency, Measured, Problem, neighbours
from benchmarks.search.runs import parallel
from placer.accuracy.gates import GateResult
from placer.common.files import write_text
from placer.prediction.times.gpus import load_gpu
from placer.quantization import Placement
from placer.search.records import TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices

KINDS = ("streams", "plateau", "negative", "outputs", "combinations", "drift")
READ: Mapping[str, tuple[adverse.Build, str]] = {
    "YOLOv3-tiny": (FURTHER["YOLOv3-tiny"], "onnxruntime"),
    "GhostNet": (HELD_OUT["GhostNet"], "tensorrt"),
    "RegNetY": (FRESH["RegNetY"], "onnxruntime"),
    "Inception": (HELD_OUT["Inception"], "tensorrt"),
}
ASIDE: Mapping[str, tuple[adverse.Build, str]] = {
    "wav2vec 2.0": (FURTHER["wav2vec 2.0"], "onnxruntime"),
    "YOLOv5-like": (FRESH["YOLOv5-like"], "tensorrt"),
    "diffusion U-Net": (FURTHER["diffusion U-Net"], "onnxruntime"),
    "SqueezeNet": (FURTHER["SqueezeNet"], "tensorrt"),
}
GPUS = {
    "read": ("l40s", "a10", "orin-nano-8gb", "l40s"),
    "aside": ("h100-sxm", "rtx-3090", "a30", "titan-rtx"),
}
# Of the groups, those that change the latency; of random placements, those that are refused.
COUNTING, REFUSED = 0.2, 0.75
SLOWER, OUTPUTS, OWN = 0.25, 4, 0.3
WAVE, WAVE_TRIALS, STEP, STEP_TRIAL = 0.06, 17, 0.10, 20


@lru_cache(maxsize=2)
def problem_of(name: str) -> Problem:
    """The network ``name`` of ``READ`` or ``ASIDE``."""
    return adverse.load_problem(name, *{**READ, **ASIDE}[name])


class Streams(Latency):
    """The slower of two streams, relative to that of the float model."""

    def __init__(self, problem: Problem, gpu: str, rng: np.random.Generator) -> None:
        super().__init__(problem, load_gpu(gpu), HIDDEN)
        self._stream = {
            node.name: int(stream)
            for group, stream in zip(
                problem.space.groups, rng.integers(0, 2, len(problem.space.groups)), strict=True
            )
            for site in group.sites
            for node in site.match.nodes.values()
        }
        self._float_slower = self._slower(problem.space.placement(problem.space.floats))

    def ratio(self, placement: Placement) -> float:
        """See ``Latency``."""
        return self._slower(placement) / self._float_slower

    def measure(self, placement: Placement) -> Measured:
        """See ``Latency``; profiles tell the layers of both streams."""
        return replace(super().measure(placement), ratio=self.ratio(placement))

    def _slower(self, placement: Placement) -> float:
        self._predict(placement)
        took = [0.0, 0.0]
        for layer in self._layers.predict(placement).layers:
            cost = self._costs[self._layers.number(layer)]
            streams = {self._stream[n.name] for n in layer.nodes if n.name in self._stream}
            for stream in streams or (0, 1):
                took[stream] += cost
        return max(took)


class OddWorld(World):
    """What building, timing and judging gives; ``Case.gate`` is one of ``KINDS``."""

    def __init__(self, case: Case) -> None:
        super().__init__(replace(case, gate=""))
        self.kind = case.gate
        self.groups = self.problem.space.groups
        if self.kind == "streams":
            self.latency = Streams(self.problem, case.gpu, self._rng("streams"))
        self._counting = self._drawn(max(2, round(COUNTING * len(self.groups))))
        self._triples = self._refused_triples() if self.kind == "combinations" else ()
        self._near = [
            (i, j)
            for i, j in combinations(range(len(self.groups)), 2)
            if j in neighbours(self.problem.space)[i]
        ]
        default = self._powers(self.problem.space.defaults, own=0.0)
        self._limits = default * 10 ** (-MISSED_DB / 10)

    def load(self) -> Problem:
        """See ``World``."""
        return problem_of(self.case.model)

    def _drawn(self, count: int) -> set[str]:
        return {
            self.groups[i].name for i in self._rng("drawn").permutation(len(self.groups))[:count]
        }

    def _quantized(self, choices: Choices) -> list[bool]:
        floats = self.problem.space.floats
        return [choices[group.name] != floats[group.name] for group in self.groups]

    def _refused_triples(self) -> tuple[tuple[int, ...], ...]:
        rng, chosen = self._rng("triples"), list[tuple[int, ...]]()
        drawn = np.array(
            [
                self._quantized({g.name: str(rng.choice(g.layouts)) for g in self.groups})
                for _ in range(200)
            ]
        )
        hit = np.zeros(len(drawn), dtype=bool)
        for _ in range(1000):
            if hit.mean() >= REFUSED:
                break
            triple = tuple(rng.permutation(len(self.groups))[:3].tolist())
            hit |= drawn[:, triple].all(axis=1)
            chosen.append(triple)
        return tuple(chosen)

    def fails(self, choices: Choices) -> bool:
        """See ``World``."""
        own = self._quantized(choices)
        return any(all(own[i] for i in triple) for triple in self._triples)

    def true(self, choices: Choices) -> float:
        """See ``World``."""
        space = self.problem.space
        if self.kind == "plateau":
            choices = {**space.floats, **{name: choices[name] for name in self._counting}}
        ratio = self.latency.ratio(space.placement(choices))
        if self.kind == "negative":
            own = self._quantized(choices)
            both = sum(
                abs(float(self._rng("near", i, j).standard_normal()))
                for i, j in self._near
                if own[i] and own[j]
            )
            ratio *= math.exp(SLOWER * both / math.sqrt(max(1, len(self._near))))
        return ratio

    def _powers(self, choices: Choices, own: float = OWN) -> np.ndarray:
        """Noise power on each output."""
        key = self.problem.space.placement(choices).id
        off = np.exp(own * self._rng("own", key).standard_normal(OUTPUTS))
        form = self._layers.predict(self.problem.space.placement(choices)).prediction.form
        edges = sorted({f"{e.node}:{e.input_index}" for part in form.canonical() for e, _ in part})
        total = np.full(OUTPUTS, 1e-12)
        for edge in edges:
            total += 10 ** (-5 + 3 * self._rng("edge", edge).uniform(size=OUTPUTS))
        return np.asarray(total * off)

    def power(self, choices: Choices) -> float:
        """See ``World``."""
        return float(self._powers(choices).mean())

    def trial(self, number: int, proposal: Proposal, profiled: bool) -> TrialRecord:
        """See ``World``."""
        record = super().trial(number, proposal, profiled)
        measured, judged = record.measurement, record.judgement
        if measured is None or judged is None:
            return record
        ratio = measured.ratio.median
        if any(self._quantized(proposal.choices)):
            plain = self.latency.ratio(self.problem.space.placement(proposal.choices))
            ratio *= self.true(proposal.choices) / plain
            if self.kind == "drift":
                ratio *= 1 + WAVE * math.sin(2 * math.pi * number / WAVE_TRIALS)
                ratio *= 1 + STEP * (number >= STEP_TRIAL)
        half = self.case.noise * ratio
        paired = replace(measured.ratio, median=ratio, low=ratio - half, high=ratio + half)
        gates: tuple[GateResult, ...] = ()
        if self.kind == "outputs":
            missed = 10 * np.log10(self._powers(proposal.choices) / self._limits)
            gates = tuple(
                GateResult(f"output {i}", None, "", float(by)) for i, by in enumerate(missed)
            )
        return replace(
            record,
            measurement=replace(measured, ratio=paired),
            judgement=replace(judged, gates=gates),
        )


def cases(which: str, worlds: Sequence[int], kinds: Sequence[str]) -> list[Case]:
    """Two networks for each kind, in turn."""
    names, found = list(READ if which == "read" else ASIDE), []
    for number, kind in enumerate(KINDS):
        for index in (number % len(names), (number + 1) % len(names)):
            for world in worlds:
                gpu = GPUS[which][index]
                if kind in kinds:
                    found.append(Case(names[index], gpu, 0.0, world, 0.01, 0.0, kind))
    return found


def search(case: Case, scheme: str, budget: int) -> Run:
    """One search."""
    return replace(adverse.search_in(OddWorld(case), scheme, budget), case=case)


def main() -> None:
    """Print a table and write JSON."""
    parser = parser_of(__doc__)
    adverse.add_search_options(parser, first_world=7101, worlds=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments: argparse.Namespace = parser.parse_args()
    worlds = range(arguments.first_world, arguments.first_world + arguments.worlds)
    tasks: list[Callable[[], Any]] = [
        partial(search, case, scheme, arguments.budget)
        for case in cases(arguments.set, worlds, arguments.kinds)
        for scheme in arguments.schemes
    ]
    runs = [run for path in arguments.merge or () for run in adverse.load(path)]
    for run in parallel(tasks if not arguments.merge else [], arguments.jobs, "searches"):
        runs.append(run)
        if arguments.json:  # What is there if it is cut off.
            write_text(arguments.json, json.dumps([asdict(run) for run in runs]) + "\n")
    Console(width=170).print(adverse.table(runs, KINDS))


if __name__ == "__main__":
    main()
