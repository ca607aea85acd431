"""One model, one gate, every engine: what a user gets from each, and which one ``auto`` takes.

Each engine gets the same data, gate and number of trials. Latencies are those of ``placer
optimize``'s last measurement, of float and result in turn; each engine's ratio is to its own float
model. ONNX Runtime and OpenVINO give the CPU time of one thread, so pin the process to a core. With
``--gpu``, NVIDIA's builder (tensorrt-rtx-build) comes last: its times are estimates.

    taskset -c 2 python benchmarks/three_engines.py --models det --json engines.json
    python benchmarks/three_engines.py --models det --engines tensorrt-rtx-build --gpu l4 \
        --json estimates.json
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from command_line import parser_of, write_json
from real_networks import NAMES, Case, case
from rich.console import Console
from rich.table import Table

from placer.common.shapes import ShapeRange
from placer.errors import PlacerError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.request import Request
from placer.optimizer.run import optimize
from placer.results.result import versions

ENGINES = ("onnxruntime", "openvino", "auto", "tensorrt-rtx-build")


def searched(found: Case, engine: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
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
        return {"error": str(error)}
    row: dict[str, Any] = {
        "took": result.engine.name,
        "version": result.engine.version,
        "device": result.engine.device,
        "clock": result.engine.clock,
        "estimated": result.engine.estimated,
        "verdict": result.verdict.value,
        "trials": len(result.trials),
        "seconds": time.monotonic() - start,
        "warnings": result.warnings,
    }
    if result.baseline is not None and result.best is not None:
        row["float"] = result.baseline.model_dump(include={"latency"})
        row["best"] = result.best.model_dump(
            include={"latency", "speedup", "speedup_interval", "quantized_edges", "metrics"}
        )
    return row


def table(name: str, rows: dict[str, dict[str, Any]]) -> Table:
    """A row for each engine; what was estimated says so."""
    drawn = Table(title=name)
    for column in ("engine", "took", "float, ms", "best, ms", "speed-up", "SQNR, dB", "trials"):
        drawn.add_column(column)
    for engine, row in rows.items():
        best = row.get("best")
        if best is None:
            drawn.add_row(engine, row.get("error", "no model holds the gate"))
            continue
        times = [f"{part['latency']['median_ms']:.3f}" for part in (row["float"], best)]
        least, most = best["speedup_interval"]
        values = [v for name, v in best["metrics"].items() if name.startswith("sqnr")]
        sqnr = min((v for v in values if v is not None), default=None)
        drawn.add_row(
            f"{engine}, estimates" if row["estimated"] else engine,
            row["took"],
            *times,
            f"{best['speedup']:.2f} ({least:.2f} to {most:.2f})",
            "exact" if sqnr is None else f"{sqnr:.1f}",
            str(row["trials"]),
        )
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
    models: dict[str, dict[str, dict[str, Any]]] = {}
    for name in options.models:
        rows: dict[str, dict[str, Any]] = {}
        models[name] = rows
        with tempfile.TemporaryDirectory() as place:
            found = case(name, options.samples, Path(place))
            for engine in options.engines:
                rows[engine] = searched(found, engine, options, Path(place))
                known = {key: getattr(options, key) for key in ("gate", "budget", "samples")}
                write_json(options.json, {"versions": versions(), **known, "models": models})
        Console(width=120).print(table(name, rows))


if __name__ == "__main__":
    main()
