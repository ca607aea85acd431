"""Ten networks of families that no earlier set holds, in pairs of a kind; five were read.

Of each pair one was drawn to be read, by seed 2026120103, before anything was built. Random
weights.

python -m benchmarks.networks.write openvino_tenth_set --folder networks
python -m benchmarks.plans.openvino --placements 2 --networks openvino_tenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch import openvino_tenth_set_modules as modules
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "OctaveNet": Network(modules.OctaveNet, image(96), False),
        "VanillaNet": Network(modules.VanillaNet, image(112), True),
    },
    {
        "PSENet": Network(modules.PixelSegments, image(128), True),
        "DenseASPP": Network(modules.DenseAspp, image(128), False),
    },
    {
        "CSRNet": Network(modules.CrowdCounter, image(96), False),
        "WDSR": Network(modules.WideSuperResolution, image(48), True),
    },
    {
        "LCNN": Network(modules.LightCnn, (torch.zeros(1, 1, 60, 128),), True),
        "RawNet": Network(modules.RawNet, (torch.zeros(1, 1, 4096),), False),
    },
    {
        "RepLKNet": Network(modules.LargeKernels, image(96), True),
        "EdgeNeXt": timm_network("edgenext_xx_small", 96, False),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, 2026120103)
SETS = {"read": READ, "aside": ASIDE}
