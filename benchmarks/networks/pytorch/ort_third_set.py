"""Networks drawn by seed for plans of ONNX Runtime, of which only figures were read.

The modules of timm that no earlier set has and variants of others, one of torchvision, and models
of transformers that no earlier set has and that are given tokens or an image. Exporters were drawn,
too. Random weights.

python -m benchmarks.networks.write ort_third_set --folder networks
python -m benchmarks.plans.onnxruntime --networks ort_third_set --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torchvision

from benchmarks.networks.pytorch.deployed import VISION, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
_SAM = {"depth": 3, "embed_dim": 192, "num_heads": 3, "global_attn_indexes": (1,)}
_GATED = {"num_key_value_heads": 2, "head_dim": 16}
_ENCODER = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}


def _shuffle_net() -> torch.nn.Module:
    return torchvision.models.shufflenet_v2_x1_5(weights=None, num_classes=10)


ASIDE: Mapping[str, Network] = {
    "SAM-ViT": timm_network("samvit_base_patch16_224", 224, dynamo=False, **_SAM),
    "Qwen3-ViT": timm_network("qwen3_vit_88m", 128, dynamo=True, depth=2, img_size=128),
    "BoTNet": timm_network("botnet50ts_256", 256, dynamo=True),
    "TinyNet-C": timm_network("tinynet_c", 128, dynamo=False),
    "CS3DarkNet": timm_network("cs3darknet_m", 96, dynamo=False),
    "PoolFormer v2": timm_network("poolformerv2_s24", 96, dynamo=False),
    "RegNetZ": timm_network("regnetz_040", 96, dynamo=True),
    "ShuffleNet v2": Network(_shuffle_net, (torch.zeros(1, 3, 64, 64),), dynamo=True),
    "LFM2": words("Lfm2:Model", _STATE, True, num_key_value_heads=2),
    "VaultGemma": words("VaultGemma:Model", _STATE, False, **_GATED),
    "VisualBERT": words("VisualBert:Model", _STATE, False),
    "UMT5": words("UMT5:EncoderModel", _STATE, False, **_ENCODER),
    "MLCD": hidden("MLCDVision:Model", _IMAGE, False, **VISION),
    "AIMv2": hidden("Aimv2Vision:Model", _IMAGE, True, **VISION),
    "InternViT": hidden(
        "InternVLVision:Model",
        _IMAGE,
        False,
        **{**VISION, "image_size": (64, 64), "patch_size": (16, 16)},
    ),
}
SETS = {"aside": ASIDE}
