"""The searches of openvino_models.py: which there are, and when each can start.

What later ones ask for follows from what earlier ones reached, which their folders tell, so a run
that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from placer.errors import InputError
from placer.optimizer.options.request import Preset, Recover

# NNCF variants whose SQNR is that far from those that have searches get their own, at their SQNR.
LESS_DB = 1
RESULT = "result.json"
MEASURED = "measured.json"
# Each process has one core, but libraries start a thread for each of the machine's when they are
# imported: with 15 processes on 16 cores, accuracy control took 380 s instead of 7 on U-Net.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SCRIPT = ("-m", "benchmarks.peers.openvino_models")


@dataclass(frozen=True)
class Job:
    """A search of one model. ``least``: the SQNR in dB that is asked for; None where none is."""

    model: str
    variant: str
    tool: str
    least: float | None = None


@dataclass(frozen=True)
class Options:
    """What a run was asked for.

    ``extra``: dB above the best of ``nncf.quantize`` that gates ask for. ``no_control``: models
    without NNCF's accuracy control. ``no_runtime``: nothing on ONNX Runtime is searched.
    """

    folder: Path
    samples: int
    budget: int
    iterations: int
    rounds: int
    preset: Preset
    recover: Recover
    extra: tuple[int, ...]
    no_control: tuple[str, ...]
    no_runtime: bool

    def place(self, job: Job) -> Path:
        """The folder of a job's results."""
        return self.folder / job.model / job.variant.replace("/", "-")

    def arguments(self) -> list[str]:
        """The same as arguments of the script."""
        found: list[str] = []
        for name in ("folder", "samples", "budget", "iterations", "rounds", "preset", "recover"):
            found += [f"--{name}", str(getattr(self, name))]
        found += ["--extra", *map(str, self.extra), "--no-control", *self.no_control]
        return [*found, "--no-runtime"] if self.no_runtime else found


def kept(job: Job, options: Options) -> dict[str, Any] | None:
    """What is known of a job that is done; None otherwise. InputError if it was another one."""
    path = options.place(job) / RESULT
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["job"] != asdict(job):
        raise InputError(f"{path} is of another search; choose another folder")
    return found


def first_jobs(name: str, variants: Sequence[str]) -> list[Job]:
    """``nncf.quantize``, which needs no gate."""
    return [Job(name, variant, "nncf") for variant in variants]


def gated_jobs(first: Sequence[Job], options: Options) -> list[Job]:
    """What is asked for as much SQNR as ``nncf.quantize`` has, and for more than its best."""
    name, reached = first[0].model, _reached(first, options)
    if not reached:
        return []
    best = max(reached.values())
    jobs = [Job(name, f"placer, +{more} dB", "openvino", best + more) for more in options.extra]
    gates = [best]
    for variant, sqnr in reached.items():
        if all(abs(sqnr - gate) >= LESS_DB for gate in gates):
            gates.append(sqnr)
            jobs.append(Job(name, f"placer, as {variant}", "openvino", sqnr))
    for more in () if name in options.no_control else filter(None, options.extra):
        jobs.append(Job(name, f"nncf with accuracy control, +{more} dB", "nncf", best + more))
    if options.no_runtime:
        return jobs
    return [*jobs, Job(name, "ONNX Runtime by placer, +0 dB", "onnxruntime", best)]


def _reached(first: Sequence[Job], options: Options) -> dict[str, float]:
    """SQNR in dB by variant of ``nncf.quantize`` and base precision, where OpenVINO takes it."""
    done = {job.variant: kept(job, options) or {} for job in first}
    found = {variant: one.get("found_sqnr_db") for variant, one in done.items()}
    half = {f"{variant}, bf16": one.get("found_sqnr_bf16_db") for variant, one in done.items()}
    return {variant: sqnr for variant, sqnr in {**found, **half}.items() if sqnr is not None}


