"""Eight networks of families that no earlier set holds, in pairs of a kind; four were read.

Of each pair one was drawn to be read, by seed 2026120100, before anything was built. Random
weights.

python -m benchmarks.networks.write openvino_ninth_set --folder networks
python -m benchmarks.plans.openvino --placements 2 --networks openvino_ninth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch import openvino_ninth_set_modules as modules
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "YOLOv4": Network(modules.Yolo4, image(160), False),
        "Monodepth2": Network(modules.Monodepth, image(128), True),
    },
    {
        "Fast-SCNN": Network(modules.FastScnn, image(128), False),
        "DexiNed": Network(modules.DexiNed, image(96), True),
    },
    {
        "MatchboxNet": Network(modules.MatchboxNet, (torch.zeros(1, 64, 128),), True),
        "TitaNet": Network(modules.TitaNet, (torch.zeros(1, 80, 150),), False),
    },
    {
        "FBNetV3": timm_network("fbnetv3_b", 96, True),
        "VoVNet": timm_network("ese_vovnet19b_dw", 96, False),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, 2026120100)
SETS = {"read": READ, "aside": ASIDE}
