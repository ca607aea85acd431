"""Networks of families that no earlier set has, for plans of ONNX Runtime; only figures were read.

Language models with grouped queries and rotated positions, sound, a detector with its NMS,
segmentation, documents, and one in FP16. Random weights.

python -m benchmarks.networks.write ort_fifth_set --folder networks
python -m benchmarks.plans.onnxruntime --networks ort_fifth_set --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torchvision
from torch import Tensor, nn
from transformers import (
    PPLCNetV3Backbone,
    PPLCNetV3Config,
    UVDocBackbone,
    UVDocBackboneConfig,
)
from ultralytics import YOLO

from benchmarks.networks.pytorch.deployed import VISION, Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
_GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
_XLNET = {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128, "vocab_size": 100}
_SOUND = {**VISION, "num_mel_bins": 32, "subsampling_conv_channels": 16, "conv_kernel_size": 9}


class Detector(nn.Module):
    """A YOLO and the boxes that are left after NMS."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = YOLO("yolov8n.yaml").model.eval().fuse(verbose=False)
        self.whole.model[-1].export, self.whole.model[-1].format = True, "onnx"

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes and scores, the best first."""
        found = self.whole(image)[0].T
        middle, size = found[:, :2], found[:, 2:4]
        boxes = torch.cat([middle - size / 2, middle + size / 2], dim=1)
        scores = found[:, 4:].amax(dim=1)
        kept = torchvision.ops.nms(boxes, scores, 0.5)[:20]
        return boxes[kept], scores[kept]


def _half(network: Network) -> Network:
    return replace(network, make=lambda: network.make().half())


def _maps(whole: nn.Module) -> nn.Module:
    return Outputs(whole, lambda found: found.feature_maps[-1])


def _segmenter() -> nn.Module:
    whole = torchvision.models.segmentation.fcn_resnet50(
        weights=None, weights_backbone=None, num_classes=5
    )
    return Outputs(whole, lambda found: found["out"])


ASIDE: Mapping[str, Network] = {
    "Exaone 4": words("Exaone4:Model", _STATE, True, **_GROUPED),
    "Apertus": words("Apertus:Model", _STATE, True, num_key_value_heads=2),
    "Helium in FP16": _half(words("Helium:Model", _STATE, True, **_GROUPED)),
    "DiffLlama": words("DiffLlama:Model", _STATE, True, num_key_value_heads=2),
    "Nemotron": words("Nemotron:Model", _STATE, True, num_key_value_heads=2),
    "XLNet": hidden("XLNet:Model", (torch.ones(1, 24, dtype=torch.int64),), False, **_XLNET),
    "Parakeet": hidden("ParakeetEncoder:", (torch.zeros(1, 64, 32),), False, **_SOUND),
    "NASNet": timm_network("nasnetalarge", 96, dynamo=False),
    "DeepSeek ViT": timm_network("deepseek_vit_412m", 112, dynamo=True, depth=2, img_size=112),
    "PP-LCNetV3": Network(lambda: _maps(PPLCNetV3Backbone(PPLCNetV3Config())), _IMAGE, dynamo=True),
    "UVDoc": Network(lambda: _maps(UVDocBackbone(UVDocBackboneConfig())), _IMAGE, dynamo=False),
    "FCN": Network(_segmenter, (torch.zeros(1, 3, 96, 96),), dynamo=True),
    "YOLOv8 with NMS": Network(Detector, (torch.zeros(1, 3, 96, 96),), dynamo=False),
}
SETS = {"aside": ASIDE}
