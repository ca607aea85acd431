"""Networks of kinds that no earlier set has, drawn at random, of which only figures were read.

One to four of each of eight lists of eleven or more (timm, torchvision, texts, images and audio of
transformers, diffusers, ultralytics, networks without a library), in the order drawn, without
those that other sets have, those of more than a thousand layers and those that no exporter of
PyTorch writes. Random weights.

python -m benchmarks.networks.write ninth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks ninth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import transformers
from torch import Tensor, nn
from transformers.models.blenderbot.modeling_blenderbot import BlenderbotEncoder
from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionModel
from ultralytics.nn.tasks import ClassificationModel, DetectionModel, SegmentationModel

from benchmarks.networks.pytorch.deployed import (
    VISION,
    first_output,
    hidden,
    torchvision_network,
    words,
    yolo,
)
from benchmarks.networks.pytorch.export import Network, timm_network
from benchmarks.networks.pytorch.ninth_set_modules import (
    BcResNet,
    CycleGan,
    FlowNet,
    Hed,
    RetinaFace,
)

_TOKENS = torch.zeros(1, 24, dtype=torch.int64) + 3
_IMAGE = (torch.zeros(1, 3, 64, 64),)
_STEP = torch.tensor([7.0])


def _blenderbot() -> nn.Module:
    config = transformers.BlenderbotConfig(
        vocab_size=100, d_model=64, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=128, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return BlenderbotEncoder(config)


class _Siglip2(nn.Module):
    """The vision tower of Siglip 2, which is given patches and how many there are each way."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.Siglip2VisionConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_patches=64, patch_size=8, attn_implementation="eager",
        )  # fmt: skip
        self.whole = Siglip2VisionModel(config)

    def forward(self, patches: Tensor) -> Tensor:
        """The last hidden state."""
        mask, sizes = torch.ones(1, 64, dtype=torch.int64), torch.tensor([[8, 8]])
        return self.whole(patches, mask, sizes)[0]


