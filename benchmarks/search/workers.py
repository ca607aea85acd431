"""Workers that share one study with the surrogate sampler, on an engine that sleeps.

    python -m benchmarks.search.workers [--workers 1 4 16 64] [--seconds 3]

The engine's latencies and noise are functions of the placement (``search_overhead.InstantEngine``),
so every run sees the same world; a trial takes ``--seconds``. Workers are threads of at most
``PROCESSES`` processes, each with its own connection to a PostgreSQL server of this machine; the
threads of a process propose one after another. Regret is against the best of all runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Lock, Thread

import onnx
import psycopg

from benchmarks.command_line import write_json
from benchmarks.networks import topologies
from benchmarks.search.overhead import InstantEngine
from placer.common.blas import one_blas_thread
from placer.model import load_model
from placer.prediction.layers.predictor import Predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import build_space
from placer.search.study.storage import open_storage
from placer.search.study.study import Study
from tests import postgresql

PROCESSES = 4
# The network is read once: importing takes longer than a trial.
FORK = multiprocessing.get_context("fork")


World = tuple[Landscape, InstantEngine]


@dataclass(frozen=True)
class Figures:
    """What became of one study; ``best_at``: lowest latency after each trial that ended."""

    workers: int
    gate_binds: bool
    seed: int
    wall_s: float
    proposals: int
    trials: int
    placements: int
    transactions: int
    best_at: list[float | None]


@dataclass(frozen=True)
class Job:
    """One study: where it is and how it is worked on."""

    url: str
    name: str
    workers: int
    seconds: float
    budget: int
    seed: int
    bound: bool


class Counting:
    """A proposer that counts its proposals and remembers them by placement."""

    def __init__(self, proposer: SurrogateProposer) -> None:
        self._proposer = proposer
        self.count = 0
        self.by_placement: dict[str, Proposal] = {}

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``; the threads of a process take turns."""
        proposal = self._proposer.propose(trials)
        if proposal is not None:
            self.count += 1
            space = self._proposer.landscape.space
            self.by_placement[space.placement(proposal.choices).id] = proposal
        return proposal


def world(bound: bool) -> World:
    """MobileNetV2 as ONNX Runtime's rules see it, and an engine with predictions of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(topologies.mobilenet_v2(96), path)
        graph = load_model(path).graph
    pack = load_pack("onnxruntime")
    space = build_space(graph, find_sites(graph, pack.rules, ANY_TARGET))
    activation = pack.manifest.scheme.activation
    predictor = Predictor(graph, pack.rules, ANY_TARGET, "float", activation)
    landscape, other = (Landscape(space, LayerModel(graph, predictor)) for _ in range(2))
    return landscape, InstantEngine(other, bound=bound)


@one_blas_thread()  # As in a run: threads of several processes get in each other's way.
def work(
    job: Job, own: World, threads: int, ready: Barrier, counts: multiprocessing.SimpleQueue[int]
) -> None:
    """What a process of several workers does."""
    landscape, engine = own
    measuring = Lock()
    storage = open_storage(job.url, shared=True, heartbeat_s=5, grace_s=60)
    study = Study(storage, job.name, landscape.space, {}, shared=True)
    proposer = Counting(
        SurrogateProposer(
            landscape,
            job.seed,
            engine.noise,
            noise_limit=engine.limit if job.bound else None,
            reserve=study.reserve,
        )
    )

    def evaluate(placement: Placement) -> Outcome:
        time.sleep(job.seconds)
        with measuring:
            record = engine.record(0, proposer.by_placement[placement.id])
        return Outcome(record.measurement, record.judgement)

    def run() -> None:
        study.run(proposer, evaluate, budget=job.budget, deadline=None, on_trial=lambda _: None)

    workers = [Thread(target=run) for _ in range(threads)]
    ready.wait()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    counts.put(proposer.count)


def figures(job: Job, own: World) -> Figures:
    """Work on one study until its budget is spent."""
    processes = min(PROCESSES, job.workers)
    ready, counts = FORK.Barrier(processes + 1), FORK.SimpleQueue()
    workers = [
        FORK.Process(target=work, args=(job, own, job.workers // processes, ready, counts))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    start, before = time.monotonic(), transactions(job.url)
    for worker in workers:
        worker.join()
    wall_s = time.monotonic() - start
    study = Study(open_storage(job.url, shared=False), job.name, own[0].space, {})
    records = study.records()
    best: list[float | None] = []
    for record in records:
        known = [*best[-1:], record.ratio if record.feasible else None]
        best.append(min((ratio for ratio in known if ratio is not None), default=None))
    return Figures(
        workers=job.workers,
        gate_binds=job.bound,
        seed=job.seed,
        wall_s=wall_s,
        proposals=sum(counts.get() for _ in workers),
        trials=len(records),
        placements=len({record.placement_id for record in records}),
        transactions=transactions(job.url) - before,
        best_at=best,
    )


def transactions(url: str) -> int:
    """How many the server has committed."""
    time.sleep(1.5)  # Sessions report theirs once a second.
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT sum(xact_commit) FROM pg_stat_database").fetchone()
    return int(found[0]) if found else 0


def main() -> None:
    """Run the studies, print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="that a trial takes")
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--gates", choices=("free", "bound"), nargs="*", default=["free", "bound"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    why = postgresql.unavailable()
    if why is not None:
        raise SystemExit(why)
    rows = []
    with postgresql.server() as url:
        for gate in arguments.gates:
            own = world(bound=gate == "bound")
            for seed in range(arguments.seeds):
                for workers in arguments.workers:
                    name = f"{gate}-{seed}-{workers}"
                    spent = arguments.seconds, arguments.budget
                    row = figures(Job(url, name, workers, *spent, seed, gate == "bound"), own)
                    rows.append(asdict(row))
                    print(json.dumps({**asdict(row), "best_at": row.best_at[15::16]}), flush=True)
    if arguments.json:
        write_json(arguments.json, {"seconds_per_trial": arguments.seconds, "runs": rows})


if __name__ == "__main__":
    main()
