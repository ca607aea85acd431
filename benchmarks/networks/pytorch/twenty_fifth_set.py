"""Sixteen networks of families new to sets for TensorRT-RTX, of which eight were read.

In pairs of a kind: vision, text, segmentation, speech, graphs, files as of Keras, diffusion and
super-resolution. Seed 20263015 decided before anything was built which of each pair is read, and
which of PyTorch's exporters writes each network. Random weights. Needs monai besides what
``exported`` needs.

python -m benchmarks.networks.write twenty_fifth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks twenty_fifth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import diffusers
import monai
import torch
from torch import nn

from benchmarks.networks.pytorch import twenty_fifth_set_modules as modules
from benchmarks.networks.pytorch.deployed import Outputs, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network

_SEED = 20263015
_REFUSED = ("BEiT",)  # By the newer exporter.
_GRAPH = (torch.zeros(1, 40, 24), torch.zeros(1, 40, 40))
_LAST = (torch.zeros(1, 64, 64, 3),)


def _ddpm() -> nn.Module:
    whole = diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=8,
        block_out_channels=(32, 64, 64), attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return Outputs(whole, lambda found: found.sample)


class _Conditioned(nn.Module):
    """SDXL's denoiser, small, which is given sizes and a pooled text besides the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNet2DConditionModel(
            sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
            block_out_channels=(32, 64), norm_num_groups=8, attention_head_dim=(2, 4),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=48,
            transformer_layers_per_block=2, use_linear_projection=True,
            addition_embed_type="text_time", addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + 32,
        )  # fmt: skip

    def forward(
        self, sample: torch.Tensor, step: torch.Tensor, tokens: torch.Tensor,
        pooled: torch.Tensor, sizes: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The predicted noise."""
        added = {"text_embeds": pooled, "time_ids": sizes}
        found = self.whole(sample, step, tokens, added_cond_kwargs=added)
        noise: torch.Tensor = found.sample
        return noise


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "BEiT": timm_network(
            "beit_base_patch16_224", 64, False, img_size=64, embed_dim=64, depth=3, num_heads=4
        ),
        "Next-ViT": timm_network("nextvit_small", 64, False),
    },
    {
        "ESM": words(
            "Esm:Model", "last_hidden_state", False, position_embedding_type="rotary",
            pad_token_id=1, mask_token_id=2,
        ),
        "RemBERT": words(
            "RemBert:Model", "last_hidden_state", False, input_embedding_size=32,
            output_embedding_size=48,
        ),
    },
    {
        "U-Net with attention": Network.of(
            lambda: monai.networks.nets.AttentionUnet(2, 3, 2, (16, 32, 64), (2, 2)), *image(64)
        ),
        "U-Net++": Network.of(
            lambda: monai.networks.nets.BasicUNetPlusPlus(
                2, 3, 2, (16, 16, 32, 48, 64, 16), norm="batch"
            ),
            *image(64),
        ),
    },
    {
        "MelGAN": Network.of(modules.MelGan, torch.zeros(1, 40, 32)),
        "Vocos": Network.of(modules.Vocos, torch.zeros(1, 40, 48)),
    },
    {
        "GAT": Network.of(modules.GraphAttention, *_GRAPH),
        "GraphSAGE": Network.of(modules.GraphSage, *_GRAPH),
    },
    {
        "MobileNet (Keras)": Network.of(modules.KerasMobileNet, *_LAST),
        "Xception (Keras)": Network.of(modules.KerasXception, *_LAST),
    },
    {
        "DDPM": Network.of(_ddpm, torch.zeros(1, 3, 16, 16), torch.tensor([7.0])),
        "Stable Diffusion XL": Network.of(
            _Conditioned, torch.zeros(1, 4, 16, 16), torch.tensor([7.0]), torch.zeros(1, 12, 48),
            torch.zeros(1, 32), torch.zeros(1, 6),
        ),
    },
    {
        "MSRN": Network.of(modules.Msrn, *image(32)),
        "RFDN": Network.of(modules.Rfdn, *image(48)),
    },
)  # fmt: skip


def _exported(networks: Mapping[str, Network]) -> Mapping[str, Network]:
    """``networks``, each by one of the exporters, drawn by its name."""
    return {
        name: replace(
            network, dynamo=name not in _REFUSED and Random(f"{_SEED} {name}").random() < 0.5
        )
        for name, network in networks.items()
    }


READ, ASIDE = map(_exported, drawn_at_random(PAIRS, _SEED))
SETS = {"read": READ, "aside": ASIDE}
