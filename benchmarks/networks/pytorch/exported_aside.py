"""Fourteen networks by PyTorch's exporters for TensorRT-RTX, of which no layer was ever read.

Only figures were read, so they say what to expect of a network that nothing was fitted to. Needs
what ``exported`` needs. Weights are random; depths and inputs are small.

python -m benchmarks.plans.tensorrt_rtx --networks exported_aside --folder networks --placements 3
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchvision.models.segmentation import lraspp_mobilenet_v3_large

from benchmarks.networks.pytorch.export import Network, timm_network


class Segmenter(nn.Module):
    """LR-ASPP on MobileNetV3 (Howard et al. 2019) of torchvision, without its dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of each pixel."""
        return self.whole(image)["out"]


class TextClassifier(nn.Module):
    """PyTorch's own encoder over embedded words, the norm first; a mean over them decides."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, width), nn.Parameter(torch.randn(1, 24, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decide = nn.Linear(width, 4)

    def forward(self, text: Tensor) -> Tensor:
        """Scores of a text."""
        return self.decide(self.layers(self.words(text) + self.places).mean(dim=1))


def sound_classifier() -> nn.Module:
    """M5 (Dai et al. 2017): 1-D Convs on raw sound, each with a norm, Relu and a pool."""
    parts: list[nn.Module] = []
    channels = 1
    for width, kernel, stride in ((32, 80, 16), (32, 3, 1), (64, 3, 1), (64, 3, 1)):
        parts += [nn.Conv1d(channels, width, kernel, stride), nn.BatchNorm1d(width), nn.ReLU()]
        parts.append(nn.MaxPool1d(4))
        channels = width
    parts += [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, 10), nn.LogSoftmax(-1)]
    return nn.Sequential(*parts)


_TWINS = {"depths": (1, 1, 2, 1), "img_size": 64}
ASIDE: Mapping[str, Network] = {
    "MobileNetV4": timm_network("mobilenetv4_conv_small", 64, dynamo=True),
    "MobileOne": timm_network("mobileone_s0", 64, dynamo=False),
    "StarNet": timm_network("starnet_s1", 64, dynamo=False),
    "HGNetV2": timm_network("hgnetv2_b0", 64, dynamo=True),
    "DLA": timm_network("dla46_c", 64, dynamo=False),
    "ResNeSt": timm_network("resnest14d", 64, dynamo=True),
    "Twins": timm_network("twins_svt_small", 64, dynamo=False, **_TWINS),
    "SHViT": timm_network("shvit_s1", 96, dynamo=True),
    "EfficientViT": timm_network("efficientvit_b0", 64, dynamo=False),
    "FasterNet": timm_network("fasternet_t0", 64, dynamo=True),
    "gMLP": timm_network("gmlp_ti16_224", 64, dynamo=True, img_size=64),
    "LR-ASPP": Network(Segmenter, (torch.zeros(1, 3, 64, 64),), dynamo=False),
    "text classifier": Network(
        lambda: TextClassifier(64), (torch.zeros(1, 24, dtype=torch.int64),), dynamo=True
    ),
    "M5": Network(sound_classifier, (torch.zeros(1, 1, 8000),), dynamo=False),
}
SETS = {".": ASIDE}
