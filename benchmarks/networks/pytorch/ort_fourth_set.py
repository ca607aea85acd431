"""Networks of families that no earlier set has, for plans of ONNX Runtime; only figures were read.

Families and exporters were drawn by seed from those of transformers, timm and torchvision. Random
weights.

python -m benchmarks.networks.write ort_fourth_set --folder networks
python -m benchmarks.plans.onnxruntime --networks ort_fourth_set --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torchvision
from torch import nn
from transformers import (
    MaskFormerSwinConfig,
    MaskFormerSwinModel,
    SLANetBackbone,
    SLANetConfig,
)

from benchmarks.networks.pytorch.deployed import VISION, Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
_SWIN = MaskFormerSwinConfig(embed_dim=48, depths=[2, 2], num_heads=[3, 6])
_CLIP = (torch.zeros(1, 3, 8, 64, 64),)
_FLAUBERT = {"emb_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 100}
_MARKUP = {"max_depth": 8, "xpath_unit_hidden_size": 8}
_FRAMES = {**VISION, "num_frames": 4}
_SPECTRUM = {**VISION, "max_length": 64, "num_mel_bins": 32}


def _first(whole: nn.Module) -> nn.Module:
    return Outputs(whole, lambda found: found[0])


def _video(name: str, **options: object) -> nn.Module:
    return torchvision.models.get_model(name, weights=None, num_classes=10, **options)


ASIDE: Mapping[str, Network] = {
    "Flaubert": words("Flaubert:Model", _STATE, False, **_FLAUBERT),
    "Data2Vec (text)": words("Data2VecText:Model", _STATE, False),
    "Doge": words("Doge:Model", _STATE, False, num_key_value_heads=2),
    "MarkupLM": words("MarkupLM:Model", _STATE, False, **_MARKUP),
    "GIT (vision)": hidden("GitVision:Model", _IMAGE, False, **VISION),
    "BLIP (vision)": hidden("BlipVision:Model", _IMAGE, False, **VISION),
    "OWL-ViT (vision)": hidden("OwlViTVision:Model", _IMAGE, False, **VISION),
    "ViViT": hidden(
        "Vivit:Model",
        (torch.zeros(1, 4, 3, 64, 64),),
        True,
        **{**_FRAMES, "tubelet_size": [2, 16, 16]},
    ),
    "AST": hidden("AST:Model", (torch.zeros(1, 64, 32),), True, **_SPECTRUM),
    "SLANet": Network(lambda: _first(SLANetBackbone(SLANetConfig())), _IMAGE, dynamo=False),
    "MaskFormer (Swin)": Network(
        lambda: _first(MaskFormerSwinModel(_SWIN)), (torch.zeros(1, 3, 112, 112),), dynamo=False
    ),
    "VGG": timm_network("vgg11_bn", 64, dynamo=True, mlp_ratio=0.0625),
    "Swin3D": Network(lambda: _video("swin3d_t"), _CLIP, dynamo=False),
}
SETS = {"aside": ASIDE}
