"""Twelve networks of families that no earlier set holds, of which six were read.

Seed 2026113011 decided before anything was built which networks of ``_ALL`` are in the set, which
of them are read, and which of PyTorch's exporters writes each. Random weights.

python -m benchmarks.networks.write openvino_fifth_set --folder networks
python -m benchmarks.plans.openvino --placements 3 --networks openvino_fifth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import torch
from torch import Tensor, nn

from benchmarks.networks.pytorch import openvino_fifth_set_modules as modules
from benchmarks.networks.pytorch.export import Network, image

_ALL: Mapping[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "ContextNet": (modules.ContextNet, image(128)),
    "DeepConvLSTM": (modules.DeepConvLstm, (torch.zeros(1, 1, 24, 12),)),
    "DeepSpeech2": (modules.DeepSpeech2, (torch.zeros(1, 1, 80, 48),)),
    "DynamicConv": (modules.DynamicConv, image(64)),
    "LEDNet": (modules.LedNet, image(128)),
    "M5": (modules.M5, (torch.zeros(1, 1, 8000),)),
    "MatchboxNet": (modules.MatchboxNet, (torch.zeros(1, 64, 96),)),
    "OpenPose": (modules.OpenPose, image(128)),
    "PointPillars": (modules.PointPillars, (torch.randn(1, 1024, 16, 9),)),
    "RDN": (modules.Rdn, image(32)),
    "ResNeSt": (modules.ResNeSt, image(96)),
    "SEGAN": (modules.Segan, (torch.zeros(1, 1, 1024),)),
    "SqueezeDet": (modules.SqueezeDet, image(128)),
    "VGGish": (modules.VggIsh, (torch.zeros(1, 1, 96, 64),)),
}


def _drawn() -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    draw, halves = Random(2026113011), (dict[str, Network](), dict[str, Network]())
    for number, name in enumerate(draw.sample(sorted(_ALL), 12)):
        make, inputs = _ALL[name]
        halves[number % 2][name] = Network(make, inputs, draw.random() < 0.5)
    return halves


READ, ASIDE = _drawn()
SETS = {"read": READ, "aside": ASIDE}
