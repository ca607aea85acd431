"""Eighteen networks that no earlier set of this builder has, of which nine were read.

In pairs of a kind: language (two pairs of decoders, and other transformers of text), images by
transformers, classifiers, segmentation, detection, restored images and sound. Seed 20263029 decided
before anything was built which of each pair is read, and which of PyTorch's exporters writes each
network. Random weights.

python -m benchmarks.networks.write twenty_ninth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_ninth_set \\
    --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import torch
from timm.models import convnext, nextvit
from torch import nn

from benchmarks.networks.pytorch.deployed import hidden, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image
from benchmarks.networks.pytorch.twenty_ninth_set_modules import (
    CbdNet,
    CornerNet,
    DenseAspp,
    EBranchformer,
    HifiGan,
    MprNet,
    OcrNet,
    RfbNet,
)

_SEED = 20263029


def _of(make: Callable[[], nn.Module], *inputs: torch.Tensor) -> Network:
    return Network(make, inputs, dynamo=False)


def _decoder(name: str, **options: object) -> Network:
    return words(f"{name}:ForCausalLM", "logits", False, num_key_value_heads=2, **options)


_IMAGES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
    "patch_size": 8, "intermediate_size": 128,
}  # fmt: skip

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "OLMo 3": _decoder("Olmo3", pad_token_id=0),
        "Hunyuan (dense)": _decoder("HunYuanDenseV1", head_dim=16, pad_token_id=0),
    },
    {
        "OLMo": _decoder("Olmo", pad_token_id=0),
        "GLM": _decoder("Glm", head_dim=16, pad_token_id=0),
    },
    {
        "GPT-Neo": words(
            "GPTNeo:ForCausalLM", "logits", False, num_layers=2, num_heads=4,
            attention_types=[[["global", "local"], 1]], window_size=8,
        ),
        "BioGPT": words("BioGpt:ForCausalLM", "logits", False),
    },
    {
        "Pixtral": hidden("PixtralVision:Model", image(64), False, **_IMAGES, head_dim=16),
        "Data2Vec (images)": hidden("Data2VecVision:Model", image(64), False, **_IMAGES,
                                    use_relative_position_bias=True),
    },
    {
        "ConvNeXt V2": _of(
            lambda: convnext.ConvNeXt(
                num_classes=10, depths=(2, 2, 3, 2), dims=(24, 48, 96, 192), use_grn=True,
                ls_init_value=None,
            ),
            *image(64),
        ),
        "Next-ViT": _of(
            lambda: nextvit.NextViT(
                num_classes=10, in_chans=3, stem_chs=(32, 16, 32), depths=(2, 2, 5, 2),
            ),
            *image(64),
        ),
    },
    {"DenseASPP": _of(DenseAspp, *image(128)), "OCRNet": _of(OcrNet, *image(128))},
    {"RFBNet": _of(RfbNet, *image(128)), "CornerNet": _of(CornerNet, *image(96))},
    {"CBDNet": _of(CbdNet, *image(48)), "MPRNet": _of(MprNet, *image(32))},
    {
        "E-Branchformer": _of(EBranchformer, torch.zeros(1, 96, 80)),
        "HiFi-GAN": _of(HifiGan, torch.zeros(1, 80, 24)),
    },
)  # fmt: skip


def _exported(networks: Mapping[str, Network]) -> Mapping[str, Network]:
    """``networks``, each by one of the exporters, drawn by its name."""
    return {
        name: replace(network, dynamo=Random(f"{_SEED} {name}").random() < 0.5)
        for name, network in networks.items()
    }


READ, ASIDE = map(_exported, drawn_at_random(PAIRS, _SEED))
SETS = {"read": READ, "aside": ASIDE}
