"""Networks of other families, written by PyTorch's own exporters, for which nothing was fitted.

Needs torch, torchvision, timm and onnxscript. Weights are random; depths and inputs are small. Half
of the networks are ``SEEN``: differences between prediction and engine were read on these, and only
on these. Of the other half, ``KEPT``, only figures were read.

python -m benchmarks.plans.openvino --networks exported --folder networks --placements 4
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchmarks.networks.pytorch.export import Network, timm_network
from benchmarks.networks.pytorch.exported_modules import (
    ConvTasNet,
    Decoder,
    DeepSpeech,
    GraphNetwork,
    HiFiGan,
    NafNet,
    PointNet,
    StyleGenerator,
)


def _edges(nodes: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, nodes, (2, count), generator=generator)


_SWIN = {"depths": (2, 2), "embed_dim": 48, "num_heads": (2, 4), "img_size": 56}
SEEN: Mapping[str, Network] = {
    "RegNetX": timm_network("regnetx_002", 64, dynamo=False),
    "CSP-Darknet": timm_network("cs3darknet_s", 64, dynamo=True),
    "Swin (timm)": timm_network("swin_tiny_patch4_window7_224", 56, dynamo=False, **_SWIN),
    "PVTv2": timm_network("pvt_v2_b0", 64, dynamo=True),
    "EfficientFormer": timm_network("efficientformer_l1", 224, dynamo=False),
    "Res2Net": timm_network("res2net50_14w_8s", 64, dynamo=True),
    "PointNet": Network(lambda: PointNet(128), (torch.zeros(1, 3, 128),), dynamo=False),
    "DeepSpeech": Network(lambda: DeepSpeech(40, 64), (torch.zeros(1, 1, 40, 60),), dynamo=False),
    "Transformer decoder": Network(
        lambda: Decoder(64, 4, 2), (torch.zeros(1, 20, 64), torch.zeros(1, 30, 64)), dynamo=True
    ),
    "StyleGAN": Network(lambda: StyleGenerator(32), (torch.zeros(1, 32),), dynamo=True),
}
KEPT: Mapping[str, Network] = {
    "GhostNetV2": timm_network("ghostnetv2_100", 64, dynamo=False),
    "HRNet-W18": timm_network("hrnet_w18_small", 64, dynamo=True),
    "MobileViTv2": timm_network("mobilevitv2_050", 64, dynamo=True),
    "XCiT": timm_network("xcit_nano_12_p16_224", 64, dynamo=False, depth=3, img_size=64),
    "FastViT": timm_network("fastvit_t8", 64, dynamo=False),
    "EdgeNeXt": timm_network("edgenext_xx_small", 64, dynamo=True),
    "VoVNet": timm_network("ese_vovnet19b_dw", 64, dynamo=False),
    "RepViT": timm_network("repvit_m0_9", 64, dynamo=True),
    "NAFNet": Network(lambda: NafNet(16), (torch.zeros(1, 3, 32, 32),), dynamo=False),
    "graph network": Network(
        lambda: GraphNetwork(_edges(40, 120), 40, 32), (torch.zeros(40, 32),), dynamo=True
    ),
    "Conv-TasNet": Network(lambda: ConvTasNet(32), (torch.zeros(1, 1, 800),), dynamo=False),
    "HiFi-GAN": Network(lambda: HiFiGan(64), (torch.zeros(1, 80, 16),), dynamo=True),
}


SETS = {"seen": SEEN, "kept": KEPT}
