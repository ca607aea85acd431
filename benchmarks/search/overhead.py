"""What the search itself costs: everything but compiling, measuring and judging candidates.

First real searches on ONNX Runtime, as ``placer optimize`` runs them, from the first proposal to
the end of the last trial, with the time inside the engine and the accuracy evaluation taken from
outside. What placer's process does for these, such as sending candidates and comparing outputs,
counts as theirs, and profiles of layers are a line of their own; the database is opened before. The
networks are EfficientNet-B7 at its 600 x 600 pixels, and a "mixed" network of as many sites that
takes a hundredth of the time, the worst case. Then
the proposer alone against an evaluation that takes no time, with and without a gate that binds, up
to networks of 5,000 decided sites.

Mixed networks have residual, depthwise, two-branch and pooling blocks; every few blocks the width
changes, so that sites form groups of a few dozen.

    python -m benchmarks.search.overhead --json results.json
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import logging
import math
import os
import pstats
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.networks.real import NAMES, case
from benchmarks.networks.topologies import Net, classifier, efficientnet
from placer.accuracy.evaluation import Evaluation, Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.gates import GateResult
from placer.common.blas import one_blas_thread
from placer.common.collector import few_full_collections
from placer.common.files import write_text
from placer.common.shapes import ShapeRange
from placer.common.statistics import Ratio
from placer.engines.base import Compiled, Engine, Tensors
from placer.graph import Graph
from placer.model import load_model
from placer.optimizer.device_search import leaves_cores
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.noise_meter import FewSamples, NoiseMeter
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import open_study
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.optimizer.trials.layer_times import ProfiledLayers
from placer.optimizer.trials.proposer import make_landscapes, make_proposer
from placer.optimizer.trials.trial import TrialRunner
from placer.plan import Plan
from placer.prediction.layers.predictor import Predictor
from placer.results.parts import LatencyPart
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import ANY_TARGET
from placer.search.ahead import RehearsingSearch
from placer.search.landscape.landscape import Landscape
from placer.search.landscape.layer_signatures import LayerModel
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import Judgement, Measurement, TrialRecord
from placer.search.samplers import Proposal, Proposer
from placer.search.space import Choices, Space, build_space
from placer.search.study.study import Study

SIZES = (100, 500, 1500, 5000)
REAL_SITES, SMALL_SITES = 500, 90
REAL: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "efficientnet-b7": lambda: efficientnet(2.0, 3.1, 600),
    "mixed": lambda: mixed_net(REAL_SITES),
    "mixed-small": lambda: mixed_net(SMALL_SITES, size=192),
}
TRIALS, SAMPLES = 30, 8
# Blocks of one width; the number of sites of a block, of which the wanted number of blocks follows.
PER_STAGE, SITES_PER_BLOCK = 8, 3.4
WIDTHS = (16, 24, 32, 40, 48, 56, 64, 20, 28, 36, 44, 52)
# Of all noise that the default placement has, so much is allowed where a gate binds.
ALLOWED = 0.3
ENGINE = ("compile", "measure", "run", "profile", "accuracy")


def mixed_net(sites: int, size: int = 64) -> onnx.ModelProto:
    """A network of about ``sites`` decided sites on images of ``size``."""
    net = Net((1, 3, size, size))
    x, channels = net.relu(net.conv(net.input, 3, WIDTHS[0], 3, 2)), WIDTHS[0]
    for index in range(max(1, round(sites / SITES_PER_BLOCK))):
        stage = index // PER_STAGE
        width = WIDTHS[stage % len(WIDTHS)] + 4 * (stage // len(WIDTHS))
        if width != channels:
            x, channels = net.relu(net.conv(x, channels, width, 1)), width
        if index == PER_STAGE:
            x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = (_residual, _depthwise, _branches)[index % 3](net, x, width)
    return classifier(net, x, channels)


def _residual(net: Net, x: str, width: int) -> str:
    main = net.conv(net.relu(net.conv(x, width, width, 3)), width, width, 3)
    return net.relu(net.add("Add", main, x))


def _depthwise(net: Net, x: str, width: int) -> str:
    main = net.silu(net.conv(net.silu(net.conv(x, width, width, 1)), width, width, 3, group=width))
    return net.add("Add", net.conv(main, width, width, 1), x)


def _branches(net: Net, x: str, width: int) -> str:
    half = width // 2
    left = net.relu(net.conv(x, width, half, 1))
    right = net.relu(net.conv(net.relu(net.conv(x, width, half, 1)), half, half, 3))
    pooled = net.add(
        "MaxPool", net.add("Concat", left, right, axis=1), kernel_shape=[3, 3], pads=[1] * 4
    )
    return net.relu(net.conv(pooled, 2 * half, width, 1))


class Stopwatch:
    """Seconds by what they were spent on; of nested spans the outermost counts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._is_running = False

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Count the time until the end of the block."""
        if self._is_running:
            yield
            return
        self._is_running = True
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start
            self._is_running = False


class TimedModel:
    """A compiled candidate whose runs are timed."""

    def __init__(self, model: Compiled, watch: Stopwatch) -> None:
        self.model = model
        self._watch = watch

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """See ``Compiled``."""
        with self._watch.span("run"):
            return self.model.run(inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """See ``Compiled``."""
        with self._watch.span("profile"):
            return self.model.plan(inputs)


class TimedEngine:
    """The engine of a task, timed; it is what else the engine is."""

    def __init__(self, engine: Engine, watch: Stopwatch) -> None:
        self._engine = engine
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> TimedModel:
        """See ``Engine``."""
        with self._watch.span("compile"):
            return TimedModel(self._engine.compile(model, base_dir), self._watch)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """See ``Engine``."""
        inner = [own.model if isinstance(own, TimedModel) else own for own in models]
        with self._watch.span("measure"):
            return self._engine.measure(inner, inputs, rounds)


class TimedEvaluator(Evaluator):
    """Accuracy evaluation, timed."""

    def __init__(self, evaluator: Evaluator, watch: Stopwatch) -> None:
        self.__dict__.update(evaluator.__dict__)
        self._watch = watch

    def evaluate(self, run: Run) -> Evaluation:
        """See ``Evaluator``."""
        with self._watch.span("accuracy"):
            return super().evaluate(run)

    def by_sample(self, run: Run) -> dict[str, np.ndarray]:
        """See ``Evaluator``."""
        with self._watch.span("accuracy"):
            return super().by_sample(run)


class TimedProposer:
    """A proposer and the seconds of each proposal, those in the engine left out.

    ``cpu``: the CPU time of each, which does not depend on how busy the machine is.
    """

    def __init__(self, proposer: Proposer, watch: Stopwatch) -> None:
        self._proposer = proposer
        self._watch = watch
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        before, start = sum(self._watch.seconds.values()), time.perf_counter()
        cpu = time.thread_time()
        try:
            return self._proposer.propose(trials)
        finally:
            inside = sum(self._watch.seconds.values()) - before
            self.seconds.append(time.perf_counter() - start - inside)
            self.cpu.append(time.thread_time() - cpu)


def real_search(
    name: str,
    trials: int,
    gate: str,
    hot: int,
    *,
    engine: str = "onnxruntime",
    rehearses: bool = True,
) -> dict[str, Any]:
    """Search on ``engine`` under ``gate``; ``hot``: functions to name by their own time.

    ``rehearses``: whether the next proposal is worked out while a trial runs, where a core is free.
    """
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        task = prepare(_request(name, engine, gate, Path(folder)), QuietObserver())
        unwatched, task = task, replace(task, engine=TimedEngine(task.engine, watch))
        bench = set_up(task, QuietObserver())
        timed = TimedEvaluator(bench.evaluator, watch)
        weights = np.ones(len(task.evaluation_data))
        noise = NoiseMeter(task.space, bench.candidates, lambda: FewSamples(timed, weights))
        bench = replace(bench, evaluator=timed, noise=noise)
        rehearses = rehearses and leaves_cores(unwatched)
        inputs, rounds = task.inputs, task.preset.rounds
        float_s = float(np.median(task.engine.measure([bench.baseline], inputs, rounds)))
        watch.seconds.clear()
        profile = cProfile.Profile()
        start = time.perf_counter()
        study = open_study(task)
        open_s = time.perf_counter() - start
        start, cpu, own_cpu = time.perf_counter(), time.process_time(), time.thread_time()
        engine_cpu = _children_cpu_s()
        if hot:
            profile.enable()
        with one_blas_thread(), few_full_collections():
            proposer, records = _search(task, bench, study, watch, trials, rehearses=rehearses)
        profile.disable()
        wall = time.perf_counter() - start
        cpu, own_cpu = time.process_time() - cpu, time.thread_time() - own_cpu
        engine_cpu = _children_cpu_s() - engine_cpu
    spent = {name: watch.seconds[name] for name in ENGINE}
    rest = wall - sum(spent.values())
    return {
        "network": name,
        "gate": gate,
        **_sizes(task.space, task.model.graph),
        "float_ms": 1e3 * float_s,
        "trials": len(records),
        "gate_missed": sum(record.violation > 0 for record in records),
        "wall_s": wall,
        **{f"{name}_s": seconds for name, seconds in spent.items()},
        "rehearses": rehearses,
        "open_s": open_s,
        "engine": engine,
        "cpu_s": cpu,
        "engine_cpu_s": engine_cpu,
        "own_cpu_s": own_cpu,
        "propose_s": sum(proposer.seconds),
        "propose_cpu_s": sum(proposer.cpu),
        "other_s": rest - sum(proposer.seconds),
        "overhead": rest / wall,
        "proposals_s": proposer.seconds,
        "hot": _hot_spots(profile, hot),
    }


def _request(name: str, engine: str, gate: str, folder: Path) -> Request:
    """What to search: a network of ``REAL``, or one of ``networks.real`` with its data."""
    if name in REAL:
        path = folder / "net.onnx"
        onnx.save(REAL[name](), path)
        return Request(model=path, output=folder, engine=engine, gates=(gate,))
    found = case(name, SAMPLES, folder)
    return Request(
        model=found.path,
        output=folder,
        engine=engine,
        gates=(gate,),
        shape_ranges={tensor: ShapeRange.fixed(s) for tensor, s in found.shapes.items()},
        data=str(found.sources["calibration"]),
        evaluation_data=str(found.sources["evaluation"]),
    )


def _children_cpu_s() -> float:
    """CPU time of the processes of engines, which are started before; Linux only."""
    ticks, found = os.sysconf("SC_CLK_TCK"), 0
    for file in Path("/proc/self/task").glob("*/children"):
        for child in file.read_text(encoding="ascii").split():
            fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2]
            found += sum(map(int, fields.split()[11:15]))
    return found / ticks


def _search(
    task: Task, bench: TrialSetup, study: Study, watch: Stopwatch, trials: int, *, rehearses: bool
) -> tuple[TimedProposer, list[TrialRecord]]:
    """The search of ``placer optimize``: predictions, proposals and trials."""
    landscapes = make_landscapes(task)
    inner = make_proposer(task, bench, study, landscapes, {task.base: {}}, _unseen)
    assert isinstance(inner, SurrogateProposer)
    runner = TrialRunner(
        bench.candidates,
        bench.evaluator,
        bench.baseline,
        task.inputs,
        task.preset.rounds,
        task.sites,
        layers=ProfiledLayers(task, landscapes, ()),
    )
    rehearsing = RehearsingSearch(inner, runner)
    proposer = TimedProposer(rehearsing if rehearses else inner, watch)
    evaluate = rehearsing.evaluate if rehearses else runner
    study.run(proposer, evaluate, budget=trials, deadline=None, on_trial=lambda _: None)
    rehearsing.close()
    return proposer, study.records()


def _unseen(count: int) -> None:
    """What is told of measurements of noise: nobody looks."""
    del count


class InstantEngine:
    """Latency and noise of candidates by the layers and edges that they have; takes no time.

    Layers take the time of their prior with a factor of their own, and every quantized edge has a
    noise of its own over three decades. ``limit``: noise power that is allowed.
    """

    def __init__(self, landscape: Landscape, *, bound: bool) -> None:
        self._landscape = landscape
        self._default = landscape.space.defaults
        self.limit = ALLOWED * self.noise(self._default) if bound else float("inf")
        self._float_us = math.fsum(self._times(landscape.space.floats)[1].values())

    def noise(self, choices: Choices) -> float:
        """Noise power, the sum over quantized edges."""
        edges = self._landscape.space.placement(choices).edges
        return math.fsum(10 ** (_uniform(str(edge)) * 3 - 9) for edge in edges)

    def record(self, number: int, proposal: Proposal) -> TrialRecord:
        """A finished trial."""
        noise = self.noise(proposal.choices)
        by_id, totals = self._times(proposal.choices)
        ratio = math.fsum(totals.values()) / self._float_us
        gates = (GateResult("noise", noise, "", noise - self.limit),)
        return TrialRecord(
            number=number,
            kind=proposal.kind,
            choices=proposal.choices,
            placement_id=self._landscape.space.placement(proposal.choices).id,
            measurement=Measurement(
                Ratio(ratio, ratio * 0.99, ratio * 1.01, 1),
                LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1),
                layers=by_id,
            ),
            judgement=Judgement(gates if np.isfinite(self.limit) else (), noise),
            skipped=proposal.skipped,
        )

    def _times(self, choices: Choices) -> tuple[dict[str, float], dict[str, float]]:
        """Microseconds of one layer and of all layers of each signature."""
        landscape = self._landscape
        counts = landscape.predict(landscape.state(choices)).counts()
        one, every = {}, {}
        for number, count in counts.items():
            signature = landscape.layers.signatures[number]
            work = signature.work
            quick = 0.5 if work is not None and "int8" in work.dtype else 1.0
            moved = 0.0 if work is None else quick * work.ops / 5e4 + work.bytes / 1e4
            one[signature.id] = (1 + moved) * (0.7 + 0.6 * _uniform(signature.id))
            every[signature.id] = count * one[signature.id]
        return one, every


def _uniform(text: str) -> float:
    """A number in [0, 1) that ``text`` fixes."""
    return zlib.crc32(text.encode()) / 2**32


def proposer_alone(
    sites: int, trials: int, limit_s: float, *, bound: bool, hot: int
) -> dict[str, Any]:
    """Proposals against ``InstantEngine``; ends early after ``limit_s`` seconds of proposing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(mixed_net(sites), path)
        model = load_model(path)
    pack = load_pack("onnxruntime")
    start = time.perf_counter()
    space = build_space(model.graph, find_sites(model.graph, pack.rules, ANY_TARGET))
    match_s = time.perf_counter() - start
    activation = pack.manifest.scheme.activation
    predictor = Predictor(model.graph, pack.rules, ANY_TARGET, "float", activation)
    landscape = Landscape(space, LayerModel(model.graph, predictor))
    engine = InstantEngine(landscape, bound=bound)
    watch = Stopwatch()

    def probe(choices: Choices) -> float:
        with watch.span("accuracy"):
            return engine.noise(choices)

    noise_limit = engine.limit if bound else None
    inner = SurrogateProposer(landscape, 0, probe, noise_limit=noise_limit)
    proposer = TimedProposer(inner, watch)
    records: list[TrialRecord] = []
    profile = cProfile.Profile()
    while len(records) < trials and sum(proposer.seconds) < limit_s:
        if hot:
            profile.enable()
        proposal = proposer.propose(records)
        profile.disable()
        if proposal is None:
            break
        records.append(engine.record(len(records), proposal))
    learned = proposer.cpu[3:]  # Two are given, and the third looks at all for the first time.
    return {
        **_sizes(space, model.graph),
        "gate_binds": bound,
        "match_s": match_s,
        "trials": len(records),
        "signatures": len(landscape.layers.signatures),
        "propose_s": sum(proposer.cpu),
        "median_s": float(np.median(learned)) if learned else None,
        "most_s": max(proposer.cpu),
        "proposals_s": proposer.seconds,
        "best": min((r.ratio for r in records if r.feasible and r.ratio), default=None),
        "hot": _hot_spots(profile, hot),
    }


