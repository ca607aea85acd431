"""Are default placements for TensorRT estimated to be faster than FP16? Nothing is built or run.

For each network, GPU and batch: the estimate of the layouts of the pack's rules and of the default
placement, as shares of FP16's. The networks' files have an open batch.

    python -m benchmarks.networks.write tensorrt_set --folder networks
    python -m benchmarks.times.tensorrt_defaults --folder networks --json defaults.json
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.sets import Subject, subjects
from placer.model import Model, load_model
from placer.prediction.defaults_by_estimates import with_defaults
from placer.prediction.select import make_predictor
from placer.prediction.times.devices import make_estimator, target_on
from placer.prediction.times.gpus import Gpu, load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.quantization import EMPTY
from placer.results.result import versions
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

GPUS = "rtx-3090,t4,rtx-4090"


@dataclass(frozen=True)
class Shares:
    """Estimates as shares of FP16's; ``pairs``: quantized edges of the default placement."""

    part: str
    network: str
    gpu: str
    batch: int
    float_us: float
    rules: float
    default: float
    pairs: int


def shares(subject: Subject, gpus: Sequence[Gpu], batch: int, pack: Pack) -> Iterator[Shares]:
    """Those of one network with one batch."""
    model = _with_batch(subject.load(), batch)
    matches = Matches(model.graph)
    for gpu in gpus:
        target = target_on(gpu)
        predictor = make_predictor(model.graph, pack, target, "float16", matches)
        estimator = make_estimator(model.graph, gpu, pack.manifest.behaviour)
        sites = find_sites(model.graph, pack.rules, target)
        default = place(with_defaults(matches, sites, pack.rules, None, predictor, estimator), {})
        by_rules, by_default, in_float = (
            estimator.total_us(predictor.predict(placement))
            for placement in (place(sites, {}), default, EMPTY)
        )
        yield Shares(
            subject.part,
            subject.name,
            gpu.name,
            batch,
            in_float,
            by_rules / in_float,
            by_default / in_float,
            len(default.edges),
        )


def _with_batch(model: Model, batch: int) -> Model:
    return load_model(
        model.path, {name: (batch, *shape[1:]) for name, shape in model.input_shapes.items()}
    )


def summary(rows: Sequence[Shares]) -> Table:
    """A row for each part, GPU and batch."""
    table, error = Table(), 1 + load_layer_classes().layer_error
    above = ("above 1", f"above {error:.2f}")
    for column in ("part", "GPU", "batch", "networks", "of", "mean", *above):
        table.add_column(column)
    table.add_column("highest")
    table.add_column("float")
    for key in dict.fromkeys((row.part, row.gpu, row.batch) for row in rows):
        alike = [row for row in rows if (row.part, row.gpu, row.batch) == key]
        for name in ("rules", "default"):
            values = [getattr(row, name) for row in alike]
            floats = sum(not row.pairs for row in alike) if name == "default" else 0
            table.add_row(
                *map(str, (*key, len(alike), name)),
                f"{math.exp(math.fsum(map(math.log, values)) / len(values)):.3f}",
                str(sum(value > 1 + 1e-6 for value in values)),
                str(sum(value > error for value in values)),
                f"{max(values):.2f}",
                str(floats),
            )
    return table


def main() -> None:
    """Print the table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--networks", default="tensorrt_set")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--pack", default="tensorrt")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--batches", type=int, nargs="+", default=(1, 16))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    pack = load_pack(arguments.pack)
    gpus = [load_gpu(name) for name in arguments.gpus.split(",")]
    rows: list[Shares] = []
    for subject in subjects(arguments.networks, arguments.folder):
        for batch in arguments.batches:
            rows += shares(subject, gpus, batch, pack)
        print(subject.name, flush=True)
    Console(width=140).print(summary(rows))
    if arguments.json:
        document = {"versions": dict(versions()), "shares": [asdict(row) for row in rows]}
        write_json(arguments.json, document)


if __name__ == "__main__":
    main()
