"""Fit configs/layer_classes.yaml to per-layer profiles, and tell how far off unseen engines are.

Each engine is estimated with classes that were fitted to all others, so the errors printed here are
those of engines that no figure was fitted to. A second column leaves out all engines of a network
at once; the intervals that placer states come from it. Rules are not fitted, so the layers that are
predicted are the same whatever is left out.

    PLACER_REFERENCE_ENGINES=folder python -m benchmarks.times.layer_classes --json loo.json

``--classes FILE`` writes the classes fitted to all engines; those of GPUs that have classes of
their own (benchmarks/times/kernel_classes.py) are kept.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import yaml
from rich.console import Console
from rich.table import Table
from scipy.optimize import lsq_linear

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.topologies import yolov8n
from benchmarks.plans import reference_engines as engines
from benchmarks.plans import tensorrt as plan_fidelity
from benchmarks.times import published_layers
from benchmarks.times.profiled_layers import Sample, profiler_us, samples
from placer.common.files import write_text
from placer.fitting.leave_out import conformal_quantile
from placer.model import load_model
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import LayerClass, LayerClasses, Rate, load_layer_classes
from placer.prediction.times.roofline import (
    Roofline,
    least_memory_us,
    memory_bandwidth,
    operation_rate,
    slower_products,
    tensor_bandwidth,
    uncached_bytes,
)
from placer.prediction.times.work import SMALL_TILE
from placer.quantization import EMPTY
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target

# Where a kind of layer was measured too little, its figures are drawn towards those of this kind,
# and kinds that are not listed towards those of all layers.
PARENTS = {
    "conv to float": "conv",
    "conv to half": "conv",
    "conv-act-pool": "conv",
    "few-channel conv": "conv",
    "depthwise conv": "conv",
    "few-channel conversion": "conversion",
}
NAMES = ("conv", "conversion", "matmul", "memory", "pooling", *PARENTS)
BY_TYPE = (
    *("conv", "conv to float", "conv to half", "few-channel conv", "matmul", "pooling"),
    *("conversion", "few-channel conversion"),
)
RATES: dict[tuple[str, str], Rate] = {
    ("few-channel conv", "float"): "cuda",
    ("depthwise conv", ""): "cuda",
    ("conversion", ""): "elements",
    ("few-channel conversion", ""): "elements",
}
# Cycles of latency, and what is made of the data sheet's rates, of its bandwidth in reading and in
# writing and of the H100's cycles for each product, before anything was measured.
BEFORE = np.array([1700, 1 / 0.6, 1 / 0.75, 1 / 0.75, 1])
# A conversion takes some instructions for each element; an operation is those of a warp for 32.
BEFORE_CONVERSION = np.array([1700, 6, 1 / 0.75, 1 / 0.75, 1])
# How strongly figures are drawn towards their parents', of which the square is the share of an
# engine's time that a deviation of its own size weighs; and the relative error from which a layer
# counts less, as in Huber's estimator. Weaker ones (0.06) leave larger errors of ratios on engines
# left out, stronger ones (0.13) of latencies.
STRENGTH = 0.1
OUTLIER = 0.3
ROUNDS = 5
# Every compute capability has classes of its own, drawn towards those of all: engines left out
# are estimated better. GPUs before 8.0 cannot copy to shared memory while they compute, so their
# kernels are others. They take no part in the classes of all, and their latencies are drawn less
# towards those of all: two engines of one small network are known, whose layers are short, so they
# tell nothing of rates. With all figures drawn weakly a YOLOv7's INT8 on a T4 was estimated at 1.4
# times its ratio.
OLDER = ("7.0", "7.2", "7.5")
OLDER_STRENGTH = np.array([0.02, *[STRENGTH] * 4])
# Of Convs in FP32 only the latency and the cycles for each product are fitted. They reach the data
# sheet's rate, as the H100's do (times/kernel_classes.py), and move bytes as fast as those in FP16.
# The engines in FP32 that are known ran at batch 32, where operations, bytes and what sums cost in
# sequence cannot be told apart. What this does to the errors of engines left out is in
# docs/measured/plans-tensorrt.md, FP16 and FP32. GPUs without TF32 are
# assumed to reach the rate of their CUDA cores, too: no layer of theirs in FP32 is known, and the
# one ratio that is, FP16 to FP32 of a YOLOv8n on an RTX 2060, is off by less (0.350 to 0.255).
FLOAT_CONV_RATE = 1.0
FLOAT_CONV, HALF_CONV = ("conv", "float"), ("conv", "float16")
STRENGTHS = {FLOAT_CONV: np.array([STRENGTH, 10.0, 10.0, 10.0, STRENGTH])}
TYPES = ("float16", "float", "int8")  # In this order: FP32 is drawn towards FP16.
# Nothing computes faster than the data sheet says; caches read faster than memory, to a point.
LEAST = (0.0, 1.0, 1 / 3, 1 / 3, 0.0)
# Cycles for each product that an element sums, as times/kernel_classes.py finds on an H100.
DEPTH = {"float": 6.05, "float16": 2.98, "int8": 1.55}
# What they are multiplied by where they bound the time of a layer from below on older GPUs; the
# A100's tensor cores do half as much in a cycle (whitepapers). From layer to layer of the ResNet18
# at 32x32 on an RTX 3090 they are 1.8 to 1.9 times as many; no figure is fitted to these alone.
LEAST_DEPTH = 2.0
HEADER = """\
# What kinds of layers make of a GPU's data-sheet rates; the formula is in
# placer/prediction/times/roofline.py.
# Written by benchmarks/times/layer_classes.py, which fits them to the per-layer profiles of
# fourteen published TensorRT 8 engines and to the layers of published_layers.py: those without a
# compute capability to A100, RTX 3090 and Orin, which on other GPUs is an assumption, those with
# one to these GPUs and a TITAN RTX, each drawn towards that of all.
# Bandwidth efficiencies above 1 say that tensors were read from the L2 cache. depth_cycles were
# measured for each type on an H100 and scaled to these engines, least_depth_cycles are twice the
# H100's; slower_products of roofline.py multiplies both. Of Convs in FP32 only the latency and the
# cycles were fitted, with the rate that the H100's reach and bytes that move as in FP16; the three
# engines without such Convs took no part. GPUs without TF32 have no class of their own for these:
# that they reach the rate of their CUDA cores is an assumption. Classes of compute capability 9.0
# were fitted by benchmarks/times/kernel_classes.py to kernels of cuDNN 9.19 on an H100; TensorRT
# has kernels of its own beside cuDNN's, for INT8 above all: its layers may be faster.
"""
ERROR_SOURCE = (
    "layers: 80% of fifteen ratios of two builds of one network, each estimated with classes "
    "fitted to engines of other networks (benchmarks/times/layer_classes.py); latencies: the "
    "larger of that and of the error of 80% of fourteen engines; ratios, to which nothing was "
    "fitted (benchmarks/times/tensorrt_ratios.py): 80% of networks, each counting the same, of "
    "all, of transformers, of networks where depthwise Convs move more than a quarter, and where "
    "what is not quantized is FP32; on Blackwell 19%, widened until a ratio of implicit scales at "
    "batch 1 that is far off is not stated as sure"
)
# They sum one product after the other and compute channels in whole tiles. Of ten ways to count
# these, the one taken leaves all four kinds of error on engines left out smaller than none does,
# and of a YOLOv8m's Convs on an Orin the least spread about one factor (clocks are not known).
CONVS = ("conv", "conv to float", "conv to half")
COVERAGE = 0.8


def known() -> tuple[engines.Engine, ...]:
    """The engines whose files are here and whose times take part."""
    return tuple(entry for entry in engines.present() if entry.timed)


def fit(found: Sequence[Sample]) -> LayerClasses:
    """The classes that fit ``found`` best, each engine counting alike."""
    shipped = load_layer_classes()
    rows = [_Row.of(s, shipped.launch_us(s.gpu)) for s in found]
    newer = [row for row in rows if row.capability not in OLDER] or rows
    groups = _by_class(newer)
    for key, members in _by_class(rows).items():
        groups.setdefault(key, members)
    all_layers = _solve(newer, BEFORE)
    solved: dict[tuple[str, ...], np.ndarray] = {}
    for name in NAMES:
        above = BEFORE_CONVERSION if name == "conversion" else all_layers
        parent = solved.get((PARENTS.get(name, ""), ""), above)
        solved[name, ""] = _solve(groups[name, ""], parent)
    for name, dtype in itertools.product(BY_TYPE, TYPES):
        if groups[name, dtype] or (name, dtype) in RATES:
            parent, strength = solved[name, ""], STRENGTHS.get((name, dtype), STRENGTH)
            if (name, dtype) == FLOAT_CONV:
                parent = _float_conv(parent, solved[HALF_CONV])
            solved[name, dtype] = _solve(groups[name, dtype], parent, strength)
    by_gpu = _by_gpu(rows)
    for name, dtype, capability in sorted(by_gpu, key=lambda key: TYPES.index(key[1])):
        if (name, dtype) not in solved:
            continue
        parent, strength = solved[name, dtype], STRENGTHS.get((name, dtype), STRENGTH)
        if (name, dtype) == FLOAT_CONV:
            half = solved.get((*HALF_CONV, capability), solved[HALF_CONV])
            parent = _float_conv(parent, half)
        strength = OLDER_STRENGTH if capability in OLDER else strength
        members = by_gpu[name, dtype, capability]
        solved[name, dtype, capability] = _solve(members, parent, strength)
    entries = (_layer_class(key, figures) for key, figures in sorted(solved.items()))
    return shipped.model_copy(update={"classes": tuple(entries)})


def _float_conv(parent: np.ndarray, half: np.ndarray) -> np.ndarray:
    """What FP32 Convs are drawn towards: ``half``, those in FP16, tell how fast bytes move."""
    return np.array([parent[0], 1 / FLOAT_CONV_RATE, *half[2:4], parent[4]])


def _by_class(rows: Iterable[_Row]) -> dict[tuple[str, str], list[_Row]]:
    """The rows of each class, and of each class and type."""
    groups: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        groups[row.name, ""].append(row)
        groups[row.name, row.dtype].append(row)
    return groups


def _by_gpu(rows: Iterable[_Row]) -> dict[tuple[str, str, str], list[_Row]]:
    """The rows of each class, type and compute capability."""
    groups: dict[tuple[str, str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        groups[row.name, row.dtype, row.capability].append(row)
    return groups


@dataclass(frozen=True)
class _Row:
    """A sample as an equation: ``parts`` times the figures of its class are ``us``.

    ``capability``: the GPU's. ``least_us`` bounds what comes behind the latency from below.
    """

    name: str
    dtype: str
    capability: str
    parts: np.ndarray
    us: float
    least_us: float
    engine_us: float

    @staticmethod
    def of(sample: Sample, launch_us: float) -> _Row:
        work, gpu = sample.work, sample.gpu
        rate = operation_rate(_rate(work.name, work.dtype), work.dtype or "float16", gpu)
        bandwidth = tensor_bandwidth(work, gpu) / 1e6  # Bytes per microsecond.
        uncached = uncached_bytes(work, gpu)
        depth = work.depth * slower_products(work.dtype, gpu)
        depth_us = depth * _depth_cycles(work.name, work.dtype) / gpu.clock_mhz
        parts = (
            1 / gpu.clock_mhz,
            1e6 * (work.small_tiled_ops if _tile(work.name, work.dtype) else work.ops) / rate,
            (work.bytes - work.written - uncached) / bandwidth,
            work.written / bandwidth,
            depth_us,
        )
        uncached_us = uncached / (memory_bandwidth(gpu) / 1e6)
        us = max(sample.us - launch_us - uncached_us, 0.3)
        least_us = max(LEAST_DEPTH * depth_us, least_memory_us(work, gpu))
        values = (np.array(parts), us, least_us, sample.engine_us)
        return _Row(work.name, work.dtype, gpu.compute_capability, *values)


def _rate(name: str, dtype: str) -> Rate:
    return RATES.get((name, dtype)) or RATES.get((name, ""), "tensor")


def _depth_cycles(name: str, dtype: str) -> float:
    return DEPTH.get(dtype, 0.0) if name in CONVS else 0.0


def _tile(name: str, dtype: str) -> Literal[0, 32]:
    """In FP32 tiles make every estimate of YOLOv8n worse."""
    return SMALL_TILE if name in CONVS and dtype != "float" else 0


def _solve(
    rows: Sequence[_Row], parent: np.ndarray, strength: float | np.ndarray = STRENGTH
) -> np.ndarray:
    """Least squares with each square divided by the time, so that sums of times are kept.

    Layers that the least time bounds tell nothing and are left out.
    """
    solution = parent
    for _ in range(ROUNDS):
        used = [r for r in rows if r.parts[1:] @ solution[1:] >= r.least_us]
        if not used:
            return parent
        parts, times = np.stack([r.parts for r in used]), np.array([r.us for r in used])
        floored = np.maximum(times, 1.5)
        off = np.abs(parts @ solution - times) / floored
        trust = np.minimum(1.0, OUTLIER / np.maximum(off, 1e-9))
        weights = np.sqrt(trust / (floored * np.array([r.engine_us for r in used])))
        pull = strength / np.maximum(parent, 1e-3)
        columns = np.vstack([parts * weights[:, None], np.diag(pull)])
        values = np.concatenate([times * weights, parent * pull])
        solution = lsq_linear(columns, values, (LEAST, np.inf)).x
    return solution


def _layer_class(key: tuple[str, ...], figures: np.ndarray) -> LayerClass:
    name, dtype, capability = (*key, "")[:3]
    latency, ops, read, written, depth = (float(x) for x in figures)
    cycles = _depth_cycles(name, dtype)
    return LayerClass(
        name=name,
        dtype=dtype,
        compute_capability=capability,
        rate=_rate(name, dtype),
        ops_efficiency=round(min(1.0, 1 / ops), 3),
        bandwidth_efficiency=round(1 / read, 3),
        write_efficiency=round(1 / written, 3),
        depth_cycles=round(depth * cycles, 2),
        least_depth_cycles=round(LEAST_DEPTH * cycles, 2),
        tile=_tile(name, dtype),
        latency_cycles=round(latency),
        source="fitted here",
    )


# --- leaving out ----------------------------------------------------------------------------


def layer_errors() -> dict[tuple[str, str, str], list[float]]:
    """By class, type and GPU: relative errors of layers whose engine took no part in the fit."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for entry in known():
        classes = fit_to(other for other in known() if other is not entry)
        gpu = load_gpu(entry.gpu)
        capability = gpu.compute_capability
        roofline, launch_us = Roofline(entry.graph, gpu, classes), classes.launch_us(gpu)
        for sample in samples(entry, profiler_us(entry, known())):
            error = abs(launch_us + roofline.work_us(sample.work) - sample.us) / sample.us
            for dtype, own in {("", ""), (sample.work.dtype, ""), (sample.work.dtype, capability)}:
                found[sample.work.name, dtype, own].append(error)
    return found


