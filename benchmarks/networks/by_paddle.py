"""Write PP-LiteSeg (Peng et al. 2022) by paddle2onnx: one of the twentieth set, aside.

Needs paddlepaddle and paddle2onnx.

    python -m benchmarks.networks.by_paddle --folder networks/twentieth_set/aside
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle as pd
from paddle import nn
from paddle.nn import functional

from benchmarks.command_line import parser_of


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Any:
    convolution = nn.Conv2D(inputs, outputs, kernel, stride, kernel // 2, bias_attr=False)
    return nn.Sequential(convolution, nn.BatchNorm2D(outputs), nn.ReLU())


class _Stdc(nn.Layer):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half, quarter, eighth = outputs // 2, outputs // 4, outputs // 8
        self.first = _conv(inputs, half, 1)
        self.down = self.skip = None
        if stride == 2:
            self.down = nn.Sequential(
                nn.Conv2D(half, half, 3, 2, 1, groups=half, bias_attr=False),
                nn.BatchNorm2D(half),
            )
            self.skip = nn.AvgPool2D(3, 2, 1)
        widths = ((half, quarter), (quarter, eighth), (eighth, eighth))
        self.rest = nn.LayerList([_conv(a, b, 3) for a, b in widths])

    def forward(self, features: Any) -> Any:
        first = self.first(features)
        found = self.down(first) if self.down else first
        parts = [self.skip(first) if self.skip else first]
        for layer in self.rest:
            found = layer(found)
            parts.append(found)
        return pd.concat(parts, axis=1)


class _LiteSeg(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 3, 2), _conv(16, 32, 3, 2))
        self.stages = nn.LayerList(
            [
                nn.Sequential(_Stdc(a, b, 2), _Stdc(b, b, 1))
                for a, b in ((32, 64), (64, 128), (128, 256))
            ]
        )
        self.pools = nn.LayerList(
            [nn.Sequential(nn.AdaptiveAvgPool2D(size), _conv(256, 32, 1)) for size in (1, 2, 4)]
        )
        self.pooled = _conv(32, 32, 3)
        self.narrow = nn.LayerList([_conv(c, 32, 3) for c in (128, 64)])
        self.gates = nn.LayerList(
            [nn.Sequential(_conv(4, 2, 3), nn.Conv2D(2, 1, 3, padding=1)) for _ in "12"]
        )
        self.smooth = nn.LayerList([_conv(32, 32, 3) for _ in "12"])
        self.last = nn.Sequential(_conv(32, 32, 3), nn.Conv2D(32, 5, 1, bias_attr=False))

    def forward(self, image: Any) -> Any:
        found, levels = self.stem(image), []
        for stage in self.stages:
            found = stage(found)
            levels.append(found)
        size, total = levels[-1].shape[2:], 0
        for pool in self.pools:
            total = total + functional.interpolate(pool(levels[-1]), size, mode="bilinear")
        found = self.pooled(total)
        for i in range(2):
            near = self.narrow[i](levels[1 - i])
            far = functional.interpolate(found, near.shape[2:], mode="bilinear")
            kinds = [f(x, axis=1, keepdim=True) for x in (near, far) for f in (pd.mean, pd.max)]
            weight = functional.sigmoid(self.gates[i](pd.concat(kinds, axis=1)))
            found = self.smooth[i](near * weight + far * (1 - weight))
        return functional.interpolate(self.last(found), image.shape[2:], mode="bilinear")


def main() -> None:
    """Write it to ``--folder``, with weights that are the same each time."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    pd.seed(0)
    network = _LiteSeg()
    network.eval()
    path = str(parser.parse_args().folder / "PP-LiteSeg")
    spec = [pd.static.InputSpec([1, 3, 128, 128], "float32", "image")]
    pd.onnx.export(network, path, input_spec=spec, opset_version=17)


if __name__ == "__main__":
    main()
