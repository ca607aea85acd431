"""How well the tensorrt-rtx pack predicts the layers that TensorRT-RTX's builder makes.

Twelve networks, each in FP16 and with ten placements: the default of the tensorrt pack, which says
most about INT8, and random layouts at every group of its sites. Every candidate is built by
NVIDIA's builder, which needs no GPU, and its layers are held against those that are predicted;
every layer on both sides counts. Strict: the same nodes and the same output types.

    python benchmarks/rtx_fidelity.py --json rtx.json --keep built/
    python benchmarks/rtx_fidelity.py --networks unseen     # four of other families
    python benchmarks/rtx_fidelity.py --model network.onnx  # one of your own
    python benchmarks/rtx_fidelity.py --networks held-out   # docs/measured/plans-tensorrt-rtx.md
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import rapidocr_onnxruntime
from networks import exporters, exporters_aside, further, held_out, topologies, unseen
from networks.given import add_option, given_models
from rich.console import Console
from rich.table import Table

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.files import write_text
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.graph.edit import fix_input_shapes
from placer.model import Model, load_model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.diff_result import sentences
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import EMPTY, Placement, Range
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from placer.search.space import build_space

GPU, TARGET = "sm89", Target(compute_capability="8.9", typing="strong")
DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
OCR = Path(rapidocr_onnxruntime.__file__).parent / "models"
GENERATED: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": lambda: topologies.resnet(64, (2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: topologies.resnet(64, (3, 4, 6, 3), bottleneck=True),
    "mobilenet_v2": lambda: topologies.mobilenet_v2(64),
    "efficientnet_b0": lambda: topologies.efficientnet(1.0, 1.0, 64),
    "unet": lambda: topologies.unet(64),
    "c2f": lambda: topologies.c2f(64),
    "yolov8n": lambda: topologies.yolov8n(160),
    "vit, 2 blocks": lambda: topologies.vit(64, 128, 4, 2),
}
FILES = {
    "digits": (DIGITS, {}),
    "PP-OCR cls": (OCR / "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "PP-OCRv4 det": (OCR / "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 160, 160)}),
    "PP-OCRv4 rec": (OCR / "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
}
SETS = {
    "fitted": GENERATED,
    "unseen": unseen.UNSEEN,
    "held-out": held_out.HELD_OUT,
    "further": further.FURTHER,
    "exporters": exporters.EXPORTED,
    "exporters-aside": exporters_aside.ASIDE,
}


@dataclass
class Counts:
    """Sums over plans."""

    plans: int = 0
    by_nodes: int = 0
    exact: int = 0
    predicted: int = 0
    actual: int = 0
    false_conversions: int = 0
    missed_conversions: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def f1(self, matched: int) -> float:
        """F1 of ``matched`` layers."""
        return 2 * matched / max(1, self.predicted + self.actual)


def models(networks: str) -> Iterator[tuple[str, Model]]:
    """The networks of one of ``SETS`` with fixed shapes; files are among the fitted ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for name, build in SETS[networks].items():
            onnx.save(build(), path)
            yield name, load_model(path)
        files = FILES if networks == "fitted" else {}
        yield from fixed((name, load_model(file, shapes)) for name, (file, shapes) in files.items())


def fixed(subjects: Iterable[tuple[str, Model]]) -> Iterator[tuple[str, Model]]:
    """The models with inputs of the sizes that they were loaded for, as the builder needs them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for name, model in subjects:
            fix_input_shapes(model.proto, model.input_shapes)
            onnx.save(model.proto, path)
            yield name, load_model(path)


def placements(model: Model, count: int) -> Iterator[tuple[str, Placement]]:
    """FP16, the tensorrt pack's default, and random ones."""
    sites = find_sites(model.graph, load_pack("tensorrt").rules, TARGET)
    yield "fp16", EMPTY
    yield "default", place(sites, {})
    space, rng = build_space(model.graph, sites), np.random.default_rng(0)
    for number in range(count - 1):
        choices = {g.name: g.layouts[int(rng.integers(len(g.layouts)))] for g in space.groups}
        yield f"random {number}", space.placement(choices)


