"""Fit the efficiencies of configs/layer_classes.yaml to per-layer profiles of real engines.

Uses the per-layer times of all five engines and never their totals. A profiler synchronises around
every layer, which shows in the shortest layer of all profiles; that floor is taken off each time.

    PLACER_REFERENCE_ENGINES=folder python benchmarks/fit_layer_classes.py
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import reference_engines as engines
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from placer.plan import Plan
from placer.prediction.gpus import load_gpu
from placer.prediction.roofline import FEW_CHANNELS, Work, layer_work
from placer.prediction.steps import PredictedLayer

RATES = {"few-channel conv": {"int8": "dp4a", "float": "cuda"}}
# What the fit finds for the classes conv (float16) and pooling (float).
CONV_OPS, POOLING_BANDWIDTH = 0.74, 0.77
SIZES = {"Int8": 1, "FP16": 2, "FP32": 4}


@dataclass(frozen=True)
class Sample:
    """One layer's work and its time above the floor, in microseconds."""

    work: Work
    us: float


def samples() -> list[Sample]:
    """All layers of all engines."""
    plans = {entry: entry.actual() for entry in engines.A100}
    floor = min(x.time_us for plan in plans.values() for x in plan.layers if x.time_us)
    return [s for entry, plan in plans.items() for s in _samples(entry, plan, floor)]


def _samples(entry: engines.Engine, actual: Plan, floor: float) -> list[Sample]:
    prediction, graph = entry.predict(), entry.graph
    predicted = {_key(layer): layer for layer in prediction.layers if layer.nodes}
    found = []
    for layer in actual.layers:
        match = predicted.get(frozenset(layer.nodes)) if layer.nodes else None
        work = layer_work(match, graph) if match else None
        if work is not None and layer.time_us:
            found.append(Sample(work, layer.time_us - floor))
    return [*found, *_conversions(entry, floor)]


def _key(layer: PredictedLayer) -> frozenset[str]:
    """The nodes that TensorRT 8 names: activations show in a field of their own."""
    return frozenset(n.name for n in layer.nodes if n.op not in ("Relu", "Flatten"))


def _conversions(entry: engines.Engine, floor: float) -> list[Sample]:
    """Conversions with the shapes that the engine reports."""
    path = engines.folder() / entry.name
    profile = {p["name"]: p for p in json.loads((path / "profile.json").read_text()) if "name" in p}
    found = []
    for layer in json.loads((path / "graph.json").read_text())["Layers"]:
        if layer["LayerType"] == "Reformat":
            ports = (*layer["Inputs"], *layer["Outputs"])
            moved = sum(math.prod(p["Dimensions"]) * _size(p["Format/Datatype"]) for p in ports)
            few = ports[0]["Dimensions"][1] <= FEW_CHANNELS
            work = Work("few-channel conversion" if few else "conversion", "", 0, moved)
            found.append(Sample(work, profile[layer["Name"]]["averageMs"] * 1e3 - floor))
    return found


def _size(phrase: str) -> int:
    return next(size for name, size in SIZES.items() if name in phrase)


@dataclass(frozen=True)
class Fitted:
    """Efficiencies of a class and its latency in microseconds; None where it has no such part."""

    ops: float | None
    bandwidth: float | None
    latency_us: float


def fit(name: str, group: list[Sample], rate: float, bandwidth: float) -> Fitted:
    """Least squares with none negative, each square divided by the time.

    So the sum of the fitted times is that of the measured ones, which relative errors would lower.

    Where layers are too few or too alike for three figures, fewer are fitted: conversions of images
    have no latency; of classes with fewer than three layers the bandwidth is taken to be used as
    pooling uses it; products of matrices this small show their latency only.
    """
    times = np.array([s.us for s in group])
    ideal = np.array([[s.work.ops / rate, s.work.bytes / bandwidth] for s in group]) * 1e6
    if name == "matmul":
        rest = times - ideal[:, 0] / CONV_OPS - ideal[:, 1] / POOLING_BANDWIDTH
        return Fitted(CONV_OPS, POOLING_BANDWIDTH, float(max(np.median(rest), 0)))
    if len(group) < 3 and ideal[:, 0].any():
        rest = np.median((times - ideal[:, 1] / POOLING_BANDWIDTH) / ideal[:, 0])
        return Fitted(float(1 / rest), POOLING_BANDWIDTH, 0.0)
    columns = np.hstack([np.ones((len(group), 1)), ideal])
    columns[:, 0] *= name != "few-channel conversion"
    weights = 1 / np.sqrt(np.maximum(times, 3.0))
    latency, *rest = nnls(columns * weights[:, None], times * weights)[0]
    ops, moved = (float(1 / x) if x > 1e-9 else None for x in rest)
    return Fitted(ops, moved, float(latency))


def _us(found: Fitted, work: Work, rate: float, bandwidth: float) -> float:
    seconds = work.ops / rate / found.ops if found.ops else 0.0
    seconds += work.bytes / bandwidth / found.bandwidth if found.bandwidth else 0.0
    return found.latency_us + seconds * 1e6


def main() -> None:
    """Print the fitted classes."""
    gpu = load_gpu(engines.A100[0].gpu)
    groups: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples():
        groups[sample.work.name, sample.work.dtype].append(sample)
    table = Table(title=f"fitted to per-layer profiles of {gpu.name}")
    columns = (
        "class",
        "type",
        "layers",
        "ops eff.",
        "bandwidth eff.",
        "latency us",
        "median error",
    )
    for column in columns:
        table.add_column(column)
    for (name, dtype), group in sorted(groups.items()):
        kind = RATES.get(name, {}).get(dtype, "tensor")
        rates = {"tensor": gpu.peak_ops(dtype or "float16"), "dp4a": 4e12 * gpu.peak.float}
        rate = rates.get(kind, 1e12 * gpu.peak.float)
        bandwidth = gpu.memory_bandwidth_gb_s * 1e9
        found = fit(name, group, rate, bandwidth)
        errors = [abs(_us(found, s.work, rate, bandwidth) - s.us) / max(s.us, 3) for s in group]
        cells = [f"{x:.2f}" if x else "-" for x in (found.ops, found.bandwidth, found.latency_us)]
        cells.append(f"{np.median(errors):.0%}")
        table.add_row(name, dtype, str(len(group)), *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
