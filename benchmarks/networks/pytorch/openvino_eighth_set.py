"""Fourteen networks of families that no earlier set holds, in pairs of a kind; seven were read.

Of each pair one was drawn to be read, by seed 2026113020, before anything was built. Random
weights.

python -m benchmarks.networks.write openvino_eighth_set --folder networks
python -m benchmarks.plans.openvino --placements 2 --networks openvino_eighth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch import openvino_eighth_set_modules as modules
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "R2U-Net": Network(modules.R2UNet, image(64), True),
        "MultiResUNet": Network(modules.MultiResUNet, image(64), False),
    },
    {
        "MemNet": Network(modules.MemNet, image(48, 1), False),
        "MIRNet": Network(modules.MirNet, image(64), True),
    },
    {
        "PyramidNet": Network(modules.PyramidNet, image(32), True),
        "Dual path network": Network(modules.DualPathNet, image(64), False),
    },
    {
        "HorNet": Network(modules.HorNet, image(64), True),
        "ConViT": timm_network("convit_tiny", 224, False, depth=4),
    },
    {
        "SincNet": Network(modules.SincNet, (torch.zeros(1, 1, 1600),), True),
        "TC-ResNet": Network(modules.TcResNet, (torch.zeros(1, 40, 98),), False),
    },
    {
        "EAST": Network(modules.East, image(128), False),
        "RefineNet": Network(modules.RefineNet, image(128), True),
    },
    {
        "Inception-ResNet": Network(modules.InceptionResNet, image(96), True),
        "AmoebaNet": Network(modules.AmoebaNet, image(64), False),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, 2026113020)
SETS = {"read": READ, "aside": ASIDE}
