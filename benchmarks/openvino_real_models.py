"""placer against NNCF on OpenVINO's CPU plugin, on real models.

Models: those of ort_real_models.py, PP-OCRv4 as packed in rapidocr-onnxruntime. Calibration and
evaluation images are disjoint and the same for all tools. Per model, in one interleaved run: the
float model with f32 and bf16 inference, ``nncf.quantize`` with its defaults and with the preset
MIXED, and placer's best under gates equal to the better NNCF result's SQNR, 3 dB and 6 dB more.
SQNR is that of OpenVINO's own outputs against its float ones.

    pip install nncf && python benchmarks/openvino_real_models.py --json results.json
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
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

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.calibration.dataset import Dataset, load_dataset
from placer.common.files import write_text
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled
from placer.engines.openvino.engine import OpenVinoEngine, create
from placer.errors import GateError, RunError
from placer.graph.edit import fix_input_shapes
from placer.graph.shapes import ShapeRange
from placer.model import Model, load_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.results.result import versions

EXTRA_DB = (0, 3, 6)
PRESETS = {
    "nncf.quantize": None,
    "nncf.quantize, MIXED": nncf.QuantizationPreset.MIXED,
}
assert NNCF_CI_ENV_VAR_NAME in os.environ


def quantized_by_nncf(
    path: Path, shapes: dict[str, tuple[int, ...]], data: Dataset, preset: Any
) -> onnx.ModelProto:
    """The peer's result, of the ONNX file with fixed shapes."""
    fixed = onnx.load(path)
    fix_input_shapes(fixed, shapes)
    fixed = version_converter.convert_version(fixed, 17)
    samples = nncf.Dataset([dict(sample.inputs) for sample in data])
    options = {} if preset is None else {"preset": preset}
    return nncf.quantize(fixed, samples, subset_size=len(data), **options)


def placed(
    path: Path, shapes: dict[str, tuple[int, ...]], sources: dict[str, Path], sqnr: float,
    budget: int, folder: Path,
) -> onnx.ModelProto | None:  # fmt: skip
    """What placer finds under the gate; None if nothing meets it."""
    request = Request(
        model=path,
        output=folder,
        shape_ranges={name: ShapeRange.fixed(shape) for name, shape in shapes.items()},
        data=str(sources["calibration"]),
        evaluation_data=str(sources["evaluation"]),
        engine="openvino",
        gates=(f"sqnr>={sqnr:.3f}",),
        budget=budget,
    )
    try:
        optimize(request, QuietObserver())
    except GateError:
        return None
    return onnx.load(folder / "optimized.onnx")


class Variants:
    """What is compared on one model, compiled by engines that measure in one run."""

    def __init__(self, model: Model, evaluation: Dataset) -> None:
        self._model = model
        self.engine = OpenVinoEngine(shapes=model.input_shapes)
        self.compiled: dict[str, Compiled] = {
            "float": self.engine.compile(model.proto, model.base_dir)
        }
        self.seconds: dict[str, float] = {}
        self._judge = Evaluator(model.graph, (), evaluation, self.compiled["float"].run)

    def add_bfloat16(self) -> None:
        """The float model with bf16 inference, where the CPU has it."""
        try:
            engine = create(base="bfloat16", shapes=self._model.input_shapes)
        except RunError:
            return
        self.compiled["float, bf16"] = engine.compile(self._model.proto, self._model.base_dir)

    def add(self, name: str, proto: onnx.ModelProto, start: float) -> float:
        """Compile ``proto``, which took since ``start``; return its SQNR in dB."""
        self.seconds[name] = time.monotonic() - start
        self.compiled[name] = self.engine.compile(proto, self._model.base_dir)
        return self.sqnr(name)

    def sqnr(self, name: str) -> float:
        """Of all outputs, on the evaluation data."""
        return self._judge.evaluate(self.compiled[name].run).sqnr

    def rows(self, inputs: dict[str, np.ndarray], rounds: int) -> dict[str, Any]:
        """Latency, ratios to float and to the faster NNCF result, SQNR and seconds."""
        times = self.engine.measure(list(self.compiled.values()), inputs, rounds)
        names = list(self.compiled)
        peers = [name for name in names if name.startswith("nncf")]
        peer = min(peers, key=lambda name: float(np.median(times[:, names.index(name)])))
        found = {}
        for column, name in enumerate(names):
            ratios = [
                paired_ratio(times[:, column], times[:, names.index(other)])
                for other in ("float", peer)
            ]
            found[name] = {
                "sqnr_db": finite(self.sqnr(name)),
                "median_ms": float(1e3 * np.median(times[:, column])),
                "ratio_to_float": [ratios[0].median, ratios[0].low, ratios[0].high],
                "ratio_to_nncf": [ratios[1].median, ratios[1].low, ratios[1].high],
                "seconds": self.seconds.get(name),
            }
        return found


def run_subject(
    subject: Subject, samples: int, budget: int, rounds: int, folder: Path
) -> dict[str, Any]:
    """All variants of one model in one interleaved run."""
    path = FOLDER / subject.file
    name = onnx.load(path).graph.input[0].name
    shapes = {name: (1, 3, subject.height, subject.width)}
    model = load_model(path, shapes)
    sources, data = {}, {}
    for part, first in (("calibration", 0), ("evaluation", 10_000)):
        sources[part] = folder / f"{part}.npz"
        np.savez(
            sources[part], **{name: np.stack([render(subject, first + i) for i in range(samples)])}
        )
        data[part] = load_dataset(str(sources[part]), model)
    variants = Variants(model, data["evaluation"])
    variants.add_bfloat16()
    best = -np.inf
    for peer, preset in PRESETS.items():
        start = time.monotonic()
        proto = quantized_by_nncf(path, shapes, data["calibration"], preset)
        best = max(best, variants.add(peer, proto, start))
    for extra in EXTRA_DB:
        start = time.monotonic()
        found = placed(path, shapes, sources, best + extra, budget, folder / f"plus{extra}")
        if found is not None:
            variants.add(f"placer, +{extra} dB", found, start)
    inputs = dict(next(iter(data["evaluation"])).inputs)
    return {"shape": shapes[name], "rounds": rounds, "variants": variants.rows(inputs, rounds)}


def table(name: str, found: dict[str, Any]) -> Table:
    """The rows of one model."""
    drawn = Table(title=f"{name} {found['shape']}, {found['rounds']} interleaved rounds")
    for column in ("variant", "SQNR, dB", "ms", "of float (95%)", "of NNCF's faster (95%)"):
        drawn.add_column(column)
    for variant, row in found["variants"].items():
        sqnr = "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
        ratios = [
            "{:.3f} ({:.3f} to {:.3f})".format(*row[key])
            for key in ("ratio_to_float", "ratio_to_nncf")
        ]
        drawn.add_row(variant, sqnr, f"{row['median_ms']:.2f}", *ratios)
    return drawn


def main() -> None:
    """Run the benchmark, print a table per model and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=81)
    parser.add_argument("--models", nargs="+", default=[s.name for s in SUBJECTS])
    arguments = parser.parse_args()
    console, results = Console(width=110), {}
    for subject in SUBJECTS:
        if subject.name not in arguments.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = run_subject(
                subject, arguments.samples, arguments.budget, arguments.rounds, Path(folder)
            )
        results[subject.name] = found
        console.print(table(subject.name, found))
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
