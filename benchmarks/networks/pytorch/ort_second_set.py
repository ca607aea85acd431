"""Networks drawn by seed for plans of ONNX Runtime, of which only figures were read.

An architecture that no other list has, of at most 16 million weights, of each of 16 modules of
timm, and eight models of transformers that no other list has and that are given tokens or an image,
less six that PyTorch's exporters do not write. Sizes and exporters were drawn, too. Random weights.

python -m benchmarks.networks.write ort_second_set --folder networks
python -m benchmarks.plans.onnxruntime --networks ort_second_set --folder networks --placements 2
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch.deployed import VISION, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_STATE, _IMAGE = "last_hidden_state", (torch.zeros(1, 3, 64, 64),)
ASIDE: Mapping[str, Network] = {
    "EfficientViT-M5": timm_network("efficientvit_m5", 224, dynamo=False),
    "ReXNet 2.0": timm_network("rexnet_200", 128, dynamo=False),
    "EfficientViM-M2": timm_network("efficientvim_m2_dist", 64, dynamo=True),
    "CoAtNet": timm_network("coatnet_rmlp_nano_rw_224", 224, dynamo=True),
    "FasterNet-T1": timm_network("fasternet_t1", 128, dynamo=True),
    "MixNet": timm_network("mixnet_l", 128, dynamo=False),
    "CSPNeXt": timm_network("cspnext_s", 64, dynamo=False),
    "VoVNet": timm_network("ese_vovnet19b_slim_dw", 128, dynamo=True),
    "FastViT": timm_network("fastvit_s12", 96, dynamo=True),
    "PoolFormer": timm_network("poolformer_s12", 64, dynamo=True),
    "RepGhostNet 0.58": timm_network("repghostnet_058", 64, dynamo=False),
    "SwiftFormer": timm_network("swiftformer_s", 224, dynamo=False),
    "StarNet-S100": timm_network("starnet_s100", 64, dynamo=False),
    "ConvNeXt-Femto": timm_network("convnext_femto", 96, dynamo=True),
    "Splinter": words("Splinter:Model", _STATE, False),
    "MegatronBERT": words("MegatronBert:Model", _STATE, False),
    "CamemBERT": words("Camembert:Model", _STATE, True),
    "ViT-MSN": hidden("ViTMSN:Model", _IMAGE, False, **VISION),
}
SETS = {"aside": ASIDE}
