"""Twenty-two networks drawn at random from 130 that no earlier list has: only figures were read.

From timm, torchvision, transformers and diffusers, with random weights and smaller; drawn before
anything was exported or measured. Four are left out: one is large, three cannot be exported.

python -m benchmarks.networks.write openvino_set --folder networks
python -m benchmarks.plans.openvino --placements 1 --networks openvino_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import torchvision
import transformers
from torch import Tensor, nn

from benchmarks.networks.pytorch.deployed import SPEECH, VISION, Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network

_IMAGE = (torch.zeros(1, 3, 64, 64),)


def _speech_t5() -> nn.Module:
    config = transformers.SpeechT5Config(
        vocab_size=32, hidden_size=64, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=128,
        conv_dim=(32, 32, 32), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    return Outputs(
        transformers.SpeechT5Model(config).encoder.wrapped_encoder, lambda found: found[0]
    )


def _conditional_detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage4"],
    )  # fmt: skip
    config = transformers.ConditionalDetrConfig(
        backbone_config=backbone, use_timm_backbone=False, backbone=None,
        use_pretrained_backbone=False, d_model=64, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_queries=20, num_labels=10, attn_implementation="eager",
    )  # fmt: skip
    whole = transformers.ConditionalDetrForObjectDetection(config)
    return Outputs(whole, lambda found: (found.logits, found.pred_boxes))


def _superpoint() -> nn.Module:
    config = transformers.SuperPointConfig(
        encoder_hidden_sizes=[16, 16, 32, 32], decoder_hidden_size=32, descriptor_decoder_dim=32
    )
    whole = transformers.SuperPointForKeypointDetection(config)

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.points = whole.encoder, whole.keypoint_decoder

        def forward(self, image: Tensor) -> Tensor:
            encoded = self.encoder(image)[0]
            return self.points._get_pixel_scores(encoded)

    return Scores()


def _ctrl() -> nn.Module:
    config = transformers.CTRLConfig(
        vocab_size=100, n_positions=64, n_embd=64, dff=128, n_layer=2, n_head=4
    )
    return Outputs(transformers.CTRLModel(config), lambda found: found[0])


def _wan() -> nn.Module:
    whole = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=4, attention_head_dim=16, in_channels=4,
        out_channels=4, text_dim=48, freq_dim=32, ffn_dim=128, num_layers=2, rope_max_seq_len=32,
    )  # fmt: skip
    return _Sampled(whole, ("hidden_states", "timestep", "encoder_hidden_states"))


def _transformer_2d() -> nn.Module:
    whole = diffusers.Transformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=32, num_layers=2,
        norm_num_groups=8, cross_attention_dim=48,
    )  # fmt: skip
    return _Sampled(whole, ("hidden_states", "encoder_hidden_states"))


class _Sampled(nn.Module):
    """A module of diffusers that is given its inputs by name."""

    def __init__(self, whole: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.whole, self.names = whole, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the module returns as its sample."""
        return self.whole(**dict(zip(self.names, inputs, strict=True))).sample


ASIDE: Mapping[str, Network] = {
    "ViT (RoPE)": timm_network(
        "vit_base_patch16_rope_224", 64, True, img_size=64, depth=2, embed_dim=64, num_heads=4
    ),
    "CoaT": timm_network(
        "coat_tiny", 64, False, img_size=64, embed_dims=(64, 64, 64, 64),
        serial_depths=(1, 1, 1, 1), parallel_depth=1, num_heads=8,
    ),
    "MaxxViTv2": timm_network("maxxvitv2_nano_rw_256", 64, False, img_size=64),
    "Inception-ResNet v2": timm_network("inception_resnet_v2", 96, False),
    "ConvNeXt (RMS)": timm_network("convnext_zepto_rms", 64, False),
    "SAM 2 trunk": timm_network(
        "sam2_hiera_tiny", 64, False, stages=(1, 1, 2, 1), embed_dim=32, num_heads=1
    ),
    "MobileNetV4 (blur)": timm_network("mobilenetv4_conv_blur_medium", 64, False),
    "Xception": timm_network("legacy_xception", 64, False),
    "XGLM": words(
        "XGLM:Model", "last_hidden_state", False, d_model=64, ffn_dim=128, num_layers=2,
        attention_heads=4,
    ),
    "CodeGen": words(
        "CodeGen:Model", "last_hidden_state", False, n_positions=64, n_ctx=64, n_embd=64,
        n_layer=2, n_head=4, rotary_dim=8,
    ),
    "CTRL": Network(_ctrl, (torch.zeros(1, 24, dtype=torch.int64),), False),
    "NomicBERT": words("NomicBert:Model", "last_hidden_state", True),
    "EuroBERT": words("EuroBert:Model", "last_hidden_state", True, pad_token_id=0, mask_token_id=1),
    "SpeechT5": Network(_speech_t5, (torch.zeros(1, 40, 64),), False),
    "Conditional DETR": Network(_conditional_detr, _IMAGE, False),
    "UniSpeech-SAT": hidden("UniSpeechSat:Model", (torch.zeros(1, 3200),), False, **SPEECH),
    "SuperPoint": Network(_superpoint, (torch.zeros(1, 1, 64, 64),), False),
    "OWL-ViT": hidden("OwlViTVision:Model", _IMAGE, False, **VISION),
    "Wan": Network(
        _wan, (torch.zeros(1, 4, 2, 8, 8), torch.tensor([7]), torch.zeros(1, 12, 48)), True
    ),
    "Transformer2D": Network(
        _transformer_2d, (torch.zeros(1, 32, 8, 8), torch.zeros(1, 12, 48)), False
    ),
    "ShuffleNetV2": Network(
        lambda: torchvision.models.shufflenet_v2_x0_5(weights=None), _IMAGE, False
    ),
    "S3D": Network(
        lambda: torchvision.models.video.s3d(weights=None), (torch.zeros(1, 3, 16, 224, 224),),
        False,
    ),
}  # fmt: skip
SETS = {"aside": ASIDE}