def calibrated(model: Model) -> Mapping[str, Range]:
    """Ranges of all tensors on random data: as in real models, no two are alike by chance."""
    graph, scheme = model.graph, load_pack("tensorrt").manifest.scheme
    tensors = {e.tensor for edges in graph.consumers.values() for e in edges}
    tensors -= graph.initializers.keys()
    floats = {tensor for tensor in tensors if graph.type_of(tensor).is_float}
    return calibrate(model, floats, synthetic_dataset(model, 1, 0)).ranges("minmax", scheme)


def built(
    model: Model, placement: Placement, ranges: Mapping[str, Range], kept: Path | None
) -> Plan | None:
    """What the builder makes of a placement, None where it refuses; read from ``kept`` if there."""
    if kept is not None and kept.is_file():
        plan = read_plan(kept)
        return Plan(tuple(typed_layers(plan.layers)), plan.source)
    inserter = Inserter(model, load_pack("tensorrt").manifest.scheme)
    mixed = MixedPrecision.of(inserter, "float16", "keep", ranges, placement.edges)
    report = check_model(import_builder(), mixed.insert(placement), GPU)
    if not report.accepted:
        print(f"refused: {report.refusals[0]}")
        return None
    plan = Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps(plan_json(plan)) + "\n")
    return plan


def compare(
    subjects: Iterable[tuple[str, Model]],
    pack: str,
    count: int,
    keep: Path | None,
    differences: bool,
) -> dict[str, Counts]:
    """Counts by network and kind of placement."""
    found: dict[str, Counts] = {}
    for name, model in subjects:
        predictor = make_predictor(model.graph, load_pack(pack), TARGET, "float16")
        ranges = calibrated(model)
        for what, placement in placements(model, count):
            kept = keep / f"{name}, {what}.json" if keep else None
            actual = built(model, placement, ranges, kept)
            if actual is None:
                continue
            diff = diff_plans(predictor.predict(placement).plan, actual)
            counts = Counts(
                1, diff.by_nodes.matched, diff.exact.matched, diff.exact.predicted,
                diff.exact.actual, diff.false_conversions, diff.missed_conversions,
            )  # fmt: skip
            kind = "FP16" if what == "fp16" else "INT8"
            for key in (f"{name}, {kind}", f"all, {kind}"):
                found.setdefault(key, Counts())
                found[key] += counts
            if differences:
                print(f"\n{name}, {what}", *Counter(sentences(diff)), sep="\n")
    return found


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder of built plans, read where they are")
    parser.add_argument("--pack", default="tensorrt-rtx")
    parser.add_argument("--placements", type=int, default=10, help="of each network")
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("--networks", choices=sorted(SETS), default="fitted")
    add_option(parser)
    arguments = parser.parse_args()
    given = fixed(given_models(arguments)) if arguments.model else models(arguments.networks)
    found = compare(
        given, arguments.pack, arguments.placements, arguments.keep, arguments.differences
    )
    table = Table(title=f"layers predicted by {arguments.pack} against the builder's")
    for column in ("network", "plans", "layers", "F1 by nodes", "F1 with types"):
        table.add_column(column)
    table.add_column("conversions false/missed")
    for name, counts in sorted(found.items()):
        scores = (f"{counts.f1(matched):.3f}" for matched in (counts.by_nodes, counts.exact))
        conversions = f"{counts.false_conversions}/{counts.missed_conversions}"
        table.add_row(name, str(counts.plans), str(counts.actual), *scores, conversions)
    Console(width=110).print(table)
    if arguments.json:
        document = {
            "versions": dict(versions()),
            "builder": import_builder().title,
            "pack": arguments.pack,
            "networks": {name: vars(counts) for name, counts in found.items()},
        }
        write_text(arguments.json, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
