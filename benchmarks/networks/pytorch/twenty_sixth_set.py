"""Fourteen networks for placements that leave half in float, of which seven were read.

In pairs of a kind: classifiers, images as tokens, text, segmentation, detection, speech and
diffusion. Seed 20263016 decided before anything was built which of each pair is read, and which of
PyTorch's exporters writes each network. Random weights. Needs monai besides what ``exported``
needs.

python -m benchmarks.networks.write twenty_sixth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_sixth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import monai
import torch
from timm.models import metaformer, mlp_mixer
from torch import nn

from benchmarks.networks.pytorch.deployed import Outputs, hidden, words
from benchmarks.networks.pytorch.export import (
    Network,
    drawn_at_random,
    exporters_drawn,
    image,
    timm_network,
)
from benchmarks.networks.pytorch.ninth_set_modules import RetinaFace
from benchmarks.networks.pytorch.twenty_sixth_set_modules import TinyYolo7

_SEED = 20263016
_SPEECH = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip


def _control() -> nn.Module:
    whole = diffusers.ControlNetModel(
        in_channels=4, conditioning_channels=3, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), norm_num_groups=8,
        attention_head_dim=4, cross_attention_dim=48, conditioning_embedding_out_channels=(8, 16),
    )  # fmt: skip
    return Outputs(whole, lambda found: [*found[0], found[1]])


class _Kandinsky(nn.Module):
    """Kandinsky's denoiser, small: attention over a map's positions and the tokens at once."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNet2DConditionModel(
            sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, norm_num_groups=8,
            block_out_channels=(32, 64), attention_head_dim=8, cross_attention_dim=48,
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn", resnet_time_scale_shift="scale_shift",
        )  # fmt: skip

    def forward(
        self, sample: torch.Tensor, step: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        """The predicted noise."""
        noise: torch.Tensor = self.whole(sample, step, tokens).sample
        return noise


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "DLA": timm_network("dla34", 64, False),
        "SelecSLS": timm_network("selecsls42b", 64, False),
    },
    {
        "CAFormer": Network.of(
            lambda: metaformer.MetaFormer(
                num_classes=10, depths=(1, 1, 2, 1), dims=(32, 64, 96, 128),
                token_mixers=[*[metaformer.SepConv] * 2, *[metaformer.Attention] * 2],
                norm_layers=[
                    *[metaformer.LayerNorm2dNoBias] * 2, *[metaformer.LayerNormNoBias] * 2
                ],
            ),
            *image(64),
        ),
        "ResMLP": Network.of(
            lambda: mlp_mixer.MlpMixer(
                10, img_size=64, num_blocks=3, embed_dim=64, mlp_ratio=4,
                block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine,
            ),
            *image(64),
        ),
    },
    {
        "ERNIE": words("Ernie:Model", "last_hidden_state", False),
        "StableLM": words("StableLm:ForCausalLM", "logits", False, num_key_value_heads=2),
    },
    {
        "DynUNet": Network.of(
            lambda: monai.networks.nets.DynUNet(
                2, 3, 2, (3, 3, 3), (1, 2, 2), (2, 2), filters=(16, 32, 64), res_block=True,
            ),
            *image(64),
        ),
        "UNETR": Network.of(
            lambda: monai.networks.nets.UNETR(
                3, 2, (64, 64), feature_size=16, hidden_size=64, mlp_dim=128, num_heads=4,
                spatial_dims=2,
            ),
            *image(64),
        ),
    },
    {
        "RetinaFace": Network.of(RetinaFace, *image(128)),
        "YOLOv7-tiny": Network.of(TinyYolo7, *image(128)),
    },
    {
        "AST": hidden(
            "AST:Model", (torch.zeros(1, 96, 64),), False, **_SPEECH, patch_size=16,
            num_mel_bins=64, max_length=96, frequency_stride=10, time_stride=10,
        ),
        "UniSpeech-SAT": hidden(
            "UniSpeechSat:Model", (torch.zeros(1, 4000),), False, **_SPEECH, vocab_size=32,
            conv_dim=(64, 64, 64), conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4),
            num_feat_extract_layers=3, num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
        ),
    },
    {
        "ControlNet": Network.of(
            _control, torch.zeros(1, 4, 16, 16), torch.tensor([7.0]), torch.zeros(1, 12, 48),
            torch.zeros(1, 3, 32, 32),
        ),
        "Kandinsky": Network.of(
            _Kandinsky, torch.zeros(1, 4, 16, 16), torch.tensor([7.0]), torch.zeros(1, 12, 48)
        ),
    },
)  # fmt: skip


READ, ASIDE = (exporters_drawn(drawn, _SEED) for drawn in drawn_at_random(PAIRS, _SEED))
SETS = {"read": READ, "aside": ASIDE}