def last_jobs(gated: Sequence[Job], options: Options) -> list[Job]:
    """placer at what accuracy control has reached, as far as it is known, each value once."""
    reached: dict[float, Job] = {}
    for job in gated:
        found = kept(job, options) or {}
        if job.tool == "nncf" and found.get("found_sqnr_db") is not None:
            reached.setdefault(found["found_sqnr_db"], job)
    return [
        Job(job.model, f"placer, as {job.variant}", "openvino", sqnr)
        for sqnr, job in reached.items()
    ]


def all_jobs(name: str, variants: Sequence[str], options: Options) -> list[Job]:
    """The jobs of a model, as far as they are known; ``variants`` of ``nncf.quantize``."""
    first = first_jobs(name, variants)
    gated = gated_jobs(first, options)
    return [*first, *gated, *last_jobs(gated, options)]


@dataclass
class Schedule:
    """Runs the script for parts of the work, one process on a core, until all is done.

    ``variants``: of ``nncf.quantize``, by model; models that come first go first. ``measure``: a
    model is measured once its searches are done.
    """

    options: Options
    cores: Sequence[int]
    variants: Mapping[str, Sequence[str]]
    measure: bool
    _begun: set[Job] = field(default_factory=set)
    _running: dict[Future[None], tuple[Job, int]] = field(default_factory=dict)

    def run(self) -> None:
        """Start what can start whenever a core is free."""
        free = list(self.cores)
        with ThreadPoolExecutor(len(free)) as pool:
            while True:
                for job in list(self._ready())[: len(free)]:
                    self._begun.add(job)
                    core = free.pop(0)
                    self._running[pool.submit(self._process, job, core)] = job, core
                if not self._running:
                    return
                for ended in wait(self._running, return_when=FIRST_COMPLETED).done:
                    ended.result()
                    free.append(self._running.pop(ended)[1])

    def _ready(self) -> Iterator[Job]:
        """What can start, the most urgent first: what others wait for, and measurements."""
        found = [job for name in self.variants for job in self._open(name)]
        waiting = [job for job in found if job not in self._begun]
        yield from sorted(waiting, key=lambda job: job.tool not in ("nncf", "measure"))

    def _open(self, name: str) -> Iterator[Job]:
        """The jobs of a model that are not done and whose gates are known."""
        first = first_jobs(name, self.variants[name])
        yield from (open_first := [job for job in first if self._is_open(job)])
        if open_first:
            return
        gated = gated_jobs(first, self.options)
        jobs = [*gated, *last_jobs(gated, self.options)]
        yield from (open_later := [job for job in jobs if self._is_open(job)])
        if self.measure and not open_later and not self._path(name).exists():
            yield Job(name, "measurement", "measure")

    def _path(self, name: str) -> Path:
        return self.options.folder / name / MEASURED

    def _is_open(self, job: Job) -> bool:
        """Whether a job has neither ended nor, its process having failed, been given up."""
        runs = any(job == other for other, _ in self._running.values())
        return kept(job, self.options) is None and (runs or job not in self._begun)

    def _process(self, job: Job, core: int) -> None:
        """One process, pinned to ``core``; its output is in log.txt beside its results."""
        measures = job.tool == "measure"
        place = self.options.folder / job.model if measures else self.options.place(job)
        part = ["--only", "measure", "--models", job.model]
        part = part if measures else ["--job", json.dumps(asdict(job))]
        command = [sys.executable, *SCRIPT, *part, *self.options.arguments()]
        place.mkdir(parents=True, exist_ok=True)
        start, environment = time.monotonic(), {**os.environ, **ONE_THREAD}
        with (place / "log.txt").open("w") as log:
            pinned = [*command, "--cores", str(core)]
            code = subprocess.run(
                pinned, stdout=log, stderr=log, env=environment, check=False
            ).returncode
        state = "done" if code == 0 else f"ended with {code}"
        seconds = time.monotonic() - start
        print(f"{job.model}: {job.variant}: {state}, {seconds:.0f} s, core {core}", flush=True)
