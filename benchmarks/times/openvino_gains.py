"""What layers save in integers on OpenVINO: what the times in its pack (`behaviour.gains`) rest on.

Each chain has eight equal layers, in float and with a pair before each; one thread, CPU time, the
20% quantile of the least of six inferences, of the better of two copies. Behind a
LayerNormalization, or a sum that is read in float as well, each layer has a conversion of its own;
behind a Relu none.

python -m benchmarks.times.openvino_gains
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import openvino as ov

from benchmarks.command_line import parser_of
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.graph import Edge
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack

LAYERS, SETTINGS = 8, {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
LINEAR = ((24, 32), (24, 64), (24, 96), (64, 32), (64, 64), (8, 64), (8, 128), (24, 128), (196, 32))
CONVS = ((16, 8), (32, 8), (64, 4), (16, 16), (24, 16), (32, 16))
DEPTHWISE = ((16, 8), (32, 8), (64, 8), (16, 16), (64, 16), (128, 4), (96, 28))


def chains() -> Iterator[tuple[str, str]]:
    """Names of the chains and their models as ONNX's text."""
    for tokens, width in LINEAR:
        shape, weight = f"1,{tokens},{width}", f"{width},{width}"
        for before in ("Relu(x)", "LayerNormalization(x, s, s)"):
            yield f"linear {shape}, {before}", _chain(shape, weight, "MatMul(n, w)", before, width)
        yield f"linear {shape}, residual", _chain(shape, weight, "Add(x, MatMul(n, w))", "", width)
    for channels, size in CONVS:
        shape, weight = f"1,{channels},{size},{size}", f"{channels},{channels},1,1"
        yield f"1x1 Conv {shape}", _chain(shape, weight, "Conv(n, w)", "Relu(x)", channels)
    for channels, size in DEPTHWISE:
        for kernel in (3, 5):
            shape, weight = f"1,{channels},{size},{size}", f"{channels},1,{kernel},{kernel}"
            pads = ", ".join([str(kernel // 2)] * 4)
            conv = f"Conv<group = {channels}, pads = [{pads}]>(n, w)"
            yield (
                f"depthwise Conv {kernel}x{kernel}, {shape}",
                _chain(shape, weight, conv, "Relu(x)", channels),
            )


def _chain(shape: str, weight: str, layer: str, before: str, width: int) -> str:
    """Layers read `n`, what ``before`` makes of what the last one wrote, `x`, with weights `w`."""
    lines = ["x0 = Exp(image)"]
    for i in range(LAYERS):
        if layer.startswith("Add"):  # A scaled sum, which the next sum reads as well.
            lines += [f"y{i} = MatMul(x{i}, w{i})", f"t{i} = Add(x{i}, y{i})"]
            lines += [f"u{i} = Mul(t{i}, s)", f"x{i + 1} = Add(u{i}, s)"]
            continue
        lines.append(f"n{i} = {before.replace('(x', f'(x{i}')}")
        lines.append(f"x{i + 1} = {layer.replace('(n, w)', f'(n{i}, w{i})')}")
    weights = ", ".join(f"float[{weight}] w{i} = {{1}}" for i in range(LAYERS))
    return f"""<ir_version: 9, opset_import: ["": 17]>
        g (float[{shape}] image) => (float[{shape}] x{LAYERS})
        <float[{width}] s = {{1}}, {weights}> {{ {chr(10).join(lines)} }}"""


def saved_us(text: str, seconds: float) -> tuple[float, float]:
    """Microseconds of the chain in float, and what a layer saves of it."""
    model = _model(text)
    layers = [node for node in model.graph.nodes if node.op in ("Conv", "MatMul")]
    edges = [Edge(node.inputs[i], node.name, i) for node in layers for i in (0, 1)]
    scheme, samples = load_pack("openvino").manifest.scheme, synthetic_dataset(model, 1, 0)
    tensors = {edge.tensor for edge in edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, samples).ranges("minmax", scheme)
    inserter, core = Inserter(model, scheme), ov.Core()
    files = [
        inserter.insert(Placement.of(chosen), ranges).SerializeToString() for chosen in ((), edges)
    ]
    compiled = [core.compile_model(core.read_model(f), "CPU", SETTINGS) for f in files * 2]
    requests = [one.create_infer_request() for one in compiled]
    inputs = list(next(iter(samples)).inputs.values())

    def least(request: ov.InferRequest) -> float:
        times = []
        for _ in range(6):
            start = time.process_time()
            request.infer(inputs, share_inputs=True)
            times.append(time.process_time() - start)
        return min(times)

    rows, end = list[list[float]](), time.monotonic() + seconds
    while len(rows) < 12 or time.monotonic() < end:
        rows.append([least(request) for request in requests])
    usual = 1e6 * np.quantile(rows, 0.2, axis=0)
    in_float, in_integers = usual[0::2].min(), usual[1::2].min()
    return float(in_float), float(in_float - in_integers) / LAYERS


def _model(text: str) -> Model:
    """The model with random weights."""
    made, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for constant in made.graph.initializer:
        shape = tuple(constant.dims)
        values = (
            rng.standard_normal(shape) / np.sqrt(shape[0]) if len(shape) > 1 else np.ones(shape)
        )
        constant.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), constant.name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(made, path)
        return load_model(path)


def main() -> None:
    """Print a line per chain."""
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="that a chain takes")
    options = parser.parse_args()
    for name, text in chains():
        in_float, saved = saved_us(text, options.seconds)
        print(f"{name}: {in_float:.1f} us in float, {saved:.2f} saved by a layer", flush=True)


if __name__ == "__main__":
    main()
