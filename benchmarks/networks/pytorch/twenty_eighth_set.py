"""Nine networks of families that no earlier set of this builder has, all of them aside.

A classifier, stereo, matched points, language, speakers, a series, molecules, proteins and a
robot's actions. Written before anything was built; seed 20263028 decides which of PyTorch's
exporters writes each network. Random weights.

python -m benchmarks.networks.write twenty_eighth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_eighth_set \\
    --folder networks
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import torch
from timm.models import rdnet
from torch import nn

from benchmarks.networks.pytorch.deployed import words
from benchmarks.networks.pytorch.export import Network, image
from benchmarks.networks.pytorch.twenty_eighth_set_modules import (
    DiffusionPolicy,
    Egnn,
    Evoformer,
    LightGlue,
    StereoNet,
    TimeMixer,
    TitaNet,
)

_SEED = 20263028


def _of(make: Callable[[], nn.Module], *inputs: torch.Tensor) -> Network:
    return Network(make, inputs, dynamo=False)


def _rdnet() -> nn.Module:
    return rdnet.RDNet(
        num_classes=10, growth_rates=(16, 24, 32, 32), num_blocks_list=(2, 2, 2, 2),
        block_type=("Block", "Block", "BlockESE", "BlockESE"),
        is_downsample_block=(None, True, True, True), num_init_features=32, ls_init_value=0.5,
    )  # fmt: skip


_POINTS = torch.zeros(1, 64, 64), torch.zeros(1, 48, 64)
_NETWORKS = {
    "RDNet": _of(_rdnet, *image(64)),
    "StereoNet": _of(StereoNet, *image(64), *image(64)),
    "LightGlue": _of(LightGlue, *_POINTS, torch.zeros(1, 64, 2), torch.zeros(1, 48, 2)),
    "Jais 2": words("Jais2:ForCausalLM", "logits", False, num_key_value_heads=2),
    "TitaNet": _of(TitaNet, torch.zeros(1, 80, 128)),
    "TimeMixer": _of(TimeMixer, torch.zeros(4, 96, 7)),
    "EGNN": _of(Egnn, torch.zeros(2, 20, 8), torch.zeros(2, 20, 3)),
    "Evoformer": _of(Evoformer, torch.zeros(12, 32, 23), torch.zeros(32, 32, 16)),
    "Diffusion Policy": _of(
        DiffusionPolicy, torch.zeros(2, 8, 32), torch.zeros(2, 1), torch.zeros(2, 24)
    ),
}

ASIDE = {
    name: replace(network, dynamo=Random(f"{_SEED} {name}").random() < 0.5)
    for name, network in _NETWORKS.items()
}
SETS = {"aside": ASIDE}
