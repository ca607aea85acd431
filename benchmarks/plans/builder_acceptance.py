"""How many random candidates of the tensorrt pack NVIDIA's builder accepts (TensorRT-RTX, no GPU).

Nine models, base precision FP32 and FP16, random layouts at every group of sites. For
comparison, what ONNX Runtime's quantize_static makes of the same models: with its defaults, and
with the options that suit TensorRT (symmetric int8, per channel, float bias).

    python -m benchmarks.plans.builder_acceptance --json acceptance.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.ocr import ocr_models
from benchmarks.networks.topologies import TOPOLOGIES
from benchmarks.peers.calibration_reader import Samples
from placer.calibration.dataset import synthetic_dataset
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.graph.edit import fix_input_shapes
from placer.model import Model, load_model
from placer.optimizer.setup.decisions import quantizable_sites
from placer.qdq import Inserter
from placer.quantization import Range
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.search.space import build_space

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
OCR_FILES = {
    "PP-OCRv4 det": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "PP-OCRv4 rec": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "PP-OCR cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
}
GENERATED = ("resnet50", "mobilenet_v2", "unet", "c2f", "vit_block")
PEER_OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "symmetric int8, per channel, float bias": {
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
        "extra_options": {
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,
        },
    },
}


def subjects(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of the nine models, with fixed input shapes, normalised."""
    sources: dict[str, tuple[Path, dict[str, tuple[int, ...]]]] = {"digits": (DIGITS, {})}
    for name, (file, shape) in OCR_FILES.items():
        sources[name] = (ocr_models() / file, {"x": shape})
    for name in GENERATED:
        path = folder / f"raw_{name}.onnx"
        onnx.save(TOPOLOGIES[name](), path)
        sources[name] = (path, {})
    for name, (path, shapes) in sources.items():
        model = load_model(path, shapes)
        fix_input_shapes(model.proto, model.input_shapes)
        fixed = folder / f"{name.replace(' ', '_')}.onnx"
        onnx.save(model.proto, fixed)
        yield name, fixed


def half(path: Path) -> Path:
    """The same model with weights, activations and interface in FP16."""
    # QuantizeLinear takes float16 from opset 19 on.
    raised = onnx.version_converter.convert_version(onnx.load(path), 19)
    converted = convert_float_to_float16(raised, keep_io_types=False)
    target = path.with_name(f"half_{path.name}")
    onnx.save(converted, target)
    return target


def random_candidates(model: Model, count: int, seed: int) -> Iterator[onnx.ModelProto]:
    """Candidates of random layouts: each group takes any of its layouts with equal chance."""
    pack = load_pack("tensorrt")
    found = find_sites(model.graph, pack.rules)
    space = build_space(model.graph, quantizable_sites(found, model, pack, print))
    inserter = Inserter(model, pack.manifest.scheme)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        choices = {g.name: g.layouts[int(rng.integers(len(g.layouts)))] for g in space.groups}
        placement = space.placement(choices)
        ranges = {edge.tensor: Range(0.0, float(rng.uniform(0.5, 8))) for edge in placement.edges}
        yield inserter.insert(placement, ranges)


def peer(path: Path, folder: Path, options: dict[str, Any]) -> onnx.ModelProto:
    """What quantize_static makes of the float model."""
    target = folder / "static.onnx"
    # Random inputs: what the builder accepts does not depend on values.
    samples = Samples(synthetic_dataset(load_model(path), 4, 0))
    quantize_static(path, target, samples, quant_format=QuantFormat.QDQ, **options)
    return onnx.load(target)


def run(per_model: int, gpu: str, console: Console) -> dict[str, Any]:
    """Build all candidates and the peer's models."""
    module = import_builder()
    rows: dict[str, Any] = {}
    reasons: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for subject, path in subjects(folder):
            start = time.monotonic()
            row: dict[str, Any] = {}
            for precision, file in (("FP32", path), ("FP16", half(path))):
                reports = [
                    check_model(module, candidate, gpu)
                    for candidate in random_candidates(load_model(file), per_model, len(rows))
                ]
                row[precision] = [sum(r.accepted for r in reports), len(reports)]
                for refusal in (f for r in reports for f in r.refusals):
                    reason = f"{subject}, {precision}: {refusal}"
                    reasons[reason] = reasons.get(reason, 0) + 1
            for label, options in PEER_OPTIONS.items():
                report = check_model(module, peer(path, folder, options), gpu)
                row[f"quantize_static, {label}"] = [int(report.accepted), 1]
            row["seconds"] = time.monotonic() - start
            rows[subject] = row
            console.print(subject, row)
    return {"models": rows, "refusals": reasons}


def total(rows: dict[str, Any], column: str) -> tuple[int, int]:
    """Accepted and tried, over all models."""
    accepted, tried = zip(*(row[column] for row in rows.values()), strict=True)
    return sum(accepted), sum(tried)


def main() -> None:
    """Run the benchmark, print a table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--per-model", type=int, default=28)
    parser.add_argument("--gpu", default="sm89")
    arguments = parser.parse_args()
    console = Console(width=110)
    found = run(arguments.per_model, arguments.gpu, console)
    columns = ["FP32", "FP16", *(f"quantize_static, {label}" for label in PEER_OPTIONS)]
    table = Table(title=f"accepted by TensorRT-RTX for {arguments.gpu}")
    for column in ("model", *columns):
        table.add_column(column)
    for subject, row in found["models"].items():
        table.add_row(subject, *("{} of {}".format(*row[c]) for c in columns))
    table.add_row("all", *("{} of {}".format(*total(found["models"], c)) for c in columns))
    console.print(table)
    for reason, count in found["refusals"].items():
        console.print(f"{count} x {reason}", highlight=False)
    found |= {"gpu": arguments.gpu, "versions": dict(versions())}
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
