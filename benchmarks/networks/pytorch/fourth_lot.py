"""Twenty-eight networks in pairs of a kind that no earlier list for TensorRT-RTX has.

Speech encoders, detection heads, diffusion, depth, super-resolution, text: as torchvision,
transformers and diffusers write them, with random weights and smaller. Which of a pair may be
``READ`` was drawn by lot before anything was measured; of ``ASIDE`` only figures are read. Three
are left out since they cannot be exported, or random weights and inputs make what is no number.

python -m benchmarks.networks.write fourth_lot --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --model networks/aside/Swin2SR.onnx
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import diffusers
import torch
import transformers
from torch import Tensor, nn
from torchvision.models import detection

from benchmarks.networks.pytorch.deployed import Heads, Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, drawn_by_lot, image
from benchmarks.networks.pytorch.fourth_lot_modules import Rcan, Rlfn

_SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip
_VISION = {**_SIZES, "image_size": 64, "patch_size": 16}
_SOUND = (torch.zeros(1, 1, 2048),)
_LATENT = torch.zeros(1, 4, 16, 16)
_TEXT = torch.zeros(1, 12, 48)
_STEP = torch.tensor([7.0])


class _Call(nn.Module):
    """``call`` of a module and of what the network is given."""

    def __init__(self, whole: nn.Module, call: Callable[..., object]) -> None:
        super().__init__()
        self.whole, self.call = whole, call

    def forward(self, *inputs: Tensor) -> object:
        """What ``call`` returns."""
        return self.call(self.whole, *inputs)


def _eager(name: str, **options: object) -> object:
    return getattr(transformers, name)(**options, attn_implementation="eager")


def _called(
    make: Callable[[], nn.Module],
    call: Callable[..., object],
    inputs: tuple[Tensor, ...],
    dynamo: bool,
) -> Network:
    return Network(lambda: _Call(make(), call), inputs, dynamo)


def _moonshine() -> nn.Module:
    config = _eager(
        "MoonshineConfig", hidden_size=64, intermediate_size=128, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=1, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
        encoder_num_key_value_heads=4, decoder_num_key_value_heads=4, vocab_size=100,
    )  # fmt: skip
    return Outputs(transformers.MoonshineModel(config).encoder, lambda found: found[0])


def _speech_to_text() -> nn.Module:
    config = _eager(
        "Speech2TextConfig", d_model=64, encoder_layers=2, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, vocab_size=100, input_feat_per_channel=40, conv_channels=64,
        max_source_positions=100, max_target_positions=32,
    )  # fmt: skip
    return Outputs(transformers.Speech2TextModel(config).encoder, lambda found: found[0])


def _dac() -> nn.Module:
    config = transformers.DacConfig(
        encoder_hidden_size=16, downsampling_ratios=[2, 4], decoder_hidden_size=64,
        upsampling_ratios=[4, 2], hidden_size=64, codebook_dim=8, codebook_size=64,
    )  # fmt: skip
    return transformers.DacModel(config)


def _mimi() -> nn.Module:
    config = transformers.MimiConfig(
        hidden_size=64, num_filters=16, upsampling_ratios=[4, 2], num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, intermediate_size=128,
        codebook_dim=32, vector_quantization_hidden_dimension=32,
        upsample_groups=64,
    )  # fmt: skip
    return transformers.MimiModel(config)


def _detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage4"],
    )  # fmt: skip
    config = _eager(
        "DetrConfig", backbone_config=backbone, use_timm_backbone=False, backbone=None,
        use_pretrained_backbone=False, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_queries=20, num_labels=10,
    )  # fmt: skip
    whole = transformers.DetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _fcos() -> nn.Module:
    whole = detection.fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5)
    return Heads(whole)


def _proposals() -> nn.Module:
    return detection.fasterrcnn_mobilenet_v3_large_fpn(
        weights=None, weights_backbone=None, num_classes=5
    )


def _heads_of_proposals(whole: nn.Module, image: Tensor) -> list[Tensor]:
    scores, boxes = whole.rpn.head(list(whole.backbone(image).values()))
    return [*scores, *boxes]


def _poses() -> nn.Module:
    backbone = transformers.VitPoseBackboneConfig(
        image_size=[64, 48], patch_size=[16, 16], hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, out_features=["stage2"],
    )  # fmt: skip
    config = _eager("VitPoseConfig", backbone_config=backbone, use_simple_decoder=False)
    return Outputs(transformers.VitPoseForPoseEstimation(config), lambda found: found.heatmaps)


def _pixels() -> nn.Module:
    return diffusers.UNet2DModel(
        sample_size=32, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
    )  # fmt: skip


def _kandinsky() -> nn.Module:
    return diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=8, layers_per_block=1, norm_num_groups=8,
        block_out_channels=(32, 64), cross_attention_dim=48, attention_head_dim=8,
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn", resnet_time_scale_shift="scale_shift",
    )  # fmt: skip


def _stable_diffusion_3() -> nn.Module:
    return diffusers.SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=4, joint_attention_dim=48, caption_projection_dim=64,
        pooled_projection_dim=32, out_channels=4, pos_embed_max_size=16,
    )  # fmt: skip


def _sana() -> nn.Module:
    return diffusers.SanaTransformer2DModel(
        in_channels=4, out_channels=4, num_attention_heads=4, attention_head_dim=16, num_layers=2,
        num_cross_attention_heads=4, cross_attention_head_dim=16, cross_attention_dim=64,
        caption_channels=48, sample_size=16, patch_size=1,
    )  # fmt: skip


def _autoencoder() -> nn.Module:
    return diffusers.AutoencoderKL(
        block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip


def _deep_compression() -> nn.Module:
    return diffusers.AutoencoderDC(
        in_channels=3, latent_channels=8, attention_head_dim=8,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(32, 64), decoder_block_out_channels=(32, 64),
        encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
        encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
        upsample_block_type="interpolate",
    )  # fmt: skip


def _zoe() -> nn.Module:
    backbone = transformers.BeitConfig(
        **{**_VISION, "num_hidden_layers": 4}, reshape_hidden_states=False,
        out_features=["stage1", "stage2", "stage3", "stage4"], use_relative_position_bias=True,
    )  # fmt: skip
    config = transformers.ZoeDepthConfig(
        backbone_config=backbone, neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32,
        bottleneck_features=32, num_relative_features=16, bin_embedding_dim=32,
        num_attractors=[4, 2, 2, 1], num_patch_transformer_layers=1,
        patch_transformer_hidden_size=32, patch_transformer_intermediate_size=64,
        bin_configurations=[{"n_bins": 8, "min_depth": 0.001, "max_depth": 10.0}],
    )  # fmt: skip
    return Outputs(transformers.ZoeDepthForDepthEstimation(config), lambda found: found[0])


def _prompt_depth() -> nn.Module:
    backbone = transformers.Dinov2Config(
        **{**_VISION, "num_hidden_layers": 4, "patch_size": 14, "image_size": 56},
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False,
    )  # fmt: skip
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=64, neck_hidden_sizes=[16, 32, 48, 64],
        fusion_hidden_size=32, head_hidden_size=16, depth_estimation_type="metric", max_depth=20,
    )  # fmt: skip
    return Outputs(transformers.DepthAnythingForDepthEstimation(config), lambda found: found[0])


def _clip_text(whole: nn.Module, tokens: Tensor) -> Tensor:
    return whole(input_ids=tokens).last_hidden_state


def _segmented() -> nn.Module:
    backbone = transformers.ConvNextConfig(
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.UperNetConfig(
        backbone_config=backbone, hidden_size=32, auxiliary_in_channels=48, num_labels=5
    )
    return Outputs(transformers.UperNetForSemanticSegmentation(config), lambda found: found[0])


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "Moonshine": Network(_moonshine, (torch.zeros(1, 4000),), True),
        "Speech2Text": Network(_speech_to_text, (torch.zeros(1, 100, 40),), True),
    },
    {
        "DAC": _called(_dac, lambda whole, sound: whole.encoder(sound), _SOUND, False),
        "Mimi": _called(_mimi, lambda whole, sound: whole.encoder(sound), _SOUND, False),
    },
    {
        "AST": hidden(
            "AST:Model", (torch.zeros(1, 64, 32),), False, **_SIZES, max_length=64,
            num_mel_bins=32,
        ),
        "CLAP": hidden(
            "ClapAudio:Model", (torch.zeros(1, 1, 256, 16),), False, spec_size=64,
            num_mel_bins=16, patch_size=4, patch_stride=[4, 4], depths=[1, 1], window_size=4,
            num_attention_heads=[2, 4], hidden_size=64, patch_embeds_hidden_size=32,
            enable_fusion=False,
        ),
    },
    {
        "DETR": Network(_detr, image(96), False),
        "FCOS (torchvision)": Network(_fcos, image(96), True),
    },
    {
        "region proposals": _called(_proposals, _heads_of_proposals, image(96), False),
        "ViTPose": Network(_poses, (torch.zeros(1, 3, 64, 48),), True),
    },
    {
        "DDPM": _called(
            _pixels, lambda whole, x, t: whole(x, t).sample,
            (torch.zeros(1, 3, 32, 32), _STEP), False,
        ),
        "Kandinsky": _called(
            _kandinsky, lambda whole, x, t, text: whole(x, t, text).sample,
            (_LATENT, _STEP, _TEXT), True,
        ),
    },
    {
        "Stable Diffusion 3": _called(
            _stable_diffusion_3,
            lambda whole, x, text, pooled, t: whole(x, text, pooled, t).sample,
            (_LATENT, _TEXT, torch.zeros(1, 32), _STEP), True,
        ),
        "Sana": _called(
            _sana, lambda whole, x, text, t: whole(x, text, t).sample,
            (_LATENT, _TEXT, _STEP), False,
        ),
    },
    {
        "VAE encoder": _called(
            _autoencoder, lambda whole, image: whole.encode(image).latent_dist.mean,
            image(64), True,
        ),
        "DC-AE": _called(
            _deep_compression, lambda whole, image: whole.encode(image).latent, image(64), True
        ),
    },
    {
        "ZoeDepth": Network(_zoe, image(64), False),
        "Depth Anything (metric)": Network(_prompt_depth, image(56), False),
    },
    {
        "Swin2SR": hidden(
            "Swin2SR:ForImageSuperResolution", image(32), False, embed_dim=32, depths=[2],
            num_heads=[4], window_size=8, upscale=2, image_size=32,
        ),
        "RCAN": Network(lambda: Rcan(32), image(48), True),
    },
    {
        "RLFN": Network(lambda: Rlfn(32), image(48), False),
        "UPerNet": Network(_segmented, image(64), True),
    },
    {
        "T5": words(
            "T5:EncoderModel", "last_hidden_state", False, d_model=64, d_kv=16, d_ff=128,
            num_layers=2, num_heads=4,
        ),
        "CLIP text": _called(
            lambda: transformers.CLIPTextModel(
                _eager("CLIPTextConfig", **_SIZES, vocab_size=100, max_position_embeddings=24)
            ),
            _clip_text, (torch.zeros(1, 24, dtype=torch.int64),), False,
        ),
    },
    {
        "MPNet": words("MPNet:Model", "last_hidden_state", False),
        "XLM-R": words("XLMRoberta:Model", "last_hidden_state", True),
    },
    {
        "GPT-Neo": words(
            "GPTNeo:ForCausalLM", "logits", False, num_layers=2, num_heads=4,
            attention_types=[[["global", "local"], 1]],
        ),
        "CLIP vision": hidden("CLIPVision:Model", image(64), True, **_VISION),
    },
)  # fmt: skip
_LEFT_OUT = ("DC-AE", "GPT-Neo", "Mimi")
READ, ASIDE = (
    {name: network for name, network in drawn.items() if name not in _LEFT_OUT}
    for drawn in drawn_by_lot(PAIRS, seed=261120262)
)
SETS = {"read": READ, "aside": ASIDE}
