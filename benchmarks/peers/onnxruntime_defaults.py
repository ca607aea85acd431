"""How long default placements take on ONNX Runtime, as shares of the float model.

Of each network run in turn: the float file twice (what two equal copies differ by), what
``quantize_static`` makes of it (uint8 activations, int8 weights per channel), everything quantized
that the pack's rules quantize, and the pack's default placement. A share is the median over rounds
of a variant's time over float's in the same round, with its 95% bootstrap interval.

With one thread the clock is that thread's CPU time, with more it is wall time.

    python -m benchmarks.peers.onnxruntime_defaults --networks ort_set --folder networks
    python -m benchmarks.peers.onnxruntime_defaults --threads 8 --model net.onnx,images=1x3x320x320
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.given import add_option, given_models
from benchmarks.networks.sets import NAMES, subjects
from benchmarks.plans.quantized_files import by_recipe
from placer.calibration.collect import calibrate
from placer.calibration.dataset import Dataset, synthetic_dataset
from placer.common.statistics import paired_ratio
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import PlacerError
from placer.graph.edit import fix_input_shapes
from placer.model import Model, save_model
from placer.qdq import Inserter
from placer.quantization import EMPTY
from placer.results.result import versions
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

FLOAT, AGAIN, STATIC, ALL, DEFAULT = "float", "float again", "quantize_static", "all", "default"
ENOUGH_S = 0.02  # A model that takes longer has fewer rounds, so that none takes minutes.


def variants(model: Model, engine: OnnxRuntimeEngine) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Each variant's name and model; one that cannot be made is left out, with its reason."""
    pack, samples = load_pack("onnxruntime"), synthetic_dataset(model, 2, 0)
    target = engine.target
    chosen = {
        ALL: place(find_sites(model.graph, pack.rules, target), {}),
        DEFAULT: place(sites_with_defaults(model.graph, pack, target), {}),
    }
    tensors = {edge.tensor for placement in chosen.values() for edge in placement.edges}
    tensors -= model.graph.initializers.keys()
    ranges = calibrate(model, tensors, samples).ranges("minmax", pack.manifest.scheme)
    inserter = Inserter(model, pack.manifest.scheme)
    floats = inserter.insert(EMPTY, ranges)
    yield FLOAT, floats
    yield AGAIN, floats
    try:
        yield STATIC, statically_quantized(model, samples)
    except Exception as error:  # It raises whatever comes up.
        print(f"  quantize_static: {error}"[:160])
    for name, placement in chosen.items():
        yield name, inserter.insert(placement, ranges)


def statically_quantized(model: Model, samples: Dataset) -> onnx.ModelProto:
    """The recipe ``uint8`` on the pre-processed model, as ONNX Runtime's documentation says."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model.proto)
    fix_input_shapes(fixed, model.input_shapes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(fixed, model.base_dir, folder / "fixed.onnx")
        prepared = folder / "prepared.onnx"
        quant_pre_process(folder / "fixed.onnx", prepared, skip_symbolic_shape=True)
        by_recipe("uint8", prepared, samples, folder / "static.onnx")
        return onnx.load(folder / "static.onnx")


def measured(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """Each variant's share with its interval, and float's milliseconds."""
    engine = OnnxRuntimeEngine(options.threads)
    built = {name: engine.compile(proto, model.base_dir) for name, proto in variants(model, engine)}
    inputs = next(iter(synthetic_dataset(model, 1, 0))).inputs
    compiled = list(built.values())
    first = engine.measure(compiled, inputs, 1)
    rounds = max(9, int(options.rounds * min(1.0, ENOUGH_S / first.mean())))
    times = engine.measure(compiled, inputs, rounds)
    shares = {}
    for column, name in enumerate(built):
        ratio = paired_ratio(times[:, column], times[:, 0])
        shares[name] = [ratio.median, ratio.low, ratio.high]
    return {
        "float_ms": float(1e3 * np.median(times[:, 0])),
        "rounds": rounds,
        "shares": shares,
    }


def given(options: argparse.Namespace) -> Iterator[tuple[str, Model]]:
    """The models of ``--model``, else those of the sets that are named."""
    if options.model:
        yield from ((name, load()) for name, load in given_models(options, bodies=True))
        return
    for name in options.networks:
        for subject in subjects(name, options.folder, bodies=True):
            yield subject.name, subject.load()


def _text(name: str, row: dict[str, Any]) -> str:
    parts = (
        f"{what} {share:.3f} ({low:.2f} to {high:.2f})"
        for what, (share, low, high) in row["shares"].items()
        if what != FLOAT
    )
    return f"{name}: {row['float_ms']:.2f} ms, {', '.join(parts)}"


def _summary(found: dict[str, dict[str, Any]], what: str) -> str:
    shares = [row["shares"][what] for row in found.values() if what in row["shares"]]
    medians = np.array([share for share, *_ in shares])
    slower = sum(low > 1 for _, low, _ in shares)
    return (
        f"{what}: geometric mean {np.exp(np.log(medians).mean()):.3f} of {len(shares)} networks, "
        f"{(medians > 1).sum()} above 1, {(medians > 1.05).sum()} above 1.05, {slower} beyond doubt"
    )


def main() -> None:
    """Print a line per network and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=["topologies"])
    parser.add_argument("--folder", type=Path, default=Path("networks"), help="of exported sets")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", type=Path)
    add_option(parser)
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    engine = OnnxRuntimeEngine(options.threads)
    print(f"onnxruntime {engine.version}, {engine.device}, {engine.clock}", flush=True)
    for name, model in given(options):
        try:
            found[name] = measured(model, options)
        except PlacerError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(_text(name, found[name]), flush=True)
        if options.json:
            document = {"versions": dict(versions()), "device": engine.device, "networks": found}
            write_json(options.json, document)
    for what in (AGAIN, STATIC, ALL, DEFAULT) if found else ():
        print(_summary(found, what))


if __name__ == "__main__":
    main()
