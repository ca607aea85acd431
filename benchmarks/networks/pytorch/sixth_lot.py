"""Networks of kinds that no other list has, drawn by lot, of which only figures were read.

Two to four of each of seven lists of ten or so (timm, torchvision, images, texts and audio of
transformers, diffusers, detectors without a library), in the order of the lot. Random weights.

python -m benchmarks.networks.write sixth_lot --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks sixth_lot --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

from benchmarks.networks.pytorch.deployed import VISION, Outputs, hidden, words
from benchmarks.networks.pytorch.export import Network, image, timm_network
from benchmarks.networks.pytorch.sixth_lot_modules import (
    EfficientDet,
    LaneNet,
    MarbleNet,
    NanoDet,
    WaveUNet,
)

_TOKENS = torch.zeros(1, 24, dtype=torch.int64)
_SEW = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "position_buckets": 16, "max_position_embeddings": 64,
}  # fmt: skip


def _maps(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The last three levels of a backbone, and their channels."""
    made = timm.create_model(name, pretrained=False, features_only=True, out_indices=(2, 3, 4))
    return made, tuple(made.feature_info.channels())


def _efficient_det() -> nn.Module:
    return EfficientDet(*_maps("efficientnet_b0"), 32)


def _nano_det() -> nn.Module:
    return NanoDet(*_maps("mobilenetv3_small_100"), 48)


def _lanes() -> nn.Module:
    backbone, channels = _maps("resnet18")
    return LaneNet(backbone, channels[-1], 12)


class _Mask(nn.Module):
    """The mask head of Mask R-CNN over pooled regions, and its features."""

    def __init__(self) -> None:
        super().__init__()
        whole = torchvision.models.detection.maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=5
        )
        self.head, self.predictor = whole.roi_heads.mask_head, whole.roi_heads.mask_predictor

    def forward(self, regions: Tensor) -> Tensor:
        """A mask of each class."""
        return self.predictor(self.head(regions)).sigmoid()


def _pix2struct() -> nn.Module:
    config = transformers.Pix2StructVisionConfig(
        hidden_size=64, patch_embed_hidden_size=48, d_ff=128, d_kv=16, num_hidden_layers=2,
        num_attention_heads=4, seq_len=32, attn_implementation="eager",
    )  # fmt: skip
    return Outputs(transformers.Pix2StructVisionModel(config), lambda found: found[0])


class _SuperPoint(nn.Module):
    """Scores and descriptors of all places, before points are chosen."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.SuperPointConfig(
            encoder_hidden_sizes=[16, 16, 32, 32], decoder_hidden_size=64,
            descriptor_decoder_dim=64, keypoint_decoder_dim=65,
        )  # fmt: skip
        whole = transformers.SuperPointForKeypointDetection(config)
        self.encoder, self.points = whole.encoder, whole.keypoint_decoder
        self.descriptors = whole.descriptor_decoder

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores at full size and normalised descriptors."""
        encoded = self.encoder(image, output_hidden_states=False, return_dict=True)[0]
        points = self.points
        scores = points.conv_score_b(points.relu(points.conv_score_a(encoded)))
        scores = nn.functional.softmax(scores, 1)[:, :-1]
        _, _, height, width = scores.shape
        scores = scores.permute(0, 2, 3, 1).reshape(1, height, width, 8, 8)
        scores = scores.permute(0, 1, 3, 2, 4).reshape(1, height * 8, width * 8)
        found = self.descriptors
        described = found.conv_descriptor_b(found.relu(found.conv_descriptor_a(encoded)))
        return scores, nn.functional.normalize(described, p=2, dim=1)


class _Speech(nn.Module):
    """The encoder of SpeechT5 behind embedded words."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.SpeechT5Config(
            vocab_size=81, hidden_size=64, encoder_layers=2, encoder_attention_heads=4,
            encoder_ffn_dim=128, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=128,
            max_text_positions=64, encoder_max_relative_position=20, num_feat_extract_layers=3,
            conv_dim=(32, 32, 32), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2),
        )  # fmt: skip
        self.encoder = transformers.SpeechT5ForTextToSpeech(config).speecht5.encoder

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden state."""
        return self.encoder(tokens).last_hidden_state


