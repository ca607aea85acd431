"""Fit the classes of convolutions in configs/layer_classes.yaml to measured kernels of a GPU.

    python -m benchmarks.times.kernel_classes [benchmarks/measured/kernels-h100.json] [--gpu h100]

For each number format: latency, cycles per summed product, efficiencies of computing, reading and
writing, by least squares of relative errors within what the hardware allows, and the error of
estimates for shapes that were left out of the fit (all batches of a shape at once). Beside them
stand the estimates that the classes of other GPUs gave for the same kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from scipy.optimize import lsq_linear

from benchmarks.command_line import parser_of
from placer.graph import index_graph
from placer.prediction.times.gpus import Gpu, load_gpu
from placer.prediction.times.layer_classes import LayerClass, LayerClasses, load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.prediction.times.work import TILE, Work

MEASURED = Path(__file__).parents[1] / "measured" / "kernels-h100.json"
# By format: the class, the type that is read, bytes of an element read and written.
FORMATS = {
    "int8": ("conv", "int8", 1, 1),
    "int8 to fp16": ("conv to half", "int8", 1, 2),
    "int8 to fp32": ("conv to float", "int8", 1, 4),
    "fp8": ("conv", "float8e4m3fn", 1, 1),
    "fp8 to fp16": ("conv to half", "float8e4m3fn", 1, 2),
    "fp16": ("conv", "float16", 2, 2),
    "tf32": ("conv", "float", 4, 4),
}
# Nothing computes faster than the data sheet says; tensors that lie in the L2 cache are read
# faster than memory gives them, but hardly more than three times as fast.
FASTEST_READ = 3.0


@dataclass(frozen=True)
class Kernel:
    """A measured convolution; ``shape`` names it without its batch."""

    shape: str
    batch: int
    work: Work
    us: float


def kernels(document: Mapping[str, Any], form: str) -> list[Kernel]:
    """The measured kernels of one format."""
    rows = [row for row in document["timings"] if row["format"] == form and row["us"]]
    return [
        Kernel(
            f"{row['channels']}-{row['filters']}, {row['size']}, {row['kernel']}",
            row["batch"],
            work_of(row, form),
            row["us"],
        )
        for row in rows
    ]


def work_of(row: Mapping[str, Any], form: str) -> Work:
    """What a measured convolution had to do."""
    name, dtype, read_size, written_size = FORMATS[form]
    side = (row["size"] + 2 * (row["kernel"] // 2) - row["kernel"]) // row["stride"] + 1
    pixels, area = row["batch"] * side * side, row["kernel"] ** 2
    weights = row["filters"] * row["channels"] * area
    # A residual input has the size of the output; it counts with it, as it is read at its pace.
    written = written_size * pixels * row["filters"] * (2 if row["residual"] else 1)
    read = read_size * (row["batch"] * row["channels"] * row["size"] ** 2 + weights)
    tiled = _up(row["filters"]) * _up(row["channels"]) * area
    return Work(
        name,
        dtype,
        ops=2.0 * pixels * weights,
        bytes=read + written,
        written=written,
        depth=row["channels"] * area,
        tiled_ops=2.0 * pixels * tiled,
    )


def fit(group: Sequence[Kernel], gpu: Gpu, launch_us: float) -> LayerClass:
    """The class that fits ``group`` best, by relative errors.

    Kernels were timed one after the other in a graph, so what is constant holds ``launch_us``.
    """
    name, dtype = group[0].work.name, group[0].work.dtype
    rate, bandwidth = gpu.peak_ops(dtype), gpu.memory_bandwidth_gb_s * 1e9
    columns = np.array(
        [
            [
                1.0,
                kernel.work.depth / gpu.clock_mhz,
                1e6 * kernel.work.tiled_ops / rate,
                1e6 * (kernel.work.bytes - kernel.work.written) / bandwidth,
                1e6 * kernel.work.written / bandwidth,
            ]
            for kernel in group
        ]
    )
    times = np.array([kernel.us for kernel in group])
    least = [0.0, 0.0, 1.0, 1 / FASTEST_READ, 1 / FASTEST_READ]
    solution = lsq_linear(columns / times[:, None], np.ones(len(times)), (least, np.inf)).x
    latency, cycles, ops, read, written = (float(x) for x in solution)
    return LayerClass(
        name=name,
        dtype=dtype,
        compute_capability=gpu.compute_capability,
        ops_efficiency=min(1.0, 1 / ops),
        bandwidth_efficiency=1 / read,
        write_efficiency=1 / written,
        depth_cycles=cycles,
        tile=TILE,
        latency_cycles=max(0.0, latency - launch_us) * gpu.clock_mhz,
        source="measured: fitted here",
    )


def errors(group: Sequence[Kernel], gpu: Gpu, classes: LayerClasses) -> np.ndarray:
    """Logarithms of estimated over measured time."""
    return np.array([math.log(_us(kernel.work, gpu, classes) / kernel.us) for kernel in group])


def left_out(group: Sequence[Kernel], gpu: Gpu, classes: LayerClasses) -> np.ndarray:
    """The same where the shape of each kernel was no part of the fit."""
    found, launch_us = [], classes.launch_cycles / gpu.clock_mhz
    for shape in dict.fromkeys(kernel.shape for kernel in group):
        rest = fit([kernel for kernel in group if kernel.shape != shape], gpu, launch_us)
        own = [kernel for kernel in group if kernel.shape == shape]
        found.append(errors(own, gpu, classes.model_copy(update={"classes": (rest,)})))
    return np.concatenate(found)


def _us(work: Work, gpu: Gpu, classes: LayerClasses) -> float:
    roofline = Roofline(index_graph(onnx.GraphProto(), {}), gpu, classes)
    return classes.launch_cycles / gpu.clock_mhz + roofline.work_us(work)


def _up(channels: int) -> int:
    return math.ceil(channels / TILE) * TILE


def main() -> None:
    """Print the fitted classes and their errors."""
    parser = parser_of(__doc__)
    parser.add_argument("measured", nargs="?", type=Path, default=MEASURED)
    parser.add_argument("--gpu", default="h100", help="description of the GPU, by name or file")
    arguments = parser.parse_args()
    document, gpu = json.loads(arguments.measured.read_text()), load_gpu(arguments.gpu)
    others = load_layer_classes()
    others = others.model_copy(
        update={"classes": tuple(c for c in others.classes if not c.compute_capability)}
    )
    table = Table(title=f"convolutions on {document['device']}, fitted, and errors of estimates")
    for column in ("format", "kernels", "latency", "cycles", "ops", "read", "write"):
        table.add_column(column, justify="left" if column == "format" else "right")
    for column in ("left out: median", "90%", "other GPUs' classes: median", "90%"):
        table.add_column(column, justify="right")
    for form in FORMATS:
        group = kernels(document, form)
        entry = fit(group, gpu, others.launch_cycles / gpu.clock_mhz)
        figures = (
            entry.latency_cycles, entry.depth_cycles, entry.ops_efficiency,
            entry.bandwidth_efficiency, entry.write_efficiency or 0.0,
        )  # fmt: skip
        cells = [f"{figure:.2f}" for figure in figures]
        for found in (left_out(group, gpu, others), errors(group, gpu, others)):
            sizes = np.expm1(np.abs(found))
            cells += [f"{np.median(sizes):.0%}", f"{np.quantile(sizes, 0.9):.0%}"]
        table.add_row(form, str(len(group)), *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
