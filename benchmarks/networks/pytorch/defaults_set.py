"""Networks drawn by seed from all of timm and transformers, of which only figures were read.

Two draws, the second of which took no part in any time that the pack states. Each: an architecture
that no other list has of each of some 30 modules of timm, and some 30 models of transformers that
are given tokens or an image; left out is what has more than 26 million weights (22 in the second)
or what PyTorch's exporter does not write in two minutes. Random weights.

python -m benchmarks.networks.write defaults_set --folder networks
python -m benchmarks.peers.onnxruntime_defaults --networks defaults_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch.deployed import VISION, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
_WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8}
FIRST: Mapping[str, Network] = {
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
SECOND: Mapping[str, Network] = {
    "gMLP": timm_network("gmlp_s16_224", 224, dynamo=True),
    "DPN": timm_network("dpn68", 128, dynamo=False),
    "RegNetV": timm_network("regnetv_040", 128, dynamo=False),
    "StarNet": timm_network("starnet_s3", 128, dynamo=True),
    "ViT, patches of 8": timm_network("vit_small_patch8_224", 224, dynamo=True),
    "EfficientFormerV2-S2": timm_network("efficientformerv2_s2", 224, dynamo=False),
    "HardCoReNAS": timm_network("hardcorenas_c", 128, dynamo=True),
    "ReXNet": timm_network("rexnet_130", 96, dynamo=True),
    "HRNet": timm_network("hrnet_w18", 160, dynamo=False),
    "PVTv2-B1": timm_network("pvt_v2_b1", 128, dynamo=True),
    "TinyViT": timm_network("tiny_vit_21m_512", 96, dynamo=True),
    "LeViT": timm_network("levit_conv_256", 224, dynamo=False),
    "MaxViT": timm_network("maxvit_nano_rw_256", 256, dynamo=False),
    "MobileViTv2": timm_network("mobilevitv2_175", 128, dynamo=True),
    "CoaT": timm_network("coat_lite_small", 224, dynamo=True),
    "EfficientViT-M": timm_network("efficientvit_m2", 224, dynamo=True),
    "ResNetV2": timm_network("resnetv2_18d", 128, dynamo=False),
    "ConvNeXt, tiny": timm_network("test_convnext", 160, dynamo=True),
    "EfficientNet-Lite": timm_network("tf_efficientnet_lite3", 96, dynamo=True),
    "RepGhostNet": timm_network("repghostnet_200", 96, dynamo=False),
    "FasterNet": timm_network("fasternet_t2", 128, dynamo=False),
    "CSPResNet": timm_network("cspresnet50d", 128, dynamo=False),
    "Muse Glimmer": words("MuseGlimmerText:Model", _STATE, True, **_WIDE),
    "NanoChat": words("NanoChat:Model", _STATE, True),
    "XLM-RoBERTa-XL": words("XLMRobertaXL:Model", _STATE, True, **_WIDE),
    "X-CLIP (text)": words("XCLIPText:Model", _STATE, True),
    "Gemma 4 (text)": words("Gemma4UnifiedText:Model", _STATE, True, **_WIDE),
    "Chinese CLIP (images)": hidden(
        "ChineseCLIPVision:Model", _IMAGE, True, **{**VISION, **_WIDE}
    ),
    "TIPSv2 (text)": words("Tipsv2Text:Model", _STATE, False),
    "Arcee": words("Arcee:Model", _STATE, True, **_WIDE),
}  # fmt: skip
SETS = {"first": FIRST, "second": SECOND}