def with_sources(classes: LayerClasses) -> LayerClasses:
    """``classes``, each saying what it was fitted to and how far it is off elsewhere."""
    errors = layer_errors()
    published = Counter(
        (s.work.name, s.work.dtype, s.gpu.compute_capability) for s in published_layers.samples()
    )

    def source(entry: LayerClass) -> str:
        own = errors.get((entry.name, entry.dtype, entry.compute_capability), [])
        alone = published[entry.name, entry.dtype, entry.compute_capability]
        if not own and alone:
            return f"measured: {alone} layers of published_layers.py; error elsewhere not known"
        if not own:
            return f"assumed to be as {PARENTS.get(entry.name, 'all layers')}"
        return f"measured: {len(own)} layers; engine left out, median error {np.median(own):.0%}"

    described = (c.model_copy(update={"source": source(c)}) for c in classes.classes)
    return classes.model_copy(update={"classes": tuple(described)})


def fit_to(entries: Iterable[engines.Engine], without: str = "") -> LayerClasses:
    """The classes that fit the layers of ``entries`` and those whose times alone were published.

    The latter take no part where they are of the architecture of the network ``without``.
    """
    entries = list(entries)
    found = [s for entry in entries for s in samples(entry, profiler_us(entry, entries))]
    if not without.startswith(published_layers.ARCHITECTURE):
        found += published_layers.samples()
    return fit(found)


