"""placer against NNCF on OpenVINO's CPU plugin.

Models: PP-OCRv4 as packed in rapidocr-onnxruntime (ort_real_models.py), and networks of public
topology with random weights (topologies.py). Calibration and evaluation images are disjoint and the
same for all tools. Per model, in one interleaved run: the float model, ``nncf.quantize`` with its
defaults, with the preset MIXED and, where there is attention, for transformers, each with f32 and
bf16 inference; ``nncf.quantize_with_accuracy_control`` and placer under gates 3 dB and 6 dB above
the best SQNR of those with f32, placer also at that SQNR, with ``base`` auto; and placer's best on
ONNX Runtime. SQNR is the worst channel group's of the engine's own outputs against its float ones.

    pip install nncf && python benchmarks/openvino_real_models.py --json results.json
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["NNCF_CI"] = "1"  # No telemetry; read when nncf is imported.

import nncf
import numpy as np
import onnx
from nncf.definitions import NNCF_CI_ENV_VAR_NAME
from onnx import version_converter
from ort_real_models import FOLDER, SUBJECTS, Subject, render
from rich.console import Console
from rich.table import Table
from topologies import c2f, efficientnet, mobilenet_v2, resnet, unet, vit

from placer.accuracy.evaluator import Evaluator, Run
from placer.accuracy.metrics import finite
from placer.calibration.dataset import Dataset, Sample, load_dataset
from placer.common.files import write_text
from placer.common.shapes import ShapeRange
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled, Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine, create
from placer.errors import GateError, RunError
from placer.graph.edit import fix_input_shapes
from placer.model import Model, load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.results.result import Result, versions

EXTRA_DB = (0, 3, 6)
BLOCKS = 9
# SQNR that counts as perfect, since NNCF's metrics must be finite.
MOST_DB = 100.0
TRANSFORMER = {"model_type": nncf.ModelType.TRANSFORMER}
assert NNCF_CI_ENV_VAR_NAME in os.environ

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ResNet50": lambda: resnet(128, (3, 4, 6, 3), bottleneck=True),
    "MobileNetV2": lambda: mobilenet_v2(128),
    "EfficientNet-B0": lambda: efficientnet(1, 1, 128),
    "U-Net": lambda: unet(128),
    "YOLO-like": lambda: c2f(160),
    "ViT": lambda: vit(64, 192, 3, blocks=4),
}
NAMES = (*(subject.name for subject in SUBJECTS), *NETWORKS)


@dataclass(frozen=True)
class Case:
    """A model on disk with its data; both parts have as many samples."""

    model: Model
    path: Path
    shapes: dict[str, tuple[int, ...]]
    sources: dict[str, Path]
    data: dict[str, Dataset]


def case(name: str, samples: int, folder: Path) -> Case:
    """The model called ``name``, with data in ``folder``."""
    subject = next((s for s in SUBJECTS if s.name == name), None)
    if subject is None:
        path = folder / "model.onnx"
        onnx.save(NETWORKS[name](), path)
    else:
        path = FOLDER / subject.file
    entry = onnx.load(path).graph.input[0]
    if subject is None:
        shape = tuple(d.dim_value for d in entry.type.tensor_type.shape.dim)
    else:
        shape = (1, 3, subject.height, subject.width)
    model = load_model(path, {entry.name: shape})
    sources, data = {}, {}
    for part, first in (("calibration", 0), ("evaluation", 10_000)):
        images = [_sample(subject, shape, first + i) for i in range(samples)]
        sources[part] = folder / f"{part}.npz"
        np.savez(sources[part], **{entry.name: np.stack(images)})
        data[part] = load_dataset(str(sources[part]), model)
    return Case(model, path, {entry.name: shape}, sources, data)


def _sample(subject: Subject | None, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A page of text, or tokens where the model takes no image."""
    if subject is not None:
        return render(subject, seed)
    if len(shape) == 4:
        return render(Subject("image", "", shape[2], shape[3], 3), seed)
    return np.random.default_rng(seed).standard_normal(shape[1:]).astype(np.float32)


def fixed(found: Case) -> onnx.ModelProto:
    """What NNCF gets: the file with fixed shapes, of an opset with per-channel scales."""
    proto = onnx.load(found.path)
    fix_input_shapes(proto, found.shapes)
    return version_converter.convert_version(proto, 17)


def nncf_options(found: Case) -> dict[str, dict[str, Any]]:
    """What ``nncf.quantize`` is called with, by name of the variant."""
    options: dict[str, dict[str, Any]] = {
        "nncf.quantize": {},
        "nncf.quantize, MIXED": {"preset": nncf.QuantizationPreset.MIXED},
    }
    if any(node.op == "Softmax" for node in found.model.graph.nodes[:-1]):
        options["nncf.quantize, transformer"] = TRANSFORMER
    return options


