"""Nine networks of families that no earlier set of this builder has, all of them aside.

A classifier, stereo, matched points, language, speakers, a series, molecules, proteins and a
robot's actions. Written before anything was built; seed 20263028 decides which of PyTorch's
exporters writes each network. Random weights.

python -m benchmarks.networks.write twenty_eighth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_eighth_set \\
    --folder networks
"""

from __future__ import annotations

import torch
from timm.models import rdnet
from torch import nn

from benchmarks.networks.pytorch.deployed import words
from benchmarks.networks.pytorch.export import Network, exporters_drawn, image
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


def _rdnet() -> nn.Module:
    return rdnet.RDNet(
        num_classes=10, growth_rates=(16, 24, 32, 32), num_blocks_list=(2, 2, 2, 2),
        block_type=("Block", "Block", "BlockESE", "BlockESE"),
        is_downsample_block=(None, True, True, True), num_init_features=32, ls_init_value=0.5,
    )  # fmt: skip


_POINTS = torch.zeros(1, 64, 64), torch.zeros(1, 48, 64)
_NETWORKS = {
    "RDNet": Network.of(_rdnet, *image(64)),
    "StereoNet": Network.of(StereoNet, *image(64), *image(64)),
    "LightGlue": Network.of(LightGlue, *_POINTS, torch.zeros(1, 64, 2), torch.zeros(1, 48, 2)),
    "Jais 2": words("Jais2:ForCausalLM", "logits", False, num_key_value_heads=2),
    "TitaNet": Network.of(TitaNet, torch.zeros(1, 80, 128)),
    "TimeMixer": Network.of(TimeMixer, torch.zeros(4, 96, 7)),
    "EGNN": Network.of(Egnn, torch.zeros(2, 20, 8), torch.zeros(2, 20, 3)),
    "Evoformer": Network.of(Evoformer, torch.zeros(12, 32, 23), torch.zeros(32, 32, 16)),
    "Diffusion Policy": Network.of(
        DiffusionPolicy, torch.zeros(2, 8, 32), torch.zeros(2, 1), torch.zeros(2, 24)
    ),
}

ASIDE = exporters_drawn(_NETWORKS, _SEED)
SETS = {"aside": ASIDE}
