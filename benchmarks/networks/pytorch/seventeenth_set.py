"""Networks that are deployed in INT8, drawn at random, of which only figures were read.

One of each of ten lists of three to six (CNNs and newer CNNs and ViTs of timm, YOLOs of
ultralytics, detectors, texts and speech of transformers, segmenters of segmentation_models_pytorch,
super-resolution, mobile vision), drawn with seed 20261701 before anything was measured. LinkNet,
WavLM and DBNet, which earlier sets for TensorRT-RTX have, were replaced by a second draw. Random
weights.

python -m benchmarks.networks.write seventeenth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks seventeenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import segmentation_models_pytorch
import torch
import transformers
from torch import Tensor, nn
from transformers.models.moonshine.modeling_moonshine import MoonshineEncoder
from ultralytics.nn.tasks import SegmentationModel

from benchmarks.networks.pytorch.deployed import Outputs, words, yolo
from benchmarks.networks.pytorch.export import Network, timm_network


class Vdsr(nn.Module):
    """VDSR of eight layers: what they add to an enlarged image."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, *(32,) * 7)
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise(widths)
        ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(32, 3, 3, padding=1))

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) of (N, 3, H, W)."""
        return image + self.layers(image)


class Scrfd(nn.Module):
    """SCRFD: a residual backbone, a PAFPN, and a head of each level with a shared stem."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 2), _conv(16, 32, 2))
        self.stages = nn.ModuleList(
            nn.Sequential(_Residual(a, b), _Residual(b, b, 1))
            for a, b in ((32, 48), (48, 64), (64, 96))
        )
        self.lateral = nn.ModuleList(nn.Conv2d(w, 32, 1) for w in (48, 64, 96))
        self.smooth = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(3))
        self.down = nn.ModuleList(nn.Conv2d(32, 32, 3, 2, 1) for _ in range(2))
        self.out = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.head = nn.Sequential(_conv(32, 48, 1), _conv(48, 48, 1))
        self.ends = nn.ModuleList(nn.Conv2d(48, n, 3, padding=1) for n in (2, 8, 20))
        self.scales = nn.Parameter(torch.ones(3))

    def forward(self, image: Tensor) -> list[Tensor]:
        """Scores, distances and points of three levels, one row for each anchor."""
        maps, last = [], self.stem(image)
        for stage in self.stages:
            last = stage(last)
            maps.append(last)
        levels = [lateral(m) for lateral, m in zip(self.lateral, maps, strict=True)]
        for i in (1, 0):
            size = levels[i].shape[2:]
            levels[i] = levels[i] + nn.functional.interpolate(levels[i + 1], size=size)
        levels = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]
        for i in (0, 1):
            levels[i + 1] = levels[i + 1] + self.down[i](levels[i])
        levels[1:] = [out(level) for out, level in zip(self.out, levels[1:], strict=True)]
        return [made for i, level in enumerate(levels) for made in self._found(level, i)]

    def _found(self, level: Tensor, index: int) -> tuple[Tensor, Tensor, Tensor]:
        scores, boxes, points = (end(self.head(level)) for end in self.ends)
        boxes = boxes * self.scales[index]
        rows = [t.permute(0, 2, 3, 1).flatten(1, 2) for t in (scores, boxes, points)]
        return (
            rows[0].reshape(1, -1, 1).sigmoid(), rows[1].reshape(1, -1, 4),
            rows[2].reshape(1, -1, 10),
        )  # fmt: skip


def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class _Residual(nn.Module):
    """A basic block of a ResNet, whose shortcut is pooled where it is half as large (ResNet-D)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 2) -> None:
        super().__init__()
        self.first, self.second = _conv(inputs, outputs, stride), _conv(outputs, outputs, 1)[:2]
        self.shortcut = (
            nn.Sequential(
                nn.AvgPool2d(2), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )
            if stride == 2
            else nn.Identity()
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, outputs, H, W), half as large with a stride of two."""
        return nn.functional.relu(self.second(self.first(features)) + self.shortcut(features))


def _deeplab() -> nn.Module:
    return segmentation_models_pytorch.DeepLabV3Plus(
        "mobilenet_v2", encoder_weights=None, classes=5
    )


def _lwdetr() -> nn.Module:
    """LW-DETR of one group of queries, as it is deployed."""
    backbone = transformers.LwDetrViTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, image_size=128,
        pretrain_image_size=128, patch_size=16, window_block_indices=[0, 2], num_windows=4,
        out_indices=[2, 4],
    )  # fmt: skip
    config = transformers.LwDetrConfig(
        backbone_config=backbone, projector_scale_factors=[1.0], d_model=64, c2f_num_blocks=2,
        decoder_ffn_dim=128, decoder_n_points=2, decoder_layers=2, num_queries=20, group_detr=1,
        decoder_self_attention_heads=4, decoder_cross_attention_heads=4, num_labels=5,
    )  # fmt: skip
    whole = transformers.LwDetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _moonshine() -> nn.Module:
    config = transformers.MoonshineConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, encoder_num_hidden_layers=2,
        encoder_num_attention_heads=4, encoder_num_key_value_heads=4,
        attn_implementation="eager",
    )  # fmt: skip
    return Outputs(MoonshineEncoder(config), lambda found: found.last_hidden_state)


ASIDE: Mapping[str, Network] = {
    "Inception v4": timm_network("inception_v4", 139, dynamo=False),
    "MambaOut-Femto": timm_network("mambaout_femto", 96, dynamo=True),
    "DeiT III": timm_network(
        "deit3_small_patch16_224",
        64,
        dynamo=False,
        img_size=64,
        embed_dim=128,
        depth=3,
        num_heads=4,
    ),
    "YOLO12 (masks)": yolo(SegmentationModel, "yolo12n-seg.yaml", 128, dynamo=False),
    "LW-DETR": Network(_lwdetr, (torch.zeros(1, 3, 128, 128),), dynamo=False),
    "DeepLabV3+": Network(_deeplab, (torch.zeros(1, 3, 96, 96),), dynamo=True),
    "SqueezeBERT": words("SqueezeBert:Model", "last_hidden_state", dynamo=False, embedding_size=64),
    "Moonshine": Network(_moonshine, (torch.zeros(1, 4000),), dynamo=True),
    "VDSR": Network(Vdsr, (torch.zeros(1, 3, 48, 48),), dynamo=True),
    "SCRFD": Network(Scrfd, (torch.zeros(1, 3, 128, 128),), dynamo=True),
}
SETS = {"aside": ASIDE}
