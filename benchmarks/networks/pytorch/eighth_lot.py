"""Networks of kinds that no other lot has, drawn by lot, of which only figures were read.

Two to four of each of seven lists of twelve or more (timm, texts, images and audio of transformers,
diffusers, ultralytics, networks without a library), in the order of the lot, without those that
other sets have and those that no exporter of PyTorch writes. Random weights.

python -m benchmarks.networks.write eighth_lot --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks eighth_lot --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import transformers
from torch import Tensor, nn
from transformers.models.bart.modeling_bart import BartEncoder
from transformers.models.d_fine.modeling_d_fine import DFineHybridEncoder
from transformers.models.granite_speech.modeling_granite_speech import GraniteSpeechCTCEncoder
from ultralytics.nn.tasks import ClassificationModel, PoseModel

from benchmarks.networks.pytorch.deployed import VISION, first_output, words, yolo
from benchmarks.networks.pytorch.export import Network, timm_network

_TOKENS = torch.zeros(1, 24, dtype=torch.int64) + 3
_IMAGE = (torch.zeros(1, 3, 64, 64),)


def _bart() -> nn.Module:
    config = transformers.BartConfig(
        vocab_size=100, d_model=64, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=128, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return BartEncoder(config)


def _phi3() -> Network:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return words("Phi3:ForCausalLM", "logits", True, num_key_value_heads=2, **tokens)


def _vit_det() -> nn.Module:
    config = transformers.VitDetConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=96,
        pretrain_image_size=64, patch_size=8, window_block_indices=[0], window_size=5,
        use_relative_position_embeddings=True, residual_block_indices=[1],
    )  # fmt: skip
    return transformers.VitDetModel(config)


class _DFine(nn.Module):
    """The encoder of D-FINE over maps of three levels: attention on the last, then a pyramid."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.DFineConfig(
            encoder_hidden_dim=64, encoder_in_channels=[32, 48, 64], encoder_ffn_dim=128,
            encoder_attention_heads=4, feat_strides=[8, 16, 32], depth_mult=0.34,
            hidden_expansion=0.5, attn_implementation="eager",
        )  # fmt: skip
        self.lift = nn.ModuleList([nn.Conv2d(width, 64, 1) for width in (32, 48, 64)])
        self.whole = DFineHybridEncoder(config)

    def forward(self, *maps: Tensor) -> list[Tensor]:
        """A map of each level."""
        lifted = [lift(found) for lift, found in zip(self.lift, maps, strict=True)]
        found = self.whole(lifted)
        return list(found.last_hidden_state)


class _Idefics(nn.Module):
    """The vision tower of Idefics 3 and the projection of four places to one word."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.Idefics3VisionConfig(
            **{**VISION, "patch_size": 8}, attn_implementation="eager"
        )
        self.whole = transformers.Idefics3VisionTransformer(config)
        self.project = nn.Linear(256, 96, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        """Words of the image."""
        tokens = self.whole(image)[0]
        places = tokens.reshape(1, 4, 2, 4, 2, 64).permute(0, 1, 3, 2, 4, 5)
        return self.project(places.reshape(1, 16, 256))


class _Granite(nn.Module):
    """The speech encoder of Granite."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.GraniteSpeechEncoderConfig(
            input_dim=40, num_layers=2, hidden_dim=64, feedforward_mult=2, num_heads=4,
            dim_head=16, output_dim=20, context_size=16, max_pos_emb=32,
        )  # fmt: skip
        self.whole = GraniteSpeechCTCEncoder(config)

    def forward(self, sound: Tensor) -> Tensor:
        """The last hidden state."""
        return self.whole(sound)[0]


def _univ_net() -> nn.Module:
    config = transformers.UnivNetConfig(
        model_in_channels=16, model_hidden_channels=16, num_mel_bins=20,
        resblock_kernel_sizes=[3, 3], resblock_stride_sizes=[4, 4],
        resblock_dilation_sizes=[[1, 3], [1, 3]], kernel_predictor_num_blocks=1,
        kernel_predictor_hidden_channels=16,
    )  # fmt: skip
    return transformers.UnivNetModel(config)


