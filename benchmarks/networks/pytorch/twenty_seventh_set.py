"""Sixteen networks of families that no earlier set of this builder has, of which eight were read.

In pairs of a kind: classifiers, detection, language, speech, diffusion, restored images, tables
and series, graphs and points. Seed 20263017 decided before anything was built which of each pair
is read, and which of PyTorch's exporters writes each network. Random weights.

python -m benchmarks.networks.write twenty_seventh_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_seventh_set \\
    --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import transformers
from timm.models import iformer, shvit
from torch import nn

from benchmarks.networks.pytorch.deployed import Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, exporters_drawn, image
from benchmarks.networks.pytorch.twenty_seventh_set_modules import (
    East,
    Gin,
    Mirnet,
    NHits,
    PointNet2,
    Uformer,
    XDeepFm,
    Yolof,
)

_SEED = 20263017


def _speech() -> nn.Module:
    config = transformers.Speech2TextConfig(
        vocab_size=32, d_model=64, encoder_layers=2, decoder_layers=1, encoder_ffn_dim=128,
        decoder_ffn_dim=128, conv_channels=96, max_source_positions=64,
        attn_implementation="eager",
    )  # fmt: skip
    return Outputs(transformers.Speech2TextModel(config).get_encoder(), lambda found: found[0])


def _sana() -> nn.Module:
    whole = diffusers.SanaTransformer2DModel(
        in_channels=4, out_channels=4, num_attention_heads=4, attention_head_dim=16, num_layers=2,
        num_cross_attention_heads=4, cross_attention_head_dim=16, cross_attention_dim=64,
        caption_channels=48, sample_size=16,
    )  # fmt: skip
    return Outputs(whole, lambda found: found[0])


class _Hunyuan(nn.Module):
    """Hunyuan-DiT's denoiser, small: attention with norms of queries, and skips over blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.HunyuanDiT2DModel(
            num_attention_heads=4, attention_head_dim=16, in_channels=4, patch_size=2,
            sample_size=16, hidden_size=64, num_layers=4, mlp_ratio=2.0, cross_attention_dim=48,
            cross_attention_dim_t5=40, pooled_projection_dim=32, text_len=12, text_len_t5=16,
            use_style_cond_and_image_meta_size=False,
        )  # fmt: skip

    def forward(
        self, noise: torch.Tensor, step: torch.Tensor, tokens: torch.Tensor, others: torch.Tensor
    ) -> torch.Tensor:
        """The predicted noise."""
        masks = torch.ones(tokens.shape[:2]), torch.ones(others.shape[:2])
        angles = torch.arange(64.0)[:, None] * 0.1 ** torch.arange(8).repeat_interleave(2)
        made: torch.Tensor = self.whole(
            noise, step, tokens, masks[0], others, masks[1],
            image_rotary_emb=(angles.cos(), angles.sin()), return_dict=False,
        )[0]  # fmt: skip
        return made


_NOISE = torch.zeros(1, 4, 16, 16), torch.tensor([7.0])

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "iFormer": Network.of(
            lambda: iformer.IFormer(
                num_classes=10, depths=(1, 1, 4, 3), attn_groups=(0, 0, 1, 1),
            ),
            *image(64),
        ),
        "SHViT": Network.of(
            lambda: shvit.SHViT(
                num_classes=10, embed_dim=(64, 96, 128), partial_dim=(16, 32, 48),
                types=("i", "s", "s"),
            ),
            *image(128),
        ),
    },
    {"EAST": Network.of(East, *image(128)), "YOLOF": Network.of(Yolof, *image(128))},
    {
        "Phi-3": words("Phi3:ForCausalLM", "logits", False, pad_token_id=0),
        "ERNIE 4.5": words(
            "Ernie4_5:ForCausalLM", "logits", False, num_key_value_heads=2, head_dim=16
        ),
    },
    {
        "Speech2Text": Network.of(_speech, torch.zeros(1, 128, 80)),
        "SEW-D": hidden(
            "SEWD:Model", (torch.zeros(1, 4000),), False, hidden_size=64, num_hidden_layers=2,
            num_attention_heads=4, intermediate_size=128, vocab_size=32, conv_dim=(32, 64, 64),
            conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4), num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4, position_buckets=32, max_position_embeddings=64,
        ),
    },
    {
        "SANA": Network.of(_sana, _NOISE[0], torch.zeros(1, 12, 48), _NOISE[1]),
        "Hunyuan-DiT": Network.of(
            _Hunyuan, *_NOISE, torch.zeros(1, 12, 48), torch.zeros(1, 16, 40)
        ),
    },
    {"MIRNet": Network.of(Mirnet, *image(32)), "Uformer": Network.of(Uformer, *image(32))},
    {
        "xDeepFM": Network.of(XDeepFm, torch.zeros(16, 12, dtype=torch.int64)),
        "N-HiTS": Network.of(NHits, torch.zeros(16, 96)),
    },
    {
        "GIN": Network.of(Gin, torch.zeros(4, 32, 16), torch.zeros(4, 32, 32)),
        "PointNet++": Network.of(PointNet2, torch.zeros(2, 128, 6)),
    },
)  # fmt: skip


READ, ASIDE = (exporters_drawn(drawn, _SEED) for drawn in drawn_at_random(PAIRS, _SEED))
SETS = {"read": READ, "aside": ASIDE}
