"""Ten networks of families that no earlier set holds, in pairs of a kind; five were read.

Of each pair one was drawn to be read, by seed 2026113019, before anything was built. Random
weights.

python -m benchmarks.networks.write openvino_seventh_set --folder networks
python -m benchmarks.plans.openvino --placements 3 --networks openvino_seventh_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.networks.pytorch import openvino_seventh_set_modules as modules
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "CFPNet": Network(modules.CfpNet, image(128), True),
        "ESPNetV2": Network(modules.EspNetV2, image(96), False),
    },
    {
        "EDANet": Network(modules.EdaNet, image(128), False),
        "FPENet": Network(modules.FpeNet, image(128), True),
    },
    {
        "DFANet": Network(modules.DfaNet, image(128), True),
        "LiteSeg": Network(modules.LiteSeg, image(128), False),
    },
    {
        "SegNet": Network(modules.SegNet, image(96), False),
        "Tiramisu": Network(modules.Tiramisu, image(64), True),
    },
    {
        "MSRN": Network(modules.Msrn, image(32, 1), True),
        "DBPN": Network(modules.Dbpn, image(32), False),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, 2026113019)
SETS = {"read": READ, "aside": ASIDE}