@dataclass
class Variants:
    """What is compared on one model: compiled, judged, and what finding it took.

    ``notes``: by variant, what JSON says of it besides.
    """

    found: Case
    engine: OpenVinoEngine
    half: OpenVinoEngine | None
    runtime: OnnxRuntimeEngine = field(default_factory=OnnxRuntimeEngine)
    compiled: dict[str, tuple[Engine, Compiled]] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def samples(self) -> list[Sample]:
        """The evaluation data."""
        return list(self.found.data["evaluation"])

    @staticmethod
    def of(found: Case) -> Variants:
        """With the float model."""
        shapes = found.model.input_shapes
        try:
            half: OpenVinoEngine | None = create(base="bfloat16", shapes=shapes)
        except RunError:  # This CPU has no bfloat16.
            half = None
        variants = Variants(found, OpenVinoEngine(shapes=shapes), half)
        model = found.model
        variants.add("float", model.proto, model.base_dir)
        compiled = variants.runtime.compile(model.proto, model.base_dir)
        variants.compiled["ONNX Runtime, float"] = (variants.runtime, compiled)
        return variants

    def add(self, name: str, proto: onnx.ModelProto, base_dir: Path, **notes: Any) -> float:
        """Compile ``proto`` with f32 and bf16; return its SQNR in dB with f32."""
        self.compiled[name] = (self.engine, self.engine.compile(proto, base_dir))
        self.notes[name] = notes
        if self.half is not None:
            own = f"{name}, bf16"
            self.compiled[own] = (self.half, self.half.compile(proto, base_dir))
        return self.judge("float").evaluate(self.compiled[name][1].run).sqnr

    def judge(self, reference: str) -> Evaluator:
        """Compares with the variant ``reference`` on the evaluation data."""
        run = self.compiled[reference][1].run
        return Evaluator(self.found.model.graph, (), self.samples, run)

    @cached_property
    def exact(self) -> dict[int, Mapping[str, np.ndarray]]:
        """The float model's outputs by the identity of the inputs."""
        run = self.compiled["float"][1].run
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
        """Seconds of each variant by round; the engines take turns in blocks."""
        inputs = self.samples[0].inputs
        own: dict[str, list[np.ndarray]] = {name: [] for name in self.compiled}
        for _ in range(BLOCKS):
            for engine in (self.engine, self.half, self.runtime):
                names = [name for name, (other, _) in self.compiled.items() if other is engine]
                if engine is None or not names:
                    continue
                models = [self.compiled[name][1] for name in names]
                seconds = engine.measure(models, inputs, max(1, rounds // BLOCKS))
                for column, name in enumerate(names):
                    own[name].append(seconds[:, column])
        return {name: np.concatenate(parts) for name, parts in own.items()}

    def rows(self, rounds: int) -> dict[str, Any]:
        """Latency, ratios to float and to NNCF's fastest, SQNR, and what finding it took."""
        times = self.times(rounds)
        medians = {name: float(np.median(values)) for name, values in times.items()}
        peer = min((n for n in medians if n.startswith("nncf")), key=medians.__getitem__)
        rows = {}
        for name, (engine, compiled) in self.compiled.items():
            reference = "ONNX Runtime, float" if engine is self.runtime else "float"
            evaluation = self.judge(reference).evaluate(compiled.run)
            rows[name] = {
                "sqnr_db": finite(evaluation.sqnr),
                "sqnr_by_part_db": {
                    where: finite(value)
                    for where, value in evaluation.metrics.items()
                    if where.startswith("sqnr")
                },
                "median_ms": 1e3 * medians[name],
                "ratio_to_float": _ratio(times[name], times["float"]),
                "ratio_to_nncf": _ratio(times[name], times[peer]),
                **self.notes.get(name, {}),
            }
        return rows


def _ratio(seconds: np.ndarray, others: np.ndarray) -> list[float]:
    found = paired_ratio(seconds, others)
    return [found.median, found.low, found.high]


def add_nncf(variants: Variants) -> float:
    """``nncf.quantize`` with all its options; returns the best SQNR with f32."""
    found, best = variants.found, -math.inf
    samples = nncf.Dataset([dict(sample.inputs) for sample in found.data["calibration"]])
    for name, options in nncf_options(found).items():
        start = time.monotonic()
        proto = nncf.quantize(
            fixed(found), samples, subset_size=len(found.data["calibration"]), **options
        )
        seconds = time.monotonic() - start
        best = max(best, variants.add(name, proto, found.model.base_dir, seconds=seconds))
    return best


def add_controlled(variants: Variants, least: float, name: str) -> None:
    """``nncf.quantize_with_accuracy_control`` with SQNR on OpenVINO as the metric."""
    found, calls = variants.found, 0
    data = found.data["calibration"]

    def judged(model: onnx.ModelProto, indices: Iterable[int]) -> tuple[float, list[float]]:
        nonlocal calls
        calls += 1
        run = variants.engine.compile(model, found.model.base_dir).run
        return variants.sqnr(run, indices)

    start = time.monotonic()
    samples = nncf.Dataset([dict(sample.inputs) for sample in data])
    try:
        proto = nncf.quantize_with_accuracy_control(
            fixed(found),
            samples,
            nncf.Dataset(list(range(len(variants.samples)))),
            judged,
            max_drop=MOST_DB - least,
            drop_type=nncf.DropType.ABSOLUTE,
            subset_size=len(data),
        )
    except Exception as error:  # What NNCF cannot do is a result, too.
        variants.notes[name] = {"error": str(error)}
        return
    seconds = time.monotonic() - start
    variants.add(name, proto, found.model.base_dir, seconds=seconds, evaluations=calls)


def placed(
    found: Case, sqnr: float, budget: int, folder: Path, **options: Any
) -> tuple[Result, onnx.ModelProto] | None:
    """What placer finds under the gate; None if nothing meets it."""
    request = Request(
        model=found.path,
        output=folder,
        shape_ranges={name: ShapeRange.fixed(shape) for name, shape in found.shapes.items()},
        data=str(found.sources["calibration"]),
        evaluation_data=str(found.sources["evaluation"]),
        gates=(f"sqnr>={sqnr:.3f}",),
        budget=budget,
        **options,
    )
    try:
        result = optimize(request, QuietObserver())
    except GateError:
        return None
    except RunError as error:
        logging.warning("placer: %s", error)
        return None
    return result, onnx.load(folder / "optimized.onnx")


def add_placer(variants: Variants, sqnr: float, extra: int, budget: int, folder: Path) -> None:
    """placer on OpenVINO with ``base`` auto."""
    start = time.monotonic()
    found = placed(variants.found, sqnr + extra, budget, folder, engine="openvino", base="auto")
    if found is None:
        return
    result, proto = found
    half = variants.half if result.engine.device.endswith("bfloat16") else None
    engine = half or variants.engine
    name = f"placer, +{extra} dB"
    variants.compiled[name] = (engine, engine.compile(proto, folder))
    variants.notes[name] = _searched(result, start)


def add_runtime(variants: Variants, sqnr: float, budget: int, folder: Path) -> None:
    """placer on ONNX Runtime."""
    start = time.monotonic()
    found = placed(variants.found, sqnr, budget, folder, engine="onnxruntime")
    if found is not None:
        result, proto = found
        name = "placer on ONNX Runtime, +0 dB"
        variants.compiled[name] = (variants.runtime, variants.runtime.compile(proto, folder))
        variants.notes[name] = _searched(result, start)


def _searched(result: Result, start: float) -> dict[str, Any]:
    return {
        "seconds": time.monotonic() - start,
        "evaluations": len(result.trials),
        "device": result.engine.device,
        "verdict": result.verdict.value,
    }


def run_case(name: str, samples: int, budget: int, rounds: int, folder: Path) -> dict[str, Any]:
    """All variants of one model in one interleaved run."""
    found = case(name, samples, folder)
    variants = Variants.of(found)
    best = add_nncf(variants)
    for extra in EXTRA_DB:
        if extra:
            add_controlled(variants, best + extra, f"nncf with accuracy control, +{extra} dB")
        add_placer(variants, best, extra, budget, folder / f"plus{extra}")
    add_runtime(variants, best, budget, folder / "runtime")
    failed = {n: note for n, note in variants.notes.items() if n not in variants.compiled}
    return {
        "shapes": found.shapes,
        "rounds": rounds,
        "variants": variants.rows(rounds),
        "failed": failed,
    }


def table(name: str, found: Mapping[str, Any]) -> Table:
    """The rows of one model."""
    drawn = Table(title=f"{name} {found['shapes']}, {found['rounds']} interleaved rounds")
    for column in ("variant", "SQNR, dB", "ms", "of float (95%)", "of NNCF's fastest", "seconds"):
        drawn.add_column(column)
    for variant, row in found["variants"].items():
        sqnr = "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
        ratios = [
            "{:.3f} ({:.3f} to {:.3f})".format(*row[key])
            for key in ("ratio_to_float", "ratio_to_nncf")
        ]
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        drawn.add_row(variant, sqnr, f"{row['median_ms']:.2f}", *ratios, seconds)
    return drawn


def main() -> None:
    """Run the benchmark, print a table per model and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=81)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    arguments = parser.parse_args()
    logging.getLogger("placer").propagate = False
    console, results = Console(width=120), {}
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            found = run_case(
                name, arguments.samples, arguments.budget, arguments.rounds, Path(folder)
            )
        results[name] = found
        console.print(table(name, found))
        document = {
            "device": OpenVinoEngine().device,
            "versions": {**versions(), "nncf": version("nncf"), "openvino": version("openvino")},
            "budget": arguments.budget,
            "samples": arguments.samples,
            "models": results,
        }
        write_text(arguments.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
