"""placer against NNCF on OpenVINO's CPU plugin.

Models: PP-OCRv4 and networks of public topology (networks/real.py). Calibration and evaluation
images are disjoint and the same for all tools. Per model: the float model; ``nncf.quantize`` with
its defaults, with the preset MIXED and, where there is attention, for transformers;
``nncf.quantize_with_accuracy_control`` for 3 and 6 dB more than the best of these (``--extra``),
with a limit on its iterations, as it does not end by itself on every model; placer under gates at
that best SQNR, 3 and 6 dB above, at that of the others, and at what accuracy control reached, with
``base`` and ``scheme`` auto; placer on ONNX Runtime. openvino_jobs.py has the gates in full.
SQNR is the worst channel group's of the engine's own outputs against its float ones.

The searches run side by side, each in a process on a core of its own (``--cores``). When those of a
model are done, all its variants are measured in one interleaved run on one core, NNCF's with f32
and bf16 inference. Each is the mean of several compiled copies, since where a copy's memory lies
moves its time by percents for as long as it lives. The table ``against`` holds each NNCF variant
against the fastest placer variant that is as accurate and against the most accurate that is not
measurably slower. How far such a ratio is to be trusted tells ``again``: the file that
``nncf.quantize`` makes by default is there twice, compiled from the same bytes, and one is held
against the other. ``layers_as_nncf`` is the layer F1, nodes and types, of a placer variant's plan
with that file's in the same base precision: 1 if both execute the same.

Everything is kept in ``--folder`` as soon as it is known, so that a run that was killed goes on
with the same command. Models that are named first go first: put those that take longest there.

    pip install nncf
    python -m benchmarks.peers.openvino_models --folder results --cores 0-3 --json results.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any, get_args

from benchmarks.command_line import parser_of

os.environ["NNCF_CI"] = "1"  # No telemetry; read when nncf is imported.

import nncf
import numpy as np
import onnx
from nncf.definitions import NNCF_CI_ENV_VAR_NAME
from onnx import version_converter
from rich.console import Console

from benchmarks.networks.real import NAMES, Case, case
from benchmarks.peers.openvino_against import AGAIN, against, ratio_of, tables
from benchmarks.peers.openvino_jobs import MEASURED, RESULT, Job, Options, Schedule, all_jobs, kept
from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.calibration.sample import Sample
from placer.common.files import write_text
from placer.common.shapes import ShapeRange
from placer.engines.base import Compiled, Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine, create
from placer.errors import RunError
from placer.graph.edit import fix_input_shapes
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Preset, Request
from placer.optimizer.run import optimize
from placer.plan.diff import diff_plans
from placer.results.result import versions

BLOCKS = 9
COPIES = 3
DEFAULT = "nncf.quantize"
ENDED = "the process ended before it was done"
# SQNR that counts as perfect, since NNCF's metrics must be finite.
MOST_DB = 100.0
TRANSFORMER = {"model_type": nncf.ModelType.TRANSFORMER}
assert NNCF_CI_ENV_VAR_NAME in os.environ


def fixed(found: Case) -> onnx.ModelProto:
    """What NNCF gets: the file with fixed shapes, of an opset with per-channel scales."""
    proto = onnx.load(found.path)
    fix_input_shapes(proto, found.shapes)
    return version_converter.convert_version(proto, 17)


def nncf_options(found: Case) -> dict[str, dict[str, Any]]:
    """What ``nncf.quantize`` is called with, by name of the variant."""
    options: dict[str, dict[str, Any]] = {
        DEFAULT: {},
        "nncf.quantize, MIXED": {"preset": nncf.QuantizationPreset.MIXED},
    }
    if any(node.op == "Softmax" for node in found.model.graph.nodes[:-1]):
        options["nncf.quantize, transformer"] = TRANSFORMER
    return options


@dataclass
class Variants:
    """What is compiled of one model."""

    found: Case
    engine: OpenVinoEngine
    half: OpenVinoEngine | None
    copies: int = 1
    runtime: OnnxRuntimeEngine = field(default_factory=OnnxRuntimeEngine)
    compiled: dict[str, tuple[Engine, list[Compiled]]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def samples(self) -> list[Sample]:
        """The evaluation data."""
        return list(self.found.data["evaluation"])

    @staticmethod
    def of(found: Case, copies: int = 1) -> Variants:
        """With the float model; each variant is compiled ``copies`` times."""
        shapes = found.model.input_shapes
        try:
            half: OpenVinoEngine | None = create(base="bfloat16", shapes=shapes)
        except RunError:  # This CPU has no bfloat16.
            half = None
        variants = Variants(found, OpenVinoEngine(shapes=shapes), half, copies)
        model = found.model
        variants.add("float", model.proto, model.base_dir)
        variants.keep("ONNX Runtime, float", variants.runtime, model.proto, model.base_dir)
        return variants

    def keep(self, name: str, engine: Engine, proto: onnx.ModelProto, base_dir: Path) -> None:
        """Compile ``proto`` as the variant ``name``; raises RunError if ``engine`` refuses it."""
        copies = [engine.compile(proto, base_dir) for _ in range(self.copies)]
        self.compiled[name] = (engine, copies)

    def add(self, name: str, proto: onnx.ModelProto, base_dir: Path) -> None:
        """Compile ``proto`` with f32 and bf16; what OpenVINO refuses is told."""
        self._add(name, self.engine, proto, base_dir)
        if self.half is not None:
            self._add(f"{name}, bf16", self.half, proto, base_dir)

    def _add(self, name: str, engine: Engine, proto: onnx.ModelProto, base_dir: Path) -> None:
        try:
            self.keep(name, engine, proto, base_dir)
        except RunError as error:
            self.refused[name] = str(error)

    def judge(self, reference: str) -> Evaluator:
        """Compares with the variant ``reference`` on the evaluation data."""
        run = self.compiled[reference][1][0].run
        return Evaluator(self.found.model.graph, (), self.samples, run)

    def found_sqnr(self, engine: Engine, proto: onnx.ModelProto) -> float | None:
        """Of ``proto`` on ``engine`` in dB; None if the engine refuses it, or if it is exact."""
        try:
            run = engine.compile(proto, self.found.model.base_dir).run
        except RunError:
            return None
        return finite(self.judge("float").evaluate(run).sqnr)

    @cached_property
    def exact(self) -> dict[int, Mapping[str, np.ndarray]]:
        """The float model's outputs by the identity of the inputs."""
        run = self.compiled["float"][1][0].run
        return {id(sample.inputs): run(sample.inputs) for sample in self.samples}

    def sqnr(self, run: Run, indices: Iterable[int]) -> tuple[float, list[float]]:
        """Of the worst channel group in dB, at most ``MOST_DB``: of some samples, and of each."""
        chosen = [self.samples[i] for i in indices]
        outputs = {id(sample.inputs): run(sample.inputs) for sample in chosen}

        def of(samples: list[Sample]) -> float:
            graph = self.found.model.graph
            judge = Evaluator(graph, (), samples, lambda inputs: self.exact[id(inputs)])
            return min(judge.evaluate(lambda inputs: outputs[id(inputs)]).sqnr, MOST_DB)

        return of(chosen), [of([sample]) for sample in chosen]

    def times(self, rounds: int) -> dict[str, np.ndarray]:
        """Seconds of each variant by round, means of its copies; engines take turns in blocks."""
        inputs = self.samples[0].inputs
        own: dict[str, list[np.ndarray]] = {name: [] for name in self.compiled}
        order = np.random.default_rng(0)
        for _ in range(BLOCKS):
            # In one order for all, NNCF's file took up to 6% less time where it was there again.
            everything = [list(self.compiled)[i] for i in order.permutation(len(self.compiled))]
            for engine in (self.engine, self.half, self.runtime):
                names = [name for name in everything if self.compiled[name][0] is engine]
                if engine is None or not names:
                    continue
                models = [copy for name in names for copy in self.compiled[name][1]]
                seconds = engine.measure(models, inputs, max(1, rounds // BLOCKS))
                for name, part in zip(names, np.split(seconds, len(names), axis=1), strict=True):
                    own[name].append(part.mean(axis=1))
        return {name: np.concatenate(parts) for name, parts in own.items()}

    def rows(self, rounds: int, notes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Latency, ratio to float, SQNR, and ``notes`` on the search; ``against`` beside."""
        times = self.times(rounds)
        rows: dict[str, dict[str, Any]] = {}
        for name, (engine, copies) in self.compiled.items():
            reference = "ONNX Runtime, float" if engine is self.runtime else "float"
            evaluation = self.judge(reference).evaluate(copies[0].run)
            parts = evaluation.metrics.items()
            rows[name] = {
                "sqnr_db": finite(evaluation.sqnr),
                "sqnr_by_part_db": {w: finite(v) for w, v in parts if w.startswith("sqnr")},
                "median_ms": 1e3 * float(np.median(times[name])),
                "ratio_to_float": ratio_of(times[name], times["float"]),
                **notes.get(name, {}),
            }
        for name in (name for name in rows if name.startswith("placer,")):
            rows[name]["layers_as_nncf"] = self.layers_as_nncf(name)
        return {"variants": rows, "against": against(rows, times)}

    def layers_as_nncf(self, name: str) -> float | None:
        """F1, nodes and types, of a variant's layers with those of ``nncf.quantize``'s default.

        Both in the same base precision; None if OpenVINO refused NNCF's file in it.
        """
        engine, copies = self.compiled[name]
        found = self.compiled.get(f"{DEFAULT}, bf16" if engine is self.half else DEFAULT)
        return None if found is None else diff_plans(copies[0].plan(), found[1][0].plan()).exact.f1


def quantized_by_nncf(job: Job, found: Case) -> onnx.ModelProto:
    """``nncf.quantize`` with the options of the variant."""
    data = found.data["calibration"]
    samples = nncf.Dataset([dict(sample.inputs) for sample in data])
    options = nncf_options(found)[job.variant]
    quantized: onnx.ModelProto = nncf.quantize(
        fixed(found), samples, subset_size=len(data), **options
    )
    return quantized


def controlled(
    job: Job, variants: Variants, iterations: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """``nncf.quantize_with_accuracy_control`` with SQNR on OpenVINO as the metric."""
    assert job.least is not None
    found, calls = variants.found, 0
    data = found.data["calibration"]

    def judged(model: onnx.ModelProto, indices: Iterable[int]) -> tuple[float, list[float]]:
        nonlocal calls
        calls += 1
        run = variants.engine.compile(model, found.model.base_dir).run
        return variants.sqnr(run, indices)

    proto = nncf.quantize_with_accuracy_control(
        fixed(found),
        nncf.Dataset([dict(sample.inputs) for sample in data]),
        nncf.Dataset(list(range(len(variants.samples)))),
        judged,
        max_drop=MOST_DB - job.least,
        drop_type=nncf.DropType.ABSOLUTE,
        subset_size=len(data),
        advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(
            max_num_iterations=iterations
        ),
    )
    return proto, {"evaluations": calls}


def placed(
    job: Job, found: Case, options: Options, folder: Path
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """What placer finds under the gate, with ``base`` and ``scheme`` auto on OpenVINO."""
    openvino = job.tool == "openvino"
    request = Request(
        model=found.path,
        output=folder / "run",
        shape_ranges={name: ShapeRange.fixed(shape) for name, shape in found.shapes.items()},
        data=str(found.sources["calibration"]),
        evaluation_data=str(found.sources["evaluation"]),
        gates=(f"sqnr>={job.least:.3f}",),
        budget=options.budget,
        preset=options.preset,
        engine=job.tool,
        recover=(options.recover,),
        base="auto" if openvino else None,
        scheme="auto" if openvino else None,
    )
    result = optimize(request, QuietObserver())
    best = result.best
    assert best is not None
    verdict = result.verdict.value
    notes = {"evaluations": len(result.trials), "base": best.base or "float", "verdict": verdict}
    if openvino:
        notes["activations"] = result.scheme.activation
    if result.recovery is not None:
        notes["recovered"] = result.recovery.kept
    return onnx.load(result.optimized_model), notes


def do(job: Job, options: Options) -> None:
    """Search, and keep the model and what there is to say of it; the latter comes last.

    What a tool cannot do is a result, too.
    """
    folder = options.place(job)
    folder.mkdir(parents=True, exist_ok=True)
    found = case(job.model, options.samples, folder.parent)
    start = time.monotonic()
    notes: dict[str, Any] = {}
    try:
        if job.tool == "nncf":
            variants = Variants.of(found)
            if job.least is not None:
                proto, notes = controlled(job, variants, options.iterations)
            else:
                proto = quantized_by_nncf(job, found)
            notes["seconds"] = time.monotonic() - start
            notes["found_sqnr_db"] = variants.found_sqnr(variants.engine, proto)
            if variants.half is not None and job.least is None:
                notes["found_sqnr_bf16_db"] = variants.found_sqnr(variants.half, proto)
        else:
            proto, notes = placed(job, found, options, folder)
            notes["seconds"] = time.monotonic() - start
        onnx.save(proto, folder / "model.onnx")
    except Exception as error:
        logging.exception("%s, %s", job.model, job.variant)
        notes = {"error": " ".join(str(error).split())[:500]}
    write_text(folder / RESULT, json.dumps({"job": asdict(job), **notes}, indent=2) + "\n")


def prepared(name: str, folder: Path, samples: int) -> tuple[str, ...]:
    """Write a model and its data; returns the variants of ``nncf.quantize``."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    return tuple(nncf_options(case(name, samples, folder / name)))


def search(names: Sequence[str], options: Options, on: Sequence[int], measure: bool) -> None:
    """All that is not done, on the cores ``on``; ``measure``: each model, too."""
    with ProcessPoolExecutor(len(on)) as pool:
        rest = repeat(options.folder), repeat(options.samples)
        variants = dict(zip(names, pool.map(prepared, names, *rest), strict=True))
    Schedule(options, on, variants, measure).run()


def cores(text: str) -> tuple[int, ...]:
    """The numbers in ``text``, such as "0-3" or "1,5"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def measured(name: str, options: Options) -> dict[str, Any]:
    """All variants of one model in one interleaved run; nothing else should run on its core."""
    path = options.folder / name / MEASURED
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    variants = Variants.of(case(name, options.samples, options.folder / name), COPIES)
    notes: dict[str, dict[str, Any]] = {}
    failed: dict[str, Any] = {}
    for job in all_jobs(name, tuple(nncf_options(variants.found)), options):
        found = kept(job, options) or {"error": ENDED}
        if "error" in found:
            failed[job.variant] = found
            continue
        notes[job.variant] = {key: value for key, value in found.items() if key != "job"}
        _add(variants, job, found, options.place(job))
    result = {
        "shapes": variants.found.shapes,
        "rounds": options.rounds,
        "recover": options.recover,
        **variants.rows(options.rounds, notes),
        "failed": {**failed, **variants.refused},
    }
    if not any(one["error"] == ENDED for one in failed.values()):
        write_text(path, json.dumps(result, indent=2) + "\n")
    return result


def _add(variants: Variants, job: Job, found: Mapping[str, Any], folder: Path) -> None:
    proto = onnx.load(folder / "model.onnx")
    if job.tool == "nncf":
        variants.add(job.variant, proto, folder)
        if job.variant == DEFAULT:
            variants.add(AGAIN + DEFAULT, proto, folder)
        return
    engine: Engine = variants.runtime
    if job.tool == "openvino":
        engine = (variants.half if found["base"] == "bfloat16" else None) or variants.engine
    variants.keep(job.variant, engine, proto, folder)


def main() -> None:
    """Search side by side, measure alone, print tables and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="keeps everything")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cores", type=cores, default=(0,), help="to run on, such as 0-3 or 1,5")
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=20, help="of NNCF's accuracy control")
    parser.add_argument("--extra", nargs="+", type=int, default=(0, 3, 6), help="dB above NNCF's")
    parser.add_argument("--no-runtime", action="store_true", help="without ONNX Runtime's search")
    parser.add_argument("--no-control", nargs="*", choices=NAMES, default=[], help="models without")
    parser.add_argument("--preset", default="default", choices=get_args(Preset))
    parser.add_argument("--recover", default="none", choices=("none", "auto"), help="placer's")
    parser.add_argument("--rounds", type=int, default=81)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--only", choices=("search", "measure"), help="one half of the work")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("placer").propagate = False
    options = Options(
        given.folder,
        given.samples,
        given.budget,
        given.iterations,
        given.rounds,
        given.preset,
        given.recover,
        tuple(given.extra),
        tuple(given.no_control),
        given.no_runtime,
    )
    if given.job is not None:
        os.sched_setaffinity(0, given.cores)
        do(Job(**json.loads(given.job)), options)
        return
    if given.only != "measure":
        search(given.models, options, given.cores, measure=given.only is None)
    if given.only == "search":
        return
    os.sched_setaffinity(0, given.cores[:1])
    console, results = Console(width=120), {}
    for name in given.models:
        (options.folder / name).mkdir(parents=True, exist_ok=True)
        results[name] = measured(name, options)
        for table in tables(name, results[name]):
            console.print(table)
    if given.json is not None:
        document = {
            "device": OpenVinoEngine().device,
            "versions": {**versions(), "nncf": version("nncf"), "openvino": version("openvino")},
            **{key: getattr(options, key) for key in ("budget", "samples", "iterations", "preset")},
            "models": results,
        }
        write_text(given.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
