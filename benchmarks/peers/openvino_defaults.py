r"""How long the openvino pack's default placement takes, as a share of the float model.

All files are compiled three times, since where a copy's memory lies changes its time; one thread,
CPU time, the least of three inferences, copies in another order in each round. A ratio is that of
the medians over the copies, round by round, with a 95% bootstrap interval of its median; it tells
nothing smaller than what copies of one file differ by, which is printed too. ``--against`` takes
another pack, such as an earlier version, whose default is measured in the same rounds.

python -m benchmarks.peers.openvino_defaults --model networks/newer/read/YOLOS.onnx \
    --json ratios.json
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openvino as ov

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.given import add_option, given_models
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.common.processor import this_processor
from placer.model import Model
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from placer.search.space import build_space

COPIES, SETTINGS = 3, {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
FLOAT, NEW, OLD = "float", "default", "other default"


def default_of(model: Model, name: str) -> Placement:
    """The default placement of the pack ``name`` on this machine's processor."""
    pack, target = load_pack(name), Target(processor=this_processor())
    space = build_space(model.graph, sites_with_defaults(model.graph, pack, target))
    return space.placement(space.defaults)


def measured(
    model: Model, packs: Mapping[str, str], rounds: int, seconds: float
) -> dict[str, object]:
    """Ratios to float and between defaults, with intervals, and the copies' milliseconds.

    Defaults that are one placement are measured once.
    """
    placements = {FLOAT: Placement.of(())}
    placements |= {title: default_of(model, name) for title, name in packs.items()}
    distinct = list(dict.fromkeys(placements.values()))
    times = _times(model, distinct, rounds, seconds)
    medians = np.median(times, axis=2)  # Rounds x placements.
    column = {title: distinct.index(placement) for title, placement in placements.items()}
    pairs = [(title, FLOAT) for title in packs] + ([(NEW, OLD)] if OLD in packs else [])
    rng = np.random.default_rng(0)
    ratios = {
        f"{one} / {other}": _ratio(medians[:, column[one]] / medians[:, column[other]], rng)
        for one, other in pairs
    }
    copies = {
        title: [float(1e3 * value) for value in np.median(times[:, number], axis=0)]
        for title, number in column.items()
    }
    edges = {title: len(placement.edges) for title, placement in placements.items()}
    return {"ratios": ratios, "milliseconds": copies, "edges": edges, "rounds": len(times)}


def _ratio(ratios: np.ndarray, rng: np.random.Generator) -> list[float]:
    """The median and its 95% interval."""
    means = [float(np.median(rng.choice(ratios, len(ratios)))) for _ in range(1000)]
    return [float(np.median(ratios)), *(float(x) for x in np.quantile(means, [0.025, 0.975]))]


def _times(model: Model, placements: list[Placement], rounds: int, seconds: float) -> np.ndarray:
    """CPU seconds of an inference: rounds x placements x copies."""
    core, scheme = ov.Core(), load_pack("openvino").manifest.scheme
    tensors = {edge.tensor for placement in placements for edge in placement.edges}
    tensors -= model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 2, 0)).ranges("minmax", scheme)
    inserter = Inserter(model, scheme)
    files = [inserter.insert(p, ranges).SerializeToString() for p in placements]
    compiled = [core.compile_model(core.read_model(f), "CPU", SETTINGS) for f in files * COPIES]
    sample = next(iter(synthetic_dataset(model, 1, 0))).inputs
    requests = [one.create_infer_request() for one in compiled]
    feeds = [{port: sample[port.get_any_name()] for port in one.inputs} for one in compiled]

    def inference(index: int) -> float:
        start = time.process_time()
        requests[index].infer(feeds[index], share_inputs=True)
        return time.process_time() - start

    rng, end = np.random.default_rng(0), time.monotonic() + seconds
    rows: list[np.ndarray] = []
    while len(rows) < rounds and (not rows or time.monotonic() < end):
        row = np.zeros(len(requests))
        for index in rng.permutation(len(requests)):
            row[index] = min(inference(index) for _ in range(3))
        rows.append(row)
    times = np.array(rows).reshape(len(rows), COPIES, len(placements))
    return np.transpose(times, (0, 2, 1))


def main() -> None:
    """Print a line per model and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--pack", default="openvino")
    parser.add_argument("--against", metavar="PACK", help="another pack, measured beside")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0, help="that a model takes at most")
    parser.add_argument("--json", type=Path)
    add_option(parser)
    options = parser.parse_args()
    packs = {NEW: options.pack} | ({OLD: options.against} if options.against else {})
    found = {}
    for name, load in given_models(options):
        model = load()
        found[name] = measured(model, packs, options.rounds, options.seconds)
        print(name, found[name], flush=True)
    if options.json:
        write_json(options.json, {"openvino": ov.__version__, "networks": found})


if __name__ == "__main__":
    main()
