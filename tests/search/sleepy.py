"""A worker process that evaluates every placement in a fixed time and notes what it does."""

import time
from pathlib import Path

from placer.quantization import Placement
from placer.search.records import Outcome, TrialRecord
from placer.search.samplers import ExhaustiveProposer
from placer.search.study.storage import open_storage
from placer.search.study.study import Study
from tests.search.landscapes import space
from tests.search.outcomes import outcome

NAME = "shared"


def cost(placement: Placement) -> Outcome:
    """Each quantized edge makes the model 2% faster."""
    return outcome(1 - 0.02 * len(placement.edges))


def open_shared(url: str, heartbeat_s: int = 1, grace_s: int = 2) -> Study:
    storage = open_storage(url, shared=True, heartbeat_s=heartbeat_s, grace_s=grace_s)
    return Study(storage, NAME, space(), {"model": "m"}, shared=True)


def run(study: Study, evaluate=cost, budget: int | None = None) -> list[TrialRecord]:
    """Try every placement in turn; returns the trials that were run here."""
    own: list[TrialRecord] = []
    proposer = ExhaustiveProposer(space())
    study.run(proposer, evaluate, budget=budget, deadline=None, on_trial=own.append)
    return own


def worker(url: str, log: Path, hangs: bool) -> None:
    """A process that notes in ``log`` when a trial begins and ends."""

    def evaluate(placement: Placement) -> Outcome:
        with log.open("a") as file:
            file.write(f"begin {placement.id}\n")
        time.sleep(600 if hangs else 0.05)
        with log.open("a") as file:
            file.write(f"end {placement.id}\n")
        return cost(placement)

    run(open_shared(url), evaluate)