class _Aura(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.AuraFlowTransformer2DModel(
            sample_size=16, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=16,
            num_attention_heads=4, joint_attention_dim=48, caption_projection_dim=64,
            pos_embed_max_size=64,
        )  # fmt: skip

    def forward(self, latent: Tensor, words: Tensor, step: Tensor) -> Tensor:
        """The flow."""
        return self.whole(latent, words, step, return_dict=False)[0]


class _Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNet1DModel(
            sample_size=256, in_channels=2, out_channels=2, extra_in_channels=64,
            block_out_channels=(32, 32, 64), down_block_types=(
                "DownBlock1DNoSkip", "DownBlock1D", "AttnDownBlock1D",
            ), up_block_types=("AttnUpBlock1D", "UpBlock1D", "UpBlock1DNoSkip"),
        )  # fmt: skip

    def forward(self, sound: Tensor, step: Tensor) -> Tensor:
        """The noise."""
        return self.whole(sound, step, return_dict=False)[0]


class _Hunyuan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.HunyuanDiT2DModel(
            num_attention_heads=4, attention_head_dim=16, in_channels=4, patch_size=2,
            sample_size=16, hidden_size=64, num_layers=2, mlp_ratio=2.0, cross_attention_dim=48,
            cross_attention_dim_t5=32, pooled_projection_dim=48, text_len=8, text_len_t5=8,
            learn_sigma=True, use_style_cond_and_image_meta_size=False,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, words: Tensor, more: Tensor) -> Tensor:
        """The noise."""
        turns = (torch.ones(64, 16), torch.zeros(64, 16))
        mask = torch.ones(1, 8)
        return self.whole(
            latent, step, encoder_hidden_states=words, text_embedding_mask=mask,
            encoder_hidden_states_t5=more, text_embedding_mask_t5=mask,
            image_rotary_emb=turns, return_dict=False,
        )[0]  # fmt: skip


class _Fsrcnn(nn.Module):
    """Super-resolution that works on few channels of small maps (Dong et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        middle: list[nn.Module] = []
        for _ in range(4):
            middle += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
        self.body = nn.Sequential(
            nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12),
            *middle, nn.Conv2d(12, 56, 1), nn.PReLU(56),
            nn.ConvTranspose2d(56, 1, 9, 3, 4, output_padding=2),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """An image of three times the width and height."""
        return self.body(image)


class _Inverted(nn.Module):
    """A block of MobileFaceNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide, self.same = 2 * inputs, stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.PReLU(wide),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.PReLU(wide), nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, given: Tensor) -> Tensor:
        """Features of as many places, or a quarter."""
        return given + self.body(given) if self.same else self.body(given)


class _MobileFaceNet(nn.Module):
    """Embeddings of faces (Chen et al. 2018): a depthwise Conv of the whole map ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.PReLU(32),
            nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), nn.PReLU(32),
            _Inverted(32, 32, 2), _Inverted(32, 32, 1), _Inverted(32, 64, 2), _Inverted(64, 64, 1),
            nn.Conv2d(64, 128, 1, bias=False), nn.BatchNorm2d(128), nn.PReLU(128),
            nn.Conv2d(128, 128, 14, groups=128, bias=False), nn.BatchNorm2d(128), nn.Flatten(),
            nn.Linear(128, 64, bias=False), nn.BatchNorm1d(64),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """An embedding of length 1."""
        return nn.functional.normalize(self.body(image))


def _classifier(config: str, nc: int, verbose: bool) -> nn.Module:
    return ClassificationModel(config, nc=nc, verbose=verbose)


def _pose(config: str, nc: int, verbose: bool) -> nn.Module:
    return PoseModel(config, nc=nc, verbose=verbose)


_LEVELS = (torch.zeros(1, 32, 16, 16), torch.zeros(1, 48, 8, 8), torch.zeros(1, 64, 4, 4))
_STEP = torch.tensor([7.0])
ASIDE: Mapping[str, Network] = {
    "NF-ECAResNet": timm_network("nf_ecaresnet50", 64, dynamo=True),
    "MobileNetV5": timm_network("mobilenetv5_base", 64, dynamo=False),
    "ResNet-AA": timm_network("resnetaa50d", 64, dynamo=True),
    "NaFlexViT": timm_network(
        "naflexvit_base_patch16_gap", 64, dynamo=True, embed_dim=64, depth=2, num_heads=4
    ),
    "GTE": words("Gte:Model", "last_hidden_state", True),
    "OLMo 3": words("Olmo3:ForCausalLM", "logits", True, num_key_value_heads=2),
    "Phi-3": _phi3(),
    "BART": Network.of(first_output(_bart), _TOKENS),
    "ViTDet": Network.of(first_output(_vit_det), torch.zeros(1, 3, 96, 96)),
    "D-FINE": Network.of(_DFine, *_LEVELS),
    "Idefics 3": Network.of(_Idefics, *_IMAGE, dynamo=True),
    "Granite Speech": Network.of(_Granite, torch.zeros(1, 64, 40)),
    "UnivNet": Network.of(
        first_output(_univ_net), torch.zeros(1, 16, 20), torch.zeros(1, 16, 16), dynamo=True
    ),
    "AuraFlow": Network.of(_Aura, torch.zeros(1, 4, 16, 16), torch.zeros(1, 12, 48), _STEP),
    "U-Net of waves": Network.of(_Waves, torch.zeros(1, 2, 256), _STEP, dynamo=True),
    "Hunyuan-DiT": Network.of(
        _Hunyuan, torch.zeros(1, 4, 16, 16), _STEP, torch.zeros(1, 8, 48), torch.zeros(1, 8, 32)
    ),
    "YOLOv8 (classes)": yolo(_classifier, "yolov8n-cls.yaml", 96, dynamo=False),
    "YOLO11 (poses)": yolo(_pose, "yolo11n-pose.yaml", 128, dynamo=False),
    "FSRCNN": Network.of(_Fsrcnn, torch.zeros(1, 1, 48, 48)),
    "MobileFaceNet": Network.of(_MobileFaceNet, torch.zeros(1, 3, 112, 112), dynamo=True),
}  # fmt: skip
SETS = {"aside": ASIDE}
