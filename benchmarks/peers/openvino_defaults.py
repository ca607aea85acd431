r"""How long the openvino pack's default placement takes, as a share of the float model.

Both are compiled three times, since where a copy's memory lies changes its time; one thread, CPU
time, the least of three inferences, copies in another order in each round. The ratio is that of the
medians over the copies, round by round, with a 95% bootstrap interval of its median; it tells
nothing smaller than what copies of one file differ by, which is printed too.

python -m benchmarks.peers.openvino_defaults --model networks/newer/read/YOLOS.onnx \
    --json ratios.json
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import openvino as ov

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.given import add_option, given_models
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.model import Model
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target
from placer.search.space import build_space

COPIES, SETTINGS = 3, {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


def measured(model: Model, rounds: int, seconds: float) -> dict[str, object]:
    """Ratio, its interval and the copies' medians in milliseconds: float ones, then the others."""
    pack, core = load_pack("openvino"), ov.Core()
    space = build_space(model.graph, find_sites(model.graph, pack.rules, Target()))
    default = space.placement(space.defaults)
    tensors = {edge.tensor for edge in default.edges} - model.graph.initializers.keys()
    scheme = pack.manifest.scheme
    ranges = calibrate(model, tensors, synthetic_dataset(model, 2, 0)).ranges("minmax", scheme)
    inserter = Inserter(model, scheme)
    files = [
        inserter.insert(placement, ranges).SerializeToString()
        for placement in (space.placement(space.floats), default)
    ]
    compiled = [core.compile_model(core.read_model(f), "CPU", SETTINGS) for f in files * COPIES]
    sample = next(iter(synthetic_dataset(model, 1, 0))).inputs
    requests = [one.create_infer_request() for one in compiled]
    feeds = [{port: sample[port.get_any_name()] for port in one.inputs} for one in compiled]

    def inference(index: int) -> float:
        start = time.process_time()
        requests[index].infer(feeds[index], share_inputs=True)
        return time.process_time() - start

    rng, rows, end = np.random.default_rng(0), [], time.monotonic() + seconds
    while len(rows) < rounds and (not rows or time.monotonic() < end):
        row = np.zeros(len(requests))
        for index in rng.permutation(len(requests)):
            row[index] = min(inference(index) for _ in range(3))
        rows.append(row)
    times = np.array(rows)
    floats, defaults = times[:, 0::2], times[:, 1::2]
    ratios = np.median(defaults, axis=1) / np.median(floats, axis=1)
    means = [float(np.median(rng.choice(ratios, len(ratios)))) for _ in range(1000)]
    return {
        "ratio": float(np.median(ratios)),
        "interval": [float(limit) for limit in np.quantile(means, [0.025, 0.975])],
        "float_ms": [float(1e3 * value) for value in np.median(floats, axis=0)],
        "default_ms": [float(1e3 * value) for value in np.median(defaults, axis=0)],
        "rounds": len(rows),
    }


def main() -> None:
    """Print a line per model and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0, help="that a model takes at most")
    parser.add_argument("--json", type=Path)
    add_option(parser)
    options = parser.parse_args()
    found = {}
    for name, model in given_models(options):
        found[name] = measured(model, options.rounds, options.seconds)
        print(name, found[name], flush=True)
    if options.json:
        write_json(options.json, {"openvino": ov.__version__, "networks": found})


if __name__ == "__main__":
    main()
