"""Forty-eight networks in pairs of a kind that no other list has, for TensorRT-RTX.

As their own libraries write them, with random weights and smaller: torchvision, timm, transformers
and diffusers; those without a library are in ``third_set_modules``. Which of a pair may be ``READ``
was drawn at random before anything was measured; of ``ASIDE`` only figures are read. Three are left
out since they cannot be exported, or ONNX Runtime refuses the export.

python -m benchmarks.plans.tensorrt_rtx --networks third_set --folder networks --placements 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
import transformers
from torch import Tensor, nn
from torchvision.models import detection

from benchmarks.networks.pytorch.deployed import Heads, Outputs, hidden, torchvision_network, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, image, timm_network
from benchmarks.networks.pytorch.third_set_modules import (
    Dbnet,
    DnCnn,
    LinkNet,
    OsNet,
    Pfld,
    SrResNet,
    UNetPlusPlus,
)

_ATTENTION = {"attn_implementation": "eager"}
_ENCODED = torch.zeros(1, 12, 48)
_STEP = torch.tensor([7.0])
_SPEECH = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_VIDEO = {
    "image_size": 64, "patch_size": 16, "num_frames": 4, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip


class _Both(nn.Module):
    """An encoder and a decoder that read the same tokens."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of each word."""
        return self.whole(input_ids=tokens, decoder_input_ids=tokens, use_cache=False).logits


class _Control(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.ControlNetModel(
            in_channels=4, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=48,
            attention_head_dim=8, conditioning_embedding_out_channels=(16, 32),
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, text: Tensor, image: Tensor) -> list[Tensor]:
        """What a denoiser adds to its skips."""
        down, middle = self.whole(latent, step, text, image, return_dict=False)
        return [*down, middle]


class _PixArt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.PixArtTransformer2DModel(
            num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=8,
            num_layers=2, cross_attention_dim=64, sample_size=16, caption_channels=48,
            use_additional_conditions=False,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, text: Tensor) -> Tensor:
        """The noise of ``latent``."""
        return self.whole(
            latent, encoder_hidden_states=text, timestep=step,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ).sample  # fmt: skip


class _Through(nn.Module):
    """One method of a module."""

    def __init__(self, whole: nn.Module, method: str) -> None:
        super().__init__()
        self.whole, self.method = whole, method

    def forward(self, given: Tensor) -> Tensor:
        """What the method makes of ``given``."""
        made = getattr(self.whole, self.method)(given)
        return getattr(made, "sample", getattr(made, "latents", made))


def _translator(name: str) -> Network:
    def make() -> nn.Module:
        config = getattr(transformers, f"{name}Config")(
            vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
            decoder_ffn_dim=128, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None, **_ATTENTION,
        )  # fmt: skip
        rest = "ForConditionalGeneration" if name == "Bart" else "MTModel"
        return _Both(getattr(transformers, f"{name}{rest}")(config))

    return Network(make, (torch.arange(1, 21).reshape(1, 20),), False)


def _dpt() -> nn.Module:
    config = transformers.DPTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128,
        image_size=64, patch_size=16, backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, **_ATTENTION,
    )  # fmt: skip
    return Outputs(transformers.DPTForDepthEstimation(config), lambda found: found[0])


def _glpn() -> nn.Module:
    config = transformers.GLPNConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=32, **_ATTENTION,
    )  # fmt: skip
    return Outputs(transformers.GLPNForDepthEstimation(config), lambda found: found[0])


def _yolos() -> nn.Module:
    config = transformers.YolosConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        image_size=[64, 64], patch_size=16, num_detection_tokens=20, num_labels=10, **_ATTENTION,
    )  # fmt: skip
    whole = transformers.YolosForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _vit_mae() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        image_size=64, patch_size=16, num_labels=10, encoder_stride=16, **_ATTENTION,
    )  # fmt: skip
    return Outputs(transformers.ViTForMaskedImageModeling(config), lambda found: found[0])


def _series(name: str, dynamo: bool, **options: object) -> Network:
    def make() -> nn.Module:
        config = getattr(transformers, f"{name}Config")(
            num_input_channels=3, context_length=64, patch_length=8, patch_stride=8,
            prediction_length=16, d_model=32, scaling=None, **options,
        )  # fmt: skip
        return Outputs(getattr(transformers, f"{name}ForPrediction")(config), _prediction)

    return Network(make, (torch.zeros(1, 64, 3),), dynamo)


def _prediction(found: Any) -> object:
    return found.prediction_outputs


