"""Networks of timm that fits are judged by: eight whose layers were looked at, sixteen aside.

Both are the first networks with at most 15 million weights in a random order, one of each of
timm's modules, without those that cannot be exported. The eight are of modules that no benchmark
had a network of (seed 20261127); of the sixteen only figures were seen, and they are of modules
that neither a fit nor a set fits were judged by had a network of (seed 20261128). Whole networks;
images of 128 pixels where the size is free.

python -m benchmarks.networks.write fit_set --folder networks
python -m benchmarks.times.fit_unseen --builds builds --models networks/fit_set/aside
"""

from __future__ import annotations

from collections.abc import Mapping

import timm
import torch
from torch import nn

from benchmarks.networks.pytorch.export import Network

_READ = {
    "ese_vovnet19b_slim": 128,
    "iformer_m": 128,
    "rexnet_100": 128,
    "hardcorenas_a": 128,
    "coatnet_nano_cc_224": 224,
    "repghostnet_130": 128,
    "nf_regnet_b2": 128,
    "lcnetv2_small": 128,
}
_ASIDE = {
    "shvit_s2": 128,
    "efficientvit_m2": 224,
    "cait_xxs24_224": 224,
    "dpn68": 128,
    "cspnext_m": 128,
    "swiftformer_s": 224,
    "hgnet_tiny": 128,
    "tiny_vit_5m_224": 128,
    "cpubone_b1_dwnorm": 128,
    "gcvit_xxtiny": 224,
    "efficientvim_m1_dist": 128,
    "legacy_seresnet18": 128,
    "coat_lite_mini": 224,
    "fasternet_t2": 128,
    "efficientformer_l1": 224,
    "pit_ti_224": 224,
}


def _network(name: str, size: int) -> Network:
    def make() -> nn.Module:
        return timm.create_model(name, pretrained=False)

    return Network(make, (torch.zeros(1, 3, size, size),), False)


SETS: Mapping[str, Mapping[str, Network]] = {
    part: {name: _network(name, size) for name, size in sizes.items()}
    for part, sizes in (("read", _READ), ("aside", _ASIDE))
}
