"""Workers on one PostgreSQL: speed-up on a simulated engine, and what a kill and a late start do.

    python -m benchmarks.robustness.workers [--seconds 2] [--budget 40] [--json FILE]

Every trial takes ``--seconds`` (the engine is simulated: it sleeps) and gives a latency and a
noise that are functions of the placement, so all runs see the same world. Placements of the
bundled digits model are drawn at random, which takes next to no time. Three studies: one worker
alone; four workers, timed from the moment all stand ready; four workers of which one gets SIGKILL
within a trial and one starts late. The server is this machine's own PostgreSQL on the loopback
interface.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import optuna

from benchmarks.command_line import write_json
from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.graph import Edge
from placer.model import load_model
from placer.quantization import Placement
from placer.results.parts import LatencyPart
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.search.records import Judgement, Measurement, Outcome, by_latency
from placer.search.samplers import RandomProposer
from placer.search.space import Space, build_space
from placer.search.study.storage import open_storage
from placer.search.study.study import Study
from placer.search.study.trial_attributes import TrialReader
from tests import postgresql

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
HEARTBEAT_S, GRACE_S = 1, 4
WORKERS = 4
NOISE_LIMIT = 0.08
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Figures:
    """What became of one study."""

    workers: int
    wall_s: float
    trials: int
    placements: int
    evaluations: int
    best_ratio: float
    best_placement: str
    trials_by_worker: list[int]
    states: dict[str, int]
    withdrawn: int
    unfinished: int


def main() -> None:
    """Run the three studies, print a table and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    why = postgresql.unavailable()
    if why is not None:
        raise SystemExit(why)
    with postgresql.server() as url, tempfile.TemporaryDirectory() as folder:
        runs = {
            name: study(url, name, Path(folder), arguments.seconds, arguments.budget)
            for name in ("alone", "together", "killed")
        }
    for name, figures in runs.items():
        print(name, json.dumps(asdict(figures)))
    speed_up = runs["alone"].wall_s / runs["together"].wall_s
    print(f"speed-up with {WORKERS} workers: {speed_up:.2f}")
    if arguments.json:
        found = {
            "seconds_per_trial": arguments.seconds,
            "budget": arguments.budget,
            "speed_up": speed_up,
            "same_best": len({figures.best_ratio for figures in runs.values()}) == 1,
            **{name: asdict(figures) for name, figures in runs.items()},
        }
        write_json(arguments.json, found)


def study(url: str, name: str, folder: Path, seconds: float, budget: int) -> Figures:
    """Run one study: ``alone``, ``together``, or with one worker ``killed`` and one late."""
    count = 1 if name == "alone" else WORKERS
    late = 1 if name == "killed" else 0
    ready = SPAWN.Barrier(count - late + 1)
    logs = [folder / f"{name}{i}.txt" for i in range(count)]
    workers = [
        SPAWN.Process(
            target=work, args=(url, name, log, seconds, budget, ready if i < count - late else None)
        )
        for i, log in enumerate(logs)
    ]
    for worker in workers[: count - late]:
        worker.start()
    ready.wait()
    start = time.monotonic()
    if late:
        kill_within_a_trial(workers[0], logs[0], seconds)
        workers[-1].start()
    for worker in workers:
        worker.join()
    return figures_of(url, name, logs, time.monotonic() - start)


def kill_within_a_trial(worker: SpawnProcess, log: Path, seconds: float) -> None:
    """Let ``worker`` finish two trials and kill it in the middle of the third."""
    while log.read_text().count("begin") < 3:
        if not worker.is_alive():
            raise SystemExit("the study ended before a worker's third trial; raise --budget")
        time.sleep(0.05)
    time.sleep(seconds / 2)
    os.kill(worker.pid or 0, signal.SIGKILL)


def work(
    url: str, name: str, log: Path, seconds: float, budget: int, ready: Barrier | None
) -> None:
    """What a worker process does."""
    space = digits_space()
    storage = open_storage(url, shared=True, heartbeat_s=HEARTBEAT_S, grace_s=GRACE_S)
    shared = Study(storage, name, space, {"budget": budget}, shared=True)
    log.touch()

    def evaluate(placement: Placement) -> Outcome:
        with log.open("a") as file:
            file.write(f"begin {placement.id}\n")
        time.sleep(seconds)
        with log.open("a") as file:
            file.write(f"end {placement.id}\n")
        return simulated(placement)

    proposer = RandomProposer(space, seed=0)
    if ready is not None:
        ready.wait()
    shared.run(proposer, evaluate, budget=budget, deadline=None, on_trial=lambda _: None)


def digits_space() -> Space:
    """What is decided in the digits model."""
    graph = load_model(MODEL).graph
    return build_space(graph, find_sites(graph, load_pack("onnxruntime").rules))


def simulated(placement: Placement) -> Outcome:
    """Latency and noise that add up over edges, by a hash of each: any values will do."""
    ratio = 1 - sum(0.03 * share("gain", edge) - 0.005 for edge in placement.edges)
    noise = noise_of(placement)
    return Outcome(
        Measurement(
            Ratio(ratio, ratio, ratio, 1),
            LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1),
        ),
        Judgement((GateResult("noise", noise, "", noise - NOISE_LIMIT),), noise),
    )


def noise_of(placement: Placement) -> float:
    """Noise power of a placement."""
    return sum(0.01 * share("noise", edge) ** 3 for edge in placement.edges)


def share(kind: str, edge: Edge) -> float:
    """A number from 0 to 1 that is always the same for ``edge``."""
    return zlib.crc32(f"{kind} {edge.node} {edge.input_index}".encode()) / 2**32


def figures_of(url: str, name: str, logs: Sequence[Path], wall_s: float) -> Figures:
    """Read the study and the workers' logs."""
    storage = open_storage(url, shared=False)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    reader = TrialReader(digits_space(), name)
    measured = [reader.record(trial) for trial in trials if "outcome" in trial.user_attrs]
    best = by_latency(measured)[0]
    ended = [log.read_text().count("end") for log in logs]
    return Figures(
        workers=len(logs),
        wall_s=wall_s,
        trials=len(measured),
        placements=len({record.placement_id for record in measured}),
        evaluations=sum(ended),
        best_ratio=best.ratio or math.nan,
        best_placement=best.placement_id,
        trials_by_worker=ended,
        states=dict(Counter(trial.state.name for trial in trials)),
        withdrawn=sum("withdrawn" in trial.user_attrs for trial in trials),
        unfinished=sum(not trial.state.is_finished() for trial in trials),
    )


if __name__ == "__main__":
    main()
