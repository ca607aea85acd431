"""Equal models against each other: how often does one pass for faster or slower?

The float model is compiled several times, twice over, and both sets are compared as ``placer
optimize`` compares its winner with the float model. The truth is a ratio of 1, so a 95% interval
should leave it out in one of twenty comparisons. "Rounds" is the interval of the rounds alone,
"rounds and copies" the one that placer uses. Pin the process to a core of a quiet machine.

    taskset -c 1 python -m benchmarks.robustness.equal_models --json equal-models.json
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.real import NAMES, Case, case
from placer.common.statistics import Ratio, paired_ratio
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.openvino.engine import OpenVinoEngine
from placer.optimizer.options.presets import load_preset
from placer.optimizer.outcome.finals import Finalist, confirm
from placer.results.result import versions

ENGINES = ("onnxruntime", "openvino")
KINDS = ("rounds", "rounds and copies")


def engine_for(name: str, given: Case) -> Engine:
    """The engine called ``name`` with one thread, for the shapes of ``given``."""
    if name == "onnxruntime":
        return OnnxRuntimeEngine(threads=1)
    return OpenVinoEngine(threads=1, shapes=given.shapes)


def comparisons(engine_name: str, name: str, times: int) -> dict[str, list[Ratio]]:
    """The ratios of equal models by ``KINDS``."""
    preset, found = load_preset("default"), {kind: list[Ratio]() for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        given = case(name, 1, Path(folder))
        engine, model = engine_for(engine_name, given), given.model
        (sample,) = given.data["evaluation"]
        for _ in range(times):
            winner, baseline = (
                [engine.compile(model.proto, model.base_dir) for _ in range(preset.copies)]
                for _ in range(2)
            )
            final = confirm(
                engine, Finalist(None, winner), baseline, sample.inputs, preset.confirm_rounds
            )
            found["rounds"].append(paired_ratio(final.seconds[:, 1], final.seconds[:, 0]))
            found["rounds and copies"].append(final.ratio)
    return found


def table(results: dict[str, dict[str, list[Ratio]]]) -> Table:
    """How many intervals leave 1 out, and their median width."""
    shown = Table("model", "interval of", "without 1", "comparisons", "median width")
    for name, by_kind in results.items():
        for kind, ratios in by_kind.items():
            outside = sum(not one.low <= 1 <= one.high for one in ratios)
            width = np.median([one.high - one.low for one in ratios])
            shown.add_row(name, kind, str(outside), str(len(ratios)), f"{width:.3f}")
    return shown


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="onnxruntime")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=["MobileNetV2", "cls"])
    parser.add_argument("--times", type=int, default=40, help="comparisons of each model")
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Compare, print the table and write all ratios."""
    given, results = arguments(), dict[str, dict[str, list[Ratio]]]()
    for name in given.models:
        results[name] = comparisons(given.engine, name, given.times)
    ratios = {
        name: {kind: [asdict(one) for one in found] for kind, found in by_kind.items()}
        for name, by_kind in results.items()
    }
    write_json(given.json, {"engine": given.engine, "versions": versions(), "ratios": ratios})
    Console().print(table(results))


if __name__ == "__main__":
    main()
