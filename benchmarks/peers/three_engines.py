"""One model, one gate, every engine: what a user gets from each, and which one ``auto`` takes.

Each engine gets the same data, gate and number of trials. The speed-ups are those of ``placer
optimize``'s last measurement, of the engine's own float model and the result in turn. Then the
float models and results of ONNX Runtime and OpenVINO take turns in blocks of rounds: medians of
these are the milliseconds of the table. They are CPU time of one thread, so pin the process to a
core. NVIDIA's builder (tensorrt-rtx-build) times nothing: what it says is an estimate.

    taskset -c 2 python -m benchmarks.peers.three_engines --models det --json engines.json
    python -m benchmarks.peers.three_engines --models det --engines tensorrt-rtx-build --gpu l4 \
        --json estimates.json
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.real import NAMES, Case, case
from benchmarks.peers.openvino_against import ratio_of
from placer.common.shapes import ShapeRange
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.errors import PlacerError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.results.result import Result, versions

ENGINES = ("onnxruntime", "openvino", "auto", "tensorrt-rtx-build")
REFERENCE = "onnxruntime, float"
BLOCKS, ROUNDS = 9, 7


def searched(
    found: Case, engine: str, options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], Path | None]:
    """What ``placer optimize`` finds on ``engine``; what it cannot do is a result, too."""
    request = Request(
        model=found.path,
        output=folder / engine,
        shape_ranges={name: ShapeRange.fixed(shape) for name, shape in found.shapes.items()},
        data=str(found.sources["calibration"]),
        evaluation_data=str(found.sources["evaluation"]),
        gates=(options.gate,),
        budget=options.budget,
        engine=engine,
        gpu=options.gpu if engine == "tensorrt-rtx-build" else None,
    )
    start = time.monotonic()
    try:
        result = optimize(request, QuietObserver())
    except PlacerError as error:
        return {"error": str(error)}, None
    return {**told(result), "seconds": time.monotonic() - start}, result.optimized_model


def told(result: Result) -> dict[str, Any]:
    """What is kept of a result."""
    row: dict[str, Any] = {
        "took": result.engine.name,
        "version": result.engine.version,
        "device": result.engine.device,
        "clock": result.engine.clock,
        "estimated": result.engine.estimated,
        "verdict": result.verdict.value,
        "trials": len(result.trials),
        "warnings": result.warnings,
    }
    if result.baseline is not None and result.best is not None:
        row["float"] = result.baseline.model_dump(include={"latency"})
        row["best"] = result.best.model_dump(
            include={"latency", "speedup", "speedup_interval", "quantized_edges", "metrics"}
        )
    return row


def together(found: Case, results: Mapping[str, tuple[str, Path]]) -> dict[str, dict[str, Any]]:
    """All measured in turn, with the float models: milliseconds, and ratio to ``REFERENCE``.

    ``results``: the engine that was taken and the file, by what was asked for.
    """
    model, inputs = found.model, next(iter(found.data["evaluation"])).inputs
    times: dict[str, list[np.ndarray]] = {}
    engines: dict[str, Engine] = {
        "onnxruntime": OnnxRuntimeEngine(),
        "openvino": OpenVinoEngine(shapes=model.input_shapes),
    }
    built = {
        name: {f"{name}, float": engine.compile(model.proto, model.base_dir)}
        for name, engine in engines.items()
    }
    for asked, (took, path) in results.items():
        if took in built:
            built[took][asked] = engines[took].compile(onnx.load(path), path.parent)
    for _ in range(BLOCKS):
        for name, own in built.items():
            seconds = engines[name].measure(list(own.values()), inputs, ROUNDS)
            for variant, column in zip(own, seconds.T, strict=True):
                times.setdefault(variant, []).append(column)
    whole = {variant: np.concatenate(parts) for variant, parts in times.items()}
    return {
        variant: {
            "median_ms": 1e3 * float(np.median(seconds)),
            "ratio_to_float_on_onnxruntime": ratio_of(seconds, whole[REFERENCE]),
        }
        for variant, seconds in whole.items()
    }


def table(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each engine; what was estimated says so."""
    drawn = Table(title=name)
    for column in ("engine", "took", "speed-up", "SQNR, dB", "trials"):
        drawn.add_column(column)
    for engine, row in rows.items():
        best = row.get("best")
        if best is None:
            drawn.add_row(engine, row.get("error", "no model holds the gate"))
            continue
        least, most = best["speedup_interval"]
        values = [v for metric, v in best["metrics"].items() if metric.startswith("sqnr")]
        sqnr = min((v for v in values if v is not None), default=None)
        drawn.add_row(
            f"{engine}, estimates" if row["estimated"] else engine,
            row["took"],
            f"{best['speedup']:.2f} ({least:.2f} to {most:.2f})",
            "exact" if sqnr is None else f"{sqnr:.1f}",
            str(row["trials"]),
        )
    return drawn


def turns(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Milliseconds of what was measured in turn."""
    drawn = Table("model", "ms", "of ONNX Runtime's float (95%)", title="measured in turn")
    for variant, row in rows.items():
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*row["ratio_to_float_on_onnxruntime"])
        drawn.add_row(variant, f"{row['median_ms']:.3f}", ratio)
    return drawn


def main() -> None:
    """Search on each engine in turn; write what is known after each."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["det"], choices=NAMES)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES[:3]), choices=ENGINES)
    parser.add_argument("--gpu", default="l4", help="for tensorrt-rtx-build")
    parser.add_argument("--gate", default="sqnr>=15")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    logging.getLogger("placer").propagate = False
    known = {key: getattr(options, key) for key in ("gate", "budget", "samples")}
    models: dict[str, dict[str, Any]] = {}
    document = {"versions": versions(), **known, "models": models}
    for name in options.models:
        rows: dict[str, dict[str, Any]] = {}
        models[name] = {"engines": rows}
        results: dict[str, tuple[str, Path]] = {}
        with tempfile.TemporaryDirectory() as place:
            found = case(name, options.samples, Path(place))
            for engine in options.engines:
                rows[engine], path = searched(found, engine, options, Path(place))
                if path is not None:
                    results[engine] = rows[engine]["took"], path
                write_json(options.json, document)
            Console(width=120).print(table(name, rows))
            if any(not row.get("estimated", True) for row in rows.values()):
                models[name]["in turn"] = together(found, results)
                Console(width=120).print(turns(models[name]["in turn"]))
        write_json(options.json, document)


if __name__ == "__main__":
    main()