def estimate_ms(entry: engines.Engine, classes: LayerClasses) -> float:
    """The engine's latency as ``placer explain`` would estimate it, in milliseconds."""
    plan = Roofline(entry.graph, load_gpu(entry.gpu), classes).estimate(entry.predict())
    return sum(layer.time_us or 0.0 for layer in plan.layers) / 1e3


@dataclass(frozen=True)
class Estimate:
    """A measured latency, or ratio of two, and its estimate where it took no part in the fit.

    ``network_out``: the estimate where no engine of the network took part.
    """

    what: str
    measured: float
    estimated: float
    network_out: float

    @property
    def error(self) -> float:
        """Logarithm of the factor that the estimate is off by."""
        return abs(math.log(self.estimated / self.measured))

    @property
    def network_error(self) -> float:
        """The same of the estimate without the network."""
        return abs(math.log(self.network_out / self.measured))

    def is_inside(self, stated: float) -> bool:
        """Whether the estimate without the network is off by at most the share ``stated``."""
        return self.network_error <= math.log1p(stated)


def leave_out() -> tuple[list[Estimate], list[Estimate]]:
    """Latencies of all engines, and ratios of those of one network, each left out of the fit."""
    entries = known()
    alone = {e.name: estimate_ms(e, fit_to(o for o in entries if o is not e)) for e in entries}
    apart: dict[str, float] = {}
    for name in dict.fromkeys(map(engines.network, entries)):
        classes = fit_to((e for e in entries if engines.network(e) != name), without=name)
        apart |= {e.name: estimate_ms(e, classes) for e in entries if engines.network(e) == name}
    latencies = [Estimate(e.name, e.median_ms, alone[e.name], apart[e.name]) for e in entries]
    ratios = [
        Estimate(
            f"{one.name} / {other.name.partition('/')[2]}",
            one.median_ms / other.median_ms,
            alone[one.name] / alone[other.name],
            apart[one.name] / apart[other.name],
        )
        for one, other in itertools.combinations(entries, 2)
        if engines.network(one) == engines.network(other)
    ]
    return latencies, ratios


