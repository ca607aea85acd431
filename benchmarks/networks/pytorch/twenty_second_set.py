"""Twelve networks of families that no earlier set holds, of which six were read, drawn at random.

Seed 20263012 decided before anything was built which half is read and which of PyTorch's exporters
writes each network. CogView 4 and gpt-oss stand in for Lumina 2 and Llama 4, whose complex numbers
neither writes; Perception Encoder only the newer one writes. Random weights. Needs diffusers, monai
and spandrel besides what ``exported`` needs.

python -m benchmarks.networks.write twenty_second_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_second_set --folder networks
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import diffusers
import torch
from monai.networks.nets import SegResNet
from spandrel.architectures.OmniSR import OmniSR
from torch import Tensor, nn

from benchmarks.networks.pytorch import twenty_second_set_modules as modules
from benchmarks.networks.pytorch.export import Network, image, timm_network

_PERCEPTION = {"img_size": 64, "depth": 2, "embed_dim": 64, "num_heads": 4}


def _cogview() -> nn.Module:
    model = diffusers.CogView4Transformer2DModel(
        patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=4, text_embed_dim=32, time_embed_dim=64, condition_dim=16,
        pos_embed_max_size=32, sample_size=16, rope_axes_dim=(16, 16),
    )  # fmt: skip
    return _Denoiser(model)


class _Denoiser(nn.Module):
    """A denoiser whose sizes are constant."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("size", torch.tensor([[128.0, 128.0]]))
        self.register_buffer("corner", torch.zeros(1, 2))

    def forward(self, latents: Tensor, text: Tensor, step: Tensor) -> Tensor:
        """The noise."""
        sizes = self.size, self.size, self.corner
        noise: Tensor = self.model(latents, text, step, *sizes, return_dict=False)[0]
        return noise


_ALL: Mapping[str, Callable[[bool], Network]] = {
    "BigGAN": lambda dynamo: Network(
        modules.BigGan, (torch.zeros(1, 80), torch.zeros(1, 10)), dynamo
    ),
    "BiSeNet v2": lambda dynamo: Network(modules.BiSeNetV2, image(128), dynamo),
    "DGCNN": lambda dynamo: Network(modules.Dgcnn, (torch.zeros(1, 3, 64),), dynamo),
    "InceptionTime": lambda dynamo: Network(
        modules.InceptionTime, (torch.zeros(1, 6, 96),), dynamo
    ),
    "gpt-oss": lambda dynamo: Network(modules.GptOss, (torch.arange(24)[None],), dynamo),
    "CogView 4": lambda dynamo: Network(
        _cogview, (torch.zeros(1, 4, 16, 16), torch.zeros(1, 12, 32), torch.zeros(1)), dynamo
    ),
    "Monodepth2": lambda dynamo: Network(modules.Monodepth2, image(64), dynamo),
    "OmniSR": lambda dynamo: Network(
        lambda: OmniSR(num_feat=32, window_size=8, res_num=2), image(32), dynamo
    ),
    "Paraformer": lambda dynamo: Network(modules.Paraformer, (torch.zeros(1, 40, 80),), dynamo),
    "Perception Encoder": lambda dynamo: timm_network(
        "vit_pe_core_tiny_patch16_384", 64, dynamo, **_PERCEPTION
    ),
    "RTMDet": lambda dynamo: Network(modules.RtmDet, image(128), dynamo),
    "SegResNet": lambda dynamo: Network(
        lambda: SegResNet(3, 8, 1, 3, blocks_down=(1, 2, 2), blocks_up=(1, 1)),
        (torch.zeros(1, 1, 16, 32, 32),),
        dynamo,
    ),
}


_NEWER_ONLY = frozenset({"Perception Encoder"})
_DRAWN_FIRST = {"CogView 4": "Lumina 2", "gpt-oss": "Llama 4"}


def _drawn() -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    draw, read, aside = Random(20263012), dict[str, Network](), dict[str, Network]()
    named = sorted(_ALL, key=lambda name: _DRAWN_FIRST.get(name, name))
    for number, name in enumerate(draw.sample(named, len(named))):
        dynamo = draw.random() < 0.5 or name in _NEWER_ONLY
        (read if number % 2 else aside)[name] = _ALL[name](dynamo)
    return read, aside


READ, ASIDE = _drawn()
SETS = {"read": READ, "aside": ASIDE}