def _sizes(space: Space, graph: Graph) -> dict[str, int]:
    return {
        "nodes": len(graph.nodes),
        "sites": sum(len(group.sites) for group in space.groups),
        "groups": len(space.groups),
    }


def _hot_spots(profile: cProfile.Profile, count: int) -> list[str]:
    """The functions with the most time of their own, a line each."""
    if not count:
        return []
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(count)
    lines = text.getvalue().splitlines()
    head = next(i for i, line in enumerate(lines) if "tottime" in line)
    return [line.rstrip() for line in lines[head:] if line.strip()]


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """The real search, and proposals by size."""
    for real in document["real"]:
        title = f"{real['network']}, {real['sites']} sites, {real['float_ms']:.0f} ms"
        missed = f"{real['gate_missed']} of {real['trials']} trials miss {real['gate']}"
        drawn = Table(title=f"{title} on {real['engine']}; {missed}")
        drawn.add_column("spent on", min_width=40)
        drawn.add_column("s", justify="right")
        drawn.add_column("of the search", justify="right")
        for name in (*ENGINE, "propose", "other"):
            seconds = real[f"{name}_s"]
            drawn.add_row(name, f"{seconds:.2f}", f"{100 * seconds / real['wall_s']:.1f}%")
        drawn.add_row("search overhead", "", f"{100 * real['overhead']:.1f}%")
        for name, what in (
            ("own_cpu_s", "thread of the trials"),
            ("cpu_s", "all threads"),
            ("engine_cpu_s", "the engine's processes"),
            ("propose_cpu_s", "proposals"),
        ):
            each = real[name] / max(1, real["trials"])
            drawn.add_row(f"CPU time a trial, {what}", f"{each:.2f}", "")
        yield drawn
    drawn = Table(title="the proposer alone, CPU time")
    for column in ("nodes", "sites", "groups", "gate binds", "trials", "median s", "most s", "all"):
        drawn.add_column(column, justify="right")
    for row in document["proposer"]:
        median = "-" if row["median_s"] is None else f"{row['median_s']:.2f}"
        sizes = [str(row[name]) for name in ("nodes", "sites", "groups")]
        binds = "yes" if row["gate_binds"] else "no"
        times = [median, f"{row['most_s']:.2f}", f"{row['propose_s']:.1f}"]
        drawn.add_row(*sizes, binds, str(row["trials"]), *times)
    yield drawn


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--real", nargs="*", choices=(*REAL, *NAMES), default=list(REAL))
    parser.add_argument("--engine", default="onnxruntime", help="of the real search")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--gate", default="sqnr>=15", help="of the real search")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of proposing per row")
    parser.add_argument("--no-rehearsal", action="store_true", help="propose after each trial only")
    parser.add_argument("--hot", type=int, default=0, help="profile and keep so many hot spots")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark, print tables and write JSON."""
    arguments = parse()
    logging.getLogger("placer").propagate = False
    console = Console(width=110)
    real, rows = [], []
    for name in arguments.real:
        real.append(
            real_search(
                name,
                arguments.trials,
                arguments.gate,
                arguments.hot,
                engine=arguments.engine,
                rehearses=not arguments.no_rehearsal,
            )
        )
    for sites in arguments.sizes:
        for bound in (False, True):
            with one_blas_thread():
                row = proposer_alone(
                    sites, arguments.trials, arguments.limit, bound=bound, hot=arguments.hot
                )
            console.print(f"{row['sites']} sites: {row['trials']} trials, {row['propose_s']:.1f} s")
            rows.append(row)
    document = {"versions": dict(versions()), "real": real, "proposer": rows}
    for drawn in tables(document):
        console.print(drawn)
    for found in [*real, *rows] if arguments.hot else []:
        console.print(f"hot spots at {found['sites']} sites:", *found["hot"], sep="\n")
    write_text(arguments.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
