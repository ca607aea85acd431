"""Sixteen small residual networks of operators that the stand-in for TensorRT computes.

With them ``placer fit`` and others run on a GPU without TensorRT, see docs/tensorrt.md:

    python -m benchmarks.networks.residual --folder residual
    PYTHONPATH=tests/engines/standin placer fit --engine tensorrt --networks 0 --models residual \\
        --placements 3 --output fit.json
"""

from __future__ import annotations

from pathlib import Path

import onnx

from benchmarks.command_line import parser_of
from benchmarks.networks.topologies import Net, classifier

SIZES, WIDTHS = (32, 48, 64, 96), (32, 64, 96, 128)


def residual(size: int, width: int) -> onnx.ModelProto:
    """A stem, a residual block, a pool and a wider Conv on images of ``size``."""
    net = Net((1, 3, size, size))
    stem = net.relu(net.conv(net.input, 3, width, 3, 2))
    body = net.conv(net.relu(net.conv(stem, width, width, 3)), width, width, 3)
    block = net.relu(net.add("Add", body, stem))
    pooled = net.add("MaxPool", block, kernel_shape=[2, 2], strides=[2, 2])
    return classifier(net, net.relu(net.conv(pooled, width, 2 * width, 1)), 2 * width)


def main() -> None:
    """Write them to ``--folder``."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        for width in WIDTHS:
            onnx.save(residual(size, width), folder / f"residual-{size}-{width}.onnx")


if __name__ == "__main__":
    main()
