"""Thirteen networks of kinds that no other list has, of which only figures were read.

As timm and transformers write them, with random weights and smaller.

python -m benchmarks.networks.write fifth_lot --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks fifth_lot --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import transformers
from torch import nn

from benchmarks.networks.pytorch.deployed import VISION, first_output, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_IMAGE = (torch.zeros(1, 3, 64, 64),)


def _pvt() -> nn.Module:
    config = transformers.PvtConfig(
        image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64],
        num_attention_heads=[1, 2, 3, 4],
    )  # fmt: skip
    return transformers.PvtModel(config)


def _translator() -> nn.Module:
    config = transformers.M2M100Config(
        vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.M2M100Model(config).encoder


_TINY_VIT = {"embed_dims": (16, 32, 64, 96), "depths": (1, 1, 2, 1),
             "num_heads": (1, 2, 4, 6), "window_sizes": (4, 4, 4, 2)}  # fmt: skip
ASIDE: Mapping[str, Network] = {
    "HardCoRe-NAS": timm_network("hardcorenas_a", 64, dynamo=False),
    "TinyNet": timm_network("tinynet_e", 64, dynamo=False),
    "LCNet": timm_network("lcnet_050", 64, dynamo=False),
    "ECA-ResNet": timm_network("ecaresnet26t", 64, dynamo=False),
    "SelecSLS": timm_network("selecsls42", 64, dynamo=False),
    "GERNet": timm_network("gernet_s", 64, dynamo=False),
    "EfficientNet-Lite": timm_network("tf_efficientnet_lite0", 64, dynamo=False),
    "CAFormer": timm_network("caformer_s18", 64, dynamo=False),
    "TinyViT": timm_network("tiny_vit_5m_224", 64, dynamo=False, **_TINY_VIT),
    "PVT": Network(first_output(_pvt), _IMAGE, False),
    "BLIP": hidden("BlipVision:Model", _IMAGE, False, **VISION),
    "Falcon": words("Falcon:Model", "last_hidden_state", False, alibi=False),
    "M2M100": Network(first_output(_translator), (torch.ones(1, 16, dtype=torch.int64),), False),
}
SETS = {"aside": ASIDE}
