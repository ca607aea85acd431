"""A search over INT8 and FP8 against INT8 alone and FP8 alone, at the same gate and budget.

    python -m benchmarks.search.formats vit --gpu l4 --gate 'sqnr>=18' --budget 20
    python -m benchmarks.search.formats conv --gpu rtx4090 --gate 'sqnr>=20' --budget 20

Prints, for each scheme, the speed-up of the result, the gate's value, and how many edges have which
format. Networks are of random weights: a ViT of two blocks whose LayerNormalizations have a few
large gains, as trained ones have, and a residual network with weights of heavy tails. Latencies are
estimates of the engine fusion-model.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import placer

SCHEMES = (None, "fp8", "int8-and-fp8")
SAMPLES = 8


class Network:
    """A network of random weights as it grows; the input is ``x``."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.shape = shape
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._count = 0

    def constant(self, values: object) -> str:
        """Add an initializer; returns its name."""
        self._count += 1
        name = f"w{self._count}"
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def filled(self, size: int, value: float) -> str:
        """A vector of one value."""
        return self.constant(np.full(size, value, np.float32))

    def weight(self, *shape: int, heavy: bool = False) -> str:
        """A weight: normal, or of Student's t with three degrees of freedom."""
        values = self.rng.standard_t(3, shape) if heavy else self.rng.normal(size=shape)
        fan = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        return self.constant((values / np.sqrt(fan)).astype(np.float32))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; returns its output."""
        self._count += 1
        output = f"t{self._count}"
        name = f"{op.lower()}{self._count}"
        self._nodes.append(helper.make_node(op, list(inputs), [output], name, **attributes))
        return output

    def save(self, shape: tuple[int, ...], path: Path) -> None:
        """Write it; ``shape`` of what the last node writes."""
        self._nodes[-1].output[0] = "y"
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", self.shape), ("y", shape))
        ]
        graph = helper.make_graph(self._nodes, "g", values[:1], values[1:], self._constants)
        opset = [helper.make_opsetid("", 19)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def vit(path: Path, length: int = 256, width: int = 768, heads: int = 12) -> None:
    """Two blocks of attention and MLP."""
    net, x = Network((1, length, width), 0), "x"
    each = width // heads

    def norm(source: str) -> str:
        large = net.rng.random(width) < 0.02
        gains = (1 + large * net.rng.uniform(8, 20, width)).astype(np.float32)
        scale, bias = net.constant(gains), net.filled(width, 0)
        return net.add("LayerNormalization", source, scale, bias, axis=-1)

    def head(source: str) -> str:
        product = net.add("MatMul", source, net.weight(width, width))
        bias = (net.rng.normal(size=width) * 0.1).astype(np.float32)
        rows = net.add("Add", product, net.constant(bias))
        shape = net.constant(np.array([1, length, heads, each], np.int64))
        return net.add("Transpose", net.add("Reshape", rows, shape), perm=[0, 2, 1, 3])

    def linear(source: str, inputs: int, outputs: int) -> str:
        product = net.add("MatMul", source, net.weight(inputs, outputs))
        return net.add("Add", product, net.filled(outputs, 0.01))

    for _ in range(2):
        normed = norm(x)
        q, k, v = head(normed), head(normed), head(normed)
        k = net.add("Transpose", k, perm=[0, 1, 3, 2])
        scores = net.add("Mul", net.add("MatMul", q, k), net.constant(np.float32(each**-0.5)))
        read = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
        rows = net.add("Transpose", read, perm=[0, 2, 1, 3])
        rows = net.add("Reshape", rows, net.constant(np.array([1, length, width], np.int64)))
        x = net.add("Add", x, linear(rows, width, width))
        hidden = linear(norm(x), width, 4 * width)
        erf = net.add("Erf", net.add("Div", hidden, net.constant(np.float32(2**0.5))))
        erf = net.add("Add", erf, net.constant(np.float32(1)))
        gelu = net.add("Mul", net.add("Mul", hidden, erf), net.constant(np.float32(0.5)))
        x = net.add("Add", x, linear(gelu, 4 * width, width))
    net.save((1, length, width), path)


def conv(path: Path, size: int = 112) -> None:
    """A residual network of three stages, with a SiLU, a MaxPool and a Concat at its end."""
    net, channels = Network((1, 3, 2 * size, 2 * size), 1), 64
    stem = net.add(
        "Conv", "x", net.weight(64, 3, 3, 3), net.filled(64, 0), pads=[1] * 4, strides=[2, 2]
    )
    x = net.add("Relu", stem)

    def layer(source: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        weight = net.weight(outputs, inputs, kernel, kernel, heavy=True)
        bias = net.constant((net.rng.normal(size=outputs) * 0.05).astype(np.float32))
        pads = [kernel // 2] * 4
        return net.add("Conv", source, weight, bias, pads=pads, strides=[stride, stride])

    for stage, width in enumerate((64, 128, 256)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            inner = net.add("Relu", layer(x, channels, width, 3, stride))
            inner = layer(inner, width, width)
            is_same = stride == 1 and channels == width
            skip = x if is_same else layer(x, channels, width, 1, stride)
            x, channels = net.add("Relu", net.add("Add", inner, skip)), width
    left = layer(x, channels, 64, 1)
    left = net.add("Mul", left, net.add("Sigmoid", left))
    right = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    layer(net.add("Concat", left, right, axis=1), 64 + channels, 64, 1)
    net.save((1, 64, size // 4, size // 4), path)


def samples(network: str) -> np.ndarray:
    """Inputs: tokens whose channels have unequal scales, or images of unequal brightness."""
    rng = np.random.default_rng(5)
    if network == "vit":
        scale = np.exp(rng.normal(size=(1, 1, 768)) * 0.7)
        return (rng.normal(size=(SAMPLES, 256, 768)) * scale).astype(np.float32)
    images = rng.normal(size=(SAMPLES, 3, 224, 224)).astype(np.float32)
    return (images * rng.gamma(1, 1, (SAMPLES, 1, 1, 1))).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=["vit", "conv"])
    parser.add_argument("--gpu", default="l4")
    parser.add_argument("--gate", default="sqnr>=18")
    parser.add_argument("--budget", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, data = Path(folder, "model.onnx"), Path(folder, "data.npz")
        (vit if asked.network == "vit" else conv)(model)
        np.savez(data, x=samples(asked.network))
        for scheme in SCHEMES:
            try:
                result = placer.optimize(
                    model,
                    data=str(data),
                    eval_data=str(data),
                    engine="fusion-model",
                    gpu=asked.gpu,
                    scheme=scheme,
                    gates=[asked.gate],
                    budget=asked.budget,
                    preset="quick",
                    calibration="minmax",
                    output=Path(folder, scheme or "int8"),
                )
            except placer.GateError:
                print(f"{scheme or 'int8'}: nothing meets the gate", flush=True)
                continue
            best = result.best
            told = "the float model"
            if best is not None:
                value = best.gates[0].value
                told = f"{best.speedup:.3f}, {value:.2f} dB, {best.quantized_edges} edges"
                told += "".join(f", {edges} in {name}" for name, edges in best.formats.items())
            print(f"{scheme or 'int8'}: {told}", flush=True)


if __name__ == "__main__":
    main()
