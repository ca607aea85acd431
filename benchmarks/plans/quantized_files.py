"""How well plans of files that others quantized are predicted from their own pairs.

What ``placer explain`` predicts is held against what the engine builds of the file. ``--float``
takes float models and quantizes each first: with onnxruntime's ``quantize_static`` on random data
as it does by default (int8), with symmetric int8, and with uint8, and with ``quantize_dynamic``.

    python -m benchmarks.plans.quantized_files --engine onnxruntime net-int8.onnx other-int8.onnx
    python -m benchmarks.plans.quantized_files --engine openvino --float net.onnx --json files.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import (
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from rich.console import Console
from rich.table import Table

import placer
from benchmarks.command_line import parser_of, write_json
from benchmarks.peers.calibration_reader import Samples
from placer.calibration.dataset import Dataset, synthetic_dataset
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import PlacerError
from placer.model import load_model, load_quantized, save_model
from placer.plan.diff import diff_plans
from placer.plan.diff_result import Score
from placer.results.result import versions

_SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
AT_RUN_TIME = "at run time"
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "int8": {},
    "int8, symmetric": {"per_channel": True, "extra_options": _SYMMETRIC},
    "uint8": {"per_channel": True, "activation_type": QuantType.QUInt8},
    AT_RUN_TIME: {},
}


@dataclass(frozen=True)
class Compared:
    """One file: its predicted layers, and its conversions by how they were predicted."""

    file: str
    by_nodes: Score
    with_types: Score
    built: int
    false: int
    missed: int

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        counts = f"{self.built}/{self.false}/{self.missed}"
        return self.file, f"{self.by_nodes.f1:.3f}", f"{self.with_types.f1:.3f}", counts


def pooled(found: Sequence[Compared]) -> Compared:
    """All files taken together."""
    by_nodes = [entry.by_nodes for entry in found]
    with_types = [entry.with_types for entry in found]
    counts = (sum(getattr(entry, name) for entry in found) for name in ("built", "false", "missed"))
    return Compared("all", _sum(by_nodes), _sum(with_types), *counts)


def _sum(scores: Sequence[Score]) -> Score:
    return Score(*(sum(getattr(score, part) for score in scores) for part in PARTS))


def openvino() -> Engine:
    """OpenVINO, which need not be installed for the other engine."""
    module = import_module("placer.engines.openvino.engine")
    engine: Engine = module.OpenVinoEngine()
    return engine


PARTS = ("matched", "predicted", "actual")
ENGINES: Mapping[str, Callable[[], Engine]] = {
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": openvino,
}


def quantized(path: Path, folder: Path) -> Iterator[Path]:
    """``path`` by each recipe, in ``folder``."""
    model = load_model(path)
    source = folder / f"{path.stem}.onnx"
    save_model(model.proto, model.base_dir, source)
    for recipe in RECIPES:
        target = folder / f"{path.stem}, {recipe}.onnx"
        by_recipe(recipe, source, synthetic_dataset(model, 2, 0), target)
        yield target


def by_recipe(recipe: str, source: Path, samples: Dataset, target: Path) -> None:
    """Write what onnxruntime's quantizer makes of ``source`` by one of the ``RECIPES``."""
    if recipe == AT_RUN_TIME:
        quantize_dynamic(source, target)
        return
    quantize_static(source, target, Samples(samples), **RECIPES[recipe])


def _named(path: Path) -> onnx.ModelProto:
    """The file, with the names by which the prediction tells nodes without one."""
    proto = onnx.load(path)
    names = {t: node.name for node in load_quantized(path).graph.node for t in node.output}
    for node in proto.graph.node:
        node.name = node.name or names.get(node.output[0], "")
    return proto


def compare(path: Path, engine: str) -> Compared:
    """Predict and build one file. Raises PlacerError if it cannot be read or built."""
    predicted = placer.explain(path, pack=engine).explanation.plan
    actual = ENGINES[engine]().compile(_named(path), path.parent).plan()
    diff = diff_plans(predicted, actual)
    built = sum(entry.actual for entry in diff.conversions if entry.kind != "reformat")
    false = sum(len(entry.missing) for entry in diff.conversions if entry.kind != "reformat")
    missed = sum(len(entry.extra) for entry in diff.conversions if entry.kind != "reformat")
    return Compared(path.stem, diff.by_nodes, diff.exact, built, false, missed)


def main() -> None:
    """Print a line per file and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--float", action="store_true", help="quantize the files first")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    table = Table(title=f"predicted against {options.engine}'s plans")
    for column in ("file", "F1 by nodes", "with types", "conversions built/false/missed"):
        table.add_column(column)
    found, refused = [], list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for given in options.files:
            for path in quantized(given, Path(folder)) if options.float else [given]:
                try:
                    found.append(compare(path, options.engine))
                except PlacerError as error:
                    refused.append(f"{path.stem}: {error}")
    for entry in (*found, pooled(found)):
        table.add_row(*entry.row())
    console = Console(width=110)
    console.print(table)
    for reason in refused:
        console.print(reason, soft_wrap=True)
    if options.json:
        document = {"versions": dict(versions()), "files": [asdict(entry) for entry in found]}
        write_json(options.json, {**document, "refused": refused})


if __name__ == "__main__":
    main()
