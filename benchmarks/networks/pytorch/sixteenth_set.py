"""Networks of families that no earlier set has, drawn at random, of which only figures were read.

One of each of twelve lists of two to five (YOLOs of ultralytics, segmenters of
segmentation_models_pytorch, torchvision, timm, detectors, dense networks and texts of transformers,
fast segmenters, faces, actions, depth, speech), drawn with seed 20261629 before anything was
measured; RAFT and an EfficientNetV2, which earlier sets have, are left out. Random weights.

python -m benchmarks.networks.write sixteenth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks sixteenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import segmentation_models_pytorch
import torch
import transformers
from torch import Tensor, nn
from transformers.models.prophetnet.modeling_prophetnet import ProphetNetEncoder
from ultralytics.nn.tasks import DetectionModel, yaml_model_load

from benchmarks.networks.pytorch.deployed import Outputs, yolo
from benchmarks.networks.pytorch.export import Network, image
from benchmarks.networks.pytorch.sixteenth_set_modules import (
    FaceNet,
    MidasSmall,
    MoViNet,
    Stdc,
    XVector,
)


def _yolo3(config: str, **options: object) -> nn.Module:
    """YOLOv3 of a quarter of its width."""
    return DetectionModel({**yaml_model_load(config), "width_multiple": 0.25}, **options)


def _pspnet() -> nn.Module:
    return segmentation_models_pytorch.PSPNet("resnet18", encoder_weights=None, classes=5)


def _rtdetr() -> nn.Module:
    """RT-DETRv2 of small ResNets without its denoising queries."""
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.RTDetrV2Config(
        backbone_config=backbone, use_pretrained_backbone=False, encoder_hidden_dim=64,
        encoder_in_channels=[32, 48, 64], encoder_ffn_dim=128, encoder_attention_heads=4,
        d_model=64, num_queries=20, decoder_layers=2, decoder_ffn_dim=128,
        decoder_attention_heads=4, decoder_in_channels=[64, 64, 64], num_denoising=0, num_labels=5,
        anchor_image_size=[128, 128],
    )  # fmt: skip
    whole = transformers.RTDetrV2ForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _eomt() -> nn.Module:
    config = transformers.EomtConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, image_size=64, patch_size=8,
        num_upscale_blocks=1, num_blocks=1, num_queries=10, num_labels=5,
    )  # fmt: skip
    whole = transformers.EomtForUniversalSegmentation(config)
    whole.attn_mask_probs.fill_(0)  # As it is deployed: no masked attention.
    return Outputs(whole, lambda found: (found.masks_queries_logits, found.class_queries_logits))


class _Words(nn.Module):
    """ProphetNet's encoder of words without padding."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.ProphetNetConfig(
            vocab_size=100, hidden_size=64, encoder_ffn_dim=128, num_encoder_layers=2,
            num_encoder_attention_heads=4, max_position_embeddings=64,
        )  # fmt: skip
        self.whole = ProphetNetEncoder(config)

    def forward(self, words: Tensor) -> Tensor:
        """(N, words, 64) of (N, words)."""
        return self.whole(input_ids=words).last_hidden_state


ASIDE: Mapping[str, Network] = {
    "YOLOv3": yolo(_yolo3, "yolov3.yaml", 128, dynamo=False),
    "PSPNet": Network(_pspnet, image(64), dynamo=True),
    "RT-DETRv2": Network(_rtdetr, image(128), dynamo=False),
    "EoMT": Network(_eomt, image(64), dynamo=False),
    "ProphetNet": Network(_Words, (torch.zeros(1, 24, dtype=torch.int64) + 3,), dynamo=False),
    "STDC": Network(Stdc, image(128), dynamo=False),
    "FaceNet": Network(FaceNet, image(96), dynamo=True),
    "MoViNet": Network(MoViNet, (torch.zeros(1, 3, 8, 64, 64),), dynamo=False),
    "MiDaS small": Network(MidasSmall, image(64), dynamo=True),
    "x-vector": Network(XVector, (torch.zeros(1, 24, 64),), dynamo=False),
}
SETS = {"aside": ASIDE}
