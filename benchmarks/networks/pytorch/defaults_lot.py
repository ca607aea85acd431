"""Networks drawn by seed from all of timm and transformers, of which only figures were read.

One architecture that no other list has of each of 26 modules of timm, and 28 models of transformers
that are given tokens or an image, in the order of the draw; left out is what has more than 26
million weights or what PyTorch's exporter does not write in two minutes. Random weights.

python -m benchmarks.networks.write defaults_lot --folder networks
python -m benchmarks.peers.onnxruntime_defaults --networks defaults_lot --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch.deployed import VISION, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
_WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8}
ASIDE: Mapping[str, Network] = {
    "PVTv2": timm_network("pvt_v2_b2", 96, dynamo=True),
    "GhostNet": timm_network("ghostnet_050", 128, dynamo=True),
    "RepViT": timm_network("repvit_m1_1", 96, dynamo=True),
    "CrossViT": timm_network("crossvit_9_dagger_240", 240, dynamo=False),
    "Twins": timm_network("twins_pcpvt_small", 224, dynamo=True),
    "SK-ResNet": timm_network("skresnet34", 128, dynamo=False),
    "TNT": timm_network("tnt_s_legacy_patch16_224", 224, dynamo=True),
    "EfficientFormerV2": timm_network("efficientformerv2_s1", 224, dynamo=False),
    "SHViT": timm_network("shvit_s3", 96, dynamo=True),
    "LowFormer": timm_network("lowformer_e1", 96, dynamo=True),
    "ConvMixer": timm_network("convmixer_1024_20_ks9_p14", 128, dynamo=True),
    "LambdaResNet": timm_network("lambda_resnet50ts", 160, dynamo=True),
    "NesT": timm_network("nest_tiny_jx", 224, dynamo=False),
    "XCiT": timm_network("xcit_tiny_24_p8_224", 224, dynamo=False),
    "EfficientViM": timm_network("efficientvim_m4_dist", 96, dynamo=True),
    "GCViT": timm_network("gcvit_xtiny", 224, dynamo=True),
    "CaiT": timm_network("cait_xxs36_224", 224, dynamo=False),
    "Persimmon": words("Persimmon:Model", _STATE, True),
    "Pixio": hidden("Pixio:Model", _IMAGE, False, **VISION),
    "TextNet": hidden("TextNet:Model", _IMAGE, False, **{**VISION, **_WIDE}),
    "RoCBert": words("RoCBert:Model", _STATE, True),
    "Ministral 3": words("Ministral3:Model", _STATE, True, **_WIDE),
}
SETS = {"aside": ASIDE}
