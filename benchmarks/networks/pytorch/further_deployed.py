"""Eighteen more networks that are often deployed, for TensorRT-RTX: a lot of twelve may be read.

No other list of benchmarks has them. As their own libraries write them, with random weights and
smaller: torchvision, transformers, diffusers and ultralytics; those without a library are in
``deployed_modules``. Which are ``READ`` was drawn by lot before anything was measured; of ``ASIDE``
only figures are read.

python -m benchmarks.plans.tensorrt_rtx --networks further_deployed --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import diffusers
import torch
import torchvision
import transformers
from torch import Tensor, nn
from ultralytics.nn.tasks import DetectionModel

from benchmarks.networks.pytorch.deployed import Outputs, words, yolo
from benchmarks.networks.pytorch.deployed_modules import (
    ArcFace,
    BiSeNetV2,
    CenterNet,
    Imdn,
    SepFormer,
    U2Net,
)
from benchmarks.networks.pytorch.export import Network, image

_ONE = torch.tensor([7.0])


def _rt_detr() -> nn.Module:
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=64, encoder_in_channels=[32, 64, 96],
        encoder_ffn_dim=128, encoder_attention_heads=4, d_model=64, num_queries=20,
        decoder_in_channels=[64, 64, 64], decoder_ffn_dim=128, decoder_attention_heads=4,
        decoder_layers=2, num_denoising=0, num_labels=10, anchor_image_size=[128, 128],
        attn_implementation="eager",
    )  # fmt: skip
    whole = transformers.RTDetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


class Flow(nn.Module):
    """The flow after two steps of RAFT."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = torchvision.models.optical_flow.raft_small(weights=None)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The flow from ``first`` to ``second``."""
        return self.whole(first, second, num_flow_updates=2)[-1]


class LargeDenoiser(nn.Module):
    """A U-Net of SDXL's kind: linear layers around attention, sizes among what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNet2DConditionModel(
            sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
            block_out_channels=(32, 64), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=48,
            attention_head_dim=(4, 8), norm_num_groups=8, use_linear_projection=True,
            transformer_layers_per_block=(1, 2), addition_embed_type="text_time",
            addition_time_embed_dim=8, projection_class_embeddings_input_dim=80,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, words: Tensor, text: Tensor) -> Tensor:
        """The noise of ``latent``."""
        sizes = torch.zeros(1, 6)
        given = {"text_embeds": text, "time_ids": sizes}
        return self.whole(latent, step, words, added_cond_kwargs=given).sample


def _dit() -> nn.Module:
    whole = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2,
        sample_size=16, num_embeds_ada_norm=20, norm_num_groups=8,
    )  # fmt: skip
    return _Classed(whole)


class _Classed(nn.Module):
    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, latent: Tensor, step: Tensor, label: Tensor) -> Tensor:
        """The noise of ``latent``, of a class."""
        return self.whole(latent, timestep=step, class_labels=label).sample


def _sam() -> nn.Module:
    config = transformers.SamVisionConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=128, patch_size=8,
        mlp_dim=128, output_channels=32, window_size=5, global_attn_indexes=[1],
        attn_implementation="eager",
    )  # fmt: skip
    return Outputs(transformers.SamVisionModel(config), lambda found: found[0])


def _depth() -> nn.Module:
    backbone = transformers.Dinov2Config(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128,
        image_size=56, patch_size=14, out_indices=[1, 2, 3, 4], reshape_hidden_states=False,
        apply_layernorm=True,
    )  # fmt: skip
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=64, neck_hidden_sizes=[16, 32, 48, 64],
        fusion_hidden_size=32, head_hidden_size=16,
    )  # fmt: skip
    return Outputs(transformers.DepthAnythingForDepthEstimation(config), lambda found: found[0])


def _vocoder() -> nn.Module:
    return transformers.SpeechT5HifiGan(
        transformers.SpeechT5HifiGanConfig(
            model_in_dim=40, upsample_initial_channel=64, upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3, 7],
            resblock_dilation_sizes=[[1, 3], [1, 3]],
        )
    )  # fmt: skip


NETWORKS: Mapping[str, Network] = {
    "RT-DETR": Network(_rt_detr, image(128), True),
    "CenterNet": Network(lambda: CenterNet(10), image(128), False),
    "YOLO12": yolo(DetectionModel, "yolo12n.yaml", 128, dynamo=False),
    "BiSeNetV2": Network(lambda: BiSeNetV2(5), image(128), False),
    "U2-Net": Network(U2Net, image(96), False),
    "ResNet 3-D": Network(
        lambda: torchvision.models.video.r3d_18(weights=None, num_classes=10),
        (torch.zeros(1, 3, 8, 32, 32),),
        True,
    ),
    "RAFT": Network(Flow, (torch.zeros(1, 3, 128, 128),) * 2, True),
    "ArcFace": Network(ArcFace, image(112), False),
    "SDXL": Network(
        LargeDenoiser,
        (torch.zeros(1, 4, 16, 16), _ONE, torch.zeros(1, 12, 48), torch.zeros(1, 32)),
        True,
    ),
    "DiT": Network(
        _dit,
        (torch.zeros(1, 4, 16, 16), torch.tensor([7]), torch.tensor([3])),
        True,
    ),
    "Qwen3": words("Qwen3:ForCausalLM", "logits", True, num_key_value_heads=2, head_dim=16),
    "ModernBERT": words("ModernBert:Model", "last_hidden_state", True, pad_token_id=0),
    "DeBERTa": words(
        "DebertaV2:Model",
        "last_hidden_state",
        False,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
    "SepFormer": Network(lambda: SepFormer(64, 20), (torch.zeros(1, 1, 968),), False),
    "SAM": Network(_sam, image(128), False),
    "Depth Anything": Network(_depth, image(56), True),
    "HiFi-GAN (transformers)": Network(_vocoder, (torch.zeros(1, 30, 40),), False),
    "IMDN": Network(lambda: Imdn(32, 2), image(32), True),
}
_CHOSEN = frozenset(Random(20261126).sample(sorted(NETWORKS), 6))
ASIDE = {name: network for name, network in NETWORKS.items() if name in _CHOSEN}
READ = {name: network for name, network in NETWORKS.items() if name not in _CHOSEN}
SETS = {"read": READ, "aside": ASIDE}
