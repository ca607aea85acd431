"""Twenty networks of families that no other list has: ten, drawn at random, may be read.

As timm, torchvision and transformers write them, with random weights and smaller. Which are
``READ`` was drawn at random before anything was measured; of ``ASIDE`` only figures are read.

python -m benchmarks.plans.openvino --networks newer --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import torch
import torchvision
import transformers
from torch import nn

from benchmarks.networks.pytorch.deployed import Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_SMALL_IMAGE = (torch.zeros(1, 3, 64, 64),)
_PIXELS = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "patch_size": 16,
}  # fmt: skip


def _detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False,
        backbone=None, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=20,
        num_labels=10, attn_implementation="eager",
    )  # fmt: skip
    whole = transformers.DetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _tracker() -> nn.Module:
    config = transformers.YolosConfig(
        **_PIXELS, image_size=[64, 64], num_detection_tokens=10, num_labels=10,
        attn_implementation="eager",
    )  # fmt: skip
    whole = transformers.YolosForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _series() -> nn.Module:
    config = transformers.PatchTSTConfig(
        num_input_channels=4, context_length=64, patch_length=8, patch_stride=8, d_model=64,
        num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, prediction_length=16,
    )  # fmt: skip
    whole = transformers.PatchTSTForPrediction(config)
    return Outputs(whole, lambda found: found.prediction_outputs)


def _segmenter() -> nn.Module:
    whole = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5
    )
    return Outputs(whole, lambda found: found["out"])


NETWORKS: Mapping[str, Network] = {
    "InceptionNeXt": timm_network("inception_next_atto", 64, dynamo=True),
    "RegNetZ": timm_network("regnetz_005", 64, dynamo=False),
    "DLA": timm_network("dla46_c", 64, dynamo=True),
    "NF-RegNet": timm_network("nf_regnet_b0", 64, dynamo=False),
    "EfficientViT-M": timm_network("efficientvit_m0", 224, dynamo=True),
    "Twins": timm_network("twins_svt_small", 64, dynamo=False, depths=(1, 1, 1, 1)),
    "MobileOne": timm_network("mobileone_s0", 64, dynamo=True),
    "LR-ASPP": Network(_segmenter, (torch.zeros(1, 3, 96, 96),), False),
    "T5 encoder": words(
        "T5:EncoderModel",
        "last_hidden_state",
        False,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
    ),
    "ALBERT": words("Albert:Model", "last_hidden_state", True, embedding_size=32),
    "OPT": words("OPT:ForCausalLM", "logits", False, ffn_dim=128, word_embed_proj_dim=64),
    "BLOOM": words("Bloom:ForCausalLM", "logits", False, n_layer=2, n_head=4),
    "GPT-NeoX": words("GPTNeoX:ForCausalLM", "logits", False, rotary_pct=0.5),
    "Mistral": words("Mistral:ForCausalLM", "logits", True, num_key_value_heads=2),
    "PatchTST": Network(_series, (torch.zeros(1, 64, 4),), True),
    "AST": hidden(
        "AST:Model",
        (torch.zeros(1, 64, 32),),
        True,
        **_PIXELS,
        max_length=64,
        num_mel_bins=32,
        frequency_stride=16,
        time_stride=16,
    ),
    "Swin2SR": hidden(
        "Swin2SR:ForImageSuperResolution",
        (torch.zeros(1, 3, 16, 16),),
        False,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=8,
        image_size=16,
        upscale=2,
        upsampler="pixelshuffledirect",
    ),
    "YOLOS": Network(_tracker, _SMALL_IMAGE, False),
    "DETR": Network(_detr, (torch.zeros(1, 3, 96, 96),), True),
    "RoFormer": words("RoFormer:Model", "last_hidden_state", False, embedding_size=64),
}
_CHOSEN = frozenset(Random(20261126).sample(sorted(NETWORKS), 10))
ASIDE = {name: network for name, network in NETWORKS.items() if name in _CHOSEN}
READ = {name: network for name, network in NETWORKS.items() if name not in _CHOSEN}
SETS = {"read": READ, "aside": ASIDE}
