"""Networks of kinds that no other list has, drawn at random, of which only figures were read.

Two to four of each of six lists of ten or more (timm, images, texts and audio of transformers,
diffusers, networks without a library), in the order drawn, without those that no exporter of
PyTorch writes. Random weights.

python -m benchmarks.networks.write seventh_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks seventh_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import transformers
from torch import Tensor, nn
from transformers.models.funnel.modeling_funnel import FunnelModel
from transformers.models.mbart.modeling_mbart import MBartEncoder
from transformers.models.musicgen.modeling_musicgen import MusicgenDecoder

from benchmarks.networks.pytorch.deployed import VISION, Outputs, first_output, hidden, words
from benchmarks.networks.pytorch.export import Network, timm_network
from benchmarks.networks.pytorch.seventh_set_modules import Craft, DeblurGenerator, ENet, Yolact

_TOKENS = torch.zeros(1, 24, dtype=torch.int64) + 3
_IMAGE = (torch.zeros(1, 3, 64, 64),)


def _dpt() -> nn.Module:
    config = transformers.DPTConfig(
        **{**VISION, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[16, 32, 48, 64],
        fusion_hidden_size=32, attn_implementation="eager",
    )  # fmt: skip
    return transformers.DPTForDepthEstimation(config)


def _funnel() -> nn.Module:
    config = transformers.FunnelConfig(
        vocab_size=100, block_sizes=[1, 1], num_decoder_layers=1, d_model=64, n_head=4, d_head=16,
        d_inner=128,
    )  # fmt: skip
    return FunnelModel(config)


def _mbart() -> nn.Module:
    config = transformers.MBartConfig(
        vocab_size=100, d_model=64, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=128, attn_implementation="eager",
    )  # fmt: skip
    return MBartEncoder(config)


class _Music(nn.Module):
    """A decoder of four codebooks that attends to what an encoder wrote."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.MusicgenDecoderConfig(
            vocab_size=64, max_position_embeddings=64, num_hidden_layers=2, ffn_dim=128,
            num_attention_heads=4, hidden_size=64, pad_token_id=64, bos_token_id=64,
            attn_implementation="eager",
        )  # fmt: skip
        self.whole = MusicgenDecoder(config)

    def forward(self, codes: Tensor, encoded: Tensor) -> Tensor:
        """The last hidden state."""
        return self.whole(codes, encoder_hidden_states=encoded, use_cache=False)[0]


def _adapter() -> nn.Module:
    whole = diffusers.T2IAdapter(in_channels=3, channels=[32, 64, 96, 96], num_res_blocks=1)
    return Outputs(whole, list)


class _Asymmetric(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.AsymmetricAutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2, down_block_out_channels=(16, 32),
            layers_per_down_block=1, up_block_types=("UpDecoderBlock2D",) * 2,
            up_block_out_channels=(24, 48), layers_per_up_block=2, norm_num_groups=8,
        )  # fmt: skip

    def forward(self, latent: Tensor, image: Tensor, mask: Tensor) -> Tensor:
        """The image of ``latent`` where ``mask`` says so."""
        return self.whole.decode(latent, image=image, mask=mask, return_dict=False)[0]


class _Video(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UNetSpatioTemporalConditionModel(
            sample_size=16, in_channels=8, out_channels=4, block_out_channels=(32, 64),
            down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            cross_attention_dim=32, num_attention_heads=(2, 4), layers_per_block=1, num_frames=2,
            addition_time_embed_dim=32, projection_class_embeddings_input_dim=96,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, image: Tensor, times: Tensor) -> Tensor:
        """The noise of two frames."""
        return self.whole(latent, step, image, times, return_dict=False)[0]


_GEMMA = {
    "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_PARAKEET = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "num_mel_bins": 40, "subsampling_conv_channels": 16, "max_position_embeddings": 64,
}  # fmt: skip
_CVT = {
    "embed_dim": [16, 32, 64], "num_heads": [1, 2, 4], "depth": [1, 2, 3],
}  # fmt: skip
_DINO = {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]}
_LAYOUT = {
    "coordinate_size": 10, "shape_size": 12, "max_2d_position_embeddings": 64, "input_size": 64,
    "visual_embed": False, "rel_pos_bins": 8, "rel_2d_pos_bins": 8,
}  # fmt: skip
_STEP = torch.tensor([7.0])
ASIDE: Mapping[str, Network] = {
    "ConvFormer": timm_network("convformer_s18", 64, dynamo=True),
    "LCNetV2": timm_network("lcnetv2_small", 64, dynamo=False),
    "DINOv3": hidden("DINOv3ViT:Model", _IMAGE, True, **VISION, num_register_tokens=4),
    "DINOv3 (ConvNeXt)": hidden("DINOv3ConvNext:Model", _IMAGE, False, **_DINO),
    "DPT": Network.of(first_output(_dpt), *_IMAGE),
    "CvT": hidden("Cvt:Model", _IMAGE, False, **_CVT),
    "Funnel": Network.of(first_output(_funnel), _TOKENS),
    "mBART": Network.of(first_output(_mbart), _TOKENS),
    "LayoutLMv3": words("LayoutLMv3:Model", "last_hidden_state", False, **_LAYOUT),
    "Gemma 3": words("Gemma3Text:Model", "last_hidden_state", True, **_GEMMA),
    "I-BERT": words("IBert:Model", "last_hidden_state", False),
    "Parakeet": hidden("ParakeetEncoder:", (torch.zeros(1, 128, 40),), False, **_PARAKEET),
    "MusicGen": Network.of(
        _Music, _TOKENS.repeat(1, 4)[:, :32].reshape(4, 8), torch.zeros(1, 12, 64)
    ),
    "T2I-Adapter": Network.of(_adapter, torch.zeros(1, 3, 128, 128)),
    "asymmetric autoencoder": Network.of(
        _Asymmetric, torch.zeros(1, 4, 16, 16), torch.zeros(1, 3, 32, 32),
        torch.zeros(1, 1, 32, 32),
    ),
    "Stable Video Diffusion": Network.of(
        _Video, torch.zeros(1, 2, 8, 16, 16), _STEP, torch.zeros(1, 1, 32),
        torch.ones(1, 3), dynamo=True,
    ),
    "ENet": Network.of(lambda: ENet(5), torch.zeros(1, 3, 96, 128)),
    "DeblurGAN": Network.of(lambda: DeblurGenerator(16, 3), torch.zeros(1, 3, 64, 64), dynamo=True),
    "YOLACT": Network.of(lambda: Yolact(64, 8), torch.zeros(1, 3, 128, 128)),
    "CRAFT": Network.of(Craft, torch.zeros(1, 3, 96, 96), dynamo=True),
}  # fmt: skip
SETS = {"aside": ASIDE}
