"""Fourteen networks of families that no earlier set holds, of which seven were read.

Seed 2026113007 decided before anything was built which networks of ``_ALL`` are in the set, which
of them are read, and which of PyTorch's exporters writes each. Random weights.

python -m benchmarks.networks.write openvino_fourth_set --folder networks
python -m benchmarks.plans.openvino --placements 3 --networks openvino_fourth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import torch
from torch import Tensor, nn

from benchmarks.networks.pytorch import openvino_fourth_set_modules as modules
from benchmarks.networks.pytorch.export import Network, image

_ALL: Mapping[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "CREPE": (modules.Crepe, (torch.zeros(1, 1, 1024),)),
    "CRNN": (modules.Crnn, (torch.zeros(1, 1, 32, 100),)),
    "DABNet": (modules.DabNet, image(128)),
    "DPRNN": (modules.Dprnn, (torch.zeros(1, 1, 1608),)),
    "DeepFM": (modules.DeepFm, (torch.arange(16)[None],)),
    "Demucs": (modules.Demucs, (torch.zeros(1, 1, 2388),)),
    "ESPNet": (modules.EspNet, image(128)),
    "FSRCNN": (modules.FsrCnn, image(48, 1)),
    "GhostNetV2": (modules.GhostNetV2, image(96)),
    "Hourglass": (modules.Hourglass, image(128)),
    "LSTNet": (modules.LstNet, (torch.zeros(1, 72, 16),)),
    "PointNet": (modules.PointNet, (torch.randn(1, 3, 256),)),
    "SKNet": (modules.SkNet, image(96)),
    "SqueezeNext": (modules.SqueezeNext, image(112)),
    "TextCNN": (modules.TextCnn, (torch.arange(40)[None],)),
    "VoxelMorph": (modules.VoxelMorph, (torch.zeros(1, 1, 16, 32, 32),) * 2),
    "WaveNet": (modules.WaveNet, (torch.zeros(1, 16, 400),)),
    "Wave-U-Net": (modules.WaveUNet, (torch.zeros(1, 1, 1024),)),
}


def _drawn() -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    draw, halves = Random(2026113007), (dict[str, Network](), dict[str, Network]())
    for number, name in enumerate(draw.sample(sorted(_ALL), 14)):
        make, inputs = _ALL[name]
        halves[number % 2][name] = Network(make, inputs, draw.random() < 0.5)
    return halves


READ, ASIDE = _drawn()
SETS = {"read": READ, "aside": ASIDE}
