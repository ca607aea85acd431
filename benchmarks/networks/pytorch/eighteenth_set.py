"""Networks of families that no earlier set holds, half of which were read.

One of each of twelve lists of three to six, drawn with seed 20261801 before anything was measured;
the same draw decided which six were read afterwards. Random weights.

python -m benchmarks.networks.write eighteenth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 2 --networks eighteenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import segmentation_models_pytorch
import torch
import transformers
from timm.layers import GatedMlp
from timm.models.mlp_mixer import MlpMixer, SpatialGatingBlock
from torch import nn
from ultralytics.nn.tasks import YOLOEModel

from benchmarks.networks.pytorch import eighteenth_set_modules as modules
from benchmarks.networks.pytorch.deployed import Outputs, words, yolo
from benchmarks.networks.pytorch.export import Network, image, timm_network


def _segformer() -> nn.Module:
    return segmentation_models_pytorch.Segformer("mit_b0", encoder_weights=None, classes=5)


def _gmlp() -> nn.Module:
    """gMLP-S of four blocks and a quarter of its width."""
    return MlpMixer(
        num_classes=10, img_size=64, embed_dim=64, num_blocks=4, mlp_ratio=6,
        block_layer=SpatialGatingBlock, mlp_layer=GatedMlp,
    )  # fmt: skip


def _dab_detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage4"],
    )  # fmt: skip
    config = transformers.DabDetrConfig(
        backbone_config=backbone, backbone=None, use_timm_backbone=False,
        use_pretrained_backbone=False, hidden_size=64, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=20, num_labels=5, attn_implementation="eager",
    )  # fmt: skip
    whole = transformers.DabDetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _mask2former() -> nn.Module:
    backbone = transformers.SwinConfig(
        image_size=128, patch_size=4, embed_dim=32, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8],
        window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone, feature_size=64, mask_feature_size=64, hidden_dim=64,
        encoder_feedforward_dim=128, encoder_layers=2, decoder_layers=3, num_attention_heads=4,
        dim_feedforward=128, num_queries=20, num_labels=5,
    )  # fmt: skip
    whole = transformers.Mask2FormerForUniversalSegmentation(config)
    return Outputs(whole, lambda found: (found.class_queries_logits, found.masks_queries_logits))


READ: Mapping[str, Network] = {
    "CNN14": Network(modules.Cnn14, (torch.zeros(1, 1, 64, 64),), dynamo=True),
    "DRUNet": Network(modules.Drunet, image(64, 4), dynamo=False),
    "MODNet": Network(modules.Modnet, image(128), dynamo=True),
    "Mask2Former": Network(_mask2former, image(128), dynamo=False),
    "PIDNet": Network(modules.Pidnet, image(128), dynamo=False),
    "SegFormer (smp)": Network(_segformer, image(64), dynamo=False),
}
ASIDE: Mapping[str, Network] = {
    "DAB-DETR": Network(_dab_detr, image(128), dynamo=False),
    "LiLT": words("Lilt:Model", "last_hidden_state", dynamo=False, hidden_size=96),
    "TiDE": Network(modules.Tide, (torch.zeros(1, 96), torch.zeros(1, 120, 8)), dynamo=True),
    "YOLOE": yolo(YOLOEModel, "yoloe-11n.yaml", 128, dynamo=False),
    "gMLP": Network(_gmlp, image(64), dynamo=True),
    "ResNet-26-T": timm_network("resnet26t", 64, dynamo=False),
}
SETS = {"read": READ, "aside": ASIDE}