def _vq() -> nn.Module:
    whole = diffusers.VQModel(
        block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    return _Through(whole, "encode")


def _ssd() -> nn.Module:
    return Heads(detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=5))


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "MobileNetV1": timm_network("mobilenetv1_100", 64, dynamo=False),
        "MobileNet-EdgeTPU": timm_network("mobilenet_edgetpu_v2_xs", 64, dynamo=True),
    },
    {
        "SemNASNet": timm_network("semnasnet_075", 64, dynamo=False),
        "SE-ResNeXt": timm_network("legacy_seresnext26_32x4d", 64, dynamo=True),
    },
    {
        "AlexNet": torchvision_network("alexnet", 224, 224, dynamo=False),
        "SSD (VGG)": Network(_ssd, image(300), False),
    },
    {
        "Wide ResNet": torchvision_network("wide_resnet50_2", 64, 64, dynamo=True),
        "CSP-DarkNet53": timm_network("cspdarknet53", 64, dynamo=False),
    },
    {
        "HGNet": timm_network("hgnet_tiny", 64, dynamo=False),
        "CS3-EdgeNet": timm_network("cs3edgenet_x", 64, dynamo=True),
    },
    {
        "GhostNetV3": timm_network("ghostnetv3_100", 64, dynamo=False),
        "HaloRegNetZ": timm_network("haloregnetz_b", 224, dynamo=True),
    },
    {
        "DistilBERT": words(
            "DistilBert:Model",
            "last_hidden_state",
            True,
            dim=64,
            n_layers=2,
            n_heads=4,
            hidden_dim=128,
        ),
        "ELECTRA": words("Electra:Model", "last_hidden_state", False, embedding_size=32),
    },
    {
        "ALBERT": words("Albert:Model", "last_hidden_state", True, embedding_size=32),
        "MobileBERT": words(
            "MobileBert:Model",
            "last_hidden_state",
            False,
            embedding_size=32,
            intra_bottleneck_size=32,
            true_hidden_size=32,
        ),
    },
    {
        "OPT": words("OPT:ForCausalLM", "logits", True, ffn_dim=128, word_embed_proj_dim=64),
        "Bloom": words("Bloom:ForCausalLM", "logits", False, n_layer=2, n_head=4),
    },
    {
        "Gemma": words("Gemma:ForCausalLM", "logits", True, num_key_value_heads=1, head_dim=16),
        "Mistral": words("Mistral:ForCausalLM", "logits", False, num_key_value_heads=2),
    },
    {"BART": _translator("Bart"), "Marian": _translator("Marian")},
    {
        "Wav2Vec2": hidden("Wav2Vec2:Model", (torch.zeros(1, 2400),), True, **_SPEECH),
        "WavLM": hidden("WavLM:Model", (torch.zeros(1, 2400),), False, **_SPEECH),
    },
    {"DPT": Network(_dpt, image(64), True), "GLPN": Network(_glpn, image(64), False)},
    {"YOLOS": Network(_yolos, image(64), True), "SimMIM": Network(_vit_mae, image(64), False)},
    {
        "SwinV2 (torchvision)": torchvision_network("swin_v2_t", 64, 64, dynamo=False),
        "Swin-S3": timm_network("swin_s3_tiny_224", 224, dynamo=True),
    },
    {
        "VideoMAE": hidden(
            "VideoMAE:Model", (torch.zeros(1, 4, 3, 64, 64),), True, tubelet_size=2, **_VIDEO
        ),
        "TimeSformer": hidden(
            "Timesformer:Model", (torch.zeros(1, 4, 3, 64, 64),), False, **_VIDEO
        ),
    },
    {
        "R(2+1)D": torchvision_network("r2plus1d_18", 16, 64, 64, dynamo=True),
        "Video ResNet (mixed)": torchvision_network("mc3_18", 16, 64, 64, dynamo=True),
    },
    {
        "ControlNet": Network(
            _Control,
            (torch.zeros(1, 4, 16, 16), _STEP, _ENCODED, torch.zeros(1, 3, 32, 32)),
            True,
        ),
        "PixArt": Network(_PixArt, (torch.zeros(1, 4, 16, 16), _STEP, _ENCODED), True),
    },
    {
        "Tiny autoencoder": Network(
            lambda: _Through(diffusers.AutoencoderTiny(), "decode"),
            (torch.zeros(1, 4, 8, 8),),
            False,
        ),
        "VQ encoder": Network(_vq, image(32), True),
    },
    {
        "U-Net++": Network(lambda: UNetPlusPlus(16, 4), image(64), False),
        "LinkNet": Network(lambda: LinkNet(32, 4), image(128), True),
    },
    {
        "DnCNN": Network(lambda: DnCnn(32, 5), (torch.zeros(1, 1, 48, 48),), True),
        "SRResNet": Network(lambda: SrResNet(32, 3), image(32), False),
    },
    {
        "PatchTST": _series(
            "PatchTST", True, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64
        ),
        "PatchTSMixer": _series("PatchTSMixer", False, num_layers=2),
    },
    {
        "OSNet": Network(lambda: OsNet(32, 64), image(128), True),
        "PFLD": Network(lambda: Pfld(98), image(56), False),
    },
    {
        "DBNet": Network(lambda: Dbnet(32), image(128), False),
        "EfficientNet-ES": timm_network("efficientnet_es", 64, dynamo=True),
    },
)
_LEFT_OUT = ("HaloRegNetZ", "PatchTSMixer", "PixArt")
READ, ASIDE = (
    {name: network for name, network in drawn.items() if name not in _LEFT_OUT}
    for drawn in drawn_at_random(PAIRS, seed=20261126)
)
SETS = {"read": READ, "aside": ASIDE}
