"""Networks of families that no earlier set holds, six of which were read.

One of each of thirteen lists of three to six, drawn with seed 20261901 before anything was
measured; the same draw decided which six were read afterwards. Random weights. Of the thirteen one
is a real file, the detector of spindles of PyPI's brainmaze-eeg-models (drawn with seed 20261902 in
place of a package that holds no file; read), to be copied to the folder, and VOLO is missing, since
the builder has no Col2Im.

python -m benchmarks.networks.write nineteenth_set --folder networks   # needs keras too
python -m benchmarks.plans.tensorrt_rtx --placements 2 --networks nineteenth_set --folder networks
"""

from __future__ import annotations

import os
from collections.abc import Mapping

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch
import transformers
from torch import nn

from benchmarks.networks.pytorch import nineteenth_set_modules as modules
from benchmarks.networks.pytorch.deployed import Outputs, words
from benchmarks.networks.pytorch.export import Network, image, timm_network


class _Inferred(nn.Module):
    """A module of Keras as it infers."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.whole(image, training=False)
        return found


def _efficientnet() -> nn.Module:
    make = keras.applications.EfficientNetV2B0
    return _Inferred(make(weights=None, classes=10, input_shape=(64, 64, 3)))


def _deformable() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.DeformableDetrConfig(
        backbone_config=backbone, backbone=None, use_timm_backbone=False,
        use_pretrained_backbone=False, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=20, num_labels=5, attn_implementation="eager",
        disable_custom_kernels=True,
    )  # fmt: skip
    whole = transformers.DeformableDetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _matting() -> nn.Module:
    backbone = transformers.VitDetConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=64,
        pretrain_image_size=64, num_channels=4, window_size=4, window_block_indices=[0],
        residual_block_indices=[1], use_relative_position_embeddings=True,
        out_features=["stage2"],
    )  # fmt: skip
    config = transformers.VitMatteConfig(
        backbone_config=backbone, backbone=None, use_pretrained_backbone=False, hidden_size=64,
        convstream_hidden_sizes=[16, 24, 32], fusion_hidden_sizes=[64, 32, 24, 16],
    )  # fmt: skip
    return Outputs(transformers.VitMatteForImageMatting(config), lambda found: found.alphas)


READ: Mapping[str, Network] = {
    "CAM++": Network(modules.CamPlusPlus, (torch.zeros(1, 120, 80),), dynamo=False),
    "ERFNet": Network(modules.erfnet, image(128), dynamo=True),
    "EfficientNetV2 (Keras)": Network(_efficientnet, (torch.zeros(1, 64, 64, 3),), dynamo=False),
    "FFDNet": Network(modules.Ffdnet, (*image(64), torch.zeros(1, 1, 1, 1)), dynamo=True),
    "YOLOX": Network(modules.Yolox, image(128), dynamo=False),
}
ASIDE: Mapping[str, Network] = {
    "Deformable DETR": Network(_deformable, image(128), dynamo=False),
    "HaloNet": timm_network("halonet26t", 256, dynamo=True),
    "Lite-HRNet": Network(modules.LiteHrnet, image(128), dynamo=True),
    "Longformer": words("Longformer:Model", "last_hidden_state", False, attention_window=8),
    "TimesNet": Network(modules.TimesNet, (torch.zeros(1, 96, 7),), dynamo=True),
    "VitMatte": Network(_matting, image(64, 4), dynamo=True),
}
SETS = {"read": READ, "aside": ASIDE}