def _mae() -> nn.Module:
    config = transformers.ViTMAEConfig(
        **{**VISION, "patch_size": 8}, decoder_hidden_size=48, decoder_num_hidden_layers=2,
        decoder_num_attention_heads=4, decoder_intermediate_size=96, mask_ratio=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.ViTMAEForPreTraining(config)


class _Mae(nn.Module):
    """An autoencoder of patches with an order that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = _mae()

    def forward(self, image: Tensor, order: Tensor) -> Tensor:
        """The pixels of all patches."""
        return self.whole(image, noise=order).logits


class _Motion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNetMotionModel(
            sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, layers_per_block=1,
            down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
            up_block_types=("UpBlockMotion", "CrossAttnUpBlockMotion"),
            cross_attention_dim=48, num_attention_heads=4, motion_num_attention_heads=4,
            motion_max_seq_length=8, use_motion_mid_block=False,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, words: Tensor) -> Tensor:
        """The noise of two frames."""
        return self.whole(latent, step, words, return_dict=False)[0]


class _Chroma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.ChromaTransformer2DModel(
            in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
            num_attention_heads=4, joint_attention_dim=48, axes_dims_rope=(4, 6, 6),
            approximator_num_channels=16, approximator_hidden_dim=64, approximator_layers=2,
        )  # fmt: skip

    def forward(self, latent: Tensor, words: Tensor, step: Tensor) -> Tensor:
        """The flow."""
        places, order = torch.zeros(64, 3), torch.zeros(8, 3)
        places[:, 1], places[:, 2] = torch.arange(64) // 8, torch.arange(64) % 8
        return self.whole(
            latent, encoder_hidden_states=words, timestep=step, img_ids=places, txt_ids=order,
            return_dict=False,
        )[0]  # fmt: skip


class _Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.StableAudioDiTModel(
            sample_size=64, in_channels=16, num_layers=2, attention_head_dim=16,
            num_attention_heads=4, num_key_value_attention_heads=2, out_channels=16,
            cross_attention_dim=48, time_proj_dim=32, global_states_input_dim=40,
            cross_attention_input_dim=48,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, words: Tensor, whole: Tensor) -> Tensor:
        """The noise."""
        turns = torch.ones(65, 8), torch.zeros(65, 8)
        return self.whole(latent, step, words, whole, turns, return_dict=False)[0]


def _classifier(config: str, nc: int, verbose: bool) -> nn.Module:
    return ClassificationModel(config, nc=nc, verbose=verbose)


_RESNET = {"embedding_size": 16, "hidden_sizes": [32, 64, 96], "depths": [1, 2, 1]}
ASIDE: Mapping[str, Network] = {
    "ViT (ResNet stem)": timm_network("vit_small_r26_s32_224", 224, dynamo=True, depth=2),
    "EfficientNet-CC": timm_network("efficientnet_cc_b0_4e", 64, dynamo=True),
    "SwinV2-CR": timm_network("swinv2_cr_tiny_ns_224", 224, dynamo=False, depths=(1, 2, 1, 1)),
    "Swin 3-D": torchvision_network("swin3d_t", 4, 64, 64, dynamo=True),
    "RegNetY": torchvision_network("regnet_y_400mf", 64, 64, dynamo=False),
    "MViTv2": torchvision_network("mvit_v2_s", 16, 224, 224, dynamo=True),
    "Blenderbot": Network.of(first_output(_blenderbot), _TOKENS, dynamo=True),
    "GPTBigCode": words(
        "GPTBigCode:ForCausalLM", "logits", False, n_embd=64, n_layer=2, n_head=4, n_inner=128,
        n_positions=64,
    ),
    "MPT": words("Mpt:Model", "last_hidden_state", False, d_model=64, n_heads=4, n_layers=2),
    "ResNet (transformers)": Network.of(
        first_output(lambda: transformers.ResNetModel(transformers.ResNetConfig(**_RESNET))),
        *_IMAGE,
    ),
    "ViT-MAE": Network.of(_Mae, *_IMAGE, torch.arange(64.0)[None] / 64),
    "SigLIP 2": Network.of(_Siglip2, torch.zeros(1, 64, 192)),
    "Table Transformer": hidden(
        "TableTransformer:Model", (torch.zeros(1, 3, 96, 96),), False, backbone="resnet18",
        use_pretrained_backbone=False, d_model=64, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_queries=10,
    ),
    "BC-ResNet": Network.of(BcResNet, torch.zeros(1, 1, 40, 64)),
    "U-Net of motion": Network.of(
        _Motion, torch.zeros(1, 4, 2, 16, 16), _STEP, torch.zeros(2, 8, 48)
    ),
    "Chroma": Network.of(
        _Chroma, torch.zeros(1, 64, 16), torch.zeros(1, 8, 48), _STEP, dynamo=True
    ),
    "Stable Audio": Network.of(
        _Sound, torch.zeros(1, 16, 64), _STEP, torch.zeros(1, 8, 48), torch.zeros(1, 1, 40)
    ),
    "YOLO11 (masks)": yolo(SegmentationModel, "yolo11n-seg.yaml", 128, dynamo=True),
    "YOLO11 (classes)": yolo(_classifier, "yolo11n-cls.yaml", 96, dynamo=False),
    "YOLOv10": yolo(DetectionModel, "yolov10n.yaml", 128, dynamo=False),
    "HED": Network.of(Hed, torch.zeros(1, 3, 96, 96)),
    "RetinaFace": Network.of(RetinaFace, torch.zeros(1, 3, 128, 128), dynamo=True),
    "FlowNet": Network.of(FlowNet, torch.zeros(1, 6, 128, 128)),
    "CycleGAN": Network.of(CycleGan, torch.zeros(1, 3, 64, 64), dynamo=True),
}  # fmt: skip
SETS = {"aside": ASIDE}
