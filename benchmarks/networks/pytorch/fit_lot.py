"""Eight networks of timm that no fit had seen: only figures were read, a network at a time.

The first eight with at most 15 million weights in an order drawn by lot (seed 20261127), one of
each of timm's modules, without modules of which a network was known and without one that cannot
be exported. Whole networks; images of 128 pixels where the size is free. What was measured on
2026-11-27 lacked the noise that ``export`` adds to biases and norms.

python -m benchmarks.networks.write fit_lot --folder networks
python -m benchmarks.times.fit_unseen --builds builds --models networks/fit_lot/aside
"""

from __future__ import annotations

from collections.abc import Mapping

import timm
import torch
from torch import nn

from benchmarks.networks.pytorch.export import Network

_SIZES = {
    "ese_vovnet19b_slim": 128,
    "iformer_m": 128,
    "rexnet_100": 128,
    "hardcorenas_a": 128,
    "coatnet_nano_cc_224": 224,
    "repghostnet_130": 128,
    "nf_regnet_b2": 128,
    "lcnetv2_small": 128,
}


def _network(name: str, size: int) -> Network:
    def make() -> nn.Module:
        return timm.create_model(name, pretrained=False)

    return Network(make, (torch.zeros(1, 3, size, size),), False)


SETS: Mapping[str, Mapping[str, Network]] = {
    "aside": {name: _network(name, size) for name, size in _SIZES.items()}
}
