"""placer against ONNX Runtime's quantize_static on three real models, on the CPU provider.

Models: PP-OCRv4 detection, recognition and direction classifier as packed in the PyPI package
rapidocr-onnxruntime. Data: text rendered with Pillow, calibration and evaluation disjoint.
Per model, in one interleaved run: the float file, quantize_static (QDQ, uint8 activations, int8
per-channel weights, pre-processed as its documentation says, same calibration data), and
placer's best under three gates: SQNR of quantize_static, 3 dB more, 6 dB more.

    python -m benchmarks.peers.onnxruntime_models --json results.json
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.ocr import SUBJECTS, Subject, ocr_models, render
from benchmarks.peers.calibration_reader import Samples
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.calibration.dataset import Dataset, load_dataset
from placer.cli.console import ConsoleObserver
from placer.common.shapes import ShapeRange
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import GateError
from placer.graph.edit import fix_input_shapes
from placer.model import load_model
from placer.optimizer.run import Request, optimize
from placer.results.folder import OutputFolder
from placer.results.result import versions

EXTRA_DB = [0, 3, 6]


def quantized_by_onnxruntime(
    subject: Subject, input_name: str, dataset: Dataset, folder: Path
) -> onnx.ModelProto:
    """The peer's result: pre-processed, then quantize_static with its default calibration."""
    fixed = onnx.load(ocr_models() / subject.file)
    fix_input_shapes(fixed, {input_name: (1, 3, subject.height, subject.width)})
    # Per-channel DequantizeLinear came with opset 13; the files have 11 and 12.
    fixed = onnx.version_converter.convert_version(fixed, 17)
    onnx.save(fixed, folder / "fixed.onnx")
    quant_pre_process(folder / "fixed.onnx", folder / "prepared.onnx", skip_symbolic_shape=True)
    quantize_static(
        folder / "prepared.onnx",
        folder / "static.onnx",
        Samples(dataset),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return onnx.load(folder / "static.onnx")


def placed(request: Request, console: Console) -> Path | None:
    """The model that ``placer optimize`` writes; None where no candidate meets the gates."""
    observer = ConsoleObserver(console)
    try:
        optimize(request, observer)
    except GateError as error:
        console.print(str(error))
        return None
    finally:
        observer.close()
    return OutputFolder(request.output_folder).model


def run_subject(
    subject: Subject, options: argparse.Namespace, folder: Path, console: Console
) -> dict[str, Any]:
    """Optimize one model under three gates and compare all variants in one interleaved run."""
    path = ocr_models() / subject.file
    input_name = onnx.load(path).graph.input[0].name
    shapes = {input_name: (1, 3, subject.height, subject.width)}
    model = load_model(path, shapes)
    sources = {}
    for part, first in (("calibration", 0), ("evaluation", 10_000)):
        images = np.stack([render(subject, first + i) for i in range(options.samples)])
        sources[part] = folder / f"{part}.npz"
        np.savez(sources[part], allow_pickle=False, **{input_name: images})
    calibration = load_dataset(str(sources["calibration"]), model)
    evaluation = load_dataset(str(sources["evaluation"]), model)
    engine = OnnxRuntimeEngine()
    floats = engine.compile(model.proto, model.base_dir)
    judge = Evaluator(model.graph, (), evaluation, floats.run)

    def sqnr(compiled: Compiled) -> float:
        return judge.evaluate(compiled.run).sqnr

    static = engine.compile(
        quantized_by_onnxruntime(subject, input_name, calibration, folder), folder
    )
    variants: dict[str, Compiled] = {"float": floats, "quantize_static": static}
    peer_sqnr = sqnr(static)
    seconds_used = {}
    for extra in options.extra_db:
        name = f"placer, +{extra} dB"
        console.rule(f"{subject.name}: {name}")
        request = Request(
            model=path,
            engine="onnxruntime",
            output=folder / f"plus{extra}",
            shape_ranges={name: ShapeRange.fixed(s) for name, s in shapes.items()},
            data=str(sources["calibration"]),
            evaluation_data=str(sources["evaluation"]),
            gates=(f"sqnr>={peer_sqnr + extra:.3f}",),
            budget=options.budget,
        )
        start = time.monotonic()
        result = placed(request, console)
        seconds_used[name] = time.monotonic() - start
        if result is not None:
            variants[name] = engine.compile(onnx.load(result), request.output_folder)
    inputs = next(iter(evaluation)).inputs
    times = engine.measure(list(variants.values()), inputs, options.rounds)
    rows = {}
    for column, (name, compiled) in enumerate(variants.items()):
        to_float = paired_ratio(times[:, column], times[:, 0])
        to_static = paired_ratio(times[:, column], times[:, 1])
        rows[name] = {
            "sqnr_db": finite(sqnr(compiled)),
            "median_ms": float(1e3 * np.median(times[:, column])),
            "ratio_to_float": [to_float.median, to_float.low, to_float.high],
            "ratio_to_quantize_static": [to_static.median, to_static.low, to_static.high],
            "search_seconds": seconds_used.get(name),
        }
    return {
        "model": subject.file,
        "shape": shapes[input_name],
        "rounds": options.rounds,
        "variants": rows,
    }


def dominates(variants: dict[str, Any]) -> str:
    """How a point of placer's front dominates quantize_static, or that none does."""
    peer = variants["quantize_static"]["sqnr_db"]
    for name, row in variants.items():
        if not name.startswith("placer"):
            continue
        median, low, high = row["ratio_to_quantize_static"]
        gain = math.inf if row["sqnr_db"] is None else row["sqnr_db"] - peer
        if high < 1 and gain >= 0:
            return f"yes: {name} takes {median:.3f} of its time at {gain:+.1f} dB"
        if low <= 1 and gain >= 3:
            return f"yes: {name} has {gain:+.1f} dB at {median:.3f} of its time"
    return "no"


def table(name: str, found: dict[str, Any]) -> Table:
    """The rows of one model."""
    drawn = Table(title=f"{name} {found['shape']}, {found['rounds']} interleaved rounds")
    for column in ("variant", "SQNR, dB", "ms", "of float (95%)", "of quantize_static (95%)"):
        drawn.add_column(column)
    for variant, row in found["variants"].items():
        sqnr = "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
        ratios = [
            "{:.3f} ({:.3f} to {:.3f})".format(*row[key])
            for key in ("ratio_to_float", "ratio_to_quantize_static")
        ]
        drawn.add_row(variant, sqnr, f"{row['median_ms']:.2f}", *ratios)
    return drawn


def main() -> None:
    """Run the benchmark, print a table per model and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=81)
    parser.add_argument("--models", nargs="+", default=[s.name for s in SUBJECTS])
    parser.add_argument("--extra-db", nargs="+", type=int, default=EXTRA_DB)
    arguments = parser.parse_args()
    # quantize_static turns on logging to the terminal, which would repeat every trial.
    logging.getLogger("placer").propagate = False
    console = Console(width=110)
    results: dict[str, Any] = {}
    for subject in SUBJECTS:
        if subject.name in arguments.models:
            with tempfile.TemporaryDirectory() as folder:
                results[subject.name] = run_subject(subject, arguments, Path(folder), console)
    for name, found in results.items():
        found["dominates"] = dominates(found["variants"])
        console.print(table(name, found))
        console.print(f"{name}: dominates quantize_static: {found['dominates']}")
    document = {
        "engine": f"onnxruntime, {OnnxRuntimeEngine().device}, {OnnxRuntimeEngine().clock}",
        "versions": dict(versions()),
        "budget": arguments.budget,
        "samples": arguments.samples,
        "models": results,
    }
    write_json(arguments.json, document)


if __name__ == "__main__":
    main()
