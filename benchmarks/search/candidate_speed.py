"""How long matching, predicting and candidates take, how they grow, what memory large models need.

Models are generated: residual CNNs with random weights. Bars (see docs/architecture.md): a
candidate in 25 ms at 320 nodes and 12 MB, in 250 ms at 5,000 nodes; matching 5,000 nodes in 1 s,
linear to 20,000; load, match, one candidate and save of 1.5 GB with external data in 2.5 times
the model's size. The peer's figures are of nvidia-modelopt 0.47.0 on a YOLOv8n of 323 nodes.

    python -m benchmarks.search.candidate_speed --json speed.json
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from placer.model import load_model, save_model
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.qdq import Inserter
from placer.quantization import Range
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target
from placer.search.space import build_space

SCRIPT = ("-m", "benchmarks.search.candidate_speed")  # In a process of its own, for its memory.
TARGET = Target(compute_capability="8.0", typing="strong")
SPANS = ("match_ms", "predictor_ms", "predict_ms", "candidate_ms")
PEER_MS = {"one candidate, early in a run": 90, "one candidate, late in a run": 350}


def residual_net(nodes: int, channels: int) -> onnx.ModelProto:
    """A chain of residual blocks with ``nodes`` nodes, 3x3 kernels and random weights."""
    rng = np.random.default_rng(0)
    made, weights, tensor = [], [], "x"
    for block in range(nodes // 5):
        names = [f"b{block}_{i}" for i in range(5)]
        for i in (0, 2):
            kernel = rng.standard_normal((channels, channels, 3, 3), np.float32)
            kernel /= np.float32(10 * np.sqrt(9 * channels))  # Keeps activations finite.
            weights.append(
                helper.make_tensor(
                    f"{names[i]}_w", TensorProto.FLOAT, kernel.shape, kernel.tobytes(), raw=True
                )
            )
        pads = [1, 1, 1, 1]
        made += [
            helper.make_node(
                "Conv", [tensor, f"{names[0]}_w"], [names[0]], f"n{names[0]}", pads=pads
            ),
            helper.make_node("Relu", [names[0]], [names[1]], f"n{names[1]}"),
            helper.make_node(
                "Conv", [names[1], f"{names[2]}_w"], [names[2]], f"n{names[2]}", pads=pads
            ),
            helper.make_node("Add", [names[2], tensor], [names[3]], f"n{names[3]}"),
            helper.make_node("Relu", [names[3]], [names[4]], f"n{names[4]}"),
        ]
        tensor = names[4]
    shape = [1, channels, 8, 8]
    graph = helper.make_graph(
        made,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def median_ms(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median, minimum and maximum milliseconds of ``call`` after one warm-up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), min(times), max(times)


def measure(nodes: int, channels: int, repeats: int) -> dict[str, Any]:
    """Load, match and candidate times of one generated model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(residual_net(nodes, channels), path)
        start = time.perf_counter()
        model = load_model(path)
        load_ms = 1e3 * (time.perf_counter() - start)
        size_mb = path.stat().st_size / 1e6
    pack = load_pack("tensorrt")
    match = median_ms(lambda: find_sites(model.graph, pack.rules), max(3, repeats // 4))
    space = build_space(model.graph, find_sites(model.graph, pack.rules))
    placement = space.placement(space.defaults)
    inserter = Inserter(model, pack.manifest.scheme)
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    candidate = median_ms(lambda: inserter.insert(space.placement(space.defaults), ranges), repeats)
    make = partial(Predictor, model.graph, pack.rules, TARGET, "float16", "int8")
    predictor, roofline = make(), Roofline(model.graph, load_gpu("a100"), load_layer_classes())
    predict = median_ms(lambda: roofline.estimate(predictor.predict(placement)), repeats)
    return {
        "nodes": len(model.graph.nodes),
        "size_mb": size_mb,
        "load_ms": load_ms,
        "match_ms": match,
        "predictor_ms": median_ms(make, max(3, repeats // 4)),
        "predict_ms": predict,
        "candidate_ms": candidate,
        "quantized_edges": len(placement.edges),
    }


def large_model(size_gb: float) -> dict[str, Any]:
    """Peak memory of a process that loads, matches, builds one candidate and saves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.onnx"
        subprocess.run([sys.executable, *SCRIPT, "--make", str(path), str(size_gb)], check=True)
        size = path.stat().st_size + sum(
            p.stat().st_size for p in path.parent.iterdir() if p != path
        )
        script = [sys.executable, *SCRIPT, "--process", str(path)]
        finished = subprocess.run(script, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(finished.stdout)
    found["size_gb"] = size / 1e9
    found["peak_to_size"] = found["peak_gb"] / found["size_gb"]
    return found


def make_large(path: Path, size_gb: float) -> None:
    """Write a model of about ``size_gb`` with its weights as external data."""
    channels = 1024  # One kernel of 3x3 is 38 MB.
    blocks = max(1, round(size_gb * 1e9 / (2 * channels * channels * 9 * 4)))
    onnx.save(
        residual_net(5 * blocks, channels), path, save_as_external_data=True, location="large.data"
    )


def process_large(path: Path) -> None:
    """What a trial does to a large model; prints seconds and peak memory as JSON."""
    start = time.perf_counter()
    model = load_model(path)
    pack = load_pack("tensorrt")
    space = build_space(model.graph, find_sites(model.graph, pack.rules))
    placement = space.placement(space.defaults)
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    candidate = Inserter(model, pack.manifest.scheme).insert(placement, ranges)
    save_model(candidate, model.base_dir, path.parent / "out" / "optimized.onnx")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_gb": peak_kib * 1024 / 1e9}))


def print_tables(console: Console, document: dict[str, Any]) -> None:
    """One table of times, one line on memory."""
    table = Table(title="tensorrt pack, default placement; median (min to max)")
    names = ("match, ms", "predictor, ms", "predict, ms", "candidate, ms", "quantized edges")
    for column in ("nodes", "MB", "load, ms", *names):
        table.add_column(column)
    for row in document["models"]:
        spans = ["{:.1f} ({:.1f} to {:.1f})".format(*row[k]) for k in SPANS]
        cells = [str(row["nodes"]), f"{row['size_mb']:.1f}", f"{row['load_ms']:.0f}", *spans]
        table.add_row(*cells, str(row["quantized_edges"]))
    console.print(table)
    large = document["large_model"]
    console.print(
        f"{large['size_gb']:.2f} GB with external data: load, match, candidate, save in "
        f"{large['seconds']:.1f} s, peak {large['peak_gb']:.2f} GB, "
        f"{large['peak_to_size']:.2f} times its size"
    )
    console.print(f"peer (nvidia-modelopt 0.47.0, 323 nodes, other machine), ms: {PEER_MS}")


def main() -> None:
    """Run the benchmark, print tables and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--process", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make_large(Path(arguments.make[0]), float(arguments.make[1]))
        return
    if arguments.process:
        process_large(arguments.process)
        return
    sizes = ((320, 53), (1250, 16), (5000, 16), (20000, 16))
    document = {
        "versions": dict(versions()),
        "models": [
            measure(nodes, channels, 21 if nodes < 5000 else 7) for nodes, channels in sizes
        ],
        "large_model": large_model(1.5),
        "peer_ms": PEER_MS,
    }
    print_tables(Console(), document)
    if arguments.json:
        write_json(arguments.json, document)


if __name__ == "__main__":
    main()