class _Denoiser1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNet1DModel(
            sample_size=64, in_channels=14, out_channels=14, layers_per_block=1,
            block_out_channels=(32, 64), time_embedding_type="positional",
            use_timestep_embedding=True,
            down_block_types=("DownResnetBlock1D",) * 2, up_block_types=("UpResnetBlock1D",),
            mid_block_type="MidResTemporalBlock1D", out_block_type="OutConv1DBlock",
            flip_sin_to_cos=False, freq_shift=1, act_fn="mish", norm_num_groups=8,
        )  # fmt: skip

    def forward(self, given: Tensor, step: Tensor) -> Tensor:
        """The noise of ``given``."""
        return self.whole(given, step, return_dict=False)[0]


class _Oobleck(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = diffusers.AutoencoderOobleck(
            encoder_hidden_size=16, downsampling_ratios=[2, 4, 4], channel_multiples=[1, 2, 4],
            decoder_channels=16, decoder_input_channels=16, audio_channels=2,
        )  # fmt: skip
        self.decoder = whole.decoder

    def forward(self, latent: Tensor) -> Tensor:
        """A signal of two channels."""
        return self.decoder(latent)


class _Video(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.LTXVideoTransformer3DModel(
            in_channels=16, out_channels=16, num_attention_heads=4, attention_head_dim=16,
            cross_attention_dim=64, num_layers=2, caption_channels=48,
        )  # fmt: skip

    def forward(self, latent: Tensor, text: Tensor, step: Tensor) -> Tensor:
        """The noise of ``latent``, whose places are of two frames of four by four."""
        mask = torch.ones(text.shape[:2], dtype=torch.int64)
        return self.whole(
            latent, text, step, encoder_attention_mask=mask, num_frames=2, height=4, width=4,
            return_dict=False,
        )[0]  # fmt: skip


def _s3d() -> nn.Module:
    return torchvision.models.get_model("s3d", weights=None, num_classes=10)


_STEP = torch.tensor([7.0])
ASIDE: Mapping[str, Network] = {
    "Inception-ResNet": timm_network("inception_resnet_v2", 96, dynamo=False),
    "CSATv2": timm_network("csatv2", 256, dynamo=True),
    "CoAtNeXt": timm_network("coatnext_nano_rw_224", 64, dynamo=True, img_size=64),
    "S3D": Network.of(_s3d, torch.zeros(1, 3, 16, 224, 224)),
    "Mask R-CNN (masks)": Network.of(_Mask, torch.zeros(8, 256, 14, 14)),
    "Data2Vec (vision)": hidden("Data2VecVision:Model", image(64), False, **VISION),
    "Pix2Struct": Network.of(_pix2struct, torch.rand(1, 32, 50)),
    "SuperPoint": Network.of(_SuperPoint, torch.zeros(1, 1, 64, 64), dynamo=True),
    "RemBERT": words("RemBert:Model", "last_hidden_state", False, input_embedding_size=32),
    "SmolLM3": words("SmolLM3:ForCausalLM", "logits", True, num_key_value_heads=2, pad_token_id=0),
    "ESM": words("Esm:Model", "last_hidden_state", False, pad_token_id=1, mask_token_id=2,
                 position_embedding_type="rotary"),
    "Wave-U-Net": Network.of(lambda: WaveUNet(24, 4), torch.zeros(1, 1, 1024)),
    "MarbleNet": Network.of(lambda: MarbleNet(64, 64), torch.zeros(1, 64, 100), dynamo=True),
    "SEW-D": hidden("SEWD:Model", (torch.zeros(1, 3200),), False, **_SEW),
    "SpeechT5": Network.of(_Speech, _TOKENS + 3),
    "Oobleck": Network.of(_Oobleck, torch.zeros(1, 16, 24)),
    "U-Net (1-D)": Network.of(_Denoiser1d, torch.zeros(1, 14, 64), _STEP),
    "LTX-Video": Network.of(
        _Video, torch.zeros(1, 32, 16), torch.zeros(1, 12, 48), _STEP, dynamo=True
    ),
    "EfficientDet": Network.of(_efficient_det, *image(128)),
    "NanoDet": Network.of(_nano_det, *image(128), dynamo=True),
    "Ultra-Fast-Lane": Network.of(_lanes, torch.zeros(1, 3, 96, 128)),
}  # fmt: skip
SETS = {"aside": ASIDE}
