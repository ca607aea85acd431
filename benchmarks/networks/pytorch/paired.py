"""Twenty networks in pairs of a kind, of families that no benchmark had: one of each was read.

Needs what ``exported`` needs. Weights are random; depths and inputs are small. Which
of a pair is ``READ`` was drawn by lot before anything was measured; of ``ASIDE`` only figures are
read.

python -m benchmarks.plans.openvino --networks paired --folder networks --placements 6
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch.export import Network, drawn_by_lot, timm_network
from benchmarks.networks.pytorch.paired_modules import (
    BlazeFace,
    Demucs,
    Ecapa,
    Encoder,
    EsrGan,
    Restormer,
    StackedHourglass,
)

_BEIT = {"img_size": 64, "embed_dim": 96, "depth": 3, "num_heads": 3}
_DAVIT = {"embed_dims": (32, 64, 96, 128), "num_heads": (1, 2, 3, 4), "depths": (1, 1, 2, 1)}
PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "ReXNet": timm_network("rexnet_100", 64, dynamo=False),
        "MixNet": timm_network("mixnet_s", 64, dynamo=True),
    },
    {
        "BiT": timm_network("resnetv2_50x1_bit", 64, dynamo=True),
        "NFNet": timm_network("eca_nfnet_l0", 64, dynamo=False),
    },
    {
        "CoAtNet": timm_network("coatnet_pico_rw_224", 64, dynamo=True, img_size=64),
        "MaxViT": timm_network("maxvit_pico_rw_256", 64, dynamo=False, img_size=64),
    },
    {
        "CaiT": timm_network("cait_xxs24_224", 64, dynamo=False, img_size=64, depth=3),
        "BEiT": timm_network("beit_base_patch16_224", 64, dynamo=False, **_BEIT),
    },
    {
        "DaViT": timm_network("davit_tiny", 64, dynamo=True, **_DAVIT),
        "FocalNet": timm_network("focalnet_tiny_srf", 64, dynamo=False),
    },
    {
        "SKNet": timm_network("skresnet18", 64, dynamo=False),
        "DPN": timm_network("dpn48b", 64, dynamo=True),
    },
    {
        "hourglass": Network(lambda: StackedHourglass(32, 8), (torch.zeros(1, 3, 64, 64),), True),
        "BlazeFace": Network(BlazeFace, (torch.zeros(1, 3, 64, 64),), False),
    },
    {
        "Restormer": Network(lambda: Restormer(16), (torch.zeros(1, 3, 32, 32),), True),
        "ESRGAN": Network(lambda: EsrGan(16), (torch.zeros(1, 3, 16, 16),), False),
    },
    {
        "Transformer-XL": Network(
            lambda: Encoder(64, 4, 24, relative=True), (torch.zeros(1, 24, 64),), False
        ),
        "linear attention": Network(
            lambda: Encoder(64, 4, 24, relative=False), (torch.zeros(1, 24, 64),), True
        ),
    },
    {
        "ECAPA-TDNN": Network(lambda: Ecapa(40, 32), (torch.zeros(1, 40, 100),), False),
        "Demucs": Network(lambda: Demucs(16), (torch.zeros(1, 2, 1024),), True),
    },
)
READ, ASIDE = drawn_by_lot(PAIRS, seed=7)
SETS = {"read": READ, "aside": ASIDE}
