"""Twelve networks of families that no earlier set holds, in pairs of a kind; six were read.

Of each pair one was drawn to be read, by seed 2026113012, before anything was built. Random
weights; needs timm and transformers.

python -m benchmarks.networks.write openvino_sixth_set --folder networks
python -m benchmarks.plans.openvino --placements 3 --networks openvino_sixth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torchvision.models import detection

from benchmarks.networks.pytorch import openvino_sixth_set_modules as modules
from benchmarks.networks.pytorch.deployed import Heads, hidden, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network

_STATE = "last_hidden_state"
_SOUND = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_SEW = {**_SOUND, "squeeze_factor": 2}
_WORDS = {"embedding_size": 32, "intra_bottleneck_size": 32, "trigram_input": False}


def _retina() -> nn.Module:
    return Heads(
        detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5)
    )


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "MobileBERT": words("MobileBert:Model", _STATE, False, **_WORDS),
        "EVA-02": timm_network("eva02_tiny_patch14_224", 56, True, depth=2, img_size=56),
    },
    {
        "WavLM": hidden("WavLM:Model", (torch.zeros(1, 2000),), False, **_SOUND),
        "SEW": hidden("SEW:Model", (torch.zeros(1, 2000),), True, **_SEW),
    },
    {
        "ICNet": Network(modules.IcNet, image(128), False),
        "U-Net 3+": Network(modules.UNet3Plus, image(64), True),
    },
    {
        "RetinaNet": Network(_retina, image(96), True),
        "CenterNet": Network(modules.CenterNet, image(96), False),
    },
    {
        "FullSubNet": Network(modules.FullSubNet, (torch.rand(1, 1, 33, 24),), False),
        "Tacotron 2": Network(modules.Tacotron2, (torch.zeros(1, 24, dtype=torch.int64),), True),
    },
    {
        "IMDN": Network(modules.Imdn, image(32), True),
        "RLFN": Network(modules.Rlfn, image(48), False),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, 2026113012)
SETS = {"read": READ, "aside": ASIDE}
