"""What a full and a reduced range of weights cost in accuracy on this machine's processor.

The default placement of ONNX Runtime's pack, with the ranges that ``--calibration auto`` chooses,
is run by ONNX Runtime as users get it, and as it is computed where no product saturates.
On a processor with VNNI both are the same. Networks and data: see ``methods``.

    python -m benchmarks.recovery.weight_range det rec cls mobilenet_v2 --json ranges.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.recovery.methods import NETWORKS, SIZE, CalibratedNetwork, task_of
from placer.common.processor import kind_of, this_processor
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.qdq import Inserter
from placer.quantization.scheme import in_weight_range


def sqnrs(name: str, folder: Path, counts: tuple[int, int]) -> dict[str, float]:
    """In dB on evaluation data, by range and by whether products may saturate."""
    network = CalibratedNetwork.of(task_of(name, "onnxruntime", "default", folder, SIZE, 0, counts))
    task, found = network.task, {}
    for weight_range in ("full", "reduced"):
        scheme = in_weight_range(task.pack.manifest.scheme, weight_range)
        candidate = Inserter(task.model, scheme).insert(network.placement, network.chosen.ranges)
        for exact in (True, False):
            model = OnnxRuntimeModel(candidate, task.model.base_dir, 1, exact=exact)
            what = f"{weight_range}, {'exact' if exact else 'as here'}"
            found[what] = network.row(what, model.run).whole
    return found


def main() -> None:
    """Print a table, and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="+", choices=NETWORKS)
    parser.add_argument("--samples", type=int, default=64, help="to calibrate with")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = {}
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = sqnrs(name, Path(folder), (options.samples, options.samples // 2))
    processor = kind_of(this_processor()) or "unknown"
    table = Table("network", *next(iter(rows.values())), title=f"SQNR in dB, processor {processor}")
    for name, row in rows.items():
        table.add_row(name, *(f"{value:.1f}" for value in row.values()))
    Console().print(table)
    if options.json:
        text = json.dumps({"processor": processor, "sqnr": rows}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
