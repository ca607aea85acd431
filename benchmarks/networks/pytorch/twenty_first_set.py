"""Networks of families that no earlier set holds, of which five were read; two are FP16 files.

One of each of ten lists of three to seven, drawn with seed 20263011 before anything was built; the
same draw decided which five were read afterwards. Random weights. DenseNet-121 of Keras is written
by `benchmarks.networks.by_tensorflow`.

python -m benchmarks.networks.write twenty_first_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 2 --networks twenty_first_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import segmentation_models_pytorch as smp
import timm
import torch
import transformers
from torch import nn

from benchmarks.networks.pytorch import twenty_first_set_modules as modules
from benchmarks.networks.pytorch.deployed import Outputs
from benchmarks.networks.pytorch.export import Network, image, timm_network

_TOKENS = torch.arange(32)[None] % 90
_HALF = (torch.zeros(1, 3, 64, 64, dtype=torch.float16),)


def _albert() -> nn.Module:
    config = transformers.AlbertConfig(
        vocab_size=100, embedding_size=32, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=128, max_position_embeddings=64,
    )  # fmt: skip
    return Outputs(transformers.AlbertModel(config), lambda found: found.last_hidden_state)


def _half(name: str, **options: object) -> nn.Module:
    module: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, **options)
    return module.half()


READ: Mapping[str, Network] = {
    "HardCoRe-NAS": timm_network("hardcorenas_a", 64, dynamo=False),
    "Linknet": Network(
        lambda: smp.Linknet("resnet18", encoder_weights=None, classes=5), image(64), dynamo=False
    ),
    "Swin FP16": Network(
        lambda: _half("swin_tiny_patch4_window7_224", img_size=64, window_size=4), _HALF, True
    ),
    "SwinIR": Network(modules.SwinIr, image(32), dynamo=True),
}
ASIDE: Mapping[str, Network] = {
    "ALBERT": Network(_albert, (_TOKENS,), dynamo=False),
    "Conv-TasNet": Network(modules.ConvTasNet, (torch.zeros(1, 1, 1608),), dynamo=False),
    "EfficientDet": Network(modules.EfficientDet, image(128), dynamo=False),
    "PVTv2": timm_network("pvt_v2_b0", 64, dynamo=True),
    "ResNet-50 FP16": Network(lambda: _half("resnet50"), _HALF, False),
}
SETS = {"read": READ, "aside": ASIDE}