# --- whole networks whose layers nobody published -------------------------------------------

# YOLOv8n at 640x640, batch 1, ms in FP32, FP16 and INT8 (Ultralytics' page on
# TensorRT export; implicit calibration, weak typing). The RTX 3080's are compared with a 3090's.
PUBLISHED = {"a100": (0.52, 0.34, 0.28), "orin-nx-16gb": (6.11, 3.18, 2.30)}
PUBLISHED |= {"rtx-3090": (1.06, 0.62, 0.52)}


def totals_table(classes: LayerClasses) -> Table:
    """Estimates for YOLOv8n beside published times, which took no part in the fit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "yolov8n.onnx"
        onnx.save(yolov8n(640), path)
        graph = load_model(path).graph
    pack, table = load_pack("tensorrt"), Table(title="YOLOv8n at batch 1, ms: FP32, FP16, INT8")
    for column in ("GPU", "published", "estimate"):
        table.add_column(column)
    for name, published in PUBLISHED.items():
        gpu = load_gpu(name)
        target = Target(compute_capability=gpu.compute_capability, typing="strong")
        default = place(find_sites(graph, pack.rules, target), {})
        times = []
        for base, placement in (("float", EMPTY), ("float16", EMPTY), ("float16", default)):
            predictor = Predictor(graph, pack.rules, target, base, "int8")
            plan = Roofline(graph, gpu, classes).estimate(predictor.predict(placement))
            times.append(sum(layer.time_us or 0.0 for layer in plan.layers) / 1e3)
        table.add_row(name, *(" / ".join(f"{t:.2f}" for t in ms) for ms in (published, times)))
    return table


# --- what is printed ------------------------------------------------------------------------


def estimates_table(title: str, found: Sequence[Estimate], stated: float) -> Table:
    """A line per estimate. ``stated``: the error that placer states, as a share."""
    table = Table(title=title)
    for column in ("", "measured", "estimate", "off", "network out", f"within {stated:.0%}"):
        table.add_column(column, justify="left" if not column else "right")
    for estimate in found:
        table.add_row(
            estimate.what,
            f"{estimate.measured:.3f}",
            f"{estimate.estimated:.3f}",
            f"{math.expm1(estimate.error):.0%}",
            f"{estimate.network_out:.3f}",
            "yes" if estimate.is_inside(stated) else "no",
        )
    return table


def classes_table(classes: LayerClasses) -> Table:
    """A line per fitted class."""
    table = Table(title="fitted to all engines")
    for column in ("class", "type", "GPU", "latency", "ops", "read", "write", "cycles", "source"):
        table.add_column(column)
    for entry in classes.classes:
        figures = (entry.ops_efficiency, entry.bandwidth_efficiency, entry.write_efficiency or 0.0)
        cells = (f"{x:.2f}" for x in (*figures, entry.depth_cycles))
        names = (entry.name, entry.dtype, entry.compute_capability)
        table.add_row(*names, f"{entry.latency_cycles:.0f}", *cells, entry.source)
    return table


def errors_of(found: Sequence[Estimate], stated: float) -> dict[str, float]:
    """What 80% are off by, and how many of those without the network are within ``stated``."""
    apart = [e.network_error for e in found]
    return {
        "error_80": math.expm1(conformal_quantile([e.error for e in found], COVERAGE)),
        "network_out_error_80": math.expm1(conformal_quantile(apart, COVERAGE)),
        "within_stated": sum(e.is_inside(stated) for e in found) / len(found),
    }


def write_classes(path: Path, classes: LayerClasses, ratio: float, latency: float) -> None:
    """Write ``configs/layer_classes.yaml`` with these classes and errors."""
    shipped = load_layer_classes()
    fitted = {c.compute_capability for c in classes.classes}
    own = [c for c in shipped.classes if c.compute_capability not in fitted]
    document = shipped.model_dump(exclude={"classes"}) | {
        "layer_error": round(math.ceil(100 * ratio) / 100, 2),
        "latency_error": round(math.ceil(100 * latency) / 100, 2),
        "error_source": ERROR_SOURCE,
        "classes": [
            c.model_dump(exclude_defaults=True, exclude_none=True) for c in (*classes.classes, *own)
        ],
    }
    text = yaml.safe_dump(document, sort_keys=False, width=100)
    write_text(path, HEADER + text)


def main() -> None:
    """Print the tables and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--classes", type=Path)
    arguments = parser.parse_args()
    missing = [e.name for e in engines.ENGINES if e.timed and e not in known()]
    if arguments.classes and missing:  # The file says what it was fitted to.
        raise SystemExit(f"--classes needs all engines; missing: {', '.join(missing)}")
    fidelities = [plan_fidelity.compare(entry)[0] for entry in known()]
    latencies, ratios = leave_out()
    classes, shipped = with_sources(fit_to(known())), load_layer_classes()
    stated = {"latency": shipped.latency_error, "ratio": shipped.layer_error}
    console = Console(width=140)
    plan_fidelity.print_table(fidelities)
    found = {"latency": latencies, "ratio": ratios}
    for what, estimates in found.items():
        title = f"{what}, the engines left out of the fit"
        console.print(estimates_table(title, estimates, stated[what]))
    errors = {what: errors_of(estimates, stated[what]) for what, estimates in found.items()}
    for what, figures in errors.items():
        console.print(what, {name: round(value, 3) for name, value in figures.items()})
    console.print(totals_table(classes))
    console.print(classes_table(classes))
    if arguments.json:
        document = {
            "versions": dict(versions()),
            "engines": [asdict(entry) for entry in fidelities],
            "latencies_ms": [asdict(e) for e in latencies],
            "ratios": [asdict(e) for e in ratios],
            "errors": errors,
        }
        write_json(arguments.json, document)
    if arguments.classes:
        # A user's network is none of those that take part.
        ratio = errors["ratio"]["network_out_error_80"]
        latency = max(ratio, errors["latency"]["network_out_error_80"])
        write_classes(arguments.classes, classes, ratio, latency)


if __name__ == "__main__":
    main()
