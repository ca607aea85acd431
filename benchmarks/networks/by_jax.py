"""Write an MLP-Mixer (Tolstikhin et al. 2021) of flax by jax2onnx: one of the twentieth set, read.

Needs flax and jax2onnx.

    python -m benchmarks.networks.by_jax --folder networks/twentieth_set/read
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax2onnx
from flax import nnx

from benchmarks.command_line import parser_of


def _layers(rngs: nnx.Rngs, *widths: tuple[int, int]) -> Any:
    return nnx.List([nnx.Linear(given, made, rngs=rngs) for given, made in widths])


class _Block(nnx.Module):
    def __init__(self, tokens: int, width: int, rngs: nnx.Rngs) -> None:
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in "12"])
        self.tokens = _layers(rngs, (tokens, 32), (32, tokens))
        self.channels = _layers(rngs, (width, 128), (128, width))

    def __call__(self, rows: Any) -> Any:
        turned = self.norms[0](rows).transpose(0, 2, 1)
        turned = self.tokens[1](nnx.gelu(self.tokens[0](turned)))
        rows = rows + turned.transpose(0, 2, 1)
        return rows + self.channels[1](nnx.gelu(self.channels[0](self.norms[1](rows))))


class _Mixer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, 64, (8, 8), (8, 8), rngs=rngs)
        self.blocks = nnx.List([_Block(64, 64, rngs) for _ in "12"])
        self.norm = nnx.LayerNorm(64, rngs=rngs)
        self.last = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, image: Any) -> Any:
        rows = self.patches(image)
        rows = rows.reshape(rows.shape[0], -1, rows.shape[-1])
        for block in self.blocks:
            rows = block(rows)
        return self.last(self.norm(rows).mean(axis=1))


def main() -> None:
    """Write it to ``--folder``, with weights that are the same each time."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    path = parser.parse_args().folder / "MLP-Mixer (flax).onnx"
    mixer = _Mixer(nnx.Rngs(0))
    jax2onnx.to_onnx(mixer, [(1, 64, 64, 3)], return_mode="file", output_path=str(path))


if __name__ == "__main__":
    main()
